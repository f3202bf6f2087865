// cgr_block_table_build against a second reading of what a block table is, on random batches and by hand; and the scales.
#include "tests/support/block_table_case.h"
#include "tests/support/expect.h"
#include "tests/support/poisoned.h"

namespace cgr_test {
namespace {

// Into memory that is full of garbage.
std::vector<int32_t> Build(const BlockTableBatch &b, cgr_block_table_layout *at) {
  *at = CGR_BLOCK_TABLE_LAYOUT_INIT;
  CGR_EXPECT_OK(cgr_block_table_get_layout(&b.input, at));
  Poisoned<16> memory(at->bytes);
  CGR_EXPECT_OK(cgr_block_table_build(&b.input, memory.data(), at->bytes));
  EXPECT_TRUE(memory.EndIsUntouched()) << "written past the end";
  return memory.Get();
}

TEST(BlockTable, EqualsASecondReading) {
  ForSeeds(20000, [&](Random &random) {
    BlockTableBatch b;
    RandomBlockTable(random, random.OneIn(100) ? 300 : 12, false, &b);
    cgr_block_table_layout at;
    std::vector<int32_t> got = Build(b, &at);
    ASSERT_EQ(got, BlockTableWords(b, at));
    const int32_t query_len = b.input.query_len ? b.input.query_len : b.input.num_tokens / b.input.num_requests;
    ASSERT_EQ(at.query_len, query_len);
    ASSERT_EQ(at.max_query_len, query_len);
    ASSERT_EQ(at.max_seq_len, b.input.max_seq_len);
    ASSERT_EQ(at.kernel_page_size, KernelPageSize(b.input));
    ASSERT_EQ(at.max_prefill_query_len, b.input.max_prefill_query_len);
  });
}

TEST(BlockTable, IsAsByHand) {
  BlockTableBatch b;
  b.input.num_requests = 3;
  b.input.query_len = 2;
  b.input.max_seq_len = 40;
  b.input.max_pages = 4;
  b.input.page_size = 16;
  b.input.kv_layout = CGR_LAYOUT_HND;
  b.input.read_trash_page = 9;
  b.input.num_rows = 2;
  b.input.num_pages = 10;
  b.input.page_table_stride = 3;
  b.page_table = { 1, 2, 3, 4, 5, 6 };
  b.rows = { 1, 0, 77 };
  b.seq_lens = { 33, 16, 55555 };
  b.query_start_loc = { 0, 2, 4, 66666 };
  b.live = 2;
  b.Bind();
  cgr_block_table_layout at;
  EXPECT_EQ(Build(b, &at), (std::vector<int32_t>{ 4,  5,  6,  9, 1, 9, 9, 9, 9, 9, 9, 9, //
                                                  33, 16, 0,  0,                         //
                                                  0,  2,  4,  4,                         //
                                                  0,  33, 49, 49 }));
  EXPECT_EQ(at.block_table, 0u);
  EXPECT_EQ(at.seq_lens, 48u);
  EXPECT_EQ(at.query_start_loc, 64u);
  EXPECT_EQ(at.kv_start_loc, 80u);
  EXPECT_EQ(at.bytes, 96u);
}

// Every size of page over every size of the kernel's: the token that a kernel reads through the table is the one that the engine
// wrote through its own.
TEST(BlockTable, KernelPagesAreThoseOfTheEnginesPages) {
  SeededRandom random;
  for (int32_t size : { 16, 32, 64, 128 })
    for (int32_t page = size; page <= 1024; page += size) {
      BlockTableBatch b;
      RandomBlockTable(random, 6, false, &b);
      b.input.page_size = page;
      b.input.kernel_page_size = size;
      b.input.max_seq_len = 3000;
      b.input.max_pages = (3000 + size - 1) / size;
      b.input.page_table_stride = (3000 + page - 1) / page;
      b.page_table.clear();
      for (int64_t i = 0; i < b.input.num_rows * b.input.page_table_stride; i++)
        b.page_table.push_back(random.Pick32(0, int32_t(b.input.num_pages) - 1));
      for (int32_t i = 0; i < b.num_live(); i++)
        b.seq_lens[size_t(i)] = random.Pick32(b.query_start_loc[size_t(i) + 1] - b.query_start_loc[size_t(i)], 3000);
      b.Bind();
      cgr_block_table_layout at;
      const std::vector<int32_t> got = Build(b, &at);
      ASSERT_EQ(got, BlockTableWords(b, at));
      for (int32_t i = 0; i < (b.input.max_prefill_query_len > 0 ? b.first_prefill : b.num_live()); i++)
        for (int32_t token = 0; token < b.seq_lens[size_t(i)]; token += random.Pick32(1, 40)) {
          const int64_t row = b.rows[size_t(i)] * b.input.page_table_stride;
          const int64_t engines = int64_t{ b.page_table[size_t(row + token / page)] } * page + token % page;
          const int64_t entry = got[size_t(i) * size_t(b.input.max_pages) + size_t(token / size)];
          ASSERT_EQ(entry * size + token % size, engines) << "token " << token << ", pages of " << page << " and " << size;
        }
    }
}

// Two decodes of one token, a prefill of 3 tokens after 32, one of 5 from the beginning, and padding; pages of 32 for a kernel
// with pages of 16.
TEST(BlockTable, APrefillPartIsAsByHand) {
  BlockTableBatch b;
  b.input.num_requests = 5;
  b.input.num_tokens = 5;
  b.input.max_prefill_query_len = 8;
  b.input.max_seq_len = 48;
  b.input.max_pages = 4;
  b.input.page_size = 32;
  b.input.kernel_page_size = 16;
  b.input.read_trash_page = 9;
  b.input.num_rows = 4;
  b.input.num_pages = 10;
  b.input.page_table_stride = 2;
  b.page_table = { 1, 2, 3, 4, 5, 6, 7, 8 };
  b.rows = { 1, 3, 2, 0, 77 };
  b.seq_lens = { 17, 1, 35, 5, 55555 };
  b.query_start_loc = { 0, 1, 2, 5, 10, 66666 };
  b.live = 4;
  b.first_prefill = 2;
  b.Bind();
  for (int32_t whole : { 0, 1 }) {
    b.input.whole_query = whole;
    const int32_t from = whole ? 2 : 0; // the decodes' tokens
    cgr_block_table_layout at;
    EXPECT_EQ(Build(b, &at), (std::vector<int32_t>{
                                 6,    7,        18,       18,       14,       18,       18, 18, 18, 18, // the table
                                 18,   18,       18,       18,       18,       18,       18, 18, 18, 18, //
                                 17,   1,        0,        0,        0,        0,        0,  0,          // lengths
                                 0,    1,        2,        2,        2,        2,        0,  0, // running sums of query tokens
                                 0,    17,       18,       18,       18,       18,       0,  0, // and of tokens
                                 10,   11,       12,       18,       2,        18,       18, 18, 18, 18, // the prefills' table
                                 18,   18,       18,       18,       18,       18,       18, 18, 18, 18, //
                                 35,   5,        0,        0,        0,        0,        0,  0,          //
                                 from, from + 3, from + 8, from + 8, from + 8, from + 8, 0,  0,          //
                                 0,    35,       40,       40,       40,       40,       0,  0,          //
                                 2,    2,        1,        17,       2,        8,        5,  35 }));
    EXPECT_EQ(at.query_len, 1);
    EXPECT_EQ(at.kernel_page_size, 16);
    EXPECT_EQ(at.prefill_block_table, 4u * 44);
    EXPECT_EQ(at.prefill_seq_lens, 4u * 64);
    EXPECT_EQ(at.prefill_query_start_loc, 4u * 72);
    EXPECT_EQ(at.prefill_kv_start_loc, 4u * 80);
    EXPECT_EQ(at.counts, 4u * 88);
    EXPECT_EQ(at.bytes, 4u * 96);
  }
}

TEST(BlockTable, ScalesAreProducts) {
  EXPECT_EQ(cgr_block_table_bmm1_scale(2, 3, 0.125), 0.75);
  EXPECT_EQ(cgr_block_table_bmm2_scale(3, 1), 3);
  EXPECT_EQ(cgr_block_table_bmm2_scale(3, 0.5), 6);
  EXPECT_EQ(cgr_block_table_bmm2_scale(3, 0), 3);
}

} // namespace
} // namespace cgr_test

// cgr_block_table_build against a second reading of what a block table is, on random batches and by hand; and the scales.
#include <gtest/gtest.h>

#include <cstring>

#include "tests/support/block_table_case.h"
#include "tests/support/expect.h"

namespace cgr_test {
namespace {

struct alignas(16) Row {
  int32_t words[4];
};

// From memory that is full of rubbish.
std::vector<int32_t> Build(const BlockTableBatch &b, cgr_block_table_layout *at) {
  *at = CGR_BLOCK_TABLE_LAYOUT_INIT;
  CGR_EXPECT_OK(cgr_block_table_get_layout(&b.input, at));
  std::vector<Row> memory(at->bytes / 16 + 1);
  std::memset(static_cast<void *>(memory.data()), 0xa5, memory.size() * sizeof(Row));
  CGR_EXPECT_OK(cgr_block_table_build(&b.input, memory.data(), at->bytes));
  EXPECT_EQ(memory.back().words[0], int32_t(0xa5a5a5a5u)) << "written past the end";
  return std::vector<int32_t>(memory[0].words, memory[0].words + at->bytes / 4);
}

TEST(BlockTable, EqualsASecondReading) {
  const uint64_t first = Seed();
  for (uint64_t seed = first; seed < first + 20000 && !HasFailure(); seed++) {
    SCOPED_TRACE(Repeat(seed));
    Random random(seed);
    BlockTableBatch b;
    RandomBlockTable(random, random.OneIn(100) ? 300 : 12, false, &b);
    cgr_block_table_layout at;
    std::vector<int32_t> got = Build(b, &at);
    ASSERT_EQ(got, BlockTableWords(b, at));
    ASSERT_EQ(at.query_len, b.input.query_len);
    ASSERT_EQ(at.max_query_len, b.input.query_len);
    ASSERT_EQ(at.max_seq_len, b.input.max_seq_len);
  }
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

TEST(BlockTable, ScalesAreProducts) {
  EXPECT_EQ(cgr_block_table_bmm1_scale(2, 3, 0.125), 0.75);
  EXPECT_EQ(cgr_block_table_bmm2_scale(3, 1), 3);
  EXPECT_EQ(cgr_block_table_bmm2_scale(3, 0.5), 6);
  EXPECT_EQ(cgr_block_table_bmm2_scale(3, 0), 3);
}

} // namespace
} // namespace cgr_test

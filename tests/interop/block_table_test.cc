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
    ASSERT_EQ(at.query_len, b.input.query_len);
    ASSERT_EQ(at.max_query_len, b.input.query_len);
    ASSERT_EQ(at.max_seq_len, b.input.max_seq_len);
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

TEST(BlockTable, ScalesAreProducts) {
  EXPECT_EQ(cgr_block_table_bmm1_scale(2, 3, 0.125), 0.75);
  EXPECT_EQ(cgr_block_table_bmm2_scale(3, 1), 3);
  EXPECT_EQ(cgr_block_table_bmm2_scale(3, 0.5), 6);
  EXPECT_EQ(cgr_block_table_bmm2_scale(3, 0), 3);
}

} // namespace
} // namespace cgr_test

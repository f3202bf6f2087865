// FlashInfer's plans at the borders of 32 bits: windows, lengths, chunks and sums up to 2^31 - 1, with pages down to one token.
#include "tests/support/flashinfer_model.h"

namespace cgr_test {
namespace {

// One model, on 132 multiprocessors.
FlashInferCase Prefill(std::vector<int32_t> qo, std::vector<int32_t> kv, int32_t page_size) {
  FlashInferCase c;
  c.decode = false;
  c.p.num_requests = int32_t(kv.size()) - 1;
  c.p.total_num_rows = std::max(qo.back(), c.p.num_requests);
  c.p.num_q_heads = 32;
  c.p.num_kv_heads = 8;
  c.p.head_dim_qk = c.p.head_dim_vo = 128;
  c.p.page_size = page_size;
  c.p.num_multiprocessors = 132;
  c.qo = std::move(qo);
  c.kv = std::move(kv);
  return c;
}

Bytes Check(FlashInferCase c) {
  cgr_flashinfer_plan plan;
  c.Bind();
  return CheckPlan(c, plan);
}

// A window that is longer than every sequence changes nothing. The natural way to say "none" is the largest number.
TEST(FlashInferBorders, TheLongestWindowsAreNone) {
  for (int32_t page_size : { 1, 2, 16 })
    for (int32_t rows : { 1, 5, 40, 200 }) // q tiles of 16, 64 and 128 rows
      for (bool graph : { false, true })
        for (int32_t fixed : { 0, 300 }) {
          FlashInferCase c = Prefill({ 0, rows }, { 0, 4000 }, page_size);
          c.p.graph = graph;
          c.p.fixed_split_size = fixed;
          const Bytes whole = Check(c);
          ASSERT_FALSE(HasFailure());
          for (int32_t below = 0; below <= 130; below++) {
            SCOPED_TRACE("window 2^31 - 1 - " + std::to_string(below) + ", pages of " + std::to_string(page_size));
            c.p.window = INT32_MAX - below;
            ASSERT_TRUE(Check(c) == whole);
          }
        }
}

// Its chunks are not lost with its pages: they are more than the graph has tiles for.
TEST(FlashInferBorders, AFixedSplitOfTooManyTilesIsRefusedWithTheLongestWindow) {
  FlashInferCase c = Prefill({ 0, 200 }, { 0, 1000 }, 1);
  c.p.graph = c.p.fixed_split_size = 1;
  for (int32_t window : { 0, INT32_MAX - 128, INT32_MAX - 127, INT32_MAX }) {
    c.p.window = window;
    EXPECT_TRUE(Check(c).empty());
  }
}

// Lengths up to what 32 bits hold, for each request and together; the window may end in them.
TEST(FlashInferBorders, LongLengthsEqualTheSecondReading) {
  int plans = 0;
  ForSeeds(4000, [&](Random &random) {
    FlashInferCase c = random.OneIn(4) ? RandomDecode(random, random.OneIn(2)) : RandomPrefill(random, random.OneIn(2));
    const int32_t page_size = c.d.page_size = c.p.page_size = std::vector<int32_t>{ 1, 2, 16, 65536 }[size_t(random.Pick(0, 3))];
    const int64_t most = INT32_MAX / page_size; // pages of a request
    int64_t sum = c.kv[0] = 0;
    for (size_t i = 1; i < c.kv.size(); i++) {
      int64_t room = std::min(most, INT32_MAX - sum), length = random.OneIn(3) ? room - random.Pick(0, 2) : random.Pick(0, room);
      sum += std::max<int64_t>(0, random.OneIn(2) ? length / 1000 : length);
      c.kv[i] = int32_t(sum);
    }
    c.p.window = random.OneIn(4) ? 0 : random.OneIn(2) ? INT32_MAX - random.Pick32(0, 200) : random.Pick32(1, INT32_MAX);
    c.p.unmasked = 0;
    const int32_t fewest = int32_t(most / 50) + 1; // so that there are few tiles to list
    c.p.fixed_split_size = c.p.fixed_split_size > 0 ? random.Pick32(fewest, int32_t(most)) : 0;
    c.Bind();
    cgr_flashinfer_plan plan;
    plans += !CheckPlan(c, plan).empty();
  });
  EXPECT_GT(plans, 2000);
}

// Without a graph more tiles than 32 bits count are refused, whatever the window.
TEST(FlashInferBorders, MoreTilesThan32BitsCountAreRefused) {
  FlashInferCase c = Prefill({ 0, 1, 2, 3 }, { 0, INT32_MAX - 1, INT32_MAX - 1, INT32_MAX }, 1);
  c.p.num_q_heads = c.p.num_kv_heads = c.p.head_dim_qk = c.p.head_dim_vo = c.p.fixed_split_size = 1;
  cgr_flashinfer_plan plan = CGR_FLASHINFER_PLAN_INIT;
  for (int32_t window : { 0, INT32_MAX }) {
    c.p.window = window;
    c.kv.back() = INT32_MAX; // an empty request is a tile, too
    c.Bind();
    ExpectMessage(c.Size(&plan), CGR_ERROR_INVALID_ARGUMENT,
                  { "the lengths make 2147483648 tiles", "expected at most 2147483647" });
    c.kv = { 0, INT32_MAX - 2, INT32_MAX - 2, INT32_MAX - 1 };
    c.Bind();
    CGR_EXPECT_OK(c.Size(&plan));
    EXPECT_EQ(plan.info[0], INT32_MAX);
  }
}

// Partials of many heads with wide outputs are more bytes than 64 bits count.
TEST(FlashInferBorders, FloatWorkspacesBeyond64BitsAreRefused) {
  for (int32_t layout : { CGR_FLASHINFER_V0_6_18, CGR_FLASHINFER_V0_7_1 }) {
    FlashInferCase c = Prefill({ 0, 1 }, { 0, INT32_MAX }, 1);
    c.p.num_q_heads = c.p.num_kv_heads = 1024;
    c.p.head_dim_vo = 65536;
    c.p.fixed_split_size = 1;
    c.p.layout = layout;
    cgr_flashinfer_plan plan = CGR_FLASHINFER_PLAN_INIT;
    for (int32_t pages : { INT32_MAX, 1 << 30 }) {
      c.kv[1] = pages;
      c.Bind();
      ExpectMessage(c.Size(&plan), CGR_ERROR_INVALID_ARGUMENT,
                    { "cgr_flashinfer_prefill_size: the lengths make " + std::to_string(16 * int64_t{ pages }) +
                      " rows of partials with num_q_heads 1024 and head_dim_vo 65536, expected at most " +
                      std::to_string((int64_t{ 1 } << 60) / 1024 / 65537) });
    }
    c.kv[1] = 1 << 29;
    c.Bind();
    CGR_EXPECT_OK(c.Size(&plan));
    EXPECT_EQ(plan.float_bytes, (uint64_t{ 1 } << 33) * 1024 * 4 * 65537);
    c.kv[1] = INT32_MAX; // not split
    c.p.disable_split_kv = 1;
    c.Bind();
    CGR_EXPECT_OK(c.Size(&plan));
    EXPECT_EQ(plan.float_bytes, 0u);
  }
}

} // namespace
} // namespace cgr_test

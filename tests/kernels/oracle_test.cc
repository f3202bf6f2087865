// The oracle itself: against results by hand, against its own gather, and that it lets nothing wrong pass.
#include <gtest/gtest-spi.h>
#include "tests/support/attention_case.h"

namespace cgr_test {
namespace {

// Two keys, one head of one dimension. q.k are 0 and ln 3: the weights are 1/4 and 3/4.
TEST(Oracle, SolvesTwoKeysAsByHand) {
  AttentionProblem problem;
  problem.query_len = 2;
  problem.seq_len = 2;
  problem.head_dim = 1;
  problem.scale = 1.0;
  problem.q = { 1.0, 1.0 };
  problem.k = { 0.0, std::log(3.0) };
  problem.v = { 4.0, 8.0 };
  AttentionAnswer answer = SolveAttention(problem);
  EXPECT_NEAR(answer.out[0], 4.0, 1e-12) << "the first token sees itself alone";
  EXPECT_NEAR(answer.out[1], 7.0, 1e-12);
  EXPECT_NEAR(answer.lse[0], 0.0, 1e-12);
  EXPECT_NEAR(answer.lse[1], std::log(4.0), 1e-12);
  EXPECT_GE(answer.out_bound, 1e-5);
  EXPECT_LT(answer.out_bound, 2e-5);
}

// bf16 keeps 8 bits: P is rounded by up to 2^-9, and so is the output.
TEST(Oracle, BoundFollowsThePrecision) {
  AttentionCase made(AttentionShape(), { { 3 }, { 90 }, 0, 0 }, 5);
  AttentionProblem problem;
  problem.query_len = 3;
  problem.seq_len = 90;
  problem.num_q_heads = 4;
  problem.num_kv_heads = 2;
  problem.head_dim = 64;
  problem.q = made.q[0];
  problem.k = made.kv[kCacheK][0];
  problem.v = made.kv[kCacheV][0];
  double fp32 = SolveAttention(problem).out_bound;
  problem.dtype = CGR_DTYPE_FP16;
  double fp16 = SolveAttention(problem).out_bound;
  problem.dtype = CGR_DTYPE_BF16;
  double bf16 = SolveAttention(problem).out_bound;
  EXPECT_LT(fp32, 2e-5);
  EXPECT_GT(fp16, 1e-4);
  EXPECT_GT(bf16, 4 * fp16);
  EXPECT_LT(bf16, 0.02);
}

TEST(Oracle, GathersWhatWasPlacedInEveryLayout) {
  DeviceParam host = HostParam(CGR_SCHEDULE_ASYNC);
  Bench bench(OpenDevice(host));
  for (const CacheLayouts &layouts : EveryCacheLayout()) {
    for (int32_t page_size : { 16, 64 }) {
      AttentionShape shape;
      shape.dtype = CGR_DTYPE_BF16;
      shape.layouts = layouts;
      shape.page_size = page_size;
      AttentionCase made(shape, { { 1, 3 }, { 77, 40 }, 0, 0 }, 6);
      FilledCache cache(bench, made, Poison::kNan);
      for (int32_t i : { 0, 1 })
        for (Cache which : kCaches)
          EXPECT_EQ(cache.Gather(which, made.Pages(i), made.batch().seq_lens[i]), made.kv[which][i]);
    }
  }
}

// Host memory with its own page table, as in an engine's test.
TEST(Oracle, GathersThroughAPageTable) {
  float pool[3][16][2][8]; // pages, tokens, heads, head dim
  for (int e = 0; e < 3 * 16 * 2 * 8; e++)
    (&pool[0][0][0][0])[e] = float(e);
  cgr_kv_view view = { pool, CGR_DTYPE_FP32, 0, 16 * 2 * 8, 2 * 8, 8, nullptr, 0, 0, 0, 0 };
  const int32_t pages[] = { 2, 0 };
  Values got = GatherKv(view, pages, 16, 18, 2, 8);
  ASSERT_EQ(got.size(), 18u * 16u);
  EXPECT_EQ(got[0], pool[2][0][0][0]);
  EXPECT_EQ(got[15 * 16 + 9], pool[2][15][1][1]);
  EXPECT_EQ(got[17 * 16 + 15], pool[0][1][1][7]);
}

TEST(Oracle, ReadsViewsByTheirStrides) {
  float memory[40];
  std::iota(memory, memory + 40, 0.0f);
  cgr_view heads_first = { memory, CGR_DTYPE_FP32, 0, 1, 10 }; // an lse, [heads][tokens]
  EXPECT_EQ(ReadView(heads_first, 1, 2, 3, 1), (Values{ 1, 11, 21, 2, 12, 22 }));
  cgr_view gaps = { memory, CGR_DTYPE_FP32, 0, 12, 5 };
  EXPECT_EQ(ReadView(gaps, 0, 2, 2, 2), (Values{ 0, 1, 5, 6, 12, 13, 17, 18 }));
}

TEST(Oracle, LetsNothingWrongPass) {
  static const AttentionAnswer answer = { { 1.0, 2.0 }, { 0.5 }, 0.01, 0.01 };
  ExpectAnswer({ 1.009, 1.991 }, { 0.509 }, answer);
  ExpectAnswer({ 1.0, 2.0 }, {}, answer);
  EXPECT_FATAL_FAILURE(ExpectAnswer({ 1.011, 2.0 }, { 0.5 }, answer), "out 0");
  EXPECT_FATAL_FAILURE(ExpectAnswer({ 1.0, 1.9 }, { 0.5 }, answer), "out 1");
  EXPECT_FATAL_FAILURE(ExpectAnswer({ 1.0, NAN }, { 0.5 }, answer), "out 1");
  EXPECT_FATAL_FAILURE(ExpectAnswer({ 1.0, 2.0 }, { -INFINITY }, answer), "lse 0");
  EXPECT_FATAL_FAILURE(ExpectAnswer({ 1.0 }, { 0.5 }, answer), "out");
  ExpectNothing({ 0.0 }, { -INFINITY });
  EXPECT_FATAL_FAILURE(ExpectNothing({ -0.0 }, {}), "out 0");
  EXPECT_FATAL_FAILURE(ExpectNothing({ NAN }, {}), "out 0");
  EXPECT_FATAL_FAILURE(ExpectNothing({}, { 0.0 }), "lse 0");
}

} // namespace
} // namespace cgr_test

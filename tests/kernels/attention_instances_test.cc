// The kernels have instances for few lines, which a launch uses if its step needs no more. Which instance ran does not show: all
// give the same bits.
#include "tests/support/attention_run.h"
#include "tests/support/checker.h"
#include "tests/support/seed.h"

namespace cgr_test {
namespace {

constexpr int32_t kFewLines = 16; // as in kernels/cuda/attention/sm80/traits.h

class KernelAttentionInstances : public AttentionTest {
protected:
  void SetUp() override {
    AttentionTest::SetUp();
    if (bench_ && !bench_->has_cuda_kernels())
      GTEST_SKIP() << "the host has one kernel for all";
  }
  // The same bits with max_query_len exact, as large as the decode section allows, and unknown (0).
  void CheckSame(const AttentionShape &shape, const AttentionBatch &batch, uint64_t seed) {
    if (KernelFor(info_, shape) == nullptr || HasFatalFailure())
      return;
    AttentionCase made(shape, batch, seed);
    SCOPED_TRACE("seed " + std::to_string(seed) + " " + made.shape().Text());
    FilledCache cache(*bench_, made, Poison::kNan);
    AttentionRun run(*bench_, made, cache);
    const AttentionOutput few = run.Run();
    ASSERT_EQ(few.error.error, CGR_GUARD_NONE);
    ExpectAttention(made, cache, few);
    for (int32_t query_len : { std::max(1, kFewLines * shape.num_kv_heads / shape.num_q_heads), 0 }) {
      run.TellQueryLen(query_len);
      const AttentionOutput other = run.Run();
      ASSERT_TRUE(SameBits(few, other, made.num_tokens() + batch.padded_tokens, made.shape()))
          << "told of " << query_len << " new tokens";
    }
    cases_++;
  }
  // Requests of up to `most` new tokens: some short, some of many KV tiles, one that a guard has emptied.
  static AttentionBatch Batch(int32_t most, Random &random) {
    AttentionBatch batch = { {}, {}, random.Pick32(0, 3), random.Pick32(0, 2) };
    for (int32_t length : { 1, 15, 16, 17, 63, 64, 65, 200, 700 }) {
      batch.query_lens.push_back(std::min(length, random.Pick32(1, most)));
      batch.seq_lens.push_back(length);
    }
    batch.seq_lens[size_t(random.Pick32(0, 8))] = 0;
    return batch;
  }
  AttentionShape ShapeOf(int32_t heads, int32_t head_dim, Random &random) const {
    AttentionShape shape = Shape();
    shape.num_q_heads = 2 * heads;
    shape.num_kv_heads = 2;
    shape.head_dim = head_dim;
    shape.dtype = bench_->has_cuda_kernels() && random.OneIn(2) ? CGR_DTYPE_FP16 : Dtype();
    shape.num_parts = random.Pick32(1, 40);
    shape.batch_invariant = random.OneIn(4);
    return shape;
  }
};

TEST_P(KernelAttentionInstances, OfPlainAttention) {
  SeededRandom random;
  for (int32_t head_dim : { 64, 128, 256 })
    for (int32_t heads : UnderChecker() ? std::vector<int32_t>{ 4 } : std::vector<int32_t>{ 1, 2, 3, 4, 5, 7, 8, 11, 16, 17, 40 })
      CheckSame(ShapeOf(heads, head_dim, random), Batch(std::max(1, kFewLines / heads), random), random.Bits());
  EXPECT_GT(cases_, 0);
}

// With slopes, an unused line that saw keys would have larger scores than the others and raise the maxima of all.
TEST_P(KernelAttentionInstances, OfEveryKind) {
  SeededRandom random;
  for (int i = 0; i < (UnderChecker() ? 3 : 40); i++) {
    const int32_t heads = random.Pick32(1, 16);
    AttentionShape shape = ShapeOf(heads, 8 * random.Pick32(1, 32), random);
    if (i % 2 == 0)
      shape.kind.alibi_slopes = std::vector<float>(size_t(shape.num_q_heads), 0.3f);
    if (i % 3 == 0)
      shape.kind.window_left = random.Pick32(1, 300);
    if (i % 5 == 0)
      shape.kind.softcap = 5.0f;
    if (i % 7 == 0)
      shape.kind.sinks = std::vector<float>(size_t(shape.num_q_heads), 0.5f);
    CheckSame(shape, Batch(std::max(1, kFewLines / heads), random), random.Bits());
  }
  EXPECT_GT(cases_, 0);
}

TEST_P(KernelAttentionInstances, OfCachesOfCodes) {
  SeededRandom random;
  for (cgr_dtype codes : { CGR_DTYPE_FP8_E4M3, CGR_DTYPE_FP8_E5M2, CGR_DTYPE_I8 })
    for (int32_t heads : UnderChecker() ? std::vector<int32_t>{ 3, 4, 17 } : std::vector<int32_t>{ 1, 3, 4, 7, 8, 11, 16, 17 })
      for (int32_t head_dim : { 64, 128, 16 * random.Pick32(1, 16) }) {
        AttentionShape shape = ShapeOf(heads, head_dim, random);
        shape.cache_dtype = codes;
        if (heads % 2 != 0 || codes == CGR_DTYPE_I8)
          shape.k_scales = { 0.03f, 0.17f }, shape.v_scales = { 0.05f };
        if (heads % 2 != 0 && codes == CGR_DTYPE_I8)
          shape.token_factors = 4;
        CheckSame(shape, Batch(std::max(1, kFewLines / heads), random), random.Bits());
      }
  EXPECT_GT(cases_, 0);
}

// Exactly as many lines as one instance has room for leave lines unused in the next one: those must not count. One line's scores
// grow slowly towards the end of its sequence, so it matters when maxima are raised.
TEST_P(KernelAttentionInstances, OfLinesThatGrow) {
  Random random(7);
  for (int i = 0; i < (UnderChecker() ? 2 : 12); i++) {
    AttentionShape shape = ShapeOf(8, 64, random);
    shape.num_parts = 3;
    shape.kind.alibi_slopes = std::vector<float>(size_t(shape.num_q_heads), 0.0f);
    shape.kind.alibi_slopes[7] = shape.kind.alibi_slopes[15] = 0.08f + 0.004f * float(i);
    CheckSame(shape, { { 1, 1, 1 }, { 700, 1500, 400 }, 0, 0 }, random.Bits());
  }
  EXPECT_GT(cases_, 0);
}

CGR_INSTANTIATE_OVER_KERNEL_DEVICES(KernelAttentionInstances);

} // namespace
} // namespace cgr_test

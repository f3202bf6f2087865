// Tiles that many parts share: their partials are merged in batches, by lines and by head dims that fill a warp or leave lanes of
// it without elements.
#include <functional>
#include <vector>

#include "tests/emulation/grid.h"
#include "tests/support/attention_run.h"
#include "tests/support/checker.h"

namespace cgr_test {
namespace {

constexpr int32_t kTile = 64; // tokens of a KV tile

class KernelAttentionPartials : public AttentionTest {
protected:
  // Decodes or prefills of sequences of `lens`; `expect` looks at the plan. Nothing if the device does not run the shape.
  void CheckMerge(const AttentionShape &shape, int32_t query_len, const std::vector<int32_t> &lens,
                  const std::function<void(const AttentionRun &)> &expect) {
    if (KernelFor(info_, shape) == nullptr || HasFatalFailure())
      return;
    AttentionCase made(shape, { std::vector<int32_t>(lens.size(), query_len), lens, 0, 0 }, uint64_t(lens[0]));
    SCOPED_TRACE(made.shape().Text() + " of " + std::to_string(lens[0]));
    FilledCache cache(*bench_, made, Poison::kNan);
    AttentionRun run(*bench_, made, cache);
    ASSERT_NO_FATAL_FAILURE(expect(run));
    AttentionOutput output = run.Run();
    ASSERT_EQ(output.error.error, CGR_GUARD_NONE);
    ExpectAttention(made, cache, output);
    cases_++;
  }
  AttentionShape ShapeOf(int32_t head_dim, int32_t head_dim_v, int32_t heads, int32_t parts) const {
    AttentionShape shape = Shape();
    shape.num_q_heads = heads;
    shape.num_kv_heads = 1;
    shape.head_dim = head_dim;
    shape.kind.head_dim_v = head_dim_v == head_dim ? 0 : head_dim_v;
    shape.num_parts = parts;
    return shape;
  }
  // Around what a GPU's merge takes at once: 16 partials through a stage, 38 when the part is done, their states 32 at a time.
  // `often`: the emulation, where every thread of a GPU runs in turn, takes few of them.
  std::vector<int32_t> Counts(bool often = false) const {
    if (!bench_->has_cuda_kernels() || UnderChecker() || (often && GetParam().IsEmulated()))
      return { 17, 39 };
    if (GetParam().IsEmulated())
      return { 16, 17, 33, 38, 39 };
    return { 15, 16, 17, 31, 32, 33, 37, 38, 39, 76, 77, 250 };
  }
};

constexpr std::pair<int32_t, int32_t> kHeadDims[] = {
  { 64, 64 }, { 128, 128 }, { 256, 256 }, { 192, 128 }, { 72, 40 }, { 8, 256 }
};

TEST_P(KernelAttentionPartials, OfDecodes) {
  for (auto [dim, dim_v] : kHeadDims)
    for (int32_t heads : { 1, 5, 16 })
      for (int32_t count : Counts(heads != 5))
        // One request, with enough parts that each of its KV tiles goes to a part of its own.
        CheckMerge(ShapeOf(dim, dim_v, heads, 2 * count + 1), 1, { count * kTile },
                   [&](const AttentionRun &run) { ASSERT_EQ(run.MostPartials(), count); });
  EXPECT_GT(cases_, 0);
}

TEST_P(KernelAttentionPartials, OfSplitsOfThePrefillQueue) {
  for (auto [dim, dim_v] : kHeadDims)
    for (int32_t count : Counts(dim != dim_v))
      CheckMerge(ShapeOf(dim, dim_v, 2, count), 31, { count * kTile }, // 62 lines
                 [&](const AttentionRun &run) { ASSERT_GT(run.MostPartials(), count / 2); });
  EXPECT_GT(cases_, 0);
}

// If the part that arrives last has another tile after this one, partials pass through one stage while the other is being filled.
// In the emulation the last part of a tile arrives last; on a GPU any part may.
TEST_P(KernelAttentionPartials, WhereTheLastPartGoesOn) {
  constexpr int32_t kParts = 20, kLong = 86, kShort = 12; // KV tiles: 18 parts share the long one, the last also begins the other
  cgr_emulation::SetInOrder(true);
  for (int32_t dim : { 64, 128, 256 })
    for (int32_t heads : { 1, 4, 16 })
      CheckMerge(ShapeOf(dim, dim, heads, kParts), 1, { kLong * kTile, kShort * kTile - 1 }, [&](const AttentionRun &run) {
        if (!bench_->has_cuda_kernels()) // the host cuts elsewhere
          return;
        ASSERT_GT(run.MostPartials(), 16);
        ASSERT_TRUE(run.LastPartGoesOn());
      });
  cgr_emulation::SetInOrder(false);
  EXPECT_GT(cases_, 0);
}

// Splits are folded into partials before they are merged; a tile of the decode section has at most `max_splits` of them.
TEST_P(KernelAttentionPartials, OfSplits) {
  for (auto [dim, dim_v] : kHeadDims)
    for (int32_t count : Counts()) {
      AttentionShape shape = ShapeOf(dim, dim_v, 5, count);
      shape.batch_invariant = true;
      CheckMerge(shape, 1, { count * kTile, count * kTile / 2 + 1 },
                 [](const AttentionRun &run) { ASSERT_GT(run.MostPartials(), 1); });
    }
  EXPECT_GT(cases_, 0);
}

CGR_INSTANTIATE_OVER_KERNEL_DEVICES(KernelAttentionPartials);

} // namespace
} // namespace cgr_test

// Attention of every kind against fp64, each alone at its edges, as far as the registry has them. attention_mixes_test combines
// them.
#include "tests/support/attention_run.h"
#include "tests/support/checker.h"

namespace cgr_test {
namespace {

class KernelAttentionKinds : public AttentionTest {
protected:
  enum { kTile = 64 }; // tokens of a KV tile

  bool Has(const AttentionShape &shape) const { return KernelFor(info_, shape) != nullptr; }
  // Does nothing if the device lacks the kind.
  void CheckIfThere(const AttentionShape &shape, const AttentionBatch &batch, uint64_t seed) {
    if (Has(shape) && !HasFatalFailure())
      Check(shape, batch, seed);
  }
  // Whole tiles, tiles that many parts share, splits of the prefill queue, and splits that a request sets for itself, whatever
  // the parts.
  void CheckPartitions(AttentionShape shape, const AttentionBatch &batch, uint64_t seed) {
    for (int32_t parts : GetParam().IsEmulated() ? std::vector<int32_t>{ 7 } : std::vector<int32_t>{ 1, 7, 90 })
      for (bool invariant : { false, true }) {
        if (invariant && parts != 7)
          continue;
        shape.num_parts = parts;
        shape.batch_invariant = invariant;
        CheckIfThere(shape, batch, seed);
      }
  }
  static AttentionShape Small(AttentionShape shape) {
    shape.num_q_heads = 2;
    shape.num_kv_heads = 1;
    return shape;
  }
  // Requests of the decode section and of the prefill queue, ending anywhere in a page and a tile.
  static AttentionBatch Mixed() { return { { 1, 1, 9, 70, 1, 0, 2, 3 }, { 300, 64, 65, 200, 17, 40, 0, 131 }, 3, 2 }; }
};

// --------------------------------------------------------------------------------------------------------- windows and chunks

// Around 1, a page, a tile, and beyond the sequences.
std::vector<int32_t> Windows() {
  return UnderChecker() ? std::vector<int32_t>{ 1, 17, 64 } : std::vector<int32_t>{ 1, 2, 15, 16, 17, 63, 64, 65, 129, 1000 };
}

TEST_P(KernelAttentionKinds, WindowsToTheLeft) {
  for (int32_t window : Windows()) {
    AttentionShape shape = Small(Shape());
    shape.kind.window_left = window;
    CheckPartitions(shape, Mixed(), 1);
  }
}

// An encoder's window of W tokens is W to the left, including the token itself, and W - 1 to the right.
TEST_P(KernelAttentionKinds, WindowsToBothSides) {
  for (int32_t window : Windows())
    for (auto [left, right] :
         { std::pair<int32_t, int32_t>{ window, window - 1 }, { 0, window }, { window, 0 }, { 3, window } }) {
      AttentionShape shape = Small(Shape());
      shape.kind.bidirectional = true;
      shape.kind.window_left = left;
      shape.kind.window_right = right;
      CheckPartitions(shape, Mixed(), 2);
    }
}

TEST_P(KernelAttentionKinds, LargestWindowsDoNotOverflow) {
  for (int32_t left : { 0, INT32_MAX })
    for (int32_t right : { 0, INT32_MAX }) {
      AttentionShape shape = Small(Shape());
      shape.kind.bidirectional = true;
      shape.kind.window_left = left;
      shape.kind.window_right = right;
      CheckIfThere(shape, Mixed(), 3);
    }
  AttentionShape shape = Small(Shape());
  shape.kind.chunk = INT32_MAX;
  CheckIfThere(shape, Mixed(), 3);
}

TEST_P(KernelAttentionKinds, Chunks) {
  for (int32_t chunk : Windows()) {
    AttentionShape shape = Small(Shape());
    shape.kind.chunk = chunk;
    CheckPartitions(shape, Mixed(), 4);
  }
}

TEST_P(KernelAttentionKinds, BothDirections) {
  AttentionShape shape = Small(Shape());
  shape.kind.bidirectional = true;
  CheckPartitions(shape, Mixed(), 5);
}

// Pages that no query sees are neither read nor needed: their page numbers are invalid, and the guard reports nothing.
TEST_P(KernelAttentionKinds, PagesBeforeAWindowAreNotNeeded) {
  AttentionShape shape = Small(Shape());
  shape.kind.window_left = 20;
  if (!Has(shape))
    GTEST_SKIP() << "no windows";
  AttentionCase made(shape, { { 1, 70 }, { 300, 200 }, 0, 0 }, 6);
  EXPECT_FALSE(made.IsNeeded(0, 16)); // tokens 256 .. 271; the query at 299 sees 280 and later ones
  EXPECT_TRUE(made.IsNeeded(0, 17));
  EXPECT_FALSE(made.IsNeeded(1, 5)); // the first of 70 queries is at 130 and sees 111
  EXPECT_TRUE(made.IsNeeded(1, 6));
  EXPECT_LT(made.table(0, 16), 0);
  Check(shape, made.batch(), 6);
}

// ------------------------------------------------------------------------------------------------------------------ head dims

TEST_P(KernelAttentionKinds, HeadDimsOfVApart) {
  const std::pair<int32_t, int32_t> dims[] = { { 64, 128 }, { 128, 64 }, { 192, 128 }, { 8, 256 },
                                               { 256, 8 },  { 72, 40 },  { 40, 104 },  { 96, 80 } };
  for (cgr_dtype dtype : { CGR_DTYPE_FP32, CGR_DTYPE_BF16, CGR_DTYPE_FP16 })
    for (auto [dim, dim_v] : dims)
      for (const CacheLayouts &layouts : { EveryCacheLayout()[0], EveryCacheLayout()[5] }) {
        AttentionShape shape = Small(Shape());
        shape.dtype = dtype;
        shape.head_dim = dim;
        shape.kind.head_dim_v = dim_v;
        shape.layouts = layouts;
        shape.num_parts = 13;
        CheckIfThere(shape, { { 1, 20, 1 }, { 200, 90, 33 }, 3, 1 }, 7);
      }
}

// --------------------------------------------------------------------------------------------------------------------- scores

// Small scores pass a cap nearly unchanged; large ones end at it.
TEST_P(KernelAttentionKinds, SoftCaps) {
  for (float cap : { 0.5f, 30.0f, 50.0f, 1e3f, 1e6f, 3e38f })
    for (float scale : { 0.01f, 0.125f, cap > 100.0f ? 1.0f : 20.0f }) {
      AttentionShape shape = Small(Shape());
      shape.kind.softcap = cap;
      shape.scale = scale;
      if (scale == 0.125f)
        CheckPartitions(shape, Mixed(), 8);
      else
        CheckIfThere(shape, Mixed(), 8);
    }
}

TEST_P(KernelAttentionKinds, Slopes) {
  for (bool sqrt : { false, true })
    for (bool bidirectional : { false, true })
      for (int32_t window : { 0, 33 }) {
        AttentionShape shape = Small(Shape());
        shape.num_q_heads = 6;
        shape.num_kv_heads = 2;
        shape.kind.alibi_slopes = { 1.0f, 0.5f, 0.0f, 0.00390625f, -0.01f, 0.0625f };
        shape.kind.alibi_sqrt = sqrt;
        shape.kind.bidirectional = bidirectional;
        shape.kind.window_left = window;
        CheckPartitions(shape, Mixed(), 9);
      }
}

// A sink counts once, however many parts or splits share a tile; lse includes it.
TEST_P(KernelAttentionKinds, Sinks) {
  for (float sink : { 0.0f, -INFINITY, 20.0f, -20.0f, 5.0f }) {
    AttentionShape shape = Small(Shape());
    shape.kind.sinks = { sink, 1.0f };
    CheckPartitions(shape, Mixed(), 10);
    shape.num_parts = 200; // more parts than tiles
    CheckIfThere(shape, { { 1 }, { 4001 }, 0, 0 }, 10);
    CheckIfThere(shape, { { 70 }, { 700 }, 0, 0 }, 10);
  }
}

// Two keys with scores 0 and a sink of 0: a third of the weight goes nowhere, and lse is log(3).
TEST_P(KernelAttentionKinds, ASinkIsOneMoreScore) {
  AttentionShape shape = Small(Shape());
  shape.kind.sinks = { 0.0f, -INFINITY };
  if (!Has(shape))
    GTEST_SKIP() << "no sinks";
  AttentionCase made(shape, { { 1 }, { 2 }, 0, 0 }, 11);
  std::fill(made.q[0].begin(), made.q[0].end(), 0.0);
  std::fill(made.kv[kCacheV][0].begin(), made.kv[kCacheV][0].end(), 3.0);
  FilledCache cache(*bench_, made, Poison::kNan);
  AttentionRun run(*bench_, made, cache);
  AttentionOutput output = run.Run();
  Values out = LoadElements(shape.dtype, output.out.data(), 2 * shape.head_dim);
  Values lse = LoadElements(CGR_DTYPE_FP32, output.lse.data(), 2);
  EXPECT_NEAR(out[0], 2.0, 0.01);
  EXPECT_NEAR(out[size_t(shape.head_dim)], 3.0, 0.01);
  EXPECT_NEAR(lse[0], std::log(3.0), 1e-5);
  EXPECT_NEAR(lse[1], std::log(2.0), 1e-5);
}

// ----------------------------------------------------------------------------------------------------------------------- keys

// Keys of the step, in tensors with gaps; what the sequence had before is not there.
TEST_P(KernelAttentionKinds, KeysOfTheStep) {
  for (bool bidirectional : { false, true })
    for (int32_t window : { 0, 17 })
      for (cgr_dtype dtype : { CGR_DTYPE_FP32, CGR_DTYPE_BF16 }) {
        AttentionShape shape = Small(Shape());
        shape.dtype = dtype;
        shape.kind.keys = Keys::kStep;
        shape.kind.bidirectional = bidirectional;
        shape.kind.window_left = window;
        shape.kind.window_right = bidirectional ? window : 0;
        CheckPartitions(shape, { { 1, 9, 70, 0, 3, 130 }, { 1, 9, 500, 3, 0, 130 }, 5, 2 }, 12);
        shape.k_padding = { 8, 16 };
        shape.v_padding = { 16, 8 };
        shape.kind.head_dim_v = 128;
        CheckPartitions(shape, { { 1, 9, 70, 0, 3, 130 }, { 7, 9, 500, 3, 0, 130 }, 5, 2 }, 12);
      }
}

// Keys of another sequence, longer or shorter than the query, or not there yet: then out is 0 and lse -inf, with a sink too.
TEST_P(KernelAttentionKinds, KeysOfAnotherSequence) {
  for (bool sinks : { false, true })
    for (float cap : { 0.0f, 20.0f }) {
      AttentionShape shape = Small(Shape());
      shape.kind.keys = Keys::kOther;
      shape.kind.bidirectional = true;
      shape.kind.softcap = cap;
      if (sinks)
        shape.kind.sinks = { 2.0f, -1.0f };
      CheckPartitions(shape, { { 1, 9, 70, 0, 3, 130, 1, 65 }, { 300, 1, 20, 3, 0, 129, 0, 0 }, 5, 2 }, 13);
    }
}

CGR_INSTANTIATE_OVER_KERNEL_DEVICES(KernelAttentionKinds);

} // namespace
} // namespace cgr_test

// Attention over caches with codes of 8 bits against fp64 over their values: codes times factors, as the append writes them.
#include "tests/support/attention_run.h"
#include "tests/support/checker.h"

namespace cgr_test {
namespace {

constexpr cgr_dtype kCodes[] = { CGR_DTYPE_FP8_E4M3, CGR_DTYPE_FP8_E5M2, CGR_DTYPE_I8 };
constexpr int32_t kHeads = 2, kDim = 64; // of the layers, where tests do not say

// The factors of K and V. Where channels have their own, those of the first head's are repeated.
struct Scales {
  std::vector<float> k, v;
  int32_t token_factors = 0;
};
const Scales kNone = {}, kOne = { { 0.03125f }, { 0.7f } }, kOfHeads = { { 0.3f, 0.011f }, { 0.002f, 1.9f } };
std::vector<float> Channels(int32_t heads = kHeads, int32_t dim = kDim) {
  std::vector<float> factors;
  for (int32_t c = 0; c < heads * dim; c++)
    factors.push_back(0.01f * float(1 + c % 7) * (c % 5 == 0 ? 3.0f : 1.0f));
  return factors;
}

// What a cache has: codes, or in V the dtype of the call, and factors.
struct Form {
  cgr_dtype k, v; // v NONE: the call's
  Scales scales;
};
std::vector<Form> Forms() {
  const cgr_dtype e4m3 = CGR_DTYPE_FP8_E4M3, e5m2 = CGR_DTYPE_FP8_E5M2, i8 = CGR_DTYPE_I8, call = CGR_DTYPE_NONE;
  const Scales of_tokens = { { 0.01f }, Channels(), 5 }, k_alone = { { 0.02f }, {}, 3 };
  std::vector<Form> forms;
  for (const Scales &scales : { kNone, kOne, kOfHeads, Scales{ {}, { 0.05f, 3.0f } }, Scales{ { 1.7f, 0.2f }, {} } })
    forms.push_back({ e4m3, e4m3, scales });
  for (const Scales &scales : { kNone, kOfHeads })
    forms.push_back({ e5m2, e5m2, scales });
  for (const Form &form :
       { Form{ i8, i8, of_tokens }, Form{ i8, i8, kOfHeads }, Form{ i8, i8, { { 0.02f }, { 0.03f } } }, Form{ i8, call, k_alone },
         Form{ i8, e4m3, { { 0.01f }, { 0.3f }, 4 } }, Form{ e4m3, e5m2, { { 0.3f, 0.011f }, Channels() } },
         Form{ e5m2, call, { { 0.5f }, {} } }, Form{ e4m3, e4m3, { {}, Channels() } } })
    forms.push_back(form);
  return forms;
}

class KernelAttentionQuantised : public AttentionTest {
protected:
  bool Has(const AttentionShape &shape) const { return KernelFor(info_, shape) != nullptr; }
  AttentionShape Codes(cgr_dtype codes, const Scales &scales) const { return Of({ codes, codes, scales }); }
  AttentionShape Of(const Form &form) const {
    AttentionShape shape = Shape();
    shape.num_kv_heads = kHeads, shape.head_dim = kDim;
    shape.cache_dtype = form.k, shape.v_cache_dtype = form.v != CGR_DTYPE_NONE ? form.v : shape.dtype;
    shape.k_scales = form.scales.k, shape.v_scales = form.scales.v, shape.token_factors = form.scales.token_factors;
    return shape;
  }
  // Whole tiles, tiles that many parts share, splits of the prefill queue, and splits that a request sets for itself.
  void CheckPartitions(AttentionShape shape, const AttentionBatch &batch, uint64_t seed) {
    for (int32_t parts : GetParam().IsEmulated() ? std::vector<int32_t>{ 7 } : std::vector<int32_t>{ 1, 7, 90 })
      for (bool invariant : { false, true }) {
        if ((invariant && parts != 7) || HasFatalFailure())
          continue;
        shape.num_parts = parts;
        shape.batch_invariant = invariant;
        Check(shape, batch, seed);
      }
  }
  // For each form. `change` makes the shape one of a kind.
  template <class Change> void CheckCodes(const AttentionBatch &batch, uint64_t seed, Change change) {
    for (const Form &form : Forms()) {
      AttentionShape shape = Of(form);
      change(&shape);
      if (form.v == CGR_DTYPE_NONE)
        shape.v_cache_dtype = shape.dtype;
      const bool has_dtype = shape.dtype != CGR_DTYPE_FP32 || !bench_->has_cuda_kernels();
      ASSERT_EQ(Has(shape), has_dtype) << shape.Text();
      if (has_dtype)
        CheckPartitions(shape, batch, seed);
    }
    EXPECT_GT(cases_, 0);
  }
  // Requests of the decode section and of the prefill queue, ending anywhere in a page and a tile.
  static AttentionBatch Mixed() { return { { 1, 1, 9, 70, 1, 0, 2, 3 }, { 300, 64, 65, 200, 17, 40, 0, 131 }, 3, 2 }; }
};

// ---------------------------------------------------------------------------------------------------------- batches and dims

TEST_P(KernelAttentionQuantised, DecodesPrefillsAndBoth) {
  const AttentionBatch batches[] = { { { 1, 1, 1, 1 }, { 1, 700, 64, 129 }, 0, 0 },
                                     { { 100, 33 }, { 100, 400 }, 1, 1 },
                                     Mixed() };
  for (const AttentionBatch &batch : batches)
    CheckCodes(batch, 1, [](AttentionShape *) {});
}

TEST_P(KernelAttentionQuantised, EveryDtypeOfTheCall) {
  for (cgr_dtype dtype : { CGR_DTYPE_BF16, CGR_DTYPE_FP16, CGR_DTYPE_FP32 }) // the last on the host
    CheckCodes(Mixed(), 2, [&](AttentionShape *shape) { shape->dtype = dtype; });
}

TEST_P(KernelAttentionQuantised, EveryHeadDimAndLayout) {
  const std::vector<CacheLayouts> layouts = EveryCacheLayout();
  int32_t number = 0;
  for (int32_t dim = 16; dim <= 256; dim += UnderChecker() ? 80 : 16)
    for (int32_t dim_v : { dim, 272 - dim })
      for (cgr_dtype codes : kCodes) {
        AttentionShape shape = Codes(codes, number % 2 == 0 ? kOne : kOfHeads);
        shape.head_dim = dim;
        shape.kind.head_dim_v = dim_v;
        if (number % 3 == 0 && codes == CGR_DTYPE_I8)
          shape.token_factors = 3, shape.v_scales = Channels(kHeads, dim_v);
        if (number % 5 == 0)
          shape.v_cache_dtype = shape.dtype, shape.v_scales = {};
        shape.layouts = layouts[size_t(number++) % layouts.size()];
        shape.page_size = number % 3 == 0 ? 48 : 16;
        shape.num_parts = 13;
        if (Has(shape) && !HasFatalFailure())
          Check(shape, { { 1, 20, 1 }, { 200, 90, 33 }, 3, 1 }, 3);
      }
  EXPECT_GT(cases_, 0);
}

// Such factors mean nothing, but they are numbers, also where factor times scale is 0: scores are scaled before they are masked.
TEST_P(KernelAttentionQuantised, FactorsBelowZeroAndNearlyZero) {
  for (const Scales &scales : { Scales{ { -0.3f, 1e-44f }, { -1.5f, 0.7f } }, Scales{ { 1e-44f }, { 0.2f } } })
    for (cgr_dtype codes : kCodes) {
      const AttentionShape shape = Codes(codes, scales);
      ASSERT_TRUE(Has(shape));
      CheckPartitions(shape, Mixed(), 4);
      CheckPartitions(shape, { { 100, 33 }, { 100, 400 }, 1, 1 }, 4);
    }
}

// Query heads share the factor of their KV head, also where several blocks of heads have one KV head.
TEST_P(KernelAttentionQuantised, GroupsOfHeads) {
  for (auto [q, kv] : { std::pair<int32_t, int32_t>{ 2, 2 }, { 10, 2 }, { 140, 2 }, { 6, 1 } })
    for (cgr_dtype codes : kCodes) {
      AttentionShape shape = Codes(codes, kv == 1 ? kOne : kOfHeads);
      shape.num_q_heads = q, shape.num_kv_heads = kv;
      if (codes == CGR_DTYPE_I8 && kv == 2)
        shape.token_factors = 6, shape.v_scales = Channels();
      if (Has(shape))
        CheckPartitions(shape, { { 1, 70, 3 }, { 90, 100, 33 }, 1, 1 }, 4);
    }
  EXPECT_GT(cases_, 0);
}

// ------------------------------------------------------------------------------------------------------------------- results

// Results of e4m3 are quantised once they are complete: of whole tiles, and of merged ones. Some saturate.
TEST_P(KernelAttentionQuantised, ResultsOfCodes) {
  int32_t number = 0;
  for (float scale : { 1.0f, 0.03f, 0.0009f })
    for (int32_t dim : { 64, 128, 80, 256 })
      for (cgr_dtype cache : { CGR_DTYPE_NONE, CGR_DTYPE_FP8_E4M3, CGR_DTYPE_I8 }) {
        AttentionShape shape = Shape();
        shape.out_scale = scale, shape.head_dim = dim, shape.cache_dtype = cache;
        shape.out_padding = { 16 * (number % 2), 16 * (number % 3) };
        if (cache == CGR_DTYPE_I8)
          shape.k_scales = { 0.02f }, shape.v_scales = { 0.03f }, shape.token_factors = 2;
        if (number++ % 4 == 1)
          shape.kind.sinks = { 1.0f, 2.0f, 0.0f, -2.0f };
        if (Has(shape))
          CheckPartitions(shape, Mixed(), 20);
      }
  EXPECT_GT(cases_, 0);
}

// A query of zeros that sees one key has its V as the result: every code comes back, and what is between them is rounded to even.
TEST_P(KernelAttentionQuantised, EveryCodeOfAResult) {
  for (float scale : { 1.0f, 0.29f }) {
    AttentionShape shape = Shape();
    shape.num_q_heads = shape.num_kv_heads = 1;
    shape.head_dim = 128, shape.out_scale = scale;
    AttentionCase made(shape, { { 4 }, { 4 }, 0, 0 }, 21);
    std::fill(made.q[0].begin(), made.q[0].end(), 0.0);
    for (size_t e = 0; e < made.kv[kCacheV][0].size(); e++) { // all tokens have the same values
      const unsigned char code = static_cast<unsigned char>(e % 128);
      const double value = code == 0x7f ? 460.0 : cgr__reference_load(CGR_DTYPE_FP8_E4M3, &code);
      made.kv[kCacheV][0][e] = cgr__reference_round(shape.dtype, value * (e % 3 == 0 ? 1.0625 : -1.0));
    }
    FilledCache cache(*bench_, made, Poison::kNan);
    AttentionRun run(*bench_, made, cache);
    const AttentionOutput output = run.Run();
    for (size_t e = 0; e < 128; e++) { // the first token sees itself alone
      unsigned char want = 0;
      cgr__reference_store(CGR_DTYPE_FP8_E4M3, &want, double(float(made.kv[kCacheV][0][e]) / scale));
      ASSERT_EQ(output.out[e], want) << made.kv[kCacheV][0][e] << " / " << scale;
    }
  }
}

TEST_P(KernelAttentionQuantised, PaddingOfResultsOfCodesChangesNoBit) {
  AttentionShape shape = Codes(CGR_DTYPE_FP8_E4M3, kOfHeads);
  shape.out_scale = 0.01f;
  ASSERT_NO_FATAL_FAILURE(CheckPadding(shape, Mixed(), { 0, 1, 5, 70 }, 22));
}

// --------------------------------------------------------------------------------------------------------------------- kinds

TEST_P(KernelAttentionQuantised, WindowsAndChunks) {
  for (int32_t window : UnderChecker() ? std::vector<int32_t>{ 17 } : std::vector<int32_t>{ 17, 64 }) {
    CheckCodes(Mixed(), 5, [&](AttentionShape *shape) { shape->kind.window_left = window; });
    CheckCodes(Mixed(), 5, [&](AttentionShape *shape) { shape->kind.chunk = window; });
    CheckCodes(Mixed(), 5, [&](AttentionShape *shape) {
      shape->kind.bidirectional = true;
      shape->kind.window_left = window, shape->kind.window_right = window - 1;
    });
  }
}

TEST_P(KernelAttentionQuantised, BothDirections) {
  CheckCodes(Mixed(), 6, [](AttentionShape *shape) { shape->kind.bidirectional = true; });
}

// K's factor comes before the cap, the slopes and the sinks.
TEST_P(KernelAttentionQuantised, CapsSlopesAndSinks) {
  CheckCodes(Mixed(), 7, [](AttentionShape *shape) { shape->kind.softcap = 3.0f; });
  for (bool sqrt : { false, true })
    CheckCodes(Mixed(), 7, [&](AttentionShape *shape) {
      shape->kind.alibi_slopes = { 1.0f, 0.5f, 0.0f, -0.01f };
      shape->kind.alibi_sqrt = sqrt;
    });
  CheckCodes(Mixed(), 7, [](AttentionShape *shape) { shape->kind.sinks = { 5.0f, -INFINITY, 0.0f, -2.0f }; });
  CheckCodes(Mixed(), 7, [](AttentionShape *shape) {
    shape->kind.softcap = 20.0f, shape->kind.window_left = 33;
    shape->kind.alibi_slopes = { 0.0625f, 0.5f, 0.0f, 0.25f };
    shape->kind.sinks = { 1.0f, 2.0f, 0.0f, -2.0f };
  });
}

TEST_P(KernelAttentionQuantised, KeysOfAnotherSequence) {
  const AttentionBatch batch = { { 1, 9, 70, 0, 3, 130, 1, 65 }, { 300, 1, 20, 3, 0, 129, 0, 0 }, 5, 2 };
  CheckCodes(batch, 8, [](AttentionShape *shape) {
    shape->kind.keys = Keys::kOther;
    shape->kind.bidirectional = true;
    shape->kind.sinks = { 2.0f, -1.0f, 0.0f, 1.0f };
  });
}

// Keys of the step are no cache: no kernel serves them as codes.
TEST_P(KernelAttentionQuantised, KeysOfTheStepAreNoCodes) {
  AttentionShape shape = Codes(CGR_DTYPE_FP8_E4M3, kNone);
  shape.kind.keys = Keys::kStep;
  EXPECT_FALSE(Has(shape));
}

// ----------------------------------------------------------------------------------------------------------------------- bits

TEST_P(KernelAttentionQuantised, PoisonChangesNoBit) {
  for (const Form &form : Forms())
    for (int32_t window : { 0, 33 })
      for (bool bidirectional : { false, true }) {
        AttentionShape shape = Of(form);
        shape.kind.window_left = window;
        shape.kind.bidirectional = bidirectional;
        ASSERT_TRUE(Has(shape));
        ASSERT_NO_FATAL_FAILURE(CheckPoison(shape, Mixed(), 9));
      }
}

TEST_P(KernelAttentionQuantised, PaddingChangesNoBit) {
  for (const Form &form : Forms()) {
    const AttentionShape shape = Of(form);
    ASSERT_TRUE(Has(shape));
    ASSERT_NO_FATAL_FAILURE(CheckPadding(shape, Mixed(), { 0, 1, 5, 70 }, 10));
  }
}

TEST_P(KernelAttentionQuantised, ARequestAloneGivesTheSameBits) {
  for (const Form &form : Forms()) {
    const AttentionShape shape = Of(form);
    ASSERT_TRUE(Has(shape));
    ASSERT_NO_FATAL_FAILURE(CheckAlone(shape, Mixed(), 3, 11));
  }
}

// --------------------------------------------------------------------------------------------------------------------- values

// Finite, and one that the append writes.
bool IsGoodCode(cgr_dtype codes, int32_t code) {
  if (codes == CGR_DTYPE_I8)
    return code != 0x80;
  const unsigned char byte = static_cast<unsigned char>(code);
  return std::isfinite(cgr__reference_load(codes, &byte));
}

// One query of zeros sees one key: out is V's code times its factor, rounded once.
TEST_P(KernelAttentionQuantised, EveryCodeOfV) {
  for (cgr_dtype codes : kCodes)
    for (const std::vector<float> &factor : { std::vector<float>{}, std::vector<float>{ 0.25f }, std::vector<float>{ 3.0f } }) {
      AttentionShape shape = Codes(codes, { { 1.0f }, factor });
      if (factor.empty() && codes == CGR_DTYPE_I8)
        continue;
      shape.num_q_heads = shape.num_kv_heads = 1;
      shape.head_dim = 256;
      if (!Has(shape) && bench_->has_cuda_kernels())
        GTEST_SKIP() << "no room for head dim 256";
      ASSERT_TRUE(Has(shape));
      AttentionCase made(shape, { { 1 }, { 1 }, 0, 0 }, 12);
      FilledCache cache(*bench_, made, Poison::kNan);
      const int32_t page = made.Pages(0)[0];
      Bytes image = cache.Page(kCacheV, page);
      for (int32_t code = 0; code < 256; code++)
        cache.InPage(kCacheV, &image, 0, 0)[code] = static_cast<unsigned char>(IsGoodCode(codes, code) ? code : 0);
      cache.Put(kCacheV, page, image);
      AttentionRun run(*bench_, made, cache);
      const Values out = LoadElements(shape.dtype, run.Run().out.data(), 256);
      for (int32_t code = 0; code < 256; code++) {
        const double value = cgr__reference_load(codes, cache.InPage(kCacheV, &image, 0, 0) + code);
        ASSERT_EQ(out[size_t(code)], cgr__reference_round(shape.dtype, value * (factor.empty() ? 1.0 : double(factor[0]))))
            << cgr_dtype(codes) << " " << code;
      }
    }
}

// Key t has the code t in its first element, and the query 1 there: lse of a window of one key is the code's score.
TEST_P(KernelAttentionQuantised, EveryCodeOfK) {
  for (cgr_dtype codes : kCodes)
    for (const std::vector<float> &factor : { std::vector<float>{}, std::vector<float>{ 0.25f } }) {
      AttentionShape shape = Codes(codes, { factor, { 1.0f } });
      if (factor.empty() && codes == CGR_DTYPE_I8)
        continue;
      shape.num_q_heads = shape.num_kv_heads = 1;
      shape.kind.window_left = 1;
      shape.scale = 0.5f;
      ASSERT_TRUE(Has(shape));
      AttentionCase made(shape, { { 256 }, { 256 }, 0, 0 }, 13);
      for (size_t e = 0; e < made.q[0].size(); e++)
        made.q[0][e] = int64_t(e) % shape.head_dim == 0 ? 1.0 : 0.0;
      std::fill(made.kv[kCacheK][0].begin(), made.kv[kCacheK][0].end(), 0.0);
      std::vector<double> score;
      for (int32_t code = 0; code < 256; code++) {
        const unsigned char byte = static_cast<unsigned char>(IsGoodCode(codes, code) ? code : 0);
        const double value = cgr__reference_load(codes, &byte) * (factor.empty() ? 1.0 : double(factor[0]));
        made.kv[kCacheK][0][size_t(code * shape.head_dim)] = value;
        score.push_back(value * 0.5);
      }
      FilledCache cache(*bench_, made, Poison::kNan);
      AttentionRun run(*bench_, made, cache);
      const Values lse = LoadElements(CGR_DTYPE_FP32, run.Run().lse.data(), 256);
      for (size_t code = 0; code < 256; code++) // products with log2(e) and back round twice
        ASSERT_NEAR(lse[code], score[code], std::fabs(score[code]) * 4e-7) << cgr_dtype(codes) << " " << code;
    }
}

// A code that is NaN gives NaN to queries of its own request, and changes no bit of other requests.
TEST_P(KernelAttentionQuantised, NanOfAKeyReachesItsRequestAlone) {
  for (cgr_dtype codes : { CGR_DTYPE_FP8_E4M3, CGR_DTYPE_FP8_E5M2 })
    for (Cache which : kCaches) {
      AttentionShape shape = Codes(codes, kOfHeads);
      ASSERT_TRUE(Has(shape));
      AttentionCase made(shape, { { 1, 1, 20 }, { 70, 40, 50 }, 0, 0 }, 14);
      FilledCache cache(*bench_, made, Poison::kNan);
      AttentionRun run(*bench_, made, cache);
      const AttentionOutput before = run.Run();
      Bytes image = cache.Page(which, made.Pages(1)[1]);
      *cache.InPage(which, &image, 3, 0) = 0xff;
      cache.Put(which, made.Pages(1)[1], image);
      const AttentionOutput after = run.Run();
      EXPECT_TRUE(SameTokens(before, after, 0, 1, shape));
      EXPECT_TRUE(SameTokens(before, after, 2, 20, shape));
      const Values out = LoadElements(shape.dtype, after.out.data(), int64_t{ 2 } * shape.num_q_heads * shape.head_dim);
      EXPECT_TRUE(std::isnan(out[size_t(shape.num_q_heads * shape.head_dim)])) << "request 1, head 0, element 0";
    }
}

CGR_INSTANTIATE_OVER_KERNEL_DEVICES(KernelAttentionQuantised);

} // namespace
} // namespace cgr_test

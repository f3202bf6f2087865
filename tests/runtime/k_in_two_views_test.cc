// K in two views, as MLA has it: v is a part of k in the cache, and a call gives each head of K in k and k2. A backend that
// appends gets both unchanged in every kind of step; the others refuse them by name, and so does a scale that is left to its
// default.
#include "tests/support/kept_calls.h"

namespace cgr_test {
namespace {

class KInTwoViews : public KeptCalls {
protected:
  static constexpr int kDim = 96, kDimV = 64;

  void SetUpOnDevice() override {
    ASSERT_NO_FATAL_FAILURE(OpenKeeping());
    backend_.flags = CGR_BACKEND_APPENDS;
    layer_.num_kv_heads = 1, layer_.head_dim = kDim, layer_.head_dim_v = kDimV, layer_.scale = 0.07f;
    ASSERT_NO_FATAL_FAILURE(MakeCache(CGR_DTYPE_BF16, kDim, kDimV, 1));
    layer_.v = layer_.k; // its first elements
    ASSERT_NO_FATAL_FAILURE(MakeView(&call_.q, CGR_DTYPE_BF16, kHeads, kDim));
    ASSERT_NO_FATAL_FAILURE(MakeView(&call_.k, CGR_DTYPE_BF16, 1, kDimV));
    ASSERT_NO_FATAL_FAILURE(MakeView(&call_.k2, CGR_DTYPE_BF16, 1, kDim - kDimV));
    ASSERT_NO_FATAL_FAILURE(MakeView(&call_.out, CGR_DTYPE_BF16, kHeads, kDimV));
    call_.v = call_.k;
  }
};

TEST_P(KInTwoViews, ReachABackendThatAppendsUnchangedInEveryKindOfStep) {
  ExpectUnchangedInEveryKindOfStep();
  call_.k2.stride_token = call_.k2.stride_head = 64; // as part of a wider tensor
  call_.k2.data = Alloc(kTokens * 64 * 2);
  ExpectUnchangedInEveryKindOfStep();
  ASSERT_NO_FATAL_FAILURE(MakeView(&call_.k, CGR_DTYPE_BF16, 1, kDim)); // in one view
  call_.v = call_.k, call_.k2.data = nullptr;
  ExpectUnchangedInEveryKindOfStep();
}

TEST_P(KInTwoViews, GraphsHoldBoth) { ExpectGraphsHold({ call_.k.data, call_.k2.data }); }

TEST_P(KInTwoViews, HaveTheirShapes) {
  const cgr_attention good = call_;
  CGR_ASSERT_OK(Create(CGR_MODE_FULL));
  call_.k2.dtype = CGR_DTYPE_FP16;
  ExpectRefused(CGR_ERROR_UNSUPPORTED, "k2.dtype is fp16", "expected bf16", good);
  call_.k2.reserved = 3;
  ExpectRefused(CGR_ERROR_NEWER_STRUCT, "k2.reserved is 3", "expected 0", good);
  call_.k2.stride_token = 16;
  ExpectRefused(CGR_ERROR_INVALID_ARGUMENT, "k2 has strides 16, 32, which overlap", "8 tokens of 1 head of 32 elements", good);
  call_.k2.data = static_cast<char *>(call_.k2.data) + 2;
  ExpectRefused(CGR_ERROR_INVALID_ARGUMENT, "k2.data is 0x", "a multiple of 16 bytes", good);
  call_.k2.data = Alloc(kTokens * 32 * 2 - 16);
  ExpectRefused(CGR_ERROR_INVALID_ARGUMENT, "k2 takes 512 bytes", "expected at most 496", good);
  call_.k2.data = nullptr; // then k has whole heads
  ExpectRefused(CGR_ERROR_INVALID_ARGUMENT, "k has strides 64, 64, which overlap", "1 head of 96 elements", good);
  CGR_EXPECT_OK(Capture());
  ASSERT_NO_FATAL_FAILURE(Stop());
  layer_.head_dim = kDimV, layer_.v.base = Alloc(size_t(kPages) * kPage * kDim * 2);
  CGR_ASSERT_OK(Create(CGR_MODE_FULL));
  call_.q.stride_token = kHeads * kDimV, call_.q.stride_head = kDimV;
  ExpectRefused(CGR_ERROR_INVALID_ARGUMENT, "k2 is given for layer 0, whose head_dim is 64 and head_dim_v 64",
                "a larger head_dim", good);
}

// A layer without a cache attends to the views themselves.
TEST_P(KInTwoViews, AreNotWhatItsResultsOverwrite) {
  layer_.flags = CGR_LAYER_NO_CACHE, layer_.dtype = CGR_DTYPE_BF16, layer_.k = layer_.v = cgr_kv_view{};
  CGR_ASSERT_OK(Create(CGR_MODE_FULL));
  const cgr_view out = call_.out;
  call_.out.data = call_.k2.data = Alloc(kTokens * kHeads * kDimV * 2);
  ExpectRefused(CGR_ERROR_INVALID_ARGUMENT, "out at 0x", "overlaps k2 at");
  call_.out = out;
  CGR_EXPECT_OK(Capture());
}

TEST_P(KInTwoViews, AreRefusedByWhoeverTakesOneView) {
  layer_.v.base = Alloc(size_t(kPages) * kPage * kDim * 2);
  backend_.flags = 0;
  layer_.head_dim_v = kDim, call_.out = call_.q;
  CGR_ASSERT_OK(Create(CGR_MODE_FULL));
  ExpectRefused(CGR_ERROR_UNSUPPORTED, "k2 is given for layer 0, for whose backend keeping the library appends",
                "a backend with CGR_BACKEND_APPENDS");
  ASSERT_NO_FATAL_FAILURE(Stop());
  layer_.backend = 0;
  CGR_ASSERT_OK(Create(CGR_MODE_FULL));
  ExpectRefused(CGR_ERROR_UNSUPPORTED, "k2 is given for layer 0, which the library's own kernels attend", "NULL in this version");
}

TEST_P(KInTwoViews, WantTheModelsScale) {
  layer_.scale = 0.0f;
  ExpectMessage(Create(CGR_MODE_FULL), CGR_ERROR_INVALID_ARGUMENT,
                { "layers[0].scale is 0, expected the model's", "1 / sqrt(96)", "MLA" });
  layer_.v.base = static_cast<char *>(layer_.k.base) + (kDim - kDimV) * 2; // its last elements
  ExpectMessage(Create(CGR_MODE_FULL), CGR_ERROR_INVALID_ARGUMENT, { "layers[0].scale is 0, expected the model's" });
  cgr_layer layers[2] = { layer_, layer_ }; // the second one reads the first one's cache
  layers[0].scale = 0.07f, layers[1].kv_source = 1;
  cgr_config config = CGR_CONFIG_INIT;
  ExpectMessage(Create(&config, layers, 2), CGR_ERROR_INVALID_ARGUMENT, { "layers[1].scale is 0, expected the model's" });
  layer_.v.base = Alloc(size_t(kPages) * kPage * kDim * 2); // memory of its own
  CGR_EXPECT_OK(Create(CGR_MODE_FULL));
  ASSERT_NO_FATAL_FAILURE(Stop());
  layer_.v.base = layer_.k.base, layer_.head_dim_v = kDim; // all of k
  CGR_EXPECT_OK(Create(CGR_MODE_FULL));
}

CGR_INSTANTIATE_OVER_DEVICES(KInTwoViews);

} // namespace
} // namespace cgr_test

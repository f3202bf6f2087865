// q that the engine has quantised, and results that a backend quantises: a backend of the engine's gets views and scales
// unchanged, in every kind of step, and graphs hold the scales. The library's own kernels refuse them by name.
#include "tests/support/kept_calls.h"

namespace cgr_test {
namespace {

class QuantisedCalls : public KeptCalls {
protected:
  static constexpr int kDim = 16;

  void SetUpOnDevice() override {
    ASSERT_NO_FATAL_FAILURE(OpenKeeping());
    layer_.head_dim = kDim;
    layer_.q_dtype = layer_.out_dtype = CGR_DTYPE_FP8_E4M3;
    ASSERT_NO_FATAL_FAILURE(MakeCache(CGR_DTYPE_BF16, kDim, kDim));
    for (cgr_view *view : { &call_.q, &call_.out })
      ASSERT_NO_FATAL_FAILURE(MakeView(view, CGR_DTYPE_FP8_E4M3, kHeads, kDim));
    for (cgr_view *view : { &call_.k, &call_.v })
      ASSERT_NO_FATAL_FAILURE(MakeView(view, CGR_DTYPE_BF16, kHeads, kDim));
    call_.q_scale = static_cast<float *>(Alloc(4));
    call_.out_scale = static_cast<float *>(Alloc(4));
  }
};

TEST_P(QuantisedCalls, ReachABackendUnchangedInEveryKindOfStep) { ExpectUnchangedInEveryKindOfStep(); }

TEST_P(QuantisedCalls, GraphsHoldTheScales) {
  CGR_ASSERT_OK(Create(CGR_MODE_FULL));
  CGR_ASSERT_OK(Capture());
  for (const float *scale : { call_.q_scale, call_.out_scale })
    ExpectMessage(cgr_memory_free(dev_, const_cast<float *>(scale)), CGR_ERROR_STATE,
                  { "of a live runtime that can be replayed" });
}

TEST_P(QuantisedCalls, OfAnotherKindThanTheLayerAreRefused) {
  const float number = 1.0f;
  const cgr_attention good = call_;
  CGR_ASSERT_OK(Create(CGR_MODE_FULL));
  call_.q.dtype = CGR_DTYPE_BF16;
  ExpectRefused(CGR_ERROR_UNSUPPORTED, "q.dtype is bf16", "expected fp8_e4m3");
  call_ = good, call_.out.dtype = CGR_DTYPE_FP8_E5M2;
  ExpectRefused(CGR_ERROR_UNSUPPORTED, "out.dtype is fp8_e5m2", "expected fp8_e4m3");
  call_ = good, call_.q_scale = reinterpret_cast<const float *>(reinterpret_cast<const char *>(good.q_scale) + 2);
  ExpectRefused(CGR_ERROR_INVALID_ARGUMENT, "q_scale is 0x", "expected a multiple of 4 bytes");
  call_ = good, call_.q_scale = call_.out_scale = nullptr;
  CGR_EXPECT_OK(Capture());
  ASSERT_NO_FATAL_FAILURE(Stop());
  layer_.q_dtype = layer_.out_dtype = 0; // those of the cache
  CGR_ASSERT_OK(Create(CGR_MODE_FULL));
  for (cgr_view *view : { &call_.q, &call_.out })
    ASSERT_NO_FATAL_FAILURE(MakeView(view, CGR_DTYPE_BF16, kHeads, kDim));
  call_.q_scale = &number;
  ExpectRefused(CGR_ERROR_INVALID_ARGUMENT, "q_scale is given for layer 0, whose q_dtype is bf16", "expected NULL");
  call_.out_scale = &number, call_.q_scale = nullptr;
  ExpectRefused(CGR_ERROR_INVALID_ARGUMENT, "out_scale is given for layer 0, whose out_dtype is bf16", "expected NULL");
  call_.out_scale = nullptr;
  CGR_EXPECT_OK(Capture());
}

TEST_P(QuantisedCalls, AreRefusedByTheLibrarysOwnKernels) {
  layer_.backend = 0, layer_.out_dtype = 0;
  if (GetParam().HasCudaKernels())
    layer_.head_dim = 64; // what they can run else
  ExpectMessage(Create(CGR_MODE_FULL), CGR_ERROR_UNSUPPORTED, { "layers[0].q_dtype is fp8_e4m3", "expected bf16 as in dtype" });
  layer_.q_dtype = 0, layer_.out_dtype = CGR_DTYPE_FP8_E5M2;
  ExpectMessage(Create(CGR_MODE_FULL), CGR_ERROR_UNSUPPORTED,
                { "layers[0].out_dtype is fp8_e5m2", "expected bf16 as in dtype, or fp8_e4m3" });
  layer_.q_dtype = 99;
  ExpectMessage(Create(CGR_MODE_FULL), CGR_ERROR_INVALID_ENUM, { "layers[0].q_dtype is 99" });
  layer_.q_dtype = 0, layer_.reserved = 5;
  ExpectMessage(Create(CGR_MODE_FULL), CGR_ERROR_NEWER_STRUCT, { "layers[0].reserved is 5", "expected 0" });
}

// A plan that is made for one dtype of q would be wrong for another.
TEST_P(QuantisedCalls, ABackendThatPlansForDtypesHasOneOfQ) {
  cgr_layer layers[2] = { layer_, layer_ };
  layers[1].q_dtype = CGR_DTYPE_FP8_E5M2;
  layers[1].k.base = Alloc(size_t(kPages) * kPage * kHeads * kDim * 2);
  layers[1].v.base = Alloc(size_t(kPages) * kPage * kHeads * kDim * 2);
  cgr_config config = CGR_CONFIG_INIT;
  backend_.planned = CGR_PLANNED_DTYPE;
  ExpectMessage(Create(&config, layers, 2), CGR_ERROR_INVALID_ARGUMENT, { "layers[1].q_dtype is fp8_e5m2", "fp8_e4m3" });
  backend_.planned = 0;
  CGR_EXPECT_OK(Create(&config, layers, 2));
}

CGR_INSTANTIATE_OVER_DEVICES(QuantisedCalls);

} // namespace
} // namespace cgr_test

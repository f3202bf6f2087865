// A cache of the other 16-bit dtype than q, k and v in the call: for a backend that appends. The library's append copies, and its
// own kernels read what is there, so both refuse it by name.
#include "cgr/names.h"
#include "tests/support/kept_calls.h"

namespace cgr_test {
namespace {

class OtherCacheDtype : public KeptCalls {
protected:
  static constexpr int kDim = 64;

  void SetUpOnDevice() override {
    ASSERT_NO_FATAL_FAILURE(OpenKeeping());
    layer_.head_dim = kDim;
  }
  void Make(cgr_dtype call, cgr_dtype cache) {
    layer_.backend = 1, layer_.dtype = call, backend_.flags = CGR_BACKEND_APPENDS;
    ASSERT_NO_FATAL_FAILURE(MakeCache(cache, kDim, kDim));
    for (cgr_view *view : { &call_.q, &call_.k, &call_.v, &call_.out })
      ASSERT_NO_FATAL_FAILURE(MakeView(view, call, kHeads, kDim));
  }
};

TEST_P(OtherCacheDtype, IsForABackendThatAppends) {
  for (bool swap : { false, true }) {
    const cgr_dtype call = swap ? CGR_DTYPE_BF16 : CGR_DTYPE_FP16, cache = swap ? CGR_DTYPE_FP16 : CGR_DTYPE_BF16;
    const std::string of_call = cgr_dtype_name(call), of_cache = cgr_dtype_name(cache);
    ASSERT_NO_FATAL_FAILURE(Make(call, cache));
    ExpectUnchangedInEveryKindOfStep();
    CGR_ASSERT_OK(Create(CGR_MODE_FULL));
    call_.k.dtype = cache;
    ExpectRefused(CGR_ERROR_UNSUPPORTED, "k.dtype is " + of_cache, "expected " + of_call);
    ASSERT_NO_FATAL_FAILURE(Stop());
    backend_.flags = 0;
    ExpectMessage(Create(CGR_MODE_FULL), CGR_ERROR_UNSUPPORTED,
                  { "layers[0].k.dtype is " + of_cache + " and the layer's dtype " + of_call, "CGR_BACKEND_APPENDS" });
    layer_.backend = 0;
    ExpectMessage(Create(CGR_MODE_FULL), CGR_ERROR_UNSUPPORTED,
                  { "layers[0].dtype is " + of_call, "expected " + of_cache + " as in the cache" });
  }
}

CGR_INSTANTIATE_OVER_DEVICES(OtherCacheDtype);

} // namespace
} // namespace cgr_test

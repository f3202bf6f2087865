// Caches of 4 bits, two elements to a byte, of a backend that appends: their strides, bytes and heads are counted right, a layer
// that checks and a self-test look at them, and whoever cannot read or write them refuses them by name.
#include "cgr/inspect.h"
#include "tests/support/kept_calls.h"

namespace cgr_test {
namespace {

class PackedCache : public KeptCalls {
protected:
  static constexpr int kDim = 64;

  void SetUpOnDevice() override {
    ASSERT_NO_FATAL_FAILURE(OpenKeeping());
    backend_.flags = CGR_BACKEND_APPENDS;
    layer_.head_dim = kDim, layer_.dtype = CGR_DTYPE_BF16;
    ASSERT_NO_FATAL_FAILURE(MakeCache(CGR_DTYPE_FP4_E2M1, kDim, kDim));
    for (cgr_view *view : { &call_.q, &call_.k, &call_.v, &call_.out })
      ASSERT_NO_FATAL_FAILURE(MakeView(view, CGR_DTYPE_BF16, kHeads, kDim));
  }
  void ExpectCreateRefused(cgr_status status, const std::string &says, const std::string &expected) {
    ExpectMessage(Create(CGR_MODE_FULL), status, { says, expected });
  }
};

TEST_P(PackedCache, OfABackendThatAppends) {
  for (int32_t dtype : { CGR_DTYPE_FP4_E2M1, CGR_DTYPE_I4 }) {
    layer_.k.dtype = layer_.v.dtype = dtype;
    ExpectUnchangedInEveryKindOfStep();
  }
  layer_.k.dtype = CGR_DTYPE_FP8_E4M3; // with K of 8 bits
  layer_.k.base = Alloc(size_t(kPages) * kPage * kHeads * kDim);
  ExpectUnchangedInEveryKindOfStep();
}

// The last element ends with the allocation, and K and V adjoin.
TEST_P(PackedCache, TakesHalfAByteForAnElement) {
  const size_t bytes = size_t(kPages) * kPage * kHeads * kDim / 2;
  char *both = static_cast<char *>(Alloc(2 * bytes));
  layer_.k.base = both, layer_.v.base = both + bytes;
  CGR_EXPECT_OK(Create(CGR_MODE_FULL));
  ASSERT_NO_FATAL_FAILURE(Stop());
  layer_.v.base = both + bytes - 16;
  ExpectCreateRefused(CGR_ERROR_INVALID_ARGUMENT, "layers[0].v overlaps layers[0].k", "memory of its own");
  layer_.v.base = both + bytes + 16;
  ExpectCreateRefused(CGR_ERROR_INVALID_ARGUMENT, "layers[0].v takes 16384 bytes", "expected at most 16368");
}

TEST_P(PackedCache, IsARegionOfTheRuntime) {
  CGR_ASSERT_OK(Create(CGR_MODE_FULL));
  CGR_ASSERT_OK(Capture());
  cgr_finding findings[4];
  int32_t count = -1;
  cgr_audit audit = CGR_AUDIT_INIT;
  CGR_EXPECT_OK(cgr_runtime_audit(rt_, &audit, findings, 4, &count));
  EXPECT_EQ(count, 0);
  ExpectMessage(cgr_memory_free(dev_, layer_.k.base), CGR_ERROR_STATE, { "holds layers[0].k" });
}

// Noise goes into every byte of the pages that a self-test is given, and nowhere else: it is never 0xff. (This backend appends
// nothing, which the test finds.)
TEST_P(PackedCache, SelfTestsFillTheGivenPages) {
  const int32_t pages[] = { 4, 5, 6, 7, 8, 9, 10, 11 };
  const size_t page = size_t(kPage) * kHeads * kDim / 2;
  cgr_self_test test = CGR_SELF_TEST_INIT;
  test.pages = pages, test.num_pages = 8, test.max_token = 100;
  CGR_ASSERT_OK(Create(CGR_MODE_FULL));
  CGR_ASSERT_OK(Capture());
  CGR_ASSERT_OK(cgr_fill(dev_, layer_.k.base, 0xff, kPages * page, stream_));
  CGR_ASSERT_OK(cgr_stream_synchronize(dev_, stream_));
  cgr_finding findings[4];
  int32_t count = -1;
  ExpectMessage(cgr_runtime_self_test(rt_, &test, findings, 4, &count), CGR_ERROR_SELF_TEST, { "(layer 0, keys)", "differs" });
  std::vector<unsigned char> bytes(kPages * page);
  CGR_ASSERT_OK(cgr_copy(dev_, bytes.data(), layer_.k.base, bytes.size(), stream_));
  CGR_ASSERT_OK(cgr_stream_synchronize(dev_, stream_));
  for (size_t i = 0; i < bytes.size(); i++) {
    const bool given = i / page >= 4 && i / page < 12;
    ASSERT_EQ(bytes[i] == 0xff, !given) << "byte " << i % page << " of page " << i / page;
  }
}

TEST_P(PackedCache, IsRefusedByWhoeverCannotHaveIt) {
  const cgr_layer good = layer_;
  layer_.dtype = 0;
  ExpectCreateRefused(CGR_ERROR_UNSUPPORTED, "layers[0].dtype is 0, that of the cache, fp4_e2m1", "dtype of k and v in the call");
  layer_ = good, layer_.head_dim = 63;
  ExpectCreateRefused(CGR_ERROR_INVALID_ARGUMENT, "layers[0].k has heads of 63 elements", "two of fp4_e2m1 are a byte");
  layer_ = good, layer_.k.stride_token += 16; // 8 bytes
  ExpectCreateRefused(CGR_ERROR_INVALID_ARGUMENT, "layers[0].k has strides 2048, 144, 64", "multiples of 16 bytes");
  layer_ = good, backend_.flags = 0;
  ExpectCreateRefused(CGR_ERROR_UNSUPPORTED, "layers[0].k.dtype is fp4_e2m1 and the layer's dtype bf16",
                      "the same, or fp8_e4m3, fp8_e5m2 or i8, or a backend with CGR_BACKEND_APPENDS");
  layer_.backend = 0;
  for (int32_t dtype : { CGR_DTYPE_FP4_E2M1, CGR_DTYPE_I4 }) {
    layer_.k.dtype = layer_.v.dtype = dtype;
    ExpectCreateRefused(CGR_ERROR_UNSUPPORTED, std::string("layers[0].k.dtype is ") + (dtype == CGR_DTYPE_I4 ? "i4" : "fp4_e2m1"),
                        "for a cache, on this device");
  }
}

CGR_INSTANTIATE_OVER_DEVICES(PackedCache);

} // namespace
} // namespace cgr_test

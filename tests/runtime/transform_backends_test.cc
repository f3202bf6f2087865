// Transforms of layers that a backend of the engine's attends: it finds q, k and v transformed, or, if it appends by itself, gets
// the struct as it is. And layers for which the library's kernel cannot do it.
#include <cstring>

#include "tests/support/quantised_case.h"

namespace cgr_test {
namespace {

// Keeps the calls that it gets.
struct Backend {
  std::vector<cgr_attention> calls;
  std::vector<cgr_qkv_transform> transforms;
};
cgr_status Keep(void *context, cgr_recorder *, const cgr_attention *attention) {
  Backend *backend = static_cast<Backend *>(context);
  backend->calls.push_back(*attention);
  if (attention->transform != nullptr)
    backend->transforms.push_back(*attention->transform);
  return CGR_OK;
}

class TransformBackends : public QuantisedCase {
protected:
  static constexpr int kPages = 16, kDim = 32, kRow = kHeads * kDim;

  void SetUpOnDevice() override {
    ASSERT_NO_FATAL_FAILURE(Open());
    backend_.name = "keeps", backend_.record = Keep, backend_.context = &kept_;
    group_.num_pages = kPages;
    ASSERT_NO_FATAL_FAILURE(Shape(kDim, CGR_DTYPE_BF16, CGR_DTYPE_FP8_E4M3));
    float *cos_sin = static_cast<float *>(Alloc(64 * kDim * sizeof(float))); // of angles 0 throughout
    CGR_ASSERT_OK(cgr_fill(dev_, cos_sin, 0, 64 * kDim * sizeof(float), stream_));
    transform_.cos_sin = cos_sin, transform_.num_positions = 64;
    transform_.q_bias = Ones(kRow), transform_.k_bias = Ones(kRow), transform_.v_bias = Ones(kRow);
    call_.transform = &transform_;
  }
  // 1.0 in bf16.
  void *Ones(int count) {
    const std::vector<uint16_t> ones(size_t(count), 0x3f80);
    void *memory = Alloc(ones.size() * 2);
    CGR_EXPECT_OK(cgr_copy(dev_, memory, ones.data(), ones.size() * 2, stream_));
    CGR_EXPECT_OK(cgr_stream_synchronize(dev_, stream_));
    return memory;
  }
  void Shape(int32_t dim, cgr_dtype dtype, cgr_dtype cache) {
    const size_t row = size_t(kHeads * dim), size = cgr_dtype_size(dtype);
    layer_.head_dim = dim, layer_.dtype = dtype;
    for (cgr_kv_view *view : { &layer_.k, &layer_.v })
      CGR_ASSERT_OK(cgr_kv_view_make(CGR_LAYOUT_NHD, Alloc(kPages * kPage * row * size), cache, kPage, kHeads, dim, view));
    for (cgr_view *view : { &call_.q, &call_.k, &call_.v, &call_.out })
      CGR_ASSERT_OK(cgr_view_make(Alloc(kTokens * row * size), dtype, kHeads, dim, view));
  }
  static cgr_status Record(cgr_recorder *recorder, void *engine) {
    return cgr_record_attention(recorder, &static_cast<const TransformBackends *>(engine)->call_);
  }
  cgr_status Capture() {
    const cgr_capture capture = CaptureOf(Record, this);
    return cgr_runtime_capture(rt_, &capture);
  }
  std::vector<unsigned char> Get(const void *from, size_t bytes) {
    std::vector<unsigned char> to(bytes);
    CGR_EXPECT_OK(cgr_copy(dev_, to.data(), from, bytes, stream_));
    CGR_EXPECT_OK(cgr_stream_synchronize(dev_, stream_));
    return to;
  }
  // Zeros in the first token of q.
  void Clear() {
    CGR_ASSERT_OK(cgr_fill(dev_, call_.q.data, 0, kTokens * kRow * 2, stream_));
    CGR_ASSERT_OK(cgr_stream_synchronize(dev_, stream_));
  }
  void Refused(const std::string &says, const std::string &expected) {
    ExpectMessage(Capture(), CGR_ERROR_CALLBACK, { "CGR_ERROR_UNSUPPORTED: cgr_record_attention: " + says, expected });
    ASSERT_NO_FATAL_FAILURE(Stop());
  }

  Backend kept_;
  cgr_qkv_transform transform_ = CGR_QKV_TRANSFORM_INIT;
};

// With cosines and sines of 0 rope turns everything into 0; v is 1 + 0, whose code is 0x38.
TEST_P(TransformBackends, FindQkvTransformed) {
  for (int32_t mode : { CGR_MODE_FULL, CGR_MODE_PIECEWISE, CGR_MODE_NONE })
    for (bool with_rope : { true, false }) {
      SCOPED_TRACE(std::to_string(mode) + (with_rope ? ", rope" : ""));
      const cgr_qkv_transform good = transform_;
      if (!with_rope)
        transform_.cos_sin = nullptr, transform_.num_positions = 0;
      CGR_ASSERT_OK(Create(mode));
      CGR_ASSERT_OK(Capture());
      kept_ = Backend();
      ASSERT_NO_FATAL_FAILURE(Clear());
      ASSERT_NO_FATAL_FAILURE(Step(1));
      EXPECT_EQ(kept_.calls.size(), mode == CGR_MODE_FULL ? 0u : 1u);
      for (const cgr_attention &call : kept_.calls)
        EXPECT_EQ(call.transform, nullptr);
      const std::vector<unsigned char> q = Get(call_.q.data, kTokens * kRow * 2), k = Get(layer_.k.base, kPages * kPage * kRow),
                                       v = Get(layer_.v.base, kPages * kPage * kRow);
      for (size_t i = 0; i < kRow; i++) {
        ASSERT_EQ(q[2 * i] | q[2 * i + 1] << 8, with_rope ? 0 : 0x3f80) << i;
        ASSERT_EQ(int(k[3 * kPage * kRow + i]), with_rope ? 0 : 0x38) << i; // the first page of the request
        ASSERT_EQ(int(v[3 * kPage * kRow + i]), 0x38) << i;
      }
      for (size_t i = 2 * kRow; i < q.size(); i++)
        ASSERT_EQ(int(q[i]), 0) << "a padded token";
      transform_ = good;
      ASSERT_NO_FATAL_FAILURE(Stop());
    }
}

TEST_P(TransformBackends, ThatAppendGetTheStructAsItIs) {
  backend_.flags = CGR_BACKEND_APPENDS;
  transform_.norm_epsilon = 0.25f, transform_.flags = CGR_TRANSFORM_INTERLEAVED;
  transform_.rotary_dim = 24, transform_.num_positions = 3; // which the library's kernel could not do
  for (int32_t mode : { CGR_MODE_FULL, CGR_MODE_PIECEWISE, CGR_MODE_NONE }) {
    SCOPED_TRACE(mode);
    kept_ = Backend();
    CGR_ASSERT_OK(Create(mode));
    CGR_ASSERT_OK(Capture());
    ASSERT_NO_FATAL_FAILURE(Clear());
    for (int n = 0; n < 3; n++)
      ASSERT_NO_FATAL_FAILURE(Step(1));
    EXPECT_GT(kept_.transforms.size(), 0u);
    EXPECT_EQ(kept_.transforms.size(), kept_.calls.size());
    for (const cgr_qkv_transform &got : kept_.transforms)
      EXPECT_EQ(std::memcmp(&got, &transform_, sizeof got), 0);
    for (unsigned char byte : Get(call_.q.data, kTokens * kRow * 2))
      ASSERT_EQ(int(byte), 0);
    ASSERT_NO_FATAL_FAILURE(Stop());
  }
}

TEST_P(TransformBackends, OfLayersThatTheKernelCannotDo) {
  ASSERT_NO_FATAL_FAILURE(Shape(12, CGR_DTYPE_FP32, CGR_DTYPE_FP32));
  CGR_ASSERT_OK(Create(CGR_MODE_FULL));
  Refused("transform is given for layer 0, whose head_dim is 12", "a multiple of 8 up to 1024");
  ASSERT_NO_FATAL_FAILURE(Shape(1040, CGR_DTYPE_FP32, CGR_DTYPE_FP32));
  CGR_ASSERT_OK(Create(CGR_MODE_FULL));
  Refused("transform is given for layer 0, whose head_dim is 1040", "a multiple of 8 up to 1024");
  ASSERT_NO_FATAL_FAILURE(Shape(kDim, CGR_DTYPE_BF16, CGR_DTYPE_BF16));
  layer_.q_dtype = CGR_DTYPE_FP8_E4M3, call_.q.dtype = CGR_DTYPE_FP8_E4M3;
  CGR_ASSERT_OK(Create(CGR_MODE_FULL));
  Refused("transform is given for layer 0, whose q_dtype is fp8_e4m3", "expected bf16 as in dtype");
  layer_.flags = CGR_LAYER_NO_CACHE, layer_.q_dtype = 0, layer_.dtype = CGR_DTYPE_FP8_E4M3;
  layer_.k = layer_.v = cgr_kv_view();
  CGR_ASSERT_OK(Create(CGR_MODE_FULL));
  for (cgr_view *view : { &call_.q, &call_.k, &call_.v, &call_.out })
    view->dtype = CGR_DTYPE_FP8_E4M3;
  Refused("transform is given for layer 0, whose dtype is fp8_e4m3", "expected fp32, fp16 or bf16");
}

CGR_INSTANTIATE_OVER_DEVICES(TransformBackends);

} // namespace
} // namespace cgr_test

// q that the engine has quantised, and results that a backend quantises: a backend of the engine's gets views and scales
// unchanged, in every kind of step, and graphs hold the scales. The library's own kernels refuse them by name.
#include <cstring>

#include "tests/support/devices.h"
#include "tests/support/expect.h"
#include "tests/support/getters.h"

namespace cgr_test {
namespace {

enum { kPages = 16, kPage = 16, kHeads = 2, kDim = 16, kTokens = 8 };

// Keeps the calls that it gets.
struct Backend {
  std::vector<cgr_attention> calls;
};
cgr_graph_support Always(void *, const cgr_device_info *, const cgr_group *) { return CGR_SUPPORT_ALWAYS; }
cgr_status Keep(void *context, cgr_recorder *, const cgr_attention *attention) {
  static_cast<Backend *>(context)->calls.push_back(*attention);
  return CGR_OK;
}

class QuantisedCalls : public OverDevices {
protected:
  void SetUpOnDevice() override {
    CGR_ASSERT_OK(cgr_device_open(GetParam().name.c_str(), &GetParam().config, &dev_));
    CGR_ASSERT_OK(cgr_stream_create(dev_, &stream_));
    layer_.backend = 1, layer_.num_q_heads = layer_.num_kv_heads = kHeads, layer_.head_dim = kDim;
    layer_.q_dtype = layer_.out_dtype = CGR_DTYPE_FP8_E4M3;
    for (cgr_kv_view *view : { &layer_.k, &layer_.v })
      CGR_ASSERT_OK(cgr_kv_view_make(CGR_LAYOUT_NHD, Alloc(size_t(kPages) * kPage * kHeads * kDim * 2), CGR_DTYPE_BF16, kPage,
                                     kHeads, kDim, view));
    for (cgr_view *view : { &call_.q, &call_.out })
      CGR_ASSERT_OK(cgr_view_make(Alloc(kTokens * kHeads * kDim), CGR_DTYPE_FP8_E4M3, kHeads, kDim, view));
    for (cgr_view *view : { &call_.k, &call_.v })
      CGR_ASSERT_OK(cgr_view_make(Alloc(kTokens * kHeads * kDim * 2), CGR_DTYPE_BF16, kHeads, kDim, view));
    call_.q_scale = static_cast<float *>(Alloc(4));
    call_.out_scale = static_cast<float *>(Alloc(4));
  }
  void TearDown() override {
    if (dev_ == nullptr)
      return;
    CGR_EXPECT_OK(cgr_runtime_destroy(rt_));
    for (void *memory : memory_)
      CGR_EXPECT_OK(cgr_memory_free(dev_, memory));
    CGR_EXPECT_OK(cgr_stream_destroy(dev_, stream_));
    CGR_EXPECT_OK(cgr_device_close(dev_));
  }
  void *Alloc(size_t bytes) {
    void *memory = nullptr;
    CGR_EXPECT_OK(cgr_memory_alloc(dev_, bytes, &memory));
    memory_.push_back(memory);
    return memory;
  }
  static cgr_status Record(cgr_recorder *recorder, void *engine) {
    return cgr_record_attention(recorder, &static_cast<const QuantisedCalls *>(engine)->call_);
  }
  cgr_status Create(int32_t mode) {
    backend_.name = "quantised", backend_.support = Always, backend_.record = Keep, backend_.context = &kept_;
    group_.num_pages = kPages;
    cgr_config config = CGR_CONFIG_INIT;
    config.device_handle = dev_, config.graph_mode = mode;
    config.groups = &group_, config.num_groups = 1, config.layers = &layer_, config.num_layers = 1;
    config.backends = &backend_, config.num_backends = 1;
    config.max_requests = 4, config.max_tokens = kTokens, config.max_seq_len = 64;
    return cgr_runtime_create(&config, &rt_);
  }
  cgr_status Capture() {
    const cgr_capture capture = CaptureOf(Record, this);
    return cgr_runtime_capture(rt_, &capture);
  }
  void Step() {
    const int32_t token = 3, page = 2;
    cgr_batch batch = CGR_BATCH_INIT;
    cgr_step step = CGR_STEP_INIT;
    if (row_ < 0) {
      CGR_ASSERT_OK(cgr_request_open(rt_, 7, &row_));
      CGR_ASSERT_OK(cgr_request_set_pages(rt_, row_, 0, 0, &page, 1));
    }
    batch.num_requests = 1, batch.rows = &row_, batch.tokens = &token;
    CGR_ASSERT_OK(cgr_step_prepare(rt_, &batch, &step));
    CGR_ASSERT_OK(cgr_step_launch(rt_, &step, stream_));
    CGR_ASSERT_OK(cgr_step_wait(rt_, step.mark, -1, nullptr));
  }

  cgr_device *dev_ = nullptr;
  cudaStream_t stream_ = nullptr;
  cgr_runtime *rt_ = nullptr;
  cgr_group group_ = CGR_GROUP_INIT;
  cgr_layer layer_ = CGR_LAYER_INIT;
  cgr_backend backend_ = CGR_BACKEND_INIT;
  cgr_attention call_ = CGR_ATTENTION_INIT;
  Backend kept_;
  int32_t row_ = -1;
  std::vector<void *> memory_;
};

TEST_P(QuantisedCalls, ReachABackendUnchangedInEveryKindOfStep) {
  for (int32_t mode : { CGR_MODE_FULL, CGR_MODE_PIECEWISE, CGR_MODE_NONE }) {
    SCOPED_TRACE(mode);
    kept_.calls.clear();
    CGR_ASSERT_OK(Create(mode));
    CGR_ASSERT_OK(Capture());
    const size_t captured = kept_.calls.size();
    EXPECT_EQ(captured > 0, mode == CGR_MODE_FULL);
    for (int n = 0; n < 3; n++)
      ASSERT_NO_FATAL_FAILURE(Step());
    EXPECT_EQ(kept_.calls.size() - captured, mode == CGR_MODE_FULL ? 0u : 3u);
    for (const cgr_attention &got : kept_.calls)
      EXPECT_EQ(std::memcmp(&got, &call_, sizeof got), 0);
    CGR_ASSERT_OK(cgr_runtime_destroy(rt_));
    rt_ = nullptr, row_ = -1;
  }
}

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
  auto refused = [&](const char *status, const std::string &says, const char *expected) {
    ExpectMessage(Capture(), CGR_ERROR_CALLBACK, { std::string(status) + ": cgr_record_attention: " + says, expected });
  };
  CGR_ASSERT_OK(Create(CGR_MODE_FULL));
  call_.q.dtype = CGR_DTYPE_BF16;
  refused("CGR_ERROR_UNSUPPORTED", "q.dtype is bf16", "expected fp8_e4m3");
  call_ = good, call_.out.dtype = CGR_DTYPE_FP8_E5M2;
  refused("CGR_ERROR_UNSUPPORTED", "out.dtype is fp8_e5m2", "expected fp8_e4m3");
  call_ = good, call_.q_scale = reinterpret_cast<const float *>(reinterpret_cast<const char *>(good.q_scale) + 2);
  refused("CGR_ERROR_INVALID_ARGUMENT", "q_scale is 0x", "expected a multiple of 4 bytes");
  call_ = good, call_.q_scale = call_.out_scale = nullptr;
  CGR_EXPECT_OK(Capture());
  CGR_ASSERT_OK(cgr_runtime_destroy(rt_));
  layer_.q_dtype = layer_.out_dtype = 0; // those of the cache
  CGR_ASSERT_OK(Create(CGR_MODE_FULL));
  for (cgr_view *view : { &call_.q, &call_.out })
    CGR_ASSERT_OK(cgr_view_make(Alloc(kTokens * kHeads * kDim * 2), CGR_DTYPE_BF16, kHeads, kDim, view));
  call_.q_scale = &number;
  refused("CGR_ERROR_INVALID_ARGUMENT", "q_scale is given for layer 0, whose q_dtype is bf16", "expected NULL");
  call_.out_scale = &number, call_.q_scale = nullptr;
  refused("CGR_ERROR_INVALID_ARGUMENT", "out_scale is given for layer 0, whose out_dtype is bf16", "expected NULL");
  call_.out_scale = nullptr;
  CGR_EXPECT_OK(Capture());
}

TEST_P(QuantisedCalls, AreRefusedByTheLibrarysOwnKernels) {
  layer_.backend = 0, layer_.out_dtype = 0;
  if (GetParam().HasCudaKernels())
    layer_.head_dim = 64; // what they can run else
  ExpectMessage(Create(CGR_MODE_FULL), CGR_ERROR_UNSUPPORTED, { "layers[0].q_dtype is fp8_e4m3", "expected bf16 as in dtype" });
  layer_.q_dtype = 0, layer_.out_dtype = CGR_DTYPE_FP8_E4M3;
  ExpectMessage(Create(CGR_MODE_FULL), CGR_ERROR_UNSUPPORTED, { "layers[0].out_dtype is fp8_e4m3", "expected bf16 as in dtype" });
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
  backend_.name = "quantised", backend_.support = Always, backend_.record = Keep, backend_.context = &kept_;
  group_.num_pages = kPages;
  cgr_config config = CGR_CONFIG_INIT;
  config.device_handle = dev_, config.groups = &group_, config.num_groups = 1, config.layers = layers, config.num_layers = 2;
  config.backends = &backend_, config.num_backends = 1;
  config.max_requests = 4, config.max_tokens = kTokens, config.max_seq_len = 64;
  backend_.planned = CGR_PLANNED_DTYPE;
  ExpectMessage(cgr_runtime_create(&config, &rt_), CGR_ERROR_INVALID_ARGUMENT, { "layers[1].q_dtype is fp8_e5m2", "fp8_e4m3" });
  backend_.planned = 0;
  CGR_EXPECT_OK(cgr_runtime_create(&config, &rt_));
}

CGR_INSTANTIATE_OVER_DEVICES(QuantisedCalls);

} // namespace
} // namespace cgr_test

// Scales of a quantised cache, in a runtime whose backend appends: they are regions of the runtime, as the cache is, so that an
// audit finds nothing, none can move, and their memory is not freed.
#include "cgr/inspect.h"
#include "tests/support/devices.h"
#include "tests/support/expect.h"

namespace cgr_test {
namespace {

enum { kPages = 16, kPage = 16, kHeads = 2, kDim = 16, kTokens = 8 };

// Writes every scale that it knows: what counts is that its nodes hold the addresses.
struct Backend {
  cgr_device *device;
  float *scales[2];
};
cgr_graph_support Always(void *, const cgr_device_info *, const cgr_group *) { return CGR_SUPPORT_ALWAYS; }
cgr_status FillScales(void *context, cgr_recorder *recorder, const cgr_attention *) {
  const Backend *b = static_cast<const Backend *>(context);
  cgr_record_info info = CGR_RECORD_INFO_INIT;
  cgr_status status = cgr_record_get_info(recorder, &info);
  for (int i = 0; i < 2 && status == CGR_OK; i++)
    status = cgr_fill(b->device, b->scales[i] + 1, 0, 4, info.stream);
  return status;
}

class Scales : public OverDevices {
protected:
  void SetUpOnDevice() override {
    CGR_ASSERT_OK(cgr_device_open(GetParam().name.c_str(), &GetParam().config, &backend_.device));
    cgr_backend backend = CGR_BACKEND_INIT;
    backend.name = "quantised", backend.support = Always, backend.record = FillScales, backend.context = &backend_;
    backend.flags = CGR_BACKEND_APPENDS;
    cgr_group group = CGR_GROUP_INIT;
    group.num_pages = kPages;
    cgr_layer layer = CGR_LAYER_INIT;
    layer.backend = 1, layer.num_q_heads = layer.num_kv_heads = kHeads, layer.head_dim = kDim, layer.dtype = CGR_DTYPE_BF16;
    for (cgr_kv_view *view : { &layer.k, &layer.v }) {
      void *cache = Alloc(size_t(kPages) * kPage * kHeads * kDim);
      CGR_ASSERT_OK(cgr_kv_view_make(CGR_LAYOUT_NHD, cache, CGR_DTYPE_FP8_E4M3, kPage, kHeads, kDim, view));
    }
    layer.k.scale = backend_.scales[0] = static_cast<float *>(Alloc(size_t(kPages) * kPage * kHeads * 4));
    layer.k.scale_stride_page = kPage * kHeads, layer.k.scale_stride_token = kHeads, layer.k.scale_stride_head = 1;
    layer.v.scale = backend_.scales[1] = static_cast<float *>(Alloc(kHeads * 4));
    layer.v.scale_stride_head = 1;
    for (cgr_view &view : views_)
      CGR_ASSERT_OK(cgr_view_make(Alloc(size_t(kTokens) * kHeads * kDim * 2), CGR_DTYPE_BF16, kHeads, kDim, &view));
    cgr_config config = CGR_CONFIG_INIT;
    config.device_handle = backend_.device;
    config.groups = &group, config.num_groups = 1, config.layers = &layer, config.num_layers = 1;
    config.backends = &backend, config.num_backends = 1;
    config.max_requests = 4, config.max_tokens = kTokens, config.max_seq_len = 64;
    CGR_ASSERT_OK(cgr_runtime_create(&config, &rt_));
    cgr_capture capture = CaptureOf(Record, this);
    CGR_ASSERT_OK(cgr_runtime_capture(rt_, &capture));
  }
  void TearDown() override {
    CGR_EXPECT_OK(cgr_runtime_destroy(rt_));
    for (void *memory : memory_)
      CGR_EXPECT_OK(cgr_memory_free(backend_.device, memory));
    CGR_EXPECT_OK(cgr_device_close(backend_.device));
  }
  void *Alloc(size_t bytes) {
    void *memory = nullptr;
    CGR_EXPECT_OK(cgr_memory_alloc(backend_.device, bytes, &memory));
    memory_.push_back(memory);
    return memory;
  }
  static cgr_status Record(cgr_recorder *recorder, void *engine) {
    const Scales *self = static_cast<const Scales *>(engine);
    cgr_attention attention = CGR_ATTENTION_INIT;
    attention.q = self->views_[0], attention.k = self->views_[1], attention.v = self->views_[2], attention.out = self->views_[3];
    return cgr_record_attention(recorder, &attention);
  }
  Backend backend_ = {};
  cgr_view views_[4] = {};
  std::vector<void *> memory_;
  cgr_runtime *rt_ = nullptr;
};

TEST_P(Scales, AreRegionsOfTheRuntime) {
  cgr_finding findings[4];
  cgr_audit audit = CGR_AUDIT_INIT;
  int32_t count = -1, region = -1;
  CGR_EXPECT_OK(cgr_runtime_audit(rt_, &audit, findings, 4, &count));
  EXPECT_EQ(count, 0) << findings[0].text;
  EXPECT_GT(audit.num_addresses, 0);
  CGR_ASSERT_OK(cgr_region_register(rt_, backend_.scales[0], 4, &region));
  EXPECT_EQ(region, 6) << "arena, rings, k, its scale, v, its scale";
  for (int32_t own = 0; own < region; own++) {
    ExpectMessage(cgr_region_move(rt_, own, backend_.scales[0], 4), CGR_ERROR_INVALID_ARGUMENT, { "the runtime's own" });
    ExpectMessage(cgr_region_unregister(rt_, own), CGR_ERROR_INVALID_ARGUMENT, { "the runtime's own" });
  }
}

TEST_P(Scales, AreNotFreedWhileTheRuntimeLives) {
  for (const char *field : { "k.scale", "v.scale" })
    ExpectMessage(cgr_memory_free(backend_.device, backend_.scales[field[0] == 'v']), CGR_ERROR_STATE,
                  { std::string("holds layers[0].") + field + " of a live runtime, expected cgr_runtime_destroy first" });
}

// No node holds the address of the views: it is enough that the call names them.
TEST_P(Scales, WhatItsCallsNameIsNotFreedEither) {
  const std::string graphs = std::to_string(cgr_test::NumKeys(rt_));
  for (const cgr_view &view : views_)
    ExpectMessage(cgr_memory_free(backend_.device, view.data), CGR_ERROR_STATE,
                  { "is held by " + graphs + " graphs of a live runtime that can be replayed" });
}

CGR_INSTANTIATE_OVER_DEVICES(Scales);

} // namespace
} // namespace cgr_test

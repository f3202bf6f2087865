// A runtime of one layer, for tests of what is quantised: device, memory, runtime and steps of one request. The layer's backend
// is the engine's, unless a test sets another. Over the validation layer. Whoever includes this links the layer.
#pragma once

#include <string>
#include <vector>

#include "tests/support/devices.h"
#include "tests/support/expect.h"
#include "tests/support/getters.h"
#include "tests/support/violations.h"

namespace cgr_test {

class QuantisedCase : public OverDevices {
protected:
  static constexpr int kPage = 16, kHeads = 2, kTokens = 8;

  void Open() {
    cgr_device_info info = CGR_DEVICE_INFO_INIT;
    dev_ = violations_.Open(GetParam());
    ASSERT_NE(dev_, nullptr);
    CGR_ASSERT_OK(cgr_device_get_info(dev_, &info));
    ASSERT_EQ(info.kind == CGR_DEVICE_KIND_CUDA, GetParam().HasCudaKernels()); // the layer took no other's place
    CGR_ASSERT_OK(cgr_stream_create(dev_, &stream_));
    layer_.backend = 1, layer_.num_q_heads = layer_.num_kv_heads = kHeads;
    backend_.support = [](void *, const cgr_device_info *, const cgr_group *) { return CGR_SUPPORT_ALWAYS; };
  }
  void TearDown() override {
    if (dev_ == nullptr)
      return;
    CGR_EXPECT_OK(cgr_runtime_destroy(rt_));
    for (void *memory : memory_)
      CGR_EXPECT_OK(cgr_memory_free(dev_, memory));
    CGR_EXPECT_OK(cgr_stream_destroy(dev_, stream_));
    CGR_EXPECT_OK(cgr_device_close(dev_));
    EXPECT_EQ(violations_.All(), reports_);
  }
  // Zeros.
  void *Alloc(size_t bytes) {
    void *memory = nullptr;
    CGR_EXPECT_OK(cgr_memory_alloc(dev_, bytes, &memory));
    CGR_EXPECT_OK(cgr_fill(dev_, memory, 0, bytes, stream_));
    CGR_EXPECT_OK(cgr_stream_synchronize(dev_, stream_));
    memory_.push_back(memory);
    return memory;
  }
  cgr_status Create(int32_t mode) {
    cgr_config config = CGR_CONFIG_INIT;
    config.graph_mode = mode;
    return Create(&config, &layer_, 1);
  }
  cgr_status Create(cgr_config *config, const cgr_layer *layers, int32_t num_layers) {
    config->device_handle = dev_;
    config->groups = &group_, config->num_groups = 1, config->layers = layers, config->num_layers = num_layers;
    config->backends = &backend_, config->num_backends = 1;
    config->max_requests = 4, config->max_tokens = kTokens, config->max_seq_len = 64;
    return cgr_runtime_create(config, &rt_);
  }
  void Stop() {
    CGR_ASSERT_OK(cgr_runtime_destroy(rt_));
    rt_ = nullptr, row_ = -1;
  }
  // Of a request that has its two pages from the first step on.
  void Step(int32_t count) {
    const int32_t tokens[kTokens] = {}, pages[] = { 3, 5 };
    cgr_batch batch = CGR_BATCH_INIT;
    step_ = CGR_STEP_INIT;
    if (row_ < 0) {
      CGR_ASSERT_OK(cgr_request_open(rt_, 7, &row_));
      CGR_ASSERT_OK(cgr_request_set_pages(rt_, row_, 0, 0, pages, 2));
    }
    batch.num_requests = 1, batch.rows = &row_, batch.query_lens = &count, batch.tokens = tokens;
    CGR_ASSERT_OK(cgr_step_prepare(rt_, &batch, &step_));
    CGR_ASSERT_OK(cgr_step_launch(rt_, &step_, stream_));
    CGR_ASSERT_OK(cgr_step_wait(rt_, step_.mark, -1, nullptr));
  }

  Violations violations_;
  std::vector<std::string> reports_; // that the test has looked at
  cgr_device *dev_ = nullptr;
  cudaStream_t stream_ = nullptr;
  cgr_runtime *rt_ = nullptr;
  cgr_group group_ = CGR_GROUP_INIT;
  cgr_layer layer_ = CGR_LAYER_INIT;
  cgr_backend backend_ = CGR_BACKEND_INIT;
  cgr_attention call_ = CGR_ATTENTION_INIT;
  int32_t row_ = -1;
  cgr_step step_ = CGR_STEP_INIT; // the last one
  std::vector<void *> memory_;
};

} // namespace cgr_test

// A runtime on a device that does nothing: every step that is launched is complete at once. What prepare and launch do on the
// host is then the library's alone, without kernels and driver.
#pragma once

#include <string>
#include <vector>

extern "C" {
#include "runtime/runtime.h"
}

#include "tests/support/expect.h"
#include "tests/support/one_layer.h"

namespace cgr_test {

class IdleRuntime : public ::testing::Test {
protected:
  enum { kDim = 16, kPageSize = 16 };

  // `requests` rows with `pages` pages each, in a FULL graph for that many; `standing`: they are members of the standing batch.
  void Open(int32_t max_requests, int32_t max_pages, int32_t requests, int32_t pages, bool standing) {
    max_pages_ = max_pages;
    CGR_ASSERT_OK(cgr_device_open("host", nullptr, &dev_));
    CGR_ASSERT_OK(cgr_stream_create(dev_, &stream_));
    for (void *&m : memory_)
      CGR_ASSERT_OK(cgr_memory_alloc(dev_, size_t(2 + max_requests * max_pages) * kPageSize * kDim * 4, &m));
    ASSERT_NO_FATAL_FAILURE(MakeRuntime(max_requests, requests));
    for (int32_t i = 0; i < requests; i++) {
      rows_.push_back(-1);
      CGR_ASSERT_OK(cgr_request_open(rt_, uint64_t(i), &rows_.back()));
      for (int32_t p = 0; p < pages; p++)
        Append(i, p);
      const int32_t token = 7;
      if (standing)
        CGR_ASSERT_OK(cgr_standing_add(rt_, nullptr, rows_.back(), 1, &token, 0));
    }
    CGR_ASSERT_OK(cgr_runtime_flush(rt_, nullptr, nullptr, stream_));
    CGR_ASSERT_OK(cgr_stream_synchronize(dev_, stream_));
    tokens_.assign(rows_.size(), 7);
    batch_ = standing ? BatchOf(CGR_BATCH_STANDING) : BatchOf(requests, rows_.data(), tokens_.data());
    completed_ = &rt_->lane.ring.completion->completed_seq;
    ops_ = dev_->ops, idle_ = *ops_;
    idle_.capture_status = NotCapturing, idle_.exec_launch = LaunchNothing;
    dev_->ops = &idle_;
  }
  void TearDown() override {
    if (!dev_)
      return;
    if (ops_)
      dev_->ops = ops_;
    CGR_EXPECT_OK(cgr_runtime_destroy(rt_));
    CGR_EXPECT_OK(cgr_stream_destroy(dev_, stream_));
    for (void *m : memory_)
      CGR_EXPECT_OK(cgr_memory_free(dev_, m));
    CGR_EXPECT_OK(cgr_device_close(dev_));
    dev_ = nullptr, ops_ = nullptr, rt_ = nullptr;
    rows_.clear();
  }
  void Append(int32_t request, int32_t at) {
    const int32_t page = 2 + request * max_pages_ + at;
    CGR_ASSERT_OK(cgr_request_set_pages(rt_, rows_[size_t(request)], 0, at, &page, 1));
  }

  cgr_device *dev_ = nullptr;
  cudaStream_t stream_ = nullptr;
  cgr_runtime *rt_ = nullptr;
  cgr_batch batch_ = CGR_BATCH_INIT; // its tokens are for the first step
  std::vector<int32_t> rows_, tokens_;

private:
  static int NotCapturing(cgr_device *, cudaStream_t, int *capturing) { return *capturing = 0; }
  static int LaunchNothing(cgr_device *, cgr__exec *, cudaStream_t) {
    __atomic_store_n(completed_, *completed_ + 1, __ATOMIC_RELEASE);
    return 0;
  }
  void MakeRuntime(int32_t max_requests, int32_t requests) {
    cgr_group group = CGR_GROUP_INIT;
    group.num_pages = 2 + max_requests * max_pages_;
    cgr_layer layer = CGR_LAYER_INIT;
    layer.num_q_heads = layer.num_kv_heads = 1, layer.head_dim = kDim;
    CGR_ASSERT_OK(cgr_kv_view_make(CGR_LAYOUT_NHD, memory_[0], CGR_DTYPE_FP32, kPageSize, 1, kDim, &layer.k));
    CGR_ASSERT_OK(cgr_kv_view_make(CGR_LAYOUT_NHD, memory_[1], CGR_DTYPE_FP32, kPageSize, 1, kDim, &layer.v));
    cgr_config config = CGR_CONFIG_INIT;
    config.device_handle = dev_, config.groups = &group, config.num_groups = 1, config.layers = &layer, config.num_layers = 1;
    config.max_requests = config.max_tokens = max_requests, config.max_seq_len = kPageSize * max_pages_;
    config.graph_mode = CGR_MODE_FULL_DECODE_ONLY;
    config.decode_buckets = &requests, config.num_decode_buckets = 1;
    CGR_ASSERT_OK(cgr_runtime_create(&config, &rt_));
    cgr_capture capture = CaptureOf(RecordOneLayer<int32_t{ kDim }>, memory_[2]);
    CGR_ASSERT_OK(cgr_runtime_capture(rt_, &capture));
  }

  static inline uint64_t *completed_; // number of the last step
  const cgr__device_ops *ops_ = nullptr;
  cgr__device_ops idle_ = {};
  void *memory_[3] = {}; // K, V, activations
  int32_t max_pages_ = 0;
};

} // namespace cgr_test

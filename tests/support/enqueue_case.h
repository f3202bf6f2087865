// For tests of the public calls that enqueue a planner: an open device with a stream, memory on it, and a graph of one such call.
#pragma once

#include <memory>

#include "tests/support/device_memory.h"
#include "tests/support/expect.h"

namespace cgr_test {

class EnqueueTest : public OverDevices {
protected:
  void SetUpOnDevice() override {
    CGR_ASSERT_OK(cgr_device_open(GetParam().name.c_str(), &GetParam().config, &device_));
    bench_ = std::make_unique<Bench>(device_, Bench::kLeavesOpen);
    CGR_ASSERT_OK(cgr_stream_create(device_, &stream_));
  }
  void TearDown() override {
    if (device_ == nullptr)
      return;
    if (stream_ != nullptr)
      CGR_EXPECT_OK(cgr_stream_destroy(device_, stream_));
    bench_.reset();
    CGR_EXPECT_OK(cgr_device_close(device_));
  }
  void Sync() { CGR_ASSERT_OK(cgr_stream_synchronize(device_, stream_)); }

  // Enqueues once, which loads the kernel; captures a second call, which is one node; then `replay` gets a function that launches
  // the graph and waits for it.
  template <class Enqueue, class Replay> void InAGraph(Enqueue enqueue, Replay replay) {
    cgr__graph *graph = nullptr;
    cgr__exec *exec = nullptr;
    cgr__graph_info info;
    CGR_ASSERT_OK(enqueue());
    Sync();
    ASSERT_EQ(device_->ops->capture_begin(device_, stream_), CGR__DEVICE_OK);
    CGR_EXPECT_OK(enqueue());
    ASSERT_EQ(device_->ops->capture_end(device_, stream_, &graph), CGR__DEVICE_OK);
    ASSERT_EQ(device_->ops->instantiate(device_, graph, &exec, &info), CGR__DEVICE_OK);
    EXPECT_EQ(info.num_nodes, 1);
    replay([&] {
      ASSERT_EQ(device_->ops->exec_launch(device_, exec, stream_), CGR__DEVICE_OK);
      Sync();
    });
    EXPECT_EQ(device_->ops->exec_destroy(device_, exec), CGR__DEVICE_OK);
    EXPECT_EQ(device_->ops->graph_destroy(device_, graph), CGR__DEVICE_OK);
  }

  cgr_device *device_ = nullptr;
  cudaStream_t stream_ = nullptr;
  std::unique_ptr<Bench> bench_; // its memory; on a stream of its own
};

} // namespace cgr_test

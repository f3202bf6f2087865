// A device below the public header for each test, and what the test makes on it, which goes when the test ends.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <utility>
#include <vector>

#include "devices/device.h"
#include "tests/support/devices.h"

namespace cgr_test {

class DeviceCase : public ::testing::TestWithParam<DeviceParam> {
protected:
  void SetUp() override {
    CGR_OPEN_OR_SKIP(inner_, GetParam());
    dev_ = Over(inner_);
    ASSERT_NE(dev_, nullptr);
    ops_ = dev_->ops;
    SetUpOnDevice();
  }
  // What a suite makes before each case whose device is there.
  virtual void SetUpOnDevice() {}
  void TearDown() override {
    if (dev_ == nullptr)
      return;
    for (cgr__exec *exec : execs_)
      EXPECT_EQ(ops_->exec_destroy(dev_, exec), CGR__DEVICE_OK);
    for (cgr__event *event : events_)
      EXPECT_EQ(ops_->event_destroy(dev_, event), CGR__DEVICE_OK);
    for (cudaStream_t stream : streams_)
      EXPECT_EQ(ops_->stream_destroy(dev_, stream), CGR__DEVICE_OK);
    for (const auto &[memory, kind] : memory_)
      EXPECT_EQ(ops_->mem_free(dev_, memory, kind), CGR__DEVICE_OK);
    EXPECT_EQ(ops_->close(dev_), CGR__DEVICE_OK);
  }
  // What the test works with: the open device, or a shim over it.
  virtual cgr_device *Over(cgr_device *inner) { return inner; }

  cudaStream_t NewStream() {
    cudaStream_t stream = nullptr;
    EXPECT_EQ(ops_->stream_create(dev_, CGR__STREAM_NORMAL, &stream), CGR__DEVICE_OK);
    streams_.push_back(stream);
    return stream;
  }
  cgr__event *NewEvent() {
    cgr__event *event = nullptr;
    EXPECT_EQ(ops_->event_create(dev_, &event), CGR__DEVICE_OK);
    events_.push_back(event);
    return event;
  }
  void *NewMemory(size_t bytes, cgr__memory_kind kind = CGR__MEMORY_DEVICE) {
    void *memory = nullptr;
    EXPECT_EQ(ops_->mem_alloc(dev_, bytes, kind, &memory), CGR__DEVICE_OK);
    memory_.emplace_back(memory, kind);
    return memory;
  }
  // Zeros.
  template <class T> T *NewPinned(size_t count) {
    void *memory = NewMemory(count * sizeof(T), CGR__MEMORY_PINNED);
    return static_cast<T *>(std::memset(memory, 0, count * sizeof(T)));
  }
  // Ends the stream's capture; its graph may be launched.
  cgr__exec *Captured(cudaStream_t stream, cgr__graph_info *info = nullptr) {
    cgr__graph *graph = nullptr;
    cgr__exec *exec = nullptr;
    EXPECT_EQ(ops_->capture_end(dev_, stream, &graph), CGR__DEVICE_OK);
    EXPECT_EQ(ops_->instantiate(dev_, graph, &exec, info), CGR__DEVICE_OK);
    EXPECT_EQ(ops_->graph_destroy(dev_, graph), CGR__DEVICE_OK); // the exec lives on
    execs_.push_back(exec);
    return exec;
  }

  cgr_device *inner_ = nullptr, *dev_ = nullptr;
  const cgr__device_ops *ops_ = nullptr;

private:
  std::vector<cgr__exec *> execs_;
  std::vector<cgr__event *> events_;
  std::vector<cudaStream_t> streams_;
  std::vector<std::pair<void *, cgr__memory_kind>> memory_;
};

// The same through the public functions alone.
class PublicCase : public ::testing::TestWithParam<DeviceParam> {
protected:
  void SetUp() override {
    CGR_SKIP_WITHOUT_DEVICE(GetParam());
    cgr_device_config config = GetParam().config;
    Configure(&config);
    ASSERT_EQ(cgr_device_open(GetParam().name.c_str(), &config, &dev_), CGR_OK) << cgr_last_message();
    SetUpOnDevice();
  }
  void TearDown() override {
    for (cgr_event *event : events_)
      EXPECT_EQ(cgr_event_destroy(dev_, event), CGR_OK);
    for (cudaStream_t stream : streams_)
      EXPECT_EQ(cgr_stream_destroy(dev_, stream), CGR_OK);
    for (void *memory : memory_)
      EXPECT_EQ(cgr_memory_free(dev_, memory), CGR_OK);
    for (void *memory : pinned_)
      EXPECT_EQ(cgr_memory_free_pinned(dev_, memory), CGR_OK);
    EXPECT_EQ(cgr_device_close(dev_), CGR_OK) << cgr_last_message(); // NULL, if there is none
  }
  virtual void Configure(cgr_device_config *) {}
  virtual void SetUpOnDevice() {}

  cudaStream_t NewStream() {
    streams_.push_back(nullptr);
    EXPECT_EQ(cgr_stream_create(dev_, &streams_.back()), CGR_OK);
    return streams_.back();
  }
  cgr_event *NewEvent() {
    events_.push_back(nullptr);
    EXPECT_EQ(cgr_event_create(dev_, &events_.back()), CGR_OK);
    return events_.back();
  }
  void *NewMemory(size_t bytes) {
    memory_.push_back(nullptr);
    EXPECT_EQ(cgr_memory_alloc(dev_, bytes, &memory_.back()), CGR_OK);
    return memory_.back();
  }
  void *NewPinned(size_t bytes) {
    pinned_.push_back(nullptr);
    EXPECT_EQ(cgr_memory_alloc_pinned(dev_, bytes, &pinned_.back()), CGR_OK);
    return pinned_.back();
  }

  cgr_device *dev_ = nullptr;

private:
  std::vector<cudaStream_t> streams_;
  std::vector<cgr_event *> events_;
  std::vector<void *> memory_, pinned_;
};

} // namespace cgr_test

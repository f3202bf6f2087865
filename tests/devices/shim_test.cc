// The shims: trace counts, fault fails the n-th call, contract refuses what breaks the rules. Over every device.
#include <gtest/gtest.h>

#include <cstring>
#include <thread>
#include <vector>

#include "devices/device.h"
#include "devices/shims/contract.h"
#include "devices/shims/fault.h"
#include "devices/shims/trace.h"
#include "tests/support/devices.h"

namespace {

class ShimTest : public ::testing::TestWithParam<cgr_test::DeviceParam> {
protected:
  void SetUp() override { CGR_OPEN_OR_SKIP(inner_, GetParam()); }

  cgr_device *Traced() {
    cgr_device *dev = nullptr;
    EXPECT_EQ(cgr__trace_open(inner_, &dev), CGR__DEVICE_OK);
    return dev;
  }

  cgr_device *Checked() {
    cgr_device *dev = nullptr;
    EXPECT_EQ(cgr__contract_open(inner_, &report_, &dev), CGR__DEVICE_OK);
    return dev;
  }

  cgr_device *inner_ = nullptr;
  struct cgr__contract_report report_;
};

// Every kind of call once or more, cleaning up after itself whatever fails. Returns the first error.
int Scenario(cgr_device *dev, int *result) {
  const cgr__device_ops *ops = dev->ops;
  cudaStream_t a = nullptr, b = nullptr;
  cgr__event *fork = nullptr, *join = nullptr;
  cgr__graph *graph = nullptr;
  cgr__exec *exec = nullptr;
  void *memory = nullptr;
  cgr_device_info info = CGR_DEVICE_INFO_INIT;
  int capturing = 0;
  int error = ops->info(dev, &info);
  auto step = [&error](int answer) {
    if (error == CGR__DEVICE_OK)
      error = answer;
  };
#define STEP(call)             \
  if (error == CGR__DEVICE_OK) \
  step(call)
  STEP(ops->mem_alloc(dev, 4 * sizeof(int), CGR__MEMORY_PINNED, &memory));
  STEP(ops->stream_create(dev, &a));
  STEP(ops->stream_create(dev, &b));
  STEP(ops->event_create(dev, &fork));
  STEP(ops->event_create(dev, &join));
  int *words = static_cast<int *>(memory);
  STEP(ops->fill(dev, words, 0, 4 * sizeof(int), a));
  STEP(ops->fill(dev, words, 3, sizeof(int), a));
  STEP(ops->stream_sync(dev, a));
  STEP(ops->capture_begin(dev, a));
  bool begun = error == CGR__DEVICE_OK;
  STEP(ops->copy(dev, words + 1, words, sizeof(int), a));
  STEP(ops->event_record(dev, fork, a));
  STEP(ops->event_wait(dev, fork, b));
  STEP(ops->copy(dev, words + 2, words + 1, sizeof(int), b));
  STEP(ops->event_record(dev, join, b));
  STEP(ops->event_wait(dev, join, a));
  STEP(ops->copy(dev, words + 3, words + 2, sizeof(int), a));
  STEP(ops->capture_status(dev, a, &capturing));
  if (begun)
    step(ops->capture_end(dev, a, &graph));
  STEP(ops->instantiate(dev, graph, &exec, nullptr));
  STEP(ops->exec_launch(dev, exec, a));
  STEP(ops->event_record(dev, fork, a));
  STEP(ops->event_sync(dev, fork));
  if (error == CGR__DEVICE_OK && result != nullptr)
    *result = words[3];
  // A failed wait means nothing about the work itself: destroying the streams below still finishes it.
  if (a != nullptr)
    step(ops->stream_destroy(dev, a));
  if (b != nullptr)
    step(ops->stream_destroy(dev, b));
  if (exec != nullptr)
    step(ops->exec_destroy(dev, exec));
  if (graph != nullptr)
    step(ops->graph_destroy(dev, graph));
  if (fork != nullptr)
    step(ops->event_destroy(dev, fork));
  if (join != nullptr)
    step(ops->event_destroy(dev, join));
  if (memory != nullptr)
    step(ops->mem_free(dev, memory, CGR__MEMORY_PINNED));
  return error;
#undef STEP
}

TEST_P(ShimTest, TraceCountsAndKeepsTheOrder) {
  cgr_device *dev = Traced();
  cudaStream_t stream;
  void *memory;
  ASSERT_EQ(dev->ops->stream_create(dev, &stream), CGR__DEVICE_OK);
  ASSERT_EQ(dev->ops->mem_alloc(dev, 64, CGR__MEMORY_DEVICE, &memory), CGR__DEVICE_OK);
  EXPECT_EQ(cgr__trace_allocs(dev), 2u);
  cgr__trace_reset(dev);
  ASSERT_EQ(dev->ops->fill(dev, memory, 1, 64, stream), CGR__DEVICE_OK);
  ASSERT_EQ(dev->ops->fill(dev, memory, 2, 32, stream), CGR__DEVICE_OK);
  ASSERT_EQ(dev->ops->stream_sync(dev, stream), CGR__DEVICE_OK);
  cgr__kernel none = { "none", 0, nullptr, nullptr, nullptr };
  EXPECT_EQ(dev->ops->launch(dev, &none, nullptr, stream), CGR__DEVICE_UNSUPPORTED);
  EXPECT_EQ(cgr__trace_count(dev, CGR__OP_FILL), 2u);
  EXPECT_EQ(cgr__trace_count(dev, CGR__OP_COPY), 0u);
  EXPECT_EQ(cgr__trace_syncs(dev), 1u);
  EXPECT_EQ(cgr__trace_allocs(dev), 0u);
  EXPECT_EQ(cgr__trace_total(dev), 4u);
  EXPECT_EQ(cgr__trace_failed(dev), 1u);
  struct cgr__trace_entry entry;
  ASSERT_TRUE(cgr__trace_get(dev, 1, &entry));
  EXPECT_EQ(entry.call.op, CGR__OP_FILL);
  EXPECT_EQ(entry.call.stream, stream);
  EXPECT_EQ(entry.call.bytes, 32u);
  ASSERT_TRUE(cgr__trace_get(dev, 3, &entry));
  EXPECT_EQ(entry.error, CGR__DEVICE_UNSUPPORTED);
  EXPECT_FALSE(cgr__trace_get(dev, 4, &entry));
  EXPECT_STREQ(cgr__shim_op_name(CGR__OP_EVENT_WAIT), "event_wait");
  ASSERT_EQ(dev->ops->mem_free(dev, memory, CGR__MEMORY_DEVICE), CGR__DEVICE_OK);
  ASSERT_EQ(dev->ops->stream_destroy(dev, stream), CGR__DEVICE_OK);
  ASSERT_EQ(dev->ops->close(dev), CGR__DEVICE_OK);
}

TEST_P(ShimTest, TheTraceRingForgetsTheOldest) {
  cgr_device *dev = Traced();
  cgr_device_info info = CGR_DEVICE_INFO_INIT;
  for (unsigned i = 0; i < CGR__TRACE_RING + 5; i++)
    ASSERT_EQ(dev->ops->info(dev, &info), CGR__DEVICE_OK);
  struct cgr__trace_entry entry;
  EXPECT_FALSE(cgr__trace_get(dev, 4, &entry));
  EXPECT_TRUE(cgr__trace_get(dev, 5, &entry));
  EXPECT_TRUE(cgr__trace_get(dev, CGR__TRACE_RING + 4, &entry));
  ASSERT_EQ(dev->ops->close(dev), CGR__DEVICE_OK);
}

// A fault at every call, each way: the error arrives, nothing leaks or breaks a rule below, and the next run is right.
TEST_P(ShimTest, AFaultAtEveryCallLeavesNothingBehind) {
  cgr_device *checked = Checked();
  cgr_device *dev = nullptr;
  ASSERT_EQ(cgr__fault_open(checked, &dev), CGR__DEVICE_OK);
  uint64_t points = 0;
  for (int effect = 0; effect < 2; effect++) {
    for (int mode = CGR__FAULT_ONCE; mode <= CGR__FAULT_FROM_NTH_ON; mode++) {
      for (uint64_t nth = 1;; nth++) {
        cgr__fault_plan plan = { CGR__FAULT_ANY_OP, nth, mode, effect, CGR__DEVICE_FAILED, 77 };
        cgr__fault_set(dev, &plan);
        int result = 0;
        int error = Scenario(dev, &result);
        uint64_t fired = cgr__fault_fired(dev);
        cgr__fault_set(dev, nullptr);
        if (fired == 0)
          break;
        points++;
        ASSERT_EQ(error, CGR__DEVICE_FAILED) << nth;
        ASSERT_EQ(Scenario(dev, &result), CGR__DEVICE_OK) << nth;
        ASSERT_EQ(result, 0x03030303);
      }
    }
  }
  EXPECT_GE(points, 100u);
  ASSERT_EQ(dev->ops->close(dev), CGR__DEVICE_OK);
  EXPECT_EQ(report_.violations, 0u) << report_.first;
  EXPECT_EQ(report_.leaks, 0u);
}

TEST_P(ShimTest, FaultsCountTheirOwnOperation) {
  cgr_device *dev = nullptr;
  ASSERT_EQ(cgr__fault_open(inner_, &dev), CGR__DEVICE_OK);
  cudaStream_t stream;
  void *memory;
  ASSERT_EQ(dev->ops->stream_create(dev, &stream), CGR__DEVICE_OK);
  ASSERT_EQ(dev->ops->mem_alloc(dev, 4, CGR__MEMORY_PINNED, &memory), CGR__DEVICE_OK);
  cgr__fault_plan plan = { CGR__OP_FILL, 2, CGR__FAULT_ONCE, 0, CGR__DEVICE_NO_MEMORY, 2 };
  cgr__fault_set(dev, &plan);
  auto *bytes = static_cast<unsigned char *>(memory);
  EXPECT_EQ(dev->ops->fill(dev, bytes, 1, 4, stream), CGR__DEVICE_OK);
  EXPECT_EQ(dev->ops->stream_sync(dev, stream), CGR__DEVICE_OK);
  EXPECT_EQ(dev->ops->fill(dev, bytes, 2, 4, stream), CGR__DEVICE_NO_MEMORY);
  EXPECT_EQ(dev->last_raw, 2);
  EXPECT_EQ(dev->ops->stream_sync(dev, stream), CGR__DEVICE_OK);
  EXPECT_EQ(bytes[0], 1);
  plan.take_effect = 1;
  plan.mode = CGR__FAULT_FROM_NTH_ON;
  plan.nth = 1;
  cgr__fault_set(dev, &plan);
  EXPECT_EQ(dev->ops->fill(dev, bytes, 3, 4, stream), CGR__DEVICE_NO_MEMORY);
  EXPECT_EQ(dev->ops->fill(dev, bytes, 4, 4, stream), CGR__DEVICE_NO_MEMORY);
  EXPECT_EQ(cgr__fault_fired(dev), 2u);
  EXPECT_EQ(dev->ops->stream_sync(dev, stream), CGR__DEVICE_OK);
  EXPECT_EQ(bytes[0], 4);
  EXPECT_EQ(dev->ops->mem_free(dev, memory, CGR__MEMORY_PINNED), CGR__DEVICE_OK);
  EXPECT_EQ(dev->ops->stream_destroy(dev, stream), CGR__DEVICE_OK);
  ASSERT_EQ(dev->ops->close(dev), CGR__DEVICE_OK);
}

TEST_P(ShimTest, ADeadDeviceStaysDeadButLetsGo) {
  cgr_device *checked = Checked();
  cgr_device *dev = nullptr;
  ASSERT_EQ(cgr__fault_open(checked, &dev), CGR__DEVICE_OK);
  cudaStream_t stream;
  void *memory;
  ASSERT_EQ(dev->ops->stream_create(dev, &stream), CGR__DEVICE_OK);
  ASSERT_EQ(dev->ops->mem_alloc(dev, 4, CGR__MEMORY_PINNED, &memory), CGR__DEVICE_OK);
  cgr__fault_plan plan = { CGR__OP_STREAM_SYNC, 1, CGR__FAULT_ONCE, 0, CGR__DEVICE_DEAD, 700 };
  cgr__fault_set(dev, &plan);
  EXPECT_EQ(dev->ops->stream_sync(dev, stream), CGR__DEVICE_DEAD);
  EXPECT_EQ(dev->ops->fill(dev, memory, 0, 4, stream), CGR__DEVICE_DEAD);
  EXPECT_EQ(dev->last_raw, 700);
  EXPECT_EQ(dev->ops->mem_free(dev, memory, CGR__MEMORY_PINNED), CGR__DEVICE_OK);
  EXPECT_EQ(dev->ops->stream_destroy(dev, stream), CGR__DEVICE_OK);
  ASSERT_EQ(dev->ops->close(dev), CGR__DEVICE_OK);
  EXPECT_EQ(report_.violations, 0u) << report_.first;
  EXPECT_EQ(report_.leaks, 0u);
}

TEST_P(ShimTest, ContractAcceptsWhatIsRight) {
  cgr_device *dev = Checked();
  int result = 0;
  EXPECT_EQ(Scenario(dev, &result), CGR__DEVICE_OK);
  EXPECT_EQ(result, 0x03030303);
  ASSERT_EQ(dev->ops->close(dev), CGR__DEVICE_OK);
  EXPECT_EQ(report_.violations, 0u) << report_.first;
  EXPECT_EQ(report_.leaks, 0u);
}

TEST_P(ShimTest, ContractRefusesTheDestroyedAndCountsTheLost) {
  cgr_device *dev = Checked();
  cudaStream_t stream, other;
  cgr__event *event;
  void *memory;
  ASSERT_EQ(dev->ops->stream_create(dev, &stream), CGR__DEVICE_OK);
  ASSERT_EQ(dev->ops->stream_create(dev, &other), CGR__DEVICE_OK);
  ASSERT_EQ(dev->ops->event_create(dev, &event), CGR__DEVICE_OK);
  ASSERT_EQ(dev->ops->mem_alloc(dev, 64, CGR__MEMORY_DEVICE, &memory), CGR__DEVICE_OK);
  ASSERT_EQ(dev->ops->event_destroy(dev, event), CGR__DEVICE_OK);
  EXPECT_EQ(dev->ops->event_record(dev, event, stream), CGR__DEVICE_INVALID);
  EXPECT_STREQ(report_.first, "event_record: the event is destroyed");
  EXPECT_EQ(dev->ops->mem_free(dev, memory, CGR__MEMORY_PINNED), CGR__DEVICE_INVALID);
  ASSERT_EQ(dev->ops->mem_free(dev, memory, CGR__MEMORY_DEVICE), CGR__DEVICE_OK);
  EXPECT_EQ(dev->ops->mem_free(dev, memory, CGR__MEMORY_DEVICE), CGR__DEVICE_INVALID);
  ASSERT_EQ(dev->ops->stream_destroy(dev, other), CGR__DEVICE_OK);
  EXPECT_EQ(dev->ops->stream_sync(dev, other), CGR__DEVICE_INVALID);
  EXPECT_EQ(report_.violations, 4u);
  ASSERT_EQ(dev->ops->close(dev), CGR__DEVICE_OK);
  EXPECT_EQ(report_.leaks, 1u); // `stream`
}

TEST_P(ShimTest, ContractChecksCaptureWithoutSpoilingIt) {
  cgr_device *dev = Checked();
  cudaStream_t stream;
  cgr__event *event;
  cgr__graph *graph;
  void *memory = nullptr;
  ASSERT_EQ(dev->ops->stream_create(dev, &stream), CGR__DEVICE_OK);
  ASSERT_EQ(dev->ops->event_create(dev, &event), CGR__DEVICE_OK);
  EXPECT_EQ(dev->ops->capture_end(dev, stream, &graph), CGR__DEVICE_CAPTURE_INVALID);
  ASSERT_EQ(dev->ops->capture_begin(dev, stream), CGR__DEVICE_OK);
  ASSERT_EQ(dev->ops->event_record(dev, event, stream), CGR__DEVICE_OK);
  EXPECT_EQ(dev->ops->capture_begin(dev, stream), CGR__DEVICE_CAPTURE_ILLEGAL);
  EXPECT_EQ(dev->ops->stream_sync(dev, stream), CGR__DEVICE_CAPTURE_ILLEGAL);
  EXPECT_EQ(dev->ops->stream_query(dev, stream), CGR__DEVICE_CAPTURE_ILLEGAL);
  EXPECT_EQ(dev->ops->stream_destroy(dev, stream), CGR__DEVICE_CAPTURE_ILLEGAL);
  EXPECT_EQ(dev->ops->event_sync(dev, event), CGR__DEVICE_CAPTURE_ILLEGAL);
  EXPECT_EQ(dev->last_raw, 907);
  EXPECT_EQ(dev->ops->mem_alloc(dev, 64, CGR__MEMORY_DEVICE, &memory), CGR__DEVICE_CAPTURE_ILLEGAL);
  std::thread([&] {
    cgr__graph *other;
    EXPECT_EQ(dev->ops->capture_end(dev, stream, &other), CGR__DEVICE_CAPTURE_INVALID);
  }).join();
  EXPECT_EQ(dev->ops->capture_end(dev, stream, &graph), CGR__DEVICE_OK);
  EXPECT_EQ(report_.violations, 8u);
  EXPECT_EQ(dev->ops->graph_destroy(dev, graph), CGR__DEVICE_OK);
  EXPECT_EQ(dev->ops->graph_destroy(dev, graph), CGR__DEVICE_INVALID);
  EXPECT_EQ(dev->ops->event_destroy(dev, event), CGR__DEVICE_OK);
  EXPECT_EQ(dev->ops->stream_destroy(dev, stream), CGR__DEVICE_OK);
  ASSERT_EQ(dev->ops->close(dev), CGR__DEVICE_OK);
  EXPECT_EQ(report_.leaks, 0u);
}

TEST_P(ShimTest, ContractWantsAnExecWaitedForBeforeItGoes) {
  cgr_device *dev = Checked();
  const cgr__device_ops *ops = dev->ops;
  cudaStream_t a, b;
  cgr__event *event;
  cgr__graph *graph;
  cgr__exec *exec;
  ASSERT_EQ(ops->stream_create(dev, &a), CGR__DEVICE_OK);
  ASSERT_EQ(ops->stream_create(dev, &b), CGR__DEVICE_OK);
  ASSERT_EQ(ops->event_create(dev, &event), CGR__DEVICE_OK);
  ASSERT_EQ(ops->capture_begin(dev, a), CGR__DEVICE_OK);
  ASSERT_EQ(ops->capture_end(dev, a, &graph), CGR__DEVICE_OK);
  ASSERT_EQ(ops->instantiate(dev, graph, &exec, nullptr), CGR__DEVICE_OK);
  ASSERT_EQ(ops->event_record(dev, event, a), CGR__DEVICE_OK);
  ASSERT_EQ(ops->exec_launch(dev, exec, a), CGR__DEVICE_OK);
  EXPECT_EQ(ops->exec_destroy(dev, exec), CGR__DEVICE_INVALID);
  ASSERT_EQ(ops->event_sync(dev, event), CGR__DEVICE_OK); // of before the launch
  EXPECT_EQ(ops->exec_destroy(dev, exec), CGR__DEVICE_INVALID);
  ASSERT_EQ(ops->event_record(dev, event, a), CGR__DEVICE_OK);
  ASSERT_EQ(ops->event_wait(dev, event, b), CGR__DEVICE_OK);
  ASSERT_EQ(ops->stream_sync(dev, b), CGR__DEVICE_OK); // through an event
  EXPECT_EQ(ops->exec_destroy(dev, exec), CGR__DEVICE_OK);
  EXPECT_EQ(ops->exec_launch(dev, exec, a), CGR__DEVICE_INVALID);
  EXPECT_EQ(ops->graph_destroy(dev, graph), CGR__DEVICE_OK);
  EXPECT_EQ(ops->event_destroy(dev, event), CGR__DEVICE_OK);
  EXPECT_EQ(ops->stream_destroy(dev, a), CGR__DEVICE_OK);
  EXPECT_EQ(ops->stream_destroy(dev, b), CGR__DEVICE_OK);
  ASSERT_EQ(dev->ops->close(dev), CGR__DEVICE_OK);
  EXPECT_EQ(report_.violations, 3u);
  EXPECT_EQ(report_.leaks, 0u);
}

CGR_INSTANTIATE_OVER_DEVICES(ShimTest);

} // namespace

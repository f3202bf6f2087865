// The fault shim fails the n-th call, follows what the table says about each error, and leaves nothing queued if a device dies.
#include <atomic>

#include "tests/devices/fault_case.h"
#include "tests/devices/scenario.h"

namespace {

class FaultTest : public cgr_test::FaultCase {
protected:
  void Plan(int op, uint64_t nth, int error, int raw, int take_effect = 0, int mode = CGR__FAULT_ONCE) {
    cgr__fault_plan plan = { op, nth, mode, take_effect, error, raw };
    cgr__fault_set(dev_, &plan);
  }

  // A fault at every call in turn: the error is returned, nothing breaks a rule below the shim, and the next run is right.
  uint64_t EveryCall(int error, int raw, int take_effect, int mode) {
    for (uint64_t nth = 1;; nth++) {
      Plan(CGR__FAULT_ANY_OP, nth, error, raw, take_effect, mode);
      int result = 0;
      int answer = cgr_test::Scenario(dev_, &result);
      uint64_t fired = cgr__fault_fired(dev_);
      cgr__fault_set(dev_, nullptr);
      if (fired == 0)
        return nth - 1;
      EXPECT_EQ(answer, error) << nth;
      EXPECT_EQ(cgr_test::Scenario(dev_, &result), CGR__DEVICE_OK) << nth;
      EXPECT_EQ(result, 0x03030303) << nth;
      if (HasFailure())
        return 0;
    }
  }
};

TEST_P(FaultTest, AtEveryCallLeavesNothingBehind) {
  for (int effect = 0; effect < 2; effect++) {
    EXPECT_GE(EveryCall(CGR__DEVICE_FAILED, 77, effect, CGR__FAULT_ONCE), 25u);
    EXPECT_GE(EveryCall(CGR__DEVICE_FAILED, 77, effect, CGR__FAULT_FROM_NTH_ON), 25u);
    EXPECT_GE(EveryCall(CGR__DEVICE_NO_MEMORY, 2, effect, CGR__FAULT_ONCE), 25u);
    EXPECT_GE(EveryCall(CGR__DEVICE_INVALID, 1, effect, CGR__FAULT_ONCE), 20u);
    EXPECT_GE(EveryCall(CGR__DEVICE_DEAD, 700, effect, CGR__FAULT_ONCE), 25u);
  }
}

TEST_P(FaultTest, CountsItsOwnOperation) {
  cudaStream_t stream = NewStream();
  auto *bytes = NewPinned<unsigned char>(4);
  Plan(CGR__OP_FILL, 2, CGR__DEVICE_NO_MEMORY, 2);
  EXPECT_EQ(ops_->fill(dev_, bytes, 1, 1, 4, stream), CGR__DEVICE_OK);
  EXPECT_EQ(ops_->stream_sync(dev_, stream), CGR__DEVICE_OK);
  EXPECT_EQ(ops_->fill(dev_, bytes, 2, 1, 4, stream), CGR__DEVICE_NO_MEMORY);
  EXPECT_EQ(dev_->last_raw, 2);
  EXPECT_EQ(ops_->stream_sync(dev_, stream), CGR__DEVICE_OK);
  EXPECT_EQ(bytes[0], 1);
  Plan(CGR__OP_FILL, 1, CGR__DEVICE_NO_MEMORY, 2, 1, CGR__FAULT_FROM_NTH_ON);
  EXPECT_EQ(ops_->fill(dev_, bytes, 3, 1, 4, stream), CGR__DEVICE_NO_MEMORY);
  EXPECT_EQ(ops_->fill(dev_, bytes, 4, 1, 4, stream), CGR__DEVICE_NO_MEMORY);
  EXPECT_EQ(cgr__fault_fired(dev_), 2u);
  EXPECT_EQ(ops_->stream_sync(dev_, stream), CGR__DEVICE_OK);
  EXPECT_EQ(bytes[0], 4);
}

TEST_P(FaultTest, AnErrorThatMeansNothingWasDoneDoesNothing) {
  cudaStream_t stream = NewStream();
  void *memory = nullptr;
  ASSERT_EQ(ops_->mem_alloc(dev_, 4, CGR__MEMORY_PINNED, &memory), CGR__DEVICE_OK);
  Plan(CGR__FAULT_ANY_OP, 1, CGR__DEVICE_INVALID, 1, 1, CGR__FAULT_FROM_NTH_ON);
  EXPECT_EQ(ops_->fill(dev_, memory, 9, 1, 4, stream), CGR__DEVICE_INVALID);
  EXPECT_EQ(ops_->mem_free(dev_, memory, CGR__MEMORY_PINNED), CGR__DEVICE_OK); // calls that destroy do not get it
  EXPECT_EQ(cgr__fault_calls(dev_), 1u);
  cgr__fault_set(dev_, nullptr);
  auto *bytes = NewPinned<char>(4);
  Plan(CGR__OP_FILL, 1, CGR__DEVICE_CAPTURE_ILLEGAL, 900, 1);
  EXPECT_EQ(ops_->fill(dev_, bytes, 9, 1, 4, stream), CGR__DEVICE_CAPTURE_ILLEGAL);
  EXPECT_EQ(ops_->stream_sync(dev_, stream), CGR__DEVICE_OK);
  EXPECT_EQ(bytes[0], 0);
}

TEST_P(FaultTest, ADeadDeviceStaysDeadButLetsGo) {
  cudaStream_t stream;
  void *memory;
  ASSERT_EQ(ops_->stream_create(dev_, CGR__STREAM_NORMAL, &stream), CGR__DEVICE_OK);
  ASSERT_EQ(ops_->mem_alloc(dev_, 4, CGR__MEMORY_PINNED, &memory), CGR__DEVICE_OK);
  Plan(CGR__OP_STREAM_SYNC, 1, CGR__DEVICE_DEAD, 700);
  EXPECT_EQ(ops_->stream_sync(dev_, stream), CGR__DEVICE_DEAD);
  EXPECT_EQ(ops_->fill(dev_, memory, 0, 1, 4, stream), CGR__DEVICE_DEAD);
  EXPECT_EQ(dev_->last_raw, 700);
  EXPECT_EQ(ops_->mem_free(dev_, memory, CGR__MEMORY_PINNED), CGR__DEVICE_OK);
  EXPECT_EQ(ops_->stream_destroy(dev_, stream), CGR__DEVICE_OK);
}

struct CountArgs {
  std::atomic<int> *count; // of work on two streams
};
void Count(const void *raw) { ++*static_cast<const CountArgs *>(raw)->count; }

TEST_P(FaultTest, PendingWorkAfterDeathNeverRuns) {
  cudaStream_t a, b;
  auto *count = new std::atomic<int>(0);
  CountArgs args = { count };
  ASSERT_EQ(ops_->stream_create(dev_, CGR__STREAM_NORMAL, &a), CGR__DEVICE_OK);
  ASSERT_EQ(ops_->stream_create(dev_, CGR__STREAM_NORMAL, &b), CGR__DEVICE_OK);
  for (int i = 0; i < 5; i++) {
    ASSERT_EQ(ops_->host_call(dev_, Count, &args, sizeof args, a), CGR__DEVICE_OK);
    ASSERT_EQ(ops_->host_call(dev_, Count, &args, sizeof args, a), CGR__DEVICE_OK);
  }
  Plan(CGR__OP_STREAM_QUERY, 1, CGR__DEVICE_DEAD, 700);
  EXPECT_EQ(ops_->stream_query(dev_, b), CGR__DEVICE_DEAD);
  EXPECT_EQ(*count, 10); // by now, or not at all
  EXPECT_EQ(ops_->host_call(dev_, Count, &args, sizeof args, a), CGR__DEVICE_DEAD);
  delete count; // the address sanitizer catches anyone who still writes here
  EXPECT_EQ(ops_->stream_destroy(dev_, a), CGR__DEVICE_OK);
  EXPECT_EQ(ops_->stream_destroy(dev_, b), CGR__DEVICE_OK);
}

TEST_P(FaultTest, DeathInACaptureEndsItAndRunsWhatWasBeforeIt) {
  cudaStream_t a, b;
  cgr__event *event;
  cgr__graph *graph = reinterpret_cast<cgr__graph *>(this);
  std::atomic<int> before{ 0 }, captured{ 0 };
  CountArgs args = { &before }, never = { &captured };
  ASSERT_EQ(ops_->stream_create(dev_, CGR__STREAM_NORMAL, &a), CGR__DEVICE_OK);
  ASSERT_EQ(ops_->stream_create(dev_, CGR__STREAM_NORMAL, &b), CGR__DEVICE_OK);
  ASSERT_EQ(ops_->event_create(dev_, &event), CGR__DEVICE_OK);
  ASSERT_EQ(ops_->host_call(dev_, Count, &args, sizeof args, a), CGR__DEVICE_OK);
  ASSERT_EQ(ops_->host_call(dev_, Count, &args, sizeof args, b), CGR__DEVICE_OK);
  ASSERT_EQ(ops_->capture_begin(dev_, a), CGR__DEVICE_OK);
  ASSERT_EQ(ops_->event_record(dev_, event, a), CGR__DEVICE_OK);
  ASSERT_EQ(ops_->event_wait(dev_, event, b), CGR__DEVICE_OK); // b joins
  ASSERT_EQ(ops_->host_call(dev_, Count, &never, sizeof never, b), CGR__DEVICE_OK);
  Plan(CGR__OP_HOST_CALL, 1, CGR__DEVICE_DEAD, 700, GetParam().config.host_schedule % 2);
  EXPECT_EQ(ops_->host_call(dev_, Count, &never, sizeof never, a), CGR__DEVICE_DEAD);
  EXPECT_EQ(before, 2);
  EXPECT_EQ(ops_->capture_end(dev_, a, &graph), CGR__DEVICE_DEAD);
  EXPECT_EQ(graph, nullptr);
  EXPECT_EQ(ops_->stream_destroy(dev_, a), CGR__DEVICE_OK);
  EXPECT_EQ(ops_->stream_destroy(dev_, b), CGR__DEVICE_OK);
  EXPECT_EQ(ops_->event_destroy(dev_, event), CGR__DEVICE_OK);
  EXPECT_EQ(captured, 0);
}

TEST_P(FaultTest, ShimsNestToAnyDepth) {
  for (int depth = 0; depth < 6; depth++) {
    cgr_device *outer = nullptr;
    ASSERT_EQ(cgr__fault_open(dev_, &outer), CGR__DEVICE_OK);
    cgr__fault_plan plan = { CGR__OP_FILL, 1, CGR__FAULT_ONCE, 1, CGR__DEVICE_FAILED, 100 + depth };
    cgr__fault_set(outer, &plan);
    dev_ = outer;
  }
  ops_ = dev_->ops;
  cudaStream_t stream = NewStream();
  auto *bytes = NewPinned<char>(4);
  EXPECT_EQ(ops_->fill(dev_, bytes, 7, 1, 4, stream), CGR__DEVICE_FAILED); // all of them fire in this one call
  EXPECT_EQ(dev_->last_raw, 105);
  EXPECT_EQ(ops_->stream_sync(dev_, stream), CGR__DEVICE_OK);
  EXPECT_EQ(bytes[0], 7);
  EXPECT_EQ(ops_->fill(dev_, bytes, 8, 1, 4, stream), CGR__DEVICE_OK);
  EXPECT_EQ(ops_->stream_sync(dev_, stream), CGR__DEVICE_OK);
}

CGR_INSTANTIATE_OVER_DEVICES(FaultTest);

} // namespace

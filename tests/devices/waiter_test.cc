// Waiters: a thread sleeps until enqueued work has raised a word.
#include <time.h>

#include <atomic>
#include <thread>

#include "tests/devices/fault_case.h"

namespace {

constexpr uint64_t kMillisecond = 1000000;

class WaiterTest : public cgr_test::FaultCase {
protected:
  void SetUpOnDevice() override {
    word_ = NewPinned<uint64_t>(8);
    stream_ = NewStream();
    ASSERT_EQ(ops_->waiter_create(dev_, word_, &waiter_), CGR__DEVICE_OK);
  }
  void TearDown() override {
    if (waiter_ != nullptr) {
      EXPECT_EQ(ops_->waiter_destroy(dev_, waiter_), CGR__DEVICE_OK);
    }
    FaultCase::TearDown();
  }
  // Work that raises the word to `value` after `ms`.
  void Raise(uint64_t value, int ms) {
    struct Args {
      uint64_t *word, value;
      int ms;
    } args = { word_, value, ms };
    auto raise = [](const void *pointer) {
      const Args *a = static_cast<const Args *>(pointer);
      const timespec pause = { 0, a->ms * 1000000L };
      nanosleep(&pause, nullptr);
      __atomic_store_n(a->word, a->value, __ATOMIC_RELEASE);
    };
    ASSERT_EQ(ops_->host_call(dev_, raise, &args, sizeof args, stream_), CGR__DEVICE_OK);
  }
  int Wait(uint64_t value, uint64_t ms) { return ops_->waiter_wait(dev_, waiter_, value, ms * kMillisecond); }

  cudaStream_t stream_ = nullptr;
  uint64_t *word_ = nullptr;
  cgr__waiter *waiter_ = nullptr;
};

TEST_P(WaiterTest, AWordThatIsThereIsNotWaitedFor) {
  *word_ = 7;
  for (uint64_t value : { 0, 1, 7 })
    EXPECT_EQ(Wait(value, 0), CGR__DEVICE_OK);
  EXPECT_EQ(Wait(8, 0), CGR__DEVICE_NOT_READY);
}

// A host without threads does nothing meanwhile, and says so at once.
TEST_P(WaiterTest, WorkEndsTheWait) {
  for (uint64_t value = 1; value < 6; value++) {
    ASSERT_NO_FATAL_FAILURE(Raise(value, 3));
    int error = Wait(value, GetParam().HasThreads() ? 20000 : 1);
    while (error == CGR__DEVICE_NOT_READY && !GetParam().HasThreads()) {
      (void)ops_->stream_query(dev_, stream_);
      error = Wait(value, 1);
    }
    EXPECT_EQ(error, CGR__DEVICE_OK);
    EXPECT_GE(*word_, value);
  }
}

TEST_P(WaiterTest, OtherValuesAfterATimeOut) {
  if (!GetParam().HasThreads())
    GTEST_SKIP() << "work does not run by itself";
  ASSERT_NO_FATAL_FAILURE(Raise(1, 40));
  ASSERT_NO_FATAL_FAILURE(Raise(2, 1));
  ASSERT_NO_FATAL_FAILURE(Raise(3, 1));
  EXPECT_EQ(Wait(2, 3), CGR__DEVICE_NOT_READY);
  EXPECT_EQ(Wait(1, 3), CGR__DEVICE_NOT_READY); // less than what is armed
  EXPECT_EQ(Wait(1, 20000), CGR__DEVICE_OK);
  EXPECT_EQ(Wait(3, 20000), CGR__DEVICE_OK);    // more
  EXPECT_EQ(Wait(4, 3), CGR__DEVICE_NOT_READY); // never comes: destroying ends it
}

TEST_P(WaiterTest, DestroyingLeavesTheLargestValue) {
  EXPECT_EQ(Wait(1, 2), CGR__DEVICE_NOT_READY);
  EXPECT_EQ(ops_->waiter_destroy(dev_, waiter_), CGR__DEVICE_OK);
  EXPECT_EQ(*word_, uint64_t{ INT64_MAX });
  EXPECT_EQ(Wait(1, 2), CGR__DEVICE_INVALID);
  EXPECT_EQ(ops_->waiter_destroy(dev_, waiter_), CGR__DEVICE_INVALID);
  expected_ = { "host wait for a waiter: the waiter has been destroyed",
                "destruction of a waiter: the waiter has been destroyed" };
  waiter_ = nullptr;
}

TEST_P(WaiterTest, FaultsAreAnswered) {
  cgr__waiter *other = nullptr;
  for (int effect : { 0, 1 }) {
    for (int op : { int(CGR__OP_WAITER_CREATE), int(CGR__OP_WAITER_WAIT) }) {
      const cgr__fault_plan plan = { op, 1, CGR__FAULT_ONCE, effect, CGR__DEVICE_FAILED, 7 };
      cgr__fault_set(dev_, &plan);
      if (op == CGR__OP_WAITER_CREATE) {
        EXPECT_EQ(ops_->waiter_create(dev_, word_, &other), CGR__DEVICE_FAILED);
        EXPECT_EQ(other, nullptr);
      } else {
        EXPECT_EQ(Wait(1, 1), CGR__DEVICE_FAILED);
      }
      EXPECT_EQ(cgr__fault_fired(dev_), 1u);
    }
    *word_ = 0; // the waiter that was undone has raised it
  }
  cgr__fault_set(dev_, nullptr);
}

// Each has its own word; all of them are woken by the same device.
TEST_P(WaiterTest, SeveralThreadsWait) {
  if (!GetParam().HasThreads())
    GTEST_SKIP() << "work does not run by itself";
  constexpr int kThreads = 4;
  std::atomic<int> woken{ 0 };
  std::vector<std::thread> threads;
  std::vector<cgr__waiter *> waiters(kThreads);
  for (cgr__waiter *&waiter : waiters)
    ASSERT_EQ(ops_->waiter_create(dev_, word_, &waiter), CGR__DEVICE_OK);
  for (int i = 0; i < kThreads; i++)
    ASSERT_NO_FATAL_FAILURE(Raise(uint64_t(i) + 1, 2));
  for (int i = 0; i < kThreads; i++)
    threads.emplace_back([&, i] {
      for (uint64_t value = 1; value <= uint64_t(i) + 1; value++)
        woken += ops_->waiter_wait(dev_, waiters[size_t(i)], value, 20000 * kMillisecond) == CGR__DEVICE_OK;
    });
  for (std::thread &thread : threads)
    thread.join();
  EXPECT_EQ(woken, 1 + 2 + 3 + 4);
  for (cgr__waiter *waiter : waiters)
    EXPECT_EQ(ops_->waiter_destroy(dev_, waiter), CGR__DEVICE_OK);
}

CGR_INSTANTIATE_OVER_DEVICES(WaiterTest);

} // namespace

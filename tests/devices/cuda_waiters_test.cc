// What a waiter asks of the CUDA driver: one wait on its stream at a time, none that a thread cannot sleep through, and nothing
// that outlives it. The driver is a fake that only records calls.
#include "devices/device.h"

#if CGR_TEST_CUDA
#include <thread>

#include "tests/devices/fake_driver.h"

namespace {

constexpr uint64_t kMillisecond = 1000000;

class CudaWaitersTest : public CudaCallsTest {
protected:
  void MakeWaiter() {
    Open();
    ASSERT_EQ(ops_->waiter_create(dev_, &word_, &waiter_), CGR__DEVICE_OK);
  }
  void TearDown() override {
    if (waiter_ != nullptr) {
      EXPECT_EQ(ops_->waiter_destroy(dev_, waiter_), CGR__DEVICE_OK);
    }
    EXPECT_EQ(ops_->close(dev_), CGR__DEVICE_OK);
    EXPECT_EQ(driver.streams, 0);
  }
  int Wait(uint64_t value, uint64_t ms) { return ops_->waiter_wait(dev_, waiter_, value, ms * kMillisecond); }
  // The GPU has seen the word.
  void Fire() { driver.host_function(driver.host_data); }
  uint64_t word_ = 0;
  cgr__waiter *waiter_ = nullptr;
};

TEST_F(CudaWaitersTest, ItsStreamHasAPriorityOfItsOwn) {
  MakeWaiter();
  EXPECT_EQ(driver.priority, -2);
}

TEST_F(CudaWaitersTest, OneWaitIsArmedAtATime) {
  MakeWaiter();
  EXPECT_EQ(Wait(5, 3), CGR__DEVICE_NOT_READY);
  EXPECT_EQ(driver.awaited, 5u);
  EXPECT_EQ(Wait(6, 3), CGR__DEVICE_NOT_READY); // behind it
  EXPECT_EQ(Wait(4, 3), CGR__DEVICE_NOT_READY); // before it: polls
  EXPECT_EQ(driver.Count("StreamWaitValue64"), 1);
  word_ = 5;
  Fire();
  EXPECT_EQ(Wait(5, 3), CGR__DEVICE_OK);
  EXPECT_EQ(driver.Count("StreamWaitValue64"), 1);
  EXPECT_EQ(Wait(6, 3), CGR__DEVICE_NOT_READY);
  EXPECT_EQ(driver.awaited, 6u);
  EXPECT_EQ(driver.Count("StreamWaitValue64"), 2);
  EXPECT_EQ(driver.Count("LaunchHostFunc"), 2);
  Fire();
}

TEST_F(CudaWaitersTest, TheFunctionWakesTheThread) {
  MakeWaiter();
  std::thread gpu([&] {
    while (driver.Count("LaunchHostFunc") == 0)
      std::this_thread::yield();
    __atomic_store_n(&word_, 5, __ATOMIC_RELEASE);
    Fire();
  });
  EXPECT_EQ(Wait(5, 60000), CGR__DEVICE_OK);
  gpu.join();
}

// The word is looked at, whatever the GPU makes of the wait.
TEST_F(CudaWaitersTest, AWaitThatNeverFiresIsNoticed) {
  MakeWaiter();
  std::thread gpu([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    __atomic_store_n(&word_, 5, __ATOMIC_RELEASE);
  });
  EXPECT_EQ(Wait(5, 60000), CGR__DEVICE_OK);
  gpu.join();
}

TEST_F(CudaWaitersTest, WithoutMemoryOperationsItPolls) {
  for (const char *name : { "StreamWaitValue64", "LaunchHostFunc" }) {
    driver = Driver();
    MakeWaiter();
    driver.failures[name] = CUDA_ERROR_NOT_SUPPORTED;
    EXPECT_EQ(Wait(5, 3), CGR__DEVICE_NOT_READY);
    word_ = 5;
    EXPECT_EQ(Wait(5, 3), CGR__DEVICE_OK);
    EXPECT_EQ(ops_->waiter_destroy(dev_, waiter_), CGR__DEVICE_OK);
    waiter_ = nullptr;
    word_ = 0;
    driver.failures.clear();
    EXPECT_EQ(ops_->close(dev_), CGR__DEVICE_OK);
  }
  Open();
}

TEST_F(CudaWaitersTest, ALostDeviceEndsIt) {
  MakeWaiter();
  EXPECT_EQ(Wait(5, 3), CGR__DEVICE_NOT_READY);
  driver.failures["StreamQuery"] = CUDA_ERROR_ILLEGAL_ADDRESS;
  EXPECT_EQ(ops_->stream_query(dev_, Handle<cudaStream_t>(0x3000)), CGR__DEVICE_DEAD);
  EXPECT_EQ(ops_->waiter_destroy(dev_, waiter_), CGR__DEVICE_OK);
  EXPECT_EQ(word_, uint64_t{ INT64_MAX });
  Fire(); // late, before the device is closed
  waiter_ = nullptr;
}

} // namespace

#else

TEST(CudaWaitersTest, NeedsABuildWithCuda) { GTEST_SKIP() << "built without CUDA"; }

#endif

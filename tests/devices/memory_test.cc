// Memory: aligned, refused by name if there is none, and freed only by its device, once, as the kind that it is.
#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "tests/devices/device_case.h"
#include "tests/devices/scenario.h"
#include "tests/support/expect.h"

// The sanitizers' malloc aborts on a huge request unless told to fail as malloc does.
extern "C" const char *__asan_default_options() { return "allocator_may_return_null=1"; }
extern "C" const char *__tsan_default_options() { return "allocator_may_return_null=1"; }

namespace {

using cgr_test::ExpectMessage;
using cgr_test::MessageHas;

class MemoryTest : public cgr_test::PublicCase {};

TEST_P(MemoryTest, IsAligned) {
  for (size_t bytes : { 1, 3, 255, 257, 100001 }) {
    void *memory = nullptr, *pinned = nullptr;
    ASSERT_EQ(cgr_memory_alloc(dev_, bytes, &memory), CGR_OK);
    ASSERT_EQ(cgr_memory_alloc_pinned(dev_, bytes, &pinned), CGR_OK);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(memory) % 256, 0u);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(pinned) % 256, 0u);
    EXPECT_EQ(cgr_memory_free(dev_, memory), CGR_OK);
    EXPECT_EQ(cgr_memory_free_pinned(dev_, pinned), CGR_OK);
  }
  EXPECT_EQ(cgr_memory_free(dev_, nullptr), CGR_OK);
  EXPECT_EQ(cgr_memory_free_pinned(dev_, nullptr), CGR_OK);
}

TEST_P(MemoryTest, AFailedAllocationNamesTheBytes) {
  void *memory = &memory;
  EXPECT_EQ(cgr_memory_alloc(dev_, static_cast<size_t>(1) << 60, &memory), CGR_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(memory, nullptr);
  EXPECT_EQ(cgr_last_device_code(), 2);
  EXPECT_TRUE(
      MessageHas({ "cgr_memory_alloc: bytes is 1152921504606846976", "no memory", "(code 2), expected enough free memory" }));
  ExpectMessage(cgr_memory_alloc_pinned(dev_, 0, &memory), CGR_ERROR_INVALID_ARGUMENT,
                { "cgr_memory_alloc_pinned: bytes is 0, expected at least 1" });
}

TEST_P(MemoryTest, OnlyWhatTheDeviceGaveIsTakenBack) {
  cgr_device *other = nullptr;
  void *memory, *pinned, *theirs;
  char here[512];
  ASSERT_EQ(cgr_device_open(GetParam().name.c_str(), &GetParam().config, &other), CGR_OK);
  ASSERT_EQ(cgr_memory_alloc(dev_, 64, &memory), CGR_OK);
  ASSERT_EQ(cgr_memory_alloc_pinned(dev_, 64, &pinned), CGR_OK);
  ASSERT_EQ(cgr_memory_alloc(other, 64, &theirs), CGR_OK);
  const std::string gave = "expected an address that this device gave as ";
  for (void *wild : { static_cast<void *>(here), static_cast<void *>(static_cast<char *>(memory) + 1),
                      static_cast<void *>(static_cast<char *>(memory) + 64), reinterpret_cast<void *>(1), theirs }) {
    ExpectMessage(cgr_memory_free(dev_, wild), CGR_ERROR_INVALID_ARGUMENT,
                  { "cgr_memory_free: memory is 0x", gave + "device memory" });
  }
  ExpectMessage(cgr_memory_free_pinned(dev_, here), CGR_ERROR_INVALID_ARGUMENT,
                { "cgr_memory_free_pinned: memory is 0x", gave + "pinned memory" });
  ExpectMessage(cgr_memory_free(dev_, pinned), CGR_ERROR_INVALID_ARGUMENT,
                { "cgr_memory_free: memory is 0x", "this is pinned memory, which cgr_memory_free_pinned frees" });
  ExpectMessage(cgr_memory_free_pinned(dev_, memory), CGR_ERROR_INVALID_ARGUMENT,
                { "cgr_memory_free_pinned: memory is 0x", "this is device memory, which cgr_memory_free frees" });
  EXPECT_EQ(cgr_memory_free(dev_, memory), CGR_OK); // none of the above took effect
  EXPECT_EQ(cgr_memory_free(dev_, memory), CGR_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(cgr_memory_free_pinned(dev_, pinned), CGR_OK);
  EXPECT_EQ(cgr_memory_free_pinned(dev_, pinned), CGR_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(cgr_memory_free(other, theirs), CGR_OK);
  EXPECT_EQ(cgr_device_close(other), CGR_OK);
}

// The table below the public functions, where the runtime allocates, refuses too.
TEST_P(MemoryTest, TheTableRefusesAWildFree) {
  const cgr__device_ops *ops = dev_->ops;
  void *memory, *pinned;
  char here[64];
  ASSERT_EQ(ops->mem_alloc(dev_, 64, CGR__MEMORY_DEVICE, &memory), CGR__DEVICE_OK);
  ASSERT_EQ(ops->mem_alloc(dev_, 64, CGR__MEMORY_PINNED, &pinned), CGR__DEVICE_OK);
  EXPECT_EQ(ops->mem_free(dev_, here, CGR__MEMORY_DEVICE), CGR__DEVICE_INVALID);
  EXPECT_EQ(ops->mem_free(dev_, memory, CGR__MEMORY_PINNED), CGR__DEVICE_INVALID);
  EXPECT_EQ(ops->mem_free(dev_, pinned, CGR__MEMORY_DEVICE), CGR__DEVICE_INVALID);
  EXPECT_EQ(ops->mem_free(dev_, memory, CGR__MEMORY_DEVICE), CGR__DEVICE_OK);
  EXPECT_EQ(ops->mem_free(dev_, memory, CGR__MEMORY_DEVICE), CGR__DEVICE_INVALID);
  EXPECT_EQ(ops->mem_free(dev_, pinned, CGR__MEMORY_PINNED), CGR__DEVICE_OK);
  EXPECT_EQ(ops->mem_free(dev_, nullptr, CGR__MEMORY_DEVICE), CGR__DEVICE_OK);
}

void SetLater(const void *raw) {
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  (*static_cast<std::atomic<int> *const *>(raw))->store(1);
}

// Enqueued work may still need the memory.
TEST_P(MemoryTest, AFreeWaitsForTheStreams) {
  for (bool pinned : { false, true }) {
    std::atomic<int> done{ 0 }, *where = &done;
    cudaStream_t stream = NewStream();
    void *memory;
    ASSERT_EQ(pinned ? cgr_memory_alloc_pinned(dev_, 64, &memory) : cgr_memory_alloc(dev_, 64, &memory), CGR_OK);
    ASSERT_EQ(cgr_launch_host(dev_, SetLater, &where, sizeof where, stream), CGR_OK);
    ASSERT_EQ(cgr_fill(dev_, memory, 1, 64, stream), CGR_OK);
    EXPECT_EQ(pinned ? cgr_memory_free_pinned(dev_, memory) : cgr_memory_free(dev_, memory), CGR_OK);
    EXPECT_EQ(done.load(), 1);
  }
}

// A free that a capture forbids does not release the memory: it can be freed afterwards.
TEST_P(MemoryTest, AFreeRefusedInACaptureCanBeRepeated) {
  const cgr__device_ops *ops = dev_->ops;
  cudaStream_t stream = NewStream();
  cgr__graph *graph = nullptr;
  void *memory;
  ASSERT_EQ(cgr_memory_alloc(dev_, 64, &memory), CGR_OK);
  ASSERT_EQ(ops->capture_begin(dev_, stream), CGR__DEVICE_OK);
  ExpectMessage(cgr_memory_free(dev_, memory), CGR_ERROR_CAPTURE,
                { "cgr_memory_free: memory is 0x", "illegal during capture", "expected this call before or after the capture" });
  ExpectMessage(cgr_fill(dev_, memory, 0, 64, stream), CGR_ERROR_CAPTURE,
                { "capture invalidated", "expected a capture in which no call has failed" });
  EXPECT_EQ(ops->capture_end(dev_, stream, &graph), CGR__DEVICE_CAPTURE_INVALID);
  EXPECT_EQ(cgr_memory_free(dev_, memory), CGR_OK);
}

TEST_P(MemoryTest, ThreadsAllocateAtOnce) {
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; i++)
    threads.emplace_back([this] {
      std::vector<void *> all(50);
      for (int round = 0; round < 4; round++) {
        for (auto &memory : all)
          ASSERT_EQ(cgr_memory_alloc_pinned(dev_, 100, &memory), CGR_OK);
        for (auto &memory : all)
          ASSERT_EQ(cgr_memory_free_pinned(dev_, memory), CGR_OK);
      }
    });
  for (auto &thread : threads)
    thread.join();
}

CGR_INSTANTIATE_OVER_DEVICES(MemoryTest);

class HostMemoryTest : public cgr_test::DeviceCase {};

TEST_P(HostMemoryTest, IsPoisonedWhenFresh) {
  const auto *memory = static_cast<unsigned char *>(NewMemory(1000));
  for (int i = 0; i < 1000; i++)
    ASSERT_EQ(memory[i], 0xFF);
}

CGR_INSTANTIATE_OVER_HOST_DEVICES(HostMemoryTest);

} // namespace

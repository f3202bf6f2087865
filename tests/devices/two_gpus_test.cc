// Two GPUs in one process, a thread for each: neither touches the other's GPU. A separate process, because at first no context
// may exist.
#include <cstring>
#include <string>
#include <thread>

#include "cgr/device.h"
#include "devices/device.h"

#if CGR_TEST_CUDA
#include "tests/support/primary_context.h"
#endif

namespace {

class TwoGpusTest : public ::testing::Test {
protected:
  void SetUp() override {
    if (cgr__cuda_device_count() < 2)
      GTEST_SKIP() << "needs two GPUs, there are " << cgr__cuda_device_count();
  }
};

#if CGR_TEST_CUDA

using cgr_test::HasContext;

uint64_t FreeMemory(cgr_device *dev) {
  cgr_device_info info = CGR_DEVICE_INFO_INIT;
  EXPECT_EQ(cgr_device_get_info(dev, &info), CGR_OK);
  return info.memory_free;
}

struct AddArgs {
  int *word;
};
void Increment(const void *raw) { ++*static_cast<const AddArgs *>(raw)->word; }

// Memory, copies, a captured graph, host functions and events on one GPU; everything is released again.
void Work(cgr_device *dev, int rounds) {
  const cgr__device_ops *ops = dev->ops;
  const size_t bytes = 64 << 20;
  cudaStream_t a, b;
  cgr_event *fork, *join;
  cgr__graph *graph;
  cgr__exec *exec;
  void *memory, *pinned;
  ASSERT_EQ(cgr_memory_alloc(dev, bytes, &memory), CGR_OK);
  ASSERT_EQ(cgr_memory_alloc_pinned(dev, 4096, &pinned), CGR_OK);
  ASSERT_EQ(cgr_stream_create(dev, &a), CGR_OK);
  ASSERT_EQ(cgr_stream_create(dev, &b), CGR_OK);
  ASSERT_EQ(cgr_event_create(dev, &fork), CGR_OK);
  ASSERT_EQ(cgr_event_create(dev, &join), CGR_OK);
  auto *words = static_cast<int *>(pinned);
  std::memset(words, 0, 4096);
  AddArgs args = { words };
  ASSERT_EQ(ops->capture_begin(dev, a), CGR__DEVICE_OK);
  ASSERT_EQ(cgr_copy(dev, memory, words, 2048, a), CGR_OK);
  ASSERT_EQ(cgr_event_record(dev, fork, a), CGR_OK);
  ASSERT_EQ(cgr_event_wait(dev, fork, b), CGR_OK);
  ASSERT_EQ(ops->fill(dev, static_cast<char *>(memory) + 4096, 1ull << 40, 8, 1000, b), CGR__DEVICE_OK);
  ASSERT_EQ(cgr_event_record(dev, join, b), CGR_OK);
  ASSERT_EQ(cgr_event_wait(dev, join, a), CGR_OK);
  ASSERT_EQ(cgr_copy(dev, words + 512, memory, 2048, a), CGR_OK);
  ASSERT_EQ(cgr_launch_host(dev, Increment, &args, sizeof args, a), CGR_OK);
  ASSERT_EQ(ops->capture_end(dev, a, &graph), CGR__DEVICE_OK);
  ASSERT_EQ(ops->instantiate(dev, graph, &exec, nullptr), CGR__DEVICE_OK);
  for (int i = 0; i < rounds; i++) {
    ASSERT_EQ(ops->exec_launch(dev, exec, a), CGR__DEVICE_OK);
    ASSERT_EQ(cgr_fill(dev, memory, i, bytes, b), CGR_OK);
    ASSERT_EQ(cgr_stream_synchronize(dev, b), CGR_OK);
    ASSERT_EQ(cgr_stream_synchronize(dev, a), CGR_OK);
    ASSERT_EQ(words[0], i + 1);
  }
  EXPECT_EQ(ops->exec_destroy(dev, exec), CGR__DEVICE_OK);
  EXPECT_EQ(ops->graph_destroy(dev, graph), CGR__DEVICE_OK);
  EXPECT_EQ(cgr_event_destroy(dev, fork), CGR_OK);
  EXPECT_EQ(cgr_event_destroy(dev, join), CGR_OK);
  EXPECT_EQ(cgr_stream_destroy(dev, a), CGR_OK);
  EXPECT_EQ(cgr_stream_destroy(dev, b), CGR_OK);
  EXPECT_EQ(cgr_memory_free(dev, memory), CGR_OK);
  EXPECT_EQ(cgr_memory_free_pinned(dev, pinned), CGR_OK);
}

// A thread that has never used CUDA: opens its GPU, works, closes, and has no context afterwards.
void OpenWorkClose(int ordinal, int rounds) {
  cgr_device *dev = nullptr;
  CUcontext context = nullptr;
  ASSERT_EQ(cgr_device_open(("cuda:" + std::to_string(ordinal)).c_str(), nullptr, &dev), CGR_OK) << cgr_last_message();
  EXPECT_TRUE(HasContext(ordinal));
  Work(dev, rounds);
  EXPECT_EQ(cgr_device_close(dev), CGR_OK) << cgr_last_message();
  EXPECT_EQ(cgr__cu.CtxGetCurrent(&context), CUDA_SUCCESS);
  EXPECT_EQ(context, nullptr);
}

TEST_F(TwoGpusTest, OneGpuGetsNoContextFromTheOther) {
  ASSERT_FALSE(HasContext(0));
  ASSERT_FALSE(HasContext(1));
  for (int ordinal : { 1, 0 }) {
    std::thread([&] {
      OpenWorkClose(ordinal, 10);
      EXPECT_FALSE(HasContext(1 - ordinal)) << ordinal;
    }).join();
    EXPECT_FALSE(HasContext(ordinal)) << ordinal; // released at close
    EXPECT_FALSE(HasContext(1 - ordinal)) << ordinal;
  }
}

TEST_F(TwoGpusTest, TwoThreadsWorkAtOnce) {
  std::thread first(OpenWorkClose, 0, 200), second(OpenWorkClose, 1, 200);
  first.join();
  second.join();
  EXPECT_FALSE(HasContext(0));
  EXPECT_FALSE(HasContext(1));
}

TEST_F(TwoGpusTest, WorkOnOneTakesNoMemoryOfTheOther) {
  cgr_device *other = nullptr;
  ASSERT_EQ(cgr_device_open("cuda:1", nullptr, &other), CGR_OK);
  uint64_t before = FreeMemory(other), meanwhile = 0;
  std::thread([&] {
    cgr_device *dev = nullptr;
    void *memory = nullptr;
    ASSERT_EQ(cgr_device_open("cuda:0", nullptr, &dev), CGR_OK);
    ASSERT_EQ(cgr_memory_alloc(dev, 256 << 20, &memory), CGR_OK);
    Work(dev, 10);
    meanwhile = FreeMemory(other);
    EXPECT_EQ(cgr_memory_free(dev, memory), CGR_OK);
    EXPECT_EQ(cgr_device_close(dev), CGR_OK);
  }).join();
  // CUDA maps page-locked memory on every GPU that is open, which may take page tables there.
  EXPECT_LE(before, meanwhile + (32 << 20));
  EXPECT_LE(before, FreeMemory(other) + (32 << 20));
  EXPECT_EQ(cgr_device_close(other), CGR_OK);
}

#else

TEST_F(TwoGpusTest, NeedsABuildWithCuda) {}

#endif

} // namespace

// A GPU that is closed and opened again, in a process where nothing else keeps its context: the context is released unless a
// kernel has run (CUDA's runtime then keeps it until the process ends), and a reopened device works as at first.
#include "cgr/device.h"
#include "devices/device.h"
#include "tests/devices/kernels.h"
#include "tests/support/devices.h"

#if CGR_TEST_CUDA
#include "tests/support/primary_context.h"
#endif

namespace {

#if CGR_TEST_CUDA

void Increment(const void *raw) { ++**static_cast<int *const *>(raw); }

void RunKernel(cgr_device *dev, int *words, cudaStream_t stream) {
  const cgr__kernel scale = { "scale", sizeof(test_scale_args), nullptr, test_scale, test_scale_preload, 0 };
  const test_scale_args args = { words, 100, 0 };
  ASSERT_EQ(dev->ops->preload(dev, &scale), CGR__DEVICE_OK) << dev->last_raw;
  ASSERT_EQ(dev->ops->launch(dev, &scale, &args, stream), CGR__DEVICE_OK) << dev->last_raw;
  ASSERT_EQ(cgr_stream_synchronize(dev, stream), CGR_OK);
  ASSERT_EQ(words[99], 99);
}

void Work(cgr_device *dev, bool kernel) {
  const cgr__device_ops *ops = dev->ops;
  cudaStream_t stream;
  cgr__graph *graph;
  cgr__exec *exec;
  void *memory;
  ASSERT_EQ(cgr_stream_create(dev, &stream), CGR_OK);
  ASSERT_EQ(cgr_memory_alloc_pinned(dev, 400, &memory), CGR_OK);
  auto *words = static_cast<int *>(memory);
  words[0] = 0;
  if (kernel)
    RunKernel(dev, words, stream);
  ASSERT_EQ(ops->capture_begin(dev, stream), CGR__DEVICE_OK);
  ASSERT_EQ(cgr_launch_host(dev, Increment, &words, sizeof words, stream), CGR_OK);
  ASSERT_EQ(ops->capture_end(dev, stream, &graph), CGR__DEVICE_OK);
  ASSERT_EQ(ops->instantiate(dev, graph, &exec, nullptr), CGR__DEVICE_OK);
  ASSERT_EQ(ops->exec_launch(dev, exec, stream), CGR__DEVICE_OK);
  ASSERT_EQ(ops->exec_destroy(dev, exec), CGR__DEVICE_OK);
  ASSERT_EQ(ops->graph_destroy(dev, graph), CGR__DEVICE_OK);
  ASSERT_EQ(cgr_stream_destroy(dev, stream), CGR_OK);
  ASSERT_EQ(words[0], 1);
  ASSERT_EQ(cgr_memory_free_pinned(dev, memory), CGR_OK);
}

TEST(ReopenTest, TheContextIsGivenBackAndTakenAgain) {
  if (cgr__cuda_device_count() == 0) {
    if (cgr_test::GpuIsRequired())
      FAIL() << "CGR_REQUIRE_GPU=1 and no GPU can be opened";
    GTEST_SKIP() << "no GPU";
  }
  ASSERT_FALSE(cgr_test::HasContext(0));
  for (int round = 0; round < 6; round++) {
    bool kernel = round >= 3;
    cgr_device *dev = nullptr, *second = nullptr;
    ASSERT_EQ(cgr_device_open("cuda:0", nullptr, &dev), CGR_OK) << cgr_last_message();
    ASSERT_EQ(cgr_device_open("cuda:0", nullptr, &second), CGR_OK) << cgr_last_message();
    Work(dev, kernel);
    EXPECT_EQ(cgr_device_close(dev), CGR_OK);
    EXPECT_TRUE(cgr_test::HasContext(0)); // the second device has it too
    Work(second, kernel);
    EXPECT_EQ(cgr_device_close(second), CGR_OK);
    EXPECT_EQ(cgr_test::HasContext(0), kernel);
  }
}

#else

TEST(ReopenTest, NeedsABuildWithCuda) { CGR_SKIP_WITHOUT_DEVICE(cgr_test::CudaParam()); }

#endif

} // namespace

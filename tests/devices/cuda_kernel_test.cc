// A build's kernels, launched and loaded through devices/cuda/launch.h like the library's own.
#include "devices/device.h"
#include "tests/devices/kernels.h"
#include "tests/support/checker.h"
#include "tests/support/devices.h"

namespace {

class CudaKernelTest : public ::testing::Test {
protected:
  void SetUp() override {
    CGR_OPEN_OR_SKIP(dev_, cgr_test::CudaParam());
    ops_ = dev_->ops;
    ASSERT_EQ(ops_->stream_create(dev_, CGR__STREAM_NORMAL, &stream_), CGR__DEVICE_OK);
    void *memory = nullptr;
    ASSERT_EQ(ops_->mem_alloc(dev_, kWords * sizeof(int), CGR__MEMORY_PINNED, &memory), CGR__DEVICE_OK);
    words_ = static_cast<int *>(memory);
    for (int i = 0; i < kWords; i++)
      words_[i] = i;
  }
  void TearDown() override {
    if (dev_ == nullptr)
      return;
    EXPECT_EQ(ops_->stream_destroy(dev_, stream_), CGR__DEVICE_OK);
    EXPECT_EQ(ops_->mem_free(dev_, words_, CGR__MEMORY_PINNED), CGR__DEVICE_OK);
    EXPECT_EQ(ops_->close(dev_), CGR__DEVICE_OK);
  }

  static constexpr int kWords = 20000;
  cgr_device *dev_ = nullptr;
  const cgr__device_ops *ops_ = nullptr;
  cudaStream_t stream_ = nullptr;
  int *words_ = nullptr;
};

#if CGR_TEST_CUDA

const cgr__kernel scale = { "scale", sizeof(test_scale_args), nullptr, test_scale, test_scale_preload, 0 };
const cgr__kernel nowhere = { "nowhere", sizeof(test_scale_args), nullptr, test_scale_nowhere, nullptr, 0 };
const cgr__kernel reverse = { "reverse", sizeof(test_reverse_args), nullptr, test_reverse, test_reverse_preload, 0 };
const cgr__kernel absent = { "absent", sizeof(test_scale_args), nullptr, test_no_kernel, nullptr, 0 };

TEST_F(CudaKernelTest, RunsEagerlyAndInAGraph) {
  cgr__graph *graph;
  cgr__exec *exec;
  test_scale_args args = { words_, 300, 2 };
  ASSERT_EQ(ops_->preload(dev_, &scale), CGR__DEVICE_OK);
  ASSERT_EQ(ops_->launch(dev_, &scale, &args, stream_), CGR__DEVICE_OK);
  ASSERT_EQ(ops_->stream_sync(dev_, stream_), CGR__DEVICE_OK);
  for (int i = 0; i < 400; i++)
    ASSERT_EQ(words_[i], i < 300 ? 3 * i : i);
  args.factor = 10;
  ASSERT_EQ(ops_->capture_begin(dev_, stream_), CGR__DEVICE_OK);
  ASSERT_EQ(ops_->launch(dev_, &scale, &args, stream_), CGR__DEVICE_OK);
  ASSERT_EQ(ops_->capture_end(dev_, stream_, &graph), CGR__DEVICE_OK);
  ASSERT_EQ(ops_->instantiate(dev_, graph, &exec, nullptr), CGR__DEVICE_OK);
  args.factor = 1000; // the graph has a copy
  ASSERT_EQ(ops_->exec_launch(dev_, exec, stream_), CGR__DEVICE_OK);
  ASSERT_EQ(ops_->stream_sync(dev_, stream_), CGR__DEVICE_OK);
  for (int i = 0; i < 400; i++)
    ASSERT_EQ(words_[i], i < 300 ? 31 * i : i);
  EXPECT_EQ(ops_->exec_destroy(dev_, exec), CGR__DEVICE_OK);
  EXPECT_EQ(ops_->graph_destroy(dev_, graph), CGR__DEVICE_OK);
}

// An engine's kernels may follow each other on programmatic edges (cuBLASLt's do): such a graph can be made and inspected
// too.
TEST_F(CudaKernelTest, RunsInAGraphWithProgrammaticEdges) {
  const cgr__kernel early = { "early", sizeof(test_scale_args), nullptr, test_scale_early, test_scale_preload, 0 };
  cgr__graph *graph;
  cgr__exec *exec;
  cgr__graph_info info;
  test_scale_args args = { words_, 300, 2 };
  ASSERT_EQ(ops_->preload(dev_, &scale), CGR__DEVICE_OK);
  ASSERT_EQ(ops_->capture_begin(dev_, stream_), CGR__DEVICE_OK);
  ASSERT_EQ(ops_->launch(dev_, &scale, &args, stream_), CGR__DEVICE_OK);
  args.words += 1000;
  ASSERT_EQ(ops_->launch(dev_, &early, &args, stream_), CGR__DEVICE_OK);
  ASSERT_EQ(ops_->launch(dev_, &scale, &args, stream_), CGR__DEVICE_OK);
  ASSERT_EQ(ops_->capture_end(dev_, stream_, &graph), CGR__DEVICE_OK);
  ASSERT_EQ(ops_->instantiate(dev_, graph, &exec, &info), CGR__DEVICE_OK);
  EXPECT_EQ(info.num_nodes, 3);
  EXPECT_EQ(info.width, 1);
  ASSERT_EQ(ops_->exec_launch(dev_, exec, stream_), CGR__DEVICE_OK);
  ASSERT_EQ(ops_->stream_sync(dev_, stream_), CGR__DEVICE_OK);
  for (int i = 0; i < 300; i++)
    ASSERT_EQ(words_[1000 + i], 4 * (1000 + i) + 3 * i);
  ops_->exec_destroy(dev_, exec);
  ops_->graph_destroy(dev_, graph);
}

// A kernel that is launched early begins alongside the kernel before it, and after its wait sees what that kernel wrote, in a
// stream and in a graph. Code for older architectures, which cannot wait, begins after that kernel.
TEST_F(CudaKernelTest, EarlyLaunchesBeginWhileWhatIsBeforeThemRuns) {
  if (cgr_test::UnderChecker())
    GTEST_SKIP() << "the checker runs one kernel after the other";
  const cgr__kernel late = { "late", sizeof(test_late_args), nullptr, test_late, test_late_preload, 0 };
  const cgr__kernel follow = { "follow", sizeof(test_follow_args), nullptr, test_follow, test_follow_preload, 0 };
  ASSERT_EQ(ops_->preload(dev_, &late), CGR__DEVICE_OK);
  ASSERT_EQ(ops_->preload(dev_, &follow), CGR__DEVICE_OK);
  test_late_args first = { words_, 1000, 0 };
  const test_follow_args second = { words_, words_ + 2000, 1000 };
  auto enqueue = [&](int value) {
    first.value = value;
    ASSERT_EQ(ops_->launch(dev_, &late, &first, stream_), CGR__DEVICE_OK);
    ASSERT_EQ(ops_->launch(dev_, &follow, &second, stream_), CGR__DEVICE_OK) << dev_->last_raw;
  };
  auto expect = [&](int before, int value) {
    ASSERT_EQ(ops_->stream_sync(dev_, stream_), CGR__DEVICE_OK);
    const bool can_wait = words_[2002] >= 900;
    EXPECT_EQ(words_[2000], can_wait ? before : value) << "architecture " << words_[2002];
    EXPECT_EQ(words_[2001], value);
  };
  words_[999] = 7;
  for (int value = 8; value < 11; value++) {
    enqueue(value);
    expect(value - 1, value);
  }
  cgr__graph *graph;
  cgr__exec *exec;
  cgr__graph_info info;
  ASSERT_EQ(ops_->capture_begin(dev_, stream_), CGR__DEVICE_OK);
  enqueue(20);
  ASSERT_EQ(ops_->capture_end(dev_, stream_, &graph), CGR__DEVICE_OK);
  ASSERT_EQ(ops_->instantiate(dev_, graph, &exec, &info), CGR__DEVICE_OK);
  EXPECT_EQ(info.num_nodes, 2);
  ASSERT_EQ(ops_->exec_launch(dev_, exec, stream_), CGR__DEVICE_OK);
  expect(10, 20);
  EXPECT_EQ(ops_->exec_destroy(dev_, exec), CGR__DEVICE_OK);
  EXPECT_EQ(ops_->graph_destroy(dev_, graph), CGR__DEVICE_OK);
}

TEST_F(CudaKernelTest, PreloadingAllowsMuchSharedMemory) {
  test_reverse_args args = { words_, kWords };
  ASSERT_EQ(ops_->preload(dev_, &reverse), CGR__DEVICE_OK);
  ASSERT_EQ(ops_->launch(dev_, &reverse, &args, stream_), CGR__DEVICE_OK) << dev_->last_raw;
  ASSERT_EQ(ops_->stream_sync(dev_, stream_), CGR__DEVICE_OK);
  for (int i = 0; i < kWords; i++)
    ASSERT_EQ(words_[i], kWords - 1 - i);
}

TEST_F(CudaKernelTest, LaunchesThatCannotBeAreRefused) {
  test_scale_args args = { words_, 300, 2 };
  EXPECT_EQ(ops_->launch(dev_, &nowhere, &args, stream_), CGR__DEVICE_INVALID);
  EXPECT_EQ(ops_->launch(dev_, &absent, &args, stream_), CGR__DEVICE_UNSUPPORTED);
  EXPECT_EQ(ops_->launch(dev_, &scale, nullptr, stream_), CGR__DEVICE_INVALID);
  ASSERT_EQ(ops_->launch(dev_, &scale, &args, stream_), CGR__DEVICE_OK); // the device is as it was
  ASSERT_EQ(ops_->stream_sync(dev_, stream_), CGR__DEVICE_OK);
  EXPECT_EQ(words_[7], 21);
}

TEST_F(CudaKernelTest, NativeKernelsAreForTheirArchitectureAlone) {
#if CGR_HAS_SM90A
  const cgr__kernel native = { "native", sizeof(test_native_args), nullptr, test_native, test_native_preload, 0 };
  cgr_device_info info = CGR_DEVICE_INFO_INIT;
  test_native_args args = { words_ };
  ASSERT_EQ(ops_->info(dev_, &info), CGR__DEVICE_OK);
  words_[0] = 1;
  int error = ops_->preload(dev_, &native);
  if (info.compute_capability != 90) {
    EXPECT_EQ(error, CGR__DEVICE_UNSUPPORTED);
    return;
  }
  ASSERT_EQ(error, CGR__DEVICE_OK);
  ASSERT_EQ(ops_->launch(dev_, &native, &args, stream_), CGR__DEVICE_OK);
  ASSERT_EQ(ops_->stream_sync(dev_, stream_), CGR__DEVICE_OK);
  EXPECT_EQ(words_[0], 91);
#else
  GTEST_SKIP() << "cuda_archs does not list 90a";
#endif
}

#else

TEST_F(CudaKernelTest, NeedsABuildWithCuda) {}

#endif

} // namespace

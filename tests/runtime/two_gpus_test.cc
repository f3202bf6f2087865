// Two runtimes on two GPUs, one thread each: neither leaves a context or an allocation on the other's GPU. The test has its own
// process, where no context exists at first.
#include <thread>

#include "tests/support/engine_case.h"

#if CGR_TEST_CUDA
#include "tests/support/primary_context.h"
#endif

namespace cgr_test {
namespace {

class TwoRuntimes : public ::testing::Test {
protected:
  void SetUp() override {
    if (cgr__cuda_device_count() < 2)
      GTEST_SKIP() << "needs two GPUs, there are " << cgr__cuda_device_count();
  }
};

#if CGR_TEST_CUDA

EngineOptions OptionsOn(int ordinal) {
  DeviceParam param = CudaParam();
  param.name = "cuda:" + std::to_string(ordinal);
  return OptionsFor(param);
}

// Captures, replays, eager steps, moved pages; all of it is checked and destroyed.
void Work(int ordinal, int num_steps) {
  Captured<Engine> engine(OptionsOn(ordinal));
  CGR_ASSERT_OK(engine.Warmup());
  std::vector<int32_t> rows = { engine.Start(5, ordinal), engine.Start(17, ordinal + 2) };
  for (int n = 0; n < num_steps && !::testing::Test::HasFailure(); n++) {
    if (n % 10 == 9) {
      engine.CheckAll();
      engine.Close(rows[1]);
      rows[1] = engine.Start(1 + n % 20, n);
    }
    engine.Step(engine.Decode(rows));
  }
}

uint64_t FreeMemory(cgr_device *dev) {
  cgr_device_info info = CGR_DEVICE_INFO_INIT;
  CGR_EXPECT_OK(cgr_device_get_info(dev, &info));
  return info.memory_free;
}

// Must run first, before the process uses a GPU: CUDA's runtime keeps the context of a GPU on which a kernel has run.
TEST_F(TwoRuntimes, OneLeavesNoContextOnTheOthersGpu) {
  ASSERT_FALSE(HasContext(0));
  ASSERT_FALSE(HasContext(1));
  std::thread([] {
    Work(1, 20);
    EXPECT_TRUE(HasContext(1));
  }).join();
  EXPECT_FALSE(HasContext(0));
}

TEST_F(TwoRuntimes, OneLeavesNoAllocationOnTheOthersGpu) {
  for (int ordinal : { 0, 1 }) {
    cgr_device *other = nullptr;
    CGR_ASSERT_OK(cgr_device_open(ordinal == 0 ? "cuda:1" : "cuda:0", nullptr, &other));
    uint64_t before = FreeMemory(other);
    std::thread(Work, ordinal, 20).join();
    // CUDA maps page-locked memory on every GPU that is open, which may take page tables there.
    EXPECT_LE(before, FreeMemory(other) + (32 << 20)) << ordinal;
    CGR_EXPECT_OK(cgr_device_close(other));
  }
}

// Whichever context is current on the thread, it is the wrong one for half of the calls.
TEST_F(TwoRuntimes, OneThreadRunsBothInTurn) {
  Engine first(OptionsOn(0)), second(OptionsOn(1));
  for (Engine *engine : { &first, &second })
    CGR_ASSERT_OK(engine->Capture());
  int32_t rows[2] = { first.Start(5, 1), second.Start(7, 2) };
  CUcontext context[2];
  ASSERT_EQ(cgr__cu.DevicePrimaryCtxRetain(&context[0], 0), CUDA_SUCCESS);
  ASSERT_EQ(cgr__cu.DevicePrimaryCtxRetain(&context[1], 1), CUDA_SUCCESS);
  for (int n = 0; n < 20 && !HasFailure(); n++) {
    ASSERT_EQ(cgr__cu.CtxPushCurrent(context[n % 2]), CUDA_SUCCESS);
    first.Step(first.Decode({ rows[0] }));
    second.Step(second.Decode({ rows[1] }));
    CUcontext popped = nullptr;
    ASSERT_EQ(cgr__cu.CtxPopCurrent(&popped), CUDA_SUCCESS);
    EXPECT_EQ(popped, context[n % 2]);
  }
  EXPECT_EQ(cgr__cu.DevicePrimaryCtxRelease(0), CUDA_SUCCESS);
  EXPECT_EQ(cgr__cu.DevicePrimaryCtxRelease(1), CUDA_SUCCESS);
}

TEST_F(TwoRuntimes, TwoThreadsRunAtOnce) {
  std::thread first(Work, 0, 100), second(Work, 1, 100);
  first.join();
  second.join();
}

#else

TEST_F(TwoRuntimes, NeedsABuildWithCuda) {}

#endif

} // namespace
} // namespace cgr_test

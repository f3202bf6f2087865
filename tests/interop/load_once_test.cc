// A format's kernel is loaded once on each device: later calls ask the device only for the launch. No capture loads a kernel.
#include <set>
#include <thread>

#include "devices/shims/trace.h"
#include "interop/formats.h"
#include "kernels/gather.h"
#include "tests/support/devices.h"
#include "tests/support/expect.h"
#include "tests/support/fa3_case.h"
#include "tests/support/flashmla_case.h"
#include "tests/support/poisoned.h"

namespace cgr_test {
namespace {

class LoadOnce : public ::testing::Test {
protected:
  void SetUp() override {
    fa3_.input = Fa3Key();
    for (int32_t i = 0; i < 4; i++)
      fa3_.Add(1, 100);
    fa3_.Bind();
    flashmla_.input.num_requests = flashmla_.input.num_parts = 1;
    flashmla_.seq_lens = { 100 };
    flashmla_.Bind();
    Reopen();
  }
  void TearDown() override { Close(); }
  void Close() {
    EXPECT_EQ(dev_->ops->stream_destroy(dev_, stream_), CGR__DEVICE_OK);
    EXPECT_EQ(dev_->ops->close(dev_), CGR__DEVICE_OK);
  }
  void Reopen() {
    ASSERT_EQ(cgr__trace_open(OpenDevice(HostParam(CGR_SCHEDULE_ASYNC)), &dev_), CGR__DEVICE_OK);
    ASSERT_EQ(dev_->ops->stream_create(dev_, CGR__STREAM_NORMAL, &stream_), CGR__DEVICE_OK);
    cgr__trace_reset(dev_);
  }
  void Fa3() { CGR_EXPECT_OK(cgr_fa3_enqueue(dev_, &fa3_.input, memory_.data(), memory_.bytes(), stream_)); }
  void Flashmla() { CGR_EXPECT_OK(cgr_flashmla_enqueue(dev_, &flashmla_.input, other_.data(), other_.bytes(), stream_)); }
  // Since the last call of this.
  void ExpectCalls(uint64_t loads, uint64_t launches, uint64_t total) {
    EXPECT_EQ(cgr__trace_count(dev_, CGR__OP_PRELOAD), loads);
    EXPECT_EQ(cgr__trace_count(dev_, CGR__OP_LAUNCH), launches);
    EXPECT_EQ(cgr__trace_total(dev_), total);
    cgr__trace_reset(dev_);
  }

  Fa3Case fa3_;
  FlashmlaBatch flashmla_;
  Poisoned<32> memory_{ 1024 }, other_{ 1024 };
  cgr_device *dev_ = nullptr;
  cudaStream_t stream_ = nullptr;
};

// A device remembers by its number which kernel is loaded.
TEST_F(LoadOnce, NoTwoKernelsHaveOneNumber) {
  std::set<int32_t> numbers;
  for (const cgr__kernel *kernel : { &cgr__kernel_fa3, &cgr__kernel_flashinfer, &cgr__kernel_cascade, &cgr__kernel_flashmla,
                                     &cgr__kernel_block_table, &cgr__kernel_gather }) {
    EXPECT_TRUE(kernel->number >= 1 && kernel->number <= 31) << kernel->name;
    EXPECT_TRUE(numbers.insert(kernel->number).second) << kernel->name;
  }
}

TEST_F(LoadOnce, EachKernelOnEachDevice) {
  for (int opened = 0; opened < 2; opened++) {
    Fa3();
    ExpectCalls(1, 1, 3);
    for (int n = 0; n < 3; n++)
      Fa3();
    ExpectCalls(0, 3, 3);
    Flashmla();
    ExpectCalls(1, 1, 3);
    Fa3();
    Flashmla();
    ExpectCalls(0, 2, 2);
    Close();
    Reopen();
  }
}

// Two kernels with the same bit would be loaded only once; one without a bit is refused, as every call would load it.
TEST_F(LoadOnce, EachHasABitOfItsOwn) {
  std::set<int32_t> numbers;
  for (const cgr__kernel *kernel :
       { &cgr__kernel_fa3, &cgr__kernel_flashinfer, &cgr__kernel_cascade, &cgr__kernel_flashmla, &cgr__kernel_block_table }) {
    EXPECT_TRUE(kernel->number >= 1 && kernel->number <= 31) << kernel->name << " " << kernel->number;
    EXPECT_TRUE(numbers.insert(kernel->number).second) << kernel->name << " " << kernel->number;
  }
  cgr__kernel none = cgr__kernel_fa3;
  none.number = 0;
  const cgr__fa3_args args = {};
  EXPECT_NE(cgr__enqueue_kernel("cgr_fa3_enqueue", dev_, &none, &args, stream_), CGR_OK);
  ExpectCalls(0, 0, 0);
}

TEST_F(LoadOnce, NotInACapture) {
  cgr__graph *graph = nullptr;
  ASSERT_EQ(dev_->ops->capture_begin(dev_, stream_), CGR__DEVICE_OK);
  cgr__trace_reset(dev_);
  Fa3();
  ExpectCalls(0, 1, 2);
  ASSERT_EQ(dev_->ops->capture_end(dev_, stream_, &graph), CGR__DEVICE_OK);
  ASSERT_EQ(dev_->ops->graph_destroy(dev_, graph), CGR__DEVICE_OK);
  cgr__trace_reset(dev_);
  Fa3();
  ExpectCalls(1, 1, 3);
}

TEST_F(LoadOnce, ByManyThreads) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; t++)
    threads.emplace_back([this] {
      for (int n = 0; n < 50; n++)
        Fa3();
    });
  for (std::thread &thread : threads)
    thread.join();
  const uint64_t loads = cgr__trace_count(dev_, CGR__OP_PRELOAD);
  EXPECT_GE(loads, 1u);
  EXPECT_LE(loads, 4u);
  EXPECT_EQ(cgr__trace_count(dev_, CGR__OP_LAUNCH), 200u);
}

} // namespace
} // namespace cgr_test

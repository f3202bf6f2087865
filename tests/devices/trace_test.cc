// The trace counts calls and keeps them in order.
#include "devices/shims/trace.h"
#include "tests/devices/device_case.h"

namespace {

class TraceTest : public cgr_test::DeviceCase {
protected:
  cgr_device *Over(cgr_device *inner) override {
    cgr_device *dev = nullptr;
    EXPECT_EQ(cgr__trace_open(inner, &dev), CGR__DEVICE_OK);
    return dev;
  }
};

TEST_P(TraceTest, CountsAndKeepsTheOrder) {
  cudaStream_t stream = NewStream();
  void *memory = NewMemory(64);
  EXPECT_EQ(cgr__trace_allocs(dev_), 2u);
  cgr__trace_reset(dev_);
  ASSERT_EQ(ops_->fill(dev_, memory, 1, 4, 16, stream), CGR__DEVICE_OK);
  ASSERT_EQ(ops_->fill(dev_, memory, 2, 8, 4, stream), CGR__DEVICE_OK);
  ASSERT_EQ(ops_->stream_sync(dev_, stream), CGR__DEVICE_OK);
  cgr__kernel none = { "none", 0, nullptr, nullptr, nullptr, 0 };
  EXPECT_EQ(ops_->launch(dev_, &none, nullptr, stream), CGR__DEVICE_UNSUPPORTED);
  EXPECT_EQ(cgr__trace_count(dev_, CGR__OP_FILL), 2u);
  EXPECT_EQ(cgr__trace_count(dev_, CGR__OP_COPY), 0u);
  EXPECT_EQ(cgr__trace_syncs(dev_), 1u);
  EXPECT_EQ(cgr__trace_allocs(dev_), 0u);
  EXPECT_EQ(cgr__trace_total(dev_), 4u);
  EXPECT_EQ(cgr__trace_failed(dev_), 1u);
  struct cgr__trace_entry entry;
  ASSERT_TRUE(cgr__trace_get(dev_, 1, &entry));
  EXPECT_EQ(entry.call.op, CGR__OP_FILL);
  EXPECT_EQ(entry.call.stream, stream);
  EXPECT_EQ(entry.call.bytes, 32u);
  ASSERT_TRUE(cgr__trace_get(dev_, 3, &entry));
  EXPECT_EQ(entry.error, CGR__DEVICE_UNSUPPORTED);
  EXPECT_FALSE(cgr__trace_get(dev_, 4, &entry));
  EXPECT_STREQ(cgr__shim_op_name(CGR__OP_EVENT_WAIT), "event_wait");
}

TEST_P(TraceTest, TheRingForgetsTheOldest) {
  cgr_device_info info = CGR_DEVICE_INFO_INIT;
  for (unsigned i = 0; i < CGR__TRACE_RING + 5; i++)
    ASSERT_EQ(ops_->info(dev_, &info), CGR__DEVICE_OK);
  struct cgr__trace_entry entry;
  EXPECT_FALSE(cgr__trace_get(dev_, 4, &entry));
  EXPECT_TRUE(cgr__trace_get(dev_, 5, &entry));
  EXPECT_TRUE(cgr__trace_get(dev_, CGR__TRACE_RING + 4, &entry));
}

CGR_INSTANTIATE_OVER_DEVICES(TraceTest);

} // namespace

// The comparison of the device's clock with the host's, on a device that is slow to answer: the result is as good as it claims.
#include <chrono>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "devices/shims/fault.h"
#include "devices/shims/shim.h"
#include "kernels/stamp.h"
#include "tests/support/devices.h"
#include "tests/support/tiny_engine.h"

namespace cgr_test {
namespace {

enum { kTries = 5, kSlowMs = 40 };

// The wait for a comparison's timestamp takes long, except in every kTries-th comparison.
struct SlowDevice {
  cgr__shim shim;
  bool slow, stamped;
  int32_t quick, comparisons, preloads; // quick: which of kTries; -1: none
};

int Before(cgr__shim *shim, const cgr__shim_call *call, uint64_t *) {
  SlowDevice &slow = *reinterpret_cast<SlowDevice *>(shim);
  slow.preloads += call->op == CGR__OP_PRELOAD && call->object == &cgr__kernel_stamp;
  if (call->op == CGR__OP_STREAM_SYNC && slow.stamped) {
    if (slow.slow && slow.comparisons % kTries != slow.quick)
      std::this_thread::sleep_for(std::chrono::milliseconds(kSlowMs));
    slow.comparisons++;
  }
  slow.stamped = call->op == CGR__OP_LAUNCH && call->object == &cgr__kernel_stamp;
  return CGR__DEVICE_OK;
}

class TimingClock : public ::testing::Test {
protected:
  void SetUp() override {
    static const cgr__shim_hooks hooks = { Before, nullptr, nullptr, nullptr };
    const DeviceParam device = HostParam(CGR_SCHEDULE_EARLIEST);
    cgr_device *inner = nullptr;
    cgr__shim *shim = nullptr;
    CGR_ASSERT_OK(cgr_device_open("host", &device.config, &inner));
    ASSERT_EQ(cgr__shim_open(sizeof(SlowDevice), inner, &hooks, &shim), CGR__DEVICE_OK);
    slow_ = reinterpret_cast<SlowDevice *>(shim);
    ASSERT_EQ(cgr__fault_open(&shim->head, &dev_), CGR__DEVICE_OK);
  }
  void TearDown() override { CGR_EXPECT_OK(cgr_device_close(dev_)); }
  // Compares the clocks anew, and returns the reported error.
  static uint64_t CompareNow(cgr_runtime *rt) {
    char head[4096];
    size_t length = 0;
    CGR_EXPECT_OK(cgr_runtime_trace_head(rt, head, sizeof head, &length));
    static const char name[] = "\"device_clock_error_ns\":";
    const char *at = std::strstr(head, name);
    EXPECT_NE(at, nullptr);
    return at ? std::stoull(at + std::strlen(name)) : 0;
  }
  static cgr_span StepOf(TinyEngine *engine) {
    cgr_span span = CGR_SPAN_INIT;
    int32_t count = 0;
    CGR_EXPECT_OK(cgr_runtime_timing(engine->rt, cgr_mark{ 0, 0, cgr_test::Completed(engine->rt) }, &span, 1, &count));
    return span;
  }
  SlowDevice *slow_ = nullptr;
  cgr_device *dev_ = nullptr;
};

// The host device's clock is the host's, so any offset of host_ns is the error of the comparison.
TEST_F(TimingClock, HostTimesAreAsGoodAsTheErrorSays) {
  Captured<TinyEngine> engine(dev_, CGR_MODE_FULL, 0, 1);
  slow_->slow = true;
  slow_->quick = -1;
  engine.Step();
  const uint64_t error = CompareNow(engine.rt);
  EXPECT_GE(error, kSlowMs * 1000000u / 2);
  const cgr_span step = StepOf(&engine);
  const int64_t off = int64_t(step.host_ns - step.begin_ns);
  EXPECT_LE(std::abs(off), int64_t(error) + 1);
  slow_->slow = false;
}

// Of several comparisons the shortest counts, whichever it is.
TEST_F(TimingClock, TheQuickestComparisonCounts) {
  TinyEngine engine(dev_, CGR_MODE_FULL, 0, 1);
  for (int32_t quick = 0; quick < kTries; quick++) {
    SCOPED_TRACE(quick);
    slow_->slow = true;
    slow_->quick = quick;
    slow_->comparisons = 0;
    EXPECT_LT(CompareNow(engine.rt), kSlowMs * 1000000u / 2);
    EXPECT_EQ(slow_->comparisons, int32_t(kTries));
    slow_->slow = false;
  }
}

// Calls that read a step compare once a second at most; each head and page of a trace compares anew.
TEST_F(TimingClock, IsComparedAgainAfterASecond) {
  Captured<TinyEngine> engine(dev_, CGR_MODE_FULL, 0, 1);
  engine.Step();
  const double begin = cgr__now_ms();
  CompareNow(engine.rt);
  slow_->comparisons = 0;
  StepOf(&engine);
  const int32_t soon = slow_->comparisons;
  if (cgr__now_ms() - begin < 1000.0) {
    EXPECT_EQ(soon, 0);
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(1001));
  slow_->comparisons = 0;
  StepOf(&engine);
  EXPECT_EQ(slow_->comparisons, int32_t(kTries));
}

// Creation loads the kernel of timestamps, only for a timed runtime; if loading fails, creation fails.
TEST_F(TimingClock, CreationLoadsItsKernel) {
  { TinyEngine engine(dev_, CGR_MODE_FULL, 0, 0); }
  EXPECT_EQ(slow_->preloads, 0);
  EXPECT_EQ(slow_->comparisons, 0);
  { TinyEngine engine(dev_, CGR_MODE_FULL, 0, 1); }
  EXPECT_EQ(slow_->preloads, 1);
  EXPECT_EQ(slow_->comparisons, int32_t(kTries));
  cgr_group group = CGR_GROUP_INIT;
  group.num_pages = 8;
  cgr_config config = CGR_CONFIG_INIT;
  config.device_handle = dev_;
  config.groups = &group;
  config.num_groups = 1;
  config.max_requests = 1;
  config.max_tokens = 8;
  config.max_seq_len = 32;
  config.timing = 1;
  uint64_t fired = 1, nth = 1;
  for (; fired > 0 && nth < 100; nth++) {
    const cgr__fault_plan plan = { CGR__OP_PRELOAD, nth, CGR__FAULT_ONCE, 0, CGR__DEVICE_FAILED, 77 };
    cgr__fault_set(dev_, &plan);
    cgr_runtime *rt = nullptr;
    const cgr_status status = cgr_runtime_create(&config, &rt);
    fired = cgr__fault_fired(dev_);
    EXPECT_EQ(status, fired > 0 ? CGR_ERROR_DEVICE : CGR_OK) << nth << ": " << cgr_last_message();
    CGR_EXPECT_OK(cgr_runtime_destroy(rt));
  }
  cgr__fault_set(dev_, nullptr);
  EXPECT_GT(nth, 2u);
}

// If the caller's struct is longer, elements are as far apart as the caller says.
TEST_F(TimingClock, SpansAreAsFarApartAsTheirSize) {
  struct Longer {
    cgr_span span;
    uint64_t more[2];
  };
  TinyEngine engine(dev_, CGR_MODE_FULL, 0, 2);
  int32_t count = 0;
  CGR_ASSERT_OK(engine.Capture());
  engine.Step();
  const uint64_t seq = cgr_test::Completed(engine.rt);
  std::vector<cgr_span> want(64, cgr_span CGR_SPAN_INIT);
  CGR_ASSERT_OK(cgr_runtime_timing(engine.rt, cgr_mark{ 0, 0, seq }, want.data(), 64, &count));
  ASSERT_GT(count, 4);
  std::vector<Longer> got(size_t(count) + 1, Longer{ CGR_SPAN_INIT, { 71, 72 } });
  for (Longer &element : got)
    element.span.size = sizeof(Longer);
  CGR_ASSERT_OK(cgr_runtime_timing(engine.rt, cgr_mark{ 0, 0, seq }, &got[0].span, count + 1, &count));
  for (size_t i = 0; i < size_t(count); i++) {
    EXPECT_EQ(got[i].span.size, sizeof(Longer));
    EXPECT_EQ(got[i].span.phase, want[i].phase);
    EXPECT_EQ(got[i].span.layer, want[i].layer);
    EXPECT_EQ(got[i].span.begin_ns, want[i].begin_ns);
    EXPECT_EQ(got[i].span.end_ns, want[i].end_ns);
    EXPECT_EQ(got[i].more[0], 71u);
    EXPECT_EQ(got[i].more[1], 72u);
  }
  EXPECT_EQ(got.back().span.begin_ns, 0u);
}

} // namespace
} // namespace cgr_test

// Each device call in turn fails inside an estimate, a capture, a self-test, an audit or a release: the call returns a status,
// leaves nothing half done, and works afterwards. How it fails goes round from call to call, and begins elsewhere in every run.
#include "devices/shims/fault.h"

#include <memory>

#include "tests/support/devices.h"
#include "tests/support/seed.h"
#include "tests/support/tiny_engine.h"

namespace cgr_test {
namespace {

class ColdFaults : public ::testing::TestWithParam<cgr_graph_mode> {
protected:
  void SetUp() override {
    ASSERT_EQ(cgr__fault_open(OpenDevice(HostParam(CGR_SCHEDULE_EARLIEST)), &dev_), CGR__DEVICE_OK);
    engine_ = std::make_unique<TinyEngine>(dev_, GetParam());
    rt_ = engine_->rt;
  }
  void TearDown() override {
    cgr__fault_set(dev_, nullptr);
    engine_.reset();
    CGR_EXPECT_OK(cgr_device_close(dev_));
  }
  // Everything is captured, right and usable.
  void ExpectWorking() {
    int32_t count = -1, kind = CGR_KIND_NONE;
    const cgr_capture capture = engine_->CaptureStruct();
    CGR_ASSERT_OK(cgr_runtime_capture(rt_, &capture));
    CGR_ASSERT_OK(engine_->SelfTest(&count));
    ASSERT_EQ(count, 0);
    engine_->StepOnce(&kind);
    ASSERT_NE(kind, CGR_KIND_NONE);
    engine_->ExpectCountersAddUp();
  }
  // Runs `call` with a fault at its n-th device call, for each n, `ways` times in different ways of failing.
  template <class Prepare, class Call> void AtEveryCall(uint64_t least, uint64_t ways, Prepare prepare, Call call) {
    static const int errors[] = { CGR__DEVICE_FAILED, CGR__DEVICE_NO_MEMORY, CGR__DEVICE_INVALID };
    const uint64_t seed = Seed();
    SCOPED_TRACE(Repeat(seed));
    for (uint64_t way = 0; way < ways; way++) {
      uint64_t nth = 0, fired = 1;
      while (fired > 0 && !HasFatalFailure()) {
        const uint64_t how = (seed + way + ++nth) % kWays;
        const int error = errors[how % 3], effect = how >= 3;
        cgr__fault_plan plan = { CGR__FAULT_ANY_OP, nth, CGR__FAULT_ONCE, effect, error, 77 };
        SCOPED_TRACE("call " + std::to_string(nth) + ", error " + std::to_string(error) + ", effect " + std::to_string(effect));
        prepare();
        cgr__fault_set(dev_, &plan);
        const cgr_status status = call();
        fired = cgr__fault_fired(dev_);
        cgr__fault_set(dev_, nullptr);
        ASSERT_NE(status, CGR_ERROR_DEAD) << cgr_last_message();
        ASSERT_TRUE(status == CGR_OK || cgr_last_message()[0] != 0);
        ASSERT_TRUE(fired > 0 || status == CGR_OK) << cgr_last_message();
        failures_ += status != CGR_OK;
        ASSERT_NO_FATAL_FAILURE(ExpectWorking());
      }
      ASSERT_GE(nth, least);
    }
  }
  enum { kWays = 6 }; // errors, with or without effect
  cgr_device *dev_ = nullptr;
  std::unique_ptr<TinyEngine> engine_;
  cgr_runtime *rt_ = nullptr;
  uint64_t failures_ = 0;
};

TEST_P(ColdFaults, OfAnEstimate) {
  AtEveryCall(
      20, 2, [&] { CGR_EXPECT_OK(cgr_runtime_release_graphs(rt_, 0, nullptr)); },
      [&] {
        const cgr_capture capture = engine_->CaptureStruct();
        cgr_capture_estimate estimate = CGR_CAPTURE_ESTIMATE_INIT;
        return cgr_runtime_estimate_capture(rt_, &capture, &estimate);
      });
  EXPECT_GT(failures_, 20u);
}

TEST_P(ColdFaults, OfASelfTest) {
  ExpectWorking();
  AtEveryCall(
      100, 1, [] {},
      [&] {
        int32_t count = 0;
        return engine_->SelfTest(&count);
      });
  EXPECT_GT(failures_, 50u);
}

TEST_P(ColdFaults, OfAnAudit) {
  engine_->RegisterAll();
  ExpectWorking();
  AtEveryCall(
      40, 2, [] {},
      [&] {
        int32_t count = 0;
        const cgr_status status = cgr_runtime_audit(rt_, nullptr, nullptr, 0, &count);
        EXPECT_EQ(count, 0);
        return status;
      });
  EXPECT_GT(failures_, 33u);
}

TEST_P(ColdFaults, OfARelease) {
  ExpectWorking();
  AtEveryCall(
      1, kWays, [] {}, [&] { return cgr_runtime_release_graphs(rt_, 0, nullptr); });
}

INSTANTIATE_TEST_SUITE_P(Modes, ColdFaults, ::testing::Values(CGR_MODE_FULL, CGR_MODE_PIECEWISE),
                         [](const auto &made) { return made.param == CGR_MODE_FULL ? "full" : "piecewise"; });

} // namespace
} // namespace cgr_test

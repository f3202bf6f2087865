// Waits and their timeouts: 0 polls, a positive timeout expires in about its time, -1 is the configured timeout.
#include <sched.h>

#include <chrono>

#include "tests/support/gate.h"
#include "tests/support/refused.h"

namespace cgr_test {
namespace {

class Wait : public EngineTest {
protected:
  void SetUpOnDevice() override { Make(0); }
  void TearDown() override { gate_.reset(); }
  void Make(int32_t wait_timeout_ms) {
    engine_.reset();
    engine_ = MakeCaptured(OptionsFor(GetParam(), [=](cgr_config *config) { config->wait_timeout_ms = wait_timeout_ms; }));
    row_ = engine_->Start(5, 1);
  }
  // A step that does not complete before the gate opens.
  void LaunchBehindTheGate() {
    gate_.reset(); // one at a time
    gate_ = std::make_unique<Gate>(engine_->dev, engine_->stream);
    ASSERT_NO_FATAL_FAILURE(engine_->PrepareAndLaunch(engine_->Chunks({ { row_, 2 } })));
  }
  double MillisecondsOf(int32_t timeout_ms, cgr_status expected, const Words &words = {}) {
    auto begin = std::chrono::steady_clock::now();
    cgr_status status = cgr_step_wait(engine_->rt, cgr_mark{ 0, 0, engine_->launched }, timeout_ms, nullptr);
    std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - begin;
    if (words.empty())
      EXPECT_EQ(std::string(cgr_status_name(status)), cgr_status_name(expected));
    else
      ExpectMessage(status, expected, words);
    return took.count();
  }
  bool HasThreads() const { return GetParam().HasThreads(); }
  std::unique_ptr<Gate> gate_; // goes first
  int32_t row_ = -1;
};

TEST_P(Wait, ZeroPolls) {
  for (int round = 0; round < 10 && !HasFatalFailure(); round++) {
    if (HasThreads())
      LaunchBehindTheGate();
    else
      ASSERT_NO_FATAL_FAILURE(engine_->PrepareAndLaunch(engine_->Chunks({ { row_, 2 } })));
    cgr_step_result result = CGR_STEP_RESULT_INIT;
    cgr_step_result untouched = result;
    int32_t polls = 0;
    cgr_status status = CGR_NOT_READY;
    while (status == CGR_NOT_READY && polls < 1000) {
      if (polls == 20 && gate_)
        gate_->Open();
      EXPECT_EQ(std::memcmp(&result, &untouched, sizeof result), 0) << "a step that is not ready gives no result";
      if (polls >= 20 && HasThreads())
        sched_yield(), polls--; // it completes in its own time
      status = cgr_step_wait(engine_->rt, cgr_mark{ 0, 0, engine_->launched }, 0, &result);
      polls++;
    }
    CGR_ASSERT_OK(status);
    EXPECT_EQ(result.num_requests, 1);
    // CGR_SCHEDULE_LATEST: each query runs one operation.
    EXPECT_TRUE(HasThreads() ? polls >= 20 : GetParam().config.host_schedule != CGR_SCHEDULE_LATEST || polls > 3) << polls;
    engine_->CheckAll();
  }
}

// A host without threads runs the step itself when it waits.
class TimedWait : public Wait {};

TEST_P(TimedWait, APositiveTimeoutExpiresInItsTime) {
  LaunchBehindTheGate();
  for (int32_t timeout : { 1, 30, 120 }) {
    double took = MillisecondsOf(timeout, CGR_NOT_READY, { "after " + std::to_string(timeout) + " ms" });
    EXPECT_GE(took, timeout - 1);
    EXPECT_LT(took, timeout + 5000); // a loaded machine
  }
  EXPECT_LT(MillisecondsOf(0, CGR_NOT_READY), 5000);
  gate_->Open();
  MillisecondsOf(20000, CGR_OK);
  engine_->CheckAll();
}

TEST_P(TimedWait, MinusOneIsTheConfiguredTimeout) {
  Make(70);
  LaunchBehindTheGate();
  double took = MillisecondsOf(-1, CGR_NOT_READY, { "after 70 ms" });
  EXPECT_GE(took, 69);
  EXPECT_LT(took, 5000);
  // Capture and warm-up wait for the steps in flight with this timeout, and change nothing when it expires.
  cgr_capture other = engine_->CaptureStruct();
  other.engine = nullptr; // must not be kept
  engine_->records.clear();
  ExpectMessage(cgr_runtime_capture(engine_->rt, &other), CGR_NOT_READY, { "70 ms" });
  ExpectMessage(cgr_runtime_warmup(engine_->rt, &other), CGR_NOT_READY, { "70 ms" });
  EXPECT_TRUE(engine_->records.empty());
  gate_->Open();
  MillisecondsOf(20000, CGR_OK);
  engine_->CheckAll();
  engine_->Step(engine_->Chunks({ { row_, 3 } })); // through the `record` that it has
}

TEST_P(TimedWait, EarlierStepsAreWaitedForAlone) {
  ASSERT_NO_FATAL_FAILURE(engine_->PrepareAndLaunch(engine_->Decode({ row_ })));
  uint64_t first = engine_->launched;
  engine_->check_outputs = false;
  LaunchBehindTheGate();
  CGR_EXPECT_OK(cgr_step_wait(engine_->rt, cgr_mark{ 0, 0, first }, -1, nullptr));
  EXPECT_EQ(cgr_test::Completed(engine_->rt), first);
  CGR_EXPECT(CGR_NOT_READY, cgr_step_wait(engine_->rt, cgr_mark{ 0, 0, engine_->launched }, 0, nullptr));
  gate_->Open();
  engine_->CheckAll();
}

TEST_P(Wait, UnknownStepsAndTimeoutsAreRefused) {
  cgr_step_result result = CGR_STEP_RESULT_INIT;
  for (int32_t timeout : { -2, -100, INT32_MIN })
    ExpectRefused(*engine_, CGR_ERROR_INVALID_ARGUMENT, { "timeout_ms is " + std::to_string(timeout) }, [&] {
      return cgr_step_wait(engine_->rt, cgr_mark{ 0, 0, engine_->launched }, timeout, &result);
    });
  for (uint64_t seq : { uint64_t{ 0 }, engine_->launched + 1, engine_->launched + 1000, UINT64_MAX })
    for (int32_t timeout : { 0, -1 })
      ExpectRefused(*engine_, CGR_ERROR_INVALID_ARGUMENT,
                    { "mark.seq is " + std::to_string(seq), "cgr_step_launch", "cgr_request_info.last" }, [&] {
                      return cgr_step_wait(engine_->rt, cgr_mark{ 0, 0, seq }, timeout, &result);
                    });
}

CGR_INSTANTIATE_OVER_DEVICES(Wait);
CGR_INSTANTIATE_OVER_DEVICES_WITH_THREADS(TimedWait);

} // namespace
} // namespace cgr_test

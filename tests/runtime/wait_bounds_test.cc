// A step that does not end: whatever waits for it gives up after wait_timeout_ms and can be called again.
#include "devices/shims/fault.h"
#include "tests/support/gate.h"
#include "tests/support/refused.h"

namespace cgr_test {
namespace {

class WaitBounds : public EngineTest {
protected:
  void SetUpOnDevice() override {
    EngineOptions options = OptionsFor(GetParam());
    ASSERT_EQ(cgr__fault_open(OpenDevice(GetParam()), &options.handle), CGR__DEVICE_OK);
    options.adjust = [](cgr_config *config) { config->wait_timeout_ms = 60; };
    engine_ = MakeCaptured(options);
    row_ = engine_->Start(5, 1);
  }
  void TearDown() override { gate_.reset(); }
  std::unique_ptr<Gate> gate_; // goes first
  int32_t row_ = -1;
};

TEST_P(WaitBounds, DestroyGivesUpAndDestroysNothing) {
  gate_ = std::make_unique<Gate>(engine_->dev, engine_->stream);
  ASSERT_NO_FATAL_FAILURE(engine_->PrepareAndLaunch(engine_->Chunks({ { row_, 2 } })));
  for (int n = 0; n < 2; n++)
    ExpectMessage(cgr_runtime_destroy(engine_->rt), CGR_NOT_READY,
                  { "cgr_runtime_destroy", "after 60 ms", "nothing is destroyed", "call again" });
  gate_->Open();
  CGR_EXPECT_OK(cgr_step_wait(engine_->rt, cgr_mark{ 0, 0, engine_->launched }, 20000, nullptr));
  engine_->CheckAll();
  engine_->Step(engine_->Decode({ row_ })); // it lives
}

// An error of the device that is not its loss.
TEST_P(WaitBounds, DestroyThatCannotWaitDestroysNothing) {
  const uint64_t step = engine_->launched;
  for (uint64_t nth : { 1, 2 }) { // of the runtime's own streams; the step's stream is not asked once it has completed
    const cgr__fault_plan plan = { CGR__OP_STREAM_QUERY, nth, CGR__FAULT_ONCE, 0, CGR__DEVICE_FAILED, 777 };
    cgr__fault_set(engine_->dev, &plan);
    ExpectMessage(cgr_runtime_destroy(engine_->rt), CGR_ERROR_DEVICE,
                  { "cgr_runtime_destroy: waiting for the steps in flight", "777" });
    EXPECT_EQ(cgr__fault_fired(engine_->dev), 1u);
    cgr__fault_set(engine_->dev, nullptr);
    EXPECT_EQ(cgr_test::Completed(engine_->rt), step);
  }
  engine_->Step(engine_->Decode({ row_ })); // it lives
}

// A wait that has timed out may still be armed when the runtime goes.
TEST_P(WaitBounds, DestroyAfterATimeOut) {
  gate_ = std::make_unique<Gate>(engine_->dev, engine_->stream);
  ASSERT_NO_FATAL_FAILURE(engine_->PrepareAndLaunch(engine_->Chunks({ { row_, 2 } })));
  CGR_EXPECT(CGR_NOT_READY, cgr_step_wait(engine_->rt, cgr_mark{ 0, 0, engine_->launched }, 30, nullptr));
  gate_->Open();
  engine_->Sync();
  engine_->leave_in_flight = true;
}

// After a failed launch it must be known what the device has done. If that does not come, the runtime says so and is dead.
TEST_P(WaitBounds, AFailedLaunchGivesUp) {
  CGR_ASSERT_OK(engine_->Prepare(engine_->Decode({ row_ })));
  gate_ = std::make_unique<Gate>(engine_->dev, engine_->stream);
  const cgr__fault_plan plan = { CGR__OP_EXEC_LAUNCH, 1, CGR__FAULT_ONCE, 1, CGR__DEVICE_FAILED, 777 };
  cgr__fault_set(engine_->dev, &plan);
  engine_->dead = true;
  ExpectMessage(cgr_step_launch(engine_->rt, &engine_->step, engine_->stream), CGR_ERROR_DEAD,
                { "launching the graph", "after 60 ms its stream is still not idle" });
  CGR_EXPECT(CGR_NOT_READY, cgr_runtime_destroy(engine_->rt)); // the step may still run
  gate_->Open();
  engine_->Sync();
}

CGR_INSTANTIATE_OVER_DEVICES_WITH_THREADS(WaitBounds);

} // namespace
} // namespace cgr_test

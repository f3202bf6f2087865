// Launches that the device refuses, or accepts despite reporting failure, while other steps are in flight: step numbers stay in
// agreement with the device, or the runtime reports that they do not and is dead.
#include "devices/shims/fault.h"
#include "runtime/runtime.h"
#include "tests/support/refused.h"

namespace cgr_test {
namespace {

class LostLaunch : public ::testing::TestWithParam<DeviceParam> {
protected:
  // An engine over a device whose calls can be made to fail.
  void SetUp() override {
    EngineOptions options = OptionsFor(GetParam());
    cgr_device *inner = nullptr;
    CGR_ASSERT_OK(cgr_device_open(GetParam().name.c_str(), &GetParam().config, &inner));
    ASSERT_EQ(cgr__fault_open(inner, &options.handle), CGR__DEVICE_OK);
    engine_ = std::make_unique<Engine>(options);
    CGR_ASSERT_OK(engine_->Capture());
    rows_ = { engine_->Start(5, 1), engine_->Start(17, 2), engine_->Start(31, 3) };
  }
  // The next launch of a graph fails, and nothing is enqueued. The device says so with INVALID alone.
  void FailALaunch(int error) {
    cgr__fault_plan plan = { CGR__OP_EXEC_LAUNCH, 1, CGR__FAULT_ONCE, 0, error, 777 };
    cgr__fault_set(engine_->dev, &plan);
    CGR_ASSERT_OK(engine_->Prepare(engine_->Decode(rows_)));
    CGR_EXPECT(error == CGR__DEVICE_INVALID ? CGR_ERROR_INVALID_ARGUMENT : CGR_ERROR_DEVICE, engine_->Launch());
    EXPECT_EQ(engine_->step.state, CGR_STEP_ABANDONED);
    EXPECT_EQ(cgr__fault_fired(engine_->dev), 1u);
    cgr__fault_set(engine_->dev, nullptr);
  }
  std::unique_ptr<Engine> engine_;
  std::vector<int32_t> rows_;
};

// The step in flight precedes the empty one that uses up the failed step's number.
TEST_P(LostLaunch, NumbersStayInOrder) {
  Engine &engine = *engine_;
  for (int error : { CGR__DEVICE_INVALID, CGR__DEVICE_FAILED })
    for (int round = 0; round < 4; round++) {
      SCOPED_TRACE("error " + std::to_string(error) + ", round " + std::to_string(round));
      engine.PrepareAndLaunch(engine.Decode(rows_));
      uint64_t before = engine.launched;
      ASSERT_NO_FATAL_FAILURE(FailALaunch(error));
      EXPECT_EQ(engine.step.mark.seq, before + 1);
      if (round % 2 == 0) { // asks for the stream of the empty step alone
        CGR_EXPECT_OK(cgr_step_wait(engine.rt, engine.step.mark, -1, nullptr));
      }
      engine.PrepareAndLaunch(engine.Decode(rows_));
      EXPECT_EQ(engine.launched, before + 2);
      engine.CheckAll();
      engine.CheckRows();
    }
}

// The device reports a failure but runs the step anyway. Its sampled tokens are discarded: the step's rows no longer have a last
// token and go back to their lengths; other rows keep theirs.
TEST_P(LostLaunch, AStepThatRanInSpiteOfItTakesTheLastTokensOfItsRowsAlone) {
  Engine &engine = *engine_;
  for (int round = 0; round < 3 && !HasFatalFailure(); round++) {
    SCOPED_TRACE(round);
    const std::vector<int32_t> lost = { rows_[0], rows_[1] };
    cgr__fault_plan plan = { CGR__OP_EXEC_LAUNCH, 1, CGR__FAULT_ONCE, 1, CGR__DEVICE_FAILED, 777 };
    std::vector<Item> items = engine.Decode(lost);
    cgr__fault_set(engine.dev, &plan);
    CGR_ASSERT_OK(engine.Prepare(items));
    CGR_EXPECT(CGR_ERROR_DEVICE, engine.Launch());
    EXPECT_EQ(cgr__fault_fired(engine.dev), 1u);
    cgr__fault_set(engine.dev, nullptr);
    EXPECT_EQ(engine.step.state, CGR_STEP_ABANDONED);
    cgr_step_result result = CGR_STEP_RESULT_INIT;
    CGR_EXPECT_OK(cgr_step_wait(engine.rt, engine.step.mark, -1, &result));
    for (int32_t row : lost) {
      engine.requests[row]->has_token = false;
      ExpectRefused(
          engine, CGR_ERROR_INVALID_ARGUMENT, { "row " + std::to_string(row), "CGR_TOKEN_LAST" },
          [&] {
            return engine.Prepare({ { row, { CGR_TOKEN_LAST } } });
          },
          1);
    }
    engine.CheckRows();
    items = engine.Decode({ rows_[2], rows_[0], rows_[1] });
    items[1].tokens = { 3 + round };
    items[2].tokens = { 4 };
    engine.Step(items);
    engine.Step(engine.Decode(rows_));
    engine.CheckCaches();
  }
}

// The same of the standing batch: its edits and tokens are there for the next one.
TEST_P(LostLaunch, AStandingStepThatRanInSpiteOfIt) {
  Engine &engine = *engine_;
  for (int32_t effect : { 0, 1 }) {
    SCOPED_TRACE(effect);
    for (int32_t row : rows_)
      engine.Reserve(row, 100);
    std::vector<Item> items = { { rows_[2], { 5 } }, { rows_[0], { CGR_TOKEN_LAST } }, { rows_[1], { CGR_TOKEN_LAST } } };
    engine.StepStanding(items);
    std::swap(items[0], items[1]);
    cgr__fault_plan plan = { CGR__OP_EXEC_LAUNCH, 1, CGR__FAULT_ONCE, effect, CGR__DEVICE_FAILED, 777 };
    cgr__fault_set(engine.dev, &plan);
    CGR_ASSERT_OK(engine.PrepareStanding(items));
    CGR_EXPECT(CGR_ERROR_DEVICE, engine.Launch());
    EXPECT_EQ(cgr__fault_fired(engine.dev), 1u);
    cgr__fault_set(engine.dev, nullptr);
    for (size_t i = 0; i < 3 && effect == 1; i++) {
      engine.requests[items[i].row]->has_token = false;
      if (items[i].tokens[0] != CGR_TOKEN_LAST)
        continue;
      CGR_EXPECT(CGR_ERROR_INVALID_ARGUMENT, engine.PrepareStandingAsIs(items));
      items[i].tokens = { 6 };
      CGR_EXPECT_OK(cgr_standing_update(engine.rt, nullptr, items[i].row, 1, items[i].tokens.data(), 0));
    }
    engine.CheckRows();
    CGR_ASSERT_OK(engine.PrepareStandingAsIs(items));
    CGR_ASSERT_OK(engine.Launch());
    engine.CheckAll();
    engine.StepStanding(engine.Decode(rows_));
    engine.CheckCaches();
  }
}

// A step that was not launched has taken a number: the next launch would run under a different number than the host believes.
TEST_P(LostLaunch, AStepThatWasNeverLaunchedEndsTheRuntime) {
  Engine &engine = *engine_;
  engine.Step(engine.Decode(rows_));
  cgr__exec *exec = nullptr;
  for (int32_t i = 0; i < cgr_test::NumKeys(engine.rt) && exec == nullptr; i++)
    exec = engine.rt->graphs.entry[i].exec;
  ASSERT_NE(exec, nullptr);
  ASSERT_EQ(engine.dev->ops->exec_launch(engine.dev, exec, engine.stream), CGR__DEVICE_OK);
  engine.Sync();
  engine.dead = true;
  std::vector<Item> items;
  for (int32_t row : rows_)
    items.push_back({ row, { 1 } });
  for (int n = 0; n < 2; n++) {
    CGR_EXPECT(CGR_ERROR_DEAD, engine.Prepare(items));
    EXPECT_NE(std::string(cgr_last_message()).find("has completed a step that was never launched"), std::string::npos);
  }
}

// The device accepts a launch but runs nothing: its stream is idle, and the step will never complete.
TEST_P(LostLaunch, AStepThatTheDeviceNeverRanEndsTheRuntime) {
  Engine &engine = *engine_;
  const cgr__device_ops *ops = engine.dev->ops;
  cgr__graph *nothing = nullptr;
  cgr__exec *exec = nullptr;
  cgr__graph_info info;
  ASSERT_EQ(ops->capture_begin(engine.dev, engine.stream), CGR__DEVICE_OK);
  ASSERT_EQ(ops->capture_end(engine.dev, engine.stream, &nothing), CGR__DEVICE_OK);
  ASSERT_EQ(ops->instantiate(engine.dev, nothing, &exec, &info), CGR__DEVICE_OK);
  engine.PrepareAndLaunch(engine.Decode(rows_));
  const uint64_t before = engine.launched;
  CGR_ASSERT_OK(engine.Prepare(engine.Decode(rows_)));
  ASSERT_EQ(engine.step.key.num_requests, 4);
  cgr__graph_entry *entry = &engine.rt->graphs.entry[2];
  ASSERT_EQ(entry->key.num_requests, 4);
  std::swap(entry->exec, exec);
  CGR_EXPECT_OK(engine.Launch());
  std::swap(entry->exec, exec);
  CGR_EXPECT_OK(cgr_step_wait(engine.rt, cgr_mark{ 0, 0, before }, -1, nullptr)); // that one did run
  engine.dead = true;
  const std::string cause = "the stream is idle and step " + std::to_string(before + 1) + " has not completed";
  ExpectMessage(cgr_step_wait(engine.rt, cgr_mark{ 0, 0, before + 1 }, 20000, nullptr), CGR_ERROR_DEAD, { cause });
  ExpectMessage(cgr_step_wait(engine.rt, cgr_mark{ 0, 0, before }, 0, nullptr), CGR_ERROR_DEAD, { cause });
  ExpectMessage(engine.Prepare({}), CGR_ERROR_DEAD, { cause });
  uint64_t completed = 7;
  ExpectMessage(cgr_runtime_completed(engine.rt, nullptr, &completed), CGR_ERROR_DEAD, { cause });
  EXPECT_EQ(completed, 7u);
  EXPECT_EQ(ops->exec_destroy(engine.dev, exec), CGR__DEVICE_OK);
  EXPECT_EQ(ops->graph_destroy(engine.dev, nothing), CGR__DEVICE_OK);
}

// The same if other calls have failed with their own codes in between.
TEST_P(LostLaunch, EveryCallOfADeadRuntimeTellsTheCodeOfItsDeath) {
  Engine &engine = *engine_;
  cgr_runtime *rt = engine.rt;
  cgr__fault_plan death = { CGR__OP_EXEC_LAUNCH, 1, CGR__FAULT_ONCE, 0, CGR__DEVICE_DEAD, 777 };
  CGR_ASSERT_OK(engine.Prepare(engine.Decode(rows_)));
  engine.dead = true;
  cgr__fault_set(engine.dev, &death);
  CGR_EXPECT(CGR_ERROR_DEAD, engine.Launch());
  EXPECT_EQ(cgr_last_device_code(), 777);
  cgr_request_info info = CGR_REQUEST_INFO_INIT;
  cgr_buffer_view view = CGR_BUFFER_VIEW_INIT;
  int32_t row = -1, page = 3;
  const std::vector<std::function<cgr_status()>> calls = {
    [&] { return engine.Prepare({}); },
    [&] { return cgr_step_launch(rt, &engine.step, engine.stream); },
    [&] { return cgr_step_cancel(rt, &engine.step); },
    [&] {
      return cgr_step_wait(rt, cgr_mark{ 0, 0, 1 }, 0, nullptr);
    },
    [&] { return cgr_runtime_flush(rt, nullptr, nullptr, engine.stream); },
    [&] { return engine.Capture(); },
    [&] { return engine.Warmup(); },
    [&] { return cgr_request_open(rt, 1, &row); },
    [&] { return cgr_request_close(rt, rows_[0]); },
    [&] { return cgr_request_set_pages(rt, rows_[0], 0, 1, &page, 1); },
    [&] { return cgr_request_get_info(rt, rows_[0], &info); },
    [&] { return cgr_buffer_get(rt, nullptr, CGR_BUFFER_COUNTS, 0, &view); },
  };
  for (size_t i = 0; i < calls.size(); i++) {
    SCOPED_TRACE("call " + std::to_string(i));
    cgr__fault_plan other = { CGR__OP_STREAM_CREATE, 1, CGR__FAULT_ONCE, 0, CGR__DEVICE_FAILED, 5 };
    cudaStream_t none = nullptr;
    cgr__fault_set(engine.dev, &other);
    CGR_EXPECT(CGR_ERROR_DEVICE, cgr_stream_create(engine.dev, &none));
    ASSERT_EQ(cgr_last_device_code(), 5);
    ExpectMessage(calls[i](), CGR_ERROR_DEAD, { "code 777" });
    EXPECT_EQ(cgr_last_device_code(), 777);
  }
}

CGR_INSTANTIATE_OVER_HOST_DEVICES(LostLaunch);

} // namespace
} // namespace cgr_test

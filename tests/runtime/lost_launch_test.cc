// Launches that the device refuses, or accepts despite reporting failure, while other steps are in flight: step numbers stay in
// agreement with the device, or the runtime reports that they do not and is dead.
#include "devices/shims/fault.h"
#include "runtime/runtime.h"
#include "tests/support/refused.h"

namespace cgr_test {
namespace {

class LostLaunch : public EngineTest {
protected:
  // An engine over a device whose calls can be made to fail.
  void SetUp() override {
    EngineOptions options = OptionsFor(GetParam());
    ASSERT_EQ(cgr__fault_open(OpenDevice(GetParam()), &options.handle), CGR__DEVICE_OK);
    engine_ = MakeCaptured(options);
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
  std::vector<int32_t> rows_;
};

// The step in flight precedes the empty one that uses up the failed step's number.
TEST_P(LostLaunch, NumbersStayInOrder) {
  for (int error : { CGR__DEVICE_INVALID, CGR__DEVICE_FAILED })
    for (int round = 0; round < 4; round++) {
      SCOPED_TRACE("error " + std::to_string(error) + ", round " + std::to_string(round));
      engine_->PrepareAndLaunch(engine_->Decode(rows_));
      uint64_t before = engine_->launched;
      ASSERT_NO_FATAL_FAILURE(FailALaunch(error));
      EXPECT_EQ(engine_->step.mark.seq, before + 1);
      if (round % 2 == 0) { // asks for the stream of the empty step alone
        CGR_EXPECT_OK(cgr_step_wait(engine_->rt, engine_->step.mark, -1, nullptr));
      }
      engine_->PrepareAndLaunch(engine_->Decode(rows_));
      EXPECT_EQ(engine_->launched, before + 2);
      engine_->CheckAll();
      engine_->CheckRows();
    }
}

// The device reports a failure but runs the step anyway. Its sampled tokens are discarded: the step's rows no longer have a last
// token and go back to their lengths; other rows keep theirs.
TEST_P(LostLaunch, AStepThatRanInSpiteOfItTakesTheLastTokensOfItsRowsAlone) {
  for (int round = 0; round < 3 && !HasFatalFailure(); round++) {
    SCOPED_TRACE(round);
    const std::vector<int32_t> lost = { rows_[0], rows_[1] };
    cgr__fault_plan plan = { CGR__OP_EXEC_LAUNCH, 1, CGR__FAULT_ONCE, 1, CGR__DEVICE_FAILED, 777 };
    std::vector<Item> items = engine_->Decode(lost);
    cgr__fault_set(engine_->dev, &plan);
    CGR_ASSERT_OK(engine_->Prepare(items));
    CGR_EXPECT(CGR_ERROR_DEVICE, engine_->Launch());
    EXPECT_EQ(cgr__fault_fired(engine_->dev), 1u);
    cgr__fault_set(engine_->dev, nullptr);
    EXPECT_EQ(engine_->step.state, CGR_STEP_ABANDONED);
    cgr_step_result result = CGR_STEP_RESULT_INIT;
    CGR_EXPECT_OK(cgr_step_wait(engine_->rt, engine_->step.mark, -1, &result));
    EXPECT_EQ(result.num_requests, 0);
    EXPECT_EQ(result.rows, nullptr);
    for (int32_t row : lost) {
      engine_->requests[row]->has_token = false;
      ExpectItemsRefused(*engine_, CGR_ERROR_INVALID_ARGUMENT, { "row " + std::to_string(row), "CGR_TOKEN_LAST" },
                         { { row, { CGR_TOKEN_LAST } } });
    }
    engine_->CheckRows();
    items = engine_->Decode({ rows_[2], rows_[0], rows_[1] });
    items[1].tokens = { 3 + round };
    items[2].tokens = { 4 };
    engine_->Step(items);
    engine_->Step(engine_->Decode(rows_));
    engine_->CheckCaches();
  }
}

// The same of the standing batch: its edits and tokens are there for the next one.
TEST_P(LostLaunch, AStandingStepThatRanInSpiteOfIt) {
  for (int32_t effect : { 0, 1 }) {
    SCOPED_TRACE(effect);
    for (int32_t row : rows_)
      engine_->Reserve(row, 100);
    std::vector<Item> items = { { rows_[2], { 5 } }, { rows_[0], { CGR_TOKEN_LAST } }, { rows_[1], { CGR_TOKEN_LAST } } };
    engine_->StepStanding(items);
    std::swap(items[0], items[1]);
    cgr__fault_plan plan = { CGR__OP_EXEC_LAUNCH, 1, CGR__FAULT_ONCE, effect, CGR__DEVICE_FAILED, 777 };
    cgr__fault_set(engine_->dev, &plan);
    CGR_ASSERT_OK(engine_->PrepareStanding(items));
    CGR_EXPECT(CGR_ERROR_DEVICE, engine_->Launch());
    EXPECT_EQ(cgr__fault_fired(engine_->dev), 1u);
    cgr__fault_set(engine_->dev, nullptr);
    for (size_t i = 0; i < 3 && effect == 1; i++) {
      engine_->requests[items[i].row]->has_token = false;
      if (items[i].tokens[0] != CGR_TOKEN_LAST)
        continue;
      CGR_EXPECT(CGR_ERROR_INVALID_ARGUMENT, engine_->PrepareStandingAsIs(items));
      items[i].tokens = { 6 };
      CGR_EXPECT_OK(cgr_standing_update(engine_->rt, nullptr, items[i].row, 1, items[i].tokens.data(), 0));
    }
    engine_->CheckRows();
    CGR_ASSERT_OK(engine_->PrepareStandingAsIs(items));
    CGR_ASSERT_OK(engine_->Launch());
    engine_->CheckAll();
    engine_->StepStanding(engine_->Decode(rows_));
    engine_->CheckCaches();
  }
}

// A step that was not launched has taken a number: the next launch would run under a different number than the host believes.
TEST_P(LostLaunch, AStepThatWasNeverLaunchedEndsTheRuntime) {
  engine_->Step(engine_->Decode(rows_));
  cgr__exec *exec = nullptr;
  for (int32_t i = 0; i < cgr_test::NumKeys(engine_->rt) && exec == nullptr; i++)
    exec = engine_->rt->graphs.entry[i].exec;
  ASSERT_NE(exec, nullptr);
  ASSERT_EQ(engine_->dev->ops->exec_launch(engine_->dev, exec, engine_->stream), CGR__DEVICE_OK);
  engine_->Sync();
  engine_->dead = true;
  std::vector<Item> items;
  for (int32_t row : rows_)
    items.push_back({ row, { 1 } });
  for (int n = 0; n < 2; n++) {
    CGR_EXPECT(CGR_ERROR_DEAD, engine_->Prepare(items));
    EXPECT_NE(std::string(cgr_last_message()).find("has completed a step that was never launched"), std::string::npos);
  }
}

// Launches past the runtime by which a later step has written its result where that of the step before is read.
TEST_P(LostLaunch, ALaterResultInAStepsPlaceEndsTheRuntime) {
  engine_->PrepareAndLaunch(engine_->Decode(rows_));
  engine_->Sync();
  cgr_step_result result = CGR_STEP_RESULT_INIT;
  auto *record = const_cast<cgr__result_record *>(cgr__ring_result(&engine_->rt->lane.ring, engine_->launched));
  ASSERT_EQ(record->seq, engine_->launched);
  record->seq++;
  engine_->dead = true;
  ExpectMessage(cgr_step_wait(engine_->rt, engine_->step.mark, -1, &result), CGR_ERROR_DEAD,
                { "cgr_step_wait", "is in the place of its result", "never prepared" });
  EXPECT_EQ(result.mark.seq, 0u) << "nothing is told";
}

// The device accepts a launch but runs nothing: its stream is idle, and the step will never complete.
TEST_P(LostLaunch, AStepThatTheDeviceNeverRanEndsTheRuntime) {
  const cgr__device_ops *ops = engine_->dev->ops;
  cgr__graph *nothing = nullptr;
  cgr__exec *exec = nullptr;
  cgr__graph_info info;
  ASSERT_EQ(ops->capture_begin(engine_->dev, engine_->stream), CGR__DEVICE_OK);
  ASSERT_EQ(ops->capture_end(engine_->dev, engine_->stream, &nothing), CGR__DEVICE_OK);
  ASSERT_EQ(ops->instantiate(engine_->dev, nothing, &exec, &info), CGR__DEVICE_OK);
  engine_->PrepareAndLaunch(engine_->Decode(rows_));
  const uint64_t before = engine_->launched;
  CGR_ASSERT_OK(engine_->Prepare(engine_->Decode(rows_)));
  ASSERT_EQ(engine_->step.key.num_requests, 4);
  cgr__graph_entry *entry = &engine_->rt->graphs.entry[2];
  ASSERT_EQ(entry->key.num_requests, 4);
  std::swap(entry->exec, exec);
  CGR_EXPECT_OK(engine_->Launch());
  std::swap(entry->exec, exec);
  CGR_EXPECT_OK(cgr_step_wait(engine_->rt, cgr_mark{ 0, 0, before }, -1, nullptr)); // that one did run
  engine_->dead = true;
  const std::string cause = "the stream is idle and step " + std::to_string(before + 1) + " has not completed";
  ExpectMessage(cgr_step_wait(engine_->rt, cgr_mark{ 0, 0, before + 1 }, 20000, nullptr), CGR_ERROR_DEAD, { cause });
  ExpectMessage(cgr_step_wait(engine_->rt, cgr_mark{ 0, 0, before }, 0, nullptr), CGR_ERROR_DEAD, { cause });
  ExpectMessage(engine_->Prepare({}), CGR_ERROR_DEAD, { cause });
  uint64_t completed = 7;
  ExpectMessage(cgr_runtime_completed(engine_->rt, nullptr, &completed), CGR_ERROR_DEAD, { cause });
  EXPECT_EQ(completed, 7u);
  EXPECT_EQ(ops->exec_destroy(engine_->dev, exec), CGR__DEVICE_OK);
  EXPECT_EQ(ops->graph_destroy(engine_->dev, nothing), CGR__DEVICE_OK);
}

// The same if other calls have failed with their own codes in between.
TEST_P(LostLaunch, EveryCallOfADeadRuntimeTellsTheCodeOfItsDeath) {
  cgr_runtime *rt = engine_->rt;
  cgr__fault_plan death = { CGR__OP_EXEC_LAUNCH, 1, CGR__FAULT_ONCE, 0, CGR__DEVICE_DEAD, 777 };
  CGR_ASSERT_OK(engine_->Prepare(engine_->Decode(rows_)));
  engine_->dead = true;
  cgr__fault_set(engine_->dev, &death);
  CGR_EXPECT(CGR_ERROR_DEAD, engine_->Launch());
  EXPECT_EQ(cgr_last_device_code(), 777);
  cgr_request_info info = CGR_REQUEST_INFO_INIT;
  cgr_buffer_view view = CGR_BUFFER_VIEW_INIT;
  int32_t row = -1, page = 3;
  const std::vector<std::function<cgr_status()>> calls = {
    [&] { return engine_->Prepare({}); },
    [&] { return cgr_step_launch(rt, &engine_->step, engine_->stream); },
    [&] { return cgr_step_cancel(rt, &engine_->step); },
    [&] {
      return cgr_step_wait(rt, cgr_mark{ 0, 0, 1 }, 0, nullptr);
    },
    [&] { return cgr_runtime_flush(rt, nullptr, nullptr, engine_->stream); },
    [&] { return engine_->Capture(); },
    [&] { return engine_->Warmup(); },
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
    cgr__fault_set(engine_->dev, &other);
    CGR_EXPECT(CGR_ERROR_DEVICE, cgr_stream_create(engine_->dev, &none));
    ASSERT_EQ(cgr_last_device_code(), 5);
    ExpectMessage(calls[i](), CGR_ERROR_DEAD, { "code 777" });
    EXPECT_EQ(cgr_last_device_code(), 777);
  }
}

CGR_INSTANTIATE_OVER_HOST_DEVICES(LostLaunch);

} // namespace
} // namespace cgr_test

// One step is prepared at a time, and a step may be launched or cancelled once, on the runtime that prepared it.
#include "tests/support/gate.h"
#include "tests/support/refused.h"

namespace cgr_test {
namespace {

class StepState : public ThreeRequests {};

TEST_P(StepState, OneStepIsPreparedAtATime) {
  Engine &engine = *engine_;
  cgr_capture capture = engine.CaptureStruct();
  CGR_ASSERT_OK(engine.Prepare(engine.Decode(rows_)));
  EXPECT_EQ(engine.step.state, CGR_STEP_PREPARED);
  EXPECT_EQ(engine.step.mark.seq, 0u);
  cgr_step other = CGR_STEP_INIT;
  cgr_batch empty = CGR_BATCH_INIT;
  Refused(
      CGR_ERROR_STATE, { "prepared" }, [&] { return cgr_step_prepare(engine.rt, &empty, &other); }, 1);
  Refused(CGR_ERROR_STATE, { "prepared" }, [&] { return cgr_runtime_capture(engine.rt, &capture); });
  Refused(CGR_ERROR_STATE, { "prepared" }, [&] { return cgr_runtime_warmup(engine.rt, &capture); });
  Refused(CGR_ERROR_STATE, { "prepared" }, [&] { return cgr_runtime_flush(engine.rt, nullptr, nullptr, engine.stream); });
  CGR_ASSERT_OK(engine.Launch());
  EXPECT_EQ(engine.step.state, CGR_STEP_LAUNCHED);
  engine.CheckAll();
}

TEST_P(StepState, RowsOfThePreparedStepKeepTheirLengthAndPages) {
  Engine &engine = *engine_;
  std::string row = "row " + std::to_string(rows_[1]);
  int32_t outside = engine.Start(20, 9);
  CGR_ASSERT_OK(engine.Prepare(engine.Decode(rows_)));
  Refused(CGR_ERROR_STATE, { "cgr_request_close", row }, [&] { return cgr_request_close(engine.rt, rows_[1]); });
  Refused(CGR_ERROR_STATE, { "cgr_request_set_length", row }, [&] { return cgr_request_set_length(engine.rt, rows_[1], 3); });
  Refused(CGR_ERROR_STATE, { "cgr_request_drop_pages", row },
          [&] { return cgr_request_drop_pages(engine.rt, rows_[1], 0, 0, 1); });
  const std::vector<int32_t> has = engine.requests[rows_[1]]->pages;
  std::vector<int32_t> replaced = { has[0], 90 };
  ASSERT_EQ(has.size(), 2u);
  for (int32_t count : { 1, 2 }) // the second page alone, and both
    Refused(CGR_ERROR_STATE, { "cgr_request_set_pages", row },
            [&] { return cgr_request_set_pages(engine.rt, rows_[1], 0, 2 - count, &replaced[size_t(2 - count)], count); });
  CGR_EXPECT_OK(cgr_request_set_pages(engine.rt, rows_[1], 0, 0, has.data(), 2)); // those that it has
  // Other rows may change, and these may get more.
  int32_t moved = 91;
  CGR_EXPECT_OK(cgr_request_set_pages(engine.rt, outside, 0, 0, &moved, 1));
  CGR_EXPECT_OK(cgr_request_set_pages(engine.rt, outside, 0, 0, engine.requests[outside]->pages.data(), 1));
  engine.SetLength(outside, 7);
  engine.DropPages(outside, 1, 1);
  engine.Close(outside);
  engine.Reserve(rows_[1], 64);
  CGR_ASSERT_OK(engine.Launch());
  engine.CheckAll();
  engine.CheckRows();
}

TEST_P(StepState, AStepIsLaunchedOrCancelledOnce) {
  Engine &engine = *engine_;
  cgr_step never = CGR_STEP_INIT;
  auto refused = [&](cgr_step step, const std::string &cause) {
    cgr_step before = step;
    const std::string words = ": step " + cause + " (state ";
    Refused(CGR_ERROR_STATE, { "cgr_step_launch" + words }, [&] { return cgr_step_launch(engine.rt, &step, engine.stream); });
    Refused(CGR_ERROR_STATE, { "cgr_step_cancel" + words }, [&] { return cgr_step_cancel(engine.rt, &step); });
    EXPECT_EQ(std::memcmp(&before, &step, sizeof step), 0);
  };
  refused(never, "has never been prepared");
  CGR_ASSERT_OK(engine.Prepare(engine.Decode(rows_)));
  refused(never, "has never been prepared");
  cgr_step prepared = engine.step;
  CGR_ASSERT_OK(engine.Launch());
  refused(prepared, "is a copy of one that was launched or cancelled");
  refused(engine.step, "was launched already");
  engine.CheckAll();
  CGR_ASSERT_OK(engine.Prepare(engine.Decode(rows_)));
  cgr_step cancelled = engine.step;
  CGR_ASSERT_OK(engine.Cancel());
  EXPECT_EQ(engine.step.state, CGR_STEP_CANCELLED);
  refused(cancelled, "is a copy of one that was launched or cancelled");
  refused(engine.step, "was cancelled");
  CGR_ASSERT_OK(engine.Prepare(engine.Decode(rows_)));
  refused(prepared, "is a copy of one that was launched or cancelled"); // older ones
  refused(cancelled, "is a copy of one that was launched or cancelled");
  CGR_ASSERT_OK(engine.Launch());
  engine.CheckAll();
}

// A step belongs to the runtime that prepared it, even if another runtime has prepared just as many.
TEST_P(StepState, AStepOfAnotherRuntimeIsRefused) {
  Engine &a = *engine_;
  Engine b(OptionsFor(GetParam()));
  CGR_ASSERT_OK(b.Capture());
  std::vector<int32_t> rows = { b.Start(5, 1), b.Start(17, 2), b.Start(31, 3) };
  CGR_ASSERT_OK(a.Prepare(a.Decode(rows_)));
  auto refused = [&](cgr_step step) {
    ExpectRefused(b, CGR_ERROR_STATE, { "cgr_step_launch: step was prepared by another runtime", "expected" },
                  [&] { return cgr_step_launch(b.rt, &step, b.stream); });
    ExpectRefused(b, CGR_ERROR_STATE, { "cgr_step_cancel: step was prepared by another runtime", "expected" },
                  [&] { return cgr_step_cancel(b.rt, &step); });
  };
  refused(a.step);
  CGR_ASSERT_OK(b.Prepare(b.Decode(rows)));
  refused(a.step);
  CGR_ASSERT_OK(a.Launch());
  CGR_ASSERT_OK(b.Launch());
  a.CheckAll();
  b.CheckAll();
}

// The counters do not depend on anything that the caller could have changed.
TEST_P(StepState, WhatTheCallerWritesIntoAStepIsNotCounted) {
  Engine &engine = *engine_;
  uint64_t before = engine.Stats().bytes_staged;
  CGR_ASSERT_OK(engine.Prepare(engine.Decode(rows_)));
  uint64_t bytes = engine.step.bytes_staged;
  engine.step.bytes_staged = 1u << 31;
  CGR_ASSERT_OK(engine.Launch());
  engine.CheckAll();
  EXPECT_EQ(engine.Stats().bytes_staged, before + bytes);
}

TEST_P(StepState, NoStreamOrADefaultOneLeavesTheStepPrepared) {
  Engine &engine = *engine_;
  for (const std::vector<Item> &items : { engine.Decode(rows_), EagerItems() }) {
    CGR_ASSERT_OK(engine.Prepare(items));
    for (uintptr_t bad : { 0, 1, 2 })
      Refused(CGR_ERROR_INVALID_ARGUMENT, { "stream" },
              [&] { return cgr_step_launch(engine.rt, &engine.step, reinterpret_cast<cudaStream_t>(bad)); });
    EXPECT_EQ(engine.step.state, CGR_STEP_PREPARED);
    CGR_ASSERT_OK(engine.Launch());
    engine.CheckAll();
  }
}

CGR_INSTANTIATE_OVER_FEW_DEVICES(StepState);

// Streams that are gone, of no device, or in a capture of the engine's own; on the host device, which tells.
class BadStreams : public ThreeRequests {
protected:
  void SetUp() override {
    EngineOptions options = OptionsFor(GetParam());
    options.validation = false; // it would report what is done here on purpose
    Make(options);
  }
  void LaunchRefused(cgr_status status, cudaStream_t bad) {
    Refused(status, { "stream" }, [&] { return cgr_step_launch(engine_->rt, &engine_->step, bad); });
    EXPECT_EQ(engine_->step.state, CGR_STEP_PREPARED);
  }
};

TEST_P(BadStreams, OneThatIsGoneOrUnknownLeavesTheStepPrepared) {
  Engine &engine = *engine_;
  cudaStream_t gone = nullptr;
  static long long junk[64];
  CGR_ASSERT_OK(cgr_stream_create(engine.dev, &gone));
  CGR_ASSERT_OK(cgr_stream_destroy(engine.dev, gone));
  for (const std::vector<Item> &items : { engine.Decode(rows_), EagerItems() }) {
    CGR_ASSERT_OK(engine.Prepare(items));
    for (cudaStream_t bad : { gone, reinterpret_cast<cudaStream_t>(junk) })
      LaunchRefused(CGR_ERROR_INVALID_ARGUMENT, bad);
    CGR_ASSERT_OK(engine.Launch());
    engine.CheckAll();
  }
}

TEST_P(BadStreams, OneThatCapturesLeavesTheStepPreparedAndTheCaptureWhole) {
  Engine &engine = *engine_;
  const cgr__device_ops *ops = engine.dev->ops;
  cudaStream_t capturing = nullptr;
  CGR_ASSERT_OK(cgr_stream_create(engine.dev, &capturing));
  for (const std::vector<Item> &items : { engine.Decode(rows_), EagerItems() }) {
    cgr__graph *graph = nullptr;
    CGR_ASSERT_OK(engine.Prepare(items));
    ASSERT_EQ(ops->capture_begin(engine.dev, capturing), CGR__DEVICE_OK);
    LaunchRefused(CGR_ERROR_CAPTURE, capturing);
    CGR_EXPECT_OK(cgr_fill(engine.dev, engine.state.next_tokens, 0, 4, capturing));
    EXPECT_EQ(ops->capture_end(engine.dev, capturing, &graph), CGR__DEVICE_OK);
    EXPECT_EQ(ops->graph_destroy(engine.dev, graph), CGR__DEVICE_OK);
    CGR_ASSERT_OK(engine.Launch());
    engine.CheckAll();
  }
  CGR_ASSERT_OK(cgr_stream_destroy(engine.dev, capturing));
}

// A step on another stream is ordered after the last one by an event, which must not be recorded into a capture.
// Where the last step has not completed by then.
class BadLastStream : public BadStreams {};

TEST_P(BadLastStream, ThatCapturesLeavesTheStepPreparedAndTheCaptureWhole) {
  Engine &engine = *engine_;
  const cgr__device_ops *ops = engine.dev->ops;
  cudaStream_t other = nullptr;
  cgr__graph *graph = nullptr;
  CGR_ASSERT_OK(cgr_stream_create(engine.dev, &other));
  std::unique_ptr<Gate> gate;
  if (GetParam().HasThreads())
    gate = std::make_unique<Gate>(engine.dev, engine.stream);
  engine.upload = engine.check_outputs = false;
  ASSERT_NO_FATAL_FAILURE(engine.PrepareAndLaunch(engine.Decode(rows_)));
  CGR_ASSERT_OK(engine.Prepare(engine.Decode(rows_)));
  ASSERT_EQ(ops->capture_begin(engine.dev, engine.stream), CGR__DEVICE_OK);
  LaunchRefused(CGR_ERROR_CAPTURE, other);
  EXPECT_EQ(ops->capture_end(engine.dev, engine.stream, &graph), CGR__DEVICE_OK);
  EXPECT_EQ(ops->graph_destroy(engine.dev, graph), CGR__DEVICE_OK);
  gate.reset();
  CGR_ASSERT_OK(engine.LaunchOn(other));
  engine.CheckAll();
  CGR_ASSERT_OK(cgr_stream_destroy(engine.dev, other));
}

CGR_INSTANTIATE_OVER_HOST_DEVICES(BadStreams);
INSTANTIATE_TEST_SUITE_P(Devices, BadLastStream, ::testing::Values(HostParam(CGR_SCHEDULE_ASYNC), HostParam(CGR_SCHEDULE_LATEST)),
                         DeviceLabel);

} // namespace
} // namespace cgr_test

// One step is prepared at a time, and a step may be launched or cancelled once, on the runtime that prepared it.
#include "tests/support/gate.h"
#include "tests/support/refused.h"

namespace cgr_test {
namespace {

class StepState : public ThreeRequests {};

TEST_P(StepState, OneStepIsPreparedAtATime) {
  cgr_capture capture = engine_->CaptureStruct();
  CGR_ASSERT_OK(engine_->Prepare(engine_->Decode(rows_)));
  EXPECT_EQ(engine_->step.state, CGR_STEP_PREPARED);
  EXPECT_EQ(engine_->step.mark.seq, 0u);
  cgr_step other = CGR_STEP_INIT;
  cgr_batch empty = CGR_BATCH_INIT;
  ExpectPrepareRefused(*engine_, CGR_ERROR_STATE, { "prepared" }, [&] { return cgr_step_prepare(engine_->rt, &empty, &other); });
  Refused(CGR_ERROR_STATE, { "prepared" }, [&] { return cgr_runtime_capture(engine_->rt, &capture); });
  Refused(CGR_ERROR_STATE, { "prepared" }, [&] { return cgr_runtime_warmup(engine_->rt, &capture); });
  Refused(CGR_ERROR_STATE, { "prepared" }, [&] { return cgr_runtime_flush(engine_->rt, nullptr, nullptr, engine_->stream); });
  CGR_ASSERT_OK(engine_->Launch());
  EXPECT_EQ(engine_->step.state, CGR_STEP_LAUNCHED);
  engine_->CheckAll();
}

TEST_P(StepState, RowsOfThePreparedStepKeepTheirLengthAndPages) {
  std::string row = "row " + std::to_string(rows_[1]);
  int32_t outside = engine_->Start(20, 9);
  CGR_ASSERT_OK(engine_->Prepare(engine_->Decode(rows_)));
  Refused(CGR_ERROR_STATE, { "cgr_request_close", row }, [&] { return cgr_request_close(engine_->rt, rows_[1]); });
  Refused(CGR_ERROR_STATE, { "cgr_request_set_length", row }, [&] { return cgr_request_set_length(engine_->rt, rows_[1], 3); });
  Refused(CGR_ERROR_STATE, { "cgr_request_drop_pages", row },
          [&] { return cgr_request_drop_pages(engine_->rt, rows_[1], 0, 0, 1); });
  const std::vector<int32_t> has = engine_->requests[rows_[1]]->pages;
  std::vector<int32_t> replaced = { has[0], 90 };
  ASSERT_EQ(has.size(), 2u);
  for (int32_t count : { 1, 2 }) // the second page alone, and both
    Refused(CGR_ERROR_STATE, { "cgr_request_set_pages", row },
            [&] { return cgr_request_set_pages(engine_->rt, rows_[1], 0, 2 - count, &replaced[size_t(2 - count)], count); });
  CGR_EXPECT_OK(cgr_request_set_pages(engine_->rt, rows_[1], 0, 0, has.data(), 2)); // those that it has
  // Other rows may change, and these may get more.
  int32_t moved = 91;
  CGR_EXPECT_OK(cgr_request_set_pages(engine_->rt, outside, 0, 0, &moved, 1));
  CGR_EXPECT_OK(cgr_request_set_pages(engine_->rt, outside, 0, 0, engine_->requests[outside]->pages.data(), 1));
  engine_->SetLength(outside, 7);
  engine_->DropPages(outside, 1, 1);
  engine_->Close(outside);
  engine_->Reserve(rows_[1], 64);
  CGR_ASSERT_OK(engine_->Launch());
  engine_->CheckAll();
  engine_->CheckRows();
}

TEST_P(StepState, AStepIsLaunchedOrCancelledOnce) {
  cgr_step never = CGR_STEP_INIT;
  auto refused = [&](cgr_step step, const std::string &cause) {
    cgr_step before = step;
    const std::string words = ": step " + cause + " (state ";
    Refused(CGR_ERROR_STATE, { "cgr_step_launch" + words }, [&] { return cgr_step_launch(engine_->rt, &step, engine_->stream); });
    Refused(CGR_ERROR_STATE, { "cgr_step_cancel" + words }, [&] { return cgr_step_cancel(engine_->rt, &step); });
    EXPECT_EQ(std::memcmp(&before, &step, sizeof step), 0);
  };
  refused(never, "has never been prepared");
  CGR_ASSERT_OK(engine_->Prepare(engine_->Decode(rows_)));
  refused(never, "has never been prepared");
  cgr_step prepared = engine_->step;
  CGR_ASSERT_OK(engine_->Launch());
  refused(prepared, "is a copy of one that was launched or cancelled");
  refused(engine_->step, "was launched already");
  engine_->CheckAll();
  CGR_ASSERT_OK(engine_->Prepare(engine_->Decode(rows_)));
  cgr_step cancelled = engine_->step;
  CGR_ASSERT_OK(engine_->Cancel());
  EXPECT_EQ(engine_->step.state, CGR_STEP_CANCELLED);
  refused(cancelled, "is a copy of one that was launched or cancelled");
  refused(engine_->step, "was cancelled");
  CGR_ASSERT_OK(engine_->Prepare(engine_->Decode(rows_)));
  refused(prepared, "is a copy of one that was launched or cancelled"); // older ones
  refused(cancelled, "is a copy of one that was launched or cancelled");
  CGR_ASSERT_OK(engine_->Launch());
  engine_->CheckAll();
}

// A step belongs to the runtime that prepared it, even if another runtime has prepared just as many.
TEST_P(StepState, AStepOfAnotherRuntimeIsRefused) {
  Captured<Engine> b(OptionsFor(GetParam()));
  std::vector<int32_t> rows = { b.Start(5, 1), b.Start(17, 2), b.Start(31, 3) };
  CGR_ASSERT_OK(engine_->Prepare(engine_->Decode(rows_)));
  auto refused = [&](cgr_step step) {
    ExpectRefused(b, CGR_ERROR_STATE, { "cgr_step_launch: step was prepared by another runtime", "expected" },
                  [&] { return cgr_step_launch(b.rt, &step, b.stream); });
    ExpectRefused(b, CGR_ERROR_STATE, { "cgr_step_cancel: step was prepared by another runtime", "expected" },
                  [&] { return cgr_step_cancel(b.rt, &step); });
  };
  refused(engine_->step);
  CGR_ASSERT_OK(b.Prepare(b.Decode(rows)));
  refused(engine_->step);
  CGR_ASSERT_OK(engine_->Launch());
  CGR_ASSERT_OK(b.Launch());
  engine_->CheckAll();
  b.CheckAll();
}

// The counters do not depend on anything that the caller could have changed.
TEST_P(StepState, WhatTheCallerWritesIntoAStepIsNotCounted) {
  uint64_t before = engine_->Stats().bytes_staged;
  CGR_ASSERT_OK(engine_->Prepare(engine_->Decode(rows_)));
  uint64_t bytes = engine_->step.bytes_staged;
  engine_->step.bytes_staged = 1u << 31;
  CGR_ASSERT_OK(engine_->Launch());
  engine_->CheckAll();
  EXPECT_EQ(engine_->Stats().bytes_staged, before + bytes);
}

TEST_P(StepState, NoStreamOrADefaultOneLeavesTheStepPrepared) {
  for (const std::vector<Item> &items : { engine_->Decode(rows_), EagerItems() }) {
    CGR_ASSERT_OK(engine_->Prepare(items));
    for (uintptr_t bad : { 0, 1, 2 })
      Refused(CGR_ERROR_INVALID_ARGUMENT, { "stream" },
              [&] { return cgr_step_launch(engine_->rt, &engine_->step, reinterpret_cast<cudaStream_t>(bad)); });
    EXPECT_EQ(engine_->step.state, CGR_STEP_PREPARED);
    CGR_ASSERT_OK(engine_->Launch());
    engine_->CheckAll();
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
  cudaStream_t gone = nullptr;
  static long long junk[64];
  CGR_ASSERT_OK(cgr_stream_create(engine_->dev, &gone));
  CGR_ASSERT_OK(cgr_stream_destroy(engine_->dev, gone));
  for (const std::vector<Item> &items : { engine_->Decode(rows_), EagerItems() }) {
    CGR_ASSERT_OK(engine_->Prepare(items));
    for (cudaStream_t bad : { gone, reinterpret_cast<cudaStream_t>(junk) })
      LaunchRefused(CGR_ERROR_INVALID_ARGUMENT, bad);
    CGR_ASSERT_OK(engine_->Launch());
    engine_->CheckAll();
  }
}

TEST_P(BadStreams, OneThatCapturesLeavesTheStepPreparedAndTheCaptureWhole) {
  const cgr__device_ops *ops = engine_->dev->ops;
  cudaStream_t capturing = nullptr;
  CGR_ASSERT_OK(cgr_stream_create(engine_->dev, &capturing));
  for (const std::vector<Item> &items : { engine_->Decode(rows_), EagerItems() }) {
    cgr__graph *graph = nullptr;
    CGR_ASSERT_OK(engine_->Prepare(items));
    ASSERT_EQ(ops->capture_begin(engine_->dev, capturing), CGR__DEVICE_OK);
    LaunchRefused(CGR_ERROR_CAPTURE, capturing);
    CGR_EXPECT_OK(cgr_fill(engine_->dev, engine_->state.next_tokens, 0, 4, capturing));
    EXPECT_EQ(ops->capture_end(engine_->dev, capturing, &graph), CGR__DEVICE_OK);
    EXPECT_EQ(ops->graph_destroy(engine_->dev, graph), CGR__DEVICE_OK);
    CGR_ASSERT_OK(engine_->Launch());
    engine_->CheckAll();
  }
  CGR_ASSERT_OK(cgr_stream_destroy(engine_->dev, capturing));
}

// A step on another stream is ordered after the last one by an event, which must not be recorded into a capture.
// Where the last step has not completed by then.
class BadLastStream : public BadStreams {};

TEST_P(BadLastStream, ThatCapturesLeavesTheStepPreparedAndTheCaptureWhole) {
  const cgr__device_ops *ops = engine_->dev->ops;
  cudaStream_t other = nullptr;
  cgr__graph *graph = nullptr;
  CGR_ASSERT_OK(cgr_stream_create(engine_->dev, &other));
  std::unique_ptr<Gate> gate;
  if (GetParam().HasThreads())
    gate = std::make_unique<Gate>(engine_->dev, engine_->stream);
  engine_->upload = engine_->check_outputs = false;
  ASSERT_NO_FATAL_FAILURE(engine_->PrepareAndLaunch(engine_->Decode(rows_)));
  CGR_ASSERT_OK(engine_->Prepare(engine_->Decode(rows_)));
  ASSERT_EQ(ops->capture_begin(engine_->dev, engine_->stream), CGR__DEVICE_OK);
  LaunchRefused(CGR_ERROR_CAPTURE, other);
  EXPECT_EQ(ops->capture_end(engine_->dev, engine_->stream, &graph), CGR__DEVICE_OK);
  EXPECT_EQ(ops->graph_destroy(engine_->dev, graph), CGR__DEVICE_OK);
  gate.reset();
  CGR_ASSERT_OK(engine_->LaunchOn(other));
  engine_->CheckAll();
  CGR_ASSERT_OK(cgr_stream_destroy(engine_->dev, other));
}

CGR_INSTANTIATE_OVER_HOST_DEVICES(BadStreams);
INSTANTIATE_TEST_SUITE_P(Devices, BadLastStream, ::testing::Values(HostParam(CGR_SCHEDULE_ASYNC), HostParam(CGR_SCHEDULE_LATEST)),
                         DeviceLabel);

} // namespace
} // namespace cgr_test

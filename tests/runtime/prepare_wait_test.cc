// One call that prepares, and waits while the ring is full or too many changes are pending.
#include "tests/support/gate.h"
#include "tests/support/seed.h"
#include "tests/support/tables.h"

namespace cgr_test {
namespace {

class PrepareWait : public EngineTest {
protected:
  void TearDown() override { gate_.reset(); }
  void Make(int32_t depth, int32_t max_changes = 0) {
    engine_.reset();
    engine_ = MakeCaptured(
        OptionsFor(GetParam(), [=](cgr_config *config) { config->max_changes = max_changes, config->ring_depth = depth; }));
  }
  // Prepares what the engine's own Prepare would, through the call.
  cgr_status Prepare(const std::vector<Item> &items, int32_t timeout_ms = 20000) {
    engine_->prepare = [=](const cgr_batch *batch, cgr_step *step) {
      return cgr_step_prepare_wait(engine_->rt, batch, step, timeout_ms, engine_->stream);
    };
    cgr_status status = engine_->Prepare(items);
    engine_->prepare = nullptr;
    return status;
  }
  std::unique_ptr<Gate> gate_; // goes first
};

// Steps are launched one after the other, and nothing is collected before the end: each waits for its ring slot.
TEST_P(PrepareWait, AFullRingIsWaitedFor) {
  for (int32_t depth = 2; depth <= 8; depth++) {
    SCOPED_TRACE(depth);
    ASSERT_NO_FATAL_FAILURE(Make(depth));
    cgr_batch batch = CGR_BATCH_INIT; // without requests
    const uint64_t refused = engine_->Stats().refused;
    for (int n = 0; n < 4 * depth; n++) {
      cgr_step step = CGR_STEP_INIT;
      CGR_ASSERT_OK(cgr_step_prepare_wait(engine_->rt, &batch, &step, -1, engine_->stream));
      CGR_ASSERT_OK(cgr_step_launch(engine_->rt, &step, engine_->stream));
      engine_->launched = step.mark.seq;
    }
    EXPECT_EQ(engine_->Stats().refused, refused) << "an attempt that is repeated is none";
    engine_->WaitForAll();
  }
}

// Storms of changes over every depth: all of them arrive, and every result can be collected.
TEST_P(PrepareWait, ChangesAreSentAhead) {
  SeededRandom random;
  for (int32_t depth = 2; depth <= 8; depth++) {
    SCOPED_TRACE(depth);
    ASSERT_NO_FATAL_FAILURE(Make(depth, int32_t(random.Pick(1, 4))));
    for (int n = 0; n < 8 && !HasFailure(); n++) {
      std::vector<int32_t> rows;
      std::vector<Item> items;
      for (int64_t i = random.Pick(1, 4); i > 0; i--) {
        rows.push_back(engine_->Open());
        engine_->Reserve(rows.back(), int32_t(random.Pick(16, 150)));
        items.push_back(Engine::Chunk(rows.back(), int32_t(random.Pick(1, 15)), n));
      }
      cgr_status status = Prepare(items);
      if (status == CGR_ERROR_CHANGES_PENDING) { // the step before has not been collected
        ExpectMessage(status, CGR_ERROR_CHANGES_PENDING, { "cgr_step_prepare_wait", "would expire the result of step" });
        engine_->CheckAll();
        status = Prepare(items);
      }
      CGR_ASSERT_OK(status);
      CGR_ASSERT_OK(engine_->Launch());
      for (const size_t late = size_t(random.Pick(0, 1)); engine_->NumInFlight() > late;) // as one that is a step ahead
        engine_->CheckOne();
      for (int32_t row : rows)
        engine_->Close(row);
    }
    engine_->CheckAll();
  }
}

TEST_P(PrepareWait, ResultsAreNotExpired) {
  for (const bool standing : { false, true }) {
    ASSERT_NO_FATAL_FAILURE(Make(3, 1));
    int32_t row = engine_->Start(5, 1);
    CGR_ASSERT_OK(standing ? engine_->PrepareStanding(engine_->Decode({ row })) : engine_->Prepare(engine_->Decode({ row })));
    CGR_ASSERT_OK(engine_->Launch());
    int32_t other = engine_->Open();
    engine_->Reserve(other, 150);
    const std::vector<Item> items = { Engine::Chunk(other, 3) };
    const std::string step = std::to_string(engine_->launched);
    for (int n = 0; n < 3; n++)
      ExpectMessage(Prepare(items), CGR_ERROR_CHANGES_PENDING, { "would expire the result of step " + step, "cgr_step_wait" });
    EXPECT_EQ(engine_->Stats().refused, 3u);
    engine_->CheckAll(); // collects it
    CGR_ASSERT_OK(Prepare(items));
    CGR_ASSERT_OK(engine_->Launch());
    engine_->CheckAll();
    ExpectTables(*engine_);
  }
}

TEST_P(PrepareWait, OtherErrorsComeAtOnce) {
  ASSERT_NO_FATAL_FAILURE(Make(4));
  int32_t row = engine_->Start(5, 1), page_less = engine_->Open();
  cgr_batch batch = CGR_BATCH_INIT;
  cgr_step step = CGR_STEP_INIT;
  cgr_runtime *rt = engine_->rt;
  ExpectMessage(Prepare({ { page_less, { 1 } } }), CGR_ERROR_PAGES_MISSING, { "cgr_step_prepare_wait: batch" });
  EXPECT_EQ(engine_->Stats().refused, 1u);
  for (int32_t timeout : { -2, INT32_MIN })
    ExpectMessage(cgr_step_prepare_wait(rt, &batch, &step, timeout, engine_->stream), CGR_ERROR_INVALID_ARGUMENT,
                  { "cgr_step_prepare_wait: timeout_ms is " + std::to_string(timeout), "-1 or more" });
  ExpectMessage(cgr_step_prepare_wait(rt, &batch, &step, -1, nullptr), CGR_ERROR_INVALID_ARGUMENT,
                { "cgr_step_prepare_wait", "stream" });
  CGR_EXPECT(CGR_ERROR_NULL_POINTER, cgr_step_prepare_wait(nullptr, &batch, &step, -1, engine_->stream));
  CGR_ASSERT_OK(engine_->Prepare(engine_->Decode({ row })));
  ExpectMessage(cgr_step_prepare_wait(rt, &batch, &step, -1, engine_->stream), CGR_ERROR_STATE, { "cgr_step_prepare_wait: " });
  CGR_ASSERT_OK(engine_->Launch());
  engine_->CheckAll();
}

class PrepareWaitWithThreads : public PrepareWait {};

TEST_P(PrepareWaitWithThreads, TimeOutsAreKept) {
  for (int32_t max_changes : { 0, 6 }) {
    SCOPED_TRACE(max_changes);
    ASSERT_NO_FATAL_FAILURE(Make(2, max_changes));
    int32_t row = engine_->Start(5, 1);
    gate_.reset(); // one at a time
    gate_ = std::make_unique<Gate>(engine_->dev, engine_->stream);
    cgr_batch batch = CGR_BATCH_INIT;
    cgr_step step = CGR_STEP_INIT;
    for (int n = 0; n < 2; n++) {
      CGR_ASSERT_OK(cgr_step_prepare(engine_->rt, &batch, &step));
      CGR_ASSERT_OK(cgr_step_launch(engine_->rt, &step, engine_->stream));
    }
    engine_->launched = step.mark.seq;
    if (max_changes > 0)
      engine_->Reserve(row, 150);
    const uint64_t refused = engine_->Stats().refused;
    for (int32_t timeout : { 0, 1, 30 })
      ExpectMessage(Prepare(engine_->Chunks({ { row, 2 } }), timeout), CGR_NOT_READY,
                    { "cgr_step_prepare_wait: after " + std::to_string(timeout) + " ms step", "call again" });
    EXPECT_EQ(engine_->Stats().refused, refused + 3);
    gate_->Open();
    CGR_ASSERT_OK(Prepare(engine_->Chunks({ { row, 2 } })));
    CGR_ASSERT_OK(engine_->Launch());
    engine_->CheckAll();
  }
}

CGR_INSTANTIATE_OVER_DEVICES(PrepareWait);
CGR_INSTANTIATE_OVER_DEVICES_WITH_THREADS(PrepareWaitWithThreads);

} // namespace
} // namespace cgr_test

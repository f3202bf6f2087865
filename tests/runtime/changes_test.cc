// More changes than a ring slot or the ring holds: they travel in steps of their own, none is lost, and the two reasons to wait
// are distinct. BUSY: wait for a step. CHANGES_PENDING: flush.
#include "buffers/ring_slot.h"
#include "tests/support/gate.h"
#include "tests/support/tables.h"

namespace cgr_test {
namespace {

class Changes : public EngineTest {
protected:
  void Make(int32_t max_changes, int32_t depth = 0) {
    engine_.reset();
    engine_ = MakeCaptured(
        OptionsFor(GetParam(), [=](cgr_config *config) { config->max_changes = max_changes, config->ring_depth = depth; }));
  }
  uint64_t Internal() { return engine_->Stats().by_reason[CGR_KIND_NONE][CGR_REASON_INTERNAL]; }
  // Prepares with as many flushes as it takes.
  void PrepareWithFlush(const std::vector<Item> &items, int *flushes) {
    for (int n = 0; n < 500; n++) {
      cgr_status status = engine_->Prepare(items);
      if (status == CGR_OK)
        return;
      if (status == CGR_ERROR_BUSY) {
        engine_->WaitForAll();
        continue;
      }
      ASSERT_EQ(std::string(cgr_status_name(status)), "CGR_ERROR_CHANGES_PENDING") << cgr_last_message();
      status = engine_->Flush();
      ASSERT_TRUE(status == CGR_OK || status == CGR_ERROR_BUSY) << cgr_status_name(status) << cgr_last_message();
      ++*flushes;
      if (status == CGR_ERROR_BUSY)
        engine_->WaitForAll();
    }
    FAIL() << "prepare finds no end";
  }
};

TEST_P(Changes, ManyChangesTravelInExtraSteps) {
  for (int32_t max_changes : { 1, 4, 7, 16 }) {
    SCOPED_TRACE(max_changes);
    Make(max_changes);
    std::vector<int32_t> rows;
    std::vector<Item> items;
    int flushes = 0;
    for (int32_t i = 0; i < 4; i++) {
      rows.push_back(engine_->Open());
      engine_->Reserve(rows.back(), 150); // ten pages
      items.push_back(Engine::Chunk(rows.back(), 16, i));
    }
    ASSERT_NO_FATAL_FAILURE(PrepareWithFlush(items, &flushes));
    EXPECT_TRUE(max_changes > 4 || flushes > 0);
    CGR_ASSERT_OK(engine_->Cancel());
    ASSERT_NO_FATAL_FAILURE(PrepareWithFlush(items, &flushes));
    CGR_ASSERT_OK(engine_->Launch());
    engine_->CheckAll();
    ExpectTables(*engine_);
    uint64_t internal = Internal();
    EXPECT_GT(internal, 0u);
    for (int n = 0; n < 5 && !HasFatalFailure(); n++)
      engine_->Step(engine_->Decode(rows));
    EXPECT_EQ(Internal(), internal);
  }
}

// The extra steps have no requests, which clears the device's batch layout: the step after them must bring its own.
TEST_P(Changes, AnUnchangedBatchTravelsAgainBehindExtraSteps) {
  Make(2, 8);
  int32_t a = engine_->Start(5, 1), b = engine_->Start(3, 2);
  for (int n = 0; n < 2; n++)
    engine_->Step(engine_->Decode({ a, b }));
  EXPECT_EQ(engine_->step.bytes_staged, sizeof(cgr__ring_slot_header)) << "the batch stands";
  engine_->Reserve(a, 90); // five pages more: two extra steps
  uint64_t internal = Internal();
  engine_->Step(engine_->Decode({ a, b }));
  EXPECT_EQ(Internal(), internal + 2);
  engine_->Step(engine_->Decode({ a, b }));
  EXPECT_EQ(engine_->step.bytes_staged, sizeof(cgr__ring_slot_header));
  ExpectTables(*engine_);
}

// Requests that leave from the end or come there are edits, and so is the last one when it takes another's place. Where requests
// move up, the whole batch layout travels.
TEST_P(Changes, ABatchGivenWholeTravelsByWhatDiffers) {
  Make(4, 64);
  const int32_t a = engine_->Start(5, 1), b = engine_->Start(3, 2), c = engine_->Start(9, 3), d = engine_->Start(2, 4);
  const struct {
    std::vector<int32_t> rows;
    size_t edits; // or, with 99, the whole batch layout
  } steps[] = { { { a, b, c, d }, 0 }, { { a, b, c }, 0 }, { { a, b, c, d }, 1 }, { { d, b, c }, 1 },
                { { d, b, c }, 0 },    { { d, b }, 0 },    { { d, b, a, c }, 2 }, { { b, a, c }, 99 } };
  for (int32_t row : { a, b, c, d })
    engine_->Reserve(row, 40);
  for (int n = 0; n < 2; n++)
    engine_->Step(engine_->Decode(steps[0].rows));
  for (const auto &step : steps) {
    SCOPED_TRACE(&step - steps);
    engine_->Step(engine_->Decode(step.rows));
    const size_t sent = step.edits < 99 ? step.edits * sizeof(cgr__edit) : (3 * step.rows.size() + 1) * sizeof(int32_t);
    const size_t tokens =
        step.rows.size() % 2 * step.rows.size() * sizeof(int32_t); // an odd number is given an array of CGR_TOKEN_LAST
    EXPECT_EQ(engine_->step.bytes_staged, sizeof(cgr__ring_slot_header) + sent + tokens);
  }
  engine_->CheckCaches();
}

// A launch with extra steps leaves the result of the step before it readable.
TEST_P(Changes, OneLaunchNeverExpiresTheStepBefore) {
  for (int32_t depth : { 2, 3, 4 }) {
    SCOPED_TRACE(depth);
    Make(3, depth);
    int32_t row = engine_->Start(3, 1), flushes = 0;
    for (int n = 0; n < 20 && !HasFatalFailure(); n++) {
      ASSERT_NO_FATAL_FAILURE(engine_->PrepareAndLaunch(engine_->Decode({ row })));
      uint64_t before = engine_->launched;
      int32_t other = engine_->Open(), pages = 1 + n % 9;
      engine_->Reserve(other, pages * 16);
      std::vector<Item> items = { Engine::Chunk(other, 2, n) };
      cgr_status status = CGR_OK;
      while ((status = engine_->Prepare(items)) != CGR_OK) {
        CGR_ASSERT_OK(cgr_step_wait(engine_->rt, cgr_mark{ 0, 0, before }, -1, nullptr)); // a prepare that fails expires nothing
        engine_->CheckAll();
        ASSERT_LT(flushes++, 1000);
        if (status == CGR_ERROR_CHANGES_PENDING)
          status = engine_->Flush();
        ASSERT_TRUE(status == CGR_OK || status == CGR_ERROR_BUSY) << cgr_last_message();
        engine_->WaitForAll();
        before = engine_->launched;
      }
      CGR_ASSERT_OK(engine_->Launch());
      cgr_status waited = cgr_step_wait(engine_->rt, cgr_mark{ 0, 0, before }, -1, nullptr);
      CGR_ASSERT_OK(waited);
      engine_->CheckAll();
      engine_->Close(other);
    }
    EXPECT_GT(Internal(), 0u);
  }
}

TEST_P(Changes, PendingChangesAreToldFromAFullRing) {
  Make(1, 4); // three changes fit into one launch: two extra steps and its own
  int32_t row = engine_->Open();
  engine_->Reserve(row, 48); // three pages and a length: four
  for (int n = 0; n < 2; n++)
    ExpectItemsRefused(*engine_, CGR_ERROR_CHANGES_PENDING, { "4 changed words", "at most 3", "cgr_runtime_flush" },
                       { Engine::Chunk(row, 16, 1) });
  ExpectItemsRefused(*engine_, CGR_ERROR_CHANGES_PENDING, { "4 changed words" }, {});
  int flushes = 0;
  ASSERT_NO_FATAL_FAILURE(PrepareWithFlush({ Engine::Chunk(row, 16, 1) }, &flushes));
  CGR_ASSERT_OK(engine_->Launch());
  engine_->CheckAll();
  engine_->Close(row);
  row = engine_->Open();
  engine_->Reserve(row, 32); // three: just fits
  uint64_t internal = Internal();
  engine_->Step({ Engine::Chunk(row, 20, 2) });
  EXPECT_EQ(Internal(), internal + 2);
  ExpectTables(*engine_);
}

TEST_P(Changes, FlushSendsChangesAndTellsItsNumber) {
  Make(4, 4);
  int32_t row = engine_->Start(5, 1);
  uint64_t before = engine_->launched, seq = 99;
  CGR_ASSERT_OK(cgr_test::Flush(engine_->rt, engine_->stream, &seq)); // nothing is pending
  EXPECT_EQ(seq, before);
  EXPECT_EQ(engine_->Stats().steps, before);
  engine_->Reserve(row, 80); // four pages more
  CGR_ASSERT_OK(cgr_test::Flush(engine_->rt, engine_->stream, &seq));
  EXPECT_EQ(seq, before + 1);
  engine_->Reserve(row, 96);
  CGR_ASSERT_OK(cgr_runtime_flush(engine_->rt, nullptr, nullptr, engine_->stream));
  engine_->launched = before + 2;
  engine_->WaitForAll();
  ExpectTables(*engine_);
  EXPECT_EQ(Internal(), 2u);
  engine_->Step(engine_->Decode({ row }));
  EXPECT_EQ(engine_->step.mark.seq, before + 3);
}

TEST_P(Changes, BytesOfAFlushAreCounted) {
  Make(4, 4);
  int32_t row = engine_->Start(5, 1);
  for (int32_t pages : { 1, 4, 1 }) {
    uint64_t before = engine_->Stats().bytes_staged;
    engine_->Reserve(row, int32_t(engine_->requests[row]->pages.size() + size_t(pages)) * 16);
    CGR_ASSERT_OK(engine_->Flush());
    engine_->WaitForAll();
    EXPECT_EQ(engine_->Stats().bytes_staged, before + sizeof(cgr__ring_slot_header) + size_t(pages) * sizeof(cgr__change));
  }
}

// A row that closes takes its changes along: nothing is left to be sent.
TEST_P(Changes, OpenAndCloseLeaveNothingToFlush) {
  Make(4);
  int32_t row = engine_->Start(5, 1);
  for (int n = 0; n < 3; n++) {
    int32_t other = engine_->Open();
    engine_->Reserve(other, 60);
    engine_->Close(other);
    uint64_t seq = 0, before = engine_->launched;
    CGR_ASSERT_OK(cgr_test::Flush(engine_->rt, engine_->stream, &seq));
    EXPECT_EQ(seq, before);
    engine_->Step(engine_->Decode({ row }));
  }
  EXPECT_EQ(Internal(), 0u);
}

// Flush carries what free ring slots hold and says BUSY for the rest; its number is that of the last step it launched.
class HeldChanges : public Changes {
protected:
  // With a schedule that runs at the last moment, nothing runs before a wait.
  void Hold() { gate_ = GetParam().HasThreads() ? std::make_unique<Gate>(engine_->dev, engine_->stream) : nullptr; }
  std::unique_ptr<Gate> gate_;
};

TEST_P(HeldChanges, FlushFillsTheFreeSlotsAndIsBusyForTheRest) {
  Make(1, 3);
  Hold();
  int32_t row = engine_->Open();
  engine_->Reserve(row, 160); // eleven changes
  uint64_t seq = 0;
  CGR_EXPECT(CGR_ERROR_BUSY, cgr_test::Flush(engine_->rt, engine_->stream, &seq));
  EXPECT_EQ(seq, 3u);
  ExpectMessage(cgr_test::Flush(engine_->rt, engine_->stream, &seq), CGR_ERROR_BUSY,
                { "cgr_runtime_flush: step 4 finds no free ring slot of 3, expected step 1 to be completed" });
  EXPECT_EQ(seq, 3u);
  const uint64_t waited = gate_ ? 3 : 2; // a gate holds all or none
  gate_.reset();
  CGR_ASSERT_OK(cgr_step_wait(engine_->rt, cgr_mark{ 0, 0, waited }, -1, nullptr));
  Hold();
  CGR_EXPECT(CGR_ERROR_BUSY, cgr_test::Flush(engine_->rt, engine_->stream, &seq));
  EXPECT_EQ(seq, waited + 3);
  gate_.reset();
  engine_->launched = seq;
  while (engine_->Flush() == CGR_ERROR_BUSY)
    engine_->WaitForAll();
  EXPECT_EQ(engine_->launched, 11u);
  engine_->WaitForAll();
  ExpectTables(*engine_);
}

// The runtime's own steps: a number, no requests.
TEST_P(Changes, ResultOfAFlushHasNoRequests) {
  Make(4, 4);
  int32_t row = engine_->Start(5, 1);
  engine_->Reserve(row, 80);
  CGR_ASSERT_OK(engine_->Flush());
  cgr_step_result result = CGR_STEP_RESULT_INIT;
  CGR_ASSERT_OK(cgr_step_wait(engine_->rt, cgr_mark{ 0, 0, engine_->launched }, -1, &result));
  EXPECT_EQ(result.mark.seq, engine_->launched);
  EXPECT_EQ(result.num_requests, 0);
  EXPECT_EQ(result.num_steps, 1);
  EXPECT_EQ(result.token_stride, 1);
  EXPECT_EQ(result.guard.error, CGR_GUARD_NONE);
  EXPECT_EQ(cgr_test::Completed(engine_->rt), engine_->launched);
}

CGR_INSTANTIATE_OVER_DEVICES(Changes);
CGR_INSTANTIATE_OVER_FEW_DEVICES(HeldChanges);

} // namespace
} // namespace cgr_test

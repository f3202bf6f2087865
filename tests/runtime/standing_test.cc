// The standing batch: its order, and what a step of it sends and uses up.
#include "tests/support/checker.h"
#include "tests/support/standing_case.h"

namespace cgr_test {
namespace {

// ------------------------------------------------------------------------------------------------------------ order, bytes

TEST_P(Standing, StagesWhatWasEdited) {
  ASSERT_NO_FATAL_FAILURE(PutAllWithPages());
  ASSERT_NO_FATAL_FAILURE(StepOf(kHeader + 4u * (3 * 3 + 1))); // whole at first
  ASSERT_NO_FATAL_FAILURE(StepOf(kHeader));
  CGR_ASSERT_OK(Take(rows_[0]));
  EXPECT_EQ(engine_->StandingRows(), (Rows{ rows_[2], rows_[1] })) << "the last takes its place";
  ASSERT_NO_FATAL_FAILURE(StepOf(kHeader + kEdit));
  CGR_ASSERT_OK(Take(rows_[1]));
  EXPECT_EQ(engine_->StandingRows(), (Rows{ rows_[2] }));
  ASSERT_NO_FATAL_FAILURE(StepOf(kHeader)); // the number of requests says it
  CGR_ASSERT_OK(Put(rows_[1]));
  CGR_ASSERT_OK(Swap(rows_[2], rows_[1]));
  EXPECT_EQ(engine_->StandingRows(), (Rows{ rows_[1], rows_[2] }));
  ASSERT_NO_FATAL_FAILURE(StepOf(kHeader + 2 * kEdit));
  CGR_ASSERT_OK(Swap(rows_[2], rows_[2]));
  CGR_ASSERT_OK(Set(rows_[1]));
  ASSERT_NO_FATAL_FAILURE(StepOf(kHeader)); // nothing is another
  CGR_ASSERT_OK(Set(rows_[1], 1, { 5 }));
  std::vector<Item> items = engine_->Decode({ rows_[1], rows_[2] });
  items[0].tokens = { 5 };
  ASSERT_NO_FATAL_FAILURE(Step(items));
  EXPECT_EQ(Bytes(), uint64_t(kHeader + kEdit + 4));
  ASSERT_NO_FATAL_FAILURE(StepOf(kHeader)); // its tokens are used up
  engine_->CheckRows();
  engine_->CheckCaches();
}

TEST_P(Standing, StepsOfEveryKind) {
  for (int32_t row : rows_)
    engine_->Reserve(row, 80);
  engine_->StepStanding({ { rows_[0], { 7, 8, 9 } }, { rows_[1], { kLast } } });
  engine_->StepStanding({ { rows_[1], { kLast } }, { rows_[0], {} } });
  engine_->StepStanding({ { rows_[1], { 3 }, true } });
  engine_->StepStanding({ { rows_[1], { 3, 4 } }, { rows_[2], {} }, { rows_[0], { kLast, 2, 3 } } });
  engine_->StepStanding({ { rows_[2], {} } });
  engine_->StepStanding({});
  engine_->StepStanding({ { rows_[0], { 1, 2 } }, { rows_[1], { 3, 4 } }, { rows_[2], { 5, 6 } } });
  engine_->StepStanding({ { rows_[0], { kLast } }, { rows_[1], { kLast } }, { rows_[2], { 6 } } });
  EXPECT_EQ(engine_->step.key.kind, int32_t{ CGR_KIND_FULL });
  engine_->CheckRows();
  engine_->CheckCaches();
}

TEST_P(Standing, UsesForcedKeysAndChooses) {
  cgr_key key = CGR_KEY_INIT;
  cgr_batch batch = StandingBatch();
  ASSERT_NO_FATAL_FAILURE(PutAll());
  engine_->Decode(rows_);
  CGR_ASSERT_OK(cgr_step_choose(rt(), &batch, &key));
  EXPECT_EQ(key.num_requests, 4);
  for (const cgr_key &forced : { FullKey(8), EagerKey(5, 6), FullKey(4) }) {
    ASSERT_NO_FATAL_FAILURE(Step(engine_->Decode(rows_), &forced));
    EXPECT_EQ(engine_->step.key.num_requests, forced.num_requests);
    EXPECT_EQ(engine_->step.reason, int32_t{ CGR_REASON_FORCED });
  }
  const cgr_key small = FullKey(2);
  engine_->Decode(rows_);
  ExpectPrepareRefused(*engine_, CGR_ERROR_INVALID_ARGUMENT, { "forced_key" },
                       [&] { return engine_->PrepareStandingAsIs({}, &small); });
}

// A whole batch leaves the standing batch as it is, and moves its rows.
// The engine has no standing batch then, and the members are those of the step.
TEST_P(Standing, ChoosingItLeavesAPreparedWholeBatchAsItIs) {
  cgr_key key = CGR_KEY_INIT;
  cgr_batch batch = StandingBatch();
  for (int32_t row : rows_)
    engine_->Reserve(row, 80);
  for (int n = 0; n < 3; n++)
    engine_->Step(engine_->Decode(rows_));
  CGR_ASSERT_OK(engine_->Prepare(engine_->Decode(rows_)));
  CGR_ASSERT_OK(cgr_step_choose(rt(), &batch, &key));
  EXPECT_TRUE(engine_->StandingRows().empty());
  CGR_EXPECT(CGR_ERROR_STATE, cgr_request_close(rt(), rows_[0]));
  CGR_EXPECT(CGR_ERROR_STATE, cgr_standing_add(rt(), nullptr, rows_[0], 1, nullptr, 0));
  CGR_ASSERT_OK(engine_->Launch());
  engine_->CheckAll();
  engine_->CheckRows();
  engine_->StepStanding(engine_->Decode(rows_));
  engine_->CheckCaches();
}

TEST_P(Standing, WholeBatchesComeBetween) {
  ASSERT_NO_FATAL_FAILURE(PutAllWithPages());
  for (int round = 0; round < 3; round++) {
    ASSERT_NO_FATAL_FAILURE(Step());
    ASSERT_NO_FATAL_FAILURE(StepOf(kHeader));
    for (int n = 0; n <= round; n++)
      engine_->Step(engine_->Decode({ rows_[2], rows_[0] }));
    ASSERT_NO_FATAL_FAILURE(StepOf(kHeader + 4u * (3 * 3 + 1))); // whole again
    engine_->Step(engine_->Chunks({ { rows_[1], 1 + round } }));
    EXPECT_EQ(engine_->StandingRows(), rows_);
    ASSERT_NO_FATAL_FAILURE(Step());
    engine_->CheckRows();
  }
  CGR_ASSERT_OK(Set(rows_[0], 2, { 8, 9 })); // given before a whole batch, used after it
  engine_->Step(engine_->Decode({ rows_[0] }));
  engine_->Reserve(rows_[0], 80);
  std::vector<Item> items = engine_->Decode(rows_);
  items[0].tokens = { 8, 9 };
  ASSERT_NO_FATAL_FAILURE(Step(items));
  engine_->CheckCaches();
}

// The device has the standing batch by then, so a repeat of the last whole batch must be sent again.
TEST_P(Standing, AWholeBatchIsNotTakenForTheOneBefore) {
  ASSERT_NO_FATAL_FAILURE(PutAllWithPages());
  for (int n = 0; n < 3; n++) {
    engine_->Step(engine_->Decode({ rows_[2], rows_[0], rows_[1] }));
    engine_->Step(engine_->Decode({ rows_[2], rows_[0], rows_[1] }));
    ASSERT_NO_FATAL_FAILURE(Step());
  }
  engine_->Step(engine_->Decode({ rows_[2], rows_[0], rows_[1] }));
  engine_->CheckCaches();
}

TEST_P(Standing, AfterAFlushTheWholeBatchIsSent) {
  ASSERT_NO_FATAL_FAILURE(PutAllWithPages());
  ASSERT_NO_FATAL_FAILURE(Step());
  engine_->Reserve(rows_[0], 100);
  CGR_ASSERT_OK(engine_->Flush());
  ASSERT_NO_FATAL_FAILURE(StepOf(kHeader + 4u * (3 * 3 + 1)));
}

// ---------------------------------------------------------------------------------------------------------- tokens, pages

TEST_P(Standing, ARequestWithoutItsTokensIsRefused) {
  const int32_t row = rows_[1], fresh = engine_->Open();
  const Words last = { "row " + std::to_string(row), "CGR_TOKEN_LAST", "cgr_standing_update" };
  const Words none = { "row " + std::to_string(row), "no tokens", "cgr_standing_update" };
  for (int32_t r : rows_)
    engine_->Reserve(r, 80);
  engine_->Reserve(fresh, 80);
  CGR_ASSERT_OK(Put(rows_[0]));
  CGR_ASSERT_OK(Put(fresh));
  StepRefused(CGR_ERROR_INVALID_ARGUMENT,
              { "row " + std::to_string(fresh), "CGR_TOKEN_LAST", "no step has sampled one", "CGR_REQUEST_PARTIAL" });
  CGR_ASSERT_OK(Set(fresh, 1, { kLast }));
  StepRefused(CGR_ERROR_INVALID_ARGUMENT, { "row " + std::to_string(fresh) });
  CGR_ASSERT_OK(Set(fresh, 2, { kLast, 4 }));
  StepRefused(CGR_ERROR_INVALID_ARGUMENT, { "row " + std::to_string(fresh), "CGR_TOKEN_LAST" });
  CGR_ASSERT_OK(Set(fresh, 0));
  CGR_ASSERT_OK(Put(row, 3, { 1, 2, 3 }));
  ASSERT_NO_FATAL_FAILURE(Step({ { rows_[0], { kLast } }, { fresh, {} }, { row, { 1, 2, 3 } } }));
  StepRefused(CGR_ERROR_INVALID_ARGUMENT, none); // they are used up
  CGR_ASSERT_OK(Set(row, 2, { kLast, 7 }));
  ASSERT_NO_FATAL_FAILURE(Step({ { rows_[0], { kLast } }, { fresh, {} }, { row, { kLast, 7 } } }));
  StepRefused(CGR_ERROR_INVALID_ARGUMENT, none);
  CGR_ASSERT_OK(Set(row, 1, {}, CGR_REQUEST_PARTIAL));
  ASSERT_NO_FATAL_FAILURE(Step({ { rows_[0], { kLast } }, { fresh, {} }, { row, { kLast }, true } }));
  StepRefused(CGR_ERROR_INVALID_ARGUMENT, none);
  CGR_ASSERT_OK(Set(row, 1, {}));
  StepRefused(CGR_ERROR_INVALID_ARGUMENT, last); // a partial one samples nothing
  CGR_ASSERT_OK(Set(row, 1, { 9 }));
  ASSERT_NO_FATAL_FAILURE(Step({ { rows_[0], { kLast } }, { fresh, {} }, { row, { 9 } } }));
  ASSERT_NO_FATAL_FAILURE(Step({ { rows_[0], { kLast } }, { fresh, {} }, { row, { kLast } } }));
  engine_->SetLength(row, 4);
  StepRefused(CGR_ERROR_INVALID_ARGUMENT, last);
  CGR_ASSERT_OK(Take(row));
  ASSERT_NO_FATAL_FAILURE(Step({ { rows_[0], { kLast } }, { fresh, {} } }));
  engine_->Step({ { row, { 3 } }, { fresh, { 2 } } });
}

// A whole batch may give a member its last token, or take it away.
TEST_P(Standing, LastTokensOfWholeBatchesCount) {
  int32_t fresh = engine_->Open();
  engine_->Reserve(fresh, 40);
  CGR_ASSERT_OK(Put(fresh));
  StepRefused(CGR_ERROR_INVALID_ARGUMENT, { "row " + std::to_string(fresh) });
  engine_->Step({ { fresh, { 5, 6 } } });
  ASSERT_NO_FATAL_FAILURE(Step());
  engine_->Step({ { fresh, { 5 }, true } });
  StepRefused(CGR_ERROR_INVALID_ARGUMENT, { "row " + std::to_string(fresh) });
  engine_->Step({ { fresh, { 5 } } });
  ASSERT_NO_FATAL_FAILURE(Step());
}

// A chunk that has run is set again, whatever token a whole batch has given its row meanwhile.
TEST_P(Standing, ARowsNewTokenIsNotItsNextChunk) {
  const int32_t row = rows_[0], standing = engine_->Open();
  const Words none = { "row " + std::to_string(row), "no tokens", "cgr_standing_update" };
  engine_->Reserve(row, 40);
  engine_->Reserve(standing, 40);
  CGR_ASSERT_OK(Put(standing, 0, {}, CGR_REQUEST_PARTIAL)); // stands still: it needs nothing
  for (int32_t chunk = 1; chunk <= 2; chunk++) {
    const Rows tokens(size_t(chunk), 3);
    CGR_ASSERT_OK(Put(row, chunk, tokens, CGR_REQUEST_PARTIAL));
    ASSERT_NO_FATAL_FAILURE(Step({ { standing, {}, true }, { row, tokens, true } }));
    StepRefused(CGR_ERROR_INVALID_ARGUMENT, none);
    engine_->Step({ { row, { 5 } } });
    StepRefused(CGR_ERROR_INVALID_ARGUMENT, none);
    CGR_ASSERT_OK(Set(row, 1));
    ASSERT_NO_FATAL_FAILURE(Step({ { standing, {}, true }, { row, { kLast } } }));
    CGR_ASSERT_OK(Take(row));
  }
}

// Exhausted pages are noticed at the very step at which they end, whatever was added, taken away or set in between.
TEST_P(Standing, PagesThatEndAreSeen) {
  ASSERT_NO_FATAL_FAILURE(PutAll());
  const int32_t row = rows_[1], page = engine_->o.page_size;
  const Words words = { "row " + std::to_string(row), "pages of group 0" };
  engine_->Reserve(rows_[0], 150);
  engine_->Reserve(rows_[2], 150);
  std::vector<Item> items = { { rows_[0], { kLast } }, { row, { kLast } }, { rows_[2], { kLast } } };
  for (int n = 0; n < 3; n++) {
    engine_->Reserve(row, engine_->requests[row]->num_tokens + 1);
    do
      ASSERT_NO_FATAL_FAILURE(Step(items));
    while (engine_->requests[row]->num_tokens % page != 0);
    for (int again = 0; again < 2; again++)
      StepRefused(CGR_ERROR_PAGES_MISSING, words);
  }
  engine_->Reserve(row, engine_->requests[row]->num_tokens + 2 * page);
  ASSERT_NO_FATAL_FAILURE(Step(items));
  engine_->DropPages(row, engine_->requests[row]->num_tokens / page + 1, 1);
  while (engine_->requests[row]->num_tokens % page != 0)
    ASSERT_NO_FATAL_FAILURE(Step(items));
  StepRefused(CGR_ERROR_PAGES_MISSING, words);
  CGR_ASSERT_OK(Set(row, 0));
  items[1].tokens = {};
  ASSERT_NO_FATAL_FAILURE(Step(items));
  engine_->SetLength(row, engine_->requests[row]->num_tokens - 2);
  CGR_ASSERT_OK(Set(row, 2, { 4, 5 }));
  items[1].tokens = { 4, 5 };
  ASSERT_NO_FATAL_FAILURE(Step(items));
  CGR_ASSERT_OK(Set(row, 2, { 4, 5 }));
  StepRefused(CGR_ERROR_PAGES_MISSING, words);
  CGR_ASSERT_OK(Take(row));
  engine_->DropPages(row, 0, 1);
  CGR_ASSERT_OK(Put(row));
  StepRefused(CGR_ERROR_PAGES_MISSING, { "row " + std::to_string(row), "expected all from page 0 on" });
  CGR_ASSERT_OK(Take(row));
  engine_->CheckCaches();
  rows_ = { rows_[0], rows_[2] };
}

TEST_P(Standing, SequencesThatAreTooLongAreSeen) {
  const int32_t row = rows_[0], longest = engine_->o.max_seq_len;
  engine_->Reserve(row, longest);
  CGR_ASSERT_OK(Put(row));
  while (engine_->requests[row]->num_tokens < longest)
    ASSERT_NO_FATAL_FAILURE(Step({ { row, { kLast } } }));
  StepRefused(CGR_ERROR_SEQUENCE_TOO_LONG, { "row " + std::to_string(row), "max_seq_len" });
  CGR_ASSERT_OK(Take(row));
  rows_ = { rows_[1], rows_[2] };
}

// -------------------------------------------------------------------------------------------- cancelled, failed, in flight

TEST_P(Standing, ACancelledStepTakesNothing) {
  ASSERT_NO_FATAL_FAILURE(PutAll());
  ASSERT_NO_FATAL_FAILURE(Step());
  for (int32_t row : rows_)
    engine_->Reserve(row, 80);
  CGR_ASSERT_OK(Swap(rows_[0], rows_[2]));
  CGR_ASSERT_OK(Set(rows_[1], 3, { 1, 2, 3 }));
  const std::vector<Item> items = { { rows_[2], { kLast } }, { rows_[1], { 1, 2, 3 } }, { rows_[0], { kLast } } };
  uint64_t bytes = 0;
  for (int n = 0; n < 3; n++) {
    CGR_ASSERT_OK(engine_->PrepareStandingAsIs(items));
    bytes = n == 0 ? Bytes() : bytes;
    EXPECT_EQ(Bytes(), bytes);
    CGR_ASSERT_OK(engine_->Cancel());
  }
  ASSERT_NO_FATAL_FAILURE(Step(items));
  EXPECT_EQ(Bytes(), bytes);
  StepRefused(CGR_ERROR_INVALID_ARGUMENT, { "no tokens" });
  CGR_ASSERT_OK(Set(rows_[1]));
  ASSERT_NO_FATAL_FAILURE(Step());
  engine_->CheckCaches();
}

// Edits, tokens and places are kept for the step that succeeds; pages are in use until the failed number has completed.
TEST_P(Standing, AFailedStepTakesNothing) {
  ASSERT_NO_FATAL_FAILURE(PutAll());
  for (int32_t row : rows_)
    engine_->Reserve(row, 80);
  for (int32_t place = 0; place < 4; place++) {
    SCOPED_TRACE(place);
    ASSERT_NO_FATAL_FAILURE(Step());
    CGR_ASSERT_OK(Swap(rows_[0], rows_[2]));
    CGR_ASSERT_OK(Set(rows_[1], 2, { kLast, 5 }));
    std::swap(rows_[0], rows_[2]);
    const std::vector<Item> items = { { rows_[0], { kLast } }, { rows_[1], { kLast, 5 } }, { rows_[2], { kLast } } };
    for (int n = 0; n < 2; n++) {
      CGR_ASSERT_OK(engine_->PrepareStandingAsIs(items));
      EXPECT_EQ(engine_->step.key.kind, int32_t{ CGR_KIND_NONE });
      engine_->state.fail_after = place % 2;
      CGR_EXPECT(CGR_ERROR_CALLBACK, engine_->Launch());
      engine_->state.fail_after = -1;
      EXPECT_EQ(engine_->step.state, CGR_STEP_ABANDONED);
    }
    ASSERT_NO_FATAL_FAILURE(Step(items));
    CGR_ASSERT_OK(Set(rows_[1]));
    engine_->CheckRows();
  }
  engine_->CheckCaches();
}

// Results are collected late and reflect the batch as it was; whole batches come in between. The engine compares rows, tags and
// tokens of every step.
TEST_P(Standing, LateResultsAreOfTheBatchAsItWas) {
  // Racecheck keeps memory for each launch until the end: as in late_results_test.
  const std::vector<int32_t> depths = UnderChecker() ? std::vector<int32_t>{ 3 } : std::vector<int32_t>{ 2, 3, 7 };
  const int steps = UnderChecker() ? 60 : 200;
  for (int32_t depth : depths) {
    SCOPED_TRACE(depth);
    EngineOptions options = OptionsFor(GetParam(), [depth](cgr_config *config) { config->ring_depth = depth; });
    rows_.clear();
    engine_.reset();
    engine_ = MakeCaptured(options);
    std::mt19937 random{ uint32_t(depth) };
    int whole = 0, reopened = 0;
    for (int n = 0; n < steps && !HasFatalFailure(); n++) {
      std::vector<Item> items = engine_->RandomItems(random, 7, n);
      if (random() % 3 > 0)
        std::shuffle(items.begin(), items.end(), random);
      const bool by_edits = random() % 5 > 0;
      auto prepare = [&] { return by_edits ? engine_->PrepareStanding(items) : engine_->Prepare(items); };
      while (int32_t(engine_->NumInFlight()) == depth)
        engine_->CheckOne();
      for (int swaps = random() % 20 == 0 ? 100 : 0; swaps > 0 && engine_->StandingRows().size() > 1; swaps--)
        CGR_ASSERT_OK(Swap(engine_->StandingRows()[0], engine_->StandingRows()[1])); // more than results follow one by one
      cgr_status status = prepare();
      if (status == CGR_ERROR_BUSY) {
        CGR_ASSERT_OK(cgr_step_wait(engine_->rt, cgr_mark{ 0, 0, engine_->launched + 1 - uint64_t(depth) }, -1, nullptr));
        status = prepare();
      }
      CGR_ASSERT_OK(status);
      CGR_ASSERT_OK(engine_->Launch());
      whole += !by_edits;
      const Rows members = engine_->StandingRows();
      for (const Item &item : items)
        if (random() % 6 == 0 || engine_->requests[item.row]->num_tokens > 120) {
          if (std::find(members.begin(), members.end(), item.row) != members.end())
            CGR_ASSERT_OK(Take(item.row));
          engine_->Close(item.row);
          reopened++;
        }
    }
    engine_->CheckAll();
    engine_->CheckRows();
    EXPECT_GT(reopened, 20);
    EXPECT_GT(whole, 10);
    for (int32_t row : engine_->StandingRows())
      CGR_ASSERT_OK(Take(row));
  }
}

// More pages than a ring slot has room for go ahead in steps of their own, after which the device has no batch layout.
TEST_P(Standing, ChangesThatGoAheadAreFollowedByTheWholeBatch) {
  Make(OptionsFor(GetParam(), [](cgr_config *config) { config->max_changes = 4; }));
  ASSERT_NO_FATAL_FAILURE(PutAll());
  ASSERT_NO_FATAL_FAILURE(Step());
  for (int32_t row : rows_)
    engine_->Reserve(row, 80);
  CGR_ASSERT_OK(Swap(rows_[0], rows_[1]));
  ASSERT_NO_FATAL_FAILURE(Step());
  EXPECT_GT(Bytes(), 2u * kHeader);
  ASSERT_NO_FATAL_FAILURE(StepOf(kHeader));
  engine_->CheckCaches();
}

// ----------------------------------------------------------------------------------------------------------- staged, order

// Data of requests and of tokens is in the order of the batch; data that is not given again is padding.
TEST_P(Standing, StagedDataIsInItsOrder) {
  static cgr_buffer_decl decl[2];
  decl[0] = decl[1] = CGR_BUFFER_DECL_INIT;
  for (cgr_buffer_decl &d : decl) {
    d.dtype = CGR_DTYPE_I32, d.source = CGR_SOURCE_STAGED, d.padding = -7;
  }
  decl[0].dimension = CGR_DIMENSION_REQUESTS;
  decl[0].name = "of requests";
  decl[1].dimension = CGR_DIMENSION_TOKENS;
  decl[1].name = "of tokens";
  EngineOptions options = OptionsFor(GetParam());
  options.adjust = [](cgr_config *config) { config->buffers = decl, config->num_buffers = 2; };
  Make(options);
  int32_t rows[2];
  for (int32_t i = 0; i < 2; i++) { // of the test's own: the engine does not see these steps
    const int32_t page = 120 + i;
    CGR_ASSERT_OK(cgr_request_open(rt(), 1, &rows[i]));
    CGR_ASSERT_OK(cgr_request_set_pages(rt(), rows[i], 0, 0, &page, 1));
  }
  CGR_ASSERT_OK(Put(rows[0], 2, { 5, 6 }));
  CGR_ASSERT_OK(Put(rows[1], 1, { 7 }));
  const int32_t of_requests[] = { 10, 11 }, of_tokens[] = { 20, 21, 22 };
  const cgr_staged staged[] = { { 0, 0, of_requests }, { 1, 0, of_tokens } };
  auto content = [&](int32_t declared) {
    const cgr_buffer_view view = BufferOf(rt(), CGR_BUFFER_DECLARED, declared);
    return engine_->Read<int32_t>(view.data, 4);
  };
  for (int32_t given : { 2, 0, 1 }) {
    cgr_batch batch = StandingBatch();
    batch.staged = staged, batch.num_staged = given;
    const cgr_key key = EagerKey(4, 4);
    batch.forced_key = &key;
    cgr_step step = CGR_STEP_INIT;
    CGR_ASSERT_OK(cgr_step_prepare(rt(), &batch, &step));
    CGR_ASSERT_OK(cgr_step_launch(rt(), &step, engine_->stream));
    CGR_ASSERT_OK(cgr_step_wait(rt(), step.mark, -1, nullptr));
    EXPECT_EQ(content(0), given > 0 ? (Rows{ 10, 11, -7, -7 }) : (Rows{ -7, -7, -7, -7 }));
    EXPECT_EQ(content(1), given > 1 ? (Rows{ 20, 21, 22, -7 }) : (Rows{ -7, -7, -7, -7 }));
    CGR_ASSERT_OK(Set(rows[0], 2, { 5, 6 }));
    engine_->launched = step.mark.seq;
  }
  cgr_batch batch = CGR_BATCH_INIT;
  const cgr_staged bad = { 2, 0, of_requests };
  batch.num_requests = CGR_BATCH_STANDING, batch.staged = &bad, batch.num_staged = 1;
  BatchRefused(CGR_ERROR_INVALID_ARGUMENT, { "staged[0].buffer is 2" }, batch);
  for (int32_t row : rows) {
    CGR_ASSERT_OK(Take(row));
    CGR_ASSERT_OK(cgr_request_close(rt(), row));
  }
  engine_->Forget();
  engine_.reset();
}

// What `record` is told about the step: the lengths of rows that were not touched for some steps.
TEST_P(Standing, RecordIsToldItsBounds) {
  ASSERT_NO_FATAL_FAILURE(PutAll());
  for (int n = 0; n < 4; n++)
    ASSERT_NO_FATAL_FAILURE(Step());
  int32_t longest = 0;
  for (int32_t row : rows_)
    longest = std::max(longest, engine_->requests[row]->num_tokens);
  engine_->records.clear();
  const cgr_key eager = EagerKey(3, 3);
  ASSERT_NO_FATAL_FAILURE(Step(engine_->Decode(rows_), &eager));
  ASSERT_FALSE(engine_->records.empty());
  EXPECT_EQ(engine_->records[0].max_seq_len, longest + 1);
  EXPECT_EQ(engine_->records[0].max_query_len, 1);
  EXPECT_EQ(engine_->records[0].real_requests, 3);
}

CGR_INSTANTIATE_OVER_FEW_DEVICES(Standing);

} // namespace
} // namespace cgr_test

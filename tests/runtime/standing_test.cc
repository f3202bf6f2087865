// The standing batch: its order, and what a step of it sends and uses up.
#include "tests/support/checker.h"
#include "tests/support/standing_case.h"

namespace cgr_test {
namespace {

// ------------------------------------------------------------------------------------------------------------ order, bytes

TEST_P(Standing, StagesWhatWasEdited) {
  Engine &e = *engine_;
  ASSERT_NO_FATAL_FAILURE(PutAllWithPages());
  ASSERT_NO_FATAL_FAILURE(Step());
  EXPECT_EQ(Bytes(), kHeader + 4u * (3 * 3 + 1)) << "whole at first";
  ASSERT_NO_FATAL_FAILURE(Step());
  EXPECT_EQ(Bytes(), uint64_t(kHeader));
  CGR_ASSERT_OK(Take(rows_[0]));
  EXPECT_EQ(e.StandingRows(), (Rows{ rows_[2], rows_[1] })) << "the last takes its place";
  ASSERT_NO_FATAL_FAILURE(Step());
  EXPECT_EQ(Bytes(), uint64_t(kHeader + kEdit));
  CGR_ASSERT_OK(Take(rows_[1]));
  EXPECT_EQ(e.StandingRows(), (Rows{ rows_[2] }));
  ASSERT_NO_FATAL_FAILURE(Step());
  EXPECT_EQ(Bytes(), uint64_t(kHeader)) << "the number of requests says it";
  CGR_ASSERT_OK(Put(rows_[1]));
  CGR_ASSERT_OK(Swap(rows_[2], rows_[1]));
  EXPECT_EQ(e.StandingRows(), (Rows{ rows_[1], rows_[2] }));
  ASSERT_NO_FATAL_FAILURE(Step());
  EXPECT_EQ(Bytes(), uint64_t(kHeader + 2 * kEdit));
  CGR_ASSERT_OK(Swap(rows_[2], rows_[2]));
  CGR_ASSERT_OK(Set(rows_[1]));
  ASSERT_NO_FATAL_FAILURE(Step());
  EXPECT_EQ(Bytes(), uint64_t(kHeader)) << "nothing is another";
  CGR_ASSERT_OK(Set(rows_[1], 1, { 5 }));
  std::vector<Item> items = e.Decode({ rows_[1], rows_[2] });
  items[0].tokens = { 5 };
  ASSERT_NO_FATAL_FAILURE(Step(items));
  EXPECT_EQ(Bytes(), uint64_t(kHeader + kEdit + 4));
  ASSERT_NO_FATAL_FAILURE(Step());
  EXPECT_EQ(Bytes(), uint64_t(kHeader)) << "its tokens are used up";
  e.CheckRows();
  e.CheckCaches();
}

TEST_P(Standing, StepsOfEveryKind) {
  Engine &e = *engine_;
  for (int32_t row : rows_)
    e.Reserve(row, 80);
  e.StepStanding({ { rows_[0], { 7, 8, 9 } }, { rows_[1], { kLast } } });
  e.StepStanding({ { rows_[1], { kLast } }, { rows_[0], {} } });
  e.StepStanding({ { rows_[1], { 3 }, true } });
  e.StepStanding({ { rows_[1], { 3, 4 } }, { rows_[2], {} }, { rows_[0], { kLast, 2, 3 } } });
  e.StepStanding({ { rows_[2], {} } });
  e.StepStanding({});
  e.StepStanding({ { rows_[0], { 1, 2 } }, { rows_[1], { 3, 4 } }, { rows_[2], { 5, 6 } } });
  e.StepStanding({ { rows_[0], { kLast } }, { rows_[1], { kLast } }, { rows_[2], { 6 } } });
  EXPECT_EQ(e.step.key.kind, int32_t{ CGR_KIND_FULL });
  e.CheckRows();
  e.CheckCaches();
}

TEST_P(Standing, UsesForcedKeysAndChooses) {
  Engine &e = *engine_;
  cgr_key key = CGR_KEY_INIT;
  cgr_batch batch = CGR_BATCH_INIT;
  batch.num_requests = CGR_BATCH_STANDING;
  ASSERT_NO_FATAL_FAILURE(PutAll());
  e.Decode(rows_);
  CGR_ASSERT_OK(cgr_step_choose(rt(), &batch, &key));
  EXPECT_EQ(key.num_requests, 4);
  for (const cgr_key &forced : { FullKey(8), EagerKey(5, 6), FullKey(4) }) {
    ASSERT_NO_FATAL_FAILURE(Step(e.Decode(rows_), &forced));
    EXPECT_EQ(e.step.key.num_requests, forced.num_requests);
    EXPECT_EQ(e.step.reason, int32_t{ CGR_REASON_FORCED });
  }
  const cgr_key small = FullKey(2);
  e.Decode(rows_);
  Refused(
      CGR_ERROR_INVALID_ARGUMENT, { "forced_key" }, [&] { return e.PrepareStandingAsIs({}, &small); }, 1);
}

// A whole batch leaves the standing batch as it is, and moves its rows.
TEST_P(Standing, WholeBatchesComeBetween) {
  Engine &e = *engine_;
  ASSERT_NO_FATAL_FAILURE(PutAllWithPages());
  for (int round = 0; round < 3; round++) {
    ASSERT_NO_FATAL_FAILURE(Step());
    ASSERT_NO_FATAL_FAILURE(Step());
    EXPECT_EQ(Bytes(), uint64_t(kHeader));
    for (int n = 0; n <= round; n++)
      e.Step(e.Decode({ rows_[2], rows_[0] }));
    ASSERT_NO_FATAL_FAILURE(Step());
    EXPECT_EQ(Bytes(), kHeader + 4u * (3 * 3 + 1)) << "whole again";
    e.Step(e.Chunks({ { rows_[1], 1 + round } }));
    EXPECT_EQ(e.StandingRows(), rows_);
    ASSERT_NO_FATAL_FAILURE(Step());
    e.CheckRows();
  }
  CGR_ASSERT_OK(Set(rows_[0], 2, { 8, 9 })); // given before a whole batch, used after it
  e.Step(e.Decode({ rows_[0] }));
  e.Reserve(rows_[0], 80);
  std::vector<Item> items = e.Decode(rows_);
  items[0].tokens = { 8, 9 };
  ASSERT_NO_FATAL_FAILURE(Step(items));
  e.CheckCaches();
}

// The device has the standing batch by then, so a repeat of the last whole batch must be sent again.
TEST_P(Standing, AWholeBatchIsNotTakenForTheOneBefore) {
  Engine &e = *engine_;
  ASSERT_NO_FATAL_FAILURE(PutAllWithPages());
  for (int n = 0; n < 3; n++) {
    e.Step(e.Decode({ rows_[2], rows_[0], rows_[1] }));
    e.Step(e.Decode({ rows_[2], rows_[0], rows_[1] }));
    ASSERT_NO_FATAL_FAILURE(Step());
  }
  e.Step(e.Decode({ rows_[2], rows_[0], rows_[1] }));
  e.CheckCaches();
}

TEST_P(Standing, AfterAFlushTheWholeBatchIsSent) {
  Engine &e = *engine_;
  ASSERT_NO_FATAL_FAILURE(PutAllWithPages());
  ASSERT_NO_FATAL_FAILURE(Step());
  e.Reserve(rows_[0], 100);
  CGR_ASSERT_OK(e.Flush());
  ASSERT_NO_FATAL_FAILURE(Step());
  EXPECT_EQ(Bytes(), kHeader + 4u * (3 * 3 + 1));
}

// ---------------------------------------------------------------------------------------------------------- tokens, pages

TEST_P(Standing, ARequestWithoutItsTokensIsRefused) {
  Engine &e = *engine_;
  const int32_t row = rows_[1], fresh = e.Open();
  const Words last = { "row " + std::to_string(row), "CGR_TOKEN_LAST", "cgr_standing_update" };
  const Words none = { "row " + std::to_string(row), "no tokens", "cgr_standing_update" };
  for (int32_t r : rows_)
    e.Reserve(r, 80);
  e.Reserve(fresh, 80);
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
  e.SetLength(row, 4);
  StepRefused(CGR_ERROR_INVALID_ARGUMENT, last);
  CGR_ASSERT_OK(Take(row));
  ASSERT_NO_FATAL_FAILURE(Step({ { rows_[0], { kLast } }, { fresh, {} } }));
  e.Step({ { row, { 3 } }, { fresh, { 2 } } });
}

// A whole batch may give a member its last token, or take it away.
TEST_P(Standing, LastTokensOfWholeBatchesCount) {
  Engine &e = *engine_;
  int32_t fresh = e.Open();
  e.Reserve(fresh, 40);
  CGR_ASSERT_OK(Put(fresh));
  StepRefused(CGR_ERROR_INVALID_ARGUMENT, { "row " + std::to_string(fresh) });
  e.Step({ { fresh, { 5, 6 } } });
  ASSERT_NO_FATAL_FAILURE(Step());
  e.Step({ { fresh, { 5 }, true } });
  StepRefused(CGR_ERROR_INVALID_ARGUMENT, { "row " + std::to_string(fresh) });
  e.Step({ { fresh, { 5 } } });
  ASSERT_NO_FATAL_FAILURE(Step());
}

// A chunk that has run is set again, whatever token a whole batch has given its row meanwhile.
TEST_P(Standing, ARowsNewTokenIsNotItsNextChunk) {
  Engine &e = *engine_;
  const int32_t row = rows_[0], standing = e.Open();
  const Words none = { "row " + std::to_string(row), "no tokens", "cgr_standing_update" };
  e.Reserve(row, 40);
  e.Reserve(standing, 40);
  CGR_ASSERT_OK(Put(standing, 0, {}, CGR_REQUEST_PARTIAL)); // stands still: it needs nothing
  for (int32_t chunk = 1; chunk <= 2; chunk++) {
    const Rows tokens(size_t(chunk), 3);
    CGR_ASSERT_OK(Put(row, chunk, tokens, CGR_REQUEST_PARTIAL));
    ASSERT_NO_FATAL_FAILURE(Step({ { standing, {}, true }, { row, tokens, true } }));
    StepRefused(CGR_ERROR_INVALID_ARGUMENT, none);
    e.Step({ { row, { 5 } } });
    StepRefused(CGR_ERROR_INVALID_ARGUMENT, none);
    CGR_ASSERT_OK(Set(row, 1));
    ASSERT_NO_FATAL_FAILURE(Step({ { standing, {}, true }, { row, { kLast } } }));
    CGR_ASSERT_OK(Take(row));
  }
}

// Exhausted pages are noticed at the very step at which they end, whatever was added, taken away or set in between.
TEST_P(Standing, PagesThatEndAreSeen) {
  Engine &e = *engine_;
  ASSERT_NO_FATAL_FAILURE(PutAll());
  const int32_t row = rows_[1], page = e.o.page_size;
  const Words words = { "row " + std::to_string(row), "pages of group 0" };
  e.Reserve(rows_[0], 150);
  e.Reserve(rows_[2], 150);
  std::vector<Item> items = { { rows_[0], { kLast } }, { row, { kLast } }, { rows_[2], { kLast } } };
  for (int n = 0; n < 3; n++) {
    e.Reserve(row, e.requests[row]->num_tokens + 1);
    do
      ASSERT_NO_FATAL_FAILURE(Step(items));
    while (e.requests[row]->num_tokens % page != 0);
    for (int again = 0; again < 2; again++)
      StepRefused(CGR_ERROR_PAGES_MISSING, words);
  }
  e.Reserve(row, e.requests[row]->num_tokens + 2 * page);
  ASSERT_NO_FATAL_FAILURE(Step(items));
  e.DropPages(row, e.requests[row]->num_tokens / page + 1, 1);
  while (e.requests[row]->num_tokens % page != 0)
    ASSERT_NO_FATAL_FAILURE(Step(items));
  StepRefused(CGR_ERROR_PAGES_MISSING, words);
  CGR_ASSERT_OK(Set(row, 0));
  items[1].tokens = {};
  ASSERT_NO_FATAL_FAILURE(Step(items));
  e.SetLength(row, e.requests[row]->num_tokens - 2);
  CGR_ASSERT_OK(Set(row, 2, { 4, 5 }));
  items[1].tokens = { 4, 5 };
  ASSERT_NO_FATAL_FAILURE(Step(items));
  CGR_ASSERT_OK(Set(row, 2, { 4, 5 }));
  StepRefused(CGR_ERROR_PAGES_MISSING, words);
  CGR_ASSERT_OK(Take(row));
  e.DropPages(row, 0, 1);
  CGR_ASSERT_OK(Put(row));
  StepRefused(CGR_ERROR_PAGES_MISSING, { "row " + std::to_string(row), "expected all from page 0 on" });
  CGR_ASSERT_OK(Take(row));
  e.CheckCaches();
  rows_ = { rows_[0], rows_[2] };
}

TEST_P(Standing, SequencesThatAreTooLongAreSeen) {
  Engine &e = *engine_;
  const int32_t row = rows_[0], longest = e.o.max_seq_len;
  e.Reserve(row, longest);
  CGR_ASSERT_OK(Put(row));
  while (e.requests[row]->num_tokens < longest)
    ASSERT_NO_FATAL_FAILURE(Step({ { row, { kLast } } }));
  StepRefused(CGR_ERROR_SEQUENCE_TOO_LONG, { "row " + std::to_string(row), "max_seq_len" });
  CGR_ASSERT_OK(Take(row));
  rows_ = { rows_[1], rows_[2] };
}

// -------------------------------------------------------------------------------------------- cancelled, failed, in flight

TEST_P(Standing, ACancelledStepTakesNothing) {
  Engine &e = *engine_;
  ASSERT_NO_FATAL_FAILURE(PutAll());
  ASSERT_NO_FATAL_FAILURE(Step());
  for (int32_t row : rows_)
    e.Reserve(row, 80);
  CGR_ASSERT_OK(Swap(rows_[0], rows_[2]));
  CGR_ASSERT_OK(Set(rows_[1], 3, { 1, 2, 3 }));
  const std::vector<Item> items = { { rows_[2], { kLast } }, { rows_[1], { 1, 2, 3 } }, { rows_[0], { kLast } } };
  uint64_t bytes = 0;
  for (int n = 0; n < 3; n++) {
    CGR_ASSERT_OK(e.PrepareStandingAsIs(items));
    bytes = n == 0 ? Bytes() : bytes;
    EXPECT_EQ(Bytes(), bytes);
    CGR_ASSERT_OK(e.Cancel());
  }
  ASSERT_NO_FATAL_FAILURE(Step(items));
  EXPECT_EQ(Bytes(), bytes);
  StepRefused(CGR_ERROR_INVALID_ARGUMENT, { "no tokens" });
  CGR_ASSERT_OK(Set(rows_[1]));
  ASSERT_NO_FATAL_FAILURE(Step());
  e.CheckCaches();
}

// Edits, tokens and places are kept for the step that succeeds; pages are in use until the failed number has completed.
TEST_P(Standing, AFailedStepTakesNothing) {
  Engine &e = *engine_;
  ASSERT_NO_FATAL_FAILURE(PutAll());
  for (int32_t row : rows_)
    e.Reserve(row, 80);
  for (int32_t place = 0; place < 4; place++) {
    SCOPED_TRACE(place);
    ASSERT_NO_FATAL_FAILURE(Step());
    CGR_ASSERT_OK(Swap(rows_[0], rows_[2]));
    CGR_ASSERT_OK(Set(rows_[1], 2, { kLast, 5 }));
    std::swap(rows_[0], rows_[2]);
    const std::vector<Item> items = { { rows_[0], { kLast } }, { rows_[1], { kLast, 5 } }, { rows_[2], { kLast } } };
    for (int n = 0; n < 2; n++) {
      CGR_ASSERT_OK(e.PrepareStandingAsIs(items));
      EXPECT_EQ(e.step.key.kind, int32_t{ CGR_KIND_NONE });
      e.state.fail_after = place % 2;
      CGR_EXPECT(CGR_ERROR_CALLBACK, e.Launch());
      e.state.fail_after = -1;
      EXPECT_EQ(e.step.state, CGR_STEP_ABANDONED);
    }
    ASSERT_NO_FATAL_FAILURE(Step(items));
    CGR_ASSERT_OK(Set(rows_[1]));
    e.CheckRows();
  }
  e.CheckCaches();
}

// Results are collected late and reflect the batch as it was; whole batches come in between. The engine compares rows, tags and
// tokens of every step.
TEST_P(Standing, LateResultsAreOfTheBatchAsItWas) {
  // Racecheck keeps memory for each launch until the end: as in late_results_test.
  const std::vector<int32_t> depths = UnderChecker() ? std::vector<int32_t>{ 3 } : std::vector<int32_t>{ 2, 3, 7 };
  const int steps = UnderChecker() ? 60 : 200;
  for (int32_t depth : depths) {
    SCOPED_TRACE(depth);
    EngineOptions options = OptionsFor(GetParam());
    options.adjust = [depth](cgr_config *config) { config->ring_depth = depth; };
    rows_.clear();
    engine_.reset();
    engine_ = std::make_unique<Engine>(options);
    CGR_ASSERT_OK(engine_->Capture());
    Engine &e = *engine_;
    std::mt19937 random{ uint32_t(depth) };
    int whole = 0, reopened = 0;
    for (int n = 0; n < steps && !HasFatalFailure(); n++) {
      std::vector<Item> items;
      while (e.requests.size() < 7)
        e.Open();
      for (int32_t row : e.Rows()) {
        const Request &r = *e.requests[row];
        if (random() % 4 == 0)
          continue;
        int32_t length = random() % 3 == 0 ? int32_t(random() % 6) : 1;
        e.Reserve(row, r.num_tokens + length);
        items.push_back(Engine::Chunk(row, length, n, random() % 4 == 0));
        if (length > 0 && r.has_token)
          items.back().tokens[0] = kLast;
      }
      if (random() % 3 > 0)
        std::shuffle(items.begin(), items.end(), random);
      const bool by_edits = random() % 5 > 0;
      auto prepare = [&] { return by_edits ? e.PrepareStanding(items) : e.Prepare(items); };
      while (int32_t(e.NumInFlight()) == depth)
        e.CheckOne();
      for (int swaps = random() % 20 == 0 ? 100 : 0; swaps > 0 && e.StandingRows().size() > 1; swaps--)
        CGR_ASSERT_OK(Swap(e.StandingRows()[0], e.StandingRows()[1])); // more than results follow one by one
      cgr_status status = prepare();
      if (status == CGR_ERROR_BUSY) {
        CGR_ASSERT_OK(cgr_step_wait(e.rt, cgr_mark{ 0, 0, e.launched + 1 - uint64_t(depth) }, -1, nullptr));
        status = prepare();
      }
      CGR_ASSERT_OK(status);
      CGR_ASSERT_OK(e.Launch());
      whole += !by_edits;
      const Rows members = e.StandingRows();
      for (const Item &item : items)
        if (random() % 6 == 0 || e.requests[item.row]->num_tokens > 120) {
          if (std::find(members.begin(), members.end(), item.row) != members.end())
            CGR_ASSERT_OK(Take(item.row));
          e.Close(item.row);
          reopened++;
        }
    }
    e.CheckAll();
    e.CheckRows();
    EXPECT_GT(reopened, 20);
    EXPECT_GT(whole, 10);
    for (int32_t row : e.StandingRows())
      CGR_ASSERT_OK(Take(row));
  }
}

// More pages than a ring slot has room for go ahead in steps of their own, after which the device has no batch layout.
TEST_P(Standing, ChangesThatGoAheadAreFollowedByTheWholeBatch) {
  EngineOptions options = OptionsFor(GetParam());
  options.adjust = [](cgr_config *config) { config->max_changes = 4; };
  Make(options);
  Engine &e = *engine_;
  ASSERT_NO_FATAL_FAILURE(PutAll());
  ASSERT_NO_FATAL_FAILURE(Step());
  for (int32_t row : rows_)
    e.Reserve(row, 80);
  CGR_ASSERT_OK(Swap(rows_[0], rows_[1]));
  ASSERT_NO_FATAL_FAILURE(Step());
  EXPECT_GT(Bytes(), 2u * kHeader);
  ASSERT_NO_FATAL_FAILURE(Step());
  EXPECT_EQ(Bytes(), uint64_t(kHeader));
  e.CheckCaches();
}

// ----------------------------------------------------------------------------------------------------------- staged, order

// Data of requests and of tokens is in the order of the batch; data that is not given again is padding.
TEST_P(Standing, StagedDataIsInItsOrder) {
  static cgr_buffer_decl decl[2];
  decl[0] = decl[1] = CGR_BUFFER_DECL_INIT;
  for (cgr_buffer_decl &d : decl) {
    d.dtype = CGR_DTYPE_I32;
    d.source = CGR_SOURCE_STAGED;
    d.padding = -7;
  }
  decl[0].dimension = CGR_DIMENSION_REQUESTS;
  decl[0].name = "of requests";
  decl[1].dimension = CGR_DIMENSION_TOKENS;
  decl[1].name = "of tokens";
  EngineOptions options = OptionsFor(GetParam());
  options.adjust = [](cgr_config *config) {
    config->buffers = decl;
    config->num_buffers = 2;
  };
  Make(options);
  Engine &e = *engine_;
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
    cgr_buffer_view view = CGR_BUFFER_VIEW_INIT;
    CGR_EXPECT_OK(cgr_buffer_get(rt(), nullptr, CGR_BUFFER_DECLARED, declared, &view));
    return e.Read<int32_t>(view.data, 4);
  };
  for (int32_t given : { 2, 0, 1 }) {
    cgr_batch batch = CGR_BATCH_INIT;
    batch.num_requests = CGR_BATCH_STANDING;
    batch.staged = staged;
    batch.num_staged = given;
    const cgr_key key = EagerKey(4, 4);
    batch.forced_key = &key;
    cgr_step step = CGR_STEP_INIT;
    CGR_ASSERT_OK(cgr_step_prepare(rt(), &batch, &step));
    CGR_ASSERT_OK(cgr_step_launch(rt(), &step, e.stream));
    CGR_ASSERT_OK(cgr_step_wait(rt(), step.mark, -1, nullptr));
    EXPECT_EQ(content(0), given > 0 ? (Rows{ 10, 11, -7, -7 }) : (Rows{ -7, -7, -7, -7 }));
    EXPECT_EQ(content(1), given > 1 ? (Rows{ 20, 21, 22, -7 }) : (Rows{ -7, -7, -7, -7 }));
    CGR_ASSERT_OK(Set(rows[0], 2, { 5, 6 }));
    e.launched = step.mark.seq;
  }
  cgr_batch batch = CGR_BATCH_INIT;
  const cgr_staged bad = { 2, 0, of_requests };
  batch.num_requests = CGR_BATCH_STANDING;
  batch.staged = &bad;
  batch.num_staged = 1;
  BatchRefused(CGR_ERROR_INVALID_ARGUMENT, { "staged[0].buffer is 2" }, batch);
  for (int32_t row : rows) {
    CGR_ASSERT_OK(Take(row));
    CGR_ASSERT_OK(cgr_request_close(rt(), row));
  }
  e.Forget();
  engine_.reset();
}

// What `record` is told about the step: the lengths of rows that were not touched for some steps.
TEST_P(Standing, RecordIsToldItsBounds) {
  Engine &e = *engine_;
  ASSERT_NO_FATAL_FAILURE(PutAll());
  for (int n = 0; n < 4; n++)
    ASSERT_NO_FATAL_FAILURE(Step());
  int32_t longest = 0;
  for (int32_t row : rows_)
    longest = std::max(longest, e.requests[row]->num_tokens);
  e.records.clear();
  const cgr_key eager = EagerKey(3, 3);
  ASSERT_NO_FATAL_FAILURE(Step(e.Decode(rows_), &eager));
  ASSERT_FALSE(e.records.empty());
  EXPECT_EQ(e.records[0].max_seq_len, longest + 1);
  EXPECT_EQ(e.records[0].max_query_len, 1);
  EXPECT_EQ(e.records[0].real_requests, 3);
}

CGR_INSTANTIATE_OVER_FEW_DEVICES(Standing);

} // namespace
} // namespace cgr_test

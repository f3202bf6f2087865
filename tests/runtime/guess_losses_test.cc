// One request whose steps have guesses, step by step: when their results are taken, and what a loss does to them.
#include "tests/support/guess_engine.h"

namespace cgr_test {
namespace {

using namespace guesses;

class OneRequest {
public:
  OneRequest(cgr_host_schedule schedule, int32_t num_pages, int32_t max_stop_tokens = 0)
      : engine(HostParam(schedule), kMost, 34, false, CGR_MODE_FULL, max_stop_tokens) {
    CGR_EXPECT_OK(cgr_request_open(engine.rt, 77, &row));
    for (int32_t p = 0; p < num_pages; p++) {
      const int32_t page = 2 + p;
      CGR_EXPECT_OK(cgr_request_set_pages(engine.rt, row, 0, p, &page, 1));
    }
  }
  ~OneRequest() { CGR_EXPECT_OK(cgr_request_close(engine.rt, row)); }
  cgr_status Prepare(const List &tokens, int32_t guesses) {
    const int32_t len = int32_t(tokens.size());
    const uint32_t flags = CGR_REQUEST_DRAFTS(guesses);
    cgr_batch batch = BatchOf(1, &row, tokens.data(), &len);
    batch.flags = &flags;
    return cgr_step_prepare(engine.rt, &batch, &step);
  }
  cgr_mark Launch(const List &tokens, int32_t guesses) {
    CGR_EXPECT_OK(Prepare(tokens, guesses));
    CGR_EXPECT_OK(cgr_step_launch(engine.rt, &step, engine.stream));
    return step.mark;
  }
  cgr_status Wait(cgr_mark mark) { return cgr_step_wait(engine.rt, mark, -1, &result); }

  GuessEngine engine;
  int32_t row = -1;
  cgr_step step = CGR_STEP_INIT;
  cgr_step_result result = CGR_STEP_RESULT_INIT;
};

// A prepare takes the results that are there, whether anyone has waited for them or not.
TEST(OneGuess, IsSettledByTheNextPrepare) {
  OneRequest r(CGR_SCHEDULE_EARLIEST, 1);
  r.Launch({ 1, 2, 3, 4, 5, 6, 7, 8, 9, 10 }, 0);
  CGR_ASSERT_OK(r.Wait(r.Launch({ CGR_TOKEN_LAST, kVocab - 1, kVocab - 1, kVocab - 1 }, 3))); // the last of them waits for all
  const int32_t length = r.engine.Info(r.row).num_tokens;
  ASSERT_LT(length, 13) << "some are rejected";
  const cgr_stats stats = StatsOf(r.engine.rt);
  EXPECT_EQ(stats.drafts, 3u);
  EXPECT_EQ(stats.drafts_accepted, uint64_t(r.result.num_tokens[0] - 1));
  r.Launch({ CGR_TOKEN_LAST, kVocab - 1 }, 1);
  CGR_ASSERT_OK(cgr_stream_synchronize(r.engine.dev, r.engine.stream));
  const int32_t exact = r.engine.Length(r.row);
  ASSERT_LT(exact + 1, 16);
  EXPECT_GT(r.engine.Info(r.row).num_tokens, exact) << "the result has not been taken yet";
  CGR_EXPECT_OK(r.Prepare(List(size_t(16 - exact), 1), 0)); // up to the end of its page
  CGR_EXPECT_OK(cgr_step_cancel(r.engine.rt, &r.step));
}

// After a loss nothing waits for the steps that the device will refuse: their guesses are rejected, and the next step is right.
TEST(OneGuess, DoesNotOutliveALoss) {
  OneRequest r(CGR_SCHEDULE_LATEST, 3);
  const List prompt = { 1, 2, 3, 4 }, want = Continued(prompt, 3);
  CGR_ASSERT_OK(r.Wait(r.Launch(prompt, 0)));
  CGR_ASSERT_OK(r.Prepare({ CGR_TOKEN_LAST, 0, 0 }, 2));
  r.engine.DamagePrepared();
  CGR_ASSERT_OK(cgr_step_launch(r.engine.rt, &r.step, r.engine.stream));
  const cgr_mark lost = r.step.mark, refused = r.Launch({ CGR_TOKEN_LAST, 0, 0 }, 2);
  CGR_ASSERT(CGR_ERROR_STEP, r.Wait(lost));
  ASSERT_LT(Completed(r.engine.rt), refused.seq) << "it is still under way";
  EXPECT_EQ(r.engine.Info(r.row).num_tokens, r.engine.Info(r.row).min_tokens);
  CGR_ASSERT_OK(cgr_request_set_length(r.engine.rt, r.row, 4));
  CGR_ASSERT_OK(r.Wait(r.Launch({ want[0], want[1], want[2] }, 2)));
  EXPECT_EQ(List(r.result.tokens, r.result.tokens + 2), List(want.begin() + 1, want.end()));
  EXPECT_EQ(r.result.num_tokens[0], 3);
  EXPECT_EQ(r.engine.Info(r.row).num_tokens, r.engine.Length(r.row));
}

// A step that is prepared when a loss is seen is refused, whenever it is launched; one that is prepared afterwards is not,
// whether the other has completed or not. Guesses and stops leave notes of a step.
TEST(OneGuess, OfAStepPreparedBeforeALossWasSeenDelaysNoOther) {
  for (int32_t stops : { 0, 1 })
    for (int32_t guesses : { 0, 2 }) {
      SCOPED_TRACE("stops " + std::to_string(stops) + ", guesses " + std::to_string(guesses));
      OneRequest r(CGR_SCHEDULE_LATEST, 3, stops);
      const List prompt = { 1, 2, 3, 4 }, want = Continued(prompt, 3);
      List tokens(size_t(1 + guesses), 0);
      tokens[0] = CGR_TOKEN_LAST;
      CGR_ASSERT_OK(r.Wait(r.Launch(prompt, 0)));
      CGR_ASSERT_OK(r.Prepare(tokens, guesses));
      r.engine.DamagePrepared();
      CGR_ASSERT_OK(cgr_step_launch(r.engine.rt, &r.step, r.engine.stream));
      const cgr_mark lost = r.step.mark;
      CGR_ASSERT_OK(r.Prepare(tokens, guesses));
      CGR_ASSERT(CGR_ERROR_STEP, r.Wait(lost));
      CGR_ASSERT_OK(cgr_step_launch(r.engine.rt, &r.step, r.engine.stream));
      const cgr_mark refused = r.step.mark;
      ASSERT_LT(Completed(r.engine.rt), refused.seq) << "it is still under way";
      CGR_ASSERT_OK(r.Prepare({}, 0));
      EXPECT_EQ(r.engine.Info(r.row).num_tokens, r.engine.Info(r.row).min_tokens) << "its guesses are rejected";
      CGR_ASSERT_OK(cgr_step_cancel(r.engine.rt, &r.step));
      CGR_ASSERT_OK(cgr_request_set_length(r.engine.rt, r.row, 4));
      const cgr_mark next = r.Launch({ want[0], want[1], want[2] }, 2);
      CGR_ASSERT_OK(r.Wait(next));
      EXPECT_EQ(List(r.result.tokens, r.result.tokens + 2), List(want.begin() + 1, want.end()));
      EXPECT_EQ(r.result.num_tokens[0], 3);
      EXPECT_EQ(r.engine.Info(r.row).num_tokens, r.engine.Length(r.row));
      CGR_ASSERT(CGR_ERROR_STEP, r.Wait(refused));
      EXPECT_EQ(r.result.guard.error, CGR_GUARD_SEQUENCE);
      EXPECT_EQ(r.engine.Info(r.row).num_tokens, r.engine.Info(r.row).min_tokens);
      EXPECT_EQ(r.engine.Info(r.row).num_tokens, r.engine.Length(r.row));
    }
}

// A loss that is reported before the host sees its step complete is handled later: lengths are not exact yet.
TEST(OneGuess, DefersALossThatIsNotSeenYet) {
  OneRequest r(CGR_SCHEDULE_LATEST, 3);
  CGR_ASSERT_OK(r.Wait(r.Launch({ 1, 2, 3, 4 }, 0)));
  const cgr_mark mark = r.Launch({ CGR_TOKEN_LAST, 0, 0 }, 2);
  cgr_runtime *rt = r.engine.rt;
  const uint64_t before = rt->lane.generation;
  rt->lane.ring.completion->generation++;
  CGR_ASSERT_OK(r.Prepare({ CGR_TOKEN_LAST }, 0));
  EXPECT_EQ(rt->lane.generation, before);
  rt->lane.ring.completion->generation--;
  CGR_ASSERT_OK(cgr_step_cancel(rt, &r.step));
  CGR_ASSERT_OK(r.Wait(mark));
}

// A step that drops a malformed change runs, and its guesses are accepted as any; what was prepared meanwhile is refused, and its
// guesses with it. Everything is sent again, the dropped page too.
TEST(OneGuess, OutlivesADroppedChange) {
  for (bool ahead : { false, true }) {
    OneRequest r(CGR_SCHEDULE_LATEST, 1);
    cgr_runtime *rt = r.engine.rt;
    const List prompt = { 1, 2, 3, 4 }, want = Continued(prompt, 20);
    CGR_ASSERT_OK(r.Wait(r.Launch(prompt, 0)));
    const int32_t page = 9;
    CGR_ASSERT_OK(cgr_request_set_pages(rt, r.row, 0, 1, &page, 1));
    CGR_ASSERT_OK(r.Prepare({ CGR_TOKEN_LAST, want[1], 0 }, 2)); // the second is wrong, unless it is 0
    r.engine.DamageChange();
    CGR_ASSERT_OK(cgr_step_launch(rt, &r.step, r.engine.stream));
    const cgr_mark dropped = r.step.mark;
    const cgr_mark refused = ahead ? r.Launch({ CGR_TOKEN_LAST, CGR_TOKEN_DRAFT(0), CGR_TOKEN_DRAFT(1) }, 2) : dropped;
    CGR_ASSERT(CGR_ERROR_STEP, r.Wait(dropped));
    EXPECT_EQ(r.result.guard.error, CGR_GUARD_CHANGE);
    const int32_t accepted = want[0] == 0 ? 0 : want[2] == 0 ? 2 : 1;
    ASSERT_EQ(r.result.num_tokens[0], 1 + accepted);
    EXPECT_EQ(List(r.result.tokens, r.result.tokens + 1 + accepted), List(want.begin() + 1, want.begin() + 2 + accepted));
    if (ahead) {
      CGR_ASSERT(CGR_ERROR_STEP, r.Wait(refused));
      EXPECT_EQ(r.result.guard.error, CGR_GUARD_SEQUENCE);
    }
    int32_t length = 4 + 1 + accepted;
    const int32_t counted = length + (ahead ? 1 : 0); // the refused step's own token is the engine's to set back
    EXPECT_EQ(r.engine.Info(r.row).min_tokens, counted);
    EXPECT_EQ(r.engine.Info(r.row).num_tokens, counted);
    EXPECT_EQ(r.engine.Length(r.row), length);
    EXPECT_EQ(StatsOf(rt).drafts, 2u) << "those of the refused step do not count";
    CGR_ASSERT_OK(cgr_request_set_length(rt, r.row, length)); // its last token is known by the result
    for (size_t at = size_t(length) - 4; length < 20; at = size_t(length) - 4) {
      CGR_ASSERT_OK(r.Wait(r.Launch({ want[at], want[at + 1], kVocab - 1 }, 2)));
      ASSERT_GE(r.result.num_tokens[0], 2);
      EXPECT_EQ(List(r.result.tokens, r.result.tokens + 2), List(want.begin() + int64_t(at) + 1, want.begin() + int64_t(at) + 3));
      length += r.result.num_tokens[0];
      EXPECT_EQ(r.engine.Length(r.row), length);
    }
  }
}

} // namespace
} // namespace cgr_test

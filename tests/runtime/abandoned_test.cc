// Steps whose `record` fails half-way: none of their tokens count, none of their changes are lost, their pages are in use until
// their number has completed, and the first cause is reported. Nothing here waits for the device after a failure.
#include "tests/support/abandon.h"

namespace cgr_test {
namespace {

class Abandoned : public CapturedTest {
protected:
  // Prepares and launches a step whose `record` fails after `k` things; false if there were fewer and the step is good.
  bool Abandon(const std::vector<Item> &items, int32_t k) {
    uint64_t abandoned = engine_->Stats().abandoned;
    CGR_EXPECT_OK(engine_->Prepare(items));
    engine_->state.fail_after = k;
    cgr_status status = engine_->Launch();
    engine_->state.fail_after = -1;
    if (status == CGR_OK)
      return false;
    EXPECT_EQ(std::string(cgr_status_name(status)), "CGR_ERROR_CALLBACK") << cgr_last_message();
    EXPECT_EQ(engine_->step.state, CGR_STEP_ABANDONED);
    EXPECT_EQ(engine_->Stats().abandoned, abandoned + 1);
    for (const Item &item : items) {
      cgr_request_info info = engine_->Info(item.row);
      EXPECT_EQ(info.num_tokens, engine_->requests[item.row]->num_tokens);
      EXPECT_EQ(info.last.seq, engine_->step.mark.seq);
      EXPECT_GT(info.last.seq, 0u);
    }
    return true;
  }
};

TEST_P(Abandoned, FailingRecordLosesNothingWhereverItFails) {
  int32_t places = AbandonEverywhere(*engine_, [this](const std::vector<Item> &items, int32_t k) { return Abandon(items, k); });
  EXPECT_GT(places, engine_->o.feed == Feed::kTokens ? 5 : 2);
}

// The step has a number of its own and yields nothing.
TEST_P(Abandoned, ItsResultIsEmpty) {
  int32_t a = engine_->Start(5, 1), b = engine_->Start(16, 2);
  engine_->Reserve(a, 20);
  engine_->Reserve(b, 20);
  std::vector<int64_t> last = engine_->Buffer(CGR_BUFFER_ROW_LAST_TOKENS);
  ASSERT_TRUE(Abandon({ { a, { 1, 2 } }, { b, { 3 } } }, 2));
  cgr_step_result result = CGR_STEP_RESULT_INIT;
  CGR_EXPECT_OK(cgr_step_wait(engine_->rt, engine_->step.mark, -1, &result));
  EXPECT_EQ(result.mark.seq, engine_->step.mark.seq);
  EXPECT_EQ(result.num_requests, 0);
  EXPECT_EQ(result.guard.error, CGR_GUARD_NONE);
  EXPECT_EQ(engine_->Buffer(CGR_BUFFER_ROW_LAST_TOKENS), last);
  EXPECT_EQ(engine_->Info(a).has_token, 1);
  engine_->Step(engine_->Decode({ a, b })); // the last token is still the previous step's
}

// Its counters: a step that was given up is the runtime's own, and none of its tokens count.
TEST_P(Abandoned, ItCountsAsAStepOfTheRuntimeItself) {
  int32_t a = engine_->Start(5, 1);
  engine_->Reserve(a, 20);
  cgr_stats before = engine_->Stats();
  ASSERT_TRUE(Abandon({ { a, { 1, 2 } } }, 1));
  cgr_stats after = engine_->Stats();
  EXPECT_EQ(after.steps, before.steps + 1);
  EXPECT_EQ(after.by_reason[CGR_KIND_NONE][CGR_REASON_INTERNAL], before.by_reason[CGR_KIND_NONE][CGR_REASON_INTERNAL] + 1);
  EXPECT_EQ(after.real_tokens, before.real_tokens);
  EXPECT_EQ(after.padded_tokens, before.padded_tokens);
  EXPECT_EQ(after.bytes_staged, before.bytes_staged);
}

// Its appends may run late. Its pages go to another request once last_seq allows it, which must be late enough; here they are
// reused at that very moment, and the new owner's tokens must survive.
TEST_P(Abandoned, ItsPagesAreInUseUntilItsNumberHasCompleted) {
  for (int round = 0; round < 6 && !HasFatalFailure(); round++) {
    SCOPED_TRACE(round);
    int32_t given_up = engine_->Open();
    engine_->Reserve(given_up, 64);
    std::vector<int32_t> pages = engine_->requests[given_up]->pages;
    // The step fails at its very end: all its appends are enqueued.
    ASSERT_TRUE(Abandon({ Engine::Chunk(given_up, 60, round) }, engine_->o.feed == Feed::kTokens ? 6 : 2));
    uint64_t last = engine_->Info(given_up).last.seq;
    EXPECT_EQ(last, engine_->step.mark.seq);
    engine_->Close(given_up);
    // All other pages are taken, so the next request gets these as soon as they are free.
    std::vector<int32_t> hold;
    while (engine_->FreePages() > 4 && hold.size() < 12)
      hold.push_back(engine_->Open()), engine_->Reserve(hold.back(), std::min(160, 16 * int32_t(engine_->FreePages() - 4)));
    cgr_status status = cgr_step_wait(engine_->rt, cgr_mark{ 0, 0, last }, -1, nullptr);
    CGR_ASSERT_OK(status);
    int32_t owner = engine_->Open();
    engine_->Reserve(owner, 64);
    engine_->Step({ Engine::Chunk(owner, 50, 30 + round) });
    for (int n = 0; n < 3; n++)
      engine_->Step(engine_->Decode({ owner }));
    engine_->CheckCaches();
    engine_->Close(owner);
    for (int32_t row : hold)
      engine_->Close(row);
  }
}

// Steps before and after it are in flight with it.
TEST_P(Abandoned, StepsAroundItAreRight) {
  std::vector<int32_t> rows = { engine_->Start(5, 1), engine_->Start(16, 2), engine_->Start(9, 3) };
  for (int32_t row : rows)
    engine_->Reserve(row, 160);
  engine_->check_outputs = false;
  for (int n = 0; n < 20 && !HasFatalFailure(); n++) {
    SCOPED_TRACE(n);
    CGR_ASSERT_OK(engine_->Prepare(engine_->Decode(rows)));
    CGR_ASSERT_OK(engine_->Launch());
    ASSERT_TRUE(Abandon({ { rows[0], { CGR_TOKEN_LAST, 4 } }, { rows[2], { 9 } } }, n % 4));
    CGR_ASSERT_OK(engine_->Prepare({ { rows[0], { CGR_TOKEN_LAST, 4 } }, { rows[1], { CGR_TOKEN_LAST } } }));
    CGR_ASSERT_OK(engine_->Launch());
    engine_->CheckAll();
  }
  engine_->check_outputs = true;
  engine_->Step(engine_->Decode(rows));
  ExpectTables(*engine_);
}

// The changes that it carried are still applied when it runs: without them its appends would go to the row's previous pages,
// which belong to another request by now.
TEST_P(Abandoned, ItWritesNoPageThatTheRowHadBefore) {
  for (int32_t k = 0; k < 8 && !HasFatalFailure(); k++) {
    SCOPED_TRACE("fails after " + std::to_string(k));
    int32_t old = engine_->Start(30, k);
    std::vector<int32_t> pages = engine_->requests[old]->pages;
    engine_->Close(old);
    int32_t reused = engine_->Open(), owner = engine_->Open();
    ASSERT_EQ(reused, old) << "this test needs a row that is given out again";

    CGR_ASSERT_OK(cgr_request_set_pages(engine_->rt, owner, 0, 0, pages.data(), 2));
    engine_->Adopt(owner, pages);
    engine_->Step({ Engine::Chunk(owner, 30, 20 + k) });
    engine_->Reserve(reused, 32);
    Abandon({ Engine::Chunk(reused, 20, 40 + k) }, k);
    engine_->CheckAll();
    engine_->WaitForAll();
    engine_->CheckCaches();
    engine_->Step(engine_->Decode({ owner }));
    engine_->Close(owner);
    engine_->Close(reused);
  }
}

// Whatever status the engine's function returns, the launch returns CALLBACK and reports it: a living runtime is not DEAD.
TEST_P(Abandoned, TheStatusOfRecordIsInTheMessage) {
  int32_t a = engine_->Start(5, 1);
  engine_->Reserve(a, 20);
  for (cgr_status status : { CGR_ERROR_CALLBACK, CGR_ERROR_DEAD, CGR_NOT_READY, CGR_ERROR_INVALID_ARGUMENT, CGR_ERROR_CAPTURE,
                             CGR_ERROR_BUSY, cgr_status(77) }) {
    SCOPED_TRACE(cgr_status_name(status));
    engine_->state.fail_status = status;
    CGR_ASSERT_OK(engine_->Prepare({ { a, { 1, 2 } } }));
    engine_->state.fail_after = 1;
    ExpectMessage(engine_->Launch(), CGR_ERROR_CALLBACK, { "record", cgr_status_name(status) });
    engine_->state.fail_after = -1;
    EXPECT_EQ(engine_->step.state, CGR_STEP_ABANDONED);
    engine_->Step({ { a, { 1, 2 } } });
    engine_->SetLength(a, 5);
  }
}

CGR_INSTANTIATE_OVER_DEVICES(Abandoned);

} // namespace
} // namespace cgr_test

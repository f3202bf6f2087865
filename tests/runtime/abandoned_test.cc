// Steps whose `record` fails half-way: none of their tokens count, none of their changes are lost, their pages are in use until
// their number has completed, and the first cause is reported. Nothing here waits for the device after a failure.
#include "tests/support/abandon.h"

namespace cgr_test {
namespace {

class Abandoned : public ::testing::TestWithParam<DeviceParam> {
protected:
  void SetUp() override {
    CGR_SKIP_WITHOUT_DEVICE(GetParam());
    engine_ = std::make_unique<Engine>(OptionsFor(GetParam()));
    CGR_ASSERT_OK(engine_->Capture());
  }
  // Prepares and launches a step whose `record` fails after `k` things; false if there were fewer and the step is good.
  bool Abandon(const std::vector<Item> &items, int32_t k) {
    Engine &engine = *engine_;
    uint64_t abandoned = engine.Stats().abandoned;
    CGR_EXPECT_OK(engine.Prepare(items));
    engine.state.fail_after = k;
    cgr_status status = engine.Launch();
    engine.state.fail_after = -1;
    if (status == CGR_OK)
      return false;
    EXPECT_EQ(std::string(cgr_status_name(status)), "CGR_ERROR_CALLBACK") << cgr_last_message();
    EXPECT_EQ(engine.step.state, CGR_STEP_ABANDONED);
    EXPECT_EQ(engine.Stats().abandoned, abandoned + 1);
    for (const Item &item : items) {
      cgr_request_info info = engine.Info(item.row);
      EXPECT_EQ(info.num_tokens, engine.requests[item.row]->num_tokens);
      EXPECT_EQ(info.last.seq, engine.step.mark.seq);
      EXPECT_GT(info.last.seq, 0u);
    }
    return true;
  }
  std::unique_ptr<Engine> engine_;
};

TEST_P(Abandoned, FailingRecordLosesNothingWhereverItFails) {
  int32_t places = AbandonEverywhere(*engine_, [this](const std::vector<Item> &items, int32_t k) { return Abandon(items, k); });
  EXPECT_GT(places, engine_->o.feed == Feed::kTokens ? 5 : 2);
}

// The step has a number of its own and yields nothing.
TEST_P(Abandoned, ItsResultIsEmpty) {
  Engine &engine = *engine_;
  int32_t a = engine.Start(5, 1), b = engine.Start(16, 2);
  engine.Reserve(a, 20);
  engine.Reserve(b, 20);
  std::vector<int64_t> last = engine.Buffer(CGR_BUFFER_ROW_LAST_TOKENS);
  ASSERT_TRUE(Abandon({ { a, { 1, 2 } }, { b, { 3 } } }, 2));
  cgr_step_result result = CGR_STEP_RESULT_INIT;
  CGR_EXPECT_OK(cgr_step_wait(engine.rt, engine.step.mark, -1, &result));
  EXPECT_EQ(result.mark.seq, engine.step.mark.seq);
  EXPECT_EQ(result.num_requests, 0);
  EXPECT_EQ(result.guard.error, CGR_GUARD_NONE);
  EXPECT_EQ(engine.Buffer(CGR_BUFFER_ROW_LAST_TOKENS), last);
  EXPECT_EQ(engine.Info(a).has_token, 1);
  engine.Step(engine.Decode({ a, b })); // the last token is still the previous step's
}

// Its counters: a step that was given up is the runtime's own, and none of its tokens count.
TEST_P(Abandoned, ItCountsAsAStepOfTheRuntimeItself) {
  Engine &engine = *engine_;
  int32_t a = engine.Start(5, 1);
  engine.Reserve(a, 20);
  cgr_stats before = engine.Stats();
  ASSERT_TRUE(Abandon({ { a, { 1, 2 } } }, 1));
  cgr_stats after = engine.Stats();
  EXPECT_EQ(after.steps, before.steps + 1);
  EXPECT_EQ(after.by_reason[CGR_KIND_NONE][CGR_REASON_INTERNAL], before.by_reason[CGR_KIND_NONE][CGR_REASON_INTERNAL] + 1);
  EXPECT_EQ(after.real_tokens, before.real_tokens);
  EXPECT_EQ(after.padded_tokens, before.padded_tokens);
  EXPECT_EQ(after.bytes_staged, before.bytes_staged);
}

// Its appends may run late. Its pages go to another request once last_seq allows it, which must be late enough; here they are
// reused at that very moment, and the new owner's tokens must survive.
TEST_P(Abandoned, ItsPagesAreInUseUntilItsNumberHasCompleted) {
  Engine &engine = *engine_;
  for (int round = 0; round < 6 && !HasFatalFailure(); round++) {
    SCOPED_TRACE(round);
    int32_t given_up = engine.Open();
    engine.Reserve(given_up, 64);
    std::vector<int32_t> pages = engine.requests[given_up]->pages;
    // The step fails at its very end: all its appends are enqueued.
    ASSERT_TRUE(Abandon({ Engine::Chunk(given_up, 60, round) }, engine.o.feed == Feed::kTokens ? 6 : 2));
    uint64_t last = engine.Info(given_up).last.seq;
    EXPECT_EQ(last, engine.step.mark.seq);
    engine.Close(given_up);
    // All other pages are taken, so the next request gets these as soon as they are free.
    std::vector<int32_t> hold;
    while (engine.FreePages() > 4 && hold.size() < 12)
      hold.push_back(engine.Open()), engine.Reserve(hold.back(), std::min(160, 16 * int32_t(engine.FreePages() - 4)));
    cgr_status status = cgr_step_wait(engine.rt, cgr_mark{ 0, 0, last }, -1, nullptr);
    CGR_ASSERT_OK(status);
    int32_t owner = engine.Open();
    engine.Reserve(owner, 64);
    engine.Step({ Engine::Chunk(owner, 50, 30 + round) });
    for (int n = 0; n < 3; n++)
      engine.Step(engine.Decode({ owner }));
    engine.CheckCaches();
    engine.Close(owner);
    for (int32_t row : hold)
      engine.Close(row);
  }
}

// Steps before and after it are in flight with it.
TEST_P(Abandoned, StepsAroundItAreRight) {
  Engine &engine = *engine_;
  std::vector<int32_t> rows = { engine.Start(5, 1), engine.Start(16, 2), engine.Start(9, 3) };
  for (int32_t row : rows)
    engine.Reserve(row, 160);
  engine.check_outputs = false;
  for (int n = 0; n < 20 && !HasFatalFailure(); n++) {
    SCOPED_TRACE(n);
    CGR_ASSERT_OK(engine.Prepare(engine.Decode(rows)));
    CGR_ASSERT_OK(engine.Launch());
    ASSERT_TRUE(Abandon({ { rows[0], { CGR_TOKEN_LAST, 4 } }, { rows[2], { 9 } } }, n % 4));
    CGR_ASSERT_OK(engine.Prepare({ { rows[0], { CGR_TOKEN_LAST, 4 } }, { rows[1], { CGR_TOKEN_LAST } } }));
    CGR_ASSERT_OK(engine.Launch());
    engine.CheckAll();
  }
  engine.check_outputs = true;
  engine.Step(engine.Decode(rows));
  ExpectTables(engine);
}

// The changes that it carried are still applied when it runs: without them its appends would go to the row's previous pages,
// which belong to another request by now.
TEST_P(Abandoned, ItWritesNoPageThatTheRowHadBefore) {
  Engine &engine = *engine_;
  for (int32_t k = 0; k < 8 && !HasFatalFailure(); k++) {
    SCOPED_TRACE("fails after " + std::to_string(k));
    int32_t old = engine.Start(30, k);
    std::vector<int32_t> pages = engine.requests[old]->pages;
    engine.Close(old);
    int32_t reused = engine.Open(), owner = engine.Open();
    ASSERT_EQ(reused, old) << "this test needs a row that is given out again";

    CGR_ASSERT_OK(cgr_request_set_pages(engine.rt, owner, 0, 0, pages.data(), 2));
    engine.Adopt(owner, pages);
    engine.Step({ Engine::Chunk(owner, 30, 20 + k) });
    engine.Reserve(reused, 32);
    Abandon({ Engine::Chunk(reused, 20, 40 + k) }, k);
    engine.CheckAll();
    engine.WaitForAll();
    engine.CheckCaches();
    engine.Step(engine.Decode({ owner }));
    engine.Close(owner);
    engine.Close(reused);
  }
}

// Whatever status the engine's function returns, the launch returns CALLBACK and reports it: a living runtime is not DEAD.
TEST_P(Abandoned, TheStatusOfRecordIsInTheMessage) {
  Engine &engine = *engine_;
  int32_t a = engine.Start(5, 1);
  engine.Reserve(a, 20);
  for (cgr_status status : { CGR_ERROR_CALLBACK, CGR_ERROR_DEAD, CGR_NOT_READY, CGR_ERROR_INVALID_ARGUMENT, CGR_ERROR_CAPTURE,
                             CGR_ERROR_BUSY, cgr_status(77) }) {
    SCOPED_TRACE(cgr_status_name(status));
    engine.state.fail_status = status;
    CGR_ASSERT_OK(engine.Prepare({ { a, { 1, 2 } } }));
    engine.state.fail_after = 1;
    ExpectMessage(engine.Launch(), CGR_ERROR_CALLBACK, { "record", cgr_status_name(status) });
    engine.state.fail_after = -1;
    EXPECT_EQ(engine.step.state, CGR_STEP_ABANDONED);
    engine.Step({ { a, { 1, 2 } } });
    engine.SetLength(a, 5);
  }
}

CGR_INSTANTIATE_OVER_DEVICES(Abandoned);

} // namespace
} // namespace cgr_test

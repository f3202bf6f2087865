// Results that are collected late: rows and tags as of prepare identify the owners of the tokens, whatever has become of the
// requests. A result stays while ring_depth - 1 more steps are launched; the next launch expires it.
#include "tests/support/checker.h"
#include "tests/support/refused.h"

namespace cgr_test {
namespace {

class LateResults : public EngineTest {
protected:
  void Make(int32_t depth) {
    engine_.reset();
    engine_ = MakeCaptured(OptionsFor(GetParam(), [depth](cgr_config *config) { config->ring_depth = depth; }));
  }
};

// Rows close and are reused while their results wait; partial and empty requests are among them. The engine compares rows, tags,
// num_tokens and tokens of every step.
TEST_P(LateResults, AreThoseOfTheRequestsAtPrepare) {
  // Racecheck keeps memory for each launch until the end: for all of these more than 80 GB.
  const std::vector<int32_t> depths = UnderChecker() ? std::vector<int32_t>{ 3 } : std::vector<int32_t>{ 2, 3, 4, 7 };
  const int steps = UnderChecker() ? 60 : 120;
  for (int32_t depth : depths) {
    SCOPED_TRACE(depth);
    Make(depth);
    std::mt19937 random{ uint32_t(depth) };
    int reopened = 0;
    for (int n = 0; n < steps && !HasFatalFailure(); n++) {
      std::vector<Item> items = engine_->RandomItems(random, 5, n);
      std::shuffle(items.begin(), items.end(), random);
      // The oldest result is read at the last moment, when one more launch would expire it.
      while (int32_t(engine_->NumInFlight()) == depth)
        engine_->CheckOne();
      cgr_status status = engine_->Prepare(items);
      if (status == CGR_ERROR_BUSY) {
        CGR_ASSERT_OK(cgr_step_wait(engine_->rt, cgr_mark{ 0, 0, engine_->launched + 1 - uint64_t(depth) }, -1, nullptr));
        status = engine_->Prepare(items);
      }
      CGR_ASSERT_OK(status);
      CGR_ASSERT_OK(engine_->Launch());
      for (const Item &item : items) // at once, with the step in flight
        if (random() % 6 == 0 || engine_->requests[item.row]->num_tokens > 120) {
          engine_->Close(item.row);
          reopened++;
        }
    }
    engine_->CheckAll();
    EXPECT_GT(reopened, 20);
  }
}

TEST_P(LateResults, StayUntilRingDepthStepsHaveFollowed) {
  for (int32_t depth : { 2, 4 }) {
    SCOPED_TRACE(depth);
    Make(depth);
    int32_t row = engine_->Start(7, 1);
    std::vector<uint64_t> seqs;
    for (int32_t n = 0; n < depth; n++) {
      ASSERT_NO_FATAL_FAILURE(engine_->PrepareAndLaunch(engine_->Decode({ row })));
      seqs.push_back(engine_->launched);
      engine_->WaitForAll();
    }
    cgr_step_result first = CGR_STEP_RESULT_INIT, again = CGR_STEP_RESULT_INIT;
    CGR_ASSERT_OK(cgr_step_wait(engine_->rt, cgr_mark{ 0, 0, seqs[0] }, -1, &first));
    engine_->CheckAll();
    for (uint64_t seq : seqs)
      CGR_EXPECT_OK(cgr_step_wait(engine_->rt, cgr_mark{ 0, 0, seq }, 0, &again));
    CGR_ASSERT_OK(cgr_step_wait(engine_->rt, cgr_mark{ 0, 0, seqs[0] }, -1, &again));
    EXPECT_EQ(std::memcmp(&first, &again, sizeof first), 0) << "the same arrays";
    for (int32_t timeout : { 0, -1, 5 }) {
      ExpectRefused(*engine_, CGR_ERROR_EXPIRED, { "seq is " + std::to_string(seqs[0] - 1), "ring_depth" }, [&] {
        return cgr_step_wait(engine_->rt, cgr_mark{ 0, 0, seqs[0] - 1 }, timeout, &again);
      });
    }
  }
}

// The arrays of a result stay valid while depth - 1 more steps are launched, even if its rows close meanwhile.
TEST_P(LateResults, KeepTheirArraysWhileDepthMinusOneStepsFollow) {
  Make(4);
  int32_t a = engine_->Start(7, 1), b = engine_->Start(9, 2), c = engine_->Start(3, 3);
  engine_->Step(engine_->Decode({ a, b }));
  cgr_step_result result = CGR_STEP_RESULT_INIT;
  CGR_ASSERT_OK(cgr_step_wait(engine_->rt, cgr_mark{ 0, 0, engine_->launched }, -1, &result));
  const std::vector<int32_t> rows(result.rows, result.rows + 2), tokens(result.tokens, result.tokens + 2),
      counts(result.num_tokens, result.num_tokens + 2);
  const std::vector<uint64_t> tags(result.tags, result.tags + 2);
  EXPECT_EQ(rows, (std::vector<int32_t>{ a, b }));
  EXPECT_EQ(tags, (std::vector<uint64_t>{ engine_->requests[a]->tag, engine_->requests[b]->tag }));
  engine_->Close(b);
  for (int n = 0; n < 3; n++) {
    int32_t fresh = engine_->Open();
    engine_->Reserve(fresh, 10);
    engine_->Step({ Engine::Chunk(fresh, 4, n), { c, { CGR_TOKEN_LAST } } });
    EXPECT_EQ(std::vector<int32_t>(result.rows, result.rows + 2), rows) << n;
    EXPECT_EQ(std::vector<uint64_t>(result.tags, result.tags + 2), tags) << n;
    EXPECT_EQ(std::vector<int32_t>(result.num_tokens, result.num_tokens + 2), counts) << n;
    EXPECT_EQ(std::vector<int32_t>(result.tokens, result.tokens + 2), tokens) << n;
  }
}

TEST_P(LateResults, SeveralWaitsTellTheSame) {
  Make(0);
  int32_t row = engine_->Start(7, 1);
  ASSERT_NO_FATAL_FAILURE(engine_->PrepareAndLaunch(engine_->Decode({ row })));
  cgr_step_result polled = CGR_STEP_RESULT_INIT, waited = CGR_STEP_RESULT_INIT;
  cgr_status status = CGR_NOT_READY;
  for (int32_t n = 0; n < 100000000 && status == CGR_NOT_READY; n++)
    status = cgr_step_wait(engine_->rt, cgr_mark{ 0, 0, engine_->launched }, 0, &polled);
  CGR_ASSERT_OK(status);
  EXPECT_EQ(cgr_test::Completed(engine_->rt), engine_->launched);
  CGR_ASSERT_OK(cgr_step_wait(engine_->rt, cgr_mark{ 0, 0, engine_->launched }, -1, &waited));
  EXPECT_EQ(std::memcmp(&polled, &waited, sizeof polled), 0);
  EXPECT_EQ(polled.num_requests, 1);
  engine_->CheckAll();
  EXPECT_EQ(engine_->Info(row).last.seq, engine_->launched);
}

TEST_P(LateResults, ADummyStepHasAResultWithoutRequests) {
  Make(0);
  engine_->Start(7, 1);
  engine_->Step({});
  cgr_step_result result = CGR_STEP_RESULT_INIT;
  CGR_ASSERT_OK(cgr_step_wait(engine_->rt, cgr_mark{ 0, 0, engine_->launched }, -1, &result));
  EXPECT_EQ(result.num_requests, 0);
  EXPECT_EQ(result.mark.seq, engine_->launched);
  EXPECT_EQ(result.token_stride, 1);
}

CGR_INSTANTIATE_OVER_DEVICES(LateResults);

} // namespace
} // namespace cgr_test

// What a mistake in a step is answered with: the function that was called, the argument, what it got, what was expected, and
// what to do where that does not say it.
#include "tests/support/refused.h"

namespace cgr_test {
namespace {

class Messages : public ThreeRequests {
protected:
  // `function` has failed.
  void Expect(const std::string &function, cgr_status got, cgr_status status, Words words) {
    const std::string message = cgr_last_message();
    EXPECT_EQ(message.rfind(function + ": ", 0), 0u) << message;
    EXPECT_EQ(message.find(function, 1), std::string::npos) << message << ": twice";
    words.push_back("expected");
    ExpectMessage(got, status, words);
  }
  void ExpectOfStep(cgr_step *step, const Words &words) {
    Expect("cgr_step_launch", cgr_step_launch(engine_->rt, step, engine_->stream), CGR_ERROR_STATE, words);
    Expect("cgr_step_cancel", cgr_step_cancel(engine_->rt, step), CGR_ERROR_STATE, words);
  }
};

// More pages would not help a batch that is beyond what was configured.
TEST_P(Messages, LimitsOfTheConfigurationComeBeforePages) {
  const int32_t bare = engine_->Open(), most = engine_->o.max_seq_len;
  std::vector<int32_t> tokens(4096, 1), lens, rows;
  cgr_batch batch = CGR_BATCH_INIT;
  auto expect = [&](const std::vector<int32_t> &r, const std::vector<int32_t> &l, cgr_status status, const Words &words) {
    rows = r, lens = l;
    batch.num_requests = int32_t(rows.size());
    batch.rows = rows.data(), batch.query_lens = lens.data(), batch.tokens = tokens.data();
    BatchRefused(status, words, batch);
  };
  const std::string row = "row " + std::to_string(bare);
  expect({ bare }, { 3 }, CGR_ERROR_PAGES_MISSING,
         { row + " would hold 3 tokens", "at most 0", "group 0", "cgr_request_set_pages" });
  expect({ bare }, { 65 }, CGR_ERROR_TOO_MANY_TOKENS, { "requests 0 .. 0 are 65", "64 (max_tokens)" });
  expect({ bare, rows_[0], rows_[1] }, { 40, 1, 24 }, CGR_ERROR_TOO_MANY_TOKENS, { "requests 0 .. 2 are 65", "64 (max_tokens)" });
  expect({ rows_[0], bare, rows_[1] }, { 1, 1, 63 }, CGR_ERROR_TOO_MANY_TOKENS, { "requests 0 .. 2 are 65", "64 (max_tokens)" });
  expect({ bare }, { most + 1 }, CGR_ERROR_SEQUENCE_TOO_LONG, { row, "max_seq_len" });
  engine_->Reserve(rows_[2], most);
  engine_->SetLength(rows_[2], 0);
  expect({ bare, rows_[0] }, { 1, 1 }, CGR_ERROR_PAGES_MISSING, { row, "cgr_request_set_pages" });
  // What another row lacks, or an argument that is no good, is told as before.
  expect({ bare, 99 }, { 1, 1 }, CGR_ERROR_PAGES_MISSING, { row });
  expect({ bare, rows_[0] }, { 1, -1 }, CGR_ERROR_PAGES_MISSING, { row });
  engine_->Close(bare);
  engine_->Close(rows_[2]);
  rows_.pop_back();
}

// Five causes, five texts; what the step is now is told.
TEST_P(Messages, OfAStepThatCannotBeLaunchedTellTheCause) {
  cgr_step step = CGR_STEP_INIT;
  ExpectOfStep(&step, { "step has never been prepared", "state none", "cgr_step_prepare" });
  CGR_ASSERT_OK(engine_->Prepare(engine_->Decode(rows_)));
  cgr_step copy = engine_->step;
  ExpectOfStep(&step, { "step has never been prepared", "the prepared one, which is another" });
  CGR_ASSERT_OK(engine_->Launch());
  ExpectOfStep(&engine_->step,
               { "step was launched already", "state launched", "seq " + std::to_string(engine_->step.mark.seq) });
  ExpectOfStep(&copy, { "step is a copy of one that was launched or cancelled", "state prepared" });
  engine_->CheckAll();
  CGR_ASSERT_OK(engine_->Prepare(engine_->Decode(rows_)));
  CGR_ASSERT_OK(engine_->Cancel());
  ExpectOfStep(&engine_->step, { "step was cancelled", "state cancelled" });
  engine_->hook = [](cgr_recorder *, const cgr_record_info &, int32_t) { return CGR_ERROR_BUSY; };
  CGR_ASSERT_OK(engine_->Prepare(EagerItems()));
  EXPECT_EQ(engine_->Launch(), CGR_ERROR_CALLBACK);
  EXPECT_EQ(std::string(cgr_last_message()).rfind("cgr_step_launch: record: ", 0), 0u) << cgr_last_message();
  engine_->hook = nullptr;
  ExpectOfStep(&engine_->step, { "step was abandoned", "state abandoned" });
  for (uint32_t size : { 0u, 8u, 92u, 100u, 5000u }) {
    cgr_step bad = copy;
    bad.size = size;
    ExpectOfStep(&bad, { "step->size is " + std::to_string(size), "CGR_STEP_INIT" });
  }
  Captured<Engine> other(OptionsFor(GetParam()));
  const int32_t row = other.Start(5, 1);
  CGR_ASSERT_OK(other.Prepare(other.Decode({ row })));
  ExpectOfStep(&other.step, { "step was prepared by another runtime" });
  CGR_ASSERT_OK(other.Cancel());
  ExpectOfStep(&other.step, { "step was prepared by another runtime" });
  engine_->WaitForAll();
}

// Prepared, such a step could only be cancelled.
TEST_P(Messages, AStepThatNothingCanRunIsNotPrepared) {
  Engine engine(OptionsFor(GetParam()));
  const int32_t row = engine.Open();
  const std::vector<int32_t> prompt = { 5, 6, 7 };
  engine.Reserve(row, 16);
  cgr_batch batch = CGR_BATCH_INIT;
  const int32_t length = 3;
  batch.num_requests = 1;
  batch.rows = &row, batch.query_lens = &length, batch.tokens = prompt.data();
  cgr_step step = CGR_STEP_INIT;
  cgr_key key;
  const Snapshot before(engine);
  for (int n = 0; n < 2; n++) {
    Expect("cgr_step_prepare", cgr_step_prepare(engine.rt, &batch, &step), CGR_ERROR_STATE,
           { "1 request and 3 tokens", "record", "cgr_runtime_capture or cgr_runtime_warmup" });
    EXPECT_EQ(step.state, CGR_STEP_NONE);
  }
  EXPECT_EQ(engine.Stats().refused, before.stats.refused + 2);
  CGR_EXPECT_OK(cgr_step_choose(engine.rt, &batch, &key)); // which graph it would be can be known before
  cgr_batch none = CGR_BATCH_INIT;
  CGR_ASSERT_OK(cgr_step_prepare(engine.rt, &none, &step)); // runs without `record`
  CGR_ASSERT_OK(cgr_step_launch(engine.rt, &step, engine.stream));
  CGR_ASSERT_OK(cgr_step_wait(engine.rt, step.mark, -1, nullptr));
  CGR_ASSERT_OK(cgr_standing_add(engine.rt, nullptr, row, length, prompt.data(), 0));
  cgr_batch standing = StandingBatch();
  Expect("cgr_step_prepare", cgr_step_prepare(engine.rt, &standing, &step), CGR_ERROR_STATE, { "record" });
  CGR_ASSERT_OK(engine.Warmup());
  CGR_ASSERT_OK(cgr_step_prepare(engine.rt, &standing, &step));
  CGR_ASSERT_OK(cgr_step_cancel(engine.rt, &step));
  CGR_ASSERT_OK(cgr_standing_remove(engine.rt, nullptr, row));
  engine.Close(row);
}

TEST_P(Messages, OfCallsAroundSteps) {
  Engine engine(OptionsFor(GetParam()));
  for (int n = 0; n < 3; n++)
    engine.Open();
  engine.hook = [](cgr_recorder *, const cgr_record_info &, int32_t) { return CGR_ERROR_BUSY; };
  CGR_ASSERT_OK(cgr_runtime_release_graphs(engine.rt, 0, nullptr));
  Expect("cgr_runtime_capture", engine.Capture(), CGR_ERROR_CALLBACK,
         { "record: the engine's function returned CGR_ERROR_BUSY" });
  cgr_capture good = engine.CaptureStruct();
  cgr_capture_estimate estimate = CGR_CAPTURE_ESTIMATE_INIT;
  Expect("cgr_runtime_warmup", cgr_runtime_warmup(engine.rt, &good), CGR_ERROR_CALLBACK,
         { "record: the engine's function returned CGR_ERROR_BUSY" });
  Expect("cgr_runtime_estimate_capture", cgr_runtime_estimate_capture(engine.rt, &good, &estimate), CGR_ERROR_CALLBACK,
         { "record" });
  engine.hook = nullptr;
  CGR_ASSERT_OK(engine.Capture());
  int32_t pages[4] = { 90, 91, 92, 92 }, count = 0;
  cgr_self_test test = CGR_SELF_TEST_INIT;
  test.pages = pages, test.num_pages = 4, test.max_token = 8;
  Expect("cgr_runtime_self_test", cgr_runtime_self_test(engine.rt, &test, nullptr, 0, &count), CGR_ERROR_STATE,
         { "3 rows", "none" });
}

CGR_INSTANTIATE_OVER_FEW_DEVICES(Messages);

// A bad handle writes nothing.
TEST(BadHandles, GraphModeOfOneIsAStatus) {
  alignas(64) static unsigned char nothing[1 << 16];
  for (void *handle : { static_cast<void *>(nullptr), static_cast<void *>(nothing) }) {
    const char *reason = "as it was";
    cgr_graph_mode mode = CGR_MODE_FULL;
    const cgr_status expected = handle == nullptr ? CGR_ERROR_NULL_POINTER : CGR_ERROR_INVALID_ARGUMENT;
    EXPECT_EQ(cgr_runtime_graph_mode(static_cast<cgr_runtime *>(handle), &mode, &reason), expected);
    EXPECT_EQ(mode, CGR_MODE_FULL);
    EXPECT_STREQ(reason, "as it was");
  }
}

} // namespace
} // namespace cgr_test

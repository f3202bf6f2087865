// What a step gives: tokens against the model, over arrivals, closes, page appends, chunked prefill, empty requests and empty
// steps, on every device, eager and replayed.
#include "tests/support/toy_engine.h"

namespace cgr_test {
namespace {

struct Case {
  DeviceParam device;
  cgr_graph_mode mode;
  bool fixed;
};

void PrintTo(const Case &made, std::ostream *os) { *os << made.device.Label(); }

std::vector<Case> Cases() {
  std::vector<Case> cases;
  for (const DeviceParam &device : AllDevices())
    for (cgr_graph_mode mode : { CGR_GRAPH_NONE, CGR_GRAPH_FULL_DECODE_ONLY })
      cases.push_back({ device, mode, device.IsCuda() });
  cases.push_back({ HostParam(CGR_HOST_LATEST), CGR_GRAPH_FULL_DECODE_ONLY, true });
  return cases;
}

class StepResults : public ::testing::TestWithParam<Case> {
protected:
  void SetUp() override {
    CGR_SKIP_WITHOUT_DEVICE(GetParam().device);
    Make(Options());
  }
  static ToyOptions Options() {
    ToyOptions options = ToyOptionsFor(GetParam().device);
    options.fixed = GetParam().fixed;
    return options;
  }
  void Make(ToyOptions options) {
    toy_.reset();
    cgr_graph_mode mode = GetParam().mode;
    options.adjust = [mode](cgr_config *config) { config->graph_mode = mode; };
    toy_ = std::make_unique<Toy>(options);
    CGR_ASSERT_OK(toy_->Capture());
  }
  std::unique_ptr<Toy> toy_;
};

TEST_P(StepResults, GreedyContinuationFollowsTheModel) {
  Toy &toy = *toy_;
  std::mt19937 random(11);
  for (int32_t n = 0; n < 120 && !HasFatalFailure(); n++) {
    SCOPED_TRACE("iteration " + std::to_string(n));
    std::vector<ToyItem> items;
    for (int32_t row : toy.Rows()) {
      if (toy.requests[row]->num_tokens + 1 > toy.o.max_seq_len || random() % 25 == 0)
        toy.Close(row);
      else
        items.push_back(toy.Decode({ row })[0]);
    }
    if (static_cast<int32_t>(items.size()) < toy.o.max_requests && random() % 3 == 0) {
      int32_t row = toy.Open(), length = 1 + static_cast<int32_t>(random() % 40);
      toy.Reserve(row, length);
      items.push_back({ row, Toy::Prompt(length, n), false });
    }
    std::shuffle(items.begin(), items.end(), random);
    toy.Step(items);
  }
  EXPECT_GT(toy.launched, 100u);
}

TEST_P(StepResults, PagesAreAppendedAcrossTheirBoundaries) {
  Toy &toy = *toy_;
  std::vector<int32_t> rows = { toy.Start(15, 1), toy.Start(16, 2), toy.Start(17, 3), toy.Start(1, 4) };
  for (int32_t n = 0; n < 40 && !HasFatalFailure(); n++)
    toy.Step(toy.Decode(rows));
  for (int32_t row : rows)
    EXPECT_EQ(toy.Info(row).num_tokens, toy.requests[row]->num_tokens);
}

TEST_P(StepResults, EveryPageSizeGivesTheSameTokens) {
  std::vector<std::vector<int32_t>> sampled;
  for (int32_t page_size : { 16, 32, 64 }) {
    ToyOptions options = Options();
    options.page_size = page_size;
    Make(options);
    int32_t row = toy_->Start(30, 1);
    for (int32_t n = 0; n < 40 && !HasFatalFailure(); n++)
      toy_->Step(toy_->Decode({ row }));
    sampled.push_back(toy_->requests[row]->sampled);
  }
  EXPECT_EQ(sampled[0], sampled[1]);
  EXPECT_EQ(sampled[0], sampled[2]);
}

TEST_P(StepResults, ChunkedPrefillGivesWhatAWholePromptGives) {
  Toy &toy = *toy_;
  std::vector<int32_t> prompt = Toy::Prompt(45, 5);
  int32_t whole = toy.Open(), chunked = toy.Open(), other = toy.Start(3, 9);
  toy.Reserve(whole, 45);
  toy.Reserve(chunked, 45);
  toy.Step({ { whole, prompt, false } });
  for (int32_t begin = 0; begin < 45 && !HasFatalFailure(); begin += 10) {
    int32_t end = std::min(begin + 10, 45);
    std::vector<ToyItem> items = toy.Decode({ other });
    items.push_back({ chunked, std::vector<int32_t>(prompt.begin() + begin, prompt.begin() + end), end < 45 });
    toy.Step(items);
  }
  EXPECT_EQ(toy.Info(chunked).num_tokens, 45);
  // In fixed mode the token of a request is its index in the batch; the outputs are compared by the model.
  if (!toy.o.fixed) {
    EXPECT_EQ(toy.requests[whole]->last, toy.requests[chunked]->last);
  }
  for (int32_t n = 0; n < 5 && !HasFatalFailure(); n++) {
    toy.Step(toy.Decode({ whole, chunked, other }));
    if (!toy.o.fixed) {
      EXPECT_EQ(toy.requests[whole]->last, toy.requests[chunked]->last);
    }
  }
}

TEST_P(StepResults, PartialRequestKeepsItsLastToken) {
  Toy &toy = *toy_;
  int32_t other = toy.Start(3, 1), row = toy.Start(8, 2);
  toy.Step(toy.Decode({ other, row }));
  int32_t last = toy.requests[row]->last;
  toy.Reserve(row, 20);
  toy.Step({ { other, { CGR_TOKEN_LAST }, false }, { row, { 5, 6, 7 }, true } });
  EXPECT_EQ(toy.requests[row]->last, last);
  EXPECT_EQ(toy.Buffer(CGR_BUFFER_ROW_LAST_TOKENS)[static_cast<size_t>(row)], last);
  toy.Step({ { row, { 9 }, false } });
  EXPECT_EQ(toy.Buffer(CGR_BUFFER_ROW_LAST_TOKENS)[static_cast<size_t>(row)], toy.requests[row]->last);
  toy.Step(toy.Decode({ row, other }));
}

TEST_P(StepResults, LastTokenOnTheDeviceEqualsTheSameTokenGiven) {
  Toy &toy = *toy_;
  int32_t a = toy.Start(9, 3), b = toy.Open();
  toy.Reserve(b, 9);
  toy.Step({ { b, Toy::Prompt(9, 3), false } });
  for (int32_t n = 0; n < 20 && !HasFatalFailure(); n++) {
    std::vector<ToyItem> items = toy.Decode({ a, b });
    items[1].tokens = { toy.requests[b]->last }; // a takes it from the device, b is told
    toy.Step(items);
    std::vector<int64_t> ids = toy.Buffer(CGR_BUFFER_INPUT_IDS);
    if (!toy.o.fixed) {
      EXPECT_EQ(ids[0], ids[1]);
    }
    EXPECT_EQ(ids[1], items[1].tokens[0]);
    if (!toy.o.fixed) {
      EXPECT_EQ(toy.requests[a]->last, toy.requests[b]->last);
    }
  }
}

TEST_P(StepResults, LastTokenMayBeginALongerChunk) {
  Toy &toy = *toy_;
  int32_t row = toy.Start(5, 1);
  int32_t last = toy.requests[row]->last;
  toy.Reserve(row, 9);
  toy.Step({ { row, { CGR_TOKEN_LAST, 11, 12 }, false } });
  std::vector<int64_t> ids = toy.Buffer(CGR_BUFFER_INPUT_IDS);
  EXPECT_EQ(std::vector<int64_t>(ids.begin(), ids.begin() + 3), (std::vector<int64_t>{ last, 11, 12 }));
}

TEST_P(StepResults, NullArraysMeanOneLastTokenEach) {
  Toy &toy = *toy_;
  int32_t a = toy.Start(5, 1), b = toy.Start(6, 2);
  std::vector<int64_t> want = { toy.requests[b]->last, toy.requests[a]->last };
  int32_t rows[] = { b, a };
  cgr_batch batch = CGR_BATCH_INIT;
  batch.num_requests = 2;
  batch.rows = rows;
  cgr_step step = CGR_STEP_INIT;
  CGR_ASSERT_OK(cgr_step_prepare(toy.rt, &batch, &step));
  EXPECT_EQ(step.num_requests, 2);
  EXPECT_EQ(step.num_tokens, 2);
  CGR_ASSERT_OK(cgr_step_launch(toy.rt, &step, toy.stream));
  CGR_ASSERT_OK(cgr_step_wait(toy.rt, step.seq, nullptr));
  std::vector<int64_t> ids = toy.Buffer(CGR_BUFFER_INPUT_IDS);
  EXPECT_EQ(std::vector<int64_t>(ids.begin(), ids.begin() + 2), want);
  EXPECT_EQ(toy.Info(a).num_tokens, 6);
  EXPECT_EQ(toy.Info(b).num_tokens, 7);
}

TEST_P(StepResults, EmptyRequestsAreNoWork) {
  Toy &toy = *toy_;
  std::vector<int32_t> rows;
  for (int32_t i = 0; i < 4; i++)
    rows.push_back(toy.Start(4 + 5 * i, i));
  int32_t fresh = toy.Open(); // without pages
  for (uint32_t mask = 0; mask < 16 && !HasFatalFailure(); mask++) {
    std::vector<ToyItem> items = toy.Decode(rows);
    for (size_t i = 0; i < 4; i++)
      if (mask >> i & 1)
        items[i].tokens.clear();
    items.insert(items.begin() + mask % 5, ToyItem{ fresh, {}, false });
    std::vector<int32_t> before, last;
    for (int32_t row : rows)
      before.push_back(toy.Info(row).num_tokens), last.push_back(toy.requests[row]->last);
    toy.Step(items);
    std::vector<int64_t> on_device = toy.Buffer(CGR_BUFFER_ROW_LAST_TOKENS);
    for (size_t i = 0; i < 4; i++) {
      EXPECT_EQ(toy.Info(rows[i]).num_tokens, before[i] + (mask >> i & 1 ? 0 : 1));
      if (mask >> i & 1) {
        EXPECT_EQ(on_device[static_cast<size_t>(rows[i])], last[i]);
      }
    }
    EXPECT_EQ(toy.Info(fresh).num_tokens, 0);
  }
}

TEST_P(StepResults, DummyStepsChangeNothing) {
  Toy &toy = *toy_;
  int32_t row = toy.Start(7, 1);
  for (int32_t n = 0; n < 10 && !HasFatalFailure(); n++) {
    std::vector<std::vector<unsigned char>> pools = { toy.Pool(0, false), toy.Pool(0, true), toy.Pool(1, false),
                                                      toy.Pool(1, true) };
    toy.Step({});
    EXPECT_EQ(toy.step.num_requests, 0);
    EXPECT_EQ(toy.step.num_tokens, 0);
    EXPECT_EQ(toy.Info(row).num_tokens, 7 + n);
    EXPECT_TRUE(pools == (std::vector<std::vector<unsigned char>>{ toy.Pool(0, false), toy.Pool(0, true), toy.Pool(1, false),
                                                                   toy.Pool(1, true) }));
    toy.Step(toy.Decode({ row }));
  }
}

TEST_P(StepResults, PollAndWaitTellTheSame) {
  Toy &toy = *toy_;
  int32_t row = toy.Start(7, 1);
  CGR_ASSERT_OK(toy.Prepare(toy.Decode({ row })));
  CGR_ASSERT_OK(toy.Launch());
  cgr_step_result polled = CGR_STEP_RESULT_INIT, waited = CGR_STEP_RESULT_INIT;
  cgr_status status = CGR_NOT_READY;
  for (int32_t n = 0; n < 100000000 && status == CGR_NOT_READY; n++)
    status = cgr_step_poll(toy.rt, toy.launched, &polled);
  CGR_ASSERT_OK(status);
  EXPECT_EQ(cgr_runtime_completed(toy.rt), toy.launched);
  CGR_ASSERT_OK(cgr_step_wait(toy.rt, toy.launched, &waited));
  EXPECT_EQ(polled.seq, waited.seq);
  EXPECT_EQ(polled.num_requests, 1);
  EXPECT_EQ(polled.tokens, waited.tokens);
  EXPECT_EQ(polled.error, CGR_STEP_OK);
  toy.CheckAll();
  EXPECT_EQ(toy.Info(row).last_seq, toy.launched);
}

TEST_P(StepResults, ResultsStayValidForRingDepthSteps) {
  Toy &toy = *toy_;
  int32_t row = toy.Start(7, 1);
  std::vector<uint64_t> seqs;
  for (int32_t n = 0; n < 4; n++) { // the default depth
    CGR_ASSERT_OK(toy.Prepare(toy.Decode({ row })));
    CGR_ASSERT_OK(toy.Launch());
    seqs.push_back(toy.launched);
    toy.Sync();
  }
  toy.CheckAll();
  cgr_step_result result = CGR_STEP_RESULT_INIT;
  for (uint64_t seq : seqs)
    CGR_EXPECT_OK(cgr_step_wait(toy.rt, seq, &result));
  CGR_EXPECT(CGR_ERROR_EXPIRED, cgr_step_wait(toy.rt, seqs[0] - 1, &result));
}

TEST_P(StepResults, LaunchesOnAnotherStreamAreOrdered) {
  Toy &toy = *toy_;
  cudaStream_t first = toy.stream, second = nullptr;
  CGR_ASSERT_OK(cgr_stream_create(toy.dev, &second));
  std::vector<int32_t> rows = { toy.Start(7, 1), toy.Start(20, 2) };
  toy.upload = toy.check_outputs = !toy.o.fixed; // uploads of the test itself would not be ordered with the other stream
  for (int32_t n = 0; n < 30 && !HasFatalFailure(); n++) {
    toy.stream = n % 3 == 0 ? first : second;
    std::vector<int32_t> some = n % 4 == 0 ? std::vector<int32_t>{ rows[1] } : rows;
    CGR_ASSERT_OK(toy.Prepare(toy.Decode(some)));
    CGR_ASSERT_OK(toy.Launch());
    if (toy.num_pending() == 3)
      toy.CheckOne();
  }
  toy.CheckAll();
  std::vector<int64_t> computed = toy.Buffer(CGR_BUFFER_ROW_COMPUTED);
  for (int32_t row : rows)
    EXPECT_EQ(computed[static_cast<size_t>(row)], toy.requests[row]->num_tokens);
  toy.stream = first;
  CGR_ASSERT_OK(cgr_stream_synchronize(toy.dev, second));
  CGR_ASSERT_OK(cgr_stream_destroy(toy.dev, second));
  toy.Sync();
}

TEST_P(StepResults, RewindTakesTokensBack) {
  Toy &toy = *toy_;
  int32_t row = toy.Start(30, 1), other = toy.Start(4, 2);
  for (int32_t n = 0; n < 10; n++)
    toy.Step(toy.Decode({ row, other }));
  for (int32_t to : { 39, 33, 32, 31, 16, 15, 1, 0 }) {
    toy.Rewind(row, to);
    EXPECT_EQ(toy.Info(row).num_tokens, to);
    std::vector<ToyItem> items = toy.Decode({ other });
    items.push_back({ row, { to % 50, 3 }, false });
    toy.Step(items);
    EXPECT_EQ(toy.Info(row).num_tokens, to + 2);
    if (HasFatalFailure())
      return;
  }
}

std::string Label(const ::testing::TestParamInfo<Case> &made) {
  return made.param.device.Label() + (made.param.fixed ? "_fixed" : "_tokens") +
         (made.param.mode == CGR_GRAPH_NONE ? "_eager" : "_full");
}
INSTANTIATE_TEST_SUITE_P(Devices, StepResults, ::testing::ValuesIn(Cases()), Label);

} // namespace
} // namespace cgr_test

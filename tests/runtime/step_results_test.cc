// The results of steps: tokens checked against the model, over arrivals, closes, page appends, chunked prefill, empty requests
// and empty steps, on every device, eager and replayed.
#include "tests/support/engine_case.h"

namespace cgr_test {
namespace {

struct Case {
  DeviceParam device;
  cgr_graph_mode mode;
  Feed feed;
};

void PrintTo(const Case &made, std::ostream *os) { *os << made.device.Label(); }

std::vector<Case> Cases() {
  std::vector<Case> cases;
  for (const DeviceParam &device : AllDevices())
    for (cgr_graph_mode mode : { CGR_MODE_NONE, CGR_MODE_FULL_DECODE_ONLY })
      cases.push_back({ device, mode, device.IsCuda() ? Feed::kUploads : Feed::kTokens });
  cases.push_back({ HostParam(CGR_SCHEDULE_LATEST), CGR_MODE_FULL_DECODE_ONLY, Feed::kUploads });
  return cases;
}

class StepResults : public ::testing::TestWithParam<Case> {
protected:
  void SetUp() override {
    CGR_SKIP_WITHOUT_DEVICE(GetParam().device);
    Make(Options());
  }
  static EngineOptions Options() {
    EngineOptions options = OptionsFor(GetParam().device);
    options.feed = GetParam().feed;
    return options;
  }
  void Make(EngineOptions options) {
    engine_.reset();
    cgr_graph_mode mode = GetParam().mode;
    options.adjust = [mode](cgr_config *config) { config->graph_mode = mode; };
    engine_ = MakeCaptured(options);
  }
  bool Samples() const { return GetParam().feed == Feed::kTokens; }
  std::unique_ptr<Engine> engine_;
};

TEST_P(StepResults, GreedyContinuationFollowsTheModel) {
  std::mt19937 random(11);
  for (int32_t n = 0; n < 120 && !HasFatalFailure(); n++) {
    SCOPED_TRACE("iteration " + std::to_string(n));
    std::vector<Item> items;
    for (int32_t row : engine_->Rows()) {
      if (engine_->requests[row]->num_tokens + 1 > engine_->o.max_seq_len || random() % 25 == 0)
        engine_->Close(row);
      else
        items.push_back(engine_->Decode({ row })[0]);
    }
    if (int32_t(items.size()) < engine_->o.max_requests && random() % 3 == 0) {
      int32_t row = engine_->Open(), length = 1 + int32_t(random() % 40);
      engine_->Reserve(row, length);
      items.push_back(Engine::Chunk(row, length, n));
    }
    std::shuffle(items.begin(), items.end(), random);
    engine_->Step(items);
  }
  EXPECT_GT(engine_->launched, 100u);
}

TEST_P(StepResults, PagesAreAppendedAcrossTheirBoundaries) {
  std::vector<int32_t> rows = { engine_->Start(15, 1), engine_->Start(16, 2), engine_->Start(17, 3), engine_->Start(1, 4) };
  for (int32_t n = 0; n < 40 && !HasFatalFailure(); n++)
    engine_->Step(engine_->Decode(rows));
  engine_->CheckRows();
}

TEST_P(StepResults, EveryPageSizeGivesTheSameTokens) {
  std::vector<std::vector<int32_t>> sampled;
  for (int32_t page_size : { 16, 32, 48, 64, 80, 96, 256, 1024 }) {
    EngineOptions options = Options();
    options.page_size = page_size;
    Make(options);
    int32_t row = engine_->Start(30, 1);
    for (int32_t n = 0; n < 40 && !HasFatalFailure(); n++)
      engine_->Step(engine_->Decode({ row }));
    sampled.push_back(engine_->requests[row]->sampled);
  }
  for (const std::vector<int32_t> &tokens : sampled)
    EXPECT_EQ(tokens, sampled[0]);
}

TEST_P(StepResults, ChunkedPrefillGivesWhatAWholePromptGives) {
  std::vector<int32_t> prompt = Engine::Prompt(45, 5);
  int32_t whole = engine_->Open(), chunked = engine_->Open(), other = engine_->Start(3, 9);
  engine_->Reserve(whole, 45);
  engine_->Reserve(chunked, 45);
  engine_->Step({ { whole, prompt } });
  for (int32_t begin = 0; begin < 45 && !HasFatalFailure(); begin += 10) {
    int32_t end = std::min(begin + 10, 45);
    std::vector<Item> items = engine_->Decode({ other });
    items.push_back({ chunked, std::vector<int32_t>(prompt.begin() + begin, prompt.begin() + end), end < 45 });
    engine_->Step(items);
  }
  EXPECT_EQ(engine_->Info(chunked).num_tokens, 45);
  // Without a sampler the token of a request is its index in the batch; the outputs are compared by the model.
  for (int32_t n = 0; n < 5 && !HasFatalFailure(); n++) {
    EXPECT_TRUE(!Samples() || engine_->requests[whole]->last == engine_->requests[chunked]->last) << n;
    engine_->Step(engine_->Decode({ whole, chunked, other }));
  }
}

// The token of a partial chunk does not count: the row keeps what it sampled before on the device, but nothing may go on from
// it.
TEST_P(StepResults, PartialRequestSamplesNothing) {
  int32_t other = engine_->Start(3, 1), row = engine_->Start(8, 2);
  engine_->Step(engine_->Decode({ other, row }));
  int32_t last = engine_->requests[row]->last;
  engine_->Reserve(row, 20);
  engine_->Step({ { other, { CGR_TOKEN_LAST } }, { row, { 5, 6, 7 }, true } });
  EXPECT_EQ(engine_->Info(row).has_token, 0);
  EXPECT_EQ(engine_->requests[row]->last, last);
  EXPECT_EQ(engine_->Buffer(CGR_BUFFER_ROW_LAST_TOKENS)[size_t(row)], last);
  engine_->Step({ { row, { 9 } } });
  EXPECT_EQ(engine_->Buffer(CGR_BUFFER_ROW_LAST_TOKENS)[size_t(row)], engine_->requests[row]->last);
  engine_->Step(engine_->Decode({ row, other }));
}

TEST_P(StepResults, LastTokenOnTheDeviceEqualsTheSameTokenGiven) {
  int32_t a = engine_->Start(9, 3), b = engine_->Start(9, 3);
  for (int32_t n = 0; n < 20 && !HasFatalFailure(); n++) {
    std::vector<Item> items = engine_->Decode({ a, b });
    items[1].tokens = { engine_->requests[b]->last }; // a takes it from the device, b is told
    engine_->Step(items);
    std::vector<int64_t> ids = engine_->Buffer(CGR_BUFFER_INPUT_IDS);
    EXPECT_EQ(ids[1], items[1].tokens[0]);
    EXPECT_TRUE(!Samples() || ids[0] == ids[1]);
    EXPECT_TRUE(!Samples() || engine_->requests[a]->last == engine_->requests[b]->last);
  }
}

TEST_P(StepResults, LastTokenMayBeginALongerChunk) {
  int32_t row = engine_->Start(5, 1);
  int32_t last = engine_->requests[row]->last;
  engine_->Reserve(row, 9);
  engine_->Step({ { row, { CGR_TOKEN_LAST, 11, 12 } } });
  std::vector<int64_t> ids = engine_->Buffer(CGR_BUFFER_INPUT_IDS);
  EXPECT_EQ(std::vector<int64_t>(ids.begin(), ids.begin() + 3), (std::vector<int64_t>{ last, 11, 12 }));
}

TEST_P(StepResults, NullArraysMeanOneLastTokenEach) {
  int32_t a = engine_->Start(5, 1), b = engine_->Start(6, 2);
  std::vector<int64_t> want = { engine_->requests[b]->last, engine_->requests[a]->last };
  int32_t rows[] = { b, a };
  cgr_batch batch = BatchOf(2, rows);
  cgr_step step = CGR_STEP_INIT;
  CGR_ASSERT_OK(cgr_step_prepare(engine_->rt, &batch, &step));
  EXPECT_EQ(step.num_requests, 2);
  EXPECT_EQ(step.num_tokens, 2);
  CGR_ASSERT_OK(cgr_step_cancel(engine_->rt, &step));
  engine_->Step({ { b, { CGR_TOKEN_LAST } }, { a, { CGR_TOKEN_LAST } } });
  std::vector<int64_t> ids = engine_->Buffer(CGR_BUFFER_INPUT_IDS);
  EXPECT_EQ(std::vector<int64_t>(ids.begin(), ids.begin() + 2), want);
}

TEST_P(StepResults, EmptyRequestsAreNoWork) {
  std::vector<int32_t> rows;
  for (int32_t i = 0; i < 4; i++)
    rows.push_back(engine_->Start(4 + 5 * i, i));
  int32_t fresh = engine_->Open(); // without pages
  for (uint32_t mask = 0; mask < 16 && !HasFatalFailure(); mask++) {
    std::vector<Item> items = engine_->Decode(rows);
    for (size_t i = 0; i < 4; i++)
      if (mask >> i & 1)
        items[i].tokens.clear();
    items.insert(items.begin() + mask % 5, Item{ fresh, {} });
    std::vector<int32_t> last;
    for (int32_t row : rows)
      last.push_back(engine_->requests[row]->last);
    engine_->Step(items);
    engine_->CheckRows();
    std::vector<int64_t> on_device = engine_->Buffer(CGR_BUFFER_ROW_LAST_TOKENS);
    for (size_t i = 0; i < 4; i++)
      EXPECT_TRUE(!(mask >> i & 1) || on_device[size_t(rows[i])] == last[i]) << i;
  }
}

TEST_P(StepResults, DummyStepsChangeNothing) {
  int32_t row = engine_->Start(7, 1);
  for (int32_t n = 0; n < 10 && !HasFatalFailure(); n++) {
    engine_->Step({});
    EXPECT_EQ(engine_->step.num_requests, 0);
    EXPECT_EQ(engine_->step.num_tokens, 0);
    engine_->CheckRows();
    engine_->CheckCaches();
    engine_->Step(engine_->Decode({ row }));
  }
}

TEST_P(StepResults, StepsAlternateBetweenStreams) {
  cudaStream_t second = nullptr;
  CGR_ASSERT_OK(cgr_stream_create(engine_->dev, &second));
  std::vector<int32_t> rows = { engine_->Start(7, 1), engine_->Start(20, 2) };
  // Uploads of the engine would not be ordered with the other stream.
  engine_->upload = engine_->check_outputs = Samples();
  for (int32_t n = 0; n < 30 && !HasFatalFailure(); n++) {
    std::vector<int32_t> some = n % 4 == 0 ? std::vector<int32_t>{ rows[1] } : rows;
    CGR_ASSERT_OK(engine_->Prepare(engine_->Decode(some)));
    CGR_ASSERT_OK(engine_->LaunchOn(n % 3 == 0 ? engine_->stream : second));
    if (engine_->NumInFlight() == 3)
      engine_->CheckOne();
  }
  engine_->CheckAll();
  std::vector<int64_t> computed = engine_->Buffer(CGR_BUFFER_ROW_COMPUTED);
  for (int32_t row : rows)
    EXPECT_EQ(computed[size_t(row)], engine_->requests[row]->num_tokens);
  CGR_ASSERT_OK(cgr_stream_destroy(engine_->dev, second));
  if (!Samples())
    engine_->Forget(); // the caches hold what the first step's inputs were
}

TEST_P(StepResults, LengthGoesBackToAnyTokenAndOnFromThere) {
  int32_t row = engine_->Start(30, 1), other = engine_->Start(4, 2);
  for (int32_t n = 0; n < 10; n++)
    engine_->Step(engine_->Decode({ row, other }));
  for (int32_t to : { 39, 33, 32, 31, 16, 15, 1, 0 }) {
    engine_->SetLength(row, to);
    engine_->CheckRows();
    std::vector<Item> items = engine_->Decode({ other });
    items.push_back({ row, { to % 50, 3 } });
    engine_->Step(items);
    EXPECT_EQ(engine_->Info(row).num_tokens, to + 2);
    ASSERT_FALSE(HasFatalFailure());
  }
}

TEST_P(StepResults, LengthGoesForwardOverPagesThatAnotherRequestHasFilled) {
  int32_t first = engine_->Start(40, 1);
  for (int32_t shared : { 16, 32 }) {
    int32_t row = engine_->Open();
    engine_->SharePrefix(row, first, shared);
    EXPECT_EQ(engine_->Info(row).num_tokens, shared);
    EXPECT_EQ(engine_->Info(row).has_token, 0);
    engine_->Reserve(row, shared + 9);
    std::vector<Item> items = engine_->Decode({ first });
    items.push_back(Engine::Chunk(row, 5, shared));
    engine_->Step(items);
    engine_->Step(engine_->Decode({ row, first }));
    if (shared == 16)
      engine_->Close(row);
  }
  engine_->Close(first); // the second one still has its pages
  engine_->PoisonUnowned(1e4);
  for (int n = 0; n < 3 && !HasFatalFailure(); n++)
    engine_->Step(engine_->Decode(engine_->Rows()));
}

std::string Label(const ::testing::TestParamInfo<Case> &made) {
  return made.param.device.Label() + (made.param.feed == Feed::kTokens ? "_tokens" : "_uploads") +
         (made.param.mode == CGR_MODE_NONE ? "_eager" : "_full");
}
INSTANTIATE_TEST_SUITE_P(Devices, StepResults, ::testing::ValuesIn(Cases()), Label);

} // namespace
} // namespace cgr_test

// Replays match eager steps bit for bit at every real count; what capture keeps and what it calls; why a step is eager.
#include "tests/support/refused.h"

namespace cgr_test {
namespace {

class Replay : public OverDevices {
protected:
  std::unique_ptr<Engine> Make(const std::vector<int32_t> &buckets = { 1, 2, 4, 8 }) {
    EngineOptions options = OptionsFor(GetParam());
    options.buckets = buckets;
    return std::make_unique<Engine>(options);
  }
  // Eight requests of 3, 7, 11, ... tokens.
  static std::vector<int32_t> EightRequests(Engine &engine) {
    std::vector<int32_t> rows;
    for (int32_t i = 0; i < 8; i++)
      rows.push_back(engine.Start(3 + 4 * i, i));
    return rows;
  }
  static std::vector<int32_t> First(const std::vector<int32_t> &rows, size_t count) {
    return { rows.begin(), rows.begin() + int64_t(count) };
  }
};

// What a step of one runtime gave, to be compared with that of another.
struct Given {
  std::vector<std::vector<unsigned char>> out;
  std::vector<std::vector<float>> lse;
  std::vector<int32_t> sampled;
};

Given StepOf(Engine &engine, int32_t real, const cgr_key *key) {
  Given given;
  while (int32_t(engine.requests.size()) < real) {
    int32_t n = int32_t(engine.requests.size());
    engine.Start(1 + n * 7 % 50, n);
  }
  std::vector<int32_t> rows = engine.Rows();
  rows.resize(size_t(real));
  engine.Step(engine.Decode(rows), key);
  for (int32_t c = 0; c < engine.state.num_calls; c++) {
    given.out.push_back(engine.Out(c, real));
    given.lse.push_back(engine.Lse(c, real));
  }
  for (int32_t row : rows) {
    given.sampled.push_back(engine.requests[row]->last);
    if (engine.requests[row]->num_tokens > 140) // short of the limit
      engine.SetLength(row, 30);
  }
  return given;
}

TEST_P(Replay, EqualsEagerBitForBitAtEveryRealCount) {
  EngineOptions options = OptionsFor(GetParam());
  options.max_requests = 16, options.max_rows = 20, options.num_pages = 200;
  options.buckets = { 1, 3, 4, 9, 16 };
  for (LayerOptions &layer : options.layers)
    layer.num_q_heads = GetParam().IsCuda() ? 8 : 4, layer.num_kv_heads = 2;
  // The same requests in four runtimes: replay in the smallest bucket, replay in a forced bucket, eager at its padded counts,
  // eager without padding.
  std::vector<std::unique_ptr<Engine>> engines;
  for (int i = 0; i < 4; i++) {
    engines.push_back(std::make_unique<Engine>(options));
    engines.back()->check_outputs = i == 0; // the others are compared with it
    CGR_ASSERT_OK(engines.back()->Capture());
  }
  for (int32_t bucket : options.buckets)
    for (int32_t real = 1; real <= bucket; real++) {
      SCOPED_TRACE("bucket " + std::to_string(bucket) + ", " + std::to_string(real) + " real");
      const cgr_key keys[] = { {}, FullKey(bucket), EagerKey(bucket, bucket), EagerKey(real, real) };
      std::vector<Given> given;
      for (size_t i = 0; i < engines.size(); i++) {
        given.push_back(StepOf(*engines[i], real, i == 0 ? nullptr : &keys[i]));
        ASSERT_EQ(engines[i]->step.key.kind, i < 2 ? CGR_KIND_FULL : CGR_KIND_NONE);
      }
      for (size_t i = 1; i < engines.size(); i++) {
        ASSERT_EQ(given[i].sampled, given[0].sampled) << "runtime " << i;
        ASSERT_TRUE(given[i].out == given[0].out) << "runtime " << i;
        ASSERT_EQ(given[i].lse, given[0].lse) << "runtime " << i;
      }
    }
}

// Prompts run eagerly, which needs the engine, so they run before it is overwritten.
TEST_P(Replay, EngineMayBeOverwrittenAfterCapture) {
  auto engine = Make();
  CGR_ASSERT_OK(engine->Capture());
  std::vector<int32_t> rows = EightRequests(*engine);
  OverwrittenRecords() = 0;
  void *state = &engine->state;
  for (int n = 0; n < 40 && !HasFatalFailure(); n++) {
    CGR_ASSERT_OK(engine->Prepare(engine->Decode(First(rows, size_t(1 + n % 8)))));
    EXPECT_EQ(engine->step.key.kind, CGR_KIND_FULL);
    RecordState keep = engine->state;
    engine->prelaunch = [&] { std::memset(state, 0xA5, sizeof keep); };
    CGR_ASSERT_OK(engine->Launch());
    engine->WaitForAll();
    std::memcpy(state, static_cast<void *>(&keep), sizeof keep);
    engine->CheckAll();
  }
  EXPECT_EQ(OverwrittenRecords(), 0);
}

TEST_P(Replay, RecordRunsOncePerKeyLargestFirst) {
  auto engine = Make();
  CGR_ASSERT_OK(engine->Capture());
  ASSERT_EQ(engine->records.size(), 4u);
  ASSERT_EQ(cgr_test::NumKeys(engine->rt), 4);
  const int32_t largest_first[] = { 8, 4, 2, 1 };
  for (size_t i = 0; i < 4; i++) {
    const cgr_record_info &info = engine->records[i];
    const cgr_key key = FullKey(largest_first[i]);
    EXPECT_EQ(info.capturing, 1);
    EXPECT_EQ(std::memcmp(&info.key, &key, sizeof key), 0);
    EXPECT_EQ(info.num_requests, largest_first[i]);
    EXPECT_EQ(info.num_tokens, largest_first[i]);
    EXPECT_EQ(info.max_seq_len, engine->o.max_seq_len);
  }
}

TEST_P(Replay, RecordNeverRunsAtReplayAndCountersFollow) {
  auto engine = Make();
  CGR_ASSERT_OK(engine->Capture());
  std::vector<int32_t> rows = EightRequests(*engine);
  engine->records.clear();
  cgr_stats before = engine->Stats();
  uint64_t want[4] = { 0, 0, 0, 0 }, real[4] = { 0, 0, 0, 0 };
  for (int n = 0; n < 40 && !HasFatalFailure(); n++) {
    size_t count = size_t(1 + n % 8), index = count == 1 ? 0 : count == 2 ? 1 : count <= 4 ? 2 : 3;
    engine->Step(engine->Decode(First(rows, count)));
    EXPECT_EQ(engine->step.reason, (count & (count - 1)) == 0 ? CGR_REASON_EXACT : CGR_REASON_PADDED);
    want[index]++;
    real[index] += count;
  }
  EXPECT_TRUE(engine->records.empty());
  cgr_stats after = engine->Stats();
  auto replays = [](const cgr_stats &s) {
    return s.by_reason[CGR_KIND_FULL][CGR_REASON_EXACT] + s.by_reason[CGR_KIND_FULL][CGR_REASON_PADDED];
  };
  EXPECT_EQ(after.steps - before.steps, 40u);
  EXPECT_EQ(after.num_graphs, 4);
  EXPECT_EQ(replays(after) - replays(before), 40u);
  EXPECT_EQ(after.real_tokens - before.real_tokens, 5 * 36u);
  EXPECT_EQ(after.padded_tokens - before.padded_tokens, 5 * (1 + 2 + 4 + 4 + 8 * 4u));
  for (int32_t i = 0; i < 4; i++) {
    cgr_graph_stats stats = engine->GraphStats(i);
    EXPECT_EQ(stats.state, CGR_GRAPH_READY);
    EXPECT_EQ(stats.records, 1);
    EXPECT_EQ(stats.key.num_requests, 1 << i);
    EXPECT_EQ(stats.replays, want[i]);
    EXPECT_EQ(stats.real_requests, real[i]);
    EXPECT_GE(stats.num_nodes, 5);
    EXPECT_GT(stats.capture_ms, 0.0);
  }
}

TEST_P(Replay, ReasonsOfEagerSteps) {
  auto engine = Make({ 1, 2, 4 });
  int32_t first = engine->Open();
  engine->Reserve(first, 8);
  // Before capture there is no record function, so only a step without requests can run.
  for (int32_t tokens : { 3, 1 })
    ExpectMessage(engine->Prepare({ Engine::Chunk(first, tokens) }), CGR_ERROR_STATE,
                  { "cgr_step_prepare", tokens == 3 ? "not uniform" : "not captured", "no `record`", "cgr_runtime_capture" });
  engine->check_outputs = false; // nothing is computed
  engine->Step({});
  engine->check_outputs = true;
  EXPECT_EQ(engine->step.reason, CGR_REASON_NOT_CAPTURED);

  CGR_ASSERT_OK(engine->Capture());
  engine->Step({ Engine::Chunk(first, 3) });
  EXPECT_EQ(engine->step.reason, CGR_REASON_NOT_UNIFORM);
  std::vector<int32_t> rows = { first };
  for (int32_t i = 0; i < 4; i++)
    rows.push_back(engine->Start(3, i));
  engine->Step(engine->Decode(rows));
  EXPECT_EQ(engine->step.reason, CGR_REASON_ABOVE_REQUESTS);
  EXPECT_EQ(engine->step.key.kind, CGR_KIND_NONE);
  rows.pop_back();
  engine->Step(engine->Decode(rows));
  EXPECT_EQ(engine->step.reason, CGR_REASON_EXACT);
  engine->Step(engine->Chunks({ { rows[0], 2 }, { rows[1], 2 } })); // uniform, but not of one token
  EXPECT_EQ(engine->step.reason, CGR_REASON_NOT_UNIFORM);
}

// Ranks agree on a graph before any of them launches.
TEST_P(Replay, ChooseTellsWhatPrepareWouldUse) {
  auto engine = Make();
  CGR_ASSERT_OK(engine->Capture());
  std::vector<int32_t> rows = EightRequests(*engine);
  for (size_t count : { 1u, 3u, 5u, 8u }) {
    std::vector<int32_t> some = First(rows, count);
    std::vector<Item> items = engine->Decode(some);
    cgr_batch batch = BatchOf(int32_t(count), some.data());
    cgr_key key;
    Snapshot before(*engine);
    CGR_ASSERT_OK(cgr_step_choose(engine->rt, &batch, &key));
    before.ExpectSame(Snapshot(*engine));
    engine->Step(items);
    EXPECT_EQ(std::memcmp(&engine->step.key, &key, sizeof key), 0);
    engine->Step(engine->Decode(some), &key);
    EXPECT_EQ(engine->step.reason, CGR_REASON_FORCED);
    EXPECT_EQ(std::memcmp(&engine->step.key, &key, sizeof key), 0);
  }
}

TEST_P(Replay, GraphsMayBeCapturedWhileRequestsLive) {
  auto engine = Make({ 8 });
  engine->hook = [](cgr_recorder *, const cgr_record_info &info, int32_t at) {
    return at == 0 && info.capturing ? CGR_ERROR_CALLBACK : CGR_OK;
  };
  CGR_EXPECT(CGR_ERROR_CALLBACK, engine->Capture());
  engine->hook = nullptr;
  std::vector<int32_t> rows = { engine->Start(30, 1), engine->Start(2, 2) };
  engine->Step(engine->Decode(rows));
  EXPECT_EQ(engine->step.reason, CGR_REASON_CAPTURE_FAILED);
  ASSERT_NO_FATAL_FAILURE(engine->PrepareAndLaunch(engine->Decode(rows))); // in flight while capture is called
  CGR_ASSERT_OK(engine->Capture());
  EXPECT_EQ(cgr_test::Completed(engine->rt), engine->launched) << "capture waits for the steps in flight";
  engine->check_outputs = false; // a capture writes nothing, but uploads of the step are gone on some devices
  engine->CheckAll();
  engine->check_outputs = true;
  for (int n = 0; n < 5 && !HasFatalFailure(); n++)
    engine->Step(engine->Decode(rows));
  EXPECT_EQ(engine->step.key.kind, CGR_KIND_FULL);
}

TEST_P(Replay, WarmUpRunsEveryPaddedCountAndTouchesNoPage) {
  auto engine = Make();
  CGR_ASSERT_OK(engine->Warmup());
  std::vector<int32_t> counts;
  for (const cgr_record_info &info : engine->records) {
    EXPECT_EQ(info.capturing, 0);
    counts.push_back(info.num_requests);
  }
  std::sort(counts.begin(), counts.end());
  EXPECT_EQ(counts, (std::vector<int32_t>{ 1, 2, 4, 8 }));
  CGR_ASSERT_OK(engine->Capture());
  engine->CheckCaches();
  EXPECT_EQ(engine->Stats().by_reason[CGR_KIND_NONE][CGR_REASON_INTERNAL], engine->Stats().steps);
  engine->Step(engine->Decode({ engine->Start(20, 1) }));
  EXPECT_EQ(engine->step.key.kind, CGR_KIND_FULL);
  // And once more with requests alive.
  CGR_ASSERT_OK(engine->Warmup());
  engine->CheckCaches();
  engine->Step(engine->Decode(engine->Rows()));
}

TEST_P(Replay, WarmUpThatFailsIsToldAndCanBeRepeated) {
  auto engine = Make();
  engine->state.fail_after = 2;
  cgr_capture capture = engine->CaptureStruct();
  ExpectMessage(cgr_runtime_warmup(engine->rt, &capture), CGR_ERROR_CALLBACK, { "record", "CGR_ERROR_CALLBACK" });
  engine->state.fail_after = -1;
  engine->launched = 1; // its number is used up
  CGR_ASSERT_OK(engine->Warmup());
  CGR_ASSERT_OK(engine->Capture());
  engine->Step(engine->Decode({ engine->Start(20, 1) }));
}

CGR_INSTANTIATE_OVER_DEVICES(Replay);

} // namespace
} // namespace cgr_test

// Replays against eager steps, bit for bit at every real count; what capture keeps and what it calls; captures that fail.
#include "tests/support/refused.h"

namespace cgr_test {
namespace {

std::function<cgr_status(cgr_recorder *, ToyEngine *)> &Hook() {
  static std::function<cgr_status(cgr_recorder *, ToyEngine *)> hook;
  return hook;
}
cgr_status CallHook(cgr_recorder *recorder, ToyEngine *engine) { return Hook() ? Hook()(recorder, engine) : CGR_OK; }

class Replay : public ::testing::TestWithParam<DeviceParam> {
protected:
  void SetUp() override { CGR_SKIP_WITHOUT_DEVICE(GetParam()); }
  void TearDown() override { Hook() = nullptr; }
  std::unique_ptr<Toy> Make(const std::function<void(ToyOptions *)> &change = nullptr) {
    ToyOptions options = ToyOptionsFor(GetParam());
    if (change)
      change(&options);
    auto toy = std::make_unique<Toy>(options);
    toy->engine.before = CallHook;
    return toy;
  }
  static cgr_key Key(int32_t kind, int32_t n) { return { kind, 0, 0, n, n, kind == CGR_KIND_FULL ? 1 : 0, 0 }; }
};

TEST_P(Replay, EqualsEagerBitForBitAtEveryRealCount) {
  auto change = [](ToyOptions *options) {
    options->max_requests = 16;
    options->max_rows = 20;
    options->num_pages = 200;
    options->buckets = { 1, 3, 4, 9, 16 };
    if (GetParam().IsCuda())
      options->num_q_heads = 8, options->num_kv_heads = 2;
  };
  // The same requests in four runtimes: replay in the smallest bucket, replay in a forced bucket, eager at its padded counts,
  // eager without padding.
  std::vector<std::unique_ptr<Toy>> toys;
  for (int i = 0; i < 4; i++) {
    toys.push_back(Make(change));
    CGR_ASSERT_OK(toys.back()->Capture());
  }
  for (int32_t bucket : { 1, 3, 4, 9, 16 })
    for (int32_t real = 1; real <= bucket; real++) {
      SCOPED_TRACE("bucket " + std::to_string(bucket) + ", " + std::to_string(real) + " real");
      std::vector<std::vector<unsigned char>> bits;
      std::vector<std::vector<float>> lse;
      std::vector<std::vector<int32_t>> sampled;
      for (size_t i = 0; i < toys.size(); i++) {
        Toy &toy = *toys[i];
        while (static_cast<int32_t>(toy.requests.size()) < real) {
          int32_t n = static_cast<int32_t>(toy.requests.size());
          toy.Start(1 + n * 7 % 50, n);
        }
        std::vector<int32_t> rows = toy.Rows();
        rows.resize(static_cast<size_t>(real));
        cgr_key keys[] = { {}, Key(CGR_KIND_FULL, bucket), Key(CGR_KIND_NONE, bucket), Key(CGR_KIND_NONE, real) };
        toy.Step(toy.Decode(rows), i == 0 ? nullptr : &keys[i]);
        if (HasFatalFailure())
          return;
        ASSERT_EQ(toy.step.key.kind, i < 2 ? CGR_KIND_FULL : CGR_KIND_NONE);
        for (int32_t l = 0; l < 2; l++) {
          bits.push_back(toy.Out(l, real));
          lse.push_back(toy.Lse(l, real));
        }
        sampled.push_back({});
        for (int32_t row : rows)
          sampled.back().push_back(toy.requests[row]->sampled.back());
      }
      for (size_t i = 1; i < toys.size(); i++) {
        ASSERT_EQ(sampled[i], sampled[0]) << i;
        for (size_t l = 0; l < 2; l++) {
          ASSERT_TRUE(bits[i * 2 + l] == bits[l]) << "runtime " << i << " layer " << l;
          ASSERT_EQ(lse[i * 2 + l], lse[l]) << "runtime " << i << " layer " << l;
        }
      }
      // Sequences stay short of the limit.
      for (auto &toy : toys)
        for (int32_t row : toy->Rows())
          if (toy->requests[row]->num_tokens > 140)
            toy->Rewind(row, 30);
    }
}

// Prompts run eagerly, which needs the engine: they come before it is overwritten.
TEST_P(Replay, EngineMayBeOverwrittenAfterCapture) {
  auto toy = Make();
  CGR_ASSERT_OK(toy->Capture());
  std::vector<int32_t> rows;
  for (int32_t i = 0; i < 8; i++)
    rows.push_back(toy->Start(3 + 4 * i, i));
  ToyEngine keep = toy->engine;
  ToyPoisonedRecords() = 0;
  // The model reads the outputs from where the engine had them.
  void *raw = &toy->engine;
  std::vector<unsigned char> poison(sizeof toy->engine, 0xA5);
  for (int n = 0; n < 40 && !HasFatalFailure(); n++) {
    std::vector<int32_t> some(rows.begin(), rows.begin() + 1 + n % 8);
    CGR_ASSERT_OK(toy->Prepare(toy->Decode(some)));
    std::memcpy(raw, poison.data(), poison.size());
    if (toy->o.fixed) { // uploads go to where the captured graph reads
      for (int l = 0; l < 2; l++)
        toy->engine.q[l] = keep.q[l], toy->engine.k[l] = keep.k[l], toy->engine.v[l] = keep.v[l];
    }
    CGR_ASSERT_OK(toy->Launch());
    toy->Sync();
    EXPECT_EQ(toy->step.key.kind, CGR_KIND_FULL);
    toy->engine = keep;
    toy->CheckAll();
  }
  EXPECT_EQ(ToyPoisonedRecords(), 0);
}

TEST_P(Replay, RecordRunsOncePerKeyAndNeverAtReplay) {
  auto toy = Make();
  CGR_ASSERT_OK(toy->Capture());
  ASSERT_EQ(toy->records.size(), 4u);
  ASSERT_EQ(cgr_runtime_num_keys(toy->rt), 4);
  const int32_t largest_first[] = { 8, 4, 2, 1 };
  for (size_t i = 0; i < 4; i++) {
    const cgr_record_info &info = toy->records[i];
    EXPECT_EQ(info.capturing, 1);
    EXPECT_EQ(info.key.kind, CGR_KIND_FULL);
    EXPECT_EQ(info.key.num_requests, largest_first[i]);
    EXPECT_EQ(info.key.num_tokens, largest_first[i]);
    EXPECT_EQ(info.key.query_len, 1);
    EXPECT_EQ(info.num_requests, largest_first[i]);
    EXPECT_EQ(info.num_tokens, largest_first[i]);
    EXPECT_NE(info.stream, toy->stream);
    EXPECT_EQ(info.max_seq_len, toy->o.max_seq_len);
  }
  std::vector<int32_t> rows;
  for (int32_t i = 0; i < 8; i++)
    rows.push_back(toy->Start(3 + 4 * i, i));
  toy->records.clear();
  cgr_stats before = toy->Stats();
  uint64_t want[4] = { 0, 0, 0, 0 }, real[4] = { 0, 0, 0, 0 };
  for (int n = 0; n < 40 && !HasFatalFailure(); n++) {
    size_t count = static_cast<size_t>(1 + n % 8), index = count == 1 ? 0 : count == 2 ? 1 : count <= 4 ? 2 : 3;
    toy->Step(toy->Decode(std::vector<int32_t>(rows.begin(), rows.begin() + static_cast<int64_t>(count))));
    bool exact = count == 1 || count == 2 || count == 4 || count == 8;
    EXPECT_EQ(toy->step.reason, exact ? CGR_REASON_EXACT : CGR_REASON_PADDED);
    want[index]++;
    real[index] += count;
  }
  EXPECT_TRUE(toy->records.empty());
  cgr_stats after = toy->Stats();
  EXPECT_EQ(after.steps - before.steps, 40u);
  EXPECT_EQ(after.num_graphs, 4);
  EXPECT_EQ(after.by_reason[CGR_KIND_FULL][CGR_REASON_EXACT] + after.by_reason[CGR_KIND_FULL][CGR_REASON_PADDED] -
                before.by_reason[CGR_KIND_FULL][CGR_REASON_EXACT] - before.by_reason[CGR_KIND_FULL][CGR_REASON_PADDED],
            40u);
  EXPECT_EQ(after.real_tokens - before.real_tokens, 5 * 36u);
  EXPECT_EQ(after.padded_tokens - before.padded_tokens, 5 * (1 + 2 + 4 + 4 + 8 * 4u));
  for (int32_t i = 0; i < 4; i++) {
    cgr_graph_stats stats = CGR_GRAPH_STATS_INIT;
    CGR_ASSERT_OK(cgr_runtime_graph_stats(toy->rt, i, &stats));
    EXPECT_EQ(stats.state, 1);
    EXPECT_EQ(stats.records, 1);
    EXPECT_EQ(stats.key.num_requests, 1 << i);
    EXPECT_EQ(stats.replays, want[i]);
    EXPECT_EQ(stats.real_requests, real[i]);
    EXPECT_GE(stats.num_nodes, 5);
    EXPECT_GT(stats.capture_ms, 0.0);
  }
  cgr_graph_stats stats = CGR_GRAPH_STATS_INIT;
  ExpectRefused(*toy, CGR_ERROR_INVALID_ARGUMENT, { "index", "4" }, [&] { return cgr_runtime_graph_stats(toy->rt, 4, &stats); });
  ExpectRefused(*toy, CGR_ERROR_INVALID_ARGUMENT, { "index", "-1" },
                [&] { return cgr_runtime_graph_stats(toy->rt, -1, &stats); });
}

TEST_P(Replay, ReasonsOfEagerSteps) {
  auto toy = Make([](ToyOptions *options) { options->buckets = { 1, 2, 4 }; });
  int32_t first = -1;
  {
    // Before capture there is no record function: nothing can run but what has no requests.
    first = toy->Open();
    toy->Reserve(first, 3);
    CGR_ASSERT_OK(toy->Prepare({ { first, { 1, 2, 3 }, false } }));
    CGR_EXPECT(CGR_ERROR_STATE, toy->Launch());
    EXPECT_EQ(toy->Info(first).num_tokens, 0);
  }
  CGR_ASSERT_OK(toy->Capture());
  toy->Step({ { first, { 1, 2, 3 }, false } });
  EXPECT_EQ(toy->step.reason, CGR_REASON_NOT_UNIFORM);
  std::vector<int32_t> rows = { first };
  for (int32_t i = 0; i < 4; i++)
    rows.push_back(toy->Start(3, i));
  toy->Step(toy->Decode(rows));
  EXPECT_EQ(toy->step.reason, CGR_REASON_ABOVE_LADDER);
  EXPECT_EQ(toy->step.key.kind, CGR_KIND_NONE);
  rows.pop_back();
  toy->Step(toy->Decode(rows));
  EXPECT_EQ(toy->step.reason, CGR_REASON_EXACT);
  cgr_key key;
  std::vector<int32_t> three(rows.begin(), rows.begin() + 3);
  toy->Decode(three);
  cgr_batch batch = CGR_BATCH_INIT;
  batch.num_requests = 3;
  batch.rows = three.data();
  uint64_t steps = toy->Stats().steps;
  CGR_ASSERT_OK(cgr_step_choose(toy->rt, &batch, &key));
  EXPECT_EQ(toy->Stats().steps, steps);
  EXPECT_EQ(key.kind, CGR_KIND_FULL);
  EXPECT_EQ(key.num_requests, 4);
  toy->Step(toy->Decode(three), &key);
  EXPECT_EQ(toy->step.reason, CGR_REASON_FORCED);
  CGR_ASSERT_OK(toy->Prepare(toy->Decode(three), nullptr, 5)); // a variant that nobody has captured
  EXPECT_EQ(toy->step.key.kind, CGR_KIND_NONE);
  EXPECT_EQ(toy->step.reason, CGR_REASON_NOT_CAPTURED);
  CGR_ASSERT_OK(toy->Launch());
  toy->CheckAll();
}

TEST_P(Replay, GraphsMayBeCapturedWhileRequestsLive) {
  auto toy = Make([](ToyOptions *options) { options->buckets = { 8 }; });
  Hook() = [](cgr_recorder *recorder, ToyEngine *) {
    cgr_record_info info = CGR_RECORD_INFO_INIT;
    return cgr_record_get_info(recorder, &info) == CGR_OK && info.capturing ? CGR_ERROR_CALLBACK : CGR_OK;
  };
  EXPECT_NE(toy->Capture(), CGR_OK);
  Hook() = nullptr;
  std::vector<int32_t> rows = { toy->Start(30, 1), toy->Start(2, 2) };
  toy->Step(toy->Decode(rows));
  EXPECT_EQ(toy->step.reason, CGR_REASON_CAPTURE_FAILED);
  CGR_ASSERT_OK(toy->Prepare(toy->Decode(rows))); // one is in flight while capture is called
  CGR_ASSERT_OK(toy->Launch());
  CGR_ASSERT_OK(toy->Capture());
  toy->CheckAll();
  for (int n = 0; n < 5 && !HasFatalFailure(); n++)
    toy->Step(toy->Decode(rows));
  EXPECT_EQ(toy->step.key.kind, CGR_KIND_FULL);
}

TEST_P(Replay, FailedCaptureIsDroppedAndTriedAgain) {
  struct Way {
    const char *name;
    std::function<cgr_status(cgr_recorder *, ToyEngine *, const cgr_record_info &)> act;
    bool must_fail;
  };
  std::vector<Way> ways = {
    { "record gives up", [](cgr_recorder *, ToyEngine *, const cgr_record_info &) { return CGR_ERROR_CALLBACK; }, true },
    { "memory is allocated",
      [](cgr_recorder *, ToyEngine *e, const cgr_record_info &) {
        void *memory = nullptr;
        cgr_status status = cgr_memory_alloc(e->device, 4096, &memory);
        EXPECT_EQ(std::string(cgr_status_name(status)), "CGR_ERROR_CAPTURE") << cgr_last_message();
        EXPECT_EQ(memory, nullptr);
        return status;
      },
      true },
    { "pinned memory is allocated",
      [](cgr_recorder *, ToyEngine *e, const cgr_record_info &) {
        void *memory = nullptr;
        cgr_status status = cgr_memory_alloc_pinned(e->device, 4096, &memory);
        EXPECT_EQ(std::string(cgr_status_name(status)), "CGR_ERROR_CAPTURE") << cgr_last_message();
        return status;
      },
      true },
    { "the stream is waited for",
      [](cgr_recorder *, ToyEngine *e, const cgr_record_info &info) {
        cgr_status status = cgr_stream_synchronize(e->device, info.stream);
        EXPECT_EQ(std::string(cgr_status_name(status)), "CGR_ERROR_CAPTURE") << cgr_last_message();
        return status;
      },
      true },
    { "the stream is waited for, and nobody looks at the answer",
      [](cgr_recorder *, ToyEngine *e, const cgr_record_info &info) {
        cgr_stream_synchronize(e->device, info.stream);
        return CGR_OK;
      },
      true },
    { "a layer that is not there",
      [](cgr_recorder *recorder, ToyEngine *, const cgr_record_info &) {
        cgr_attention attention = {};
        attention.size = static_cast<uint32_t>(sizeof attention);
        attention.layer = 77;
        return cgr_record_attention(recorder, &attention);
      },
      true },
    { "it fails half-way",
      [](cgr_recorder *, ToyEngine *e, const cgr_record_info &) {
        e->fail_after = 2;
        return CGR_OK;
      },
      true },
  };
  for (const Way &way : ways)
    for (int32_t failing : { 8, 4, 1 }) {
      SCOPED_TRACE(std::string(way.name) + ", bucket " + std::to_string(failing));
      Hook() = nullptr;
      auto toy = Make();
      Hook() = [&](cgr_recorder *recorder, ToyEngine *engine) {
        cgr_record_info info = CGR_RECORD_INFO_INIT;
        CGR_EXPECT_OK(cgr_record_get_info(recorder, &info));
        engine->fail_after = -1;
        return info.capturing && info.num_requests == failing ? way.act(recorder, engine, info) : CGR_OK;
      };
      cgr_status status = toy->Capture();
      EXPECT_NE(status, CGR_OK);
      EXPECT_NE(std::string(cgr_last_message()), "");
      EXPECT_EQ(toy->records.size(), 4u); // all keys were tried
      cgr_stats stats = toy->Stats();
      EXPECT_EQ(stats.num_graphs, 3);
      EXPECT_EQ(stats.captures_failed, 1u);
      std::vector<int32_t> rows;
      for (int32_t i = 0; i < 8; i++)
        rows.push_back(toy->Start(2 + i, i));
      for (int32_t count = 1; count <= 8 && !HasFatalFailure(); count++) {
        int32_t bucket = count == 1 ? 1 : count == 2 ? 2 : count <= 4 ? 4 : 8;
        toy->Step(toy->Decode(std::vector<int32_t>(rows.begin(), rows.begin() + count)));
        EXPECT_EQ(toy->step.key.kind, bucket == failing ? CGR_KIND_NONE : CGR_KIND_FULL) << count;
        if (bucket == failing) {
          EXPECT_EQ(toy->step.reason, CGR_REASON_CAPTURE_FAILED);
        }
      }
      Hook() = nullptr;
      toy->engine.fail_after = -1;
      toy->records.clear();
      CGR_ASSERT_OK(toy->Capture());
      EXPECT_EQ(toy->records.size(), 1u);
      EXPECT_EQ(toy->Stats().num_graphs, 4);
      for (int32_t count = 1; count <= 8 && !HasFatalFailure(); count++) {
        toy->Step(toy->Decode(std::vector<int32_t>(rows.begin(), rows.begin() + count)));
        EXPECT_EQ(toy->step.key.kind, CGR_KIND_FULL);
      }
      if (HasFatalFailure())
        return;
    }
}

TEST_P(Replay, WarmUpRunsEveryPaddedCountAndTouchesNoPage) {
  auto toy = Make();
  std::vector<std::vector<unsigned char>> before;
  for (int i = 0; i < 4; i++)
    before.push_back(toy->Pool(i / 2, i % 2 != 0));
  CGR_ASSERT_OK(cgr_runtime_warmup(toy->rt, ToyRecord, &toy->engine));
  std::vector<int32_t> counts;
  for (const cgr_record_info &info : toy->records) {
    EXPECT_EQ(info.capturing, 0);
    counts.push_back(info.num_requests);
  }
  std::sort(counts.begin(), counts.end());
  EXPECT_EQ(counts, (std::vector<int32_t>{ 1, 2, 4, 8 }));
  CGR_ASSERT_OK(toy->Capture());
  for (int i = 0; i < 4; i++)
    EXPECT_TRUE(before[static_cast<size_t>(i)] == toy->Pool(i / 2, i % 2 != 0));
  EXPECT_EQ(toy->Stats().by_reason[CGR_KIND_NONE][CGR_REASON_INTERNAL], toy->Stats().steps);
  toy->Step(toy->Decode({ toy->Start(20, 1) }));
}

CGR_INSTANTIATE_OVER_DEVICES(Replay);

} // namespace
} // namespace cgr_test

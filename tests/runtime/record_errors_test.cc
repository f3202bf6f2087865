// What the calls inside `record` refuse; graphs that no longer fit: stale ones, and strict mode.
#include "tests/support/refused.h"

namespace cgr_test {
namespace {

// What the hook does inside `record`.
std::function<cgr_status(cgr_recorder *, ToyEngine *)> &Hook() {
  static std::function<cgr_status(cgr_recorder *, ToyEngine *)> hook;
  return hook;
}
cgr_status CallHook(cgr_recorder *recorder, ToyEngine *engine) { return Hook() ? Hook()(recorder, engine) : CGR_OK; }

class RecordErrors : public ::testing::TestWithParam<DeviceParam> {
protected:
  void SetUp() override {
    CGR_SKIP_WITHOUT_DEVICE(GetParam());
    Make([](cgr_config *) {});
  }
  void Make(const std::function<void(cgr_config *)> &adjust) {
    Hook() = nullptr;
    toy_.reset();
    ToyOptions options = ToyOptionsFor(GetParam());
    options.adjust = adjust;
    toy_ = std::make_unique<Toy>(options);
    toy_->engine.before = CallHook;
    CGR_ASSERT_OK(toy_->Capture());
    rows_ = { toy_->Start(5, 1), toy_->Start(17, 2), toy_->Start(31, 3) };
  }
  void TearDown() override {
    Hook() = nullptr;
    if (toy_ == nullptr)
      return;
    for (int n = 0; n < 3 && !HasFatalFailure(); n++)
      toy_->Step(toy_->Decode(rows_));
  }
  // An eager step: two query tokens for a row.
  std::vector<ToyItem> Eager() {
    for (int32_t row : rows_)
      toy_->Reserve(row, toy_->requests[row]->num_tokens + 3);
    return { { rows_[0], { CGR_TOKEN_LAST, 4 }, false }, { rows_[1], { 5 }, false } };
  }
  cgr_attention Good() {
    ToyEngine &e = toy_->engine;
    cgr_attention a = {};
    a.size = static_cast<uint32_t>(sizeof a);
    int64_t q_width = int64_t{ 1 } * e.num_q_heads * e.head_dim, kv_width = int64_t{ 1 } * e.num_kv_heads * e.head_dim;
    a.q = { e.q[0], e.dtype, 0, q_width, e.head_dim };
    a.k = { e.k[0], e.dtype, 0, kv_width, e.head_dim };
    a.v = { e.v[0], e.dtype, 0, kv_width, e.head_dim };
    a.out = { e.out[0], e.dtype, 0, q_width, e.head_dim };
    return a;
  }
  std::unique_ptr<Toy> toy_;
  std::vector<int32_t> rows_;
};

TEST_P(RecordErrors, AttentionRefusesWhatItCannotDo) {
  struct Bad {
    const char *name;
    cgr_status status;
    Words words;
    std::function<void(cgr_attention *)> change;
  };
  std::vector<Bad> bads = {
    { "size", CGR_ERROR_INVALID_STRUCT, { "size" }, [](cgr_attention *a) { a->size = 7; } },
    { "layer -1", CGR_ERROR_INVALID_ARGUMENT, { "layer", "-1" }, [](cgr_attention *a) { a->layer = -1; } },
    { "layer 2", CGR_ERROR_INVALID_ARGUMENT, { "layer", "2" }, [](cgr_attention *a) { a->layer = 2; } },
    { "flag", CGR_ERROR_INVALID_ENUM, { "flags", "0x100" }, [](cgr_attention *a) { a->flags = 0x100; } },
    { "non causal", CGR_ERROR_UNSUPPORTED, { "NON_CAUSAL" }, [](cgr_attention *a) { a->flags = CGR_ATTENTION_NON_CAUSAL; } },
    { "no cache", CGR_ERROR_UNSUPPORTED, { "NO_CACHE" }, [](cgr_attention *a) { a->flags = CGR_ATTENTION_NO_CACHE; } },
    { "length set", CGR_ERROR_UNSUPPORTED, { "length_set", "1" }, [](cgr_attention *a) { a->length_set = 1; } },
    { "q NULL", CGR_ERROR_NULL_POINTER, { "q" }, [](cgr_attention *a) { a->q.data = nullptr; } },
    { "k NULL", CGR_ERROR_NULL_POINTER, { "k" }, [](cgr_attention *a) { a->k.data = nullptr; } },
    { "v NULL", CGR_ERROR_NULL_POINTER, { "v" }, [](cgr_attention *a) { a->v.data = nullptr; } },
    { "out NULL", CGR_ERROR_NULL_POINTER, { "out" }, [](cgr_attention *a) { a->out.data = nullptr; } },
    { "q dtype", CGR_ERROR_UNSUPPORTED, { "q", "dtype" }, [](cgr_attention *a) { a->q.dtype = CGR_DTYPE_FP16; } },
    { "out dtype", CGR_ERROR_UNSUPPORTED, { "out", "dtype" }, [](cgr_attention *a) { a->out.dtype = CGR_DTYPE_I32; } },
    { "unknown dtype", CGR_ERROR_INVALID_ENUM, { "v", "dtype", "99" }, [](cgr_attention *a) { a->v.dtype = 99; } },
    { "base",
      CGR_ERROR_INVALID_ARGUMENT,
      { "k", "16" },
      [](cgr_attention *a) { a->k.data = static_cast<char *>(a->k.data) + 2; } },
    { "token stride", CGR_ERROR_INVALID_ARGUMENT, { "q", "16" }, [](cgr_attention *a) { a->q.stride_token += 1; } },
    { "head stride", CGR_ERROR_INVALID_ARGUMENT, { "out", "16" }, [](cgr_attention *a) { a->out.stride_head += 1; } },
    { "k scale", CGR_ERROR_UNSUPPORTED, { "scale" }, [](cgr_attention *a) { a->k_scale = reinterpret_cast<float *>(256); } },
    { "v scale", CGR_ERROR_UNSUPPORTED, { "scale" }, [](cgr_attention *a) { a->v_scale = reinterpret_cast<float *>(256); } },
    { "sinks", CGR_ERROR_UNSUPPORTED, { "sinks" }, [](cgr_attention *a) { a->sinks = reinterpret_cast<float *>(256); } },
  };
  for (const Bad &bad : bads) {
    SCOPED_TRACE(bad.name);
    bool called = false;
    Hook() = [&](cgr_recorder *recorder, ToyEngine *) {
      called = true;
      cgr_attention attention = Good();
      bad.change(&attention);
      cgr_status got = cgr_record_attention(recorder, &attention);
      ExpectMessage(got, bad.status, bad.words);
      return CGR_OK; // the engine goes on; the refused call has enqueued nothing
    };
    toy_->Step(Eager());
    EXPECT_TRUE(called);
  }
}

TEST_P(RecordErrors, RefusedAttentionGivesTheStepUp) {
  Hook() = [&](cgr_recorder *recorder, ToyEngine *) {
    cgr_attention attention = Good();
    attention.layer = 9;
    return cgr_record_attention(recorder, &attention);
  };
  uint64_t launched = toy_->launched;
  for (int n = 0; n < 3; n++) {
    CGR_ASSERT_OK(toy_->Prepare(Eager()));
    EXPECT_NE(toy_->Launch(), CGR_OK);
    EXPECT_NE(std::string(cgr_last_message()).find("layer"), std::string::npos) << cgr_last_message();
  }
  EXPECT_EQ(toy_->Info(rows_[0]).num_tokens, 5);
  Hook() = nullptr;
  toy_->Step(Eager());
  EXPECT_GT(toy_->launched, launched);
}

TEST_P(RecordErrors, CallsTheFunctionNow) {
  int calls = 0;
  struct Context {
    int *calls;
    cgr_status answer;
  } context = { &calls, CGR_OK };
  auto function = [](cgr_recorder *, void *raw) {
    Context *c = static_cast<Context *>(raw);
    ++*c->calls;
    return c->answer;
  };
  Hook() = [&](cgr_recorder *recorder, ToyEngine *) {
    ExpectMessage(cgr_record_call(recorder, nullptr, &context), CGR_ERROR_NULL_POINTER, { "function" });
    int before = calls;
    CGR_EXPECT_OK(cgr_record_call(recorder, function, &context));
    EXPECT_EQ(calls, before + 1);
    context.answer = CGR_ERROR_CALLBACK;
    EXPECT_NE(cgr_record_call(recorder, function, &context), CGR_OK);
    context.answer = CGR_OK;
    return CGR_OK;
  };
  CGR_ASSERT_OK(toy_->Prepare(Eager()));
  CGR_ASSERT_OK(toy_->Launch());
  toy_->CheckAll();
  EXPECT_EQ(calls, 2);
}

TEST_P(RecordErrors, CallsThatChangeTheRuntimeAreRefusedInsideRecord) {
  Toy &toy = *toy_;
  int calls = 0;
  Hook() = [&](cgr_recorder *, ToyEngine *) {
    calls++;
    int32_t row = rows_[2], page = 5;
    cgr_batch batch = CGR_BATCH_INIT;
    cgr_step step = CGR_STEP_INIT;
    ExpectMessage(cgr_request_open(toy.rt, &row), CGR_ERROR_STATE, { "cgr_request_open", "record" });
    ExpectMessage(cgr_request_close(toy.rt, row), CGR_ERROR_STATE, { "record" });
    ExpectMessage(cgr_request_set_pages(toy.rt, row, 0, 0, &page, 1), CGR_ERROR_STATE, { "record" });
    ExpectMessage(cgr_request_rewind(toy.rt, row, 0), CGR_ERROR_STATE, { "record" });
    ExpectMessage(cgr_step_prepare(toy.rt, &batch, &step), CGR_ERROR_STATE, { "record" });
    ExpectMessage(cgr_step_launch(toy.rt, &step, toy.stream), CGR_ERROR_STATE, { "record" });
    ExpectMessage(cgr_step_cancel(toy.rt, &step), CGR_ERROR_STATE, { "record" });
    return CGR_OK;
  };
  toy.Step(Eager());
  EXPECT_EQ(calls, 1);
}

TEST_P(RecordErrors, InfoTellsThePaddedCounts) {
  cgr_key key = { CGR_KIND_NONE, 0, 0, 24, 6, 0, 0 };
  toy_->records.clear();
  toy_->Step(Eager(), &key);
  ASSERT_EQ(toy_->records.size(), 1u);
  const cgr_record_info &info = toy_->records[0];
  EXPECT_EQ(info.capturing, 0);
  EXPECT_EQ(info.stream, toy_->stream);
  EXPECT_EQ(info.num_tokens, 24);
  EXPECT_EQ(info.num_requests, 6);
  EXPECT_EQ(info.max_seq_len, toy_->o.max_seq_len);
  Hook() = [&](cgr_recorder *recorder, ToyEngine *) {
    cgr_record_info bad = CGR_RECORD_INFO_INIT;
    bad.size = 3;
    ExpectMessage(cgr_record_get_info(recorder, &bad), CGR_ERROR_INVALID_STRUCT, { "size" });
    ExpectMessage(cgr_record_get_info(recorder, nullptr), CGR_ERROR_NULL_POINTER, { "info" });
    return CGR_OK;
  };
  toy_->Step(Eager());
}

// ---- stale graphs

TEST_P(RecordErrors, MovedRegionMakesGraphsStaleUntilTheyAreCapturedAgain) {
  Toy &toy = *toy_;
  int32_t region = -1;
  CGR_ASSERT_OK(cgr_region_register(toy.rt, toy.engine.q[0], 4096, &region));
  CGR_ASSERT_OK(toy.Capture());
  toy.Step(toy.Decode(rows_));
  ASSERT_EQ(toy.step.key.kind, CGR_KIND_FULL);
  int32_t ready = toy.Stats().num_graphs;
  EXPECT_EQ(ready, 4);
  ExpectRefused(toy, CGR_ERROR_NULL_POINTER, { "base" }, [&] { return cgr_region_move(toy.rt, region, nullptr, 4096); });
  ExpectRefused(toy, CGR_ERROR_INVALID_ARGUMENT, { "bytes", "0" },
                [&] { return cgr_region_move(toy.rt, region, toy.engine.q[0], 0); });
  for (int32_t bad : { -1, region + 1, 1000000 })
    ExpectRefused(toy, CGR_ERROR_INVALID_ARGUMENT, { "region", std::to_string(bad) },
                  [&] { return cgr_region_move(toy.rt, bad, toy.engine.q[0], 4096); });
  toy.Step(toy.Decode(rows_)); // still not stale
  ASSERT_EQ(toy.step.key.kind, CGR_KIND_FULL);

  // The engine's activations move; the old ones are poison.
  size_t elements = static_cast<size_t>(toy.o.max_tokens * toy.o.num_q_heads * toy.o.head_dim);
  void *old = toy.engine.q[0], *moved = toy.Alloc(elements * toy.ElementBytes());
  toy.Sync();
  toy.engine.q[0] = moved;
  CGR_ASSERT_OK(cgr_region_move(toy.rt, region, moved, elements * toy.ElementBytes()));
  toy.FillElements(old, elements, NAN);
  EXPECT_EQ(toy.Stats().num_graphs, 0);
  std::vector<ToyItem> decode = toy.Decode(rows_);
  for (int n = 0; n < 2; n++)
    ExpectRefused(
        toy, CGR_ERROR_STALE_GRAPH, { "captured" }, [&] { return toy.Prepare(decode); }, 1);
  cgr_graph_stats stats = CGR_GRAPH_STATS_INIT;
  CGR_ASSERT_OK(cgr_runtime_graph_stats(toy.rt, 0, &stats));
  EXPECT_EQ(stats.state, 3);
  toy.Step(Eager()); // holds no graph
  toy.records.clear();
  CGR_ASSERT_OK(toy.Capture());
  EXPECT_EQ(toy.records.size(), 4u);
  EXPECT_EQ(toy.Stats().num_graphs, ready);
  CGR_ASSERT_OK(cgr_runtime_graph_stats(toy.rt, 0, &stats));
  EXPECT_EQ(stats.state, 1);
  toy.Step(toy.Decode(rows_));
  EXPECT_EQ(toy.step.key.kind, CGR_KIND_FULL);
  toy.records.clear();
  CGR_ASSERT_OK(toy.Capture()); // nothing to do
  EXPECT_TRUE(toy.records.empty());
}

TEST_P(RecordErrors, RegionThatMovesAfterPrepareFailsTheLaunch) {
  Toy &toy = *toy_;
  int32_t region = -1;
  CGR_ASSERT_OK(cgr_region_register(toy.rt, toy.engine.q[0], 4096, &region));
  CGR_ASSERT_OK(toy.Capture());
  CGR_ASSERT_OK(toy.Prepare(toy.Decode(rows_)));
  ASSERT_EQ(toy.step.key.kind, CGR_KIND_FULL);
  CGR_ASSERT_OK(cgr_region_move(toy.rt, region, toy.engine.q[0], 4096));
  CGR_EXPECT(CGR_ERROR_STALE_GRAPH, toy.Launch());
  EXPECT_EQ(toy.Info(rows_[0]).num_tokens, 5);
  CGR_ASSERT_OK(toy.Capture()); // nothing is prepared any more
}

TEST_P(RecordErrors, RegionsOfTheRuntimeCannotMove) {
  Toy &toy = *toy_;
  int32_t region = -1;
  CGR_ASSERT_OK(cgr_region_register(toy.rt, toy.engine.q[0], 4096, &region));
  for (int32_t own = 0; own < region; own++)
    ExpectRefused(toy, CGR_ERROR_INVALID_ARGUMENT, { "region", std::to_string(own) },
                  [&] { return cgr_region_move(toy.rt, own, toy.engine.q[0], 4096); });
  toy.Step(toy.Decode(rows_));
  EXPECT_EQ(toy.step.key.kind, CGR_KIND_FULL);
}

TEST_P(RecordErrors, BadStreamLeavesTheStepPrepared) {
  Toy &toy = *toy_;
  for (const std::vector<ToyItem> &items : { toy.Decode(rows_), Eager() }) {
    CGR_ASSERT_OK(toy.Prepare(items));
    ExpectRefused(toy, CGR_ERROR_INVALID_ARGUMENT, { "stream" }, [&] { return cgr_step_launch(toy.rt, &toy.step, nullptr); });
    CGR_ASSERT_OK(toy.Launch());
    toy.CheckAll();
  }
}

// ---- strict mode

TEST_P(RecordErrors, StrictRefusesAFallback) {
  Make([](cgr_config *config) {
    static const int32_t buckets[] = { 1, 2, 4 };
    config->strict = 1;
    config->buckets = buckets;
    config->num_buckets = 3;
  });
  Toy &toy = *toy_;
  std::vector<int32_t> rows = rows_;
  for (int32_t n = 0; n < 2; n++)
    rows.push_back(toy.Start(3, n));
  std::vector<ToyItem> five = toy.Decode(rows);
  ExpectRefused(
      toy, CGR_ERROR_FALLBACK, { "5 requests", "strict" }, [&] { return toy.Prepare(five); }, 1);
  five.pop_back();
  toy.Step(five);
  EXPECT_EQ(toy.step.reason, CGR_REASON_EXACT);
  toy.Step(Eager()); // a graph was never promised for a mixed step
  EXPECT_EQ(toy.step.reason, CGR_REASON_NOT_UNIFORM);
  toy.Step({});
  for (size_t i = rows_.size(); i < rows.size(); i++)
    toy.Close(rows[i]);
}

TEST_P(RecordErrors, StrictRefusesWhatIsNotCaptured) {
  Make([](cgr_config *config) { config->strict = 1; });
  Toy &toy = *toy_;
  std::vector<ToyItem> decode = toy.Decode(rows_);
  Hook() = [](cgr_recorder *recorder, ToyEngine *) {
    cgr_record_info info = CGR_RECORD_INFO_INIT;
    return cgr_record_get_info(recorder, &info) == CGR_OK && info.capturing ? CGR_ERROR_CALLBACK : CGR_OK;
  };
  int32_t region = -1;
  CGR_ASSERT_OK(cgr_region_register(toy.rt, toy.engine.q[0], 4096, &region));
  CGR_ASSERT_OK(cgr_region_move(toy.rt, region, toy.engine.q[0], 4096));
  EXPECT_NE(toy.Capture(), CGR_OK);
  ExpectRefused(
      toy, CGR_ERROR_FALLBACK, { "3 requests", "strict" }, [&] { return toy.Prepare(decode); }, 1);
  Hook() = nullptr;
  CGR_ASSERT_OK(toy.Capture());
}

INSTANTIATE_TEST_SUITE_P(Devices, RecordErrors,
                         ::testing::Values(HostParam(CGR_HOST_ASYNC), HostParam(CGR_HOST_LATEST), CudaParam()), DeviceLabel);

} // namespace
} // namespace cgr_test

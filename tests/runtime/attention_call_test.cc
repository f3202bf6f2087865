// cgr_record_attention through whole steps, replayed and eager, at padded counts: an engine's own page table, layers that read
// another layer's cache, append and attention apart, lse, head counts side by side, KV layouts, dtypes and head dims.
#include "tests/support/refused.h"

namespace cgr_test {
namespace {

class AttentionCall : public OverDevices {
protected:
  std::unique_ptr<Engine> Make(const EngineOptions &options) {
    auto engine = std::make_unique<Engine>(options);
    engine->keep_outputs = true;
    CGR_EXPECT_OK(engine->Capture());
    return engine;
  }
  EngineOptions Options(const std::vector<LayerOptions> &layers, const std::vector<CallOptions> &calls = {}) {
    EngineOptions options = AttentionOptionsFor(GetParam(), layers);
    options.calls = calls;
    return options;
  }
  static void Step(Engine &engine, const std::vector<std::pair<int32_t, int32_t>> &chunks, const cgr_key *key = nullptr) {
    engine.Step(engine.Chunks(chunks), key);
  }
  static void DecodeStep(Engine &engine, const std::vector<int32_t> &rows, const cgr_key *key = nullptr) {
    engine.Step(engine.Decode(rows), key);
    ASSERT_EQ(engine.step.key.kind, key != nullptr ? key->kind : CGR_KIND_FULL);
  }
  // Prompts, chunks and decode steps of five requests, eager and replayed, padded and not: 14 steps. Rows hold 24, 51, 76, 7 and
  // 26 tokens then.
  static std::vector<int32_t> Scenario(Engine &engine) {
    std::vector<int32_t> r;
    for (int i = 0; i < 5; i++)
      r.push_back(engine.Open());
    const cgr_key wide = EagerKey(8, 64), narrow = EagerKey(8, 8), full = FullKey(8);
    Step(engine, { { r[0], 15 }, { r[1], 40 } });
    Step(engine, { { r[2], 50 }, { r[3], 1 } }, &wide);
    Step(engine, { { r[0], 1 }, { r[4], 20 }, { r[2], 17 }, { r[1], 3 } });
    for (int i = 0; i < 2; i++) {
      DecodeStep(engine, { r[0], r[1], r[2] }); // 3 of 4
      DecodeStep(engine, r);                    // 5 of 8
      DecodeStep(engine, r, &narrow);           // eager, 5 of 8
      DecodeStep(engine, { r[4], r[3] }, &full);
      DecodeStep(engine, { r[2] });
    }
    Step(engine, { { r[0], 2 }, { r[1], 2 }, { r[2], 1 } }, &wide);
    engine.CheckCaches();
    return r;
  }
};

TEST_P(AttentionCall, ReadsThePageTableThatTheEngineKeeps) {
  EngineOptions options = Options({ { 4, 2 }, { 4, 2 } });
  options.engine_table = true;
  auto engine = Make(options);
  std::vector<int32_t> r = Scenario(*engine);
  cgr_buffer_view view = engine->View(CGR_BUFFER_PAGE_TABLE);
  EXPECT_EQ(view.data, engine->tables[0]);
  EXPECT_EQ(view.stride, engine->TableStride());
  EXPECT_EQ(view.shape[0], engine->o.max_rows + 1);
  EXPECT_EQ(view.shape[1], 6);
  int32_t page = 2, first = -1, end = -1;
  ExpectRefused(*engine, CGR_ERROR_STATE, { "page_table" },
                [&] { return cgr_request_set_pages(engine->rt, r[0], 0, 0, &page, 1); });
  ExpectRefused(*engine, CGR_ERROR_STATE, { "page_table" }, [&] { return cgr_request_drop_pages(engine->rt, r[0], 0, 0, 1); });
  CGR_EXPECT_OK(cgr_request_get_pages(engine->rt, r[0], 0, &first, &end));
  EXPECT_EQ(first, 0);
  EXPECT_EQ(end, 0);
  // Nothing writes it.
  size_t stride = size_t(engine->TableStride());
  std::vector<int32_t> kept = engine->Read<int32_t>(engine->tables[0], size_t(engine->o.max_rows + 1) * stride);
  for (size_t at = 0; at < kept.size(); at++) {
    int32_t row = int32_t(at / stride);
    auto request = engine->requests.find(row);
    bool set = request != engine->requests.end() && at % stride < request->second->pages.size();
    ASSERT_EQ(kept[at], set ? request->second->pages[at % stride] : row == engine->o.max_rows ? 0 : INT32_MAX) << at;
  }
}

TEST_P(AttentionCall, ReportsABadPageOfTheEnginesTableAndTouchesNothingElse) {
  EngineOptions options = Options({ { 4, 2 }, { 4, 2 } });
  options.engine_table = true;
  auto engine = Make(options);
  std::vector<int32_t> r = Scenario(*engine);
  const int32_t row = r[1];
  const cgr_key narrow = EagerKey(8, 8);
  for (const cgr_key *key : { static_cast<const cgr_key *>(nullptr), &narrow })
    for (int32_t value : { -5, engine->o.num_pages, INT32_MAX, 1 }) {
      SCOPED_TRACE((key == nullptr ? "replay, page " : "eager, page ") + std::to_string(value));
      const std::vector<Item> items = engine->Decode({ r[0], row, r[3] });
      const std::vector<int32_t> good = engine->requests[row]->pages;
      // A page that is only read: the step's new token still reaches the cache.
      engine->SetTable(row, 1, value);
      engine->Step(items, key);
      engine->CheckCaches();
      engine->SetTable(row, 1, good[1]);
      engine->Step(engine->Decode({ r[0], row, r[3] }), key);
      // The page of the new token, which is written nowhere.
      int32_t length = engine->requests[row]->num_tokens;
      engine->Decode({ r[0], row, r[3] });
      int32_t last = length / 16, page = engine->requests[row]->pages[size_t(last)];
      engine->SetTable(row, last, value);
      engine->Step(items, key);
      engine->CheckCaches();
      engine->SetTable(row, last, page);
      engine->SetLength(row, length);
      engine->Step(engine->Chunks({ { r[0], 1 }, { row, 1 }, { r[3], 1 } }), key);
      engine->CheckCaches();
      ASSERT_FALSE(HasFailure());
    }
  EXPECT_EQ(engine->guard_errors, 16u);
}

TEST_P(AttentionCall, ALayerReadsTheCacheOfItsSourceAndAppendsNothing) {
  auto engine = Make(Options({ { 4, 2 }, { 8, 2, 8, 1 }, { 4, 2 }, { 2, 2, 8, 3 }, { 4, 2, 8, 2 } },
                             { { 0, 0 }, { 1, 0 }, { 2, 0 }, { 3, CGR_ATTENTION_NO_APPEND }, { 4, 0 } }));
  Scenario(*engine); // checks the caches too
}

TEST_P(AttentionCall, AppendAndAttentionApartEqualOneCall) {
  LayerOptions same = { 8, 2 };
  same.same_inputs_as = 0; // with a cache of its own
  auto engine = Make(Options({ { 8, 2 }, same }, { { 0, 0 }, { 1, CGR_ATTENTION_APPEND_ONLY }, { 1, CGR_ATTENTION_NO_APPEND } }));
  Scenario(*engine);
  ASSERT_EQ(engine->kept.size(), 14u);
  for (const std::vector<Outputs> &step : engine->kept) {
    ASSERT_TRUE(step[0].out == step[2].out);
    ASSERT_EQ(std::memcmp(step[0].lse.data(), step[2].lse.data(), step[0].lse.size() * 4), 0);
  }
}

// Attention of a layer runs before the layer whose cache it reads has appended: the step runs twice, and the second time that
// layer finds what the first run wrote.
TEST_P(AttentionCall, NoAppendReadsWhatEarlierStepsWrote) {
  auto engine = Make(Options({ { 4, 2 }, { 8, 2, 8, 1 } }, { { 1, CGR_ATTENTION_NO_APPEND }, { 0, 0 } }));
  Engine &e = *engine;
  e.check_call[0] = false; // its new tokens are not in the cache yet
  std::vector<int32_t> r = Scenario(e);
  const cgr_key wide = EagerKey(4, 32), narrow = EagerKey(8, 8);
  auto twice = [&](std::vector<Item> items, const cgr_key *key) {
    e.Step(items, key);
    InFlight before = *e.last;
    for (Item &item : items) {
      e.SetLength(item.row, e.requests[item.row]->num_tokens - int32_t(item.tokens.size()));
      item.tokens[0] = 5;
    }
    e.Step(items, key);
    InFlight after = *e.last;
    for (size_t i = 0; i < items.size(); i++)
      after.items[i].cache = before.items[i].cache;
    return after;
  };
  e.CheckCall(twice(e.Decode({ r[0], r[1], r[2] }), nullptr), 0, e.outputs[0]);
  e.CheckCall(twice(e.Decode(r), &narrow), 0, e.outputs[0]);
  e.CheckCall(twice(e.Chunks({ { r[0], 3 }, { r[1], 5 } }), &wide), 0, e.outputs[0]);
  e.CheckCaches();
  // Then with no append at all in the second step.
  std::vector<Item> items = e.Chunks({ { r[0], 4 }, { r[3], 1 } });
  e.Step(items, &wide);
  InFlight before = *e.last;
  for (const Item &item : items)
    e.SetLength(item.row, e.requests[item.row]->num_tokens - int32_t(item.tokens.size()));
  e.o.calls[1].flags = e.state.call[1].attention.flags = CGR_ATTENTION_NO_APPEND;
  e.check_call[1] = false;
  e.Step(items, &wide);
  for (size_t i = 0; i < items.size(); i++)
    e.last->items[i].cache = before.items[i].cache;
  e.CheckCall(*e.last, 0, e.outputs[0]);
  e.CheckCall(*e.last, 1, e.outputs[1]);
}

TEST_P(AttentionCall, LseAndPaddingAtEveryRealCount) {
  auto engine = Make(Options({ { 4, 2 } }));
  std::vector<int32_t> r;
  for (int32_t i = 0; i < 8; i++) {
    r.push_back(engine->Open());
    Step(*engine, { { r.back(), 1 + 5 * i } });
  }
  for (int32_t bucket : { 8, 4, 2, 1 })
    for (int32_t real = 0; real <= bucket; real++)
      for (const cgr_key &key : { FullKey(bucket), EagerKey(bucket, bucket), EagerKey(bucket, bucket + 9) }) {
        SCOPED_TRACE(std::to_string(real) + " of " + std::to_string(bucket) + ", kind " + std::to_string(key.kind));
        DecodeStep(*engine, { r.begin(), r.begin() + real }, &key);
        ASSERT_FALSE(HasFailure());
      }
}

TEST_P(AttentionCall, OnePlanServesLayersOfDifferentHeadCounts) {
  auto engine = Make(Options({ { 2, 2 }, { 8, 2 }, { 8, 1 }, { 71, 1 }, { 16, 16 } })); // groups of 1, 4, 8, 71 and 1
  Scenario(*engine);
}

TEST_P(AttentionCall, ScaleIsTheLayersOwn) {
  LayerOptions sharp = { 4, 2 }, flat = { 4, 2 };
  sharp.scale = 0.5f;
  flat.scale = 0.01f;
  auto engine = Make(Options({ { 4, 2 }, sharp, flat }));
  Scenario(*engine);
}

// Head dims and dtypes side by side, as far as the device has them.
TEST_P(AttentionCall, HeadDimsAndDtypesSideBySide) {
  std::vector<LayerOptions> layers = { { 4, 2 }, { 2, 1 }, { 4, 1 } };
  EngineOptions options = Options(layers);
  options.layers[1].head_dim = 128;
  options.layers[2].dtype = CGR_DTYPE_FP16;
  if (!GetParam().HasCudaKernels()) {
    options.layers.push_back({ 2, 2, 8 });
    options.layers.push_back({ 3, 1, 256 });
    options.layers.push_back({ 2, 1, 24 });
    options.layers[3].dtype = CGR_DTYPE_FP32;
    options.layers[5].dtype = CGR_DTYPE_FP16;
  }
  auto engine = Make(options);
  Scenario(*engine);
}

TEST_P(AttentionCall, EveryKvLayoutGivesTheSameBits) {
  std::vector<std::vector<Outputs>> first;
  for (KvLayout layout : { KvLayout::kNhd, KvLayout::kHnd, KvLayout::kKvPages, KvLayout::kPairs, KvLayout::kLayersInPage,
                           KvLayout::kLayersInPageHnd, KvLayout::kHeadsInToken })
    for (int32_t gap : { 0, 48 }) {
      SCOPED_TRACE("layout " + std::to_string(int(layout)) + ", gap " + std::to_string(gap));
      EngineOptions options = Options({ { 8, 2 }, { 4, 4 } });
      options.layout = layout, options.page_gap = gap;
      auto engine = Make(options);
      if (!first.empty())
        engine->check_call.assign(2, false); // the first one's are right
      Scenario(*engine);
      ASSERT_FALSE(HasFatalFailure());
      if (first.empty())
        first = engine->kept;
      ASSERT_EQ(engine->kept.size(), first.size());
      for (size_t s = 0; s < first.size(); s++)
        for (size_t c = 0; c < first[s].size(); c++) {
          ASSERT_TRUE(engine->kept[s][c].out == first[s][c].out) << "step " << s << " call " << c;
          ASSERT_EQ(std::memcmp(engine->kept[s][c].lse.data(), first[s][c].lse.data(), first[s][c].lse.size() * 4), 0);
        }
    }
}

// Steps alternate between two streams and produce their own inputs: one that overtakes another, or runs alongside it, mixes up
// their q, k, v and outputs.
TEST_P(AttentionCall, LaunchesAlternateBetweenTwoStreams) {
  EngineOptions options = Options({ { 4, 2 } });
  options.feed = Feed::kNodes;
  options.adjust = [](cgr_config *config) { config->ring_depth = 8; };
  auto engine = Make(options);
  cudaStream_t streams[2] = { engine->stream, nullptr };
  CGR_ASSERT_OK(cgr_stream_create(engine->dev, &streams[1]));
  std::vector<int32_t> r;
  for (int32_t len : { 15, 33, 1 }) {
    r.push_back(engine->Open());
    Step(*engine, { { r.back(), len } });
    engine->Reserve(r.back(), 96);
  }
  const cgr_key narrow = EagerKey(8, 8), wide = EagerKey(4, 32);
  for (size_t i = 0; i < 24; i++) {
    if (engine->NumInFlight() == 6)
      engine->CheckOne();
    std::vector<Item> items = engine->Decode(i % 3 == 1 ? std::vector<int32_t>{ r[1] } : r);
    if (i % 7 == 6)
      items[0] = Engine::Chunk(r[0], 4);
    CGR_ASSERT_OK(engine->Prepare(items, i % 7 == 6 ? &wide : i % 5 == 4 ? &narrow : nullptr));
    CGR_ASSERT_OK(engine->LaunchOn(streams[i % 2]));
  }
  engine->CheckAll();
  EXPECT_EQ(engine->kept.size(), 27u) << "the outputs of every step were compared";
  CGR_ASSERT_OK(cgr_stream_destroy(engine->dev, streams[1]));
}

CGR_INSTANTIATE_OVER_FEW_DEVICES(AttentionCall);

} // namespace
} // namespace cgr_test

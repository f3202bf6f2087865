// Graphs that hold an address of a region that has moved: their steps run eagerly, or are refused when strict or forced, until
// they are captured again.
#include "tests/support/refused.h"

namespace cgr_test {
namespace {

class StaleGraphs : public ThreeRequests {
protected:
  void SetUpOnDevice() override { MakeStrict(0); }
  void MakeStrict(int32_t strict) {
    Make(OptionsFor(GetParam(), [strict](cgr_config *config) { config->strict = strict; }));
    ASSERT_FALSE(HasFatalFailure());
    RecordLayer &layer = engine_->state.layer[0];
    CGR_ASSERT_OK(cgr_region_register(engine_->rt, layer.in[kQ].data, layer.in_bytes[kQ], &region_));
    CGR_ASSERT_OK(engine_->Capture());
  }
  // The engine's q of layer 0 moves; the old memory is poison.
  void Move() {
    RecordLayer &layer = engine_->state.layer[0];
    void *old = layer.in[kQ].data, *moved = engine_->Alloc(layer.in_bytes[kQ]);
    engine_->CheckAll();
    layer.in[kQ].data = engine_->state.call[0].attention.q.data = moved;
    CGR_ASSERT_OK(cgr_region_move(engine_->rt, region_, moved, layer.in_bytes[kQ]));
    CGR_ASSERT_OK(cgr_fill(engine_->dev, old, 0xff, layer.in_bytes[kQ], engine_->stream));
  }
  void TearDown() override {
    if (engine_ != nullptr)
      CGR_EXPECT_OK(engine_->Capture());
    ThreeRequests::TearDown();
  }
  int32_t region_ = -1;
};

TEST_P(StaleGraphs, StepsRunEagerlyUntilTheyAreCapturedAgain) {
  engine_->Step(engine_->Decode(rows_));
  ASSERT_EQ(engine_->step.key.kind, CGR_KIND_FULL);
  EXPECT_EQ(engine_->Stats().num_graphs, 4);
  for (int round = 0; round < 2; round++) {
    ASSERT_NO_FATAL_FAILURE(Move());
    EXPECT_EQ(engine_->Stats().num_graphs, 0);
    for (int32_t i = 0; i < 4; i++)
      EXPECT_EQ(engine_->GraphStats(i).state, CGR_GRAPH_STALE);
    uint64_t stale = engine_->Stats().by_reason[CGR_KIND_NONE][CGR_REASON_STALE];
    for (int n = 0; n < 3; n++) {
      cgr_key key;
      cgr_batch batch = GoodBatch();
      CGR_ASSERT_OK(cgr_step_choose(engine_->rt, &batch, &key));
      EXPECT_EQ(key.kind, CGR_KIND_NONE);
      engine_->Step(engine_->Decode(rows_));
      EXPECT_EQ(engine_->step.key.kind, CGR_KIND_NONE);
      EXPECT_EQ(engine_->step.reason, CGR_REASON_STALE);
    }
    EXPECT_EQ(engine_->Stats().by_reason[CGR_KIND_NONE][CGR_REASON_STALE], stale + 3);
    engine_->Step(EagerItems()); // holds no graph
    EXPECT_EQ(engine_->step.reason, CGR_REASON_NOT_UNIFORM);
    engine_->records.clear();
    CGR_ASSERT_OK(engine_->Capture());
    EXPECT_EQ(engine_->records.size(), 4u);
    EXPECT_EQ(engine_->Stats().num_graphs, 4);
    EXPECT_EQ(engine_->GraphStats(0).state, CGR_GRAPH_READY);
    EXPECT_EQ(engine_->GraphStats(0).records, round + 2);
    StepAs(*engine_, engine_->Decode(rows_), CGR_KIND_FULL);
  }
  engine_->records.clear();
  CGR_ASSERT_OK(engine_->Capture()); // nothing to do
  EXPECT_TRUE(engine_->records.empty());
}

// Replays and eager steps must come from one model.
TEST_P(StaleGraphs, AnotherRecordCapturesEverythingAgain) {
  static cgr_capture first;
  first = engine_->CaptureStruct();
  const int32_t records = engine_->GraphStats(0).records;
  cgr_capture other = first;
  other.record = [](cgr_recorder *recorder, void *model) { return first.record(recorder, model); };
  for (const cgr_capture *capture : { &first, &other, &other, &first })
    CGR_ASSERT_OK(cgr_runtime_capture(engine_->rt, capture));
  for (int32_t i = 0; i < 4; i++)
    EXPECT_EQ(engine_->GraphStats(i).records, records + 2) << "once for each change";
  StepAs(*engine_, engine_->Decode(rows_), CGR_KIND_FULL);
}

TEST_P(StaleGraphs, StrictStepsAreRefused) {
  ASSERT_NO_FATAL_FAILURE(MakeStrict(1));
  StepAs(*engine_, engine_->Decode(rows_), CGR_KIND_FULL);
  ASSERT_NO_FATAL_FAILURE(Move());
  BatchRefused(CGR_ERROR_STALE_GRAPH, { "3 requests", "stale", "strict" }, GoodBatch());
  engine_->Step(EagerItems()); // a graph was never promised for a mixed step
  engine_->Step({});           // nor does a step without requests need one
  EXPECT_EQ(engine_->step.reason, CGR_REASON_STALE);
  CGR_ASSERT_OK(engine_->Capture());
  StepAs(*engine_, engine_->Decode(rows_), CGR_KIND_FULL);
}

TEST_P(StaleGraphs, ForcedStepsAreRefused) {
  const cgr_key full = FullKey(8), eager = EagerKey(8, 8);
  engine_->Step(engine_->Decode(rows_), &full);
  ASSERT_NO_FATAL_FAILURE(Move());
  ItemsRefused(CGR_ERROR_STALE_GRAPH, { "8 requests", "cgr_runtime_capture" }, engine_->Decode(rows_), &full);
  StepFor(*engine_, engine_->Decode(rows_), CGR_REASON_FORCED, &eager);
  CGR_ASSERT_OK(engine_->Capture());
  StepAs(*engine_, engine_->Decode(rows_), CGR_KIND_FULL, &full);
}

// A region that moves, or is given back, between prepare and launch: the step stays prepared, strict, forced or neither, and may
// be cancelled and prepared again.
TEST_P(StaleGraphs, AStepThatIsPreparedAlreadyIsNotLaunched) {
  for (int32_t strict : { 0, 1 })
    for (bool forced : { false, true })
      for (bool unregister : { false, true }) {
        ASSERT_NO_FATAL_FAILURE(MakeStrict(strict));
        Engine &engine = *engine_;
        const cgr_key full = FullKey(8);
        CGR_ASSERT_OK(engine.Prepare(engine.Decode(rows_), forced ? &full : nullptr));
        ASSERT_EQ(engine.step.key.kind, CGR_KIND_FULL);
        ASSERT_NO_FATAL_FAILURE(unregister ? (void)cgr_region_unregister(engine.rt, region_) : Move());
        for (int n = 0; n < 2; n++)
          Refused(CGR_ERROR_STALE_GRAPH, { "cgr_runtime_capture" }, [&] { return engine.Launch(); });
        EXPECT_EQ(engine.step.state, CGR_STEP_PREPARED);
        CGR_ASSERT_OK(engine.Cancel());
        if (strict) {
          BatchRefused(CGR_ERROR_STALE_GRAPH, { "3 requests", "stale", "strict" }, GoodBatch());
          continue;
        }
        StepFor(engine, engine.Decode(rows_), CGR_REASON_STALE);
      }
}

// What a graph holds cannot change while it is recorded.
TEST_P(StaleGraphs, ARecordCannotMoveOrRegisterRegions) {
  const RecordLayer &layer = engine_->state.layer[0];
  for (bool move : { false, true }) {
    ASSERT_NO_FATAL_FAILURE(Move());
    engine_->hook = [&](cgr_recorder *, const cgr_record_info &, int32_t at) {
      int32_t region = -1;
      if (at != 0)
        return CGR_OK;
      return move ? cgr_region_move(engine_->rt, region_, layer.in[kQ].data, layer.in_bytes[kQ])
                  : cgr_region_register(engine_->rt, layer.in[kQ].data, layer.in_bytes[kQ], &region);
    };
    ExpectMessage(engine_->Capture(), CGR_ERROR_CALLBACK, { move ? "cgr_region_move" : "cgr_region_register", "inside record" });
    engine_->hook = nullptr;
    CGR_ASSERT_OK(engine_->Capture());
    StepAs(*engine_, engine_->Decode(rows_), CGR_KIND_FULL);
  }
}

// A failed capture of a stale graph leaves no graph.
TEST_P(StaleGraphs, CapturesThatFailLeaveNoGraph) {
  ASSERT_NO_FATAL_FAILURE(Move());
  engine_->hook = FailCaptures(4);
  CGR_EXPECT(CGR_ERROR_CALLBACK, engine_->Capture());
  EXPECT_EQ(engine_->Stats().num_graphs, 2);
  EXPECT_EQ(engine_->GraphStats(2).state, CGR_GRAPH_FAILED);
  StepFor(*engine_, engine_->Decode(rows_), CGR_REASON_CAPTURE_FAILED);
  StepAs(*engine_, engine_->Decode({ rows_[0] }), CGR_KIND_FULL);
  engine_->hook = nullptr;
}

TEST_P(StaleGraphs, WhatCannotMoveIsRefusedAndMakesNothingStale) {
  void *memory = engine_->state.layer[0].in[kQ].data;
  auto move = [&](int32_t region, const void *base, size_t bytes) { return cgr_region_move(engine_->rt, region, base, bytes); };
  Refused(CGR_ERROR_NULL_POINTER, { "base" }, [&] { return move(region_, nullptr, 4096); });
  Refused(CGR_ERROR_INVALID_ARGUMENT, { "bytes is 0" }, [&] { return move(region_, memory, 0); });
  for (int32_t bad : { -1, region_ + 1, 1000000 })
    Refused(CGR_ERROR_INVALID_ARGUMENT, { "region is " + std::to_string(bad) }, [&] { return move(bad, memory, 4096); });
  for (int32_t own = 0; own < region_; own++) // the arena and the KV views
    Refused(CGR_ERROR_INVALID_ARGUMENT, { "region is " + std::to_string(own) }, [&] { return move(own, memory, 4096); });
  int32_t another = -1;
  Refused(CGR_ERROR_INVALID_ARGUMENT, { "bytes is 0" }, [&] { return cgr_region_register(engine_->rt, memory, 0, &another); });
  CGR_EXPECT_OK(cgr_region_register(engine_->rt, memory, 16, &another)); // a new one concerns no graph
  EXPECT_EQ(another, region_ + 1);
  StepAs(*engine_, engine_->Decode(rows_), CGR_KIND_FULL);
}

// The runtime's own regions in a graph: the arena, the rings, K and V of each cache, and the page table that the engine keeps.
TEST_P(StaleGraphs, TheEnginesOwnPageTableIsARegionToo) {
  for (bool table : { false, true }) {
    EngineOptions options = OptionsFor(GetParam());
    options.engine_table = table;
    options.layers.push_back(options.layers[0]);
    options.layers[2].kv_source = 1; // no cache of its own
    Engine engine(options);
    int32_t region = -1;
    for (int32_t none : { -1, 0, 5, 6, 7 }) // no empty range is named
      ExpectMessage(cgr_region_move(engine.rt, none, engine.state.token_table, 4), CGR_ERROR_INVALID_ARGUMENT,
                    { "region is " + std::to_string(none) + ",", "cgr_region_register, which has given none yet" });
    CGR_ASSERT_OK(cgr_region_register(engine.rt, engine.state.token_table, 4, &region));
    EXPECT_EQ(region, table ? 7 : 6);
    ExpectMessage(cgr_region_move(engine.rt, region - 1, engine.state.token_table, 4), CGR_ERROR_INVALID_ARGUMENT, { "region" });
  }
}

CGR_INSTANTIATE_OVER_FEW_DEVICES(StaleGraphs);

// ---- strict, without stale graphs

class Strict : public ThreeRequests {
protected:
  void SetUpOnDevice() override {
    EngineOptions options = OptionsFor(GetParam(), [](cgr_config *config) { config->strict = 1; });
    options.buckets = { 1, 2, 4 };
    Make(options);
  }
};

TEST_P(Strict, RefusesWhatIsAboveTheBuckets) {
  std::vector<int32_t> rows = rows_;
  for (int32_t n = 0; n < 2; n++)
    rows.push_back(engine_->Start(3, n));
  std::vector<Item> five = engine_->Decode(rows);
  ItemsRefused(CGR_ERROR_FALLBACK, { "5 requests", "above requests", "strict" }, five);
  five.pop_back();
  StepFor(*engine_, five, CGR_REASON_EXACT);
  engine_->Step(EagerItems()); // a graph was never promised for a mixed step
  EXPECT_EQ(engine_->step.reason, CGR_REASON_NOT_UNIFORM);
  engine_->Step({});
  for (size_t i = rows_.size(); i < rows.size(); i++)
    engine_->Close(rows[i]);
}

TEST_P(Strict, RefusesWhatIsNotCaptured) {
  EngineOptions options = OptionsFor(GetParam(), [](cgr_config *config) { config->strict = 1; });
  engine_ = std::make_unique<Engine>(options);
  engine_->hook = FailCaptures();
  CGR_EXPECT(CGR_ERROR_CALLBACK, engine_->Capture());
  rows_ = { engine_->Start(5, 1), engine_->Start(17, 2), engine_->Start(31, 3) };
  ItemsRefused(CGR_ERROR_FALLBACK, { "3 requests", "capture failed", "strict" }, engine_->Decode(rows_));
  engine_->hook = nullptr;
  CGR_ASSERT_OK(engine_->Capture());
}

CGR_INSTANTIATE_OVER_FEW_DEVICES(Strict);

} // namespace
} // namespace cgr_test

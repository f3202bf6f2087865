// A region that moves makes stale exactly the graphs that hold it: all of them, or those whose `record` names it or attends
// inside it.
#include "tests/support/refused.h"

namespace cgr_test {
namespace {

constexpr int32_t kNumKeys = 4; // of 1, 2, 4 and 8 requests

class HeldRegions : public ThreeRequests {
protected:
  void SetUpOnDevice() override { Make(CGR_MODE_FULL_DECODE_ONLY); }
  using ThreeRequests::Make;
  void Make(cgr_graph_mode mode) {
    EngineOptions options = OptionsFor(GetParam(), mode, { { 8, 8 } });
    options.layers[0].kind.sinks = { 0.5f, -1.0f };
    options.layers[1].kind.alibi_slopes = { 0.5f, 0.25f };
    ThreeRequests::Make(options);
    ASSERT_FALSE(HasFatalFailure());
    const RecordLayer &layer = engine_->state.layer[0];
    attended_ = Register(layer.in[kQ].data, layer.in_bytes[kQ]);
    named_ = Register(layer.in[kQ].data, 1); // the attention of layer 0 begins in both
    other_ = Register(engine_->state.token_table, 4);
    unnamed_ = Register(engine_->state.next_tokens, 4);
  }
  int32_t Register(const void *base, size_t bytes) {
    int32_t region = NewRegion(engine_->rt, base, bytes);
    bases_.push_back({ base, bytes });
    first_ = bases_.size() == 1 ? region : first_;
    return region;
  }
  void Move(int32_t region) { // to where it is
    const auto &[base, bytes] = bases_[size_t(region - first_)];
    CGR_ASSERT_OK(cgr_region_move(engine_->rt, region, base, bytes));
  }
  // Graphs of more than `above` requests name the other region; all name something.
  void CaptureNaming(int32_t above) {
    engine_->hook = [this, above](cgr_recorder *recorder, const cgr_record_info &info, int32_t at) {
      if (at != 0)
        return CGR_OK;
      cgr_status status = cgr_record_use(recorder, named_);
      return status == CGR_OK && info.num_requests > above ? cgr_record_use(recorder, other_) : status;
    };
    CGR_ASSERT_OK(engine_->Capture());
    engine_->hook = nullptr;
  }
  // Requests of the keys that are stale.
  std::vector<int32_t> Stale() {
    std::vector<int32_t> stale;
    for (int32_t i = 0; i < cgr_test::NumKeys(engine_->rt); i++)
      if (engine_->GraphStats(i).state == CGR_GRAPH_STALE)
        stale.push_back(engine_->GraphStats(i).key.num_requests);
    return stale;
  }
  std::vector<std::pair<const void *, size_t>> bases_;
  int32_t first_ = 0, attended_ = -1, named_ = -1, other_ = -1, unnamed_ = -1;
};

using List = std::vector<int32_t>;

TEST_P(HeldRegions, AGraphHoldsAllOfThemUnlessItsRecordNamesSome) {
  for (int32_t region : { attended_, named_, other_, unnamed_ }) {
    CGR_ASSERT_OK(engine_->Capture());
    EXPECT_EQ(Stale(), List());
    Move(region);
    EXPECT_EQ(Stale(), (List{ 1, 2, 4, 8 }));
  }
  CGR_ASSERT_OK(engine_->Capture());
}

TEST_P(HeldRegions, ANamedOneMakesStaleThoseThatNamedIt) {
  Move(attended_);
  CaptureNaming(2);
  Move(unnamed_);
  EXPECT_EQ(Stale(), List());
  Move(other_);
  EXPECT_EQ(Stale(), (List{ 4, 8 }));
  StepFor(*engine_, engine_->Decode(rows_), CGR_REASON_STALE);
  StepFor(*engine_, engine_->Decode({ rows_[0] }), CGR_REASON_EXACT);
  for (int32_t region : { unnamed_, other_, unnamed_ }) { // what is stale stays stale, what is fresh stays fresh
    Move(region);
    EXPECT_EQ(Stale(), (List{ 4, 8 }));
  }
  engine_->records.clear();
  CaptureNaming(4); // which captures those two alone
  EXPECT_EQ(engine_->records.size(), 2u);
  EXPECT_EQ(Stale(), List());
  Move(other_);
  EXPECT_EQ(Stale(), List{ 8 });
  CaptureNaming(8);
  Move(other_);
  EXPECT_EQ(Stale(), List()) << "it is no longer named";
}

TEST_P(HeldRegions, MemoryOfAttentionCallsIsHeldWithoutBeingNamed) {
  Move(unnamed_);
  CaptureNaming(8);
  Move(attended_);
  EXPECT_EQ(Stale(), (List{ 1, 2, 4, 8 }));
  CaptureNaming(8);
  Move(named_);
  EXPECT_EQ(Stale(), (List{ 1, 2, 4, 8 }));
  CaptureNaming(8);
}

TEST_P(HeldRegions, SlopesAndSinksAreHeldWithoutBeingNamed) {
  const cgr_config config = engine_->Config();
  for (const float *values : { config.layers[0].sinks, config.layers[1].alibi_slopes }) {
    const int32_t region = Register(values, 2 * sizeof(float));
    Move(region);
    CaptureNaming(8);
    Move(unnamed_);
    EXPECT_EQ(Stale(), List());
    Move(region);
    EXPECT_EQ(Stale(), (List{ 1, 2, 4, 8 }));
  }
  CaptureNaming(8);
}

TEST_P(HeldRegions, GraphsInPiecesHoldThemToo) {
  bases_.clear();
  ASSERT_NO_FATAL_FAILURE(Make(CGR_MODE_PIECEWISE));
  Move(unnamed_);
  CaptureNaming(4);
  EXPECT_EQ(cgr_test::NumKeys(engine_->rt), kNumKeys + 1);
  Move(unnamed_);
  EXPECT_EQ(Stale(), List());
  Move(other_);
  EXPECT_EQ(Stale(), (List{ 8, 8 }));
  StepAs(*engine_, engine_->Decode(rows_), CGR_KIND_PIECEWISE);
  Move(attended_);
  EXPECT_EQ(Stale(), (List{ 1, 2, 4, 8, 8 }));
  CaptureNaming(8);
}

TEST_P(HeldRegions, AnotherModelMakesStaleWhatNamedRegions) {
  Move(unnamed_);
  CaptureNaming(2);
  static cgr_capture first;
  first = engine_->CaptureStruct();
  cgr_capture other = first;
  other.record = [](cgr_recorder *recorder, void *model) { return first.record(recorder, model); };
  engine_->records.clear();
  CGR_ASSERT_OK(cgr_runtime_capture(engine_->rt, &other));
  EXPECT_EQ(engine_->records.size(), size_t(kNumKeys));
  CGR_ASSERT_OK(cgr_runtime_capture(engine_->rt, &first));
}

// Naming a region that does not exist makes a capture fail by name, and an eager step too.
TEST_P(HeldRegions, NumbersThatAreNoRegionAreRefused) {
  for (int32_t bad : { -1, 0, first_ - 1, unnamed_ + 1, INT32_MAX }) {
    const std::string text = "cgr_record_use: region is " + std::to_string(bad);
    engine_->hook = [bad](cgr_recorder *recorder, const cgr_record_info &info, int32_t at) {
      return at == 0 && (info.num_requests >= 4 || !info.capturing) ? cgr_record_use(recorder, bad) : CGR_OK;
    };
    Move(attended_);
    ExpectMessage(engine_->Capture(), CGR_ERROR_CALLBACK, { text, "cgr_region_register" });
    EXPECT_EQ(engine_->Stats().num_graphs, kNumKeys - 2);
    CGR_ASSERT_OK(engine_->Prepare(engine_->Decode(rows_)));
    ExpectMessage(engine_->Launch(), CGR_ERROR_CALLBACK, { text });
    engine_->hook = nullptr;
    CGR_ASSERT_OK(engine_->Capture());
    StepAs(*engine_, engine_->Decode(rows_), CGR_KIND_FULL);
  }
}

// Unregistering one makes stale what a move would. Graphs that were captured while its number meant something else stay stale.
TEST_P(HeldRegions, AnUnregisteredOneMakesStaleThoseThatHeldIt) {
  Move(attended_);
  CaptureNaming(2);
  CGR_ASSERT_OK(cgr_region_unregister(engine_->rt, unnamed_));
  EXPECT_EQ(Stale(), List());
  CGR_ASSERT_OK(cgr_region_unregister(engine_->rt, other_));
  EXPECT_EQ(Stale(), (List{ 4, 8 }));
  StepFor(*engine_, engine_->Decode(rows_), CGR_REASON_STALE);
  for (int32_t gone : { other_, unnamed_ }) { // the numbers mean something else now
    int32_t again = NewRegion(engine_->rt, engine_->state.next_tokens, 4);
    EXPECT_EQ(again, gone);
    EXPECT_EQ(Stale(), (List{ 4, 8 }));
    CGR_ASSERT_OK(cgr_region_move(engine_->rt, again, engine_->state.token_table, 4));
    EXPECT_EQ(Stale(), (List{ 4, 8 }));
  }
  CaptureNaming(8);
  EXPECT_EQ(Stale(), List());
  CGR_ASSERT_OK(cgr_region_unregister(engine_->rt, named_));
  EXPECT_EQ(Stale(), (List{ 1, 2, 4, 8 }));
  CGR_ASSERT_OK(engine_->Capture()); // which holds all there are
  CGR_ASSERT_OK(cgr_region_unregister(engine_->rt, other_));
  EXPECT_EQ(Stale(), (List{ 1, 2, 4, 8 }));
  CGR_ASSERT_OK(engine_->Capture());
}

TEST_P(HeldRegions, NoRecordUsesAnUnregisteredOne) {
  CGR_ASSERT_OK(cgr_region_unregister(engine_->rt, other_));
  const std::string text = "cgr_record_use: region is " + std::to_string(other_) + ", which has been unregistered";
  engine_->hook = [this](cgr_recorder *recorder, const cgr_record_info &, int32_t at) {
    return at == 0 ? cgr_record_use(recorder, other_) : CGR_OK;
  };
  ExpectMessage(engine_->Capture(), CGR_ERROR_CALLBACK, { text });
  CGR_ASSERT_OK(engine_->Prepare(engine_->Decode(rows_)));
  ExpectMessage(engine_->Launch(), CGR_ERROR_CALLBACK, { text });
  engine_->hook = [this](cgr_recorder *, const cgr_record_info &, int32_t at) {
    return at == 0 ? cgr_region_unregister(engine_->rt, named_) : CGR_OK;
  };
  ExpectMessage(engine_->Capture(), CGR_ERROR_CALLBACK, { "cgr_region_unregister", "inside record" });
  engine_->hook = nullptr;
  CGR_ASSERT_OK(engine_->Capture());
}

// An engine that loads adapters all day.
TEST_P(HeldRegions, AHundredThousandComeAndGo) {
  CGR_ASSERT_OK(engine_->Capture());
  engine_->Step(engine_->Decode(rows_));
  for (int n = 0; n < 100000 && !HasFailure(); n++) {
    int32_t region = NewRegion(engine_->rt, engine_->state.token_table, 4);
    EXPECT_EQ(region, unnamed_ + 1);
    CGR_ASSERT_OK(cgr_region_unregister(engine_->rt, region));
  }
  EXPECT_EQ(Stale(), (List{ 1, 2, 4, 8 })); // their `record` names none
  CGR_ASSERT_OK(engine_->Capture());
}

// A capture that fails after it has named regions leaves nothing behind (the sanitizers see it).
TEST_P(HeldRegions, AFailedCaptureHoldsNothing) {
  engine_->hook = [this](cgr_recorder *recorder, const cgr_record_info &info, int32_t at) {
    cgr_status status = at == 0 ? cgr_record_use(recorder, other_) : CGR_OK;
    return status == CGR_OK && at == 1 && info.num_requests == 4 ? CGR_ERROR_CALLBACK : status;
  };
  Move(attended_);
  CGR_EXPECT(CGR_ERROR_CALLBACK, engine_->Capture());
  engine_->hook = nullptr;
  CGR_ASSERT_OK(engine_->Capture()); // without naming any: this graph holds all of them
  Move(unnamed_);
  EXPECT_EQ(Stale(), List{ 4 });
  CGR_ASSERT_OK(engine_->Capture());
}

CGR_INSTANTIATE_OVER_FEW_DEVICES(HeldRegions);

} // namespace
} // namespace cgr_test

// Which graphs there are: the mode in use and why, and the default sizes.
#include "cgr/names.h"
#include "tests/support/refused.h"

namespace cgr_test {
namespace {

class GraphMode : public OverDevices {};

TEST_P(GraphMode, IsLoweredWithAReason) {
  struct Want {
    int32_t mode, support;
    cgr_graph_mode lowered;
    const char *reason; // a word of it
  };
  static std::vector<std::string> logged;
  for (const Want &want :
       std::vector<Want>{ { CGR_MODE_NONE, 0, CGR_MODE_NONE, "" },
                          { CGR_MODE_FULL_DECODE_ONLY, 0, CGR_MODE_FULL_DECODE_ONLY, "" },
                          { CGR_MODE_FULL_DECODE_ONLY, CGR_SUPPORT_NEVER, CGR_MODE_PIECEWISE, "CGR_SUPPORT_NEVER" },
                          { CGR_MODE_FULL_DECODE_ONLY, CGR_SUPPORT_UNIFORM_SINGLE_TOKEN_DECODE, CGR_MODE_FULL_DECODE_ONLY, "" },
                          { CGR_MODE_FULL, 0, CGR_MODE_FULL, "" },
                          { CGR_MODE_FULL, CGR_SUPPORT_ALWAYS, CGR_MODE_FULL, "" },
                          { CGR_MODE_FULL, CGR_SUPPORT_UNIFORM_BATCH, CGR_MODE_FULL_AND_PIECEWISE, "FULL is lowered" },
                          { CGR_MODE_PIECEWISE, 0, CGR_MODE_PIECEWISE, "" },
                          { CGR_MODE_FULL_AND_PIECEWISE, 0, CGR_MODE_FULL_AND_PIECEWISE, "" },
                          { CGR_MODE_DEFAULT, 0, CGR_MODE_FULL, "" },
                          { CGR_MODE_DEFAULT, CGR_SUPPORT_UNIFORM_BATCH, CGR_MODE_FULL_AND_PIECEWISE, "" } }) {
    SCOPED_TRACE(cgr_graph_mode_name(cgr_graph_mode(want.mode)));
    EngineOptions options = OptionsFor(GetParam());
    options.mixed = { { 5, 3 }, { 16, 8 } };
    logged.clear();
    options.adjust = [&](cgr_config *config) {
      config->graph_mode = want.mode, config->attention_support = want.support;
      config->log = [](void *, cgr_log_level, const char *message) { logged.push_back(message); };
    };
    Engine engine(options);
    ASSERT_NE(engine.rt, nullptr);
    const char *reason = nullptr;
    EXPECT_EQ(cgr_test::ModeOf(engine.rt, &reason), want.lowered);
    ASSERT_NE(reason, nullptr);
    EXPECT_EQ(reason[0] != 0, want.reason[0] != 0);
    EXPECT_NE(std::string(reason).find(want.reason), std::string::npos) << reason;
    EXPECT_EQ(logged, want.reason[0] == 0 ? std::vector<std::string>() : std::vector<std::string>{ reason });
    bool none = want.lowered == CGR_MODE_NONE, mixed = !none && want.lowered != CGR_MODE_FULL_DECODE_ONLY;
    EXPECT_EQ(cgr_test::NumKeys(engine.rt), none ? 0 : mixed ? 6 : 4);
    CGR_ASSERT_OK(engine.Capture());
    int32_t row = engine.Start(3, 1);
    engine.Step(engine.Chunks({ { row, 3 } }));
    bool full = want.lowered == CGR_MODE_FULL, pieces = want.lowered == CGR_MODE_PIECEWISE;
    EXPECT_EQ(engine.step.key.kind, !mixed ? CGR_KIND_NONE : full ? CGR_KIND_FULL : CGR_KIND_PIECEWISE);
    EXPECT_EQ(engine.step.reason, none ? CGR_REASON_MODE_NONE : mixed ? CGR_REASON_PADDED : CGR_REASON_NOT_UNIFORM);
    engine.Step(engine.Decode({ row }));
    EXPECT_EQ(engine.step.key.kind, none ? CGR_KIND_NONE : pieces ? CGR_KIND_PIECEWISE : CGR_KIND_FULL);
    EXPECT_EQ(engine.step.reason, none ? CGR_REASON_MODE_NONE : CGR_REASON_EXACT);
  }
}

// The caller's switch: eager steps with a reason of their own, strict or not; a forced key is a separate matter.
TEST_P(GraphMode, ReplaysCanBeSwitchedOff) {
  for (int32_t strict : { 0, 1 }) {
    Captured<Engine> engine(
        OptionsFor(GetParam(), CGR_MODE_FULL, { { 16, 8 } }, [=](cgr_config *config) { config->strict = strict; }));
    int32_t row = engine.Start(3, 1);
    auto expect = [&](cgr_graph_kind kind, cgr_reason reason) {
      engine.Step(engine.Decode({ row }));
      EXPECT_EQ(engine.step.key.kind, kind);
      EXPECT_EQ(engine.step.reason, reason);
      EXPECT_EQ(engine.step.key.num_tokens, 1);
    };
    expect(CGR_KIND_FULL, CGR_REASON_EXACT);
    const cgr_key full = engine.step.key;
    const int32_t graphs = engine.Stats().num_graphs;
    CGR_ASSERT_OK(cgr_runtime_enable_graphs(engine.rt, 0));
    expect(CGR_KIND_NONE, CGR_REASON_DISABLED);
    CGR_ASSERT_OK(engine.Prepare({}));
    EXPECT_EQ(engine.step.reason, CGR_REASON_DISABLED) << "a dummy step";
    CGR_ASSERT_OK(cgr_step_cancel(engine.rt, &engine.step));
    engine.Step(engine.Decode({ row }), &full);
    EXPECT_EQ(engine.step.key.kind, CGR_KIND_FULL);
    EXPECT_EQ(engine.step.reason, CGR_REASON_FORCED);
    EXPECT_EQ(engine.Stats().num_graphs, graphs);
    CGR_ASSERT_OK(cgr_runtime_enable_graphs(engine.rt, 2));
    expect(CGR_KIND_FULL, CGR_REASON_EXACT);
    EXPECT_EQ(engine.Stats().by_reason[CGR_KIND_NONE][CGR_REASON_DISABLED], 1u);
  }
}

// Attention that supports only single tokens gets no FULL graph for longer queries; such steps are mixed.
TEST_P(GraphMode, SingleTokenAttentionHasNoLongerFullGraphs) {
  static const int32_t lens[] = { 1, 2, 4 };
  for (int32_t mode : { CGR_MODE_FULL, CGR_MODE_FULL_DECODE_ONLY })
    for (int32_t first : { 0, 1 }) { // length 1 is there in any case
      SCOPED_TRACE(cgr_graph_mode_name(cgr_graph_mode(mode)) + std::string(" from length ") + std::to_string(lens[first]));
      EngineOptions options = OptionsFor(GetParam());
      options.mixed = { { 16, 8 } };
      options.adjust = [=](cgr_config *config) {
        config->graph_mode = mode, config->attention_support = CGR_SUPPORT_UNIFORM_SINGLE_TOKEN_DECODE;
        config->query_lens = lens + first, config->num_query_lens = 3 - first;
      };
      Engine engine(options);
      const bool mixed = mode == CGR_MODE_FULL;
      ASSERT_EQ(cgr_test::NumKeys(engine.rt), 4 + (mixed ? 1 : 0));
      for (int32_t i = 0; i < cgr_test::NumKeys(engine.rt); i++)
        EXPECT_LE(engine.GraphStats(i).key.query_len, 1);
      const char *reason = "";
      cgr_test::ModeOf(engine.rt, &reason);
      EXPECT_NE(std::string(reason).find("query lengths above 1"), std::string::npos) << reason;
      EXPECT_EQ(std::string(reason).find("FULL is lowered") != std::string::npos, mixed) << reason;
      CGR_ASSERT_OK(engine.Capture());
      int32_t a = engine.Open(), b = engine.Open();
      const cgr_graph_kind longer = mixed ? CGR_KIND_PIECEWISE : CGR_KIND_NONE;
      engine.Step(engine.Chunks({ { a, 4 }, { b, 4 } }));
      EXPECT_EQ(engine.step.key.kind, longer);
      StepAs(engine, engine.Decode({ a, b }), CGR_KIND_FULL);
    }
}

TEST_P(GraphMode, DefaultBucketsAscendToTheMaximum) {
  struct Case {
    int32_t max_requests, max_bucket, last;
  };
  for (const Case &c : { Case{ 1, 0, 1 }, Case{ 20, 0, 20 }, Case{ 300, 0, 300 }, Case{ 600, 0, 600 }, Case{ 300, 29, 29 } }) {
    SCOPED_TRACE(std::to_string(c.max_requests) + " requests, max_decode_bucket " + std::to_string(c.max_bucket));
    EngineOptions options = OptionsFor(GetParam(), [&](cgr_config *config) { config->max_decode_bucket = c.max_bucket; });
    options.max_requests = options.max_rows = options.max_tokens = c.max_requests;
    options.buckets = {};
    Engine engine(options);
    int32_t keys = cgr_test::NumKeys(engine.rt), before = 0;
    ASSERT_GT(keys, 0);
    for (int32_t i = 0; i < keys; i++) {
      cgr_graph_stats stats = engine.GraphStats(i);
      EXPECT_EQ(stats.state, CGR_GRAPH_EMPTY);
      EXPECT_EQ(stats.key.kind, CGR_KIND_FULL);
      EXPECT_EQ(stats.key.num_tokens, stats.key.num_requests);
      EXPECT_GT(stats.key.num_requests, before);
      before = stats.key.num_requests;
    }
    EXPECT_EQ(before, c.last);
  }
}

TEST_P(GraphMode, DefaultBucketsAreWhatStepsRunIn) {
  EngineOptions options = OptionsFor(GetParam());
  options.max_requests = options.max_rows = 20;
  options.buckets = {};
  Captured<Engine> engine(options);
  std::vector<std::pair<int32_t, int32_t>> prompts;
  for (int32_t i = 0; i < 20; i++)
    prompts.push_back({ engine.Open(), 3 });
  engine.Step(engine.Chunks(prompts));
  for (size_t real = 1; real <= 20 && !HasFatalFailure(); real++) {
    std::vector<int32_t> rows = engine.Rows();
    rows.resize(real);
    StepAs(engine, engine.Decode(rows), CGR_KIND_FULL);
    EXPECT_GE(engine.step.key.num_requests, int32_t(real));
  }
}

CGR_INSTANTIATE_OVER_FEW_DEVICES(GraphMode);

} // namespace
} // namespace cgr_test

// What a tool sees of a runtime: nested ranges of public calls and of what they enqueue, with their payloads; names. Of a runtime
// that was not asked for ranges, it sees nothing.
#include <cstring>

#include "cgr/names.h"
#include "tests/support/engine.h"
#include "tests/support/tiny_engine.h"
#include "tests/tracing/engine_parts.h"
#include "tests/tracing/handler.h"

namespace cgr_test {
namespace {

class Ranges : public ::testing::TestWithParam<DeviceParam> {
protected:
  void SetUp() override {
    CGR_SKIP_WITHOUT_TOOL();
    CGR_SKIP_WITHOUT_DEVICE(GetParam());
  }
  // `backend`: of all layers; NULL: the library's own.
  void Make(int32_t mode, int32_t nvtx = 1, const cgr_backend *backend = nullptr) {
    engine_.reset();
    tool_.Clear();
    EngineOptions options = OptionsFor(GetParam());
    options.mode = mode;
    options.mixed = { { 16, 4 }, { 64, 8 } };
    options.calls = calls_;
    options.adjust = [&](cgr_config *config) {
      config->nvtx = nvtx;
      GiveLayersTo(backend, config, &layers_of_backend_);
    };
    engine_ = std::make_unique<Engine>(options);
    engine_->o.adjust = nullptr; // its references end here
  }
  void TearDown() override {
    engine_.reset();
    EXPECT_TRUE(tool_.wrong.empty()) << tool_.wrong[0];
    EXPECT_EQ(tool_.Depth(), 0);
  }
  // The ranges that begin while `call` runs.
  template <class Call> std::string TreeOf(Call call) {
    tool_.Clear();
    call();
    EXPECT_TRUE(tool_.wrong.empty()) << tool_.wrong[0];
    EXPECT_EQ(tool_.Depth(), 0);
    return tool_.Tree();
  }
  Tool::Fields PayloadOf(const std::string &name, bool begin = true) {
    const Tool::Event *event = tool_.Find(name, begin);
    EXPECT_NE(event, nullptr) << name;
    return event ? event->payload : Tool::Fields();
  }
  static Tool::Fields FieldsOf(int32_t graph, const cgr_key &key) {
    return { { "graph", std::to_string(graph) },
             { "kind", cgr_graph_kind_name(cgr_graph_kind(key.kind)) },
             { "padded_requests", std::to_string(key.num_requests) },
             { "padded_tokens", std::to_string(key.num_tokens) },
             { "query_len", std::to_string(key.query_len) },
             { "variant", std::to_string(key.variant) } };
  }
  int32_t IndexOf(const cgr_key &key) {
    for (int32_t i = 0; i < cgr_test::NumKeys(engine_->rt); i++)
      if (cgr_graph_stats stats = engine_->GraphStats(i); std::memcmp(&stats.key, &key, sizeof key) == 0)
        return i;
    return -1;
  }
  // One of the engine's steps; the payloads of its two calls must match it.
  std::string StepTree(const std::vector<Item> &items) {
    std::string tree = TreeOf([&] {
      CGR_EXPECT_OK(engine_->Prepare(items));
      CGR_EXPECT_OK(engine_->Launch());
    });
    const cgr_step &step = engine_->step;
    Tool::Fields want = FieldsOf(IndexOf(step.key), step.key);
    want["num_requests"] = std::to_string(step.num_requests);
    want["num_tokens"] = std::to_string(step.num_tokens);
    want["reason"] = cgr_reason_name(cgr_reason(step.reason));
    want["drafts"] = "0";
    want["seq"] = std::to_string(step.mark.seq);
    want["bytes_staged"] = std::to_string(step.bytes_staged);
    EXPECT_EQ(PayloadOf("cgr_step_prepare", false), want);
    EXPECT_EQ(PayloadOf("cgr_step_launch"), want);
    EXPECT_TRUE(PayloadOf("cgr_step_prepare").empty()) << "nothing is known yet";
    engine_->CheckAll();
    return tree;
  }
  // `record` begins with a call.
  void CallAtFirst() {
    engine_->hook = [](cgr_recorder *recorder, const cgr_record_info &, int32_t at) {
      const auto call = [](cgr_recorder *, const void *) { return CGR_OK; };
      return at == 0 ? cgr_record_call(recorder, call, nullptr, 0) : CGR_OK;
    };
  }
  const std::string layers_ = "layer:0(append:0 attention:0) layer:1(append:1 attention:1)";

  Tool &tool_ = Tool::Get();
  std::vector<cgr_layer> layers_of_backend_;
  std::vector<CallOptions> calls_; // none: every layer once
  std::unique_ptr<Engine> engine_;
};

TEST_P(Ranges, OfAFullStep) {
  Make(CGR_MODE_FULL_DECODE_ONLY);
  CGR_ASSERT_OK(engine_->Capture());
  int32_t a = engine_->Start(5, 1), b = engine_->Start(7, 2), c = engine_->Start(9, 3);
  EXPECT_EQ(StepTree(engine_->Decode({ a, b })), "cgr_step_prepare cgr_step_launch");
  EXPECT_EQ(engine_->step.reason, CGR_REASON_EXACT);
  EXPECT_EQ(StepTree(engine_->Decode({ a, b, c })), "cgr_step_prepare cgr_step_launch");
  EXPECT_EQ(engine_->step.reason, CGR_REASON_PADDED);
  EXPECT_EQ(PayloadOf("cgr_step_launch")["padded_requests"], "4");
  EXPECT_EQ(tool_.Find("cgr_step_prepare")->domain, "cgr");
  EXPECT_EQ(tool_.Find("cgr_step_prepare")->category, "stage");
  EXPECT_EQ(tool_.Find("cgr_step_launch")->category, "launch");
}

TEST_P(Ranges, OfAStepThatVerifiesGuesses) {
  if (GetParam().IsCuda())
    GTEST_SKIP() << "of host functions";
  HostDevice device;
  TinyOptions options;
  options.nvtx = 1;
  options.adjust = [](cgr_config *config) { config->num_draft_tokens = 2; };
  Captured<TinyEngine> engine(device, options);
  std::vector<int32_t> rows(3), lens = { 3, 1, 2 };
  const int32_t tokens[6] = { 1, 2, 3, 4, 5, 6 };
  for (int32_t i = 0; i < 3; i++) {
    const int32_t page = 2 + i;
    CGR_ASSERT_OK(cgr_request_open(engine.rt, 1, &rows[size_t(i)]));
    CGR_ASSERT_OK(cgr_request_set_pages(engine.rt, rows[size_t(i)], 0, 0, &page, 1));
  }
  const uint32_t flags[3] = { CGR_REQUEST_DRAFTS(2), 0, CGR_REQUEST_DRAFTS(1) };
  cgr_batch batch = BatchOf(3, rows.data(), tokens, lens.data());
  batch.flags = flags;
  for (bool standing : { false, true }) {
    cgr_step step = CGR_STEP_INIT;
    for (int32_t i = 0; standing && i < 3; i++)
      CGR_ASSERT_OK(cgr_standing_add(engine.rt, nullptr, rows[size_t(i)], lens[size_t(i)], tokens, flags[i]));
    const cgr_batch members = StandingBatch();
    tool_.Clear();
    CGR_ASSERT_OK(cgr_step_prepare(engine.rt, standing ? &members : &batch, &step));
    CGR_ASSERT_OK(cgr_step_launch(engine.rt, &step, engine.stream));
    EXPECT_EQ(PayloadOf("cgr_step_prepare", false)["drafts"], "3");
    EXPECT_EQ(PayloadOf("cgr_step_launch")["drafts"], "3");
    EXPECT_EQ(PayloadOf("cgr_step_launch")["num_tokens"], "6");
    CGR_ASSERT_OK(cgr_step_wait(engine.rt, step.mark, -1, nullptr));
  }
  for (int32_t row : rows) {
    CGR_ASSERT_OK(cgr_standing_remove(engine.rt, nullptr, row));
    CGR_ASSERT_OK(cgr_request_close(engine.rt, row));
  }
}

TEST_P(Ranges, OfAnEagerStep) {
  Make(CGR_MODE_FULL_DECODE_ONLY);
  CGR_ASSERT_OK(engine_->Capture());
  int32_t a = engine_->Open();
  EXPECT_EQ(StepTree(engine_->Chunks({ { a, 5 } })),
            "cgr_step_prepare cgr_step_launch(prologue planner record(" + layers_ + ") epilogue)");
  const Tool::Fields launch = PayloadOf("cgr_step_launch");
  EXPECT_EQ(launch.at("graph"), "-1");
  EXPECT_EQ(launch.at("kind"), "none");
  EXPECT_EQ(launch.at("reason"), cgr_reason_name(CGR_REASON_NOT_UNIFORM));
  EXPECT_EQ(launch.at("num_tokens"), "5");
  EXPECT_EQ(tool_.Find("planner")->category, "plan");
  EXPECT_EQ(tool_.Find("prologue")->category, "stage");
  EXPECT_EQ(tool_.Find("layer")->category, "launch");
}

TEST_P(Ranges, OfAPiecewiseStep) {
  Make(CGR_MODE_PIECEWISE);
  CallAtFirst();
  CGR_ASSERT_OK(engine_->Capture());
  int32_t a = engine_->Open();
  // A call, then each layer's attention: each is between pieces.
  EXPECT_EQ(StepTree(engine_->Chunks({ { a, 5 } })),
            "cgr_step_prepare cgr_step_launch(break break(append:0) break(attention:0) break(append:1) break(attention:1))");
  EXPECT_EQ(PayloadOf("cgr_step_launch")["kind"], "piecewise");
}

// A capture has the ranges that an eager step has, with the fetch of a FULL graph before its last layers but one.
TEST_P(Ranges, OfACapture) {
  for (int32_t mode : { CGR_MODE_FULL, CGR_MODE_PIECEWISE }) {
    SCOPED_TRACE(cgr_graph_mode_name(cgr_graph_mode(mode)));
    Make(mode);
    const std::string record = mode == CGR_MODE_FULL ? "layer:0(fetch append:0 attention:0) layer:1(append:1 attention:1)"
                                                     : "layer:0(break) layer:1(break)";
    std::string want = "cgr_runtime_capture(";
    for (int32_t i = 0; i < cgr_test::NumKeys(engine_->rt); i++)
      want += std::string(i == 0 ? "" : " ") + "graph(prologue planner record(" + record + ") epilogue)";
    EXPECT_EQ(TreeOf([&] { CGR_EXPECT_OK(engine_->Capture()); }), want + ")");
    size_t at = 0;
    for (const Tool::Event &event : tool_.events) {
      if (!event.begin || event.name != "graph")
        continue;
      EXPECT_EQ(event.category, "capture");
      ASSERT_LT(at, engine_->records.size());
      const cgr_key key = engine_->records[at++].key;
      EXPECT_EQ(event.payload, FieldsOf(IndexOf(key), key));
    }
    EXPECT_EQ(at, size_t(cgr_test::NumKeys(engine_->rt)));
  }
}

// In a FULL capture calls are made at once.
TEST_P(Ranges, OfACallOfTheEngine) {
  Make(CGR_MODE_FULL);
  CallAtFirst();
  EXPECT_NE(TreeOf([&] { CGR_EXPECT_OK(engine_->Capture()); }).find("record(call layer:0("), std::string::npos) << tool_.Tree();
}

// A backend that leaves the append to the library.
TEST_P(Ranges, OfABackendOfTheEngine) {
  cgr_backend backend = CGR_BACKEND_INIT;
  backend.name = "of the test";
  backend.support = [](void *, const cgr_device_info *, const cgr_group *) { return CGR_SUPPORT_ALWAYS; };
  backend.record = [](void *, cgr_recorder *, const cgr_attention *) { return CGR_OK; };
  Make(CGR_MODE_FULL, 1, &backend);
  EXPECT_NE(TreeOf([&] { CGR_EXPECT_OK(engine_->Capture()); }).find("layer:1(append:1 attention:1)"), std::string::npos)
      << tool_.Tree();
}

// A layer that `record` comes back to has a second range: its attention is not in the range of the layer between.
TEST_P(Ranges, OfLayersThatInterleave) {
  calls_ = { { 0, CGR_ATTENTION_APPEND_ONLY }, { 1, 0 }, { 0, CGR_ATTENTION_NO_APPEND } };
  Make(CGR_MODE_FULL);
  EXPECT_NE(
      TreeOf([&] { CGR_EXPECT_OK(engine_->Capture()); }).find("append:0) layer:1(append:1 attention:1) layer:0(attention:0)"),
      std::string::npos)
      << tool_.Tree();
}

// Ranges that belong to no step.
TEST(RangesOfARuntime, OfEveryCall) {
  CGR_SKIP_WITHOUT_TOOL();
  Tool &tool = Tool::Get();
  const HostDevice dev(CGR_SCHEDULE_ASYNC);
  tool.Clear();
  auto engine = std::make_unique<TinyEngine>(dev, CGR_MODE_FULL, 1);
  EXPECT_EQ(tool.Tree(), "cgr_runtime_create");
  engine->RegisterAll();
  const cgr_capture capture = engine->CaptureStruct();
  cgr_capture_estimate estimate = CGR_CAPTURE_ESTIMATE_INIT;
  int32_t count = 0;
  const auto expect = [&](const std::string &begin, const std::string &end, auto call) {
    tool.Clear();
    CGR_EXPECT_OK(call());
    const std::string tree = tool.Tree();
    EXPECT_EQ(tree.substr(0, begin.size()), begin);
    EXPECT_EQ(tree.substr(tree.size() - std::min(tree.size(), end.size())), end) << tree;
    EXPECT_EQ(tool.Depth(), 0);
  };
  const std::string record = "record(layer:0(fetch append:0 attention:0))", eager = "record(layer:0(append:0 attention:0))";
  expect("cgr_runtime_warmup(prologue planner " + eager + " epilogue prologue", "epilogue)",
         [&] { return cgr_runtime_warmup(engine->rt, &capture); });
  expect("cgr_runtime_estimate_capture(graph(prologue planner " + record + " epilogue)", ")",
         [&] { return cgr_runtime_estimate_capture(engine->rt, &capture, &estimate); });
  expect("cgr_runtime_audit(graph(prologue planner " + record + " epilogue) graph", "epilogue))",
         [&] { return cgr_runtime_audit(engine->rt, nullptr, nullptr, 0, &count); });
  expect("cgr_runtime_release_graphs", "graphs", [&] { return cgr_runtime_release_graphs(engine->rt, 0, nullptr); });
  expect("cgr_runtime_capture(graph", ")", [&] { return cgr_runtime_capture(engine->rt, &capture); });
  expect("cgr_runtime_self_test(cgr_", "cgr_step_prepare cgr_step_launch cgr_step_wait)",
         [&] { return engine->SelfTest(&count); });
  tool.Clear();
  engine.reset();
  EXPECT_EQ(tool.Tree(), "cgr_runtime_destroy");
  EXPECT_TRUE(tool.wrong.empty());
}

TEST_P(Ranges, OfTheOtherCallsOfAStep) {
  Make(CGR_MODE_FULL_DECODE_ONLY);
  CGR_ASSERT_OK(engine_->Capture());
  const int32_t a = engine_->Start(5, 1), one = 1;
  cgr_batch batch = CGR_BATCH_INIT;
  batch.num_requests = one;
  batch.rows = &a;
  cgr_key key = CGR_KEY_INIT;
  EXPECT_EQ(TreeOf([&] { CGR_EXPECT_OK(cgr_step_choose(engine_->rt, &batch, &key)); }), "cgr_step_choose");
  EXPECT_EQ(tool_.events[0].category, "plan");
  EXPECT_EQ(TreeOf([&] {
              CGR_EXPECT_OK(engine_->Prepare(engine_->Decode({ a })));
              CGR_EXPECT_OK(engine_->Cancel());
            }),
            "cgr_step_prepare cgr_step_cancel");
  EXPECT_EQ(PayloadOf("cgr_step_cancel"), PayloadOf("cgr_step_prepare", false));
  engine_->Reserve(a, 40);
  EXPECT_EQ(TreeOf([&] { CGR_EXPECT_OK(engine_->Flush()); }), "cgr_runtime_flush(prologue epilogue)");
  engine_->WaitForAll();
  TreeOf([&] { engine_->Step(engine_->Decode({ a })); });
  EXPECT_EQ(PayloadOf("cgr_step_wait")["value"], std::to_string(engine_->step.mark.seq));
  EXPECT_EQ(tool_.Find("cgr_step_wait")->category, "wait");
}

TEST_P(Ranges, EndWithCallsThatAreRefused) {
  Make(CGR_MODE_FULL_DECODE_ONLY);
  CGR_ASSERT_OK(engine_->Capture());
  int32_t a = engine_->Start(5, 1);
  cgr_runtime *rt = engine_->rt;
  cgr_batch batch = CGR_BATCH_INIT;
  cgr_step step = CGR_STEP_INIT;
  cgr_key key = CGR_KEY_INIT;
  batch.num_requests = engine_->o.max_requests + 1;
  EXPECT_EQ(TreeOf([&] { EXPECT_NE(cgr_step_prepare(rt, &batch, &step), CGR_OK); }), "cgr_step_prepare");
  EXPECT_TRUE(PayloadOf("cgr_step_prepare", false).empty()) << "there is no step";
  EXPECT_EQ(TreeOf([&] { EXPECT_NE(cgr_step_choose(rt, &batch, &key), CGR_OK); }), "cgr_step_choose");
  EXPECT_EQ(TreeOf([&] { EXPECT_NE(cgr_step_wait(rt, cgr_mark{ 0, 0, 1u << 30 }, 0, nullptr), CGR_OK); }), "cgr_step_wait");
  EXPECT_EQ(TreeOf([&] { EXPECT_NE(cgr_runtime_flush(rt, nullptr, nullptr, nullptr), CGR_OK); }), "cgr_runtime_flush");
  EXPECT_EQ(TreeOf([&] { EXPECT_NE(cgr_runtime_capture(rt, nullptr), CGR_OK); }), "cgr_runtime_capture");
  EXPECT_EQ(TreeOf([&] { EXPECT_NE(cgr_runtime_warmup(rt, nullptr), CGR_OK); }), "cgr_runtime_warmup");
  CGR_ASSERT_OK(engine_->Prepare(engine_->Decode({ a })));
  EXPECT_EQ(TreeOf([&] { EXPECT_NE(cgr_step_launch(rt, &engine_->step, nullptr), CGR_OK); }), "cgr_step_launch");
  EXPECT_EQ(TreeOf([&] { EXPECT_NE(cgr_runtime_release_graphs(rt, 0, nullptr), CGR_OK); }), "cgr_runtime_release_graphs");
  CGR_EXPECT_OK(engine_->Cancel());
  EXPECT_EQ(TreeOf([&] { EXPECT_NE(cgr_step_cancel(nullptr, &step), CGR_OK); }), "") << "of whom?";
}

// A `record` that fails at each of its places: eagerly and in captures.
TEST_P(Ranges, EndWhereRecordFails) {
  for (int32_t mode : { CGR_MODE_FULL, CGR_MODE_PIECEWISE, CGR_MODE_NONE }) {
    const bool captures = mode != CGR_MODE_NONE;
    bool failed = true, in_layer = false;
    for (int32_t at = 0; failed && !HasFailure(); at++) {
      SCOPED_TRACE(std::string(cgr_graph_mode_name(cgr_graph_mode(mode))) + " at " + std::to_string(at));
      Make(mode);
      CGR_ASSERT_OK(engine_->Warmup());
      engine_->CheckAll();
      failed = false;
      engine_->hook = [&](cgr_recorder *, const cgr_record_info &, int32_t place) {
        failed |= place == at;
        return place == at ? CGR_ERROR_BUSY : CGR_OK;
      };
      const std::string tree = TreeOf([&] {
        const cgr_status captured = captures ? engine_->Capture() : CGR_OK;
        EXPECT_EQ(captured, captures && failed ? CGR_ERROR_CALLBACK : CGR_OK);
        int32_t a = engine_->Open();
        CGR_EXPECT_OK(engine_->Prepare(engine_->Chunks({ { a, 3 } })));
        const cgr_status launched = engine_->Launch();
        EXPECT_EQ(launched, failed ? CGR_ERROR_CALLBACK : CGR_OK);
      });
      in_layer |= failed && tree.find("layer:0") != std::string::npos && tree.find("layer:1") == std::string::npos;
      engine_->WaitForAll();
      engine_->Forget();
    }
    EXPECT_TRUE(in_layer) << "some place is in a layer";
  }
}

TEST_P(Ranges, AreNotThereUnlessAskedFor) {
  Make(CGR_MODE_FULL_DECODE_ONLY, 0);
  CGR_ASSERT_OK(engine_->Warmup());
  CGR_ASSERT_OK(engine_->Capture());
  int32_t a = engine_->Start(5, 1);
  engine_->Step(engine_->Decode({ a }));
  CGR_EXPECT_OK(engine_->Prepare(engine_->Decode({ a })));
  CGR_EXPECT_OK(engine_->Cancel());
  engine_.reset();
  EXPECT_TRUE(tool_.events.empty()) << tool_.Tree();
}

// However many runtimes there are.
TEST_P(Ranges, HaveNamesThatAreRegisteredOnce) {
  for (int n = 0; n < 3; n++)
    Make(CGR_MODE_FULL_DECODE_ONLY);
  EXPECT_EQ(tool_.domains, (std::map<std::string, int>{ { "cgr", 1 } }));
  EXPECT_EQ(tool_.registered.size(), size_t(CGR__RANGE_COUNT));
  for (const auto &[text, count] : tool_.registered)
    EXPECT_EQ(count, 1) << text;
  EXPECT_EQ(tool_.categories,
            (std::map<uint32_t, std::string>{ { 1, "plan" }, { 2, "stage" }, { 3, "launch" }, { 4, "capture" }, { 5, "wait" } }));
}

TEST_P(Ranges, StreamsAndEventsOfAGpuHaveNames) {
  tool_.streams.clear();
  tool_.cuda_events.clear();
  Make(CGR_MODE_FULL_DECODE_ONLY);
  std::vector<std::string> names;
  for (const auto *list : { &tool_.streams, &tool_.cuda_events })
    for (const auto &[handle, name] : *list)
      names.push_back(name);
  std::sort(names.begin(), names.end());
  const std::vector<std::string> all = { "cgr fork", "cgr join", "cgr order", "cgr own", "cgr side" };
  EXPECT_EQ(names, GetParam().IsCuda() ? all : std::vector<std::string>()) << "handles of the host device mean nothing to a tool";
}

INSTANTIATE_TEST_SUITE_P(Devices, Ranges, ::testing::Values(HostParam(CGR_SCHEDULE_ASYNC), CudaParam()),
                         [](const auto &made) { return made.param.Label(); });

// Every field, with a number of its own that needs all of its bits.
TEST(Payloads, HoldWholeNumbers) {
  CGR_SKIP_WITHOUT_TOOL();
  Tool &tool = Tool::Get();
  ASSERT_TRUE(cgr__nvtx_open());
  tool.Clear();
  const cgr__nvtx_range_key key = { -1, CGR_KIND_PIECEWISE, 0x70000001, 0x70000002, 0x70000003, 0xf0000004u };
  const cgr__nvtx_range_step step = { key,        0x70000005,          0x70000006,         CGR_REASON_BUDGET,
                                      0x70000007, 0xf000000000000007u, 0xf000000000000008u };
  cgr__nvtx_begin_step(CGR__RANGE_LAUNCH, &step);
  cgr__nvtx_begin_key(CGR__RANGE_GRAPH, &key);
  cgr__nvtx_begin_number(CGR__RANGE_WAIT, step.seq);
  cgr__nvtx_end();
  cgr__nvtx_end();
  cgr__nvtx_end_step(&step);
  Tool::Fields want = { { "graph", "-1" },
                        { "kind", "piecewise" },
                        { "padded_requests", std::to_string(0x70000001) },
                        { "padded_tokens", std::to_string(0x70000002) },
                        { "query_len", std::to_string(0x70000003) },
                        { "variant", std::to_string(0xf0000004u) } };
  EXPECT_EQ(tool.Find("graph")->payload, want);
  want["num_requests"] = std::to_string(0x70000005);
  want["num_tokens"] = std::to_string(0x70000006);
  want["reason"] = "budget";
  want["drafts"] = std::to_string(0x70000007);
  want["seq"] = std::to_string(step.seq);
  want["bytes_staged"] = std::to_string(step.bytes_staged);
  EXPECT_EQ(tool.Find("cgr_step_launch")->payload, want);
  EXPECT_EQ(tool.Find("cgr_step_launch", false)->payload, want);
  EXPECT_EQ(tool.Find("cgr_step_wait")->payload, (Tool::Fields{ { "value", std::to_string(step.seq) } }));
  EXPECT_TRUE(tool.wrong.empty());
}

// Names that a device without a GPU never gives.
TEST(Names, AreThoseThatWereGiven) {
  CGR_SKIP_WITHOUT_TOOL();
  Tool &tool = Tool::Get();
  int stream = 0, event = 0;
  ASSERT_TRUE(cgr__nvtx_open());
  cgr__nvtx_name_stream(&stream, "a stream");
  cgr__nvtx_name_event(&event, "an event");
  EXPECT_EQ(tool.streams[&stream], "a stream");
  EXPECT_EQ(tool.cuda_events[&event], "an event");
}

} // namespace
} // namespace cgr_test

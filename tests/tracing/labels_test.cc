// What the nodes of a captured graph belong to: every node once, in the order of capture, under the device's name for it.
// Whatever goes wrong with labels costs only the labels.
#include <algorithm>
#include <map>
#include <memory>
#include <set>

#include "cgr/names.h"
#include "tests/support/engine.h"
#include "tests/tracing/engine_parts.h"
#include "tests/tracing/json_reader.h"
#include "tests/tracing/plain_engine.h"

namespace cgr_test {
namespace {

std::string LabelsOf(cgr_runtime *rt) {
  size_t whole = 0, again = 0;
  CGR_EXPECT_OK(cgr_runtime_graph_labels(rt, nullptr, 0, &whole));
  std::string text(whole + 1, '\x7f');
  CGR_EXPECT_OK(cgr_runtime_graph_labels(rt, &text[0], text.size(), &again));
  EXPECT_EQ(whole, again);
  EXPECT_EQ(text[again], '\0');
  text.resize(again);
  return text;
}

// A node as in the JSON.
struct Node {
  std::string phase, backend, name;
  int64_t layer;
};

std::vector<std::vector<Node>> PiecesOf(const Json &graph) {
  std::vector<std::vector<Node>> pieces;
  for (const Json &piece : graph["pieces"].items) {
    pieces.emplace_back();
    for (const Json &run : piece.items)
      for (const Json &name : run["nodes"].items)
        pieces.back().push_back({ run["phase"].text, run["backend"].text, name.text,
                                  run["layer"].kind == Json::kNull ? -1 : int64_t(run["layer"].Number()) });
  }
  return pieces;
}

// "prologue planner record ..": equal labels in a row once, a layer's labels with its number.
std::string TextOf(const std::vector<Node> &nodes) {
  std::string text, last;
  for (const Node &node : nodes) {
    const std::string label = node.phase + (node.layer >= 0 ? ":" + std::to_string(node.layer) : "");
    if (label != last)
      text += (text.empty() ? "" : " ") + label;
    last = label;
  }
  return text;
}

// What FillOne fills, wherever it is called.
struct Target {
  cgr_device *dev;
  void *memory;
};

cgr_status FillOne(cgr_recorder *recorder, const void *target) {
  const Target &t = *static_cast<const Target *>(target);
  return cgr_fill(t.dev, t.memory, 0, 16, InfoOf(recorder).stream);
}

class Labels : public OverDevices {
protected:
  void Make(int32_t mode, const cgr_backend *backend = nullptr, int32_t labels = 1) {
    engine_.reset();
    EngineOptions options = OptionsFor(GetParam());
    options.mode = mode;
    options.mixed = { { 16, 4 }, { 64, 8 } };
    options.adjust = [&](cgr_config *config) {
      config->labels = labels;
      GiveLayersTo(backend, config, &layers_of_backend_);
    };
    engine_ = std::make_unique<Engine>(options);
    engine_->o.adjust = nullptr; // its references end here
    scratch_ = engine_->Alloc(65536);
    engine_->hook = [this](cgr_recorder *, const cgr_record_info &info, int32_t at) {
      for (int32_t i = 0; i <= at; i++) // so that the engine's stretches differ
        CGR_EXPECT_OK(cgr_fill(engine_->dev, scratch_, 0, 256, info.stream));
      return CGR_OK;
    };
  }
  std::string Read() { return LabelsOf(engine_->rt); }
  // The graphs that there are; checks what must hold for each of them.
  std::vector<Json> Graphs() {
    const Json json = JsonReader::Read(Read());
    EXPECT_EQ(json["version"].text, cgr_build_info());
    EXPECT_EQ(json["device"]["kind"].text, GetParam().IsCuda() ? "cuda" : "host");
    for (const Json &graph : json["graphs"].items) {
      const cgr_graph_stats stats = engine_->GraphStats(int32_t(graph["index"].Number()));
      SCOPED_TRACE(graph["key"].text);
      ExpectMembers(graph, { { "kind", cgr_graph_kind_name(cgr_graph_kind(stats.key.kind)) },
                             { "padded_requests", uint64_t(stats.key.num_requests) },
                             { "padded_tokens", uint64_t(stats.key.num_tokens) },
                             { "query_len", uint64_t(stats.key.query_len) },
                             { "variant", uint64_t(stats.key.variant) },
                             { "state", cgr_graph_state_name(cgr_graph_state(stats.state)) },
                             { "unlabelled", nullptr } });
      const auto pieces = PiecesOf(graph);
      EXPECT_EQ(pieces.size(), size_t(stats.num_pieces));
      size_t nodes = 0;
      for (const auto &piece : pieces) {
        nodes += piece.size();
        for (const Node &node : piece)
          ExpectNameFits(node);
      }
      EXPECT_EQ(nodes, size_t(stats.num_nodes));
    }
    return json["graphs"].items;
  }
  // The library's own kernels are named after their phase, the engine's work is not.
  static void ExpectNameFits(const Node &node) {
    EXPECT_NE(node.phase, "none") << node.name;
    for (const std::string phase : { "prologue", "planner", "append", "attention", "fetch", "epilogue" }) {
      const bool is_own = node.phase == phase && (node.backend.empty() || node.backend == "cgr");
      const bool is_engines = node.phase == "record" || node.phase == "layer";
      if (is_own || is_engines) {
        EXPECT_EQ(node.name.find(phase) != std::string::npos, is_own) << node.phase << ": " << node.name;
      }
    }
  }
  // Nodes of the library's own kernel of this name, and no others, have its phase. `record` has called it twice, once inside a
  // function of cgr_record_call, to which it does not belong.
  void ExpectOwnPhase(const std::string &name, int32_t mode) {
    for (const Json &graph : Graphs()) {
      SCOPED_TRACE(graph["key"].text);
      auto counts = Counts(graph);
      size_t own = 0;
      for (const auto &piece : PiecesOf(graph))
        for (const Node &node : piece) {
          const bool is_own = node.name.find(name) != std::string::npos;
          own += is_own;
          EXPECT_EQ(node.phase == name, is_own) << node.phase << ": " << node.name;
        }
      EXPECT_GT(own, 0u);
      EXPECT_EQ(own % 2 == 0, mode == CGR_MODE_FULL) << "between pieces the second of each two is in no graph";
      EXPECT_EQ(counts["call"], 0u);
    }
  }
  std::map<std::string, size_t> Counts(const Json &graph) {
    std::map<std::string, size_t> counts;
    for (const auto &piece : PiecesOf(graph))
      for (const Node &node : piece)
        counts[node.phase]++;
    return counts;
  }

  std::vector<cgr_layer> layers_of_backend_;
  std::unique_ptr<Engine> engine_;
  void *scratch_ = nullptr;
};

TEST_P(Labels, OfFullGraphs) {
  Make(CGR_MODE_FULL);
  CGR_ASSERT_OK(engine_->Capture());
  const std::vector<Json> graphs = Graphs();
  ASSERT_EQ(graphs.size(), size_t(cgr_test::NumKeys(engine_->rt)));
  bool uniform = false, mixed = false;
  for (const Json &graph : graphs) {
    SCOPED_TRACE(graph["key"].text);
    const auto pieces = PiecesOf(graph);
    ASSERT_EQ(pieces.size(), 1u);
    EXPECT_EQ(TextOf(pieces[0]),
              "prologue planner record fetch append:0 attention:0 layer:0 append:1 attention:1 layer:1 epilogue");
    auto counts = Counts(graph);
    EXPECT_EQ(counts["prologue"], 1u);
    EXPECT_EQ(counts["planner"], 1u);
    EXPECT_EQ(counts["append"], 2u);
    EXPECT_EQ(counts["attention"], 2u);
    EXPECT_EQ(counts["fetch"], 1u);
    EXPECT_EQ(counts["epilogue"], 1u);
    for (const Node &node : pieces[0])
      EXPECT_EQ(node.backend, node.phase == "planner" || node.phase == "attention" ? "cgr" : "") << node.phase;
    (graph["query_len"].Number() == 0 ? mixed : uniform) = true;
  }
  EXPECT_TRUE(uniform && mixed);
}

// The engine's work belongs to the layer that it follows, whatever stream it is on. Five more fills are put on another stream,
// before each thing in turn that the engine's `record` does.
TEST_P(Labels, OfTheEnginesWork) {
  Make(CGR_MODE_FULL_DECODE_ONLY);
  CGR_ASSERT_OK(cgr_stream_create(engine_->dev, &engine_->side));
  CGR_ASSERT_OK(cgr_event_create(engine_->dev, &engine_->fork));
  auto fills = [&] {
    CGR_EXPECT_OK(cgr_runtime_release_graphs(engine_->rt, 0, nullptr));
    CGR_EXPECT_OK(engine_->Capture());
    const std::vector<Node> nodes = PiecesOf(Graphs()[0])[0];
    std::map<int64_t, size_t> at; // by layer; -1: before the first
    for (const Node &node : nodes)
      at[node.layer] += node.name == "fill" && (node.phase == "record" || node.phase == "layer");
    return at;
  };
  const std::map<int64_t, size_t> before = fills();
  const auto plain = engine_->hook;
  std::vector<int64_t> layers;
  bool reached = true;
  for (int32_t here = 0; reached; here++) {
    reached = false;
    engine_->hook = [&](cgr_recorder *recorder, const cgr_record_info &info, int32_t at) {
      if (at != here)
        return plain(recorder, info, at);
      reached = true;
      CGR_EXPECT_OK(cgr_event_record(engine_->dev, engine_->fork, info.stream));
      CGR_EXPECT_OK(cgr_event_wait(engine_->dev, engine_->fork, engine_->side));
      for (int i = 0; i < 5; i++)
        CGR_EXPECT_OK(cgr_fill(engine_->dev, scratch_, 0, 8, engine_->side));
      CGR_EXPECT_OK(cgr_event_record(engine_->dev, engine_->fork, engine_->side));
      CGR_EXPECT_OK(cgr_event_wait(engine_->dev, engine_->fork, info.stream));
      return plain(recorder, info, at);
    };
    const std::map<int64_t, size_t> after = fills();
    for (const auto &layer : after)
      if (layer.second != before.at(layer.first)) {
        EXPECT_EQ(layer.second, before.at(layer.first) + 5);
        layers.push_back(layer.first);
      }
    ASSERT_EQ(layers.size(), size_t(here) + reached) << "one stretch of the engine's has them";
  }
  EXPECT_TRUE(std::is_sorted(layers.begin(), layers.end()));
  EXPECT_EQ(std::set<int64_t>(layers.begin(), layers.end()), (std::set<int64_t>{ -1, 0, 1 }));
  engine_->hook = nullptr;
}

TEST_P(Labels, OfPieces) {
  Make(CGR_MODE_PIECEWISE);
  CGR_ASSERT_OK(engine_->Capture());
  const std::vector<Json> graphs = Graphs();
  ASSERT_FALSE(graphs.empty());
  for (const Json &graph : graphs) {
    SCOPED_TRACE(graph["key"].text);
    const auto pieces = PiecesOf(graph);
    ASSERT_EQ(pieces.size(), 3u);
    EXPECT_EQ(TextOf(pieces[0]), "prologue planner record");
    EXPECT_EQ(TextOf(pieces[1]), "layer:0");
    EXPECT_EQ(TextOf(pieces[2]), "layer:1 epilogue");
  }
}

// A merge is the library's own, wherever it is made: inside a function of cgr_record_call it does not belong to that call.
TEST_P(Labels, OfMerges) {
  for (int32_t mode : { CGR_MODE_FULL, CGR_MODE_PIECEWISE }) {
    Make(mode);
    engine_->hook = [this](cgr_recorder *recorder, const cgr_record_info &, int32_t at) {
      if (at == 0)
        return CGR_OK;
      const cgr_attention &attended = engine_->state.call[0].attention;
      cgr_merge merge = CGR_MERGE_INIT;
      merge.num_heads = engine_->state.layer[0].heads[kQ];
      merge.head_dim = engine_->state.layer[0].dim[kV];
      merge.a = merge.b = merge.out = attended.out;
      merge.a_lse = merge.b_lse = merge.lse = attended.lse;
      auto call = [](cgr_recorder *inner, const void *args) {
        return cgr_record_merge(inner, static_cast<const cgr_merge *>(args));
      };
      const cgr_status status = cgr_record_merge(recorder, &merge);
      return status == CGR_OK ? cgr_record_call(recorder, call, &merge, sizeof merge) : status;
    };
    CGR_ASSERT_OK(engine_->Capture());
    ExpectOwnPhase("merge", mode);
    engine_->hook = nullptr;
  }
}

// A measure is the library's own, too.
TEST_P(Labels, OfMeasures) {
  for (int32_t mode : { CGR_MODE_FULL, CGR_MODE_PIECEWISE }) {
    Make(mode);
    engine_->hook = [this](cgr_recorder *recorder, const cgr_record_info &, int32_t at) {
      if (at == 0)
        return CGR_OK;
      cgr_measure measure = CGR_MEASURE_INIT;
      measure.num_heads = engine_->state.layer[0].heads[kV];
      measure.head_dim = engine_->state.layer[0].dim[kV];
      measure.view = engine_->state.call[0].attention.v;
      measure.maxima = static_cast<float *>(scratch_);
      auto call = [](cgr_recorder *inner, const void *args) {
        return cgr_record_measure(inner, static_cast<const cgr_measure *>(args));
      };
      const cgr_status status = cgr_record_measure(recorder, &measure);
      return status == CGR_OK ? cgr_record_call(recorder, call, &measure, sizeof measure) : status;
    };
    CGR_ASSERT_OK(engine_->Capture());
    ExpectOwnPhase("measure", mode);
    engine_->hook = nullptr;
  }
}

// A backend that plans, and one that leaves the append to the library.
TEST_P(Labels, OfABackendOfTheEngine) {
  Target target = {};
  cgr_backend backend = CGR_BACKEND_INIT;
  backend.name = "of \"the\" test";
  backend.context = &target;
  backend.support = [](void *, const cgr_device_info *, const cgr_group *) { return CGR_SUPPORT_ALWAYS; };
  backend.plan = [](void *context, void *, cgr_recorder *recorder, uint32_t, int32_t) { return FillOne(recorder, context); };
  backend.record = [](void *context, cgr_recorder *recorder, const cgr_attention *) { return FillOne(recorder, context); };
  Make(CGR_MODE_FULL, &backend);
  target = { engine_->dev, scratch_ };
  CGR_ASSERT_OK(engine_->Capture());
  for (const Json &graph : Graphs()) {
    const auto nodes = PiecesOf(graph)[0];
    EXPECT_EQ(TextOf(nodes), "prologue planner record fetch append:0 attention:0 layer:0 append:1 attention:1 layer:1 epilogue");
    for (const Node &node : nodes)
      if (node.phase == "planner" || node.phase == "attention") {
        EXPECT_EQ(node.backend, "of \"the\" test");
        EXPECT_EQ(node.name, "fill");
      }
  }
}

// In a FULL graph a call is made at once, and what it enqueues is its own.
TEST_P(Labels, OfACall) {
  Make(CGR_MODE_FULL_DECODE_ONLY);
  engine_->hook = [this](cgr_recorder *recorder, const cgr_record_info &, int32_t at) {
    const Target target = { engine_->dev, scratch_ };
    return at > 0 ? CGR_OK : cgr_record_call(recorder, FillOne, &target, sizeof target);
  };
  CGR_ASSERT_OK(engine_->Capture());
  for (const Json &graph : Graphs()) {
    auto counts = Counts(graph);
    EXPECT_EQ(counts["call"], 1u);
  }
}

TEST_P(Labels, AreOfTheGraphThatThereIs) {
  Make(CGR_MODE_FULL_DECODE_ONLY);
  EXPECT_TRUE(Graphs().empty()) << "nothing is captured";
  CGR_ASSERT_OK(engine_->Capture());
  const std::string first = Read();
  CGR_ASSERT_OK(cgr_runtime_release_graphs(engine_->rt, 0, nullptr));
  EXPECT_TRUE(Graphs().empty()) << "they go with the graphs";
  CGR_ASSERT_OK(engine_->Capture());
  const std::string again = Read();
  if (again.find("\"ids\"") == std::string::npos) {
    EXPECT_EQ(again, first);
  }
  engine_->hook = nullptr;
  CGR_ASSERT_OK(cgr_runtime_release_graphs(engine_->rt, 0, nullptr));
  CGR_ASSERT_OK(engine_->Capture());
  EXPECT_NE(Read(), first) << "the engine's work is another";
  Graphs();
}

TEST_P(Labels, AreThereOnlyWhenAskedFor) {
  Make(CGR_MODE_FULL_DECODE_ONLY, nullptr, 0);
  CGR_ASSERT_OK(engine_->Capture());
  EXPECT_TRUE(Graphs().empty());
}

TEST_P(Labels, AreWrittenAsFarAsThereIsRoom) {
  Make(CGR_MODE_FULL_DECODE_ONLY);
  CGR_ASSERT_OK(engine_->Capture());
  const std::string whole = Read();
  for (size_t capacity : { size_t(1), size_t(10), whole.size() / 2, whole.size() }) {
    std::string out(whole.size() + 8, '\x7f');
    size_t length = 0;
    CGR_ASSERT_OK(cgr_runtime_graph_labels(engine_->rt, &out[0], capacity, &length));
    EXPECT_EQ(length, whole.size());
    EXPECT_EQ(out.substr(0, capacity - 1), whole.substr(0, capacity - 1));
    EXPECT_EQ(out[capacity - 1], '\0');
    EXPECT_EQ(out[capacity], '\x7f') << "nothing is written past the end";
  }
}

CGR_INSTANTIATE_OVER_DEVICES(Labels);

// ------------------------------------------------------------------------------------------------------------------- faults

struct Log {
  std::vector<std::string> warnings;
  static void Keep(void *context, cgr_log_level level, const char *message) {
    if (level == CGR_LOG_WARNING)
      static_cast<Log *>(context)->warnings.push_back(message);
  }
};

// Every device call that labels need fails in turn: the graph has no labels, says so, and replays. Captures ask for nodes and
// walk graphs for other reasons, too: a walk that fails for them fails the capture.
TEST(LabelsWithFaults, CostTheLabelsAlone) {
  for (int op : { int(CGR__OP_CAPTURE_NODES), int(CGR__OP_GRAPH_WALK) })
    for (int error : { CGR__DEVICE_NO_MEMORY, CGR__DEVICE_FAILED, CGR__DEVICE_UNSUPPORTED }) {
      size_t seen = 0;
      uint64_t fired = 1, nth = 1;
      for (; nth < 1000; nth++) {
        SCOPED_TRACE(std::string(cgr__shim_op_name(op)) + " " + std::to_string(nth));
        Log log;
        PlainEngine engine([&](cgr_config *config) {
          config->labels = 1;
          config->log = Log::Keep;
          config->log_context = &log;
        });
        const cgr__fault_plan plan = { op, nth, CGR__FAULT_ONCE, 0, error, 777 };
        cgr__fault_set(engine.fault, &plan);
        const cgr_status status = engine.Capture();
        fired = cgr__fault_fired(engine.fault);
        cgr__fault_set(engine.fault, nullptr);
        if (status != CGR_OK && op == CGR__OP_GRAPH_WALK) {
          EXPECT_EQ(fired, 1u);
          CGR_ASSERT_OK(engine.Capture());
          continue;
        }
        CGR_ASSERT_OK(status);
        size_t unlabelled = 0;
        const Json json = JsonReader::Read(LabelsOf(engine.rt));
        EXPECT_EQ(json["graphs"].items.size(), size_t(cgr_test::NumKeys(engine.rt)));
        for (const Json &graph : json["graphs"].items) {
          bool has = graph["unlabelled"].kind == Json::kNull;
          unlabelled += !has;
          EXPECT_EQ(graph["pieces"].items.empty(), !has);
          if (!has) {
            EXPECT_EQ(graph["unlabelled"].text, cgr__device_error_name(error));
          }
        }
        EXPECT_LE(unlabelled, fired);
        seen += unlabelled;
        const std::string text = "the graph has no labels: " + std::string(cgr__device_error_name(error));
        EXPECT_EQ(std::count_if(log.warnings.begin(), log.warnings.end(),
                                [&](const std::string &warning) { return warning.find(text) != std::string::npos; }),
                  int64_t(unlabelled));
        engine.Step({ 1, 1 });
        EXPECT_EQ(engine.step.key.kind, CGR_KIND_FULL);
        engine.Step({ 3, 1 });
        EXPECT_EQ(engine.step.key.kind, CGR_KIND_PIECEWISE);
        if (fired == 0)
          break;
      }
      EXPECT_GT(seen, 4u);
      EXPECT_EQ(fired, 0u);
    }
}

TEST(LabelsWithFaults, ADeviceThatIsLostIsLost) {
  for (int op : { int(CGR__OP_CAPTURE_NODES), int(CGR__OP_GRAPH_WALK) }) {
    PlainEngine engine([](cgr_config *config) { config->labels = 1; });
    engine.Fault(op, CGR__DEVICE_DEAD);
    EXPECT_EQ(engine.Capture(), CGR_ERROR_DEAD) << cgr_last_message();
    EXPECT_TRUE(JsonReader::Read(LabelsOf(engine.rt))["graphs"].items.empty());
  }
}

// Without labels a capture asks for its nodes only around calls of cgr_record_call, and walks each graph once, for addresses.
TEST(LabelsWithFaults, LessIsAskedWithoutThem) {
  PlainEngine plain, labelled([](cgr_config *config) { config->labels = 1; });
  CGR_ASSERT_OK(plain.Capture());
  CGR_ASSERT_OK(labelled.Capture());
  uint64_t calls = 0, pieces = 0;
  for (int32_t i = 0; i < cgr_test::NumKeys(plain.rt); i++) {
    const cgr_graph_stats stats = GraphStatsOf(plain.rt, i);
    calls += stats.key.kind == CGR_KIND_FULL;
    pieces += uint64_t(stats.num_pieces);
  }
  EXPECT_EQ(cgr__trace_count(plain.dev, CGR__OP_CAPTURE_NODES), 2 * calls);
  EXPECT_EQ(cgr__trace_count(plain.dev, CGR__OP_GRAPH_WALK), pieces);
  EXPECT_GT(cgr__trace_count(labelled.dev, CGR__OP_CAPTURE_NODES), 2 * calls);
  EXPECT_GT(cgr__trace_count(labelled.dev, CGR__OP_GRAPH_WALK), pieces);
}

} // namespace
} // namespace cgr_test

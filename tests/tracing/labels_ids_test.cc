// The ids of labels as JSON: on a device that gives some, for pieces that end within a label, and for graphs without labels.
#include <memory>
#include <numeric>
#include <set>

#if defined(__GLIBC__) && defined(__GLIBC_PREREQ)
#if __GLIBC_PREREQ(2, 33)
#include <malloc.h>
#define CGR_TEST_MALLINFO 1
#endif
#endif

#include "devices/shims/fault.h"
#include "graphs/labels.h"
#include "runtime/runtime.h"
#include "tests/support/engine.h"
#include "tests/support/tiny_engine.h"
#include "tests/tracing/json_reader.h"

namespace cgr_test {
namespace {

// What the device reports in addition: ids of nodes, except each `without`-th, and of executable graphs; and a driver.
struct Ids {
  const cgr__device_ops *inner;
  cgr__device_ops ops;
  int64_t without;     // 0: of every node
  uint32_t next_graph; // 0: of none
} ids;

struct Visit {
  cgr__node_visitor visit;
  void *context;
};

int VisitWithId(void *context, const cgr__node_param *param) {
  const Visit *visit = static_cast<const Visit *>(context);
  cgr__node_param with = *param;
  with.tools_id = ids.without > 0 && param->node % ids.without == 0 ? 0 : uint32_t(param->node) + 1;
  return visit->visit(visit->context, &with);
}

int GraphWalk(cgr_device *dev, cgr__graph *graph, cgr__node_visitor visit, void *context) {
  Visit with = { visit, context };
  return ids.inner->graph_walk(dev, graph, VisitWithId, &with);
}

int Instantiate(cgr_device *dev, cgr__graph *graph, cgr__exec **exec, cgr__graph_info *info) {
  const int error = ids.inner->instantiate(dev, graph, exec, info);
  info->tools_id = ids.next_graph > 0 ? ids.next_graph++ : 0;
  return error;
}

int Info(cgr_device *dev, cgr_device_info *info) {
  const int error = ids.inner->info(dev, info);
  info->driver_version = 13010;
  return error;
}

class LabelIds : public ::testing::Test {
protected:
  void SetUp() override { ids = {}; }
  void Make(int32_t mode) {
    EngineOptions options = OptionsFor(HostParam(CGR_SCHEDULE_EARLIEST));
    ASSERT_EQ(cgr__fault_open(OpenDevice(options.device), &options.handle), CGR__DEVICE_OK);
    ids.inner = options.handle->ops;
    ids.ops = *ids.inner;
    ids.ops.graph_walk = GraphWalk;
    ids.ops.instantiate = Instantiate;
    ids.ops.info = Info;
    options.handle->ops = &ids.ops;
    options.mode = mode;
    options.mixed = { { 16, 4 } };
    options.adjust = [](cgr_config *config) { config->labels = 1; };
    engine_ = std::make_unique<Engine>(options);
    scratch_ = engine_->Alloc(256);
    engine_->hook = [this](cgr_recorder *, const cgr_record_info &info, int32_t at) { return at == 0 ? Fill(info, 6) : CGR_OK; };
  }
  cgr_status Fill(const cgr_record_info &info, int32_t count) {
    for (int32_t i = 0; i < count; i++)
      CGR_EXPECT_OK(cgr_fill(engine_->dev, scratch_, 0, 256, info.stream));
    return CGR_OK;
  }
  static Json JsonOf(cgr_runtime *rt) {
    size_t length = 0;
    CGR_EXPECT_OK(cgr_runtime_graph_labels(rt, nullptr, 0, &length));
    std::string text(length + 1, '\x7f');
    CGR_EXPECT_OK(cgr_runtime_graph_labels(rt, &text[0], text.size(), &length));
    text.resize(length);
    return JsonReader::Read(text);
  }
  static std::vector<Json> GraphsOf(cgr_runtime *rt) { return JsonOf(rt)["graphs"].items; }
  std::vector<Json> Graphs() { return GraphsOf(engine_->rt); }
  std::unique_ptr<Engine> engine_;
  void *scratch_ = nullptr;
};

// Each piece is a graph of its own, whose id is the high half.
TEST_F(LabelIds, AreThoseOfTheGraphAndTheNode) {
  Make(CGR_MODE_FULL_AND_PIECEWISE);
  ids.next_graph = 0xfffffff0;
  CGR_ASSERT_OK(engine_->Capture());
  EXPECT_EQ(JsonOf(engine_->rt)["device"]["driver"].Number(), 13010u) << "which says whether there are ids";
  std::set<uint64_t> all;
  size_t nodes = 0;
  for (const Json &graph : Graphs()) {
    SCOPED_TRACE(graph["key"].text);
    for (const Json &piece : graph["pieces"].items) {
      uint64_t next = 0;
      for (const Json &run : piece.items) {
        ASSERT_TRUE(run.Has("ids"));
        ASSERT_EQ(run["ids"].items.size(), run["nodes"].items.size());
        for (const Json &id : run["ids"].items) {
          if (next == 0)
            next = id.Number();
          EXPECT_EQ(id.Number(), next++) << "ids of this device follow one another";
          EXPECT_GE(id.Number() >> 32, 0xfffffff0u);
          all.insert(id.Number());
          nodes++;
        }
      }
      EXPECT_EQ((next - 1) & 0xffffffff,
                std::accumulate(piece.items.begin(), piece.items.end(), uint64_t(0),
                                [](uint64_t sum, const Json &run) { return sum + run["nodes"].items.size(); }));
    }
  }
  EXPECT_GT(nodes, 20u);
  EXPECT_EQ(all.size(), nodes) << "no id is told twice";
}

// If one of a label's nodes has no id, none are given: a reader could not tell which nodes they belong to.
TEST_F(LabelIds, AreThoseOfAllNodesOrOfNone) {
  Make(CGR_MODE_FULL_DECODE_ONLY);
  ids.next_graph = 7;
  ids.without = 5;
  CGR_ASSERT_OK(engine_->Capture());
  size_t with = 0, mixed = 0;
  for (const Json &graph : Graphs()) {
    int64_t node = 0;
    for (const Json &run : graph["pieces"].items.at(0).items) {
      const int64_t count = int64_t(run["nodes"].items.size());
      bool whole = true;
      for (int64_t i = node; i < node + count; i++)
        whole = whole && i % 5 != 0;
      EXPECT_EQ(run.Has("ids"), whole);
      with += whole;
      mixed += !whole && count > 1;
      node += count;
    }
  }
  EXPECT_GT(with, 0u);
  EXPECT_GT(mixed, 0u);
}

TEST_F(LabelIds, AreNotThereWithoutThatOfTheGraph) {
  Make(CGR_MODE_FULL_DECODE_ONLY);
  CGR_ASSERT_OK(engine_->Capture());
  size_t runs = 0;
  for (const Json &graph : Graphs())
    for (const Json &run : graph["pieces"].items.at(0).items) {
      EXPECT_FALSE(run.Has("ids"));
      runs++;
    }
  EXPECT_GT(runs, 4u);
}

// A call made by `record` splits what it enqueues: the label continues in the next piece, as a run of that piece.
TEST_F(LabelIds, ALabelThatGoesOnInTheNextPieceIsTwoRuns) {
  Make(CGR_MODE_PIECEWISE);
  engine_->hook = [this](cgr_recorder *recorder, const cgr_record_info &info, int32_t at) {
    if (at > 0)
      return CGR_OK;
    Fill(info, 2);
    const int32_t nothing = 0;
    const cgr_status status = cgr_record_call(
        recorder, [](cgr_recorder *, const void *) { return CGR_OK; }, &nothing, sizeof nothing);
    Fill(InfoOf(recorder), 3);
    return status;
  };
  CGR_ASSERT_OK(engine_->Capture());
  const std::vector<Json> graphs = Graphs();
  ASSERT_FALSE(graphs.empty());
  for (const Json &graph : graphs) {
    const std::vector<Json> &pieces = graph["pieces"].items;
    const cgr_graph_stats stats = engine_->GraphStats(int32_t(graph["index"].Number()));
    ASSERT_EQ(pieces.size(), size_t(stats.num_pieces));
    ASSERT_GE(pieces.size(), 4u);
    const Json &last = pieces[0].items.back(), &first = pieces[1].items.front();
    EXPECT_EQ(last["phase"].text, "record");
    EXPECT_EQ(first["phase"].text, "record");
    EXPECT_EQ(last["nodes"].items.size(), 2u);
    EXPECT_GE(first["nodes"].items.size(), 3u);
  }
}

// The plans of two backends come one after the other.
TEST_F(LabelIds, WhatBelongsToAnotherBackendIsAnotherRun) {
  const HostDevice dev;
  TinyOptions shapes;
  shapes.layers = { { 0, 0 }, { 1, 0 } };
  shapes.backend_flags = CGR_BACKEND_PLANS_FIRST;
  shapes.backend_plans = true;
  shapes.adjust = [](cgr_config *config) { config->labels = 1; };
  Captured<TinyEngine> engine(dev, shapes);
  const std::vector<Json> graphs = GraphsOf(engine.rt);
  ASSERT_FALSE(graphs.empty());
  for (const Json &graph : graphs) {
    std::multiset<std::string> of_whom;
    for (const Json &run : graph["pieces"].items.at(0).items) {
      if (run["layer"].kind != Json::kNull || run["backend"].kind == Json::kNull)
        continue;
      of_whom.insert(run["backend"].text);
      for (const Json &node : run["nodes"].items)
        EXPECT_EQ(node.text == "fill", run["backend"].text == "of the test");
    }
    EXPECT_EQ(of_whom, (std::multiset<std::string>{ "cgr", "of the test" }));
  }
}

#if CGR_TEST_MALLINFO
// A sanitizer has its own allocator, so this sees nothing there; the sanitizer finds leaks itself.
TEST_F(LabelIds, GoWithTheirGraph) {
  Make(CGR_MODE_FULL_DECODE_ONLY);
  size_t bytes = 0; // of the labels of all graphs
  auto cycle = [&](int times) {
    for (int i = 0; i < times; i++) {
      CGR_ASSERT_OK(engine_->Capture());
      bytes = 0;
      for (int32_t g = 0; g < engine_->rt->graphs.count; g++)
        if (const cgr__labels *labels = engine_->rt->graphs.entry[g].labels)
          bytes += size_t(labels->num_nodes) * sizeof(cgr__labelled_node) + size_t(labels->names_bytes);
      CGR_ASSERT_OK(cgr_runtime_release_graphs(engine_->rt, 0, nullptr));
    }
    engine_->records = {};
  };
  cycle(8);
  const size_t before = mallinfo2().uordblks;
  cycle(64);
  ASSERT_GT(bytes, 1000u);
  EXPECT_LT(mallinfo2().uordblks, before + 64 * bytes / 2) << "half of it, for captures keep other things";
}
#endif

// There may have been no memory for a graph's labels; the graph says so, and the others are as they were.
TEST_F(LabelIds, AGraphWithoutLabelsSaysWhy) {
  Make(CGR_MODE_FULL_DECODE_ONLY);
  CGR_ASSERT_OK(engine_->Capture());
  const size_t count = Graphs().size();
  ASSERT_GT(count, 1u);
  cgr__graph_entry *entry = &engine_->rt->graphs.entry[Graphs()[0]["index"].Number()];
  cgr__labels_free(entry->labels);
  entry->labels = nullptr;
  const std::vector<Json> graphs = Graphs();
  ASSERT_EQ(graphs.size(), count);
  EXPECT_EQ(graphs[0]["unlabelled"].text, "no memory");
  EXPECT_TRUE(graphs[0]["pieces"].items.empty());
  EXPECT_EQ(graphs[1]["unlabelled"].kind, Json::kNull);
}

// A device is lost while the last graph is given labels: nothing else in the capture would notice.
TEST_F(LabelIds, ADeviceThatIsLostAtTheLastGraphIsLost) {
  uint64_t calls = 0;
  for (bool lost : { false, true }) {
    SCOPED_TRACE(lost);
    engine_.reset();
    Make(CGR_MODE_FULL_DECODE_ONLY);
    const cgr__fault_plan plan = { CGR__OP_GRAPH_WALK, lost ? calls : 1u << 20, CGR__FAULT_ONCE, 0, CGR__DEVICE_DEAD, 777 };
    cgr__fault_set(engine_->dev, &plan);
    EXPECT_EQ(engine_->Capture(), lost ? CGR_ERROR_DEAD : CGR_OK) << cgr_last_message();
    calls = cgr__fault_calls(engine_->dev);
    engine_->dead = lost;
    EXPECT_EQ(cgr__fault_fired(engine_->dev), lost ? 1u : 0u);
    cgr__fault_set(engine_->dev, nullptr);
  }
}

} // namespace
} // namespace cgr_test

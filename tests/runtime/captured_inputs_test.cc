// Everything that a graph is made from belongs to a region or is in the layout hash: any change of either is detected, and
// nothing else reaches a graph.
#include <cstring>
#include <set>

extern "C" {
#include "graphs/node_args.h"
#include "runtime/capture/capture.h"
#include "runtime/capture/captured_inputs.h"
}

#include "tests/support/refused.h"

namespace cgr_test {
namespace {

class CapturedInputs : public ThreeRequests {
protected:
  void SetUpOnDevice() override { MakeWith(CGR_MODE_FULL); }
  // Two captured layers, a staged buffer, and two on demand.
  void MakeWith(cgr_graph_mode mode) {
    static cgr_buffer_decl declared[2] = { CGR_BUFFER_DECL_INIT, CGR_BUFFER_DECL_INIT };
    const char *const names[] = { "temperature", "scratch" };
    for (int i = 0; i < 2; i++) {
      declared[i].dimension = CGR_DIMENSION_REQUESTS;
      declared[i].dtype = CGR_DTYPE_FP32;
      declared[i].name = names[i];
      declared[i].source = i == 0 ? CGR_SOURCE_STAGED : CGR_SOURCE_DEVICE;
    }
    EngineOptions options = OptionsFor(GetParam());
    for (LayerOptions &layer : options.layers)
      layer.num_q_heads = 4;
    options.mode = mode;
    options.mixed = { { 16, 4 } };
    options.adjust = [=](cgr_config *config) {
      config->buffers = declared, config->num_buffers = 2;
      config->on_demand = CGR_ON_DEMAND(CGR_BUFFER_KV_INDICES) | CGR_ON_DEMAND(CGR_BUFFER_BLOCK_TABLE);
    };
    Make(options);
  }
  cgr_runtime *rt() { return engine_->rt; }
  int32_t NumReady() {
    int32_t ready = 0;
    for (int32_t i = 0; i < cgr_test::NumKeys(rt()); i++)
      ready += engine_->GraphStats(i).state == CGR_GRAPH_READY;
    return ready;
  }
  std::vector<cgr__captured_input> List() {
    std::vector<cgr__captured_input> list(CGR__NUM_CAPTURED_INPUTS);
    cgr__captured_inputs_list(rt(), list.data());
    return list;
  }
  // Adds to a 32-bit word; adding `by` twice with opposite signs leaves it as it was.
  static void Add(const void *at, uint32_t by) {
    uint32_t value;
    std::memcpy(&value, at, 4);
    value += by;
    std::memcpy(const_cast<void *>(at), &value, 4);
  }
  // No graph is used, and the forced key of one is refused.
  void ExpectAllStale(const std::string &what) {
    EXPECT_EQ(NumReady(), 0) << what;
    cgr_key key = CGR_KEY_INIT;
    cgr_batch batch = BatchOf(int32_t(rows_.size()), rows_.data());
    CGR_ASSERT_OK(cgr_step_choose(rt(), &batch, &key));
    EXPECT_EQ(key.kind, CGR_KIND_NONE) << what;
    const cgr_key forced = FullKey(4);
    batch.forced_key = &forced;
    EXPECT_EQ(cgr_step_choose(rt(), &batch, &key), CGR_ERROR_STALE_GRAPH) << what;
  }
};

TEST_P(CapturedInputs, EveryWordOfItCounts) {
  const int32_t keys = cgr_test::NumKeys(rt());
  ASSERT_EQ(NumReady(), keys);
  engine_->Decode(rows_); // pages for the steps that are chosen
  std::set<std::string> names;
  for (const cgr__captured_input &input : List()) {
    EXPECT_TRUE(names.insert(input.name).second) << input.name;
    EXPECT_GE(input.bytes, 4u) << input.name;
    for (size_t at = 0; at + 4 <= input.bytes && !HasFailure(); at += 4) {
      const std::string what = std::string(input.name) + ", byte " + std::to_string(at);
      const unsigned char *word = static_cast<const unsigned char *>(input.data) + at;
      Add(word, UINT32_MAX);
      cgr__captured_inputs_refresh(rt());
      const bool seen = cgr__graph_is_stale(&rt()->graphs, &rt()->graphs.entry[0]);
      EXPECT_TRUE(seen) << what;
      if (at % 256 == 0)
        ExpectAllStale(what);
      Add(word, 1);
    }
  }
  cgr__captured_inputs_refresh(rt());
  EXPECT_EQ(NumReady(), keys);
  StepAs(*engine_, engine_->Decode(rows_), CGR_KIND_FULL);
}

// A capture checks by itself, and makes graphs from the current state.
TEST_P(CapturedInputs, WhatHasChangedIsCapturedAgain) {
  for (const cgr__captured_input &input : List()) {
    if (std::string(input.name) != "layout" && std::string(input.name) != "config")
      continue; // that a step could do without
    const void *word = input.name[0] == 'l' ? static_cast<const void *>(&rt()->layout.bytes) : &rt()->setup.config.log_context;
    Add(word, 1);
    const size_t before = engine_->records.size();
    CGR_ASSERT_OK(engine_->Capture());
    EXPECT_EQ(engine_->records.size(), before + size_t(cgr_test::NumKeys(rt())));
    StepAs(*engine_, engine_->Decode(rows_), CGR_KIND_FULL);
    Add(word, UINT32_MAX);
    CGR_ASSERT_OK(engine_->Capture());
    EXPECT_EQ(engine_->records.size(), before + 2 * size_t(cgr_test::NumKeys(rt())));
  }
}

TEST_P(CapturedInputs, AStrictRuntimeRefusesTheStep) {
  engine_->Decode(rows_);
  rt()->graphs.strict = true;
  Add(&rt()->layout.bytes, 1);
  cgr__captured_inputs_refresh(rt());
  ItemsRefused(CGR_ERROR_STALE_GRAPH, { "stale" }, engine_->Decode(rows_));
  Add(&rt()->layout.bytes, UINT32_MAX);
  cgr__captured_inputs_refresh(rt());
  rt()->graphs.strict = false;
}

// Over the registry itself: the runtime's own cannot move, and each of the engine's makes stale what holds it.
TEST_P(CapturedInputs, EveryRegionCounts) {
  std::vector<int32_t> movable;
  for (const auto &input : engine_->state.layer[0].in) {
    movable.push_back(NewRegion(rt(), input.data, 16));
  }
  CGR_ASSERT_OK(engine_->Capture());
  const cgr__regions &regions = rt()->regions;
  ASSERT_EQ(regions.count, regions.first_movable + int32_t(movable.size()));
  EXPECT_GE(regions.first_movable, 6); // arena, rings, K and V of two layers
  for (int32_t i = 0; i < regions.count; i++) {
    const cgr__region region = regions.region[i];
    const cgr_status moved = cgr_region_move(rt(), i, region.base, region.bytes);
    if (i < regions.first_movable) {
      EXPECT_EQ(moved, CGR_ERROR_INVALID_ARGUMENT) << i;
      EXPECT_EQ(NumReady(), cgr_test::NumKeys(rt()));
      continue;
    }
    CGR_EXPECT_OK(moved);
    engine_->Decode(rows_);
    ExpectAllStale("region " + std::to_string(i));
    CGR_ASSERT_OK(engine_->Capture());
  }
}

// ------------------------------------------------------------------------------------------------------- nothing else reaches

struct NodeArgs {
  NodeArgs() { std::memset(&all, 0, sizeof all); }
  ~NodeArgs() { cgr__node_args_free(&all); }
  cgr__node_args all;
};

// "" or the first place in which two captures differ.
std::string Difference(const NodeArgs &a, const NodeArgs &b) {
  for (int64_t i = 0; i < std::max(a.all.count, b.all.count); i++)
    if (i >= a.all.count || i >= b.all.count || std::memcmp(&a.all.arg[i], &b.all.arg[i], sizeof *a.all.arg) != 0) {
      const cgr__node_arg &arg = i < a.all.count ? a.all.arg[i] : b.all.arg[i];
      return std::string((i < a.all.count ? a : b).all.node[arg.node].name) + ", byte " + std::to_string(arg.offset);
    }
  return "";
}

class WhatReachesAGraph : public CapturedInputs {
protected:
  cgr_status Capture(const cgr_key &key, NodeArgs *words) {
    cgr__capture_context context = { rt(), &key, CGR_OK };
    int device_error = 0;
    const cgr_status status =
        cgr__graphs_list(&rt()->graphs, &key, rt()->own_stream, cgr__capture_body_of, &context, &words->all, &device_error);
    EXPECT_EQ(device_error, 0);
    return status;
  }
  // Flips a bit of each of the runtime's words in turn and captures: a word that changes the graph must be in the hash. Addresses
  // outside `lane` are left alone: a capture follows them. (Not the first bit: divisors would become 0.)
  void FlipAll(const void *memory, size_t bytes, const std::string &name, const std::vector<cgr_key> &keys,
               const std::vector<const void *> &leave) {
    const unsigned char bit = name == "lane" ? 16 : 2; // addresses in `lane` stay aligned
    for (size_t at = 0; at + 4 <= bytes && !HasFailure(); at += 4) {
      unsigned char *word = static_cast<unsigned char *>(const_cast<void *>(memory)) + at;
      uint64_t wide = 0;
      if (at / 8 * 8 + 8 <= bytes)
        std::memcpy(&wide, static_cast<const unsigned char *>(memory) + at / 8 * 8, 8);
      if (std::count(leave.begin(), leave.end(), word) > 0 || (name != "lane" && wide >> 40 != 0 && wide >> 47 == 0))
        continue;
      word[0] ^= bit;
      const bool in_hash = cgr__captured_inputs_hash(rt()) != hash_;
      for (size_t k = 0; k < keys.size(); k++) {
        NodeArgs words;
        if (Capture(keys[k], &words) != CGR_OK || Difference(words, before_[k]).empty())
          continue;
        reached_++;
        EXPECT_TRUE(in_hash) << name << ", byte " << at << " reaches the graph of key " << k;
      }
      word[0] ^= bit;
    }
  }
  std::vector<NodeArgs> before_;
  uint64_t hash_ = 0;
  int32_t reached_ = 0;
};

TEST_P(WhatReachesAGraph, IsInTheHash) {
  for (cgr_graph_mode mode : { CGR_MODE_FULL, CGR_MODE_PIECEWISE }) {
    MakeWith(mode);
    cgr__setup &setup = rt()->setup;
    const std::vector<cgr_key> keys = { engine_->GraphStats(1).key, engine_->GraphStats(cgr_test::NumKeys(rt()) - 1).key };
    before_ = std::vector<NodeArgs>(keys.size());
    for (size_t k = 0; k < keys.size(); k++) {
      CGR_ASSERT_OK(Capture(keys[k], &before_[k]));
      NodeArgs again;
      CGR_ASSERT_OK(Capture(keys[k], &again));
      ASSERT_EQ(Difference(again, before_[k]), "");
      ASSERT_GT(again.all.num_nodes, 4);
    }
    hash_ = cgr__captured_inputs_hash(rt());
    reached_ = 0;
    // Indexes into other tables, which a capture would run past; EveryWordOfItCounts covers them.
    std::vector<const void *> leave = { &setup.config.num_layers };
    for (int32_t l = 0; l < setup.config.num_layers; l++) {
      leave.push_back(&setup.layers[l].kv_source);
      leave.push_back(&setup.layers[l].backend);
    }
    // Which backends are in use follows from the layers, which are in the hash; and a bool has no other bit to flip.
    for (const cgr__planning &planning : setup.planning)
      leave.push_back(&planning.in_use);
    leave.push_back(&setup.backends_known);
    FlipAll(&rt()->lane.args, sizeof rt()->lane.args, "lane", keys, leave);
    FlipAll(&rt()->lane.planner_args, sizeof rt()->lane.planner_args, "lane", keys, leave);
    FlipAll(&rt()->lane.staged_args, sizeof rt()->lane.staged_args, "lane", keys, leave);
    FlipAll(&rt()->lane.on_demand_args, sizeof rt()->lane.on_demand_args, "lane", keys, leave);
    EXPECT_GT(reached_, 400);
    // A piece has no attention: what plans say is looked at when it is called between two pieces. The append that is called there
    // keeps what its layer says.
    const bool full = mode == CGR_MODE_FULL;
    const int32_t least = full ? 20 : 0;
    reached_ = 0;
    FlipAll(setup.layers, size_t(setup.config.num_layers) * sizeof *setup.layers, "layers", keys, leave);
    EXPECT_GE(reached_, least);
    reached_ = 0;
    FlipAll(&setup, sizeof setup, "setup", keys, leave);
    EXPECT_GE(reached_, least); // of the plans
    EXPECT_LE(reached_, full ? INT32_MAX : int32_t(keys.size())) << "whether the planner comes first";
    FlipAll(&rt()->layout, sizeof rt()->layout, "layout", keys, leave);
    EXPECT_EQ(cgr__captured_inputs_hash(rt()), hash_);
  }
}

// What a capture follows, and FlipAll therefore cannot change.
TEST_P(WhatReachesAGraph, IsInTheHashWhereACaptureFollowsIt) {
  cgr__setup &setup = rt()->setup;
  const void *const followed[] = { &setup.kinds[1],          &setup.backends[0].record,  &setup.backends[0].context,
                                   &setup.config.num_layers, &setup.layers[1].kv_source, &setup.layers[1].backend };
  hash_ = cgr__captured_inputs_hash(rt());
  for (const void *word : followed) {
    Add(word, UINT32_MAX); // one layer fewer: no more than there are
    EXPECT_NE(cgr__captured_inputs_hash(rt()), hash_);
    Add(word, 1);
  }
  EXPECT_EQ(cgr__captured_inputs_hash(rt()), hash_);
}

CGR_INSTANTIATE_OVER_FEW_DEVICES(CapturedInputs);
CGR_INSTANTIATE_OVER_FEW_DEVICES(WhatReachesAGraph);

} // namespace
} // namespace cgr_test

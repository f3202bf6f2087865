// An engine whose layers belong to several length sets: with a cache of the sequences, with one that the steps of another set
// fill, or without any. Requests are given as numbers of tokens, and each step's outputs are compared with the oracle's.
#pragma once

#include "tests/support/engine.h"
#include "tests/support/seed.h"

namespace cgr_test {
namespace sets {

using Bytes = std::vector<unsigned char>;
using Options = EngineOptions;

enum { kMaxSeqLen = 128 };

// A layer of a length set; its kind tells which keys it sees.
inline LayerOptions Layer(int32_t group, int32_t set, Keys keys, bool bidirectional, int32_t q_heads, int32_t kv_heads,
                          int32_t dim, int32_t window_left = 0) {
  LayerOptions layer = { q_heads, kv_heads, dim };
  layer.group = group;
  layer.length_set = set;
  layer.kind.keys = keys;
  layer.kind.bidirectional = bidirectional;
  layer.kind.window_left = window_left;
  return layer;
}

// Layers alternate between both layouts of pages.
inline Options OptionsOf(const std::vector<GroupOptions> &groups, const std::vector<LayerOptions> &layers, int32_t num_sets) {
  Options o;
  o.feed = Feed::kUploads;
  o.groups = groups;
  o.layers = layers;
  for (size_t l = 1; l < layers.size(); l += 2)
    o.layers[l].hnd = true;
  o.num_sets = num_sets;
  o.lse_gap = 0;
  o.max_requests = 6;
  o.max_rows = 8;
  o.max_tokens = 96;
  o.max_seq_len = kMaxSeqLen;
  o.buckets = { 1, 4 };
  o.mixed = { { 16, 4 }, { 96, 6 } };
  return o;
}

// An encoder of one layer, and a decoder of two, each of which attends to its own sequence and to the encoder's output. The last
// layer reads the encoder's tokens from the cache of another.
inline Options EncoderAndDecoder() {
  Options o = OptionsOf({ { 16, 40 }, { 32, 24, 0, 1, 1 } },
                        { Layer(0, 1, Keys::kStep, true, 4, 2, 32), Layer(0, 0, Keys::kCache, false, 4, 2, 32),
                          Layer(1, 1, Keys::kOther, true, 4, 4, 64), Layer(0, 0, Keys::kCache, false, 4, 1, 32, 9),
                          Layer(1, 1, Keys::kOther, true, 8, 4, 64) },
                        2);
  o.layers[4].kv_source = 3;
  return o;
}

// A request of a step, by its number of tokens.
struct Count {
  int32_t row, count;
};

class SetsEngine : public Engine {
public:
  SetsEngine(const DeviceParam &device, cgr_graph_mode mode, const Options &options, uint64_t seed)
      : Engine(Complete(device, mode, options, seed)) {
    hook = [this](cgr_recorder *, const cgr_record_info &info, int32_t at) {
      if (at == 0 && on_record)
        on_record(info);
      return CGR_OK;
    };
    RegisterAll();
    check_at_end = false; // most tests have steps of their own
  }

  // Of the steps of a set.
  cgr_status Prepare(const std::vector<Count> &counts, int32_t set, const cgr_key *forced = nullptr) {
    std::vector<Item> items;
    for (const Count &count : counts)
      items.push_back({ count.row, std::vector<int32_t>(size_t(count.count), 3), false });
    variant = uint32_t(set);
    return Engine::Prepare(items, forced);
  }
  // Tokens of the sequences: a step of set 0. The bits that its layers wrote for real tokens.
  Bytes Decode(const std::vector<Count> &counts, const cgr_key *forced = nullptr) {
    for (const Count &count : counts)
      Engine::Reserve(count.row, Length(count.row, 0) + count.count);
    return Run(counts, 0, forced);
  }
  // The same for tokens of another set, which the rows get now.
  Bytes Encode(const std::vector<Count> &counts, int32_t set = 1, const cgr_key *forced = nullptr) {
    for (const Count &count : counts)
      SetOther(count.row, set, Length(count.row, set) + count.count);
    return Run(counts, set, forced);
  }
  Bytes Run(const std::vector<Count> &counts, int32_t set, const cgr_key *forced) {
    Bytes wrote;
    const cgr_status status = Prepare(counts, set, forced);
    CGR_EXPECT_OK(status);
    if (status != CGR_OK)
      return wrote;
    CGR_EXPECT_OK(Launch());
    CheckAll();
    for (int32_t c = 0; c < state.num_calls; c++) {
      const std::vector<unsigned char> out = Out(c, step.num_tokens);
      const std::vector<float> lse = Lse(c, step.num_tokens);
      const unsigned char *bits = reinterpret_cast<const unsigned char *>(lse.data());
      wrote.insert(wrote.end(), out.begin(), out.end());
      wrote.insert(wrote.end(), bits, bits + lse.size() * sizeof lse[0]);
    }
    return wrote;
  }
  void Reserve(int32_t row, int32_t set, int32_t tokens) { Engine::Reserve(row, tokens, set); }
  int32_t Length(int32_t row, int32_t set) const { return requests.at(row)->Length(set); }

  std::function<void(const cgr_record_info &)> on_record; // at each `record`

private:
  static EngineOptions Complete(const DeviceParam &device, cgr_graph_mode mode, EngineOptions o, uint64_t seed) {
    o.device = device;
    o.mode = mode;
    o.seed = seed;
    o.dtype = device.HasCudaKernels() ? CGR_DTYPE_BF16 : CGR_DTYPE_FP32;
    o.adjust = [more = o.adjust](cgr_config *config) {
      config->max_padding = config->max_tokens; // no step is turned down
      if (more)
        more(config);
    };
    return o;
  }
};

} // namespace sets
} // namespace cgr_test

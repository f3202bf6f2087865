// Keys, buckets and entries without a device: what dispatch looks at.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "buffers/regions.h"
#include "graphs/graphs.h"

namespace cgr_test {

// What a configuration lists.
struct Lists {
  int32_t max_requests, max_tokens;
  std::vector<int32_t> decode;
  std::vector<int32_t> query_lens = { 1 };
  std::vector<cgr_bucket> mixed = {};
  std::vector<cgr_variant> variants = {}; // none: variant 0 alone
  bool decode_complete = false;           // by default sizes
};

struct Shape : cgr__batch_shape {
  Shape(int32_t requests, int32_t tokens, int32_t length, int32_t longest, uint32_t word = 0)
      : cgr__batch_shape{ requests, tokens, length, longest, word, 0 } {}
};

struct Graphs {
  static constexpr uint64_t kGuard = 0x5a5a1234cafe5a5a;
  std::unique_ptr<cgr__graphs> graphs = std::make_unique<cgr__graphs>();
  std::unique_ptr<cgr__regions> regions = std::make_unique<cgr__regions>();
  std::unique_ptr<cgr__limits> limits = std::make_unique<cgr__limits>();
  std::vector<uint64_t> memory;
  std::vector<cgr_variant> variants;

  Graphs(cgr_graph_mode mode, const Lists &given) {
    memset(graphs.get(), 0, sizeof *graphs);
    memset(regions.get(), 0, sizeof *regions);
    regions->epoch = 5;
    graphs->regions = regions.get();
    graphs->captured_hash = 77;
    graphs->max_padding = 2;
    variants = given.variants;
    if (variants.empty())
      variants = { { 0, 0, 1, 0 } };
    auto lists = std::make_unique<cgr__key_lists>();
    limits->max_requests = given.max_requests;
    limits->max_tokens = given.max_tokens;
    lists->limits = limits.get();
    lists->uniform_kind = cgr__mode_uniform_kind(mode);
    lists->mixed_kind = cgr__mode_mixed_kind(mode);
    lists->num_query_lens = static_cast<int32_t>(given.query_lens.size());
    lists->num_decode = static_cast<int32_t>(given.decode.size());
    lists->decode_complete = given.decode_complete;
    lists->num_mixed = static_cast<int32_t>(given.mixed.size());
    lists->num_variants = static_cast<int32_t>(variants.size());
    std::copy(variants.begin(), variants.end(), lists->variants);
    std::copy(given.query_lens.begin(), given.query_lens.end(), lists->query_lens);
    std::copy(given.decode.begin(), given.decode.end(), lists->decode);
    std::copy(given.mixed.begin(), given.mixed.end(), lists->mixed);
    // What is behind the promised bytes stays as it is.
    size_t bytes = cgr__keys_bytes(lists.get());
    memory.assign(bytes / 8 + 1, 0);
    memory.back() = kGuard;
    EXPECT_EQ(bytes % 8, 0u);
    cgr__keys_make(graphs.get(), lists.get(), memory.data());
    EXPECT_EQ(memory.back(), kGuard);
  }
  Graphs(cgr_graph_mode mode, int32_t max_requests, int32_t max_tokens, const std::vector<int32_t> &buckets)
      : Graphs(mode, Lists{ max_requests, max_tokens, buckets, { 1 }, {}, { { 0, 0, 1, 0 } } }) {}
  cgr__graph_entry &Entry(size_t i) { return graphs->entry[i]; }
  // As a capture leaves the entry: READY or FAILED; or EMPTY, as it was before.
  void Set(size_t i, cgr_graph_state state) {
    Entry(i).state = state == CGR_GRAPH_STALE ? CGR_GRAPH_READY : state;
    Entry(i).epoch = regions->epoch - (state == CGR_GRAPH_STALE ? 1 : 0);
    Entry(i).captured_hash = graphs->captured_hash;
  }
  void SetAll(cgr_graph_state state) {
    for (int32_t i = 0; i < graphs->count; i++)
      Set(static_cast<size_t>(i), state);
  }
  cgr_status Choose(const Shape &shape, const cgr_key *forced, cgr__choice *choice) {
    memset(choice, 0xa5, sizeof *choice);
    return cgr__graphs_choose(graphs.get(), &shape, forced, choice);
  }
};

// What max_padding has turned down.
inline cgr__graph_entry *TurnedDown(Graphs &g, const cgr__choice &choice) {
  return choice.turned_down == 0 ? nullptr : &g.Entry(size_t(choice.turned_down - 1));
}

inline cgr_key MakeKey(cgr_graph_kind kind, int32_t num_requests, int32_t num_tokens, int32_t query_len) {
  cgr_key key = CGR_KEY_INIT;
  key.kind = kind;
  key.num_requests = num_requests;
  key.num_tokens = num_tokens;
  key.query_len = query_len;
  return key;
}

inline void ExpectKey(const cgr_key &key, const cgr_key &expected) {
  EXPECT_EQ(key.kind, expected.kind);
  EXPECT_EQ(key.num_requests, expected.num_requests);
  EXPECT_EQ(key.num_tokens, expected.num_tokens);
  EXPECT_EQ(key.query_len, expected.query_len);
  EXPECT_EQ(memcmp(&key, &expected, sizeof key), 0) << "a reserved field";
}

} // namespace cgr_test

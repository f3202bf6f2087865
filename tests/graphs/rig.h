// Keys, buckets and entries without a device: what dispatch looks at.
#ifndef CGR_TESTS_GRAPHS_RIG_H
#define CGR_TESTS_GRAPHS_RIG_H

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <vector>

#include "buffers/regions.h"
#include "graphs/graphs.h"

namespace cgr_test {

struct Graphs {
  std::unique_ptr<cgr__graphs> graphs = std::make_unique<cgr__graphs>();
  std::unique_ptr<cgr__regions> regions = std::make_unique<cgr__regions>();
  std::vector<int16_t> bucket_of;

  Graphs(cgr_graph_mode mode, int32_t max_requests, int32_t max_tokens, const std::vector<int32_t> &buckets)
      : bucket_of(static_cast<size_t>(max_requests) + 1, 12345) {
    memset(graphs.get(), 0, sizeof *graphs);
    memset(regions.get(), 0, sizeof *regions);
    regions->epoch = 5;
    graphs->regions = regions.get();
    graphs->layout_hash = 77;
    graphs->mode = mode;
    graphs->mode_reason = "";
    graphs->max_requests = max_requests;
    graphs->max_tokens = max_tokens;
    cgr__graphs_set_buckets(graphs.get(), buckets.data(), static_cast<int32_t>(buckets.size()), bucket_of.data());
  }
  cgr__graph_entry &Entry(size_t i) { return graphs->entry[i]; }
  // As a capture leaves the entry: READY or FAILED; or EMPTY, as it was before.
  void Set(size_t i, cgr_graph_state state) {
    Entry(i).state = state == CGR_GRAPH_STALE ? CGR_GRAPH_READY : state;
    Entry(i).epoch = regions->epoch - (state == CGR_GRAPH_STALE ? 1 : 0);
    Entry(i).layout_hash = graphs->layout_hash;
  }
  void SetAll(cgr_graph_state state) {
    for (int32_t i = 0; i < graphs->count; i++)
      Set(static_cast<size_t>(i), state);
  }
  cgr_status Choose(const cgr__batch_shape &shape, const cgr_key *forced, cgr__choice *choice) {
    memset(choice, 0xa5, sizeof *choice);
    return cgr__graphs_choose(graphs.get(), &shape, forced, choice);
  }
};

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

#endif // CGR_TESTS_GRAPHS_RIG_H

// Dispatch: every step gets exactly one graph or none, and one reason, as a search through all buckets says.
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "tests/graphs/rig.h"
#include "tests/support/expect.h"
#include "tests/support/seed.h"

namespace {

using namespace cgr_test;

const cgr_graph_state kStates[] = { CGR_GRAPH_EMPTY, CGR_GRAPH_READY, CGR_GRAPH_FAILED, CGR_GRAPH_STALE };

struct Expected {
  cgr_status status = CGR_OK;
  int32_t entry = -1; // -1: eager
  cgr_reason reason = CGR_REASON_EXACT;
};

Expected Search(const std::vector<int32_t> &buckets, const std::vector<cgr_graph_state> &states, const Graphs &g,
                const cgr__batch_shape &shape) {
  Expected e;
  if (g.graphs->mode == CGR_MODE_NONE) {
    e.reason = CGR_REASON_MODE_NONE;
    return e;
  }
  if (shape.num_requests > 0 && shape.query_len != 1) {
    e.reason = CGR_REASON_NOT_UNIFORM;
    return e;
  }
  int32_t best = -1;
  for (size_t i = 0; i < buckets.size(); i++)
    if (buckets[i] >= shape.num_requests && (best < 0 || buckets[i] < buckets[static_cast<size_t>(best)]))
      best = static_cast<int32_t>(i);
  cgr_graph_state state = best < 0 ? CGR_GRAPH_EMPTY : states[static_cast<size_t>(best)];
  if (best >= 0 && state == CGR_GRAPH_READY) {
    e.entry = best;
    e.reason = buckets[static_cast<size_t>(best)] == shape.num_requests ? CGR_REASON_EXACT : CGR_REASON_PADDED;
    return e;
  }
  e.reason = best < 0                    ? CGR_REASON_ABOVE_BUCKETS
             : state == CGR_GRAPH_STALE  ? CGR_REASON_STALE
             : state == CGR_GRAPH_FAILED ? CGR_REASON_CAPTURE_FAILED
                                         : CGR_REASON_NOT_CAPTURED;
  if (g.graphs->strict && shape.num_requests > 0)
    e.status = state == CGR_GRAPH_STALE ? CGR_ERROR_STALE_GRAPH : CGR_ERROR_FALLBACK;
  return e;
}

void ExpectChoice(Graphs &g, const cgr__batch_shape &shape, const Expected &e, std::set<cgr_reason> *seen) {
  cgr__choice choice;
  cgr_status status = g.Choose(shape, nullptr, &choice);
  ASSERT_EQ(status, e.status) << shape.num_requests << " requests: " << cgr_last_message();
  seen->insert(e.reason);
  if (e.status != CGR_OK)
    return ExpectMessage(status, e.status,
                         { std::to_string(shape.num_requests) + " requests", cgr_reason_name(e.reason), "strict" });
  ASSERT_EQ(choice.reason, e.reason) << shape.num_requests << " requests";
  ASSERT_EQ(choice.entry, e.entry < 0 ? nullptr : &g.Entry(static_cast<size_t>(e.entry)));
  if (e.entry >= 0) {
    ExpectKey(choice.key, g.Entry(static_cast<size_t>(e.entry)).key);
    ASSERT_GE(choice.key.num_requests, shape.num_requests);
  } else { // the real counts, but never none
    ExpectKey(choice.key, MakeKey(CGR_KIND_NONE, std::max(shape.num_requests, 1), std::max(shape.num_tokens, 1), 0));
  }
}

// Every kind of batch of n requests.
std::vector<cgr__batch_shape> Shapes(int32_t n) {
  if (n == 0)
    return { { 0, 0, 0 } };
  return { { n, n, 1 }, { n, 2 * n, 2 }, { n, 3 * n + 1, 0 }, { n, 0, 0 } };
}

void CheckAll(Graphs &g, const std::vector<int32_t> &buckets, const std::vector<cgr_graph_state> &states,
              std::set<cgr_reason> *seen) {
  for (int32_t n = 0; n <= g.graphs->max_requests; n++)
    for (const cgr__batch_shape &shape : Shapes(n)) {
      ExpectChoice(g, shape, Search(buckets, states, g, shape), seen);
      if (::testing::Test::HasFailure())
        return;
    }
}

TEST(Dispatch, DefaultBucketsForEveryNumberOfRequests) {
  for (bool strict : { false, true })
    for (cgr_graph_mode mode : { CGR_MODE_NONE, CGR_MODE_FULL_DECODE_ONLY })
      for (cgr_graph_state state : kStates) {
        std::vector<int32_t> buckets(CGR__MAX_BUCKETS);
        buckets.resize(static_cast<size_t>(cgr__buckets_default(512, buckets.data())));
        Graphs g(mode, 600, 10000, buckets);
        g.graphs->strict = strict;
        g.SetAll(state);
        std::set<cgr_reason> seen;
        CheckAll(g, buckets, std::vector<cgr_graph_state>(buckets.size(), state), &seen);
      }
}

TEST(Dispatch, RandomBucketsInEveryStateAgreeWithASearch) {
  const uint64_t seed = Seed();
  SCOPED_TRACE(Repeat(seed));
  Random random(seed);
  std::set<cgr_reason> seen;
  for (int round = 0; round < 300 && !HasFailure(); round++) {
    int32_t max_requests = random.Pick32(1, 600);
    std::set<int32_t> sizes;
    for (int32_t i = random.Pick32(1, random.OneIn(3) ? 200 : 6); i > 0; i--)
      sizes.insert(random.Pick32(1, max_requests));
    std::vector<int32_t> buckets(sizes.begin(), sizes.end());
    std::vector<cgr_graph_state> states;
    Graphs g(random.OneIn(10) ? CGR_MODE_NONE : CGR_MODE_FULL_DECODE_ONLY, max_requests, 4 * max_requests, buckets);
    g.graphs->strict = random.OneIn(2);
    for (size_t i = 0; i < buckets.size(); i++) {
      states.push_back(kStates[random.Pick(0, 3)]);
      g.Set(i, states.back());
    }
    CheckAll(g, buckets, states, &seen);
  }
  EXPECT_EQ(seen, (std::set<cgr_reason>{ CGR_REASON_EXACT, CGR_REASON_PADDED, CGR_REASON_MODE_NONE, CGR_REASON_NOT_UNIFORM,
                                         CGR_REASON_ABOVE_BUCKETS, CGR_REASON_NOT_CAPTURED, CGR_REASON_CAPTURE_FAILED,
                                         CGR_REASON_STALE }));
}

// What the mode does not promise a graph for is no fallback.
TEST(Dispatch, StrictRefusesOnlyWhatTheModePromises) {
  Graphs g(CGR_MODE_FULL_DECODE_ONLY, 8, 100, { 4 });
  g.graphs->strict = true;
  cgr__choice choice;
  EXPECT_EQ(g.Choose({ 2, 2, 1 }, nullptr, &choice), CGR_ERROR_FALLBACK);
  EXPECT_EQ(g.Choose({ 8, 8, 1 }, nullptr, &choice), CGR_ERROR_FALLBACK);
  EXPECT_EQ(g.Choose({ 2, 6, 3 }, nullptr, &choice), CGR_OK);
  EXPECT_EQ(g.Choose({ 2, 6, 0 }, nullptr, &choice), CGR_OK);
  EXPECT_EQ(g.Choose({ 0, 0, 0 }, nullptr, &choice), CGR_OK) << "a step without requests";
  Graphs none(CGR_MODE_NONE, 8, 100, { 4 });
  none.graphs->strict = true;
  EXPECT_EQ(none.Choose({ 2, 2, 1 }, nullptr, &choice), CGR_OK);
}

TEST(Dispatch, AGraphThatBecameStaleAfterwardsIsToldByName) {
  Graphs g(CGR_MODE_FULL_DECODE_ONLY, 8, 100, { 4 });
  g.SetAll(CGR_GRAPH_READY);
  cgr__choice choice;
  ASSERT_EQ(g.Choose({ 3, 3, 1 }, nullptr, &choice), CGR_OK);
  EXPECT_EQ(cgr__graphs_check_fresh(g.graphs.get(), choice.entry), CGR_OK);
  g.regions->epoch++;
  ExpectMessage(cgr__graphs_check_fresh(g.graphs.get(), choice.entry), CGR_ERROR_STALE_GRAPH,
                { "4 requests", "region", "cgr_runtime_capture" });
}

// ------------------------------------------------------------------------------------------------------------- forced keys

struct Forced : ::testing::Test {
  Graphs g{ CGR_MODE_FULL_DECODE_ONLY, 16, 64, { 1, 4, 8, 16 } };
  cgr__choice choice;
  Forced() { g.SetAll(CGR_GRAPH_READY); }

  void ExpectRefused(const cgr__batch_shape &shape, const cgr_key &key, cgr_status status, const Words &words) {
    ExpectMessage(g.Choose(shape, &key, &choice), status, words);
  }
  void ExpectGraph(const cgr__batch_shape &shape, size_t entry) {
    const cgr_key key = g.Entry(entry).key;
    ASSERT_EQ(g.Choose(shape, &key, &choice), CGR_OK) << cgr_last_message();
    EXPECT_EQ(choice.entry, &g.Entry(entry));
    EXPECT_EQ(choice.reason, CGR_REASON_FORCED);
    ExpectKey(choice.key, key);
  }
  void ExpectEager(const cgr__batch_shape &shape, const cgr_key &key) {
    ASSERT_EQ(g.Choose(shape, &key, &choice), CGR_OK) << cgr_last_message();
    EXPECT_EQ(choice.entry, nullptr);
    EXPECT_EQ(choice.reason, CGR_REASON_FORCED);
    ExpectKey(choice.key, key);
  }
};

TEST_F(Forced, AnyGraphThatHoldsTheBatch) {
  for (size_t entry = 0; entry < 4; entry++)
    for (int32_t n = 0; n <= g.Entry(entry).key.num_requests; n++)
      ExpectGraph({ n, n, n > 0 ? 1 : 0 }, entry);
}

TEST_F(Forced, EagerWithItsOwnPaddedCounts) {
  ExpectEager({ 3, 3, 1 }, MakeKey(CGR_KIND_NONE, 3, 3, 1));
  ExpectEager({ 3, 3, 1 }, MakeKey(CGR_KIND_NONE, 16, 64, 0));
  ExpectEager({ 3, 30, 0 }, MakeKey(CGR_KIND_NONE, 5, 31, 0));
  ExpectEager({ 3, 6, 2 }, MakeKey(CGR_KIND_NONE, 3, 6, 2));
  ExpectEager({ 0, 0, 0 }, MakeKey(CGR_KIND_NONE, 1, 1, 0));
  g.graphs->strict = true;
  ExpectEager({ 3, 3, 1 }, MakeKey(CGR_KIND_NONE, 3, 3, 1)); // asked for, so no fallback
  Graphs none(CGR_MODE_NONE, 16, 64, { 1, 4 });
  const cgr_key key = MakeKey(CGR_KIND_NONE, 3, 3, 1);
  EXPECT_EQ(none.Choose({ 3, 3, 1 }, &key, &choice), CGR_OK);
}

TEST_F(Forced, UnknownKinds) {
  for (int32_t kind : { -1, 3, INT32_MIN, INT32_MAX }) {
    cgr_key key = MakeKey(CGR_KIND_NONE, 4, 4, 1);
    key.kind = kind;
    ExpectRefused({ 3, 3, 1 }, key, CGR_ERROR_INVALID_ENUM, { "forced_key.kind is " + std::to_string(kind), "cgr_graph_kind" });
  }
}

TEST_F(Forced, CountsThatDoNotHoldTheBatch) {
  for (cgr_graph_kind kind : { CGR_KIND_NONE, CGR_KIND_PIECEWISE, CGR_KIND_FULL }) {
    for (int32_t n : { -1, 0, 4, 17, INT32_MIN, INT32_MAX })
      ExpectRefused({ 5, 5, 1 }, MakeKey(kind, n, 5, 1), CGR_ERROR_INVALID_ARGUMENT,
                    { "forced_key.num_requests is " + std::to_string(n), "5 .. 16" });
    for (int32_t t : { -1, 0, 4, 65, INT32_MIN, INT32_MAX })
      ExpectRefused({ 5, 5, 1 }, MakeKey(kind, 5, t, 1), CGR_ERROR_INVALID_ARGUMENT,
                    { "forced_key.num_tokens is " + std::to_string(t), "5 .. 64" });
  }
  for (int32_t n : { 0, -1 }) { // a step without requests has one padded request and token all the same
    ExpectRefused({ 0, 0, 0 }, MakeKey(CGR_KIND_NONE, n, 1, 0), CGR_ERROR_INVALID_ARGUMENT, { "num_requests", "1 .. 16" });
    ExpectRefused({ 0, 0, 0 }, MakeKey(CGR_KIND_NONE, 1, n, 0), CGR_ERROR_INVALID_ARGUMENT, { "num_tokens", "1 .. 64" });
  }
  ExpectRefused({ 5, 0, 0 }, MakeKey(CGR_KIND_NONE, 5, 0, 0), CGR_ERROR_INVALID_ARGUMENT, { "num_tokens is 0", "1 .. 64" });
}

TEST_F(Forced, WhatIsReserved) {
  for (int field = 0; field < 8; field++) {
    cgr_key key = g.Entry(1).key;
    if (field < 4)
      key.reserved[field] = 1;
    else
      (field == 4 ? key.program : field == 5 ? key.lane : key.max_steps) = field;
    if (field == 7)
      key.variant = 7, key.max_steps = 0;
    ExpectRefused({ 3, 3, 1 }, key, CGR_ERROR_INVALID_ARGUMENT, { "forced_key", "expected 0" });
    key.kind = CGR_KIND_NONE;
    ExpectRefused({ 3, 3, 1 }, key, CGR_ERROR_INVALID_ARGUMENT, { "forced_key", "expected 0" });
  }
}

TEST_F(Forced, AnotherQueryLengthThanTheBatchs) {
  for (int32_t query_len : { 0, 2, -1 })
    ExpectRefused({ 3, 3, 1 }, MakeKey(CGR_KIND_FULL, 4, 4, query_len), CGR_ERROR_INVALID_ARGUMENT,
                  { "forced_key.query_len is " + std::to_string(query_len), "1" });
  for (int32_t query_len : { 2, -1 })
    ExpectRefused({ 3, 3, 1 }, MakeKey(CGR_KIND_NONE, 4, 4, query_len), CGR_ERROR_INVALID_ARGUMENT,
                  { "forced_key.query_len is " + std::to_string(query_len), "1" });
  ExpectRefused({ 3, 7, 0 }, MakeKey(CGR_KIND_FULL, 8, 8, 1), CGR_ERROR_INVALID_ARGUMENT, { "forced_key.query_len is 1", "0" });
  ExpectRefused({ 0, 0, 0 }, MakeKey(CGR_KIND_NONE, 1, 1, -1), CGR_ERROR_INVALID_ARGUMENT, { "forced_key.query_len is -1" });
}

TEST_F(Forced, KeysWithoutAGraph) {
  ExpectRefused({ 3, 3, 1 }, MakeKey(CGR_KIND_FULL, 5, 5, 1), CGR_ERROR_STATE, { "full", "5 requests", "5 tokens", "captured" });
  ExpectRefused({ 3, 3, 1 }, MakeKey(CGR_KIND_FULL, 4, 8, 1), CGR_ERROR_STATE, { "4 requests", "8 tokens" });
  ExpectRefused({ 3, 3, 1 }, MakeKey(CGR_KIND_PIECEWISE, 4, 4, 1), CGR_ERROR_STATE, { "piecewise" });
  ExpectRefused({ 3, 7, 0 }, MakeKey(CGR_KIND_FULL, 8, 8, 0), CGR_ERROR_STATE, { "8 requests" });
  ExpectRefused({ 0, 0, 0 }, MakeKey(CGR_KIND_FULL, 4, 4, 2), CGR_ERROR_STATE, { "4 requests" });
  for (cgr_graph_state state : { CGR_GRAPH_EMPTY, CGR_GRAPH_FAILED }) {
    g.Set(1, state);
    ExpectRefused({ 3, 3, 1 }, g.Entry(1).key, CGR_ERROR_STATE, { "4 requests", "captured" });
  }
  Graphs none(CGR_MODE_NONE, 16, 64, { 1, 4, 8, 16 });
  const cgr_key key = MakeKey(CGR_KIND_FULL, 4, 4, 1);
  EXPECT_EQ(none.Choose({ 3, 3, 1 }, &key, &choice), CGR_ERROR_STATE);
  Graphs small(CGR_MODE_FULL_DECODE_ONLY, 16, 64, { 2 });
  small.SetAll(CGR_GRAPH_READY);
  EXPECT_EQ(small.Choose({ 3, 3, 1 }, &key, &choice), CGR_ERROR_STATE) << "above the buckets";
}

TEST_F(Forced, AStaleGraph) {
  for (bool strict : { false, true }) {
    g.graphs->strict = strict;
    g.Set(1, CGR_GRAPH_STALE);
    ExpectRefused({ 3, 3, 1 }, g.Entry(1).key, CGR_ERROR_STALE_GRAPH, { "4 requests", "cgr_runtime_capture" });
    ExpectGraph({ 3, 3, 1 }, 2);
  }
}

} // namespace

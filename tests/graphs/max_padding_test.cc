// How much padding a graph may cost: one of more than max_padding times the batch's tokens is left for a smaller one of another
// list or, beyond 64 padded tokens, for an eager step. Over modes, query lengths, supersets and graphs that stand in for others.
#include "tests/graphs/rig.h"
#include "tests/support/seed.h"

namespace {

using namespace cgr_test;

Lists DefaultLists(int32_t max_requests, int32_t max_tokens, const std::vector<int32_t> &query_lens) {
  Lists lists = { max_requests, max_tokens, std::vector<int32_t>(CGR__MAX_BUCKETS), query_lens };
  lists.mixed.resize(CGR__MAX_BUCKETS);
  lists.decode.resize(size_t(cgr__buckets_default(max_requests, lists.decode.data())));
  lists.mixed.resize(size_t(cgr__buckets_default_mixed(max_tokens, max_requests, lists.mixed.data())));
  lists.decode_complete = true;
  return lists;
}

// Guesses of unequal length: some requests have many new tokens, the others one.
TEST(MaxPadding, OneLongRequestDoesNotMakeAllOthersLong) {
  SeededRandom random;
  int eager = 0, in_pieces = 0;
  for (int round = 0; round < 200; round++) {
    const int32_t requests = random.Pick32(1, 300), longest = random.Pick32(2, 16);
    const cgr_graph_mode mode = cgr_graph_mode(random.Pick(CGR_MODE_PIECEWISE, CGR_MODE_FULL_AND_PIECEWISE));
    Graphs g(mode, DefaultLists(requests, requests * longest, { 1, longest }));
    g.SetAll(CGR_GRAPH_READY);
    for (int32_t n = 1; n <= requests; n++) {
      const int32_t num_long = random.Pick32(1, n), tokens = n + num_long * (longest - 1);
      cgr__choice choice;
      ASSERT_EQ(g.Choose({ n, tokens, num_long == n ? longest : 0, longest }, nullptr, &choice), CGR_OK);
      ASSERT_TRUE(choice.key.num_tokens <= 2 * tokens || choice.key.num_tokens - tokens <= 64)
          << n << " requests of " << tokens << " tokens in " << choice.key.num_tokens;
      eager += choice.reason == CGR_REASON_TOO_PADDED;
      in_pieces += choice.key.kind == CGR_KIND_PIECEWISE && TurnedDown(g, choice) != nullptr;
      if (mode != CGR_MODE_FULL_DECODE_ONLY) {
        ASSERT_NE(choice.entry, nullptr) << "mixed graphs serve everything";
      }
    }
  }
  EXPECT_GT(eager, 0);
  EXPECT_GT(in_pieces, 0);
}

// Up to 64 padded tokens cost less than an eager step, whatever the list.
TEST(MaxPadding, ASmallDecodeKeepsItsGraph) {
  for (int32_t bucket = 1; bucket <= 140; bucket++) {
    Graphs g(CGR_MODE_FULL_DECODE_ONLY, 140, 140, { bucket });
    g.SetAll(CGR_GRAPH_READY);
    for (int32_t n = 0; n <= bucket; n++) {
      cgr__choice choice;
      ASSERT_EQ(g.Choose({ n, n, n > 0, n > 0 }, nullptr, &choice), CGR_OK);
      const int32_t tokens = std::max(n, 1);
      const bool graph = bucket <= 2 * tokens || bucket - tokens <= 64;
      ASSERT_EQ(choice.entry, graph ? &g.Entry(0) : nullptr) << n << " in " << bucket;
      ASSERT_EQ(TurnedDown(g, choice), graph ? nullptr : &g.Entry(0));
      if (!graph) {
        ASSERT_EQ(choice.reason, CGR_REASON_TOO_PADDED);
      }
    }
  }
}

// A setting moves the border; the largest removes it.
TEST(MaxPadding, IsASetting) {
  Graphs g(CGR_MODE_FULL_DECODE_ONLY, Lists{ 64, 512, { 64 }, { 8 } }); // 512 tokens
  g.SetAll(CGR_GRAPH_READY);
  for (float padding : { 1.0f, 1.5f, 2.0f, 7.1f, 8.0f, float(CGR__MAX_TOKENS) })
    for (int32_t tokens = 64; tokens <= 512; tokens++) {
      g.graphs->max_padding = padding;
      cgr__choice choice;
      ASSERT_EQ(g.Choose({ 64, tokens, 0, 8 }, nullptr, &choice), CGR_OK);
      ASSERT_EQ(choice.entry != nullptr, 512 <= double(padding) * tokens || 512 - tokens <= 64) << padding << ", " << tokens;
    }
}

TEST(MaxPadding, StrictTakesALargeGraphRatherThanNone) {
  Graphs g(CGR_MODE_FULL_AND_PIECEWISE, Lists{ 64, 512, { 64 }, { 1, 8 }, { { 100, 8 } } });
  g.graphs->strict = true;
  g.SetAll(CGR_GRAPH_READY);
  cgr__choice choice;
  ASSERT_EQ(g.Choose({ 64, 65, 0, 2 }, nullptr, &choice), CGR_OK);
  ExpectKey(choice.key, MakeKey(CGR_KIND_FULL, 64, 512, 8));
  EXPECT_EQ(choice.reason, CGR_REASON_PADDED);
  EXPECT_EQ(TurnedDown(g, choice), nullptr);
  EXPECT_TRUE(choice.is_best);
  ASSERT_EQ(g.Choose({ 8, 9, 0, 2 }, nullptr, &choice), CGR_OK) << "the smallest of the large";
  ExpectKey(choice.key, MakeKey(CGR_KIND_PIECEWISE, 8, 100, 0));
  EXPECT_EQ(TurnedDown(g, choice), &g.Entry(1));
  ASSERT_EQ(g.Choose({ 0, 0, 0, 0 }, nullptr, &choice), CGR_OK);
  ExpectKey(choice.key, MakeKey(CGR_KIND_FULL, 64, 64, 1));
  g.Set(1, CGR_GRAPH_FAILED);
  EXPECT_EQ(g.Choose({ 64, 65, 0, 2 }, nullptr, &choice), CGR_ERROR_FALLBACK);
  EXPECT_EQ(choice.missed, &g.Entry(1));
}

// A step without requests is as small as it can be, and never refused.
TEST(MaxPadding, AStepWithoutRequestsTakesTheSmallestGraphOrNone) {
  for (bool strict : { false, true })
    for (int32_t bucket : { 1, 2, 65, 66 }) {
      Graphs g(CGR_MODE_FULL, Lists{ 66, 400, { bucket }, { 1, 2 }, { { 300, 66 } } });
      g.graphs->strict = strict;
      g.SetAll(CGR_GRAPH_READY);
      cgr__choice choice;
      ASSERT_EQ(g.Choose({ 0, 0, 0, 0 }, nullptr, &choice), CGR_OK);
      EXPECT_EQ(choice.entry, bucket <= 65 ? &g.Entry(0) : nullptr) << bucket;
      EXPECT_EQ(choice.reason, bucket == 1 || bucket <= 65 ? CGR_REASON_PADDED : CGR_REASON_TOO_PADDED);
    }
}

// A superset's graph that pads little comes before a larger one of the variant's own that stands in.
TEST(MaxPadding, ASupersetServesBeforeALargeStandIn) {
  Lists lists{ 64, 64, { 8, 40 }, { 1 }, {}, { { 0, 0, 1, 0 }, { 1, 2, 1, 0 }, { 2, 0, 1, 0 } } };
  Graphs g(CGR_MODE_FULL_DECODE_ONLY, lists);
  g.SetAll(CGR_GRAPH_READY);
  cgr__choice choice;
  g.Set(2, CGR_GRAPH_FAILED); // 8 requests of variant 1
  ASSERT_EQ(g.Choose({ 7, 7, 1, 1, 1 }, nullptr, &choice), CGR_OK);
  EXPECT_EQ(choice.entry, &g.Entry(4));
  EXPECT_EQ(choice.reason, CGR_REASON_SUPERSET);
  EXPECT_EQ(choice.missed, &g.Entry(2));
  EXPECT_EQ(TurnedDown(g, choice), &g.Entry(3));
  g.Set(4, CGR_GRAPH_FAILED);
  ASSERT_EQ(g.Choose({ 7, 7, 1, 1, 1 }, nullptr, &choice), CGR_OK) << "of equal large ones the variant's own";
  EXPECT_EQ(choice.entry, &g.Entry(3));
  EXPECT_EQ(choice.reason, CGR_REASON_PADDED);
  EXPECT_FALSE(choice.is_best);
}

// What was turned down is turned down whether it has a graph or not; it is not missed.
TEST(MaxPadding, WhatIsTurnedDownIsNotMissed) {
  for (cgr_graph_state state : { CGR_GRAPH_READY, CGR_GRAPH_EMPTY, CGR_GRAPH_FAILED, CGR_GRAPH_STALE }) {
    Graphs g(CGR_MODE_FULL_AND_PIECEWISE, Lists{ 64, 512, { 64 }, { 8 }, { { 72, 64 } } });
    g.Set(0, state);
    g.Set(1, CGR_GRAPH_READY);
    cgr__choice choice;
    ASSERT_EQ(g.Choose({ 64, 71, 0, 8 }, nullptr, &choice), CGR_OK);
    EXPECT_EQ(choice.entry, &g.Entry(1));
    EXPECT_EQ(choice.missed, nullptr);
    EXPECT_EQ(TurnedDown(g, choice), &g.Entry(0));
    EXPECT_TRUE(choice.is_best) << "whatever becomes of the other";
    const Shape same = { 64, 71, 0, 8 };
    EXPECT_TRUE(cgr__choice_holds(g.graphs.get(), &same, &choice));
    g.Set(1, CGR_GRAPH_FAILED);
    ASSERT_EQ(g.Choose({ 64, 71, 0, 8 }, nullptr, &choice), CGR_OK);
    EXPECT_EQ(choice.reason, CGR_REASON_CAPTURE_FAILED);
    EXPECT_EQ(choice.missed, &g.Entry(1));
    EXPECT_EQ(TurnedDown(g, choice), &g.Entry(0));
  }
}

} // namespace

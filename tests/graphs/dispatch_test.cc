// Dispatch: every step gets exactly one graph or none, and one reason, the same as by a search through all buckets.
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "cgr/names.h"
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
  int32_t best = -1, missed = -1, turned_down = -1; // entries
};

bool Serves(const Graphs &g, const Shape &shape, const cgr_key &key) {
  if (key.num_requests < std::max(shape.num_requests, 1) || key.num_tokens < shape.num_tokens)
    return false;
  if (key.query_len == 0 || shape.num_requests == 0)
    return true;
  return g.graphs->exact_lengths ? shape.query_len == key.query_len : shape.max_query_len <= key.query_len;
}

// A key and its place: how far from the batch's variant its own is, and its list, uniform ones first.
struct Candidate {
  int32_t entry = -1, num_tokens = 0, kind = 0, variant = 0, list = 0;
};

// The rule in words: a graph is light with at most max_padding times the batch's tokens. Light ones are preferred by variant,
// then FULL before PIECEWISE, then by tokens; if there is none, of all others the one with the fewest tokens is taken, if it pads
// by at most 64 tokens or an eager step would be refused.
struct Rule {
  double light;
  int32_t most; // tokens of a graph that is taken at all

  Rule(const Graphs &g, const Shape &shape) {
    const int32_t tokens = std::max(shape.num_tokens, 1);
    light = double(g.graphs->max_padding) * tokens;
    const bool eager_does = !g.graphs->strict || shape.num_requests == 0;
    most = eager_does ? int32_t(std::min(std::max(light, tokens + 64.0), double(INT32_MAX))) : INT32_MAX;
  }
  bool IsLight(const Candidate &c) const { return c.num_tokens <= light; }
  bool Before(const Candidate &a, const Candidate &b) const {
    if (IsLight(a) != IsLight(b))
      return IsLight(a);
    if (IsLight(a))
      return std::tuple(a.variant, -a.kind, a.num_tokens, a.list) < std::tuple(b.variant, -b.kind, b.num_tokens, b.list);
    return std::tuple(a.num_tokens, -a.kind, a.variant, a.list) < std::tuple(b.num_tokens, -b.kind, b.variant, b.list);
  }
  Candidate Best(const std::vector<Candidate> &candidates) const {
    Candidate best;
    for (const Candidate &c : candidates)
      if (c.num_tokens <= most && (best.entry < 0 || Before(c, best)))
        best = c;
    return best;
  }
};

// Of each list of each of these variants the smallest key that serves the batch and whose state is `wanted`, or of any state.
std::vector<Candidate> Candidates(const std::vector<cgr_graph_state> &states, Graphs &g, const Shape &shape,
                                  const std::vector<uint32_t> &words, const cgr_graph_state *wanted) {
  std::vector<Candidate> found;
  for (int32_t v = 0; v < int32_t(words.size()); v++) {
    std::set<int32_t> lists;
    for (int32_t i = 0; i < g.graphs->count; i++) {
      const cgr_key &key = g.Entry(size_t(i)).key;
      if (key.variant != words[size_t(v)] || !Serves(g, shape, key) || (wanted && states[size_t(i)] != *wanted))
        continue;
      if (lists.insert(key.query_len).second)
        found.push_back({ i, key.num_tokens, key.kind, v, key.query_len == 0 ? INT32_MAX : key.query_len });
    }
  }
  return found;
}

// The graph that would be taken if padding did not count, for which padding is why it is not: it is not light, and a smaller one
// is taken, or should be, or an eager step. Of a list that should be used the graph that stands in counts, too.
int32_t FindTurnedDown(const std::vector<cgr_graph_state> &states, Graphs &g, const Shape &shape,
                       const std::vector<uint32_t> &first, const Rule &rule, const Expected &e) {
  std::map<int32_t, Candidate> of_list;
  const cgr_graph_state ready = CGR_GRAPH_READY;
  for (const Candidate &c : Candidates(states, g, shape, first, nullptr))
    of_list[c.list] = c;
  for (const Candidate &c : Candidates(states, g, shape, first, &ready))
    if (c.num_tokens <= rule.most && rule.IsLight(of_list[c.list]))
      of_list[c.list] = c;
  Candidate best;
  for (const auto &[list, c] : of_list)
    if (best.entry < 0 || std::tuple(-c.kind, c.num_tokens, c.list) < std::tuple(-best.kind, best.num_tokens, best.list))
      best = c;
  const bool is_smaller = e.entry < 0 || g.Entry(size_t(e.entry)).key.num_tokens < best.num_tokens;
  return best.entry < 0 || rule.IsLight(best) || !is_smaller || best.entry == e.best ? -1 : best.entry;
}

cgr_reason ReasonWithout(const std::vector<cgr_graph_state> &states, Graphs &g, const Shape &shape, const Expected &e,
                         bool holds) {
  int32_t most_tokens = 0;
  bool has_mixed = false, is_uniform = false;
  for (int32_t i = 0; i < g.graphs->count; i++) {
    cgr_key key = g.Entry(size_t(i)).key;
    has_mixed |= key.query_len == 0;
    most_tokens = key.query_len == 0 ? std::max(most_tokens, key.num_tokens) : most_tokens;
    key.num_requests = key.num_tokens = INT32_MAX;
    is_uniform |= key.query_len != 0 && Serves(g, shape, key);
  }
  if (g.graphs->count == 0)
    return CGR_REASON_MODE_NONE;
  if (e.missed >= 0)
    switch (states[size_t(e.missed)]) {
    case CGR_GRAPH_STALE:
      return CGR_REASON_STALE;
    case CGR_GRAPH_FAILED:
      return CGR_REASON_CAPTURE_FAILED;
    default:
      return CGR_REASON_NOT_CAPTURED;
    }
  return holds                                         ? CGR_REASON_TOO_PADDED
         : has_mixed && shape.num_tokens > most_tokens ? CGR_REASON_ABOVE_TOKENS
         : has_mixed || is_uniform                     ? CGR_REASON_ABOVE_REQUESTS
                                                       : CGR_REASON_NOT_UNIFORM;
}

// The batch's variant and those that serve it too, as far as they have graphs.
std::vector<uint32_t> WordsOf(const Graphs &g, uint32_t word) {
  std::vector<uint32_t> words;
  for (const cgr_variant *at = nullptr; !at || at->superset != 0;) {
    word = at ? at->superset : word;
    auto found = std::find_if(g.variants.begin(), g.variants.end(), [&](const cgr_variant &v) { return v.word == word; });
    if (found == g.variants.end())
      return {};
    at = &*found;
    if (at->captured)
      words.push_back(word);
  }
  return words;
}

Expected Search(const std::vector<cgr_graph_state> &states, Graphs &g, const Shape &shape) {
  Expected e;
  const std::vector<uint32_t> words = WordsOf(g, shape.variant);
  if (words.empty()) {
    e.status = CGR_ERROR_INVALID_ARGUMENT;
    return e;
  }
  const Rule rule(g, shape);
  const cgr_graph_state ready = CGR_GRAPH_READY;
  const std::vector<Candidate> all = Candidates(states, g, shape, words, nullptr);
  e.entry = rule.Best(Candidates(states, g, shape, words, &ready)).entry;
  e.best = rule.Best(all).entry;
  e.missed = e.best == e.entry ? -1 : e.best;
  if (g.graphs->count > 0)
    e.turned_down = FindTurnedDown(states, g, shape, { words[0] }, rule, e);
  if (e.entry >= 0) {
    const cgr_key &key = g.Entry(size_t(e.entry)).key;
    bool exact = key.num_requests == shape.num_requests && key.num_tokens == shape.num_tokens;
    e.reason = key.variant != shape.variant ? CGR_REASON_SUPERSET : exact ? CGR_REASON_EXACT : CGR_REASON_PADDED;
    return e;
  }
  e.reason = ReasonWithout(states, g, shape, e, !all.empty());
  bool promised = e.reason != CGR_REASON_MODE_NONE && e.reason != CGR_REASON_NOT_UNIFORM;
  if (g.graphs->strict && promised && shape.num_requests > 0)
    e.status = e.reason == CGR_REASON_STALE ? CGR_ERROR_STALE_GRAPH : CGR_ERROR_FALLBACK;
  return e;
}

// What must hold whatever the order of preference.
void ExpectNotTooPadded(Graphs &g, const std::vector<cgr_graph_state> &states, const Shape &shape, const cgr_key &taken) {
  const int32_t tokens = std::max(shape.num_tokens, 1);
  if (taken.num_tokens <= double(g.graphs->max_padding) * tokens)
    return;
  ASSERT_TRUE(taken.num_tokens - tokens <= 64 || (g.graphs->strict && shape.num_requests > 0))
      << taken.num_tokens << " tokens for " << tokens << ", although an eager step would do";
  const std::vector<uint32_t> words = WordsOf(g, shape.variant);
  for (int32_t i = 0; i < g.graphs->count; i++) {
    const cgr_key &key = g.Entry(size_t(i)).key;
    if (states[size_t(i)] == CGR_GRAPH_READY && Serves(g, shape, key) && std::count(words.begin(), words.end(), key.variant)) {
      ASSERT_GE(key.num_tokens, taken.num_tokens) << "a smaller graph serves " << tokens << " tokens";
    }
  }
}

void ExpectChoice(Graphs &g, const std::vector<cgr_graph_state> &states, const Shape &shape, std::set<cgr_reason> *seen) {
  const Expected e = Search(states, g, shape);
  cgr__choice choice;
  cgr_status status = g.Choose(shape, nullptr, &choice);
  ASSERT_EQ(status, e.status) << shape.num_requests << " requests: " << cgr_last_message();
  if (e.status == CGR_ERROR_INVALID_ARGUMENT)
    return ExpectMessage(status, e.status, { "variant is " + std::to_string(shape.variant), "cgr_config.variants" });
  seen->insert(e.reason);
  if (e.status != CGR_OK)
    return ExpectMessage(status, e.status,
                         { std::to_string(shape.num_requests) + " request" + (shape.num_requests == 1 ? " and" : "s and"),
                           cgr_reason_name(e.reason), "strict" });
  auto at = [&](int32_t entry) { return entry < 0 ? nullptr : &g.Entry(size_t(entry)); };
  ASSERT_EQ(choice.reason, e.reason) << shape.num_requests << " requests";
  ASSERT_EQ(choice.entry, at(e.entry)) << shape.num_requests << " requests, " << shape.num_tokens << " tokens";
  ASSERT_EQ(choice.missed, at(e.missed));
  ASSERT_EQ(TurnedDown(g, choice), at(e.turned_down)) << shape.num_requests << " requests, " << shape.num_tokens << " tokens";
  ASSERT_EQ(choice.is_best, e.entry >= 0 && e.entry == e.best && g.Entry(size_t(e.entry)).key.variant == shape.variant);
  if (e.entry >= 0) {
    ExpectKey(choice.key, g.Entry(static_cast<size_t>(e.entry)).key);
    ASSERT_GE(choice.key.num_requests, shape.num_requests);
    ExpectNotTooPadded(g, states, shape, choice.key);
  } else { // the real counts, but never none
    cgr_key key = MakeKey(CGR_KIND_NONE, std::max(shape.num_requests, 1), std::max(shape.num_tokens, 1), 0);
    key.variant = shape.variant;
    ExpectKey(choice.key, key);
  }
}

// Kinds of batches of n requests.
std::vector<Shape> Shapes(const Graphs &g, int32_t n, Random &random) {
  if (n == 0)
    return { { 0, 0, 0, 0 } };
  std::vector<Shape> shapes = { { n, n, 1, 1 }, { n, 2 * n, 2, 2 }, { n, 3 * n + 1, 0, 6 }, { n, 0, 0, 0 } };
  int32_t longest = random.Pick32(1, 9), tokens = random.Pick32(longest, longest * n);
  shapes.push_back({ n, tokens, n == 1 ? tokens : 0, n == 1 ? tokens : longest });
  shapes.push_back({ n, random.Pick32(n, g.graphs->limits->max_tokens), 0, g.graphs->limits->max_tokens });
  std::vector<Shape> legal;
  for (const Shape &shape : shapes)
    if (shape.num_tokens <= g.graphs->limits->max_tokens) {
      legal.push_back(shape);
      legal.back().variant = g.variants[size_t(random.Pick(0, int64_t(g.variants.size()) - 1))].word;
      if (g.variants.size() > 1 && random.OneIn(20))
        legal.back().variant = 1000; // it was not declared
    }
  return legal;
}

void CheckAll(Graphs &g, const std::vector<cgr_graph_state> &states, Random &random, std::set<cgr_reason> *seen) {
  for (int32_t n = 0; n <= g.graphs->limits->max_requests; n++)
    for (const Shape &shape : Shapes(g, n, random)) {
      ExpectChoice(g, states, shape, seen);
      if (::testing::Test::HasFailure())
        return;
    }
}

TEST(Dispatch, DefaultSizesForEveryNumberOfRequests) {
  Random random(1);
  Lists lists = { 600, 10000, std::vector<int32_t>(CGR__MAX_BUCKETS), { 1 }, std::vector<cgr_bucket>(CGR__MAX_BUCKETS) };
  lists.variants = { { 0, 0, 1, 0 } };
  lists.decode.resize(static_cast<size_t>(cgr__buckets_default(512, lists.decode.data())));
  lists.mixed.resize(static_cast<size_t>(cgr__buckets_default_mixed(10000, 600, lists.mixed.data())));
  for (bool strict : { false, true })
    for (cgr_graph_mode mode : { CGR_MODE_NONE, CGR_MODE_FULL_DECODE_ONLY, CGR_MODE_FULL })
      for (cgr_graph_state state : kStates) {
        Graphs g(mode, lists);
        g.graphs->strict = strict;
        g.SetAll(state);
        std::set<cgr_reason> seen;
        CheckAll(g, std::vector<cgr_graph_state>(static_cast<size_t>(g.graphs->count), state), random, &seen);
      }
}

Lists RandomLists(Random &random) {
  Lists lists = {};
  lists.max_requests = random.Pick32(1, 600);
  lists.max_tokens = random.Pick32(lists.max_requests, random.OneIn(10) ? 1 << 24 : 5 * lists.max_requests);
  std::set<int32_t> sizes, lens;
  std::set<std::pair<int32_t, int32_t>> pairs;
  for (int32_t i = random.Pick32(1, random.OneIn(3) ? 200 : 6); i > 0; i--)
    sizes.insert(random.Pick32(1, lists.max_requests));
  for (int32_t i = random.Pick32(1, random.OneIn(2) ? 1 : CGR__MAX_QUERY_LENS); i > 0; i--)
    lens.insert(random.OneIn(3) ? 1 : random.Pick32(1, std::min(lists.max_tokens, 9)));
  for (int32_t i = random.Pick32(0, random.OneIn(3) ? 200 : 6); i > 0; i--) {
    int32_t tokens = random.Pick32(1, lists.max_tokens);
    pairs.insert({ tokens, random.Pick32(1, std::min(lists.max_requests, tokens)) });
    if (random.OneIn(3))
      pairs.insert({ tokens, lists.max_requests });
  }
  lists.decode.assign(sizes.begin(), sizes.end());
  lists.query_lens.assign(lens.begin(), lens.end());
  for (const auto &[tokens, requests] : pairs)
    lists.mixed.push_back({ tokens, requests });
  // A superset stands further on, and the last of all is captured.
  std::vector<uint32_t> words = { 0 };
  for (int32_t count = random.OneIn(2) ? 0 : random.Pick32(1, CGR__MAX_VARIANTS - 1); count > 0; count--)
    words.push_back(uint32_t(words.size()) * 7);
  for (size_t i = 0; i < words.size(); i++) {
    size_t superset = random.OneIn(3) ? i : size_t(random.Pick(int64_t(i), int64_t(words.size()) - 1));
    bool captured = superset == i || random.OneIn(2);
    lists.variants.push_back({ words[i], superset == i ? 0 : words[superset], captured, 0 });
  }
  return lists;
}

TEST(Dispatch, RandomListsInEveryStateAgreeWithASearch) {
  SeededRandom random;
  std::set<cgr_reason> seen;
  for (int round = 0; round < 300 && !HasFailure(); round++) {
    const cgr_graph_mode modes[] = { CGR_MODE_FULL, CGR_MODE_FULL_DECODE_ONLY, CGR_MODE_PIECEWISE, CGR_MODE_FULL_AND_PIECEWISE };
    Graphs g(random.OneIn(10) ? CGR_MODE_NONE : modes[random.Pick(0, 3)], RandomLists(random));
    std::vector<cgr_graph_state> states;
    g.graphs->strict = random.OneIn(2);
    g.graphs->exact_lengths = random.OneIn(2);
    const float paddings[] = { 1.0f, 1.25f, 2.0f, 2.0f, 3.7f, 100.0f, float(CGR__MAX_TOKENS) };
    g.graphs->max_padding = paddings[random.Pick(0, 6)];
    bool ready = random.OneIn(2);
    for (size_t i = 0; i < static_cast<size_t>(g.graphs->count); i++) {
      states.push_back(ready ? CGR_GRAPH_READY : kStates[random.Pick(0, 3)]);
      g.Set(i, states.back());
    }
    CheckAll(g, states, random, &seen);
  }
  EXPECT_EQ(seen,
            (std::set<cgr_reason>{ CGR_REASON_EXACT, CGR_REASON_PADDED, CGR_REASON_MODE_NONE, CGR_REASON_NOT_UNIFORM,
                                   CGR_REASON_ABOVE_REQUESTS, CGR_REASON_ABOVE_TOKENS, CGR_REASON_NOT_CAPTURED,
                                   CGR_REASON_CAPTURE_FAILED, CGR_REASON_STALE, CGR_REASON_SUPERSET, CGR_REASON_TOO_PADDED }));
}

// A choice that is the best is kept for batches of its shape: it would be made again, whatever becomes of other graphs.
TEST(Dispatch, TheBestChoiceStaysTheBest) {
  SeededRandom random;
  int kept = 0, turned_down = 0;
  for (int round = 0; round < 100; round++) {
    Graphs g(CGR_MODE_FULL_AND_PIECEWISE, RandomLists(random));
    g.graphs->strict = random.OneIn(4);
    for (int i = 0; i < 100; i++) {
      const std::vector<Shape> shapes = Shapes(g, random.Pick32(0, g.graphs->limits->max_requests), random);
      const Shape &shape = shapes[size_t(random.Pick(0, int64_t(shapes.size()) - 1))];
      cgr__choice first, again;
      for (int32_t k = 0; k < g.graphs->count; k++)
        g.Set(size_t(k), random.OneIn(4) ? kStates[random.Pick(0, 3)] : CGR_GRAPH_READY);
      if (g.Choose(shape, nullptr, &first) != CGR_OK || !first.entry || !first.is_best)
        continue;
      for (int32_t k = 0; k < g.graphs->count; k++)
        if (&g.Entry(size_t(k)) != first.entry)
          g.Set(size_t(k), kStates[random.Pick(0, 3)]);
      ASSERT_TRUE(cgr__choice_holds(g.graphs.get(), &shape, &first));
      ASSERT_EQ(g.Choose(shape, nullptr, &again), CGR_OK);
      ASSERT_EQ(again.entry, first.entry);
      ASSERT_EQ(again.reason, first.reason);
      ASSERT_EQ(again.missed, nullptr);
      ASSERT_EQ(TurnedDown(g, again), TurnedDown(g, first));
      kept++;
      turned_down += first.turned_down > 0;
    }
  }
  EXPECT_GT(kept, 1000);
  EXPECT_GT(turned_down, 20);
}

// If a graph cannot be replayed, its steps go to the next kind, under that kind's name.
TEST(Dispatch, AMixedGraphStandsInForAUniformOne) {
  Graphs g(CGR_MODE_FULL, Lists{ 8, 80, { 4 }, { 1 }, { { 4, 4 }, { 69, 8 } } });
  cgr__choice choice;
  g.SetAll(CGR_GRAPH_READY);
  ASSERT_EQ(g.Choose({ 4, 4, 1, 1 }, nullptr, &choice), CGR_OK);
  EXPECT_EQ(choice.entry, &g.Entry(0)) << "of equal sizes the uniform one";
  g.Set(0, CGR_GRAPH_FAILED);
  ASSERT_EQ(g.Choose({ 4, 4, 1, 1 }, nullptr, &choice), CGR_OK);
  EXPECT_EQ(choice.entry, &g.Entry(1));
  EXPECT_EQ(choice.reason, CGR_REASON_EXACT);
  g.Set(1, CGR_GRAPH_STALE);
  ASSERT_EQ(g.Choose({ 4, 4, 1, 1 }, nullptr, &choice), CGR_OK);
  EXPECT_EQ(choice.entry, nullptr);
  EXPECT_EQ(choice.reason, CGR_REASON_CAPTURE_FAILED) << "of the smallest: that of 69 tokens would pad by 65";
}

TEST(Dispatch, UniformGraphsServeShorterQueriesWhereTheAttentionCan) {
  Graphs g(CGR_MODE_FULL_DECODE_ONLY, Lists{ 8, 64, { 4, 8 }, { 1, 5 }, {} });
  g.SetAll(CGR_GRAPH_READY);
  cgr__choice choice;
  const cgr_key five = MakeKey(CGR_KIND_FULL, 4, 20, 5);
  ASSERT_EQ(g.Choose({ 4, 11, 0, 5 }, nullptr, &choice), CGR_OK);
  ExpectKey(choice.key, five);
  ASSERT_EQ(g.Choose({ 3, 6, 2, 2 }, nullptr, &choice), CGR_OK);
  ExpectKey(choice.key, five);
  ASSERT_EQ(g.Choose({ 4, 2, 0, 1 }, nullptr, &choice), CGR_OK);
  ExpectKey(choice.key, MakeKey(CGR_KIND_FULL, 4, 4, 1));
  ASSERT_EQ(g.Choose({ 4, 9, 0, 6 }, nullptr, &choice), CGR_OK);
  EXPECT_EQ(choice.reason, CGR_REASON_NOT_UNIFORM);
  g.graphs->exact_lengths = true;
  for (const Shape &shape : { Shape{ 4, 11, 0, 5 }, { 3, 6, 2, 2 }, { 4, 2, 0, 1 } }) {
    ASSERT_EQ(g.Choose(shape, nullptr, &choice), CGR_OK);
    EXPECT_EQ(choice.reason, CGR_REASON_NOT_UNIFORM);
    EXPECT_EQ(g.Choose(shape, &five, &choice), CGR_ERROR_INVALID_ARGUMENT);
  }
  ASSERT_EQ(g.Choose({ 2, 10, 5, 5 }, nullptr, &choice), CGR_OK);
  ExpectKey(choice.key, five);
}

// A step that the mode promises no graph for is not a fallback.
TEST(Dispatch, StrictRefusesOnlyWhatTheModePromises) {
  Graphs g(CGR_MODE_FULL_DECODE_ONLY, 8, 100, { 4 });
  g.graphs->strict = true;
  cgr__choice choice;
  EXPECT_EQ(g.Choose({ 2, 2, 1, 1 }, nullptr, &choice), CGR_ERROR_FALLBACK);
  EXPECT_EQ(g.Choose({ 8, 8, 1, 1 }, nullptr, &choice), CGR_ERROR_FALLBACK);
  EXPECT_EQ(g.Choose({ 2, 6, 3, 3 }, nullptr, &choice), CGR_OK);
  EXPECT_EQ(g.Choose({ 2, 6, 0, 3 }, nullptr, &choice), CGR_OK);
  EXPECT_EQ(g.Choose({ 0, 0, 0, 0 }, nullptr, &choice), CGR_OK) << "a step without requests";
  Graphs none(CGR_MODE_NONE, 8, 100, { 4 });
  none.graphs->strict = true;
  EXPECT_EQ(none.Choose({ 2, 2, 1, 1 }, nullptr, &choice), CGR_OK);
}

TEST(Dispatch, AGraphThatBecameStaleAfterwardsIsToldByName) {
  Graphs g(CGR_MODE_FULL_DECODE_ONLY, 8, 100, { 4 });
  g.SetAll(CGR_GRAPH_READY);
  cgr__choice choice;
  ASSERT_EQ(g.Choose({ 3, 3, 1, 1 }, nullptr, &choice), CGR_OK);
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

  void ExpectRefused(const Shape &shape, const cgr_key &key, cgr_status status, const Words &words) {
    ExpectMessage(g.Choose(shape, &key, &choice), status, words);
  }
  void ExpectGraph(const Shape &shape, size_t entry) {
    const cgr_key key = g.Entry(entry).key;
    ASSERT_EQ(g.Choose(shape, &key, &choice), CGR_OK) << cgr_last_message();
    EXPECT_EQ(choice.entry, &g.Entry(entry));
    EXPECT_EQ(choice.reason, CGR_REASON_FORCED);
    ExpectKey(choice.key, key);
  }
  void ExpectEager(const Shape &shape, const cgr_key &key) {
    ASSERT_EQ(g.Choose(shape, &key, &choice), CGR_OK) << cgr_last_message();
    EXPECT_EQ(choice.entry, nullptr);
    EXPECT_EQ(choice.reason, CGR_REASON_FORCED);
    ExpectKey(choice.key, key);
  }
};

TEST_F(Forced, AMixedGraphForAnyBatch) {
  Graphs mixed(CGR_MODE_FULL, Lists{ 16, 64, { 4 }, { 1 }, { { 8, 4 }, { 8, 8 }, { 32, 4 } } });
  mixed.SetAll(CGR_GRAPH_READY);
  for (size_t entry : { 1u, 2u, 3u })
    for (const Shape &shape : { Shape{ 3, 3, 1, 1 }, { 3, 7, 0, 5 }, { 0, 0, 0, 0 }, { 4, 8, 2, 2 } }) {
      const cgr_key key = mixed.Entry(entry).key;
      ASSERT_EQ(key.query_len, 0);
      ASSERT_EQ(mixed.Choose(shape, &key, &choice), CGR_OK) << cgr_last_message();
      EXPECT_EQ(choice.entry, &mixed.Entry(entry));
      EXPECT_EQ(choice.reason, CGR_REASON_FORCED);
    }
  for (const cgr_key &key : { MakeKey(CGR_KIND_FULL, 4, 9, 0), MakeKey(CGR_KIND_FULL, 5, 8, 0), MakeKey(CGR_KIND_FULL, 8, 32, 0),
                              MakeKey(CGR_KIND_PIECEWISE, 8, 8, 0), MakeKey(CGR_KIND_FULL, 8, 8, 1) })
    ExpectMessage(mixed.Choose({ 3, 3, 1, 1 }, &key, &choice), CGR_ERROR_STATE, { "captured" });
}

TEST_F(Forced, AnyGraphThatHoldsTheBatch) {
  for (size_t entry = 0; entry < 4; entry++)
    for (int32_t n = 0; n <= g.Entry(entry).key.num_requests; n++)
      ExpectGraph({ n, n, n > 0 ? 1 : 0, n > 0 ? 1 : 0 }, entry);
}

TEST_F(Forced, EagerWithItsOwnPaddedCounts) {
  ExpectEager({ 3, 3, 1, 1 }, MakeKey(CGR_KIND_NONE, 3, 3, 1));
  ExpectEager({ 3, 3, 1, 1 }, MakeKey(CGR_KIND_NONE, 16, 64, 0));
  ExpectEager({ 3, 30, 0, 3 }, MakeKey(CGR_KIND_NONE, 5, 31, 0));
  ExpectEager({ 3, 6, 2, 2 }, MakeKey(CGR_KIND_NONE, 3, 6, 2));
  ExpectEager({ 0, 0, 0, 0 }, MakeKey(CGR_KIND_NONE, 1, 1, 0));
  g.graphs->strict = true;
  ExpectEager({ 3, 3, 1, 1 }, MakeKey(CGR_KIND_NONE, 3, 3, 1)); // asked for, so no fallback
  Graphs none(CGR_MODE_NONE, 16, 64, { 1, 4 });
  const cgr_key key = MakeKey(CGR_KIND_NONE, 3, 3, 1);
  EXPECT_EQ(none.Choose({ 3, 3, 1, 1 }, &key, &choice), CGR_OK);
}

TEST_F(Forced, UnknownKinds) {
  for (int32_t kind : { -1, 3, INT32_MIN, INT32_MAX }) {
    cgr_key key = MakeKey(CGR_KIND_NONE, 4, 4, 1);
    key.kind = kind;
    ExpectRefused({ 3, 3, 1, 1 }, key, CGR_ERROR_INVALID_ENUM,
                  { "forced_key.kind is " + std::to_string(kind), "cgr_graph_kind" });
  }
}

TEST_F(Forced, CountsThatDoNotHoldTheBatch) {
  for (cgr_graph_kind kind : { CGR_KIND_NONE, CGR_KIND_PIECEWISE, CGR_KIND_FULL }) {
    for (int32_t n : { -1, 0, 4, 17, INT32_MIN, INT32_MAX })
      ExpectRefused({ 5, 5, 1, 1 }, MakeKey(kind, n, 5, 1), CGR_ERROR_INVALID_ARGUMENT,
                    { "forced_key.num_requests is " + std::to_string(n), "5 .. 16" });
    for (int32_t t : { -1, 0, 4, 65, INT32_MIN, INT32_MAX })
      ExpectRefused({ 5, 5, 1, 1 }, MakeKey(kind, 5, t, 1), CGR_ERROR_INVALID_ARGUMENT,
                    { "forced_key.num_tokens is " + std::to_string(t), "5 .. 64" });
  }
  for (int32_t n : { 0, -1 }) { // a step without requests has one padded request and token all the same
    ExpectRefused({ 0, 0, 0, 0 }, MakeKey(CGR_KIND_NONE, n, 1, 0), CGR_ERROR_INVALID_ARGUMENT, { "num_requests", "1 .. 16" });
    ExpectRefused({ 0, 0, 0, 0 }, MakeKey(CGR_KIND_NONE, 1, n, 0), CGR_ERROR_INVALID_ARGUMENT, { "num_tokens", "1 .. 64" });
  }
  ExpectRefused({ 5, 0, 0, 0 }, MakeKey(CGR_KIND_NONE, 5, 0, 0), CGR_ERROR_INVALID_ARGUMENT, { "num_tokens is 0", "1 .. 64" });
}

TEST_F(Forced, WhatIsReserved) {
  for (int field = 0; field < 7; field++) {
    cgr_key key = g.Entry(1).key;
    if (field < 4)
      key.reserved[field] = 1;
    else
      (field == 4 ? key.program : field == 5 ? key.lane : key.max_steps) = field;
    const cgr_status status = field < 4 ? CGR_ERROR_NEWER_STRUCT : CGR_ERROR_INVALID_ARGUMENT;
    ExpectRefused({ 3, 3, 1, 1 }, key, status, { "forced_key.", "expected 0" });
    key.kind = CGR_KIND_NONE;
    ExpectRefused({ 3, 3, 1, 1 }, key, status, { "forced_key.", "expected 0" });
  }
}

TEST_F(Forced, AnotherVariantThanTheBatchs) {
  for (cgr_graph_kind kind : { CGR_KIND_NONE, CGR_KIND_FULL }) {
    cgr_key key = MakeKey(kind, 4, 4, 1);
    key.variant = 7;
    ExpectRefused({ 3, 3, 1, 1 }, key, CGR_ERROR_INVALID_ARGUMENT, { "forced_key.variant is 7", "the batch's, 0" });
  }
}

TEST_F(Forced, AnotherQueryLengthThanTheBatchs) {
  for (cgr_graph_kind kind : { CGR_KIND_NONE, CGR_KIND_FULL }) {
    for (int32_t query_len : { 1, 2 })
      ExpectRefused({ 3, 7, 0, 3 }, MakeKey(kind, 8, 8, query_len), CGR_ERROR_INVALID_ARGUMENT,
                    { "forced_key.query_len is " + std::to_string(query_len), "longest, 3" });
    for (int32_t query_len : { -1, INT32_MIN })
      for (const Shape &shape : { Shape{ 3, 3, 1, 1 }, { 0, 0, 0, 0 } })
        ExpectRefused(shape, MakeKey(kind, 4, 4, query_len), CGR_ERROR_INVALID_ARGUMENT,
                      { "forced_key.query_len is " + std::to_string(query_len) });
  }
  ExpectEager({ 3, 7, 0, 3 }, MakeKey(CGR_KIND_NONE, 8, 8, 4));
  g.graphs->exact_lengths = true;
  for (cgr_graph_kind kind : { CGR_KIND_NONE, CGR_KIND_FULL })
    for (const Shape &shape : { Shape{ 3, 6, 2, 2 }, { 3, 5, 0, 3 } })
      for (int32_t query_len : { 1, 3, 4, -1 })
        ExpectRefused(shape, MakeKey(kind, 8, 8, query_len), CGR_ERROR_INVALID_ARGUMENT,
                      { "forced_key.query_len is " + std::to_string(query_len), "batch's, " + std::to_string(shape.query_len) });
}

TEST_F(Forced, KeysWithoutAGraph) {
  ExpectRefused({ 3, 3, 1, 1 }, MakeKey(CGR_KIND_FULL, 5, 5, 1), CGR_ERROR_STATE,
                { "full", "5 requests", "5 tokens", "captured" });
  ExpectRefused({ 1, 1, 1, 1 }, MakeKey(CGR_KIND_PIECEWISE, 1, 1, 1), CGR_ERROR_STATE,
                { "(piecewise, 1 request, 1 token, query" });
  ExpectRefused({ 3, 3, 1, 1 }, MakeKey(CGR_KIND_FULL, 4, 8, 1), CGR_ERROR_STATE, { "4 requests", "8 tokens" });
  ExpectRefused({ 3, 3, 1, 1 }, MakeKey(CGR_KIND_PIECEWISE, 4, 4, 1), CGR_ERROR_STATE, { "piecewise" });
  ExpectRefused({ 3, 7, 0, 3 }, MakeKey(CGR_KIND_FULL, 8, 8, 0), CGR_ERROR_STATE, { "8 requests" });
  ExpectRefused({ 0, 0, 0, 0 }, MakeKey(CGR_KIND_FULL, 4, 4, 2), CGR_ERROR_STATE, { "4 requests" });
  for (cgr_graph_state state : { CGR_GRAPH_EMPTY, CGR_GRAPH_FAILED }) {
    g.Set(1, state);
    ExpectRefused({ 3, 3, 1, 1 }, g.Entry(1).key, CGR_ERROR_STATE, { "4 requests", "captured" });
  }
  Graphs none(CGR_MODE_NONE, 16, 64, { 1, 4, 8, 16 });
  const cgr_key key = MakeKey(CGR_KIND_FULL, 4, 4, 1);
  EXPECT_EQ(none.Choose({ 3, 3, 1, 1 }, &key, &choice), CGR_ERROR_STATE);
  Graphs small(CGR_MODE_FULL_DECODE_ONLY, 16, 64, { 2 });
  small.SetAll(CGR_GRAPH_READY);
  EXPECT_EQ(small.Choose({ 3, 3, 1, 1 }, &key, &choice), CGR_ERROR_STATE) << "above the buckets";
}

TEST_F(Forced, AStaleGraph) {
  for (bool strict : { false, true }) {
    g.graphs->strict = strict;
    g.Set(1, CGR_GRAPH_STALE);
    ExpectRefused({ 3, 3, 1, 1 }, g.Entry(1).key, CGR_ERROR_STALE_GRAPH, { "4 requests", "cgr_runtime_capture" });
    ExpectGraph({ 3, 3, 1, 1 }, 2);
  }
}

} // namespace

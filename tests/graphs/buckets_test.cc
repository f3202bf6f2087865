// Buckets: the default sizes, the keys made from lists, and the tables that find the smallest key.
#include <algorithm>
#include <set>
#include <vector>

#include "cgr/names.h"
#include "tests/graphs/rig.h"
#include "tests/support/seed.h"

namespace {

using namespace cgr_test;

// 1, 2, 4, then every 8 up to 256, every 16 up to 512, then in eighths of the power of two below; ends with `max`.
std::vector<int32_t> DefaultRule(int32_t max) {
  std::set<int32_t> sizes = { 1, 2, 4, max };
  for (int32_t size = 8; size <= 256; size += 8)
    sizes.insert(size);
  for (int32_t size = 256; size <= 512; size += 16)
    sizes.insert(size);
  for (int32_t power = 512; power < CGR__MAX_REQUESTS; power *= 2)
    for (int32_t size = power; size <= 2 * power; size += power / 8)
      sizes.insert(size);
  std::vector<int32_t> rule;
  for (int32_t size : sizes)
    if (size <= max)
      rule.push_back(size);
  return rule;
}

std::vector<int32_t> Default(int32_t max) {
  std::vector<int32_t> sizes(CGR__MAX_BUCKETS + 8, -1);
  int32_t count = cgr__buckets_default(max, sizes.data());
  EXPECT_LE(count, CGR__MAX_BUCKETS);
  for (size_t i = static_cast<size_t>(count); i < sizes.size(); i++)
    EXPECT_EQ(sizes[i], -1) << "more was written than is told";
  sizes.resize(static_cast<size_t>(count));
  return sizes;
}

TEST(DefaultBuckets, FollowTheRuleForEveryMaximum) {
  for (int32_t max = 1; max <= CGR__MAX_REQUESTS; max++)
    ASSERT_EQ(Default(max), DefaultRule(max)) << "max " << max;
}

TEST(DefaultBuckets, OfNothingAreNone) {
  EXPECT_EQ(Default(0), std::vector<int32_t>());
  EXPECT_EQ(Default(-5), std::vector<int32_t>());
}

// Every 8 up to 128, then in eighths of the power of two below; ends with `max`.
TEST(DefaultBuckets, OfMixedStepsFollowTheRuleForEveryMaximum) {
  Random random(3);
  for (int round = 0; round < 3000; round++) {
    int32_t max_tokens = round < 2500 ? round + 1 : random.Pick32(1, CGR__MAX_TOKENS),
            max_requests = random.Pick32(1, max_tokens);
    std::vector<cgr_bucket> got(CGR__MAX_BUCKETS);
    int32_t count = cgr__buckets_default_mixed(max_tokens, max_requests, got.data());
    ASSERT_LE(count, 200);
    int32_t size = 0;
    for (int32_t i = 0; i < count; i++) {
      int32_t power = 64;
      while (2 * power <= size)
        power *= 2;
      size = std::min(size + power / 8, max_tokens);
      ASSERT_EQ(got[size_t(i)].num_tokens, size) << i << " of " << max_tokens;
      ASSERT_EQ(got[size_t(i)].num_requests, std::min(size, max_requests));
    }
    ASSERT_EQ(size, max_tokens);
  }
}

// The index of the smallest bucket that holds n.
int32_t Smallest(const std::vector<int32_t> &buckets, int32_t n) {
  auto found = std::find_if(buckets.begin(), buckets.end(), [n](int32_t bucket) { return bucket >= n; });
  return found == buckets.end() ? -1 : static_cast<int32_t>(found - buckets.begin());
}

std::vector<int32_t> RandomBuckets(Random &random, int32_t max_requests) {
  std::set<int32_t> sizes;
  int32_t count = random.Pick32(1, std::min(max_requests, random.OneIn(4) ? CGR__MAX_BUCKETS : 12));
  while (static_cast<int32_t>(sizes.size()) < count)
    sizes.insert(random.Pick32(1, max_requests));
  return { sizes.begin(), sizes.end() };
}

TEST(Buckets, TheTableFindsTheSmallestThatHolds) {
  SeededRandom random;
  for (int round = 0; round < 200; round++) {
    int32_t max_requests = random.Pick32(1, round % 10 == 0 ? CGR__MAX_REQUESTS : 600);
    std::vector<int32_t> buckets = RandomBuckets(random, max_requests);
    Graphs g(CGR_MODE_FULL_DECODE_ONLY, max_requests, 1 << 20, buckets);
    ASSERT_EQ(g.graphs->count, static_cast<int32_t>(buckets.size()));
    for (int32_t n = 0; n <= max_requests; n++)
      ASSERT_EQ(g.graphs->uniform[0].of_requests[n], Smallest(buckets, n)) << n << " of " << max_requests;
    for (size_t i = 0; i < buckets.size(); i++)
      ExpectKey(g.Entry(i).key, MakeKey(CGR_KIND_FULL, buckets[i], buckets[i], 1));
  }
}

TEST(Buckets, KeysAreUniformOnesByQueryLengthThenMixedOnes) {
  const Lists lists = { 16, 40, { 1, 8, 10, 16 }, { 1, 4, 50 }, { { 8, 8 }, { 40, 2 }, { 40, 16 } } };
  const std::vector<cgr_key> uniform = { MakeKey(CGR_KIND_FULL, 1, 1, 1),   MakeKey(CGR_KIND_FULL, 8, 8, 1),
                                         MakeKey(CGR_KIND_FULL, 10, 10, 1), MakeKey(CGR_KIND_FULL, 16, 16, 1),
                                         MakeKey(CGR_KIND_FULL, 1, 4, 4),   MakeKey(CGR_KIND_FULL, 8, 32, 4),
                                         MakeKey(CGR_KIND_FULL, 10, 40, 4) }; // 16 * 4 and 50 are more than a step has
  const std::vector<cgr_key> mixed = { MakeKey(CGR_KIND_FULL, 8, 8, 0), MakeKey(CGR_KIND_FULL, 2, 40, 0),
                                       MakeKey(CGR_KIND_FULL, 16, 40, 0) };
  for (cgr_graph_mode mode : { CGR_MODE_NONE, CGR_MODE_FULL_DECODE_ONLY, CGR_MODE_FULL }) {
    SCOPED_TRACE(cgr_graph_mode_name(mode));
    std::vector<cgr_key> expected = mode == CGR_MODE_NONE ? std::vector<cgr_key>() : uniform;
    if (mode == CGR_MODE_FULL)
      expected.insert(expected.end(), mixed.begin(), mixed.end());
    Graphs g(mode, lists);
    ASSERT_EQ(g.graphs->count, static_cast<int32_t>(expected.size()));
    for (size_t i = 0; i < expected.size(); i++)
      ExpectKey(g.Entry(i).key, expected[i]);
  }
}

// Compared with a search: the fewest tokens that hold both, then the fewest requests.
TEST(Buckets, TheSmallestPairIsFound) {
  SeededRandom random;
  for (int round = 0; round < 200; round++) {
    Lists lists = { random.Pick32(1, 300), 0, { 1 }, { 1 }, {} };
    lists.max_tokens = random.Pick32(lists.max_requests, random.OneIn(5) ? CGR__MAX_TOKENS : 2000);
    std::set<std::pair<int32_t, int32_t>> pairs;
    for (int32_t i = random.Pick32(1, random.OneIn(4) ? CGR__MAX_BUCKETS : 12); i > 0; i--)
      pairs.insert({ random.Pick32(1, lists.max_tokens), random.Pick32(1, lists.max_requests) });
    for (const auto &[tokens, requests] : pairs)
      lists.mixed.push_back({ tokens, requests });
    Graphs g(CGR_MODE_FULL, lists);
    for (int i = 0; i < 2000; i++) {
      int32_t tokens = random.OneIn(2)
                           ? random.Pick32(0, lists.max_tokens)
                           : lists.mixed[size_t(random.Pick(0, int64_t(pairs.size()) - 1))].num_tokens + random.Pick32(-1, 1);
      int32_t requests = random.Pick32(0, lists.max_requests);
      auto holds = [&](const cgr_bucket &b) { return b.num_tokens >= tokens && b.num_requests >= requests; };
      auto found = std::find_if(lists.mixed.begin(), lists.mixed.end(), holds);
      int32_t index = cgr__mixed_find(g.graphs.get(), tokens, requests);
      ASSERT_EQ(index >= 0, found != lists.mixed.end()) << tokens << " tokens, " << requests << " requests";
      if (index >= 0)
        ExpectKey(g.Entry(size_t(index)).key, MakeKey(CGR_KIND_FULL, found->num_requests, found->num_tokens, 0));
    }
  }
}

// The default sizes of every query length end with the most requests that a step can have, or that were asked for.
TEST(Buckets, DefaultSizesOfEachLengthEndWithItsLimit) {
  SeededRandom random;
  for (int round = 0; round < 300; round++) {
    Lists lists = { random.Pick32(1, CGR__MAX_REQUESTS), 0, std::vector<int32_t>(CGR__MAX_BUCKETS) };
    lists.max_tokens = random.Pick32(lists.max_requests, random.OneIn(2) ? 2 * lists.max_requests : 20 * lists.max_requests);
    std::set<int32_t> lens;
    for (int32_t i = random.Pick32(1, CGR__MAX_QUERY_LENS); i > 0; i--)
      lens.insert(random.Pick32(1, std::min(lists.max_tokens, random.OneIn(5) ? lists.max_tokens : 16)));
    lists.query_lens.assign(lens.begin(), lens.end());
    const int32_t largest = random.OneIn(3) ? random.Pick32(1, lists.max_requests) : lists.max_requests;
    const std::vector<int32_t> sizes = Default(largest);
    lists.decode = sizes;
    lists.decode_complete = true;
    Graphs g(CGR_MODE_FULL_DECODE_ONLY, lists);
    std::vector<cgr_key> expected;
    for (int32_t query_len : lens) {
      std::set<int32_t> own = { std::min(largest, lists.max_tokens / query_len) };
      for (int32_t size : sizes)
        if (int64_t(size) * query_len <= lists.max_tokens)
          own.insert(size);
      for (int32_t size : own)
        expected.push_back(MakeKey(CGR_KIND_FULL, size, size * query_len, query_len));
    }
    ASSERT_EQ(g.graphs->count, int32_t(expected.size()));
    for (size_t i = 0; i < expected.size(); i++)
      ExpectKey(g.Entry(i).key, expected[i]);
    for (int32_t i = 0; i < g.graphs->num_uniform; i++) {
      const cgr__uniform_keys &keys = g.graphs->uniform[i];
      for (int32_t n = 0; n <= lists.max_requests; n++) {
        const int32_t index = keys.of_requests[n];
        const bool fits = n <= std::min(largest, lists.max_tokens / keys.query_len);
        ASSERT_EQ(index >= 0, fits) << n << " requests of " << keys.query_len;
        if (fits) {
          ASSERT_GE(g.Entry(size_t(keys.first + index)).key.num_requests, n);
          ASSERT_TRUE(index == 0 || g.Entry(size_t(keys.first + index - 1)).key.num_requests < n);
        }
      }
    }
  }
}

// ----------------------------------------------------------------------------------------------------------------- entries

TEST(Entries, StateFollowsFromCaptureRegionsAndLayout) {
  Graphs g(CGR_MODE_FULL_DECODE_ONLY, 8, 100, { 1, 2, 4, 8 });
  auto state = [&](size_t i) { return cgr__graph_state_of(g.graphs.get(), &g.Entry(i)); };
  g.Set(0, CGR_GRAPH_READY);
  g.Set(1, CGR_GRAPH_FAILED);
  g.Set(2, CGR_GRAPH_READY);
  EXPECT_EQ(state(0), CGR_GRAPH_READY);
  EXPECT_EQ(state(1), CGR_GRAPH_FAILED);
  EXPECT_EQ(state(3), CGR_GRAPH_EMPTY);
  EXPECT_EQ(cgr__graphs_num_usable(g.graphs.get()), 2);
  g.regions->epoch++;
  EXPECT_EQ(state(0), CGR_GRAPH_STALE);
  EXPECT_EQ(state(1), CGR_GRAPH_FAILED);
  EXPECT_EQ(state(3), CGR_GRAPH_EMPTY);
  EXPECT_EQ(cgr__graphs_num_usable(g.graphs.get()), 0);
  g.Set(0, CGR_GRAPH_READY);
  EXPECT_EQ(state(0), CGR_GRAPH_READY) << "captured again";
  EXPECT_EQ(cgr__graphs_num_usable(g.graphs.get()), 1);
  g.graphs->captured_hash++;
  EXPECT_EQ(state(0), CGR_GRAPH_STALE);
}

TEST(Entries, StatisticsAreThoseOfTheEntry) {
  Graphs g(CGR_MODE_FULL_DECODE_ONLY, 8, 100, { 3 });
  g.Set(0, CGR_GRAPH_STALE);
  g.Entry(0).records = 4;
  g.Entry(0).replays = 5;
  g.Entry(0).real_requests = 6;
  g.Entry(0).num_nodes = 7;
  g.Entry(0).device_bytes = 8;
  g.Entry(0).capture_ms = 9.5f;
  cgr_graph_stats stats = CGR_GRAPH_STATS_INIT;
  cgr__graph_get_stats(g.graphs.get(), &g.Entry(0), &stats);
  EXPECT_EQ(stats.size, sizeof stats);
  EXPECT_EQ(stats.state, CGR_GRAPH_STALE);
  EXPECT_EQ(stats.records, 4);
  EXPECT_EQ(stats.replays, 5u);
  EXPECT_EQ(stats.real_requests, 6u);
  EXPECT_EQ(stats.num_nodes, 7);
  EXPECT_EQ(stats.device_bytes, 8);
  EXPECT_EQ(stats.capture_ms, 9.5);
  ExpectKey(stats.key, MakeKey(CGR_KIND_FULL, 3, 3, 1));
}

} // namespace

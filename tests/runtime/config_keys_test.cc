// What a configuration wants captured: sizes of decode and of mixed steps, query lengths. What is just inside each bound is
// accepted and what is just outside is refused by name.
#include <cmath>
#include <set>
#include <tuple>

#include "cgr/inspect.h"
#include "tests/support/config_case.h"
#include "tests/support/seed.h"

namespace cgr_test {
namespace {

class ConfigBuckets : public ConfigTest {
protected:
  // Each list in the place of the good one.
  void RefusedBuckets(std::vector<int32_t> buckets, const std::vector<Found> &want) {
    Refused([&](GoodConfig &c) { Put(c, buckets); }, want);
  }
  void AcceptedBuckets(std::vector<int32_t> buckets) {
    Accepted([&](GoodConfig &c) { Put(c, buckets); });
  }
  static Found Outside(int i, int32_t bucket) {
    return Find(CGR_ERROR_INVALID_ARGUMENT, "decode_buckets[" + std::to_string(i) + "]",
                { "is " + std::to_string(bucket) + ",", "1 .. 8" });
  }
  static Found NotMore(int i, int32_t bucket, int32_t before) {
    return Find(CGR_ERROR_INVALID_ARGUMENT, "decode_buckets[" + std::to_string(i) + "]",
                { "is " + std::to_string(bucket) + ",", "more than the one before, " + std::to_string(before) });
  }

private:
  static void Put(GoodConfig &c, const std::vector<int32_t> &buckets) {
    c.config.decode_buckets = buckets.data();
    c.config.num_decode_buckets = int32_t(buckets.size());
  }
};

TEST_P(ConfigBuckets, LiveBetweenOneAndMaxRequests) {
  RefusedBuckets({ 0 }, { Outside(0, 0) });
  RefusedBuckets({ -1, 1 }, { Outside(0, -1) });
  RefusedBuckets({ 1, 9 }, { Outside(1, 9) });
  RefusedBuckets({ 0, 4, 9, 512 }, { Outside(0, 0), Outside(2, 9), Outside(3, 512) });
  AcceptedBuckets({ 1 });
  AcceptedBuckets({ 8 });
  AcceptedBuckets({ 1, 2, 3, 4, 5, 6, 7, 8 });
}

TEST_P(ConfigBuckets, Ascend) {
  RefusedBuckets({ 2, 1 }, { NotMore(1, 1, 2) });
  RefusedBuckets({ 1, 4, 4, 8 }, { NotMore(2, 4, 4) });
  RefusedBuckets({ 8, 4, 2, 1 }, { NotMore(1, 4, 8), NotMore(2, 2, 4), NotMore(3, 1, 2) });
}

TEST_P(ConfigBuckets, NumberIsLimited) {
  std::vector<int32_t> buckets;
  for (int32_t i = 1; i <= 600; i++)
    buckets.push_back(i);
  auto set = [&](GoodConfig &c, int64_t value) {
    c.config.max_requests = c.config.max_tokens = 600;
    c.config.max_rows = 0;
    c.config.decode_buckets = buckets.data();
    c.config.num_decode_buckets = int32_t(value);
  };
  Range(set, 0, 512, Find(CGR_ERROR_INVALID_ARGUMENT, "num_decode_buckets", { "expected 0 .. 512" }));
}

TEST_P(ConfigBuckets, MustBeGivenWhenTheyAreCounted) {
  Refused([](GoodConfig &c) { c.config.decode_buckets = nullptr; },
          { Find(CGR_ERROR_NULL_POINTER, "decode_buckets", { "NULL", "4" }) });
  Accepted([](GoodConfig &c) { c.config.decode_buckets = nullptr, c.config.num_decode_buckets = 0; });
}

TEST_P(ConfigBuckets, LargestOfTheDefaultSizes) {
  auto set = [](GoodConfig &c, int64_t value) {
    c.config.num_decode_buckets = 0;
    c.config.max_decode_bucket = int32_t(value);
  };
  Range(set, 1, 8, Find(CGR_ERROR_INVALID_ARGUMENT, "max_decode_bucket", { "expected 1 .. 8" }), Zero::kIsDefault);
}

// By default every number of requests has a size, and that of the limit has its own.
TEST_P(ConfigBuckets, DefaultSizesEndAtTheLimitOrWhereAsked) {
  for (int32_t asked : { 0, 512, 4096 }) {
    GoodConfig c(device_);
    c.config.max_requests = c.config.max_tokens = 4096;
    c.config.max_rows = c.config.num_decode_buckets = 0;
    c.config.max_decode_bucket = asked;
    c.config.graph_mode = CGR_MODE_FULL_DECODE_ONLY;
    cgr_runtime *runtime = nullptr;
    cgr_graph_stats stats = CGR_GRAPH_STATS_INIT;
    CGR_ASSERT_OK(cgr_runtime_create(&c.config, &runtime));
    CGR_EXPECT_OK(cgr_runtime_graph_stats(runtime, cgr_test::NumKeys(runtime) - 1, &stats));
    EXPECT_EQ(stats.key.num_requests, asked == 0 ? 4096 : asked);
    EXPECT_LE(cgr_test::NumKeys(runtime), 75) << "few enough to capture";
    CGR_EXPECT_OK(cgr_runtime_destroy(runtime));
  }
}

// The largest uniform step of each query length, and the largest mixed one, whatever the limits.
TEST_P(ConfigBuckets, DefaultSizesContainEveryLimit) {
  const uint64_t seed = Seed();
  SCOPED_TRACE(Repeat(seed));
  Random random(seed);
  for (int round = 0; round < 60; round++) {
    GoodConfig c(device_);
    std::set<int32_t> lens;
    c.config.max_requests = random.Pick32(1, random.OneIn(4) ? 4096 : 700);
    c.config.max_tokens = random.Pick32(c.config.max_requests, 8 * c.config.max_requests);
    while (lens.size() < size_t(std::min(3, c.config.max_tokens)))
      lens.insert(random.Pick32(1, std::min(9, c.config.max_tokens)));
    const std::vector<int32_t> query_lens(lens.begin(), lens.end());
    c.config.query_lens = query_lens.data();
    c.config.num_query_lens = int32_t(query_lens.size());
    c.config.max_rows = c.config.num_decode_buckets = 0;
    c.config.num_layers = 0;
    c.config.attention_support = CGR_SUPPORT_ALWAYS;
    c.config.graph_mode = CGR_MODE_FULL;
    std::set<std::tuple<int32_t, int32_t, int32_t>> keys;
    cgr_runtime *runtime = nullptr;
    CGR_ASSERT_OK(cgr_runtime_create(&c.config, &runtime));
    for (int32_t i = 0; i < cgr_test::NumKeys(runtime); i++) {
      cgr_graph_stats stats = CGR_GRAPH_STATS_INIT;
      CGR_EXPECT_OK(cgr_runtime_graph_stats(runtime, i, &stats));
      keys.insert({ stats.key.query_len, stats.key.num_requests, stats.key.num_tokens });
    }
    for (int32_t query_len : query_lens) {
      const int32_t most = std::min(c.config.max_requests, c.config.max_tokens / query_len);
      EXPECT_TRUE(keys.count({ query_len, most, most * query_len })) << most << " requests of " << query_len << " tokens";
    }
    EXPECT_TRUE(keys.count({ 0, c.config.max_requests, c.config.max_tokens }));
    CGR_EXPECT_OK(cgr_runtime_destroy(runtime));
  }
}

// Lists are kept as they are: no size is added.
TEST_P(ConfigBuckets, GivenSizesAreKept) {
  GoodConfig c(device_);
  const int32_t query_lens[] = { 1, 9 };
  c.config.query_lens = query_lens;
  c.config.num_query_lens = 2;
  c.config.graph_mode = CGR_MODE_FULL_DECODE_ONLY;
  c.config.attention_support = CGR_SUPPORT_ALWAYS;
  c.config.num_layers = 0;
  cgr_runtime *runtime = nullptr;
  CGR_ASSERT_OK(cgr_runtime_create(&c.config, &runtime));
  EXPECT_EQ(cgr_test::NumKeys(runtime), 4 + 3) << "7 requests of 9 tokens would fit, too";
  CGR_EXPECT_OK(cgr_runtime_destroy(runtime));
}

TEST_P(ConfigBuckets, MaxPaddingIsAFactor) {
  for (float good : { 0.0f, 1.0f, 1.5f, 1000.0f, 16777216.0f })
    Accepted([&](GoodConfig &c) { c.config.max_padding = good; });
  for (float bad : { -1.0f, 0.999f, 1e-30f, 16777218.0f, INFINITY, -INFINITY, NAN })
    Refused([&](GoodConfig &c) { c.config.max_padding = bad; },
            { Find(CGR_ERROR_INVALID_ARGUMENT, "max_padding", { "expected 1 .. 16777216, or 0 for 2" }) });
  Refused([](GoodConfig &c) { c.config.reserved_last = 3; },
          { Find(CGR_ERROR_NEWER_STRUCT, "reserved_last", { "is 3", "expected 0" }) });
}

// ------------------------------------------------------------------------------------------------------------ query lengths

class ConfigQueryLens : public ConfigTest {
protected:
  static std::function<void(GoodConfig &)> With(const std::vector<int32_t> &lens) {
    return [&lens](GoodConfig &c) {
      c.config.query_lens = lens.data();
      c.config.num_query_lens = int32_t(lens.size());
    };
  }
  void RefusedLens(const std::vector<int32_t> &lens, int i, const Words &words) {
    Refused(With(lens), { Find(CGR_ERROR_INVALID_ARGUMENT, "query_lens[" + std::to_string(i) + "]", words) });
  }
};

TEST_P(ConfigQueryLens, LiveBetweenOneAndMaxTokensAndAscend) {
  const int32_t most = GoodConfig(device_).config.max_tokens;
  const std::string range = "1 .. " + std::to_string(most);
  RefusedLens({ 0 }, 0, { "is 0", range });
  RefusedLens({ 1, most + 1 }, 1, { "is " + std::to_string(most + 1), range });
  RefusedLens({ 4, 4 }, 1, { "is 4", "more than the one before, 4" });
  RefusedLens({ 1, 5, 3 }, 2, { "is 3", "more than the one before, 5" });
  for (const std::vector<int32_t> &lens : { std::vector<int32_t>{ 1 }, { 5 }, { most }, { 1, 2, 3, 4, 5, 6, 7, 8 }, { 1, most } })
    Accepted(With(lens));
}

TEST_P(ConfigQueryLens, NumberIsLimitedAndTheyMustBeGiven) {
  static const int32_t lens[] = { 1, 2, 3, 4, 5, 6, 7, 8, 9 };
  auto set = [](GoodConfig &c, int64_t value) {
    c.config.query_lens = lens;
    c.config.num_query_lens = int32_t(value);
  };
  Range(set, 0, 8, Find(CGR_ERROR_INVALID_ARGUMENT, "num_query_lens", { "expected 0 .. 8" }));
  Refused([](GoodConfig &c) { c.config.num_query_lens = 2; }, { Find(CGR_ERROR_NULL_POINTER, "query_lens", { "NULL", "2" }) });
}

// ------------------------------------------------------------------------------------------------------------- mixed steps

class ConfigMixedBuckets : public ConfigTest {
protected:
  static std::function<void(GoodConfig &)> With(const std::vector<cgr_bucket> &pairs) {
    return [&pairs](GoodConfig &c) {
      c.config.mixed_buckets = pairs.data();
      c.config.num_mixed_buckets = int32_t(pairs.size());
    };
  }
  void RefusedPair(const std::vector<cgr_bucket> &pairs, int i, const std::string &member, const Words &words) {
    Refused(With(pairs), { Find(CGR_ERROR_INVALID_ARGUMENT, "mixed_buckets[" + std::to_string(i) + "]" + member, words) });
  }
};

TEST_P(ConfigMixedBuckets, LiveWithinTheLimits) {
  const cgr_config good = GoodConfig(device_).config;
  const std::string tokens = "1 .. " + std::to_string(good.max_tokens), requests = "1 .. " + std::to_string(good.max_requests);
  RefusedPair({ { 0, 1 } }, 0, ".num_tokens", { "is 0", tokens });
  RefusedPair({ { 1, 1 }, { good.max_tokens + 1, 1 } }, 1, ".num_tokens",
              { "is " + std::to_string(good.max_tokens + 1), tokens });
  RefusedPair({ { 8, 0 } }, 0, ".num_requests", { "is 0", requests });
  RefusedPair({ { 8, good.max_requests + 1 } }, 0, ".num_requests", { "is " + std::to_string(good.max_requests + 1), requests });
  for (const std::vector<cgr_bucket> &pairs :
       { std::vector<cgr_bucket>{ { 1, 1 } }, { { 1, good.max_requests } }, { { good.max_tokens, good.max_requests } } })
    Accepted(With(pairs));
}

TEST_P(ConfigMixedBuckets, AscendByTokensThenByRequests) {
  RefusedPair({ { 8, 2 }, { 7, 3 } }, 1, "", { "is 7 tokens and 3 requests", "8 and 2" });
  RefusedPair({ { 8, 2 }, { 8, 2 } }, 1, "", { "is 8 tokens and 2 requests", "8 and 2" });
  RefusedPair({ { 8, 2 }, { 8, 4 }, { 8, 3 } }, 2, "", { "is 8 tokens and 3 requests", "8 and 4" });
  const std::vector<cgr_bucket> pairs = { { 4, 4 }, { 8, 2 }, { 8, 8 }, { 16, 1 } };
  Accepted(With(pairs));
}

TEST_P(ConfigMixedBuckets, NumberIsLimitedAndTheyMustBeGiven) {
  std::vector<cgr_bucket> pairs;
  for (int32_t i = 1; i <= 600; i++)
    pairs.push_back({ i, 1 });
  auto set = [&](GoodConfig &c, int64_t value) {
    c.config.max_tokens = 600;
    c.config.mixed_buckets = pairs.data();
    c.config.num_mixed_buckets = int32_t(value);
  };
  Range(set, 0, 512, Find(CGR_ERROR_INVALID_ARGUMENT, "num_mixed_buckets", { "expected 0 .. 512" }));
  Refused([](GoodConfig &c) { c.config.num_mixed_buckets = 3; },
          { Find(CGR_ERROR_NULL_POINTER, "mixed_buckets", { "NULL", "3" }) });
}

// ---------------------------------------------------------------------------------------------------------------- variants

class ConfigVariants : public ConfigTest {
protected:
  static std::function<void(GoodConfig &)> With(const std::vector<cgr_variant> &variants) {
    return [&variants](GoodConfig &c) {
      c.config.variants = variants.data();
      c.config.num_variants = int32_t(variants.size());
    };
  }
  void RefusedVariant(const std::vector<cgr_variant> &variants, int i, const std::string &member, const Words &words,
                      cgr_status status = CGR_ERROR_INVALID_ARGUMENT) {
    Refused(With(variants), { Find(status, "variants[" + std::to_string(i) + "]." + member, words) });
  }
};

TEST_P(ConfigVariants, AreDeclaredOnce) {
  RefusedVariant({ { 3, 0, 1, 0 }, { 3, 0, 1, 0 } }, 1, "word", { "is 3", "variants[0] has already", "expected each word once" });
  RefusedVariant({ { 0, 0, 1, 0 }, { 5, 0, 1, 0 }, { 0, 0, 1, 0 } }, 2, "word", { "is 0", "variants[0]" });
  RefusedVariant({ { 3, 0, 1, 8 } }, 0, "length_set", { "is 8", "0 .. 0" });
  RefusedVariant({ { 3, 0, 7, 0 } }, 0, "captured", { "is 7", "0 .. 1" });
  for (const std::vector<cgr_variant> &good : { std::vector<cgr_variant>{ { 0, 0, 1, 0 } },
                                                { { 7, 0, 1, 0 } },
                                                { { UINT32_MAX, 4, 0, 0 }, { 4, 0, 1, 0 } },
                                                { { 0, 4, 0, 0 }, { 4, 0, 1, 0 } },
                                                { { 1, 2, 0, 0 }, { 2, 3, 1, 0 }, { 3, 0, 1, 0 } } })
    Accepted(With(good));
}

TEST_P(ConfigVariants, SupersetsLeadToAGraph) {
  RefusedVariant({ { 3, 4, 1, 0 } }, 0, "superset", { "is 4", "the word of another variant" });
  RefusedVariant({ { 3, 0, 0, 0 } }, 0, "captured", { "is 0 for 3", "to have graphs" });
  Refused(With({ { 3, 4, 0, 0 }, { 4, 0, 0, 0 } }), { Find(CGR_ERROR_INVALID_ARGUMENT, "variants[0].captured", { "3" }),
                                                      Find(CGR_ERROR_INVALID_ARGUMENT, "variants[1].captured", { "4" }) });
  RefusedVariant({ { 6, 6, 1, 0 } }, 0, "superset", { "is 6", "back to 6" });
  Refused(With({ { 3, 4, 1, 0 }, { 4, 3, 1, 0 }, { 5, 3, 1, 0 } }),
          { Find(CGR_ERROR_INVALID_ARGUMENT, "variants[0].superset", { "is 4", "back to 3", "no circle" }),
            Find(CGR_ERROR_INVALID_ARGUMENT, "variants[1].superset", { "is 3", "back to 4" }),
            Find(CGR_ERROR_INVALID_ARGUMENT, "variants[2].superset", { "is 3", "no circle" }) });
}

TEST_P(ConfigVariants, NumberIsLimitedAndTheyMustBeGiven) {
  std::vector<cgr_variant> variants;
  for (uint32_t i = 0; i <= 16; i++)
    variants.push_back({ i, 0, 1, 0 });
  auto set = [&](GoodConfig &c, int64_t value) {
    c.config.variants = variants.data();
    c.config.num_variants = int32_t(value);
  };
  Range(set, 0, 16, Find(CGR_ERROR_INVALID_ARGUMENT, "num_variants", { "expected 0 .. 16" }));
  const std::vector<cgr_variant> without(variants.begin() + 1, variants.end());
  Refused(With(without), { Find(CGR_ERROR_INVALID_ARGUMENT, "num_variants", { "is 16 without variant 0", "15" }) });
  Refused([](GoodConfig &c) { c.config.num_variants = 3; }, { Find(CGR_ERROR_NULL_POINTER, "variants", { "NULL", "3" }) });
}

CGR_INSTANTIATE_CONFIG_TEST(ConfigVariants);
CGR_INSTANTIATE_CONFIG_TEST(ConfigBuckets);
CGR_INSTANTIATE_CONFIG_TEST(ConfigQueryLens);
CGR_INSTANTIATE_CONFIG_TEST(ConfigMixedBuckets);

} // namespace
} // namespace cgr_test

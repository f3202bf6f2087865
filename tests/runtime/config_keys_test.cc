// What a configuration wants captured: sizes of decode and of mixed steps, query lengths, variants. What is just inside each
// bound is accepted and what is just outside is refused by name.
#include <cmath>
#include <set>
#include <tuple>

#include "cgr/inspect.h"
#include "tests/support/config_case.h"
#include "tests/support/seed.h"

namespace cgr_test {
namespace {

class ConfigKeys : public ConfigTest {};

// The good configuration with another list, which must live as long as what is returned.
Change Buckets(const std::vector<int32_t> &sizes) {
  return [sizes](Good &c) { c.config.decode_buckets = sizes.data(), c.config.num_decode_buckets = int32_t(sizes.size()); };
}
Change QueryLens(const std::vector<int32_t> &lens) {
  return [lens](Good &c) { c.config.query_lens = lens.data(), c.config.num_query_lens = int32_t(lens.size()); };
}
Change Mixed(const std::vector<cgr_bucket> &pairs) {
  return [pairs](Good &c) { c.config.mixed_buckets = pairs.data(), c.config.num_mixed_buckets = int32_t(pairs.size()); };
}
Change Variants(const std::vector<cgr_variant> &variants) {
  return [variants](Good &c) { c.config.variants = variants.data(), c.config.num_variants = int32_t(variants.size()); };
}

// -------------------------------------------------------------------------------------------------------------- decode steps

TEST_P(ConfigKeys, DecodeBucketsAreWithinMaxRequestsAndAscend) {
  const std::string outside = ", expected 1 .. 8 (at most max_requests)";
  EachRefused({
      { kArgument, "decode_buckets[0] is 0" + outside, Buckets({ 0 }) },
      { kArgument, "decode_buckets[0] is -1" + outside, Buckets({ -1, 1 }) },
      { kArgument, "decode_buckets[1] is 9" + outside, Buckets({ 1, 9 }) },
      { kArgument, "decode_buckets[3] is 9" + outside, [](Good &c) { c.buckets[3] = 9; } },
      { kArgument, "decode_buckets[1] is 1, ... more than the one before, 2", Buckets({ 2, 1 }) },
      { kArgument, "decode_buckets[2] is 4, ... more than the one before, 4", Buckets({ 1, 4, 4, 8 }) },
  });
  Refused(Buckets({ 0, 4, 9, 512 }), { { kArgument, "decode_buckets[0] is 0" + outside },
                                       { kArgument, "decode_buckets[2] is 9" + outside },
                                       { kArgument, "decode_buckets[3] is 512" + outside } });
  Refused(Buckets({ 8, 4, 2, 1 }), { { kArgument, "decode_buckets[1] is 4, ... more than the one before, 8" },
                                     { kArgument, "decode_buckets[2] is 2, ... more than the one before, 4" },
                                     { kArgument, "decode_buckets[3] is 1, ... more than the one before, 2" } });
  EachAccepted({ Buckets({ 1 }), Buckets({ 8 }), Buckets({ 1, 2, 3, 4, 5, 6, 7, 8 }) });
}

// Longer lists than may be, all of whose elements are good.
TEST_P(ConfigKeys, NumbersAreLimited) {
  std::vector<int32_t> sizes;
  std::vector<cgr_bucket> pairs;
  std::vector<cgr_variant> variants;
  for (int32_t i = 1; i <= 600; i++) {
    sizes.push_back(i);
    pairs.push_back({ i, 1 });
  }
  for (uint32_t i = 0; i <= 16; i++)
    variants.push_back({ i, 0, 1, 0 });
  const auto buckets = [&](Good &c, int64_t value) {
    c.config.max_requests = c.config.max_tokens = 600, c.config.max_rows = 0;
    c.config.decode_buckets = sizes.data(), c.config.num_decode_buckets = int32_t(value);
  };
  const auto largest = [](Good &c, int64_t value) {
    c.config.num_decode_buckets = 0, c.config.max_decode_bucket = int32_t(value);
  };
  const auto lens = [&](Good &c, int64_t value) { c.config.query_lens = sizes.data(), c.config.num_query_lens = int32_t(value); };
  const auto mixed = [&](Good &c, int64_t value) {
    c.config.max_tokens = 600, c.config.mixed_buckets = pairs.data();
    c.config.num_mixed_buckets = int32_t(value);
  };
  const auto declared = [&](Good &c, int64_t value) {
    c.config.variants = variants.data(), c.config.num_variants = int32_t(value);
  };
  EachField({
      Field(kArgument, "num_decode_buckets is #, expected 0 .. 512", buckets, { 0, 512 }, Outside(0, 512)),
      Field(kArgument, "max_decode_bucket is #, expected 1 .. 8", largest, { 0, 1, 8 }, Outside(0, 8)), // 0: the default
      Field(kArgument, "num_query_lens is #, expected 0 .. 8", lens, { 0, 8 }, Outside(0, 8)),
      Field(kArgument, "num_mixed_buckets is #, expected 0 .. 512", mixed, { 0, 512 }, Outside(0, 512)),
      Field(kArgument, "num_variants is #, expected 0 .. 16", declared, { 0, 16 }, Outside(0, 16)),
  });
  const std::vector<cgr_variant> without(variants.begin() + 1, variants.end());
  Refused(Variants(without), kArgument, "num_variants is 16 without variant 0 ... 15");
}

// By default every number of requests has a size, and that of the limit has its own.
TEST_P(ConfigKeys, DefaultSizesEndAtTheLimitOrWhereAsked) {
  for (int32_t asked : { 0, 512, 4096 }) {
    Good c(device_);
    c.config.max_requests = c.config.max_tokens = 4096, c.config.max_rows = c.config.num_decode_buckets = 0;
    c.config.max_decode_bucket = asked, c.config.graph_mode = CGR_MODE_FULL_DECODE_ONLY;
    OnRuntime(c.config, [&](cgr_runtime *runtime) {
      const cgr_graph_stats stats = GraphStatsOf(runtime, NumKeys(runtime) - 1);
      EXPECT_EQ(stats.key.num_requests, asked == 0 ? 4096 : asked);
      EXPECT_LE(NumKeys(runtime), 75) << "few enough to capture";
    });
  }
}

// The largest uniform step of each query length, and the largest mixed one, whatever the limits.
TEST_P(ConfigKeys, DefaultSizesContainEveryLimit) {
  SeededRandom random;
  for (int round = 0; round < 60; round++) {
    Good c(device_);
    std::set<int32_t> lens;
    c.config.max_requests = random.Pick32(1, random.OneIn(4) ? 4096 : 700);
    c.config.max_tokens = random.Pick32(c.config.max_requests, 8 * c.config.max_requests);
    while (lens.size() < size_t(std::min(3, c.config.max_tokens)))
      lens.insert(random.Pick32(1, std::min(9, c.config.max_tokens)));
    const std::vector<int32_t> query_lens(lens.begin(), lens.end());
    c.config.query_lens = query_lens.data(), c.config.num_query_lens = int32_t(query_lens.size());
    c.config.max_rows = c.config.num_decode_buckets = 0, c.config.num_layers = 0;
    c.config.attention_support = CGR_SUPPORT_ALWAYS, c.config.graph_mode = CGR_MODE_FULL;
    std::set<std::tuple<int32_t, int32_t, int32_t>> keys;
    OnRuntime(c.config, [&](cgr_runtime *runtime) {
      for (int32_t i = 0; i < NumKeys(runtime); i++) {
        const cgr_graph_stats stats = GraphStatsOf(runtime, i);
        keys.insert({ stats.key.query_len, stats.key.num_requests, stats.key.num_tokens });
      }
    });
    for (int32_t query_len : query_lens) {
      const int32_t most = std::min(c.config.max_requests, c.config.max_tokens / query_len);
      EXPECT_TRUE(keys.count({ query_len, most, most * query_len })) << most << " requests of " << query_len << " tokens";
    }
    EXPECT_TRUE(keys.count({ 0, c.config.max_requests, c.config.max_tokens }));
  }
}

// Lists are kept as they are: no size is added.
TEST_P(ConfigKeys, GivenSizesAreKept) {
  Good c(device_);
  const int32_t query_lens[] = { 1, 9 };
  c.config.query_lens = query_lens, c.config.num_query_lens = 2;
  c.config.graph_mode = CGR_MODE_FULL_DECODE_ONLY, c.config.attention_support = CGR_SUPPORT_ALWAYS;
  c.config.num_layers = 0;
  OnRuntime(c.config,
            [](cgr_runtime *runtime) { EXPECT_EQ(NumKeys(runtime), 4 + 3) << "7 requests of 9 tokens would fit, too"; });
}

TEST_P(ConfigKeys, MaxPaddingIsAFactor) {
  for (float good : { 0.0f, 1.0f, 1.5f, 1000.0f, 16777216.0f })
    Accepted([&](Good &c) { c.config.max_padding = good; });
  for (float bad : { -1.0f, 0.999f, 1e-30f, 16777218.0f, INFINITY, -INFINITY, NAN })
    Refused([&](Good &c) { c.config.max_padding = bad; }, kArgument, "max_padding ... expected 1 .. 16777216, or 0 for 2");
}

// ---------------------------------------------------------------------------------------------- query lengths, mixed steps

TEST_P(ConfigKeys, QueryLensAreWithinMaxTokensAndAscend) {
  const std::string outside = ", expected 1 .. 64 (at most max_tokens)";
  EachRefused({
      { kArgument, "query_lens[0] is 0" + outside, QueryLens({ 0 }) },
      { kArgument, "query_lens[0] is 65" + outside, QueryLens({ 65 }) },
      { kArgument, "query_lens[1] is 65" + outside, QueryLens({ 1, 65 }) },
      { kArgument, "query_lens[1] is 4 ... more than the one before, 4", QueryLens({ 4, 4 }) },
      { kArgument, "query_lens[2] is 3 ... more than the one before, 5", QueryLens({ 1, 5, 3 }) },
  });
  EachAccepted(
      { QueryLens({ 1 }), QueryLens({ 5 }), QueryLens({ 64 }), QueryLens({ 1, 2, 3, 4, 5, 6, 7, 8 }), QueryLens({ 1, 64 }) });
}

TEST_P(ConfigKeys, MixedBucketsAreWithinTheLimitsAndAscend) {
  const std::string tokens = ", expected 1 .. 64 (at most max_tokens)", requests = ", expected 1 .. 8";
  EachRefused({
      { kArgument, "mixed_buckets[0].num_tokens is 0" + tokens, Mixed({ { 0, 1 } }) },
      { kArgument, "mixed_buckets[0].num_tokens is 65" + tokens, Mixed({ { 65, 8 } }) },
      { kArgument, "mixed_buckets[1].num_tokens is 65" + tokens, Mixed({ { 1, 1 }, { 65, 1 } }) },
      { kArgument, "mixed_buckets[0].num_requests is 0" + requests, Mixed({ { 8, 0 } }) },
      { kArgument, "mixed_buckets[0].num_requests is 9" + requests, Mixed({ { 8, 9 } }) },
      { kArgument, "mixed_buckets[1] is 7 tokens and 3 requests ... 8 and 2", Mixed({ { 8, 2 }, { 7, 3 } }) },
      { kArgument, "mixed_buckets[1] is 8 tokens and 2 requests ... 8 and 2", Mixed({ { 8, 2 }, { 8, 2 } }) },
      { kArgument, "mixed_buckets[2] is 8 tokens and 3 requests ... 8 and 4", Mixed({ { 8, 2 }, { 8, 4 }, { 8, 3 } }) },
  });
  EachAccepted(
      { Mixed({ { 1, 1 } }), Mixed({ { 1, 8 } }), Mixed({ { 64, 8 } }), Mixed({ { 4, 4 }, { 8, 2 }, { 8, 8 }, { 16, 1 } }) });
}

// ---------------------------------------------------------------------------------------------------------------- variants

TEST_P(ConfigKeys, VariantsAreDeclaredOnce) {
  EachRefused({
      { kArgument, "variants[1].word is 3 ... variants[0] has already ... expected each word once",
        Variants({ { 3, 0, 1, 0 }, { 3, 0, 1, 0 } }) },
      { kArgument, "variants[2].word is 0 ... variants[0]", Variants({ { 0, 0, 1, 0 }, { 5, 0, 1, 0 }, { 0, 0, 1, 0 } }) },
      { kArgument, "variants[0].length_set is 8 ... 0 .. 0", Variants({ { 3, 0, 1, 8 } }) },
      { kArgument, "variants[0].captured is 7 ... 0 .. 1", Variants({ { 3, 0, 7, 0 } }) },
  });
  EachAccepted({ Variants({ { 0, 0, 1, 0 } }), Variants({ { 7, 0, 1, 0 } }),
                 Variants({ { UINT32_MAX, 4, 0, 0 }, { 4, 0, 1, 0 } }), Variants({ { 0, 4, 0, 0 }, { 4, 0, 1, 0 } }),
                 Variants({ { 1, 2, 0, 0 }, { 2, 3, 1, 0 }, { 3, 0, 1, 0 } }) });
}

TEST_P(ConfigKeys, SupersetsOfVariantsLeadToAGraph) {
  EachRefused({
      { kArgument, "variants[0].superset is 4 ... the word of another variant", Variants({ { 3, 4, 1, 0 } }) },
      { kArgument, "variants[0].captured is 0 for 3 ... to have graphs", Variants({ { 3, 0, 0, 0 } }) },
      { kArgument, "variants[0].superset is 6 ... back to 6", Variants({ { 6, 6, 1, 0 } }) },
  });
  Refused(Variants({ { 3, 4, 0, 0 }, { 4, 0, 0, 0 } }),
          { { kArgument, "variants[0].captured ... 3" }, { kArgument, "variants[1].captured ... 4" } });
  Refused(Variants({ { 3, 4, 1, 0 }, { 4, 3, 1, 0 }, { 5, 3, 1, 0 } }),
          { { kArgument, "variants[0].superset is 4 ... back to 3 ... no circle" },
            { kArgument, "variants[1].superset is 3 ... back to 4" },
            { kArgument, "variants[2].superset is 3 ... no circle" } });
}

CGR_INSTANTIATE_CONFIG_TEST(ConfigKeys);

} // namespace
} // namespace cgr_test

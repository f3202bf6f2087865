// The limits, modes and buckets of a configuration: what is just inside each is accepted and what is just outside is refused by
// name, with nothing else; and what is reserved for later versions.
#include "tests/support/config_case.h"

namespace cgr_test {
namespace {

class ConfigLimits : public ConfigTest {
protected:
  static Found Outside(const std::string &field, int64_t low, int64_t high) {
    return Find(CGR_ERROR_INVALID_ARGUMENT, field, { "expected " + std::to_string(low) + " .. " + std::to_string(high) });
  }
};

TEST_P(ConfigLimits, MaxRequests) {
  auto set = [](GoodConfig &c, int64_t value) {
    c.config.max_requests = int32_t(value);
    c.config.max_rows = 0;
    c.config.max_tokens = 4096;
    c.config.num_decode_buckets = 1;
  };
  Range(set, 1, 4096, Outside("max_requests", 1, 4096));
}

TEST_P(ConfigLimits, MaxRows) {
  auto set = [](GoodConfig &c, int64_t value) { c.config.max_rows = int32_t(value); };
  Range(set, 8, 1 << 20, Outside("max_rows", 8, 1 << 20), Zero::kIsDefault);
}

TEST_P(ConfigLimits, MaxTokens) {
  auto set = [](GoodConfig &c, int64_t value) { c.config.max_tokens = int32_t(value); };
  Range(set, 8, 1 << 24, Outside("max_tokens", 8, 1 << 24));
}

// The caches of a pool that large would lie on one another.
TEST_P(ConfigLimits, MaxSeqLen) {
  auto set = [](GoodConfig &c, int64_t value) {
    c.config.max_seq_len = int32_t(value);
    c.groups[0].num_pages = (1 << 26) + 2;
    c.config.num_layers = 0;
  };
  Range(set, 1, 1 << 30, Outside("max_seq_len", 1, 1 << 30));
}

TEST_P(ConfigLimits, RingDepth) {
  auto set = [](GoodConfig &c, int64_t value) { c.config.ring_depth = int32_t(value); };
  Range(set, 2, 64, Outside("ring_depth", 2, 64), Zero::kIsDefault);
}

TEST_P(ConfigLimits, MaxChanges) {
  auto set = [](GoodConfig &c, int64_t value) { c.config.max_changes = int32_t(value); };
  Range(set, 1, 1 << 20, Outside("max_changes", 1, 1 << 20), Zero::kIsDefault);
}

TEST_P(ConfigLimits, NumParts) {
  auto set = [](GoodConfig &c, int64_t value) { c.config.num_parts = int32_t(value); };
  Range(set, 0, 4096, Outside("num_parts", 0, 4096));
}

TEST_P(ConfigLimits, WaitTimeout) {
  auto set = [](GoodConfig &c, int64_t value) { c.config.wait_timeout_ms = int32_t(value); };
  Range(set, 1, INT32_MAX, Outside("wait_timeout_ms", 1, INT32_MAX), Zero::kIsDefault);
}

TEST_P(ConfigLimits, NumLayers) {
  std::vector<cgr_layer> layers;
  GoodConfig good(device_);
  for (int i = 0; i < 1024; i++) {
    good.PutK(0, GoodConfig::Address(2 * i));
    good.PutV(0, GoodConfig::Address(2 * i + 1));
    layers.push_back(good.layers[0]);
  }
  auto set = [&](GoodConfig &c, int64_t value) {
    c.config.layers = value == 0 ? nullptr : layers.data();
    c.config.num_layers = int32_t(value);
  };
  Range(set, 0, 1024, Outside("num_layers", 0, 1024));
}

TEST_P(ConfigLimits, NumBuffers) {
  std::vector<cgr_buffer_decl> buffers;
  std::vector<std::string> names;
  for (int i = 0; i < 64; i++)
    names.push_back("buffer " + std::to_string(i));
  GoodConfig good(device_);
  for (int i = 0; i < 64; i++) {
    buffers.push_back(good.buffers[0]);
    buffers.back().name = names[size_t(i)].c_str();
  }
  auto set = [&](GoodConfig &c, int64_t value) {
    c.config.buffers = value == 0 ? nullptr : buffers.data();
    c.config.num_buffers = int32_t(value);
  };
  Range(set, 0, 64, Outside("num_buffers", 0, 64));
}

// ----------------------------------------------------------------------------------------------------------------- modes

TEST_P(ConfigLimits, EnumsAreChecked) {
  const Found mode = Find(CGR_ERROR_INVALID_ENUM, "graph_mode", { "expected 0 .. 5" });
  const Found support = Find(CGR_ERROR_INVALID_ENUM, "attention_support", { "expected 0 .. 4" });
  Range([](GoodConfig &c, int64_t value) { c.config.graph_mode = int32_t(value); }, CGR_MODE_DEFAULT, CGR_MODE_FULL_AND_PIECEWISE,
        mode);
  Range([](GoodConfig &c, int64_t value) { c.config.attention_support = int32_t(value); }, CGR_SUPPORT_DEFAULT,
        CGR_SUPPORT_ALWAYS, support);
}

// What a later version will take is refused, and what stands for its absence accepted.
TEST_P(ConfigLimits, ReservedCountsAreRefusedByName) {
  struct Reserved {
    const char *field;
    int32_t cgr_config::*member;
    int32_t most;
  };
  for (const Reserved &r :
       { Reserved{ "num_backends", &cgr_config::num_backends, 0 }, Reserved{ "num_programs", &cgr_config::num_programs, 1 },
         Reserved{ "num_lanes", &cgr_config::num_lanes, 1 }, Reserved{ "num_draft_tokens", &cgr_config::num_draft_tokens, 0 },
         Reserved{ "max_steps", &cgr_config::max_steps, 0 }, Reserved{ "num_query_lens", &cgr_config::num_query_lens, 0 },
         Reserved{ "num_mixed_buckets", &cgr_config::num_mixed_buckets, 0 } })
    Range([&](GoodConfig &c, int64_t value) { c.config.*r.member = int32_t(value); }, 0, r.most,
          Find(CGR_ERROR_UNSUPPORTED, r.field, { "this version" }));
}

// The lists themselves too, as an engine would give them.
TEST_P(ConfigLimits, ReservedListsAreRefusedByName) {
  static const cgr_backend backend = CGR_BACKEND_INIT;
  static const int32_t query_lens[] = { 1 };
  static const cgr_bucket mixed[] = { { 64, 8 } };
  Refused([](GoodConfig &c) { c.config.backends = &backend, c.config.num_backends = 1; },
          { Find(CGR_ERROR_UNSUPPORTED, "num_backends", { "is 1", "expected 0" }) });
  Refused([](GoodConfig &c) { c.config.query_lens = query_lens, c.config.num_query_lens = 1; },
          { Find(CGR_ERROR_UNSUPPORTED, "num_query_lens", { "is 1", "expected 0" }) });
  Refused([](GoodConfig &c) { c.config.mixed_buckets = mixed, c.config.num_mixed_buckets = 1; },
          { Find(CGR_ERROR_UNSUPPORTED, "num_mixed_buckets", { "is 1", "expected 0" }) });
  Accepted([](GoodConfig &c) { c.config.backends = &backend, c.config.query_lens = query_lens, c.config.mixed_buckets = mixed; });
}

TEST_P(ConfigLimits, ReservedFieldsAreRefused) {
  Refused([](GoodConfig &c) { c.config.reserved = 1; }, { Find(CGR_ERROR_NEWER_STRUCT, "reserved", { "is 1", "expected 0" }) });
  Refused([](GoodConfig &c) { c.config.reserved = -2; }, { Find(CGR_ERROR_NEWER_STRUCT, "reserved", { "is -2", "expected 0" }) });
}

TEST_P(ConfigLimits, AnythingIsBatchInvariantButZero) {
  for (int32_t invariant : { 0, 1, -1, INT32_MAX })
    Accepted([&](GoodConfig &c) { c.config.batch_invariant = invariant; });
}

TEST_P(ConfigLimits, AnythingIsStrictButZero) {
  for (int32_t strict : { 0, 1, -1, INT32_MAX })
    Accepted([&](GoodConfig &c) { c.config.strict = strict; });
}

// --------------------------------------------------------------------------------------------------------------- buckets

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

// The default of 512 holds for more requests than that, and an engine may ask for more.
TEST_P(ConfigBuckets, DefaultSizesEndAt512OrWhereAsked) {
  for (int32_t asked : { 0, 4096 }) {
    GoodConfig c(device_);
    c.config.max_requests = c.config.max_tokens = 4096;
    c.config.max_rows = c.config.num_decode_buckets = 0;
    c.config.max_decode_bucket = asked;
    cgr_runtime *runtime = nullptr;
    cgr_graph_stats stats = CGR_GRAPH_STATS_INIT;
    CGR_ASSERT_OK(cgr_runtime_create(&c.config, &runtime));
    CGR_EXPECT_OK(cgr_runtime_graph_stats(runtime, cgr_runtime_num_keys(runtime) - 1, &stats));
    EXPECT_EQ(stats.key.num_requests, asked == 0 ? 512 : asked);
    CGR_EXPECT_OK(cgr_runtime_destroy(runtime));
  }
}

CGR_INSTANTIATE_CONFIG_TEST(ConfigLimits);
CGR_INSTANTIATE_CONFIG_TEST(ConfigBuckets);

} // namespace
} // namespace cgr_test

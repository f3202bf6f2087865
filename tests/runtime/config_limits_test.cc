// The limits and modes of a configuration: what is just inside each is accepted and what is just outside is refused by
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

// The caches of a pool that large would overlap.
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

TEST_P(ConfigLimits, FlightDepth) {
  auto set = [](GoodConfig &c, int64_t value) { c.config.flight_depth = int32_t(value); };
  Range(set, 0, 1 << 20, Outside("flight_depth", 0, 1 << 20));
}

TEST_P(ConfigLimits, TimeEvery) {
  for (int32_t good : { 0, 1, 2, 4, 8, 64, 128 })
    Accepted([&](GoodConfig &c) { c.config.time_every = good; });
  for (int32_t bad : { -1, 3, 6, 127, 256, INT32_MIN, INT32_MAX })
    Refused(
        [&](GoodConfig &c) { c.config.time_every = bad; },
        { Find(CGR_ERROR_INVALID_ARGUMENT, "time_every", { "is " + std::to_string(bad), "expected a power of two, 1 .. 128" }) });
}

TEST_P(ConfigLimits, Labels) {
  auto set = [](GoodConfig &c, int64_t value) { c.config.labels = int32_t(value); };
  Range(set, 0, 1, Outside("labels", 0, 1));
}

TEST_P(ConfigLimits, Timing) {
  auto set = [](GoodConfig &c, int64_t value) { c.config.timing = int32_t(value); };
  Range(set, 0, 2, Outside("timing", 0, 2));
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
  const Found wait = Find(CGR_ERROR_INVALID_ENUM, "wait_mode", { "expected 0 .. 3" });
  Range([](GoodConfig &c, int64_t value) { c.config.graph_mode = int32_t(value); }, CGR_MODE_DEFAULT, CGR_MODE_FULL_AND_PIECEWISE,
        mode);
  Range([](GoodConfig &c, int64_t value) { c.config.attention_support = int32_t(value); }, CGR_SUPPORT_DEFAULT,
        CGR_SUPPORT_ALWAYS, support);
  Range([](GoodConfig &c, int64_t value) { c.config.wait_mode = int32_t(value); }, CGR_WAIT_DEFAULT, CGR_WAIT_BLOCK, wait);
}

// Values for a later version are refused, and those that stand for their absence are accepted.
TEST_P(ConfigLimits, ReservedCountsAreRefusedByName) {
  struct Reserved {
    const char *field;
    int32_t cgr_config::*member;
    int32_t most;
  };
  for (const Reserved &r :
       { Reserved{ "num_programs", &cgr_config::num_programs, 1 }, Reserved{ "num_lanes", &cgr_config::num_lanes, 1 },
         Reserved{ "num_draft_tokens", &cgr_config::num_draft_tokens, 0 }, Reserved{ "max_steps", &cgr_config::max_steps, 0 } })
    Range([&](GoodConfig &c, int64_t value) { c.config.*r.member = int32_t(value); }, 0, r.most,
          Find(CGR_ERROR_UNSUPPORTED, r.field, { "this version" }));
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

CGR_INSTANTIATE_CONFIG_TEST(ConfigLimits);

} // namespace
} // namespace cgr_test

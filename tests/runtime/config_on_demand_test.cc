// On-demand buffers that a configuration or a backend is refused, and how much memory the granted ones take.
#include "cgr/names.h"
#include "tests/support/config_case.h"

namespace cgr_test {
namespace {

constexpr uint64_t kFirst = CGR_ON_DEMAND(CGR_BUFFER_KV_INDICES), kLast = CGR_ON_DEMAND(CGR_BUFFER_PREFILL_KV_LAST_PAGE_LEN);
constexpr cgr_buffer kPrefills[] = { CGR_BUFFER_PREFILL_QUERY_START_LOC, CGR_BUFFER_PREFILL_KV_INDPTR,
                                     CGR_BUFFER_PREFILL_KV_LAST_PAGE_LEN };

class ConfigOnDemand : public ConfigTest {
protected:
  // Layer 1 is the first backend's; the second is not used.
  Change With(Change change) {
    return [this, change](GoodConfig &c) {
      for (int i = 0; i < 2; i++) {
        backends_[i] = CGR_BACKEND_INIT;
        backends_[i].name = i == 0 ? "used" : "unused";
        backends_[i].support = [](void *, const cgr_device_info *, const cgr_group *) { return CGR_SUPPORT_ALWAYS; };
        backends_[i].record = [](void *, cgr_recorder *, const cgr_attention *) { return CGR_OK; };
      }
      c.config.backends = backends_;
      c.config.num_backends = 2;
      c.layers[1].backend = 1;
      change(c);
    };
  }
  uint64_t DeviceBytes(const Change &change) {
    GoodConfig c(device_);
    change(c);
    cgr_memory_sizes sizes = CGR_MEMORY_SIZES_INIT;
    CGR_EXPECT_OK(cgr_runtime_memory(&c.config, &sizes));
    return sizes.device_bytes;
  }
  cgr_backend backends_[2];
};

TEST_P(ConfigOnDemand, UnknownBitsAreRefused) {
  for (uint64_t bad : { 2 * kLast, uint64_t{ 1 } << 63, ~uint64_t{ 0 } & ~(2 * kLast - 1) }) {
    Refused([=](GoodConfig &c) { c.config.on_demand = kFirst | bad; },
            { Find(CGR_ERROR_INVALID_ENUM, "on_demand", { "CGR_ON_DEMAND", "prefill_kv_last_page_len)" }) });
    for (int i = 0; i < 2; i++) // also of one that no layer names
      Refused(With([=](GoodConfig &) { backends_[i].on_demand = bad; }),
              { Find(CGR_ERROR_INVALID_ENUM, "backends[" + std::to_string(i) + "].on_demand", { "CGR_ON_DEMAND" }) });
  }
}

TEST_P(ConfigOnDemand, PrefillsNeedAReorderThresholdInUse) {
  for (cgr_buffer buffer : kPrefills) {
    const Found refusal = Find(CGR_ERROR_INVALID_ARGUMENT, "on_demand", { cgr_buffer_name(buffer), "reorder_threshold" });
    Refused([=](GoodConfig &c) { c.config.on_demand = kFirst | CGR_ON_DEMAND(buffer); }, { refusal });
    Refused(With([=](GoodConfig &) { backends_[0].on_demand = CGR_ON_DEMAND(buffer); }),
            { Find(CGR_ERROR_INVALID_ARGUMENT, "backends[0].on_demand", { cgr_buffer_name(buffer), "reorder_threshold" }) });
    Refused(With([=](GoodConfig &c) { // of a backend that no layer names
              c.config.on_demand = CGR_ON_DEMAND(buffer);
              backends_[1].reorder_threshold = 4;
            }),
            { refusal });
    Accepted(With([=](GoodConfig &c) {
      c.config.on_demand = CGR_ON_DEMAND(buffer);
      backends_[0].reorder_threshold = 4;
    }));
    Accepted(With([=](GoodConfig &) { backends_[1].on_demand = CGR_ON_DEMAND(buffer); })); // not asked for
  }
}

TEST_P(ConfigOnDemand, RunningSumsOfTokensHave32Bits) {
  auto large = [](GoodConfig &c, cgr_buffer buffer, int32_t max_seq_len) {
    c.config.num_layers = 0;
    c.groups[0].num_pages = int64_t{ 1 } << 29;
    c.config.max_rows = c.config.max_requests = 4;
    c.config.max_seq_len = max_seq_len;
    c.config.num_decode_buckets = 3;
    c.config.on_demand = CGR_ON_DEMAND(buffer);
  };
  for (cgr_buffer buffer : { CGR_BUFFER_KV_START_LOC, CGR_BUFFER_CONTEXT_START_LOC }) {
    Refused([=](GoodConfig &c) { large(c, buffer, 1 << 29); },
            { Find(CGR_ERROR_INVALID_ARGUMENT, "on_demand", { cgr_buffer_name(buffer), "4 x 536870912", "2^31" }) });
    Accepted([=](GoodConfig &c) { large(c, buffer, (1 << 29) - 1); });
  }
  Accepted([=](GoodConfig &c) { large(c, CGR_BUFFER_CONTEXT_LENS, 1 << 29); });
}

// R = 8 requests of P = 32 pages: the size of each, in lines of 256 bytes, counted once whoever asks.
TEST_P(ConfigOnDemand, MemoryIsTakenForWhatIsAskedForAlone) {
  auto lines = [](uint64_t bytes) { return (bytes + 255) / 256 * 256; };
  const uint64_t none = DeviceBytes(With([](GoodConfig &) {}));
  for (int buffer = CGR_BUFFER_KV_INDICES; buffer < CGR_BUFFER_COUNT_; buffer++) {
    const bool pages = buffer == CGR_BUFFER_KV_INDICES || buffer == CGR_BUFFER_BLOCK_TABLE;
    const uint64_t extents = buffer == CGR_BUFFER_BLOCK_TABLE ? lines(8 * 4) : 0;
    const uint64_t want = none + (pages ? lines(8 * 32 * 4) : lines(9 * 4)) + extents;
    for (int who = 0; who < 3; who++)
      EXPECT_EQ(DeviceBytes(With([=](GoodConfig &c) {
                  backends_[0].reorder_threshold = 1;
                  c.config.on_demand = who != 1 ? CGR_ON_DEMAND(buffer) : 0;
                  backends_[0].on_demand = who != 0 ? CGR_ON_DEMAND(buffer) : 0;
                })),
                want)
          << cgr_buffer_name(cgr_buffer(buffer));
    EXPECT_EQ(DeviceBytes(With([=](GoodConfig &) { backends_[1].on_demand = CGR_ON_DEMAND(buffer); })), none) << "not in use";
  }
}

// Structs of callers that do not know the field.
TEST_P(ConfigOnDemand, OlderStructsAskForNothing) {
  Accepted(With([=](GoodConfig &c) {
    c.config.size = uint32_t(offsetof(cgr_config, on_demand));
    c.config.on_demand = ~uint64_t{ 0 };
  }));
}

CGR_INSTANTIATE_CONFIG_TEST(ConfigOnDemand);

} // namespace
} // namespace cgr_test

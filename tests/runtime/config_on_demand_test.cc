// On-demand buffers that a configuration or a backend is refused, and how much memory the granted ones take.
#include "cgr/names.h"
#include "tests/support/config_case.h"

namespace cgr_test {
namespace {

constexpr uint64_t kFirst = CGR_ON_DEMAND(CGR_BUFFER_KV_INDICES), kLast = CGR_ON_DEMAND(CGR_BUFFER_PREFILL_BLOCK_TABLE);
constexpr cgr_buffer kPrefills[] = { CGR_BUFFER_PREFILL_QUERY_START_LOC,  CGR_BUFFER_PREFILL_KV_INDPTR,
                                     CGR_BUFFER_PREFILL_KV_LAST_PAGE_LEN, CGR_BUFFER_PREFILL_SEQ_LENS,
                                     CGR_BUFFER_PREFILL_KV_START_LOC,     CGR_BUFFER_PREFILL_BLOCK_TABLE };

class ConfigOnDemand : public ConfigTest {
protected:
  // Layer 1 is the first backend's; the second is not used.
  void SetUp() override {
    ConfigTest::SetUp();
    more_ = [](Good &c) { c.AddBackends(), c.layers[1].backend = 1; };
  }
  uint64_t DeviceBytes(const Change &change) {
    Good c(device_, more_);
    change(c);
    cgr_memory_sizes sizes = CGR_MEMORY_SIZES_INIT;
    CGR_EXPECT_OK(cgr_runtime_memory(&c.config, &sizes));
    return sizes.device_bytes;
  }
};

TEST_P(ConfigOnDemand, UnknownBitsAreRefused) {
  const std::string names = "CGR_ON_DEMAND of buffers from kv_indices to prefill_block_table";
  for (uint64_t bad : { 2 * kLast, uint64_t{ 1 } << 63, ~uint64_t{ 0 } & ~(2 * kLast - 1) })
    EachRefused({
        { kEnum, "on_demand ... " + names, [=](Good &c) { c.config.on_demand = kFirst | bad; } },
        { kEnum, "backends[0].on_demand ... " + names, [=](Good &c) { c.backends[0].on_demand = bad; } },
        { kEnum, "backends[1].on_demand ... " + names, [=](Good &c) { c.backends[1].on_demand = bad; } }, // of no layer
    });
  Refused([](Good &c) { c.config.on_demand = UINT64_MAX; }, // of prefills, without a threshold, too
          { { kEnum, "on_demand ... " + names }, { kArgument, "on_demand ... reorder_threshold" } });
}

TEST_P(ConfigOnDemand, PrefillsNeedAReorderThresholdInUse) {
  for (cgr_buffer buffer : kPrefills) {
    const uint64_t bit = CGR_ON_DEMAND(buffer);
    const std::string says = std::string("on_demand ... ") + cgr_buffer_name(buffer) + " ... reorder_threshold";
    EachRefused({
        { kArgument, says, [=](Good &c) { c.config.on_demand = kFirst | bit; } },
        { kArgument, says, [=](Good &c) { c.config.on_demand = bit, c.config.num_backends = 0, c.layers[1].backend = 0; },
          "no backend" },
        { kArgument, "backends[0]." + says, [=](Good &c) { c.backends[0].on_demand = bit; } },
        { kArgument, says, [=](Good &c) { c.config.on_demand = bit, c.backends[1].reorder_threshold = 4; }, "not in use" },
    });
    Accepted([=](Good &c) { c.config.on_demand = bit, c.backends[0].reorder_threshold = 4; });
    Accepted([=](Good &c) { c.backends[1].on_demand = bit; }); // not asked for
  }
}

TEST_P(ConfigOnDemand, RunningSumsOfTokensHave32Bits) {
  auto large = [](cgr_buffer buffer, int32_t max_seq_len) {
    return [=](Good &c) {
      c.config.num_layers = 0;
      c.groups[0].num_pages = int64_t{ 1 } << 29;
      c.config.max_rows = c.config.max_requests = 4, c.config.max_seq_len = max_seq_len;
      c.config.num_decode_buckets = 3, c.config.on_demand = CGR_ON_DEMAND(buffer);
    };
  };
  for (cgr_buffer buffer : { CGR_BUFFER_KV_START_LOC, CGR_BUFFER_CONTEXT_START_LOC }) {
    Refused(large(buffer, 1 << 29), kArgument,
            std::string("on_demand ... ") + cgr_buffer_name(buffer) + " ... 4 x 536870912 ... 2^31");
    Accepted(large(buffer, (1 << 29) - 1));
  }
  const Change prefills = large(CGR_BUFFER_PREFILL_KV_START_LOC, 1 << 29); // there is no layer, and so no threshold
  Refused(prefills, { { kArgument, "on_demand asks for prefill_kv_start_loc ... reorder_threshold" },
                      { kArgument, "on_demand asks for prefill_kv_start_loc, a sum of up to 4 x 536870912" } });
  Accepted(large(CGR_BUFFER_CONTEXT_LENS, 1 << 29));
}

// R = 8 requests of P = 32 pages: the size of each, in lines of 256 bytes, counted once whoever asks.
TEST_P(ConfigOnDemand, MemoryIsTakenForWhatIsAskedForAlone) {
  auto lines = [](uint64_t bytes) { return (bytes + 255) / 256 * 256; };
  const uint64_t none = DeviceBytes([](Good &) {});
  for (int buffer = CGR_BUFFER_KV_INDICES; buffer <= CGR_BUFFER_PREFILL_BLOCK_TABLE; buffer++) {
    const bool table = buffer == CGR_BUFFER_BLOCK_TABLE || buffer == CGR_BUFFER_PREFILL_BLOCK_TABLE;
    const bool pages = buffer == CGR_BUFFER_KV_INDICES || table;
    const uint64_t extents = table ? lines(8 * 4) : 0;
    const uint64_t want = none + (pages ? lines(8 * 32 * 4) : lines(9 * 4)) + extents;
    const uint64_t bit = CGR_ON_DEMAND(buffer);
    for (int who = 0; who < 3; who++)
      EXPECT_EQ(DeviceBytes([=](Good &c) {
                  c.backends[0].reorder_threshold = 1;
                  c.config.on_demand = who != 1 ? bit : 0;
                  c.backends[0].on_demand = who != 0 ? bit : 0;
                }),
                want)
          << cgr_buffer_name(cgr_buffer(buffer));
    EXPECT_EQ(DeviceBytes([=](Good &c) { c.backends[1].on_demand = bit; }), none) << "not in use";
  }
}

// Structs of callers that do not know the field.
TEST_P(ConfigOnDemand, OlderStructsAskForNothing) {
  Accepted([](Good &c) {
    c.config.size = uint32_t(offsetof(cgr_config, on_demand));
    c.config.on_demand = ~uint64_t{ 0 };
  });
}

CGR_INSTANTIATE_CONFIG_TEST(ConfigOnDemand);

} // namespace
} // namespace cgr_test

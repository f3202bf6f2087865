// cgr_validate itself: several findings at once and their order, lists that are too short, configurations that cannot be read,
// and the device.
#include <algorithm>

#include "tests/support/config_case.h"

namespace cgr_test {
namespace {

class ConfigFindings : public ConfigTest {
protected:
  // Wrong in five places, from the head of the struct to its last array.
  static void Break(GoodConfig &c) {
    c.config.num_lanes = 2;
    c.config.ring_depth = 65;
    c.config.decode_buckets = nullptr;
    c.groups[0].num_pages = 2;
    c.layers[1].out_dtype = CGR_DTYPE_FP32;
  }
  static std::vector<Found> Breaks() {
    return { Find(CGR_ERROR_INVALID_ARGUMENT, "ring_depth", { "is 65", "2 .. 64" }),
             Find(CGR_ERROR_UNSUPPORTED, "num_lanes", { "is 2", "0 or 1" }),
             FindInGroup(0, CGR_ERROR_INVALID_ARGUMENT, "num_pages", { "is 2", "3 .. 2147483647" }),
             FindInLayer(1, CGR_ERROR_UNSUPPORTED, "out_dtype", { "is fp32", "expected bf16" }),
             Find(CGR_ERROR_NULL_POINTER, "decode_buckets", { "NULL", "an array of 4" }) };
  }
};

TEST_P(ConfigFindings, AllFiveAreFoundInOrder) { Refused(Break, Breaks()); }

// The list holds as many findings as there is room for; the count is always complete.
TEST_P(ConfigFindings, ListsThatAreTooShortAreFilledAndNotPassed) {
  GoodConfig c(device_);
  Break(c);
  const std::vector<Found> want = Breaks();
  for (int32_t capacity = 0; capacity <= 7; capacity++) {
    SCOPED_TRACE(capacity);
    FindingList list;
    int32_t count = -1;
    ExpectMessage(cgr_validate(&c.config, nullptr, list.data(), capacity, &count), CGR_ERROR_INVALID_ARGUMENT,
                  { "cgr_validate", "ring_depth is 65", "and 4 more)" }); // not: see cgr_validate
    EXPECT_EQ(count, 5);
    for (int32_t i = 0; i < std::min(capacity, 5); i++)
      ExpectFinding(list[i], want[size_t(i)], "finding " + std::to_string(i));
    list.ExpectUntouchedFrom(std::min(capacity, 5));
  }
}

TEST_P(ConfigFindings, NoListIsNeededToCount) {
  GoodConfig c(device_), good(device_);
  int32_t count = -1;
  Break(c);
  CGR_EXPECT(CGR_ERROR_INVALID_ARGUMENT, cgr_validate(&c.config, nullptr, nullptr, 0, &count));
  EXPECT_EQ(count, 5);
  CGR_EXPECT_OK(cgr_validate(&good.config, nullptr, nullptr, 0, &count));
  EXPECT_EQ(count, 0);
}

TEST_P(ConfigFindings, ListsThatAreNoneAreRefused) {
  GoodConfig good(device_);
  FindingList list;
  int32_t count = -1;
  ExpectMessage(cgr_validate(&good.config, nullptr, nullptr, 1, &count), CGR_ERROR_INVALID_ARGUMENT,
                { "findings is NULL, expected room for 1" });
  ExpectMessage(cgr_validate(&good.config, nullptr, list.data(), -1, &count), CGR_ERROR_INVALID_ARGUMENT, { "capacity is -1" });
  ExpectMessage(cgr_validate(&good.config, nullptr, list.data(), 1, nullptr), CGR_ERROR_NULL_POINTER, { "count", "NULL" });
  list.ExpectUntouchedFrom(0);
}

TEST_P(ConfigFindings, OneAloneIsNotCountedInTheMessage) {
  GoodConfig c(device_);
  int32_t count = 0;
  c.config.ring_depth = 1;
  CGR_EXPECT(CGR_ERROR_INVALID_ARGUMENT, cgr_validate(&c.config, nullptr, nullptr, 0, &count));
  EXPECT_EQ(std::string(cgr_last_message()).find("more"), std::string::npos) << cgr_last_message();
}

// No finding is withheld because something else cannot be measured.
TEST_P(ConfigFindings, AnEmptyConfigurationLacksEverything) {
  cgr_config empty = CGR_CONFIG_INIT;
  empty.device_handle = device_;
  RefusedAsItIs(empty, { Find(CGR_ERROR_INVALID_ARGUMENT, "max_requests", { "is 0", "1 .. 4096" }),
                         Find(CGR_ERROR_INVALID_ARGUMENT, "max_tokens", { "is 0", "1 .. 16777216" }),
                         Find(CGR_ERROR_INVALID_ARGUMENT, "max_seq_len", { "is 0", "1 .. 1073741824" }),
                         Find(CGR_ERROR_INVALID_ARGUMENT, "num_groups", { "is 0", "expected 1 .. 4" }),
                         Find(CGR_ERROR_NULL_POINTER, "groups", { "NULL" }) });
}

TEST_P(ConfigFindings, BadLimitsHideNothingBehindThem) {
  Refused(
      [](GoodConfig &c) {
        c.config.max_requests = 0;
        c.config.max_seq_len = -1;
        c.groups[0].page_size = 20;
        c.layers[0].num_q_heads = 3;
        c.layers[2].kv_source = 2;
        c.buckets[2] = 2;
        c.buffers[2].dtype = 0;
      },
      { Find(CGR_ERROR_INVALID_ARGUMENT, "max_requests", { "is 0" }),
        Find(CGR_ERROR_INVALID_ARGUMENT, "max_seq_len", { "is -1" }),
        FindInGroup(0, CGR_ERROR_UNSUPPORTED, "page_size", { "is 20" }),
        FindInLayer(0, CGR_ERROR_INVALID_ARGUMENT, "num_q_heads", { "is 3", "2" }),
        Find(CGR_ERROR_INVALID_ARGUMENT, "decode_buckets[2]", { "is 2", "before, 2" }),
        FindInBuffer(2, CGR_ERROR_INVALID_ENUM, "dtype", { "is 0" }) });
}

// More than a list of a usual length holds.
TEST_P(ConfigFindings, ThereIsNoLimitToHowMany) {
  std::vector<cgr_layer> layers;
  std::vector<Found> want;
  GoodConfig c(device_);
  for (int i = 0; i < 1024; i++)
    layers.push_back(c.layers[1]), layers.back().flags = 8, layers.back().window_left = -1;
  c.config.layers = layers.data();
  c.config.num_layers = 1024;
  for (int32_t capacity : { 0, 5 }) {
    FindingList list;
    int32_t count = 0;
    ExpectMessage(cgr_validate(&c.config, nullptr, list.data(), capacity, &count), CGR_ERROR_INVALID_ENUM,
                  { "layers[0].flags", "and " + std::to_string(2 * 1024 + 2 * 1023 - 1) + " more" });
    EXPECT_EQ(count, 2 * 1024 + 2 * 1023); // two of its own each, and both views over those of the first
    list.ExpectUntouchedFrom(capacity);
  }
}

// ------------------------------------------------------------------------------------------------- what cannot be read

TEST_P(ConfigFindings, OfAConfigurationThatCannotBeReadThereIsOne) {
  auto refused = [&](cgr_status status, const Words &words, const Change &change) {
    Refused(
        [&](GoodConfig &c) {
          Break(c);
          change(c);
        },
        { Find(status, "config", words) });
  };
  for (uint32_t bad : { 0u, 3u, 0xffffffffu })
    refused(CGR_ERROR_INVALID_STRUCT, { "size is " + std::to_string(bad) }, [&](GoodConfig &c) { c.config.size = bad; });
  refused(CGR_ERROR_INVALID_STRUCT, { "magic is 0,", "0x63677231" }, [](GoodConfig &c) { c.config.magic = 0; });
  refused(CGR_ERROR_INVALID_STRUCT, { "magic is 0x63677232" }, [](GoodConfig &c) { c.config.magic++; });
  // Until 1.0, headers of another minor version have other structs; then, those of another major version.
  const uint32_t step = CGR_VERSION_MAJOR == 0 ? 100 : 10000, first = CGR_VERSION / step * step;
  for (uint32_t bad : { 0u, 1u, first - 1, first - step, first + step, first + 10 * step, 0xffffffffu })
    refused(CGR_ERROR_INVALID_STRUCT, { "version is " + std::to_string(bad) }, [&](GoodConfig &c) { c.config.version = bad; });
  for (uint32_t good : { first, first + 1, first + step - 1 })
    Accepted([&](GoodConfig &c) { c.config.version = good; });
}

// It is not named by two calls in two ways.
TEST_P(ConfigFindings, OfAConfigurationThatCannotBeReadAllCallsSayTheSame) {
  GoodConfig c(device_);
  int32_t count = 0;
  cgr_runtime *runtime = nullptr;
  cgr_memory_sizes sizes = CGR_MEMORY_SIZES_INIT;
  auto say_the_same = [&](const cgr_config &config) {
    CGR_EXPECT(CGR_ERROR_INVALID_STRUCT, cgr_runtime_create(&config, &runtime));
    const std::string told = cgr_last_message(), message = told.substr(told.find(": ")); // after the function
    CGR_EXPECT(CGR_ERROR_INVALID_STRUCT, cgr_validate(&config, nullptr, nullptr, 0, &count));
    EXPECT_EQ(cgr_last_message(), "cgr_validate" + message);
    CGR_EXPECT(CGR_ERROR_INVALID_STRUCT, cgr_runtime_memory(&config, &sizes));
    EXPECT_EQ(cgr_last_message(), "cgr_runtime_memory" + message);
  };
  cgr_config bad = c.config;
  bad.magic = 1;
  say_the_same(bad);
  bad = c.config;
  bad.size = 3;
  say_the_same(bad);
}

TEST_P(ConfigFindings, OfNoConfigurationThereIsOne) {
  FindingList list;
  int32_t count = -1;
  cgr_runtime *runtime = reinterpret_cast<cgr_runtime *>(16);
  cgr_memory_sizes sizes = CGR_MEMORY_SIZES_INIT;
  ExpectMessage(cgr_validate(nullptr, device_, list.data(), 5, &count), CGR_ERROR_NULL_POINTER, { "config is NULL" });
  EXPECT_EQ(count, 1);
  ExpectFinding(list[0], Find(CGR_ERROR_NULL_POINTER, "config", { "NULL" }), "finding 0");
  list.ExpectUntouchedFrom(1);
  ExpectMessage(cgr_runtime_create(nullptr, &runtime), CGR_ERROR_NULL_POINTER, { "config is NULL" });
  EXPECT_EQ(runtime, nullptr);
  ExpectMessage(cgr_runtime_memory(nullptr, &sizes), CGR_ERROR_NULL_POINTER, { "config is NULL" });
  GoodConfig good(device_);
  ExpectMessage(cgr_runtime_create(&good.config, nullptr), CGR_ERROR_NULL_POINTER, { "runtime is NULL" });
}

// An element of an array that cannot be read is one finding among others.
TEST_P(ConfigFindings, ElementsThatCannotBeReadAreNamed) {
  Refused([](GoodConfig &c) { c.groups[0].size = 3, c.config.ring_depth = 1; },
          { Find(CGR_ERROR_INVALID_ARGUMENT, "ring_depth", { "is 1" }),
            { CGR_ERROR_INVALID_STRUCT, -1, 0, "groups[0]", { "size is 3" } } });
  Refused([](GoodConfig &c) { c.layers[1].size = 8; },
          { { CGR_ERROR_INVALID_STRUCT, 1, -1, "layers[1]", { "size is 8", "as in layers[0]" } } });
  Refused([](GoodConfig &c) { c.buffers[2].size = 0, c.buffers[0].dtype = 0; },
          { FindInBuffer(0, CGR_ERROR_INVALID_ENUM, "dtype", { "is 0" }),
            Find(CGR_ERROR_INVALID_STRUCT, "buffers[2]", { "size is 0", "as in buffers[0]" }) });
}

// ---------------------------------------------------------------------------------------------------------------- device

TEST_P(ConfigFindings, DeviceIsTheOneGivenOrTheOneNamed) {
  FindingList list;
  int32_t count = -1;
  GoodConfig c(device_);
  c.config.device_handle = nullptr;
  c.config.device = "no such device";
  CGR_EXPECT_OK(cgr_validate(&c.config, device_, list.data(), 5, &count));
  EXPECT_EQ(count, 0);
  RefusedAsItIs(c.config, { Find(CGR_ERROR_INVALID_ARGUMENT, "device", { "cannot be opened", "no such device", "cuda:N" }) });
  c.config.device = "cuda:4000";
  RefusedAsItIs(c.config, { Find(CGR_ERROR_UNSUPPORTED, "device", { "cuda:4000" }) });
  c.config.device = GetParam().name.c_str();
  AcceptedAsItIs(c.config);
}

TEST_P(ConfigFindings, HandlesThatAreNoDeviceAreRefused) {
  alignas(64) static unsigned char junk[4096] = { 1 };
  Refused([](GoodConfig &c) { c.config.device_handle = reinterpret_cast<cgr_device *>(junk); },
          { Find(CGR_ERROR_INVALID_ARGUMENT, "device_handle", { "0x", "open device" }) });
}

// Which configurations are refused depends on the device, and the given device decides.
TEST_P(ConfigFindings, AreThoseOfTheDeviceGiven) {
  GoodConfig c(device_);
  FindingList list;
  int32_t count = -1;
  for (cgr_kv_view *view : { &c.layers[1].k, &c.layers[1].v }) // a GPU's kernels take no fp32
    CGR_EXPECT_OK(cgr_kv_view_make(CGR_LAYOUT_NHD, view->base, CGR_DTYPE_FP32, c.kPageSize, c.kHeads, c.kDim, view));
  cgr_device *host = nullptr;
  CGR_ASSERT_OK(cgr_device_open("host", nullptr, &host));
  CGR_EXPECT_OK(cgr_validate(&c.config, host, list.data(), 5, &count));
  EXPECT_EQ(count, 0);
  cgr_status status = cgr_validate(&c.config, nullptr, list.data(), 5, &count);
  EXPECT_EQ(status, GetParam().IsCuda() ? CGR_ERROR_UNSUPPORTED : CGR_OK);
  EXPECT_EQ(count > 0, GetParam().IsCuda()) << count;
  CGR_EXPECT_OK(cgr_device_close(host));
}

CGR_INSTANTIATE_CONFIG_TEST(ConfigFindings);

} // namespace
} // namespace cgr_test

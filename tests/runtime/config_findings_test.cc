// cgr_validate itself: several findings at once and their order, lists that are too short, configurations that cannot be read,
// and the device.
#include <algorithm>

#include "tests/support/config_case.h"

namespace cgr_test {
namespace {

class ConfigFindings : public ConfigTest {
protected:
  // Wrong in five places, from the head of the struct to its last array.
  static void Break(Good &c) {
    c.config.num_lanes = 2, c.config.ring_depth = 65, c.config.decode_buckets = nullptr;
    c.groups[0].num_pages = 2;
    c.layers[1].out_dtype = CGR_DTYPE_FP32;
  }
  static std::vector<Found> Breaks() {
    return { { kArgument, "ring_depth is 65 ... 2 .. 64" },
             { kUnsupported, "num_lanes is 2 ... 0 or 1" },
             { kArgument, "groups[0].num_pages is 2 ... 3 .. 2147483647" },
             { kUnsupported, "layers[1].out_dtype is fp32 ... expected bf16" },
             { kNull, "decode_buckets is NULL ... an array of 4" } };
  }
};

TEST_P(ConfigFindings, AllFiveAreFoundInOrder) { Refused(Break, Breaks()); }

// The list holds as many findings as there is room for; the count is always complete.
TEST_P(ConfigFindings, ListsThatAreTooShortAreFilledAndNotPassed) {
  Good c(device_);
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
  Good c(device_), good(device_);
  int32_t count = -1;
  Break(c);
  CGR_EXPECT(CGR_ERROR_INVALID_ARGUMENT, cgr_validate(&c.config, nullptr, nullptr, 0, &count));
  EXPECT_EQ(count, 5);
  CGR_EXPECT_OK(cgr_validate(&good.config, nullptr, nullptr, 0, &count));
  EXPECT_EQ(count, 0);
}

TEST_P(ConfigFindings, ListsThatAreNoneAreRefused) {
  Good good(device_);
  FindingList list;
  int32_t count = -1;
  ExpectMessage(cgr_validate(&good.config, nullptr, nullptr, 1, &count), CGR_ERROR_NULL_POINTER,
                { "findings is NULL, expected room for 1" });
  ExpectMessage(cgr_validate(&good.config, nullptr, list.data(), -1, &count), CGR_ERROR_INVALID_ARGUMENT, { "capacity is -1" });
  ExpectMessage(cgr_validate(&good.config, nullptr, list.data(), 1, nullptr), CGR_ERROR_NULL_POINTER, { "count", "NULL" });
  list.ExpectUntouchedFrom(0);
}

TEST_P(ConfigFindings, OneAloneIsNotCountedInTheMessage) {
  Good c(device_);
  int32_t count = 0;
  c.config.ring_depth = 1;
  CGR_EXPECT(CGR_ERROR_INVALID_ARGUMENT, cgr_validate(&c.config, nullptr, nullptr, 0, &count));
  EXPECT_EQ(std::string(cgr_last_message()).find("more"), std::string::npos) << cgr_last_message();
}

// No finding is withheld because something else cannot be measured.
TEST_P(ConfigFindings, AnEmptyConfigurationLacksEverything) {
  cgr_config empty = CGR_CONFIG_INIT;
  empty.device_handle = device_;
  RefusedAsItIs(empty, { { kArgument, "max_requests is 0 ... 1 .. 4096" },
                         { kArgument, "max_tokens is 0 ... 1 .. 16777216" },
                         { kArgument, "max_seq_len is 0 ... 1 .. 1073741824" },
                         { kArgument, "num_groups is 0 ... expected 1 .. 4" },
                         { kNull, "groups is NULL" } });
}

// More than a list of a usual length holds.
TEST_P(ConfigFindings, ThereIsNoLimitToHowMany) {
  std::vector<cgr_layer> layers;
  std::vector<Found> want;
  Good c(device_);
  for (int i = 0; i < 1024; i++)
    layers.push_back(c.layers[1]), layers.back().flags = 8, layers.back().window_left = -1;
  c.config.layers = layers.data(), c.config.num_layers = 1024;
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
  // Until 1.0, headers of another minor version have other structs; then, those of another major version.
  const int64_t step = CGR_VERSION_MAJOR == 0 ? 100 : 10000, first = CGR_VERSION / step * step;
  const auto broken = [](Set set) { return [set](Good &c, int64_t value) { Break(c), set(c, value); }; };
  const char size[] = "config size is #, expected a multiple of 8, 8 to 4096: use CGR_CONFIG_INIT";
  EachField({
      Field(kStruct, size, broken(Of(&cgr_config::size)), {}, { 0, 3, 201, 0xffffffff }),
      Field(kStruct, "config magic is #, ... 0x63677231: use CGR_CONFIG_INIT", broken(Of(&cgr_config::magic)), {}, { 0 }),
      Field(kStruct, "config magic is 0x63677232", broken(Of(&cgr_config::magic)), {}, { 0x63677232 }),
      Field(kStruct, "config version is #", broken(Of(&cgr_config::version)), {},
            { 0, 1, first - 1, first - step, first + step, first + 10 * step, 0xffffffff }),
      Field(CGR_OK, "version", Of(&cgr_config::version), { first, first + 1, first + step - 1 }, {}),
  });
}

// A later minor version's configuration is longer, and may set what this one does not know: its number says all.
TEST_P(ConfigFindings, OfALaterVersionIsRefusedByItsNumber) {
  struct Longer {
    cgr_config config;
    int64_t more[2];
  } longer = { Good(device_).config, { 0, 1 } };
  int32_t count = 0;
  longer.config.size = sizeof longer;
  ExpectMessage(cgr_validate(&longer.config, nullptr, nullptr, 0, &count), CGR_ERROR_NEWER_STRUCT, { "config" });
  longer.config.version = CGR_VERSION + 100;
  ExpectMessage(cgr_validate(&longer.config, nullptr, nullptr, 0, &count), CGR_ERROR_INVALID_STRUCT,
                { "config: version is " + std::to_string(CGR_VERSION + 100), "compile with the headers of cgr" });
  longer.config.magic++; // no configuration at all
  ExpectMessage(cgr_validate(&longer.config, nullptr, nullptr, 0, &count), CGR_ERROR_NEWER_STRUCT, { "config" });
}

// It is not named by two calls in two ways.
TEST_P(ConfigFindings, OfAConfigurationThatCannotBeReadAllCallsSayTheSame) {
  Good c(device_);
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
  ExpectReported("cgr_validate", cgr_validate(nullptr, device_, list.data(), 5, &count), kNull, { "config is NULL, expected" });
  EXPECT_EQ(count, 1);
  ExpectFinding(list[0], { kNull, "config is NULL" }, "finding 0");
  list.ExpectUntouchedFrom(1);
  ExpectReported("cgr_validate", cgr_validate(nullptr, nullptr, nullptr, 0, &count), kNull, { "config is NULL, expected" });
  ExpectReported("cgr_runtime_create", cgr_runtime_create(nullptr, &runtime), kNull, { "config is NULL, expected" });
  EXPECT_EQ(runtime, nullptr);
  ExpectReported("cgr_runtime_memory", cgr_runtime_memory(nullptr, &sizes), kNull, { "config is NULL, expected" });
  Good good(device_);
  ExpectMessage(cgr_runtime_create(&good.config, nullptr), CGR_ERROR_NULL_POINTER, { "runtime is NULL" });
}

// An element of an array that cannot be read is one finding among others.
TEST_P(ConfigFindings, ElementsThatCannotBeReadAreNamed) {
  const std::string later = ", expected " + std::to_string(sizeof(cgr_layer)) + " as in layers[0]: use CGR_LAYER_INIT";
  EachRefused({
      { kStruct, "groups[0] size is 0 ... CGR_GROUP_INIT", [](Good &c) { c.groups[0].size = 0; } },
      { kStruct, "layers[1] size is 0" + later, [](Good &c) { c.layers[1].size = 0; } },
      { kStruct, "layers[1] size is 8" + later, [](Good &c) { c.layers[1].size = 8; } },
      { kStruct, "buffers[2] size is 0 ... as in buffers[0]: use CGR_BUFFER_DECL_INIT", [](Good &c) { c.buffers[2].size = 0; } },
  });
  Refused([](Good &c) { c.groups[0].size = 3, c.config.ring_depth = 1; },
          { { kArgument, "ring_depth is 1" }, { kStruct, "groups[0] size is 3" } });
  for (int32_t count : { -1, 5, INT32_MAX }) // the array may have any length
    Refused([=](Good &c) { c.config.num_groups = count, c.groups[0].size = 3; }, kArgument,
            "num_groups is " + std::to_string(count));
  // Where the others are is not known: they have no finding of their own.
  Refused([](Good &c) { c.layers[0].size = 0; }, { { kStruct, "layers[0] size is 0 ... CGR_LAYER_INIT" } });
  Refused([](Good &c) { c.buffers[2].size = 0, c.buffers[0].dtype = 0; },
          { { kEnum, "buffers[0].dtype is 0" }, { kStruct, "buffers[2] size is 0 ... as in buffers[0]" } });
}

// ---------------------------------------------------------------------------------------------------------------- device

TEST_P(ConfigFindings, DeviceIsTheOneGivenOrTheOneNamed) {
  FindingList list;
  int32_t count = -1;
  Good c(device_);
  c.config.device_handle = nullptr, c.config.device = "no such device";
  CGR_EXPECT_OK(cgr_validate(&c.config, device_, list.data(), 5, &count));
  EXPECT_EQ(count, 0);
  RefusedAsItIs(c.config, { { kArgument, "device ... cannot be opened ... no such device ... cuda:N" } });
  c.config.device = "cuda:4000";
  RefusedAsItIs(c.config, { { kUnsupported, "device ... cuda:4000" } });
  c.config.device = GetParam().name.c_str();
  AcceptedAsItIs(c.config);
}

TEST_P(ConfigFindings, HandlesThatAreNoDeviceAreRefused) {
  alignas(64) static unsigned char junk[4096] = { 1 };
  Refused([](Good &c) { c.config.device_handle = reinterpret_cast<cgr_device *>(junk); }, kArgument,
          "device_handle ... 0x ... open device");
}

// Which configurations are refused depends on the device, and the given device decides.
TEST_P(ConfigFindings, AreThoseOfTheDeviceGiven) {
  Good c(device_);
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

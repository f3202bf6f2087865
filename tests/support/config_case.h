// A configuration that is valid as it stands, and what must be found in it after a small change.
#pragma once

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "tests/support/devices.h"
#include "tests/support/mistake.h"

namespace cgr_test {

// A finding that must be there: "layers[1].head_dim is 0 ... 1 .. 65536" is the field and parts of the text.
struct Found {
  Found(cgr_status expected, const std::string &says) : status(expected), words(PartsOf(says)) {
    field = words[0].substr(0, words[0].find(' '));
    words[0].erase(0, field.size() + 1);
    std::sscanf(field.c_str(), "layers[%d]", &layer);
    std::sscanf(field.c_str(), "groups[%d]", &group);
  }
  cgr_status status;
  Words words;
  std::string field;
  int32_t layer = -1, group = -1; // -1: none
};
// Of a group, although the field is the configuration's.
inline Found FoundInGroup(int32_t group, cgr_status status, const std::string &says) {
  Found found(status, says);
  found.group = group;
  return found;
}

inline cgr_graph_support AlwaysSupported(void *, const cgr_device_info *, const cgr_group *) { return CGR_SUPPORT_ALWAYS; }
inline cgr_status RecordNothing(void *, cgr_recorder *, const cgr_attention *) { return CGR_OK; }

// Three layers in one group; the last uses the cache of the first. Every device accepts it. Nothing reads the caches, whose
// addresses are made up.
struct GoodConfig {
  enum { kPages = 64, kPageSize = 16, kHeads = 2, kDim = 64, kLayerBytes = 1 << 21 };

  // `more`: what a test adds to each of its configurations.
  explicit GoodConfig(cgr_device *device, const std::function<void(GoodConfig &)> &more = nullptr) {
    groups[0].num_pages = kPages;
    for (int i = 0; i < 3; i++) {
      layers[i].num_q_heads = 4;
      layers[i].num_kv_heads = kHeads;
      layers[i].head_dim = kDim;
    }
    layers[2].kv_source = 1;
    for (int i = 0; i < 2; i++) {
      PutK(i, Address(2 * i));
      PutV(i, Address(2 * i + 1));
    }
    for (int i = 0; i < 3; i++) {
      buffers[i].dimension = CGR_DIMENSION_TOKENS + i;
      buffers[i].dtype = CGR_DTYPE_FP32;
      buffers[i].name = names[i];
    }
    config.device_handle = device;
    config.groups = groups;
    config.layers = layers;
    config.buffers = buffers;
    config.decode_buckets = buckets;
    config.num_groups = 1;
    config.num_layers = 3;
    config.num_buffers = 3;
    config.num_decode_buckets = 4;
    config.max_requests = 8;
    config.max_rows = 16;
    config.max_tokens = 64;
    config.max_seq_len = 512;
    config.num_parts = 4; // a GPU's own number would make the arena larger than what the tests provide
    if (more)
      more(*this);
  }
  GoodConfig(const GoodConfig &) = delete;
  GoodConfig &operator=(const GoodConfig &) = delete;

  // The n-th of several stretches of memory that K or V of a layer fits into.
  static char *Address(int64_t n) { return reinterpret_cast<char *>(uintptr_t(0x10000000) + uintptr_t(n) * kLayerBytes); }
  static void Put(cgr_kv_view *view, char *base) {
    EXPECT_EQ(cgr_kv_view_make(CGR_LAYOUT_NHD, base, CGR_DTYPE_BF16, kPageSize, kHeads, kDim, view), CGR_OK);
  }
  void PutK(int i, char *base) { Put(&layers[i].k, base); }
  void PutV(int i, char *base) { Put(&layers[i].v, base); }
  // Two backends, which no layer names yet.
  void AddBackends() {
    for (int i = 0; i < 2; i++) {
      backends[i].name = i == 0 ? "first" : "second";
      backends[i].support = AlwaysSupported;
      backends[i].record = RecordNothing;
    }
    config.backends = backends;
    config.num_backends = 2;
  }

  cgr_config config = CGR_CONFIG_INIT;
  cgr_group groups[5] = { CGR_GROUP_INIT, CGR_GROUP_INIT, CGR_GROUP_INIT, CGR_GROUP_INIT, CGR_GROUP_INIT };
  cgr_layer layers[3] = { CGR_LAYER_INIT, CGR_LAYER_INIT, CGR_LAYER_INIT };
  cgr_buffer_decl buffers[3] = { CGR_BUFFER_DECL_INIT, CGR_BUFFER_DECL_INIT, CGR_BUFFER_DECL_INIT };
  cgr_backend backends[2] = { CGR_BACKEND_INIT, CGR_BACKEND_INIT };
  int32_t buckets[4] = { 1, 2, 4, 8 };
  char names[3][16] = { "a", "b", "c" };
};

using Good = GoodConfig;
using Change = std::function<void(Good &)>;
using ConfigMistakes = std::vector<Mistake<Good>>;

// What is expected of an element type.
const char kDtypes[] =
    "1 .. 11, a cgr_dtype (1 fp32, 2 fp16, 3 bf16, 4 fp8_e4m3, 5 i8, 6 i32, 7 i64, 8 fp8_e5m2, 9 u8, 10 fp4_e2m1, 11 i4)";

// How a field gets a value: one of the configuration, of layer 1, of group 0, of buffer 1 or of backend 1.
using Set = std::function<void(Good &, int64_t)>;
inline cgr_config &PartOf(Good &c, cgr_config *) { return c.config; }
inline cgr_layer &PartOf(Good &c, cgr_layer *) { return c.layers[1]; }
inline cgr_group &PartOf(Good &c, cgr_group *) { return c.groups[0]; }
inline cgr_buffer_decl &PartOf(Good &c, cgr_buffer_decl *) { return c.buffers[1]; }
inline cgr_backend &PartOf(Good &c, cgr_backend *) { return c.backends[1]; }
template <class T, class V> Set Of(V T::*member) {
  return [member](Good &c, int64_t value) { PartOf(c, static_cast<T *>(nullptr)).*member = V(value); };
}

// Values of a field: the good ones are accepted, and each bad one is refused as `says` tells, where # is the value.
struct Field {
  Field(cgr_status refused, const std::string &tells, const Set &how, const std::vector<int64_t> &inside,
        const std::vector<int64_t> &outside)
      : status(refused), says(tells), set(how), good(inside), bad(outside) {}
  cgr_status status;
  std::string says;
  Set set;
  std::vector<int64_t> good, bad;
};
// Just outside of bounds, and far outside.
inline std::vector<int64_t> Outside(int64_t low, int64_t high) {
  std::vector<int64_t> bad = { INT32_MIN, -1, low - 1, INT32_MAX, high + 1 };
  if (high == INT32_MAX)
    bad.resize(3);
  return bad;
}

// Room for findings, filled with a pattern that must remain wherever cgr_validate writes nothing.
class FindingList {
public:
  enum { kRoom = 48, kPattern = 0x5c };
  FindingList() : list_(kRoom) { std::memset(list_.data(), kPattern, kRoom * sizeof(cgr_finding)); }
  cgr_finding *data() { return list_.data(); }
  const cgr_finding &operator[](int32_t i) const { return list_[size_t(i)]; }
  void ExpectUntouchedFrom(int32_t first) const {
    const unsigned char *byte = reinterpret_cast<const unsigned char *>(list_.data());
    for (size_t i = size_t(first) * sizeof(cgr_finding); i < kRoom * sizeof(cgr_finding); i++)
      ASSERT_EQ(int(byte[i]), int(kPattern)) << "finding " << i / sizeof(cgr_finding) << " was written";
  }

private:
  std::vector<cgr_finding> list_;
};

inline void ExpectFinding(const cgr_finding &got, const Found &want, const std::string &where) {
  const std::string text(got.text);
  EXPECT_STREQ(cgr_status_name(cgr_status(got.status)), cgr_status_name(want.status)) << where;
  EXPECT_EQ(got.layer, want.layer) << where;
  EXPECT_EQ(got.group, want.group) << where;
  EXPECT_EQ(got.reserved, 0) << where;
  EXPECT_STREQ(got.field, want.field.c_str()) << where;
  for (const std::string &word : want.words)
    EXPECT_NE(text.find(word), std::string::npos) << where << " says \"" << text << "\", lacks \"" << word << "\"";
}

class ConfigTest : public OverDevices {
protected:
  void SetUpOnDevice() override { CGR_ASSERT_OK(cgr_device_open(GetParam().name.c_str(), &GetParam().config, &device_)); }
  // Nothing may be left of a refused runtime.
  void TearDown() override { CGR_EXPECT_OK(cgr_device_close(device_)); }

  // The good configuration after `change` is refused with exactly these findings in this order; and it is good without the
  // change.
  void Refused(const Change &change, const std::vector<Found> &want) {
    Good c(device_, more_);
    change(c);
    RefusedAsItIs(c.config, want);
    ExpectGood();
  }
  void Refused(const Change &change, cgr_status status, const std::string &says) { Refused(change, { Found(status, says) }); }
  // Each with one finding.
  void EachRefused(const ConfigMistakes &rows) {
    EachMistake(
        rows, [&] { return Good(device_, more_); },
        [&](Good &c, const Mistake<Good> &row) { RefusedAsItIs(c.config, { Found(row.status, row.says) }); });
    ExpectGood();
  }
  void EachField(const std::vector<Field> &rows) {
    ConfigMistakes mistakes;
    for (const Field &row : rows) {
      SCOPED_TRACE(row.says);
      for (int64_t value : row.good)
        Accepted([&](Good &c) { row.set(c, value); });
      for (int64_t value : row.bad)
        mistakes.push_back({ row.status, WithValue(row.says, value), [&row, value](Good &c) { row.set(c, value); } });
    }
    EachRefused(mistakes);
  }
  // By all that read a configuration. A finding about the whole of it need not say so.
  void RefusedAsItIs(const cgr_config &config, const std::vector<Found> &want) {
    FindingList list;
    int32_t count = -1;
    ASSERT_FALSE(want.empty());
    ASSERT_LE(want.size(), size_t(FindingList::kRoom));
    const cgr_status status = cgr_validate(&config, nullptr, list.data(), FindingList::kRoom, &count);
    ASSERT_GT(count, 0) << "it is accepted";
    const std::string first = std::string(list[0].field) == "config" ? "" : list[0].field, text = list[0].text;
    const bool theirs = text.find("(backend ") != std::string::npos; // the reason of a backend need not say what it expected
    const Words words = { first, text, theirs ? "" : "expected" };
    ExpectReported("cgr_validate", status, want[0].status, words);
    EXPECT_EQ(count, int32_t(want.size()));
    for (int32_t i = 0; i < std::min(count, int32_t(want.size())); i++)
      ExpectFinding(list[i], want[size_t(i)], "finding " + std::to_string(i));
    for (int32_t i = int32_t(want.size()); i < std::min(count, int32_t(FindingList::kRoom)); i++)
      ADD_FAILURE() << "and " << list[i].field << " " << list[i].text;
    list.ExpectUntouchedFrom(std::min(count, int32_t(FindingList::kRoom)));
    cgr_runtime *runtime = reinterpret_cast<cgr_runtime *>(16);
    ExpectReported("cgr_runtime_create", cgr_runtime_create(&config, &runtime), want[0].status, words);
    EXPECT_EQ(runtime, nullptr);
    // Memory of the caller is not what this one measures.
    cgr_memory_sizes sizes = CGR_MEMORY_SIZES_INIT;
    if (first.find("_memory") == std::string::npos)
      ExpectReported("cgr_runtime_memory", cgr_runtime_memory(&config, &sizes), want[0].status, words);
  }
  // `function` has failed, and says so briefly.
  static void ExpectReported(const std::string &function, cgr_status got, cgr_status status, const Words &words) {
    const std::string message = cgr_last_message();
    EXPECT_EQ(message.rfind(function + ": config", 0), 0u) << message;
    ExpectMessage(got, status, words);
    EXPECT_LT(message.size(), 400u) << message;
  }
  // One more change and it would be refused.
  void Accepted(const Change &change) {
    Good c(device_, more_);
    change(c);
    Validated(c.config);
  }
  void EachAccepted(const std::vector<Change> &changes) {
    for (const Change &change : changes) {
      SCOPED_TRACE(&change - changes.data());
      Accepted(change);
    }
  }
  void Validated(const cgr_config &config) {
    FindingList list;
    int32_t count = -1;
    CGR_EXPECT_OK(cgr_validate(&config, nullptr, list.data(), FindingList::kRoom, &count));
    EXPECT_EQ(count, 0);
    list.ExpectUntouchedFrom(0);
  }
  void ExpectGood() {
    Good good(device_), with_more(device_, more_);
    AcceptedAsItIs(good.config);
    Validated(with_more.config);
  }
  void AcceptedAsItIs(const cgr_config &config) {
    Validated(config);
    OnRuntime(config, [](cgr_runtime *runtime) { EXPECT_NE(runtime, nullptr); });
  }
  template <class Use> void OnRuntime(const cgr_config &config, Use use) {
    cgr_runtime *runtime = nullptr;
    CGR_ASSERT_OK(cgr_runtime_create(&config, &runtime));
    use(runtime);
    CGR_EXPECT_OK(cgr_runtime_destroy(runtime));
  }

  Change more_; // of the suite: is in each configuration before the change
  cgr_device *device_ = nullptr;
};

// The checks of a configuration do not depend on when the host executes.
#define CGR_INSTANTIATE_CONFIG_TEST(Suite)                                                                           \
  INSTANTIATE_TEST_SUITE_P(Devices, Suite,                                                                           \
                           ::testing::Values(::cgr_test::HostParam(CGR_SCHEDULE_EARLIEST), ::cgr_test::CudaParam()), \
                           ::cgr_test::DeviceLabel)

} // namespace cgr_test

// A configuration that is valid as it stands, and what must be found in it after a small change.
#ifndef CGR_TESTS_SUPPORT_CONFIG_CASE_H
#define CGR_TESTS_SUPPORT_CONFIG_CASE_H

#include <algorithm>
#include <climits>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "tests/support/devices.h"
#include "tests/support/expect.h"

namespace cgr_test {

// A finding that must be there.
struct Found {
  cgr_status status;
  int32_t layer, group; // -1: neither
  std::string field;
  Words words; // of its text
};

inline Found Find(cgr_status status, const std::string &field, const Words &words) { return { status, -1, -1, field, words }; }
inline Found FindInLayer(int32_t i, cgr_status status, const std::string &field, const Words &words) {
  return { status, i, -1, "layers[" + std::to_string(i) + "]." + field, words };
}
inline Found FindInGroup(int32_t i, cgr_status status, const std::string &field, const Words &words) {
  return { status, -1, i, "groups[" + std::to_string(i) + "]." + field, words };
}
inline Found FindInBuffer(int32_t i, cgr_status status, const std::string &field, const Words &words) {
  return Find(status, "buffers[" + std::to_string(i) + "]." + field, words);
}

// Three layers in one group; the last uses the cache of the first. Every device accepts it. Nothing reads the caches, whose
// addresses are made up.
struct GoodConfig {
  enum { kPages = 64, kPageSize = 16, kHeads = 2, kDim = 64, kLayerBytes = 1 << 21 };

  GoodConfig(cgr_device *device) {
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

  cgr_config config = CGR_CONFIG_INIT;
  cgr_group groups[5] = { CGR_GROUP_INIT, CGR_GROUP_INIT, CGR_GROUP_INIT, CGR_GROUP_INIT, CGR_GROUP_INIT };
  cgr_layer layers[3] = { CGR_LAYER_INIT, CGR_LAYER_INIT, CGR_LAYER_INIT };
  cgr_buffer_decl buffers[3] = { CGR_BUFFER_DECL_INIT, CGR_BUFFER_DECL_INIT, CGR_BUFFER_DECL_INIT };
  int32_t buckets[4] = { 1, 2, 4, 8 };
  char names[3][16] = { "a", "b", "c" };
};

using Change = std::function<void(GoodConfig &)>;

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
  std::string text(got.text);
  EXPECT_STREQ(cgr_status_name(cgr_status(got.status)), cgr_status_name(want.status)) << where;
  EXPECT_EQ(got.layer, want.layer) << where;
  EXPECT_EQ(got.group, want.group) << where;
  EXPECT_EQ(got.reserved, 0) << where;
  EXPECT_STREQ(got.field, want.field.c_str()) << where;
  for (const std::string &word : want.words)
    EXPECT_NE(text.find(word), std::string::npos) << where << " says \"" << text << "\", lacks \"" << word << "\"";
}

class ConfigTest : public ::testing::TestWithParam<DeviceParam> {
protected:
  void SetUp() override {
    CGR_SKIP_WITHOUT_DEVICE(GetParam());
    CGR_ASSERT_OK(cgr_device_open(GetParam().name.c_str(), &GetParam().config, &device_));
  }
  // Nothing may be left of a refused runtime.
  void TearDown() override { CGR_EXPECT_OK(cgr_device_close(device_)); }

  // The good configuration after `change` is refused with exactly these findings in this order, by cgr_validate and
  // cgr_runtime_create; and it is good without the change.
  void Refused(const Change &change, const std::vector<Found> &want) {
    GoodConfig c(device_);
    change(c);
    RefusedAsItIs(c.config, want);
    GoodConfig good(device_);
    AcceptedAsItIs(good.config);
  }
  void RefusedAsItIs(const cgr_config &config, const std::vector<Found> &want) {
    FindingList list;
    int32_t count = -1;
    ASSERT_FALSE(want.empty());
    ASSERT_LE(want.size(), size_t(FindingList::kRoom));
    cgr_status status = cgr_validate(&config, nullptr, list.data(), FindingList::kRoom, &count);
    EXPECT_STREQ(cgr_status_name(status), cgr_status_name(want[0].status));
    ASSERT_GT(count, 0) << "it is accepted";
    ExpectReported(status, list[0]);
    EXPECT_EQ(count, int32_t(want.size()));
    for (int32_t i = 0; i < std::min(count, int32_t(want.size())); i++)
      ExpectFinding(list[i], want[size_t(i)], "finding " + std::to_string(i));
    for (int32_t i = int32_t(want.size()); i < std::min(count, int32_t(FindingList::kRoom)); i++)
      ADD_FAILURE() << "and " << list[i].field << " " << list[i].text;
    list.ExpectUntouchedFrom(std::min(count, int32_t(FindingList::kRoom)));
    cgr_runtime *runtime = reinterpret_cast<cgr_runtime *>(16);
    ExpectReported(cgr_runtime_create(&config, &runtime), list[0]);
    EXPECT_EQ(runtime, nullptr);
  }
  // A call has failed with the status and message of this finding. A finding about the whole configuration need not say so.
  static void ExpectReported(cgr_status status, const cgr_finding &first) {
    const bool whole = std::string(first.field) == "config";
    ExpectMessage(status, cgr_status(first.status), { whole ? "" : first.field, first.text });
  }
  // One more change and it would be refused.
  void Accepted(const Change &change) {
    GoodConfig c(device_);
    change(c);
    Validated(c.config);
  }
  void Validated(const cgr_config &config) {
    FindingList list;
    int32_t count = -1;
    CGR_EXPECT_OK(cgr_validate(&config, nullptr, list.data(), FindingList::kRoom, &count));
    EXPECT_EQ(count, 0);
    list.ExpectUntouchedFrom(0);
  }
  void AcceptedAsItIs(const cgr_config &config) {
    cgr_runtime *runtime = nullptr;
    Validated(config);
    CGR_ASSERT_OK(cgr_runtime_create(&config, &runtime));
    EXPECT_NE(runtime, nullptr);
    CGR_EXPECT_OK(cgr_runtime_destroy(runtime));
  }

  // The field's values low and high are good; values outside are refused by name, with no other finding. `fit` makes the rest of
  // the configuration fit a value. If zero means the default, it is good too, even below low.
  using Set = std::function<void(GoodConfig &, int64_t)>;
  enum class Zero { kCounts, kIsDefault };
  void Range(const Set &set, int64_t low, int64_t high, const Found &refusal, Zero zero = Zero::kCounts) {
    std::vector<int64_t> inside = { low, high }, outside = { INT32_MIN, -1 };
    if (zero == Zero::kIsDefault)
      inside.push_back(0);
    if (low > 1 || zero == Zero::kCounts)
      outside.push_back(low - 1);
    if (high < INT32_MAX) {
      outside.push_back(high + 1);
      outside.push_back(INT32_MAX);
    }
    for (int64_t good : inside) {
      SCOPED_TRACE(refusal.field + " " + std::to_string(good));
      Accepted([&](GoodConfig &c) { set(c, good); });
    }
    for (int64_t bad : outside) {
      SCOPED_TRACE(refusal.field + " " + std::to_string(bad));
      Found want = refusal;
      want.words.push_back("is " + std::to_string(bad) + ",");
      Refused([&](GoodConfig &c) { set(c, bad); }, { want });
    }
  }

  cgr_device *device_ = nullptr;
};

// The checks of a configuration do not depend on when the host executes.
#define CGR_INSTANTIATE_CONFIG_TEST(Suite)                                                                           \
  INSTANTIATE_TEST_SUITE_P(Devices, Suite,                                                                           \
                           ::testing::Values(::cgr_test::HostParam(CGR_SCHEDULE_EARLIEST), ::cgr_test::CudaParam()), \
                           ::cgr_test::DeviceLabel)

} // namespace cgr_test

#endif // CGR_TESTS_SUPPORT_CONFIG_CASE_H

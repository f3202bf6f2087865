// The ranges of a self-test's staged data: what is drawn stays within them, for every dtype and dimension, reaches their ends,
// and bad ones are refused by name.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <set>

#include "cgr/names.h"
#include "tests/support/found.h"
#include "tests/support/seed.h"
#include "tests/support/tiny_engine.h"

namespace cgr_test {
namespace {

// IEEE-like formats with a sign, `bits` of exponent and of mantissa.
double ValueOf(uint32_t word, int exponent_bits, int mantissa_bits) {
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const uint32_t mantissa = word & ((1u << mantissa_bits) - 1);
  const int exponent = int(word >> mantissa_bits) & ((1 << exponent_bits) - 1);
  const double size = exponent > 0 ? std::ldexp(double(mantissa + (1u << mantissa_bits)), exponent - bias - mantissa_bits)
                                   : std::ldexp(double(mantissa), 1 - bias - mantissa_bits);
  return word >> (exponent_bits + mantissa_bits) & 1 ? -size : size;
}

template <class T> T Load(const void *at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

double Element(const void *at, int32_t dtype) {
  switch (dtype) {
  case CGR_DTYPE_FP32:
    return double(Load<float>(at));
  case CGR_DTYPE_FP16:
    return ValueOf(Load<uint16_t>(at), 5, 10);
  case CGR_DTYPE_BF16:
    return ValueOf(Load<uint16_t>(at), 8, 7);
  case CGR_DTYPE_FP8_E4M3:
    return ValueOf(Load<uint8_t>(at), 4, 3);
  case CGR_DTYPE_FP8_E5M2:
    return ValueOf(Load<uint8_t>(at), 5, 2);
  case CGR_DTYPE_I8:
    return double(Load<int8_t>(at));
  case CGR_DTYPE_U8:
    return double(Load<uint8_t>(at));
  case CGR_DTYPE_I32:
    return double(Load<int32_t>(at));
  default:
    return double(Load<int64_t>(at));
  }
}

struct Range {
  int32_t dtype;
  double low, high;
};
const Range kRanges[] = {
  { CGR_DTYPE_FP32, 0.25, 0.5 },
  { CGR_DTYPE_FP16, -2.0, 65504.0 },
  { CGR_DTYPE_BF16, 0.5, 1.0 },
  { CGR_DTYPE_FP8_E4M3, -1.0, 448.0 },
  { CGR_DTYPE_FP8_E5M2, -8.0, -4.0 },
  { CGR_DTYPE_I8, -128, 127 },
  { CGR_DTYPE_U8, 3, 4 },
  { CGR_DTYPE_I32, -1, 1 },
  { CGR_DTYPE_I64, -9007199254740992.0, -9007199254740990.0 },
};
enum { kNum = 9, kTokens = 8, kRequests = 3, kRows = 5, kWidth = 4 };

// Buffers of each dtype, whose content a function in the step looks at. The dimension goes round.
class SelfTestData : public ::testing::TestWithParam<int32_t> {
protected:
  struct Look {
    SelfTestData *test;
    const int32_t *counts, *rows;
  };
  void SetUp() override {
    cgr_device_config device = CGR_DEVICE_CONFIG_INIT;
    device.host_schedule = CGR_SCHEDULE_EARLIEST;
    CGR_ASSERT_OK(cgr_device_open("host", &device, &dev_));
    cgr_group group = CGR_GROUP_INIT;
    group.num_pages = 20;
    static const cgr_bucket mixed[] = { { kTokens, kRequests } };
    static const int32_t decodes[] = { kRequests };
    cgr_buffer_decl decls[kNum + 1];
    for (int i = 0; i <= kNum; i++) {
      decls[i] = CGR_BUFFER_DECL_INIT;
      names_[i] = "buffer " + std::to_string(i);
      decls[i].name = names_[i].c_str();
      decls[i].dimension = 1 + (i + GetParam()) % 3;
      decls[i].dtype = i < kNum ? kRanges[i].dtype : CGR_DTYPE_I32;
      decls[i].source = i < kNum ? CGR_SOURCE_STAGED : CGR_SOURCE_DEVICE;
      decls[i].width = kWidth;
    }
    cgr_config config = CGR_CONFIG_INIT;
    config.device_handle = dev_;
    config.groups = &group, config.num_groups = 1;
    config.max_requests = kRequests, config.max_rows = kRows, config.max_tokens = kTokens, config.max_seq_len = 64;
    config.graph_mode = CGR_MODE_FULL;
    config.decode_buckets = decodes, config.num_decode_buckets = 1;
    config.mixed_buckets = mixed, config.num_mixed_buckets = 1;
    config.buffers = decls, config.num_buffers = kNum + 1;
    CGR_ASSERT_OK(cgr_runtime_create(&config, &rt_));
    for (int i = 0; i < kNum; i++) {
      const cgr_buffer_view view = BufferOf(rt_, CGR_BUFFER_DECLARED, i);
      data_[i] = static_cast<unsigned char *>(view.data);
    }
    cgr_capture capture = CaptureOf(Record, this);
    CGR_ASSERT_OK(cgr_runtime_capture(rt_, &capture));
  }
  void TearDown() override {
    CGR_EXPECT_OK(cgr_runtime_destroy(rt_));
    CGR_EXPECT_OK(cgr_device_close(dev_));
  }
  static cgr_status Record(cgr_recorder *recorder, void *engine) {
    cgr_record_info info = CGR_RECORD_INFO_INIT;
    cgr_status status = cgr_record_get_info(recorder, &info);
    const Look look = { static_cast<SelfTestData *>(engine), RecordBuffer(recorder, CGR_BUFFER_COUNTS, &status),
                        RecordBuffer(recorder, CGR_BUFFER_REQUEST_ROWS, &status) };
    const int32_t *next = RecordBuffer(recorder, CGR_BUFFER_NEXT_TOKENS, &status);
    if (status == CGR_OK)
      status = cgr_fill(look.test->dev_, const_cast<int32_t *>(next), 0, size_t(info.num_requests) * 4, info.stream);
    return status == CGR_OK ? cgr_launch_host(look.test->dev_, See, &look, sizeof look, info.stream) : status;
  }
  // Notes all elements of real tokens, requests and rows.
  static void See(const void *raw) {
    const Look &look = *static_cast<const Look *>(raw);
    for (int i = 0; i < kNum; i++) {
      const int dimension = 1 + (i + look.test->GetParam()) % 3;
      const int32_t count = look.counts[dimension == CGR_DIMENSION_TOKENS ? CGR_COUNT_TOKENS : CGR_COUNT_REQUESTS];
      const size_t size = cgr_dtype_size(cgr_dtype(kRanges[i].dtype));
      for (int32_t n = 0; n < count; n++) {
        const int32_t at = dimension == CGR_DIMENSION_ROWS ? look.rows[n] : n;
        for (int w = 0; w < kWidth; w++)
          look.test->seen_[i].insert(Element(look.test->data_[i] + size_t(at * kWidth + w) * size, kRanges[i].dtype));
      }
    }
  }
  cgr_status Run(const std::vector<cgr_staged_range> &ranges, uint32_t seed = 1) {
    std::vector<int32_t> pages;
    for (int32_t p = 2; p < 20; p++)
      pages.push_back(p);
    cgr_self_test test = CGR_SELF_TEST_INIT;
    test.num_pages = int32_t(pages.size()), test.pages = pages.data(), test.max_token = 100, test.seed = seed;
    test.staged = ranges.data(), test.num_staged = int32_t(ranges.size());
    int32_t count = 0;
    return cgr_runtime_self_test(rt_, &test, nullptr, 0, &count);
  }
  static std::vector<cgr_staged_range> All() {
    std::vector<cgr_staged_range> ranges;
    for (int i = 0; i < kNum; i++)
      ranges.push_back({ i, 0, kRanges[i].low, kRanges[i].high });
    std::reverse(ranges.begin(), ranges.end()); // in any order
    return ranges;
  }

  cgr_device *dev_ = nullptr;
  cgr_runtime *rt_ = nullptr;
  std::string names_[kNum + 1];
  unsigned char *data_[kNum] = {};
  std::set<double> seen_[kNum];
};

TEST_P(SelfTestData, StaysWithinItsRanges) {
  for (auto &seen : seen_)
    seen.clear();
  for (uint32_t n = 0; n < 4; n++)
    CGR_ASSERT_OK(Run(All(), uint32_t(Seed()) + n));
  for (int i = 0; i < kNum; i++) {
    SCOPED_TRACE(cgr_dtype_name(cgr_dtype(kRanges[i].dtype)));
    const double low = kRanges[i].low, high = kRanges[i].high;
    ASSERT_FALSE(seen_[i].empty());
    EXPECT_GE(*seen_[i].begin(), low);
    EXPECT_LE(*seen_[i].rbegin(), high);
    const bool is_float = kRanges[i].dtype <= CGR_DTYPE_FP8_E4M3 || kRanges[i].dtype == CGR_DTYPE_FP8_E5M2;
    if (is_float || high - low > 10) {
      EXPECT_LT(*seen_[i].begin(), low + (high - low) / 4);
      EXPECT_GT(*seen_[i].rbegin(), high - (high - low) / 4);
    } else {
      EXPECT_EQ(seen_[i].size(), size_t(high - low) + 1); // each number
    }
  }
}

TEST_P(SelfTestData, RefusesBadRanges) {
  using Change = void (*)(cgr_staged_range *);
  const struct {
    Change change;
    cgr_status status;
    Words words;
  } bad[] = {
    { [](cgr_staged_range *r) { r->buffer = -1; },
      CGR_ERROR_INVALID_ARGUMENT,
      { "staged[2].buffer is -1", "num_buffers is 10" } },
    { [](cgr_staged_range *r) { r->buffer = 10; }, CGR_ERROR_INVALID_ARGUMENT, { "staged[2].buffer is 10" } },
    { [](cgr_staged_range *r) { r->buffer = 9; }, CGR_ERROR_INVALID_ARGUMENT, { "is 9 (buffer 9)", "CGR_SOURCE_STAGED" } },
    { [](cgr_staged_range *r) { r->buffer = 8; }, CGR_ERROR_INVALID_ARGUMENT, { "is 8 (buffer 8) again", "once" } },
    { [](cgr_staged_range *r) { r->reserved = 3; }, CGR_ERROR_NEWER_STRUCT, { "staged.reserved is 3" } },
    { [](cgr_staged_range *r) { r->low = 5; }, CGR_ERROR_INVALID_ARGUMENT, { "staged[2].low is 5", "buffer 6", "high (4)" } },
    { [](cgr_staged_range *r) { r->low = -1; }, CGR_ERROR_INVALID_ARGUMENT, { "staged[2].low is -1", "u8", "0 .. 255" } },
    { [](cgr_staged_range *r) { r->high = 256; }, CGR_ERROR_INVALID_ARGUMENT, { "staged[2].high is 256" } },
    { [](cgr_staged_range *r) { r->high = 3.5; }, CGR_ERROR_INVALID_ARGUMENT, { "staged[2].high is 3.5", "whole" } },
    { [](cgr_staged_range *r) { r->high = std::numeric_limits<double>::quiet_NaN(); },
      CGR_ERROR_INVALID_ARGUMENT,
      { "high is" } },
    { [](cgr_staged_range *r) {
       *r = { 0, 0, 0, std::numeric_limits<double>::infinity() };
     },
      CGR_ERROR_INVALID_ARGUMENT,
      { "staged[2].high is inf", "fp32" } },
    { [](cgr_staged_range *r) {
       *r = { 1, 0, -65505, 0 };
     },
      CGR_ERROR_INVALID_ARGUMENT,
      { "staged[2].low is -65505", "fp16" } },
  };
  for (const auto &each : bad) {
    std::vector<cgr_staged_range> ranges = All();
    ranges.resize(3);
    each.change(&ranges[2]);
    ExpectMessage(Run(ranges), each.status, each.words);
  }
  cgr_self_test test = CGR_SELF_TEST_INIT;
  const int32_t pages[] = { 2, 3, 4, 5 };
  int32_t count = 0;
  test.num_pages = 4, test.pages = pages, test.max_token = 10;
  for (int32_t bad_count : { -1, 65 }) {
    test.num_staged = bad_count;
    ExpectMessage(cgr_runtime_self_test(rt_, &test, nullptr, 0, &count), CGR_ERROR_INVALID_ARGUMENT,
                  { "num_staged is " + std::to_string(bad_count) });
  }
  test.num_staged = 2;
  ExpectMessage(cgr_runtime_self_test(rt_, &test, nullptr, 0, &count), CGR_ERROR_NULL_POINTER, { "staged is NULL, expected 2" });
  test.num_staged = 0, test.reserved_end = 1;
  ExpectMessage(cgr_runtime_self_test(rt_, &test, nullptr, 0, &count), CGR_ERROR_NEWER_STRUCT, { "reserved_end is 1" });
  CGR_EXPECT_OK(Run(All()));
}

INSTANTIATE_TEST_SUITE_P(Dimensions, SelfTestData, ::testing::Values(0, 1, 2));

} // namespace
} // namespace cgr_test

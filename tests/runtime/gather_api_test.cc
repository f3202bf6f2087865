// cgr_gather_build: what it refuses, and the messages. A refused call writes nothing.
#include <functional>

#include "tests/support/expect.h"
#include "tests/support/gather_case.h"

namespace cgr_test {
namespace {

// Memory that begins at a multiple of 16.
struct Good : GatherCase {
  explicit Good(int32_t dtype = CGR_DTYPE_FP8_E4M3) {
    Random random(1);
    const Factors factors = IsHalf(dtype) ? Factors::kNone : Factors::kHeads;
    Lay(random, {}, dtype, dtype, factors, factors);
    LayOut({}, CGR_DTYPE_BF16, CGR_DTYPE_BF16);
    Bind();
  }
};

using Change = std::function<void(Good &)>;

void ExpectRefused(const Change &change, cgr_status status, Words words, int32_t dtype = CGR_DTYPE_FP8_E4M3) {
  Good c(dtype);
  const Bytes before = c.out;
  const std::vector<int32_t> table = c.block_table;
  change(c);
  words.push_back("cgr_gather_build: ");
  ExpectMessage(cgr_gather_build(&c.gather), status, words);
  EXPECT_TRUE(c.out == before && c.block_table == table && c.overflow == -7) << "something was written";
}

constexpr cgr_status kBad = CGR_ERROR_INVALID_ARGUMENT, kUnsupported = CGR_ERROR_UNSUPPORTED, kNull = CGR_ERROR_NULL_POINTER;

TEST(GatherApi, AcceptsWhatTheOthersChange) {
  for (int32_t dtype : { CGR_DTYPE_FP8_E4M3, CGR_DTYPE_I8, CGR_DTYPE_FP16 }) {
    Good c(dtype);
    CGR_EXPECT_OK(cgr_gather_build(&c.gather));
    EXPECT_EQ(c.overflow, 0);
  }
}

TEST(GatherApi, RefusesNumbersOutOfRange) {
  ExpectRefused([](Good &c) { c.gather.num_requests = 0; }, kBad, { "num_requests is 0", "1 .. 4096" });
  ExpectRefused([](Good &c) { c.gather.num_requests = 4097; }, kBad, { "num_requests is 4097", "1 .. 4096" });
  ExpectRefused([](Good &c) { c.gather.num_kv_heads = 0; }, kBad, { "num_kv_heads is 0", "1 .. 1024" });
  ExpectRefused([](Good &c) { c.gather.head_dim = 0; }, kBad, { "head_dim is 0", "1 .. 65536" });
  ExpectRefused([](Good &c) { c.gather.head_dim_v = -16; }, kBad, { "head_dim_v is -16", "1 .. 65536" });
  ExpectRefused([](Good &c) { c.gather.page_size = 1025; }, kBad, { "page_size is 1025", "1 .. 1024" });
  ExpectRefused([](Good &c) { c.gather.num_pages = 0; }, kBad, { "num_pages is 0", "1 .. 2147483647" });
  ExpectRefused([](Good &c) { c.gather.capacity = 0; }, kBad, { "capacity is 0", "1 .. 2147483647" });
  ExpectRefused([](Good &c) { c.gather.capacity = int64_t{ 1 } << 31; }, kBad, { "capacity is 2147483648", "1 .. 2147483647" });
  ExpectRefused([](Good &c) { c.gather.table_stride = 0; }, kBad, { "table_stride is 0", "1 .. 2147483648" });
  ExpectRefused([](Good &c) { c.gather.read_trash_page = 10; }, CGR_ERROR_PAGE_OUT_OF_RANGE,
                { "read_trash_page is 10", "0 .. 9" });
  ExpectRefused([](Good &c) { c.gather.reserved = 1; }, CGR_ERROR_NEWER_STRUCT, { "reserved" });
  ExpectRefused([](Good &c) { c.gather.out_v.reserved = 1; }, CGR_ERROR_NEWER_STRUCT, { "out_v.reserved" });
  ExpectRefused(
      [](Good &c) {
        c.gather.page_size = c.gather.num_kv_heads = 1024;
        c.gather.head_dim_v = 4096;
      },
      kUnsupported, { "1024 tokens of 1024 heads of 4096 elements", "fewer than 2^31" });
}

TEST(GatherApi, RefusesDtypes) {
  auto status = [](int32_t dtype) { return dtype == 0 || dtype == 99 ? CGR_ERROR_INVALID_ENUM : kUnsupported; };
  for (int32_t dtype : { 0, 99, int32_t(CGR_DTYPE_FP32), int32_t(CGR_DTYPE_FP8_E4M3), int32_t(CGR_DTYPE_I8) })
    ExpectRefused([=](Good &c) { c.gather.out_k.dtype = dtype; }, status(dtype),
                  { "out_k.dtype is " + std::to_string(dtype), "expected fp16 or bf16" });
  for (int32_t dtype : { 0, 99, int32_t(CGR_DTYPE_FP32), int32_t(CGR_DTYPE_I32), int32_t(CGR_DTYPE_U8) })
    ExpectRefused([=](Good &c) { c.gather.v.dtype = dtype; }, status(dtype),
                  { "v.dtype is " + std::to_string(dtype), "fp8_e4m3, fp8_e5m2, i8, fp16 or bf16" });
}

TEST(GatherApi, RefusesFactorsThatAreMissingOrTooMany) {
  static float factors[4];
  ExpectRefused([](Good &c) { c.gather.k.scale = nullptr; }, kUnsupported, { "k.scale is NULL", "expected factors", "i8" },
                CGR_DTYPE_I8);
  ExpectRefused([](Good &c) { c.gather.v.scale = factors; }, kUnsupported, { "v.scale is", "expected NULL", "fp16" },
                CGR_DTYPE_FP16);
  ExpectRefused([](Good &c) { c.gather.out_v.scale = factors; }, kUnsupported, { "out_v.scale is", "expected NULL" });
  ExpectRefused([](Good &c) { c.gather.out_k.scale_stride_d = 1; }, kBad, { "out_k.scale_stride_d is 1", "expected 0" });
  ExpectRefused([](Good &c) { c.gather.k.scale = nullptr; }, kBad,
                { "k.scale_stride_head is 3", "expected 0, as scale is NULL" });
  ExpectRefused([](Good &c) { c.gather.k.scale_stride_page = -1; }, kBad,
                { "k.scale_stride_page is -1", "0 (the same for all)" });
  ExpectRefused([](Good &c) { c.gather.v.scale = reinterpret_cast<float *>(reinterpret_cast<uintptr_t>(factors) + 2); }, kBad,
                { "v.scale is", "multiple of 4 bytes" });
}

TEST(GatherApi, RefusesViewsThatAreMissingOrMisaligned) {
  for (auto view : { &cgr_gather::k, &cgr_gather::v, &cgr_gather::out_k, &cgr_gather::out_v }) {
    ExpectRefused([=](Good &c) { (c.gather.*view).base = nullptr; }, kNull, { ".base is NULL" });
    ExpectRefused([=](Good &c) { (c.gather.*view).base = static_cast<unsigned char *>((c.gather.*view).base) + 8; }, kBad,
                  { ".base is", "multiple of 16" });
    for (auto stride : { &cgr_kv_view::stride_page, &cgr_kv_view::stride_token, &cgr_kv_view::stride_head })
      for (int64_t value : { int64_t{ 0 }, int64_t{ -16 }, int64_t{ 4 }, int64_t{ 1 } << 32 })
        ExpectRefused([=](Good &c) { c.gather.*view.*stride = value; }, kBad,
                      { "has strides", std::to_string(value), "positive multiples of 16 bytes" });
  }
  ExpectRefused([](Good &c) { c.gather.head_dim = 24; }, kUnsupported, { "k has heads of 24 elements", "multiple of 16" });
  ExpectRefused([](Good &c) { c.gather.head_dim_v = 12; }, kUnsupported, { "v has heads of 12 elements", "multiple of 8" },
                CGR_DTYPE_FP16);
  ExpectRefused([](Good &c) { c.gather.num_pages = INT32_MAX, c.gather.k.stride_page = int64_t{ 1 } << 31; }, kBad,
                { "k.base is", "within 2^56 bytes" });
}

TEST(GatherApi, RefusesWhatOverlaps) {
  ExpectRefused([](Good &c) { c.gather.out_k.stride_token = 32; }, kBad,
                { "out_k has strides that overlap", "4 tokens of 3 heads" });
  ExpectRefused([](Good &c) { c.gather.out_v.base = c.gather.out_k.base; }, kBad, { "out_k and out_v overlap" });
  ExpectRefused([](Good &c) { c.gather.v.base = c.gather.out_k.base; }, kBad, { "out_k overlaps v", "memory of its own" });
  ExpectRefused([](Good &c) { c.gather.k.base = c.gather.out_v.base; }, kBad, { "out_v overlaps k" });
  ExpectRefused([](Good &c) { c.gather.k.scale = static_cast<float *>(c.gather.out_k.base); }, kBad,
                { "out_k overlaps k.scale" });
}

TEST(GatherApi, RefusesArraysThatAreMissingOrMisaligned) {
  ExpectMessage(cgr_gather_build(nullptr), kNull, { "cgr_gather_build", "gather is NULL" });
  ExpectRefused([](Good &c) { c.gather.kv_indptr = nullptr; }, kNull, { "kv_indptr is NULL" });
  ExpectRefused([](Good &c) { c.gather.kv_indices = nullptr; }, kNull, { "kv_indices is NULL" });
  ExpectRefused([](Good &c) { c.gather.block_table = nullptr; }, kNull, { "block_table is NULL" });
  ExpectRefused([](Good &c) { c.gather.overflow = nullptr; }, kNull, { "overflow is NULL" });
  const auto moved = [](const int32_t *array) {
    return reinterpret_cast<const int32_t *>(reinterpret_cast<uintptr_t>(array) + 2);
  };
  ExpectRefused([=](Good &c) { c.gather.kv_indptr = moved(c.gather.kv_indptr); }, kBad,
                { "kv_indptr is", "multiple of 4 bytes" });
  ExpectRefused([=](Good &c) { c.gather.live_requests = moved(c.gather.live_requests); }, kBad, { "live_requests is" });
  ExpectRefused([=](Good &c) { c.gather.first_request = moved(c.gather.first_request); }, kBad, { "first_request is" });
}

// On the host; the device replaces such values with harmless ones.
TEST(GatherApi, RefusesLiveValuesOutOfRange) {
  ExpectRefused([](Good &c) { c.live = 4; }, kBad, { "live_requests[0] is 4", "0 .. 3" });
  ExpectRefused([](Good &c) { c.live = -1; }, kBad, { "live_requests[0] is -1", "0 .. 3" });
  ExpectRefused([](Good &c) { c.first = 2, c.live = 1; }, kBad, { "first_request[0] is 2", "0 .. 1" });
  ExpectRefused([](Good &c) { c.kv_indptr[0] = -1; }, kBad, { "kv_indptr[0] is -1", "0 .. " });
  ExpectRefused([](Good &c) { c.kv_indptr[2] = 1; }, kBad, { "kv_indptr[2] is 1", "2 .. " });
  ExpectRefused([](Good &c) { c.gather.table_stride = 2; }, kBad, { "request 2 has 3 pages", "at most 2 (table_stride)" });
  ExpectRefused([](Good &c) { c.kv_indices[4] = 10; }, CGR_ERROR_PAGE_OUT_OF_RANGE,
                { "kv_indices[4] is 10", "0 .. 9", "request 2" });
}

} // namespace
} // namespace cgr_test

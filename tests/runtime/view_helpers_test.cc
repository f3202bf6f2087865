// The helpers that make the usual views: where each element is, following the dimension order that the layout names, and what
// the helpers refuse.
#include <climits>
#include <cstring>
#include <set>

#include "tests/support/expect.h"

#include "cgr/cgr.h"
#include "cgr/names.h"

namespace cgr_test {
namespace {

constexpr int32_t kPages = 3, kPageSize = 16, kHeads = 5, kDim = 24;

// The offset from `base` in elements, as the comment of cgr_kv_view defines it.
int64_t Place(const cgr_kv_view &view, const void *base, int32_t page, int32_t token, int32_t head, int32_t d) {
  int64_t bits = int64_t(cgr_dtype_bits(cgr_dtype(view.dtype)));
  int64_t begin = (static_cast<const char *>(view.base) - static_cast<const char *>(base)) * 8 / bits;
  return begin + page * view.stride_page + token * view.stride_token + head * view.stride_head + d;
}

// The place in a tensor [pages][kinds] x layout.
int64_t Want(cgr_kv_layout layout, int32_t kinds, int32_t kind, int32_t page, int32_t token, int32_t head, int32_t d) {
  int64_t inside = layout == CGR_LAYOUT_NHD ? token * kHeads + head : head * kPageSize + token;
  return (int64_t(page) * kinds + kind) * kPageSize * kHeads * kDim + inside * kDim + d;
}

void ExpectTensor(cgr_kv_layout layout, const std::vector<cgr_kv_view> &views, const void *base, cgr_dtype dtype) {
  int32_t kinds = int32_t(views.size());
  std::set<int64_t> places;
  for (int32_t kind = 0; kind < kinds; kind++) {
    const cgr_kv_view &view = views[size_t(kind)];
    EXPECT_EQ(view.dtype, dtype);
    EXPECT_EQ(view.reserved, 0);
    EXPECT_EQ(view.scale, nullptr);
    EXPECT_EQ(view.scale_stride_page | view.scale_stride_token | view.scale_stride_head | view.scale_stride_d, 0);
    for (int32_t page = 0; page < kPages; page++)
      for (int32_t token = 0; token < kPageSize; token++)
        for (int32_t head = 0; head < kHeads; head++)
          for (int32_t d = 0; d < kDim; d++) {
            int64_t place = Place(view, base, page, token, head, d);
            ASSERT_EQ(place, Want(layout, kinds, kind, page, token, head, d))
                << kind << " " << page << " " << token << " " << head;
            places.insert(place);
          }
  }
  EXPECT_EQ(places.size(), size_t(kinds * kPages * kPageSize * kHeads * kDim)) << "no two elements at one place";
}

TEST(ViewHelpers, OneTensorAndAPairInEveryLayout) {
  alignas(256) static char memory[16];
  for (cgr_kv_layout layout : { CGR_LAYOUT_NHD, CGR_LAYOUT_HND })
    for (cgr_dtype dtype : { CGR_DTYPE_BF16, CGR_DTYPE_FP32, CGR_DTYPE_I8, CGR_DTYPE_FP4_E2M1, CGR_DTYPE_I4 }) {
      SCOPED_TRACE(std::string(cgr_kv_layout_name(layout)) + " " + cgr_dtype_name(dtype));
      cgr_kv_view k, v;
      std::memset(&k, 0xA5, sizeof k); // no old content may remain
      std::memset(&v, 0xA5, sizeof v);
      CGR_ASSERT_OK(cgr_kv_view_make(layout, memory, dtype, kPageSize, kHeads, kDim, &k));
      ASSERT_NO_FATAL_FAILURE(ExpectTensor(layout, { k }, memory, dtype));
      std::memset(&k, 0xA5, sizeof k);
      CGR_ASSERT_OK(cgr_kv_view_make_pair(layout, memory, dtype, kPageSize, kHeads, kDim, &k, &v));
      ASSERT_NO_FATAL_FAILURE(ExpectTensor(layout, { k, v }, memory, dtype));
    }
}

TEST(ViewHelpers, ADenseTensor) {
  alignas(256) static char memory[16];
  cgr_view view;
  std::memset(&view, 0xA5, sizeof view);
  CGR_ASSERT_OK(cgr_view_make(memory, CGR_DTYPE_FP16, kHeads, kDim, &view));
  EXPECT_EQ(view.data, memory);
  EXPECT_EQ(view.dtype, CGR_DTYPE_FP16);
  EXPECT_EQ(view.reserved, 0);
  EXPECT_EQ(view.stride_token, kHeads * kDim);
  EXPECT_EQ(view.stride_head, kDim);
}

// Strides are 64-bit.
TEST(ViewHelpers, TheLargestShape) {
  static char memory[1];
  const int32_t most = 1 << 20;
  cgr_kv_view k = {}, v = {};
  CGR_ASSERT_OK(cgr_kv_view_make(CGR_LAYOUT_HND, memory, CGR_DTYPE_I8, most, most, 1 << 10, &k));
  EXPECT_EQ(k.stride_page, int64_t{ 1 } << 50);
  EXPECT_EQ(k.stride_head, int64_t{ 1 } << 30);
  CGR_ASSERT_OK(cgr_kv_view_make_pair(CGR_LAYOUT_NHD, memory, CGR_DTYPE_I8, 1 << 10, 1 << 10, 1 << 12, &k, &v));
  EXPECT_EQ(k.stride_page, int64_t{ 1 } << 33);
  EXPECT_EQ(static_cast<char *>(v.base) - memory, int64_t{ 1 } << 32);
}

TEST(ViewHelpers, WhatIsNoShapeIsRefused) {
  static char memory[16];
  struct Bad {
    cgr_kv_layout layout;
    void *base;
    cgr_dtype dtype;
    int32_t page_size, heads, dim;
    cgr_status status;
    Words words;
  };
  const std::vector<Bad> bads = {
    { cgr_kv_layout(0), memory, CGR_DTYPE_BF16, 16, 2, 64, CGR_ERROR_INVALID_ENUM, { "layout is 0" } },
    { cgr_kv_layout(3), memory, CGR_DTYPE_BF16, 16, 2, 64, CGR_ERROR_INVALID_ENUM, { "layout is 3" } },
    { CGR_LAYOUT_NHD, nullptr, CGR_DTYPE_BF16, 16, 2, 64, CGR_ERROR_NULL_POINTER, { "NULL" } },
    { CGR_LAYOUT_NHD, memory, CGR_DTYPE_NONE, 16, 2, 64, CGR_ERROR_INVALID_ENUM, { "dtype is 0" } },
    { CGR_LAYOUT_NHD, memory, cgr_dtype(15), 16, 2, 64, CGR_ERROR_INVALID_ENUM, { "dtype is 15" } },
    { CGR_LAYOUT_NHD, memory, CGR_DTYPE_BF16, 0, 2, 64, CGR_ERROR_INVALID_ARGUMENT, { "page_size is 0" } },
    { CGR_LAYOUT_NHD, memory, CGR_DTYPE_BF16, (1 << 20) + 1, 2, 64, CGR_ERROR_INVALID_ARGUMENT, { "page_size is 1048577" } },
    { CGR_LAYOUT_NHD, memory, CGR_DTYPE_BF16, 16, -2, 64, CGR_ERROR_INVALID_ARGUMENT, { "num_kv_heads is -2" } },
    { CGR_LAYOUT_NHD,
      memory,
      CGR_DTYPE_FP4_E2M1,
      16,
      2,
      63,
      CGR_ERROR_INVALID_ARGUMENT,
      { "head_dim is 63", "two elements of fp4_e2m1 are a byte" } },
    { CGR_LAYOUT_NHD, memory, CGR_DTYPE_BF16, 16, 2, INT_MIN, CGR_ERROR_INVALID_ARGUMENT, { "head_dim is -2147483648" } },
  };
  const cgr_kv_view untouched = { memory, 77, 0, 1, 2, 3, nullptr, 0, 0, 0, 0 };
  for (const Bad &b : bads) {
    SCOPED_TRACE(b.words[0]);
    cgr_kv_view k = untouched, v = untouched;
    Words one = b.words, pair = b.words;
    one.push_back("cgr_kv_view_make:");
    pair.push_back("cgr_kv_view_make_pair:");
    ExpectMessage(cgr_kv_view_make(b.layout, b.base, b.dtype, b.page_size, b.heads, b.dim, &k), b.status, one);
    ExpectMessage(cgr_kv_view_make_pair(b.layout, b.base, b.dtype, b.page_size, b.heads, b.dim, &k, &v), b.status, pair);
    EXPECT_EQ(std::memcmp(&k, &untouched, sizeof k), 0);
    EXPECT_EQ(std::memcmp(&v, &untouched, sizeof v), 0);
  }
  cgr_kv_view k;
  cgr_view view;
  ExpectMessage(cgr_kv_view_make(CGR_LAYOUT_NHD, memory, CGR_DTYPE_BF16, 16, 2, 64, nullptr), CGR_ERROR_NULL_POINTER, { "view" });
  for (bool first : { false, true })
    ExpectMessage(
        cgr_kv_view_make_pair(CGR_LAYOUT_NHD, memory, CGR_DTYPE_BF16, 16, 2, 64, first ? nullptr : &k, first ? &k : nullptr),
        CGR_ERROR_NULL_POINTER, { first ? ": k is NULL" : ": v is NULL" });
  ExpectMessage(cgr_view_make(memory, CGR_DTYPE_BF16, 2, 64, nullptr), CGR_ERROR_NULL_POINTER, { "view" });
  ExpectMessage(cgr_view_make(nullptr, CGR_DTYPE_BF16, 2, 64, &view), CGR_ERROR_NULL_POINTER, { "cgr_view_make", "NULL" });
  ExpectMessage(cgr_view_make(memory, cgr_dtype(-1), 2, 64, &view), CGR_ERROR_INVALID_ENUM, { "cgr_view_make", "dtype is -1" });
  ExpectMessage(cgr_view_make(memory, CGR_DTYPE_I4, 2, 33, &view), CGR_ERROR_INVALID_ARGUMENT,
                { "head_dim is 33", "an even number" });
  ExpectMessage(cgr_view_make(memory, CGR_DTYPE_BF16, 0, 64, &view), CGR_ERROR_INVALID_ARGUMENT, { "num_heads is 0" });
  ExpectMessage(cgr_view_make(memory, CGR_DTYPE_BF16, 2, 0, &view), CGR_ERROR_INVALID_ARGUMENT, { "head_dim is 0" });
}

} // namespace
} // namespace cgr_test

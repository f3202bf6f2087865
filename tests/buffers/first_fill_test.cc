// What the arena holds before its first step: once it is cleared and filled as the layout says, every element of every buffer has
// the padding value that the public header gives.
#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "buffers/layout.h"
#include "cgr/names.h"
#include "tests/buffers/limits.h"

namespace {

using namespace cgr_test;

// An arena on the host, and which of its bytes a buffer owns.
struct Arena {
  cgr__limits limits;
  cgr__layout layout;
  std::vector<unsigned char> bytes, owned;
  int fills = 0, failing = -1; // the fill with this number fails

  Arena(const std::vector<cgr__declared> &declared, const cgr__limits &l) : limits(l) {
    EXPECT_EQ(cgr__layout_make(&limits, declared.data(), static_cast<int32_t>(declared.size()), &layout), CGR_OK);
    bytes.assign(layout.bytes, 0);
    owned.assign(layout.bytes, 0);
  }
  int Fill() { return cgr__layout_first_fills(&limits, &layout, FillOne, this); }

  static int FillOne(void *context, const cgr__first_fill *fill) {
    Arena *arena = static_cast<Arena *>(context);
    if (arena->fills++ == arena->failing)
      return 77;
    EXPECT_TRUE(fill->width == 1 || fill->width == 2 || fill->width == 4 || fill->width == 8) << fill->width;
    EXPECT_GT(fill->count, 0u);
    EXPECT_LE(fill->offset + fill->width * fill->count, arena->bytes.size());
    for (size_t i = 0; i < fill->count; i++) // the low bytes of the value, as little-endian devices write them
      memcpy(arena->bytes.data() + fill->offset + i * fill->width, &fill->value, fill->width);
    return 0;
  }

  // Element i of a buffer at `offset`, as a number.
  double Element(size_t offset, cgr_dtype dtype, int64_t i) {
    const unsigned char *at = bytes.data() + offset + static_cast<size_t>(i) * cgr_dtype_size(dtype);
    memset(owned.data() + (at - bytes.data()), 1, cgr_dtype_size(dtype));
    switch (dtype) {
    case CGR_DTYPE_FP32:
      return *reinterpret_cast<const float *>(at);
    case CGR_DTYPE_I32:
      return *reinterpret_cast<const int32_t *>(at);
    case CGR_DTYPE_I64:
      return static_cast<double>(*reinterpret_cast<const int64_t *>(at));
    case CGR_DTYPE_I8:
      return static_cast<int8_t>(*at);
    case CGR_DTYPE_U8:
      return *at;
    default: // a float of 16 bits: its bits
      return *reinterpret_cast<const uint16_t *>(at);
    }
  }
  void ExpectAll(const std::string &name, size_t offset, cgr_dtype dtype, int64_t count, double value) {
    for (int64_t i = 0; i < count; i++)
      ASSERT_EQ(Element(offset, dtype, i), value) << name << " " << i;
  }
  void ExpectRestZero() const {
    for (size_t i = 0; i < bytes.size(); i++)
      ASSERT_TRUE(owned[i] || bytes[i] == 0) << "byte " << i << " between the buffers";
  }
};

// "padding" in cgr.h; a repeated value is 0 before the first step.
double PaddingOf(const cgr__limits &l, int id, int32_t copy) {
  switch (id) {
  case CGR_BUFFER_SLOT_MAPPING:
    return -1;
  case CGR_BUFFER_REQUEST_ROWS:
    return l.max_rows;
  case CGR_BUFFER_PAGE_TABLE:
    return l.trash_page[copy];
  case CGR_BUFFER_KV_INDICES:
  case CGR_BUFFER_BLOCK_TABLE:
  case CGR_BUFFER_PREFILL_BLOCK_TABLE:
    return l.trash_page[copy] * std::max(l.pages_each[copy], 1);
  case CGR_BUFFER_KV_LAST_PAGE_LEN:
  case CGR_BUFFER_PREFILL_KV_LAST_PAGE_LEN:
    return 1;
  default:
    return 0;
  }
}

TEST(FirstFill, GivesEveryElementItsPaddingValue) {
  SeededRandom random;
  for (int round = 0; round < 60; round++) {
    cgr__limits l = RandomLimits(random);
    std::vector<cgr__declared> declared = RandomDeclarations(random, l);
    Arena arena(declared, l);
    ASSERT_EQ(arena.Fill(), 0);
    for (int32_t copy = 0; copy < CGR__MAX_GROUPS; copy++)
      for (const ExpectedBuffer &e : ExpectedBuffers(l, std::min(copy, l.num_groups - 1)))
        if (copy < e.copies)
          arena.ExpectAll(e.name, arena.layout.offset[e.id][copy], e.dtype, e.rows * e.columns, PaddingOf(l, e.id, copy));
    for (int32_t i = 0; i < arena.layout.num_declared; i++) {
      const cgr__declared &d = arena.layout.declared[i];
      arena.ExpectAll(d.name, d.offset, static_cast<cgr_dtype>(d.dtype), d.rows * d.width, static_cast<double>(d.padding));
    }
    arena.ExpectRestZero();
    ASSERT_FALSE(HasFatalFailure());
  }
}

// The padding values that a dtype can hold, up to its limits.
TEST(FirstFill, WritesDeclaredPaddingExactly) {
  const struct {
    cgr_dtype dtype;
    int64_t padding;
  } cases[] = { { CGR_DTYPE_I8, -128 },       { CGR_DTYPE_I8, 127 },        { CGR_DTYPE_U8, 255 },
                { CGR_DTYPE_I32, INT32_MIN }, { CGR_DTYPE_I32, INT32_MAX }, { CGR_DTYPE_I64, -1 },
                { CGR_DTYPE_FP32, -3 },       { CGR_DTYPE_FP32, 1 << 24 },  { CGR_DTYPE_I64, int64_t{ 1 } << 50 },
                { CGR_DTYPE_FP16, 0 } };
  Random random(5);
  cgr__limits l = RandomLimits(random);
  for (const auto &c : cases) {
    cgr__declared d = RandomDeclared(random, l, 0);
    d.dtype = c.dtype;
    d.padding = c.padding;
    Arena arena({ d }, l);
    ASSERT_EQ(arena.Fill(), 0);
    arena.ExpectAll(cgr_dtype_name(c.dtype), arena.layout.declared[0].offset, c.dtype, d.rows * d.width,
                    static_cast<double>(c.padding));
  }
}

TEST(FirstFill, LeavesOutWhatBeginsAsZeros) {
  Random random(5);
  cgr__limits l = RandomLimits(random);
  for (int32_t g = 0; g < CGR__MAX_GROUPS; g++)
    l.trash_page[g] = 0;
  l.on_demand &= ~CGR_ON_DEMAND(CGR_BUFFER_PREFILL_KV_LAST_PAGE_LEN); // begins as ones
  cgr__declared zero = RandomDeclared(random, l, 0), one = RandomDeclared(random, l, 1);
  zero.padding = 0;
  one.dtype = CGR_DTYPE_I32;
  one.padding = 1;
  Arena arena({ zero, one }, l);
  ASSERT_EQ(arena.Fill(), 0);
  EXPECT_EQ(arena.fills, 2 * l.num_groups + 2); // slot_mapping and kv_last_page_len per group, request_rows, the declared one
}

TEST(FirstFill, EndsAtTheFirstFailureAndReturnsIt) {
  Random random(5);
  cgr__limits l = RandomLimits(random);
  cgr__declared one = RandomDeclared(random, l, 0);
  one.dtype = CGR_DTYPE_I32;
  one.padding = 1;
  Arena all({ one, one }, l);
  ASSERT_EQ(all.Fill(), 0);
  for (int failing = 0; failing < all.fills; failing++) {
    Arena arena({ one, one }, l);
    arena.failing = failing;
    EXPECT_EQ(arena.Fill(), 77);
    EXPECT_EQ(arena.fills, failing + 1) << "went on after a failure";
  }
}

} // namespace

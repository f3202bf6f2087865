// The layout of the persistent buffers: their shapes, places and addresses, and those of ring slots.
#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "buffers/layout.h"
#include "tests/buffers/limits.h"
#include "tests/support/expect.h"

namespace {

using namespace cgr_test;

constexpr int64_t kMostElements = int64_t{ 1 } << 43;

cgr_status Make(const cgr__limits &limits, const std::vector<cgr__declared> &declared, cgr__layout *layout) {
  return cgr__layout_make(&limits, declared.data(), static_cast<int32_t>(declared.size()), layout);
}

TEST(BufferShapes, AreThoseOfTheHeader) {
  SeededRandom random;
  for (int round = 0; round < 100; round++) {
    cgr__limits limits = RandomLimits(random);
    for (int32_t group = 0; group < limits.num_groups; group++) {
      std::vector<ExpectedBuffer> expected = ExpectedBuffers(limits, group);
      ASSERT_EQ(expected.size(), static_cast<size_t>(CGR__BUFFER_COUNT));
      for (const ExpectedBuffer &e : expected) {
        if (group >= e.copies)
          continue;
        cgr__buffer_shape shape = cgr__buffer_shape_of(&limits, e.id, group);
        ASSERT_STREQ(shape.name, e.name);
        ASSERT_EQ(shape.dtype, e.dtype) << e.name;
        ASSERT_EQ(shape.rows, e.rows) << e.name;
        ASSERT_EQ(shape.columns, e.columns) << e.name;
        ASSERT_EQ(shape.copies, e.copies) << e.name;
      }
    }
  }
}

// ------------------------------------------------------------------------------------------------------------------ places

struct Place {
  std::string name;
  size_t begin, end;
};

std::vector<Place> Places(const cgr__limits &limits, const cgr__layout &layout) {
  std::vector<Place> places;
  for (int32_t copy = 0; copy < std::max(limits.num_groups, limits.num_sets); copy++)
    for (const ExpectedBuffer &e : ExpectedBuffers(limits, std::min(copy, limits.num_groups - 1)))
      if (copy < e.copies) {
        size_t begin = layout.offset[e.id][copy];
        size_t bytes = static_cast<size_t>(e.rows * e.columns) * cgr_dtype_size(e.dtype);
        places.push_back({ e.name + std::to_string(copy), begin, begin + bytes });
      }
  for (int32_t i = 0; i < layout.num_declared; i++) {
    const cgr__declared &d = layout.declared[i];
    size_t bytes = static_cast<size_t>(d.rows * d.width) * cgr_dtype_size(static_cast<cgr_dtype>(d.dtype));
    places.push_back({ d.name, d.offset, d.offset + bytes });
  }
  return places;
}

TEST(Layout, BuffersAreAlignedAndDoNotOverlap) {
  SeededRandom random;
  for (int round = 0; round < 200; round++) {
    cgr__limits limits = RandomLimits(random);
    cgr__layout layout;
    ASSERT_EQ(Make(limits, RandomDeclarations(random, limits), &layout), CGR_OK) << cgr_last_message();
    std::vector<Place> places = Places(limits, layout);
    std::sort(places.begin(), places.end(),
              [](const Place &a, const Place &b) { return a.begin != b.begin ? a.begin < b.begin : a.end < b.end; });
    for (size_t i = 0; i < places.size(); i++) {
      ASSERT_EQ(places[i].begin % 256, 0u) << places[i].name;
      ASSERT_LE(places[i].end, layout.bytes) << places[i].name;
      if (i > 0) {
        ASSERT_LE(places[i - 1].end, places[i].begin) << places[i - 1].name << " and " << places[i].name;
      }
    }
    ASSERT_LE(layout.bytes, places.back().end + 255) << "memory behind the last buffer";
  }
}

TEST(Layout, DeclarationsAreKeptInTheirOrder) {
  Random random(3);
  cgr__limits limits = RandomLimits(random);
  std::vector<cgr__declared> declared;
  for (int32_t i = 0; i < CGR__MAX_DECLARED; i++)
    declared.push_back(RandomDeclared(random, limits, i));
  cgr__layout layout;
  ASSERT_EQ(Make(limits, declared, &layout), CGR_OK);
  ASSERT_EQ(layout.num_declared, CGR__MAX_DECLARED);
  for (int32_t i = 0; i < CGR__MAX_DECLARED; i++) {
    const cgr__declared &given = declared[static_cast<size_t>(i)], &kept = layout.declared[i];
    EXPECT_STREQ(kept.name, given.name);
    EXPECT_EQ(kept.dimension, given.dimension);
    EXPECT_EQ(kept.dtype, given.dtype);
    EXPECT_EQ(kept.rows, given.rows);
    EXPECT_EQ(kept.width, given.width);
    EXPECT_EQ(kept.padding, given.padding);
  }
}

// --------------------------------------------------------------------------------------------------------------- addresses

// The pointers of a view, by buffer and copy.
#define ONE_POINTERS(field) { view.field },
#define GROUP_POINTERS(field) { view.group[0].field, view.group[1].field, view.group[2].field, view.group[3].field },
#define SET_POINTERS(field) { view.field[0], view.field[1], view.field[2], view.field[3] },
std::vector<std::vector<const void *>> Pointers(const cgr__buffers &view) {
  static_assert(CGR__MAX_GROUPS == 4 && CGR__MAX_SETS == 4, "the lists above");
#define LIST(id, field, type, shape, copies, source, padding) copies##_POINTERS(field)
  return { CGR__BUFFER_TABLE(LIST) };
#undef LIST
}

TEST(LayoutView, GivesTheAddressOfEachBuffer) {
  SeededRandom random;
  for (int round = 0; round < 50; round++) {
    cgr__limits limits = RandomLimits(random);
    cgr__layout layout;
    ASSERT_EQ(Make(limits, {}, &layout), CGR_OK);
    std::vector<unsigned char> arena(layout.bytes);
    cgr__buffers view;
    memset(&view, 0xa5, sizeof view);
    cgr__layout_view(&limits, &layout, arena.data(), &view);
    std::vector<std::vector<const void *>> pointers = Pointers(view);
    for (const ExpectedBuffer &e : ExpectedBuffers(limits, 0)) {
      const std::vector<const void *> &copies = pointers[static_cast<size_t>(e.id)];
      for (size_t i = 0; i < copies.size(); i++) {
        const void *expected = static_cast<int32_t>(i) < e.copies ? arena.data() + layout.offset[e.id][i] : nullptr;
        ASSERT_EQ(copies[i], expected) << e.name << " " << i;
      }
    }
  }
}

// ------------------------------------------------------------------------------------------------------------------- slots

TEST(Layout, SectionsOfASlotHoldTheirMostAndAreWholeLines) {
  SeededRandom random;
  for (int round = 0; round < 200; round++) {
    cgr__limits l = RandomLimits(random);
    cgr__layout layout;
    ASSERT_EQ(Make(l, {}, &layout), CGR_OK);
    const cgr__ring_slot_layout &slot = layout.slot;
    const cgr__readback_layout &readback = layout.readback;
    ASSERT_GE(slot.batch, static_cast<int64_t>(sizeof(cgr__ring_slot_header)));
    ASSERT_GE(slot.tokens - slot.batch, (3 * l.max_requests + 1) * 4);
    ASSERT_GE(slot.changes - slot.tokens, l.max_tokens * 4);
    ASSERT_GE(slot.stride - slot.changes, l.max_changes * static_cast<int64_t>(sizeof(cgr__change)));
    ASSERT_GE(readback.num_tokens, static_cast<int64_t>(sizeof(cgr__result_record)));
    ASSERT_GE(readback.tokens - readback.num_tokens, l.max_requests * 4);
    ASSERT_GE(readback.values - readback.tokens, l.max_requests * l.token_stride * 4);
    ASSERT_GE(readback.stride - readback.values, l.max_requests * l.value_words * 4);
    for (int64_t offset : { slot.batch, slot.tokens, slot.changes, slot.stride, readback.num_tokens, readback.tokens,
                            readback.values, readback.stride })
      ASSERT_EQ(offset % 64, 0);
    size_t rings = static_cast<size_t>((slot.stride + readback.stride) * l.ring_depth);
    ASSERT_GE(layout.pinned_bytes, sizeof(cgr__completion) + rings);
  }
}

// ---------------------------------------------------------------------------------------------------------------- overflow

void ExpectTooLarge(const cgr__limits &limits, const std::vector<cgr__declared> &declared, const std::string &name) {
  cgr__layout layout;
  ExpectMessage(Make(limits, declared, &layout), CGR_ERROR_INVALID_ARGUMENT, { "buffer", name, "2^43" });
}

// `set` makes one buffer of the size given, in elements.
template <class Set> void CheckBorder(const char *name, Set set) {
  Random random(1);
  cgr__limits limits = RandomLimits(random);
  cgr__layout layout;
  set(&limits, kMostElements);
  EXPECT_EQ(Make(limits, {}, &layout), CGR_OK) << name << ": " << cgr_last_message();
  set(&limits, kMostElements + 1);
  ExpectTooLarge(limits, {}, name);
}

TEST(LayoutOverflow, ABufferOfMoreThan2To43ElementsIsRefusedByName) {
  CheckBorder("buffer plan ", [](cgr__limits *l, int64_t n) { l->plan_words = n; });
  CheckBorder("plan_counters", [](cgr__limits *l, int64_t n) { l->plan_counters = n; });
  CheckBorder("partial_out", [](cgr__limits *l, int64_t n) {
    l->partial_vectors = n == kMostElements ? 1 << 20 : (1 << 20) + 1;
    l->partial_dim = 1 << 23;
  });
  CheckBorder("partial_state", [](cgr__limits *l, int64_t n) {
    l->partial_vectors = n == kMostElements ? kMostElements / 2 : kMostElements / 2 + 1;
    l->partial_dim = 1;
  });
  CheckBorder("page_table", [](cgr__limits *l, int64_t n) {
    l->max_rows = (1 << 20) - (n == kMostElements);
    l->pages_per_row[0] = 1 << 23;
  });
  Random random(1);
  cgr__limits limits = RandomLimits(random); /* with as many tokens a row, its guesses take as much again: too many bytes */
  limits.max_rows = 1 << 20;
  limits.token_stride = 1 << 23;
  limits.max_requests = 1;
  ExpectTooLarge(limits, {}, "row_last_tokens");
}

TEST(LayoutOverflow, SizesWhoseProductDoesNotFitInto64BitsAreRefused) {
  Random random(1);
  for (int64_t dim : { int64_t{ 4 }, int64_t{ 16 }, int64_t{ 1 } << 40, INT64_MAX }) {
    cgr__limits limits = RandomLimits(random);
    limits.partial_vectors = INT64_MAX / 2 + 1; // times 4: 0 in 64 bits
    limits.partial_dim = dim;
    ExpectTooLarge(limits, {}, "partial_out");
  }
}

TEST(LayoutOverflow, ADeclaredBufferIsRefusedByItsIndex) {
  Random random(1);
  cgr__limits limits = RandomLimits(random);
  std::vector<cgr__declared> declared = { RandomDeclared(random, limits, 0), RandomDeclared(random, limits, 1) };
  cgr__layout layout;
  declared[1].rows = 1 << 20;
  declared[1].width = 1 << 23;
  EXPECT_EQ(Make(limits, declared, &layout), CGR_OK) << cgr_last_message();
  for (int64_t width : { (int64_t{ 1 } << 23) + 1, int64_t{ 1 } << 43, int64_t{ 1 } << 44, INT64_MAX }) {
    declared[1].width = width;
    ExpectTooLarge(limits, declared, "buffers[1]");
  }
}

// Buffers that are allowed one by one, but not all together.
TEST(LayoutOverflow, AnArenaThatNoMachineHasIsRefused) {
  Random random(1);
  cgr__limits limits = RandomLimits(random);
  std::vector<cgr__declared> declared;
  for (int32_t i = 0; i < CGR__MAX_DECLARED; i++) {
    declared.push_back(RandomDeclared(random, limits, i));
    declared.back().dtype = CGR_DTYPE_I64;
    declared.back().rows = 1 << 20;
    declared.back().width = 1 << 23;
  }
  cgr__layout layout;
  ExpectMessage(Make(limits, declared, &layout), CGR_ERROR_INVALID_ARGUMENT, { "config", "2^46 bytes" });
}

} // namespace

// The single rule for structs that cross the interface and may grow, tested with every such struct of the public headers.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/limits.h"
#include "base/sized.h"
#include "cgr/bindings.h"
#include "tests/base/headers.h"
#include "tests/support/expect.h"
#include "tests/support/seed.h"

namespace {

using cgr_test::ExpectMessage;
using cgr_test::Random;
using Bytes = std::vector<unsigned char>;

struct Struct {
  std::string name;
  size_t size, alignment;
  Bytes initial; // what its _INIT macro gives
};

template <class T> Bytes BytesOf(const T &value) {
  Bytes bytes(sizeof value);
  memcpy(bytes.data(), &value, sizeof value);
  return bytes;
}

std::vector<Struct> Structs() {
  std::vector<Struct> all;
#define ADD(kind, number, type, ...)                                         \
  {                                                                          \
    static const type initial = __VA_ARGS__;                                 \
    all.push_back({ #type, sizeof(type), alignof(type), BytesOf(initial) }); \
  }
  CGR_STRUCT_LIST(ADD)
#undef ADD
  return all;
}

// A struct of `size` bytes in an allocation of exactly that many: a read or write past them is seen by the address sanitizer.
struct Given {
  std::unique_ptr<unsigned char, decltype(&free)> memory;
  explicit Given(const Bytes &bytes) : memory(static_cast<unsigned char *>(malloc(bytes.size())), free) {
    memcpy(memory.get(), bytes.data(), bytes.size());
  }
  void *get() const { return memory.get(); }
};

Bytes Filled(Random &random, size_t bytes) {
  Bytes filled(bytes);
  for (unsigned char &byte : filled)
    byte = static_cast<unsigned char>(random.Pick(1, 255));
  return filled;
}

void SetSize(Bytes *bytes, uint32_t size) { memcpy(bytes->data(), &size, sizeof size); }

// 0, sizes that end inside of a field, and sizes that are too large.
std::vector<uint32_t> SizesThatAreNone(size_t known) {
  std::vector<uint32_t> none = { 0, CGR__MAX_STRUCT + 1, CGR__MAX_STRUCT + 8, 0x10000, 0x80000000, 0xfffffff8, 0xffffffff };
  for (uint32_t size = 1; size <= known + 64; size++)
    if (size % 8 != 0)
      none.push_back(size);
  return none;
}

// `count` elements of `stride` bytes each, with every known byte random and the unknown ones zero.
Bytes Array(Random &random, int32_t count, size_t stride, size_t known) {
  Bytes array;
  for (int32_t i = 0; i < count; i++) {
    Bytes element = Filled(random, stride);
    if (stride > known)
      std::fill(element.begin() + static_cast<std::ptrdiff_t>(known), element.end(), 0);
    SetSize(&element, static_cast<uint32_t>(stride));
    array.insert(array.end(), element.begin(), element.end());
  }
  return array;
}

// The expected result of reading `given` into a struct of `size` bytes.
Bytes Completed(const Bytes &given, size_t size) {
  Bytes expected(size, 0);
  memcpy(expected.data(), given.data(), std::min(given.size(), size));
  SetSize(&expected, static_cast<uint32_t>(size));
  return expected;
}

// The copy that call(to) makes, with poison behind it.
template <class Call> cgr_status Copied(size_t size, Bytes *copy, Call call) {
  Bytes target(size + 64, 0xa5);
  cgr_status status = call(target.data());
  for (size_t i = size; i < target.size(); i++)
    EXPECT_EQ(target[i], 0xa5) << "byte " << i << " of a copy of " << size;
  copy->assign(target.begin(), target.begin() + static_cast<std::ptrdiff_t>(size));
  return status;
}

cgr_status Read(const Bytes &given, size_t size, Bytes *copy) {
  Given memory(given);
  return Copied(size, copy, [&](void *to) { return cgr__sized_read("thing", "CGR_THING_INIT", memory.get(), to, size); });
}

TEST(Sized, NoStructOfTheHeadersIsLeftOut) {
  std::set<std::string> listed;
  for (const Struct &s : Structs())
    listed.insert(s.name);
  EXPECT_EQ(cgr_test::Declared(cgr_test::HeaderText(), "typedef struct ", "uint32_t size"), listed);
}

// Whole multiples of the alignment end between two fields, never inside of one.
TEST(Sized, EveryStructIsAlignedToTheUnitOfSizes) {
  for (const Struct &s : Structs())
    EXPECT_EQ(s.alignment, static_cast<size_t>(CGR__STRUCT_UNIT)) << s.name;
}

TEST(Sized, InitMacrosSetTheSizeAndLeaveTheRestZero) {
  for (const Struct &s : Structs()) {
    Bytes expected(s.size, 0);
    SetSize(&expected, static_cast<uint32_t>(s.size));
    if (s.name == "cgr_config") {
      const uint32_t magic = CGR_CONFIG_MAGIC, version = CGR_VERSION;
      memcpy(expected.data() + offsetof(cgr_config, magic), &magic, sizeof magic);
      memcpy(expected.data() + offsetof(cgr_config, version), &version, sizeof version);
    }
    EXPECT_EQ(s.initial, expected) << s.name;
    EXPECT_LE(s.size, static_cast<size_t>(CGR__MAX_STRUCT)) << s.name;
  }
}

// What the struct has more is zero, and what it has less becomes zero.
TEST(SizedRead, AShorterOrLongerOneIsCompletedWithZeros) {
  cgr_test::SeededRandom random;
  for (const Struct &s : Structs()) {
    std::vector<size_t> sizes = { s.size + 8, s.size + 104, size_t{ CGR__MAX_STRUCT } };
    for (size_t have = CGR__STRUCT_UNIT; have <= s.size; have += CGR__STRUCT_UNIT)
      sizes.push_back(have);
    for (size_t have : sizes) {
      Bytes given = Array(random, 1, have, s.size), copy;
      ASSERT_EQ(Read(given, s.size, &copy), CGR_OK) << s.name << " " << have;
      ASSERT_EQ(copy, Completed(given, s.size)) << s.name << " " << have;
    }
  }
}

TEST(SizedRead, AnythingUnknownIsRefused) {
  cgr_test::SeededRandom random;
  for (const Struct &s : Structs()) {
    for (size_t have : { s.size + 8, s.size + 104, size_t{ CGR__MAX_STRUCT } }) {
      for (size_t at :
           { s.size, have - 1, static_cast<size_t>(random.Pick(static_cast<int64_t>(s.size), static_cast<int64_t>(have) - 1)) }) {
        Bytes given(have, 0), copy;
        given[at] = static_cast<unsigned char>(1 << random.Pick(0, 7));
        SetSize(&given, static_cast<uint32_t>(have));
        ExpectMessage(Read(given, s.size, &copy), CGR_ERROR_NEWER_STRUCT,
                      { "thing", std::to_string(have), std::to_string(s.size), "use CGR_THING_INIT" });
      }
    }
  }
}

TEST(SizedRead, SizesThatAreNoneAreRefused) {
  for (const Struct &s : Structs()) {
    for (uint32_t size : SizesThatAreNone(s.size)) {
      Bytes given(8, 0), copy;
      SetSize(&given, size);
      ExpectMessage(Read(given, s.size, &copy), CGR_ERROR_INVALID_STRUCT,
                    { "thing", "size is " + std::to_string(size), "expected a multiple of 8, 8 to 4096: use CGR_THING_INIT" });
    }
  }
}

TEST(SizedRead, NullIsRefused) {
  unsigned char copy[64];
  ExpectMessage(cgr__sized_read("batch", "CGR_BATCH_INIT", nullptr, copy, sizeof copy), CGR_ERROR_NULL_POINTER,
                { "batch", "NULL" });
}

// ------------------------------------------------------------------------------------------------------------------ arrays

cgr_status ReadAt(const Bytes &array, int32_t i, size_t size, Bytes *copy) {
  Given memory(array);
  return Copied(size, copy, [&](void *to) { return cgr__sized_read_at("things", "CGR_THING_INIT", memory.get(), i, to, size); });
}

TEST(SizedArray, IsSteppedThroughByTheFirstElementsSize) {
  cgr_test::SeededRandom random;
  for (const Struct &s : Structs()) {
    for (size_t stride : { size_t{ 8 }, s.size - 8, s.size, s.size + 8, s.size + 24, size_t{ CGR__MAX_STRUCT } }) {
      Bytes array = Array(random, 5, stride, s.size), copy;
      for (int32_t i = 0; i < 5; i++) {
        Bytes element(array.begin() + static_cast<std::ptrdiff_t>(stride) * i,
                      array.begin() + static_cast<std::ptrdiff_t>(stride) * (i + 1));
        ASSERT_EQ(ReadAt(array, i, s.size, &copy), CGR_OK) << s.name << " " << stride;
        ASSERT_EQ(copy, Completed(element, s.size)) << s.name << " " << stride;
      }
    }
  }
}

TEST(SizedArray, ElementsOfAnotherSizeAreRefusedByName) {
  Random random(1);
  Bytes copy;
  for (uint32_t other : { 0u, 4u, 39u, 41u, 0xffffffffu }) {
    Bytes array = Array(random, 4, 40, 40);
    memcpy(array.data() + 2 * 40, &other, sizeof other);
    EXPECT_EQ(ReadAt(array, 1, 40, &copy), CGR_OK);
    ExpectMessage(ReadAt(array, 2, 40, &copy), CGR_ERROR_INVALID_STRUCT,
                  { "things[2]", std::to_string(other), "expected 40", "CGR_THING_INIT" });
  }
}

TEST(SizedArray, SizesThatAreNoneAreRefusedForEveryElement) {
  Random random(1);
  Bytes copy;
  for (uint32_t size : SizesThatAreNone(40)) {
    Bytes array = Array(random, 2, 40, 40);
    SetSize(&array, size);
    for (int32_t i : { 0, 1 })
      ExpectMessage(ReadAt(array, i, 40, &copy), CGR_ERROR_INVALID_STRUCT, { "things[0]", "size is " + std::to_string(size) });
  }
}

// A wrong size of the first that could be one: elements after it are nowhere, and none of them is looked at.
TEST(SizedArray, AFirstElementWithAnythingUnknownIsRefusedForEveryElement) {
  Random random(1);
  Bytes copy;
  Bytes array = Array(random, 3, 40, 40);
  SetSize(&array, 80);
  for (int32_t i : { 0, 1, 2 })
    ExpectMessage(ReadAt(array, i, 40, &copy), CGR_ERROR_NEWER_STRUCT, { "things[0]", "80", "40", "use CGR_THING_INIT" });
}

TEST(SizedArray, AnythingUnknownIsRefusedByName) {
  Random random(1);
  Bytes copy;
  for (size_t at : { 40u, 47u, 63u }) {
    Bytes array = Array(random, 3, 64, 40);
    array[64 + at] = 1;
    EXPECT_EQ(ReadAt(array, 0, 40, &copy), CGR_OK);
    EXPECT_EQ(ReadAt(array, 2, 40, &copy), CGR_OK);
    ExpectMessage(ReadAt(array, 1, 40, &copy), CGR_ERROR_NEWER_STRUCT, { "things[1]", "64", "40", "use CGR_THING_INIT" });
  }
}

TEST(SizedArray, NullIsRefused) {
  unsigned char copy[64];
  ExpectMessage(cgr__sized_read_at("layers", "CGR_LAYER_INIT", nullptr, 0, copy, sizeof copy), CGR_ERROR_NULL_POINTER,
                { "layers", "NULL" });
}

// ----------------------------------------------------------------------------------------------------------------- outputs

TEST(SizedOutput, IsFilledUpToTheSmallerSizeAndNotPastIt) {
  cgr_test::SeededRandom random;
  for (const Struct &s : Structs()) {
    Bytes full = Filled(random, s.size);
    SetSize(&full, static_cast<uint32_t>(s.size));
    for (size_t have = CGR__STRUCT_UNIT; have <= s.size + 40; have += CGR__STRUCT_UNIT) {
      Bytes output(have, 0xa5);
      SetSize(&output, static_cast<uint32_t>(have));
      Bytes expected = output;
      memcpy(expected.data(), full.data(), std::min(have, s.size));
      SetSize(&expected, static_cast<uint32_t>(have)); // its size stays
      Given memory(output);
      ASSERT_EQ(cgr__sized_check("thing", "CGR_THING_INIT", memory.get()), CGR_OK) << s.name << " " << have;
      cgr__sized_write(memory.get(), full.data(), s.size);
      ASSERT_EQ(memcmp(memory.get(), expected.data(), have), 0) << s.name << " " << have;
    }
  }
}

TEST(SizedOutput, SizesThatAreNoneAreRefused) {
  for (uint32_t size : SizesThatAreNone(40)) {
    Bytes output(4, 0);
    SetSize(&output, size);
    ExpectMessage(cgr__sized_check("info", "CGR_INFO_INIT", output.data()), CGR_ERROR_INVALID_STRUCT,
                  { "info", "size is " + std::to_string(size), "use CGR_INFO_INIT" });
  }
  for (uint32_t size : { 8u, 16u, 4096u }) {
    Bytes output(4, 0);
    SetSize(&output, size);
    EXPECT_EQ(cgr__sized_check("info", "CGR_INFO_INIT", output.data()), CGR_OK);
  }
  ExpectMessage(cgr__sized_check("info", "CGR_INFO_INIT", nullptr), CGR_ERROR_NULL_POINTER, { "info", "NULL" });
}

TEST(SizedOutputs, AreSteppedThroughByTheFirstOnesSize) {
  Random random(1);
  for (size_t stride : { 8u, 40u, 4096u }) {
    Given array(Array(random, 5, stride, stride));
    for (int32_t i = 0; i < 5; i++) {
      void *element = nullptr;
      ASSERT_EQ(cgr__sized_check_at("things", "CGR_THING_INIT", array.get(), i, &element), CGR_OK) << stride;
      EXPECT_EQ(element, static_cast<unsigned char *>(array.get()) + stride * static_cast<size_t>(i));
    }
  }
}

TEST(SizedOutputs, SizesThatAreNoneOrAnotherAreRefusedByName) {
  Random random(1);
  void *element;
  for (uint32_t other : { 0u, 4u, 39u, 41u, 0xffffffffu }) {
    Bytes bytes = Array(random, 4, 40, 40);
    memcpy(bytes.data() + 2 * 40, &other, sizeof other);
    Given array(bytes);
    EXPECT_EQ(cgr__sized_check_at("things", "CGR_THING_INIT", array.get(), 1, &element), CGR_OK);
    ExpectMessage(cgr__sized_check_at("things", "CGR_THING_INIT", array.get(), 2, &element), CGR_ERROR_INVALID_STRUCT,
                  { "things[2]: size is " + std::to_string(other), "expected 40 as in things[0]" });
  }
  for (uint32_t size : SizesThatAreNone(40)) {
    Bytes bytes = Array(random, 2, 40, 40);
    SetSize(&bytes, size);
    Given array(bytes);
    for (int32_t i : { 0, 1 })
      ExpectMessage(cgr__sized_check_at("things", "CGR_THING_INIT", array.get(), i, &element), CGR_ERROR_INVALID_STRUCT,
                    { "things[0]: size is " + std::to_string(size) });
  }
  ExpectMessage(cgr__sized_check_at("plans", "CGR_THING_INIT", nullptr, 0, &element), CGR_ERROR_NULL_POINTER,
                { "plans is NULL" });
}

} // namespace

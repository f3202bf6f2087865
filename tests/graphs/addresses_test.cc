// The set of words that a graph may hold as addresses, against a set of the standard library.
#include <cstring>
#include <set>

#include "graphs/graphs.h"
#include "tests/support/seed.h"

namespace {

using namespace cgr_test;

struct Set {
  cgr__addresses addresses = { nullptr, 0, 0 };
  ~Set() { cgr__addresses_free(&addresses); }
  bool Meets(uint64_t base, size_t bytes) const {
    return cgr__addresses_meet(&addresses, reinterpret_cast<const void *>(uintptr_t(base)), bytes);
  }
};

TEST(Addresses, AnEmptySetMeetsNothing) {
  Set set;
  EXPECT_FALSE(set.Meets(4096, SIZE_MAX - 4096));
  cgr__addresses_sort(&set.addresses);
  EXPECT_FALSE(set.Meets(4096, SIZE_MAX - 4096));
}

TEST(Addresses, WordsThatCannotBeAddressesAreLeftOut) {
  Set set;
  for (uint64_t word : { uint64_t(0), uint64_t(1), uint64_t(4095), uint64_t(1) << 57, UINT64_MAX, uint64_t(0x3f8000003f800000) })
    EXPECT_TRUE(cgr__addresses_add(&set.addresses, word));
  EXPECT_EQ(set.addresses.count, 0);
  for (uint64_t word : { uint64_t(4096), (uint64_t(1) << 57) - 1 })
    EXPECT_TRUE(cgr__addresses_add(&set.addresses, word));
  EXPECT_EQ(set.addresses.count, 2);
}

// Of a parameter that is no multiple of 8 bytes long the rest is no word.
TEST(Addresses, WordsOfAParameterAreAtMultiplesOf8Bytes) {
  Set set;
  const uint64_t words[3] = { 0x10000, 7, 0x20000 };
  unsigned char bytes[23];
  std::memcpy(bytes, words, sizeof bytes);
  EXPECT_TRUE(cgr__addresses_add_words(&set.addresses, bytes, sizeof bytes));
  EXPECT_TRUE(cgr__addresses_add_words(&set.addresses, nullptr, 0));
  cgr__addresses_sort(&set.addresses);
  EXPECT_EQ(set.addresses.count, 1);
  EXPECT_TRUE(set.Meets(0x10000, 1));
  EXPECT_TRUE(set.Meets(0xffff, 2));
  EXPECT_FALSE(set.Meets(0xffff, 1)) << "its end is outside";
  EXPECT_FALSE(set.Meets(0x10001, 64));
}

TEST(Addresses, MeetWhatAStandardSetMeetsAtRandom) {
  SeededRandom random;
  for (int n = 0; n < 60; n++) {
    Set set;
    std::set<uint64_t> want;
    const int64_t most = random.Pick(1, 3000), near = random.OneIn(2) ? 5000 : int64_t(1) << 40;
    for (int64_t i = 0; i < most; i++) {
      const uint64_t word = uint64_t(random.Pick(4096, 4096 + near));
      ASSERT_TRUE(cgr__addresses_add(&set.addresses, word));
      want.insert(word);
    }
    cgr__addresses_sort(&set.addresses);
    ASSERT_EQ(set.addresses.count, int64_t(want.size()));
    for (int i = 0; i < 500; i++) {
      const uint64_t base = uint64_t(random.Pick(4096, 4096 + near)), bytes = uint64_t(random.Pick(1, near / 100));
      const auto first = want.lower_bound(base);
      EXPECT_EQ(set.Meets(base, bytes), first != want.end() && *first < base + bytes) << base << ", " << bytes;
    }
  }
}

} // namespace

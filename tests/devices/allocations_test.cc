// The registry of live allocations, against a map.
#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <random>

extern "C" {
#include "devices/allocations.h"
}

namespace {

const void *Address(uintptr_t number) { return reinterpret_cast<const void *>(number); }

class AllocationsTest : public ::testing::Test {
protected:
  void SetUp() override { ASSERT_TRUE(cgr__allocations_init(&all_)); }
  void TearDown() override { cgr__allocations_free(&all_); }

  bool Add(uintptr_t number, cgr__memory_kind kind = CGR__MEMORY_DEVICE) {
    return cgr__allocations_add(&all_, Address(number), kSize, kind);
  }
  bool Claim(uintptr_t number, cgr__memory_kind kind = CGR__MEMORY_DEVICE) {
    return cgr__allocations_claim(&all_, Address(number), kind);
  }
  void EndFree(uintptr_t number, bool freed) { cgr__allocations_end_free(&all_, Address(number), freed); }

  uintptr_t Find(uintptr_t number) {
    const void *base = this;
    size_t bytes = 1;
    cgr__allocations_find(&all_, Address(number), &base, &bytes);
    EXPECT_EQ(bytes, base == nullptr ? 0 : kSize);
    return reinterpret_cast<uintptr_t>(base);
  }

  static constexpr size_t kSize = 200;
  struct cgr__allocations all_;
};

TEST_F(AllocationsTest, AnAddressIsInOneOrInNone) {
  EXPECT_EQ(Find(256), 0u);
  for (uintptr_t number : { 768, 256, 512 })
    ASSERT_TRUE(Add(number));
  for (uintptr_t number = 0; number < 1100; number++)
    EXPECT_EQ(Find(number), number >= 256 && number % 256 < kSize && number < 1024 ? number / 256 * 256 : 0u) << number;
  EXPECT_EQ(Find(UINTPTR_MAX), 0u);
  ASSERT_TRUE(Claim(512));
  EndFree(512, true);
  EXPECT_EQ(Find(600), 0u);
}

TEST_F(AllocationsTest, AgreesWithAMap) {
  std::mt19937_64 random(1);
  std::map<uintptr_t, cgr__memory_kind> model;
  for (int i = 0; i < 20000; i++) {
    uintptr_t number = (random() % 500 + 1) * 256;
    auto kind = static_cast<cgr__memory_kind>(random() % 2);
    auto found = model.find(number);
    if (random() % 2 == 0 && found == model.end()) {
      ASSERT_TRUE(Add(number, kind));
      model[number] = kind;
      continue;
    }
    bool expected = found != model.end() && found->second == kind;
    ASSERT_EQ(Claim(number, kind), expected);
    if (!expected)
      continue;
    bool freed = random() % 2 == 0;
    EndFree(number, freed);
    if (freed)
      model.erase(found);
  }
  EXPECT_EQ(all_.count, model.size());
}

TEST_F(AllocationsTest, AClaimIsForOne) {
  ASSERT_TRUE(Add(256));
  EXPECT_TRUE(Claim(256));
  EXPECT_FALSE(Claim(256));
  EndFree(256, false); // the free was refused
  EXPECT_TRUE(Claim(256));
  EndFree(256, true);
  EXPECT_FALSE(Claim(256));
  EXPECT_EQ(all_.count, 0u);
}

// The allocator gives the address to another thread before the free has ended.
TEST_F(AllocationsTest, AnAddressMayComeBackBeforeTheFreeIsSettled) {
  ASSERT_TRUE(Add(256));
  ASSERT_TRUE(Claim(256));
  ASSERT_TRUE(Add(256, CGR__MEMORY_PINNED));
  EndFree(256, true);
  EXPECT_EQ(all_.count, 1u);
  EXPECT_FALSE(Claim(256, CGR__MEMORY_DEVICE));
  EXPECT_TRUE(Claim(256, CGR__MEMORY_PINNED));
  EndFree(256, true);
}

} // namespace

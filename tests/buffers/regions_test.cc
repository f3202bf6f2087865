// The registry of regions: what is registered, what moves, and what is refused.
#include <cstring>
#include <memory>
#include <set>

#include "buffers/regions.h"
#include "tests/support/expect.h"
#include "tests/support/seed.h"

namespace {

using namespace cgr_test;

// A registry in which the first `own` regions are the runtime's.
struct Registry {
  std::unique_ptr<cgr__regions> regions = std::make_unique<cgr__regions>();
  char memory[64];

  explicit Registry(int32_t own) {
    memset(regions.get(), 0, sizeof *regions);
    for (int32_t i = 0; i < own; i++)
      EXPECT_EQ(cgr__regions_register(regions.get(), memory + i, 16, nullptr), CGR_OK);
    regions->first_movable = own;
  }
  cgr_status Register(const void *base, size_t bytes, int32_t *region) {
    return cgr__regions_register(regions.get(), base, bytes, region);
  }
  cgr_status Move(int32_t region, const void *base, size_t bytes) {
    return cgr__regions_move(regions.get(), region, base, bytes);
  }
};

TEST(Regions, AreNumberedAndKept) {
  Registry r(2);
  int32_t first = -1, second = -1;
  ASSERT_EQ(r.Register(r.memory + 10, 5, &first), CGR_OK);
  ASSERT_EQ(r.Register(r.memory + 20, size_t(1) << 56, &second), CGR_OK);
  EXPECT_EQ(first, 2);
  EXPECT_EQ(second, 3);
  EXPECT_EQ(r.regions->count, 4);
  EXPECT_EQ(r.regions->region[first].base, r.memory + 10);
  EXPECT_EQ(r.regions->region[first].bytes, 5u);
  EXPECT_EQ(r.regions->region[second].bytes, size_t(1) << 56);
  EXPECT_EQ(r.regions->region[first].epoch, 0u);
  EXPECT_EQ(r.regions->epoch, 0u) << "what was captured before does not hold a new region";
}

TEST(Regions, AMoveChangesAddressSizeAndBothEpochs) {
  Registry r(1);
  int32_t a, b;
  ASSERT_EQ(r.Register(r.memory, 8, &a), CGR_OK);
  ASSERT_EQ(r.Register(r.memory + 8, 8, &b), CGR_OK);
  for (uint64_t moves = 1; moves <= 5; moves++) {
    int32_t moved = moves % 2 ? a : b;
    uint64_t other = r.regions->region[moves % 2 ? b : a].epoch;
    ASSERT_EQ(r.Move(moved, r.memory + moves, 3 + moves), CGR_OK);
    EXPECT_EQ(r.regions->epoch, moves);
    EXPECT_EQ(r.regions->region[moved].epoch, moves);
    EXPECT_EQ(r.regions->region[moved].base, r.memory + moves);
    EXPECT_EQ(r.regions->region[moved].bytes, 3 + moves);
    EXPECT_EQ(r.regions->region[moves % 2 ? b : a].epoch, other);
  }
  ASSERT_EQ(r.Move(a, r.regions->region[a].base, r.regions->region[a].bytes), CGR_OK);
  EXPECT_EQ(r.regions->epoch, 6u) << "a move to the same place says that what is there has changed";
}

TEST(Regions, TheRuntimesOwnCannotMove) {
  Registry r(3);
  int32_t region;
  ASSERT_EQ(r.Register(r.memory, 8, &region), CGR_OK);
  for (int32_t own = 0; own < 3; own++)
    ExpectMessage(r.Move(own, r.memory, 8), CGR_ERROR_INVALID_ARGUMENT,
                  { "cgr_region_move", "region is " + std::to_string(own), "3 .. 3" });
  EXPECT_EQ(r.regions->epoch, 0u);
  EXPECT_EQ(r.regions->region[0].bytes, 16u);
}

TEST(Regions, NumbersThatWereNeverGivenAreRefused) {
  Registry r(1);
  int32_t region;
  ASSERT_EQ(r.Register(r.memory, 8, &region), CGR_OK);
  for (int32_t bad : { -1, 2, CGR__MAX_REGIONS, INT32_MAX, INT32_MIN })
    ExpectMessage(r.Move(bad, r.memory, 8), CGR_ERROR_INVALID_ARGUMENT,
                  { "cgr_region_move", "region is " + std::to_string(bad), "1 .. 1" });
  EXPECT_EQ(r.regions->epoch, 0u);
}

// A message "expected one of 3 .. 2" would be no help.
TEST(Regions, TheMessageSaysWhenThereAreNoneToMove) {
  Registry r(3);
  ExpectMessage(r.Move(0, r.memory, 8), CGR_ERROR_INVALID_ARGUMENT, { "cgr_region_move", "region is 0", "cgr_region_register" });
  EXPECT_EQ(std::string(cgr_last_message()).find("3 .. 2"), std::string::npos) << cgr_last_message();
}

TEST(Regions, NoAddressAndNoBytesAreRefused) {
  Registry r(1);
  int32_t region = -7;
  ExpectMessage(r.Register(nullptr, 8, &region), CGR_ERROR_NULL_POINTER, { "cgr_region_register", "base is NULL" });
  ExpectMessage(r.Register(r.memory, 0, &region), CGR_ERROR_INVALID_ARGUMENT,
                { "cgr_region_register", "bytes is 0", "expected 1 .. 2^56" });
  EXPECT_EQ(region, -7);
  EXPECT_EQ(r.regions->count, 1);
  ASSERT_EQ(r.Register(r.memory, 8, &region), CGR_OK);
  ExpectMessage(r.Move(region, nullptr, 8), CGR_ERROR_NULL_POINTER, { "cgr_region_move", "base is NULL" });
  for (size_t bytes : { SIZE_MAX, (size_t(1) << 56) + 1, SIZE_MAX - reinterpret_cast<uintptr_t>(r.memory) + 2 })
    ExpectMessage(r.Move(region, r.memory, bytes), CGR_ERROR_INVALID_ARGUMENT, { "cgr_region_move", "do not wrap" });
  ExpectMessage(r.Move(region, r.memory, 0), CGR_ERROR_INVALID_ARGUMENT,
                { "cgr_region_move", "bytes is 0", "expected 1 .. 2^56" });
  EXPECT_EQ(r.regions->region[region].base, r.memory);
  EXPECT_EQ(r.regions->epoch, 0u);
}

// A number that is free again is given again, the lowest first; whatever is known of it is gone.
TEST(Regions, UnregisteredNumbersAreGivenAgain) {
  Registry r(2);
  int32_t region[4], again = -1;
  for (int32_t &each : region)
    ASSERT_EQ(r.Register(r.memory, 8, &each), CGR_OK);
  ASSERT_EQ(cgr__regions_unregister(r.regions.get(), region[2]), CGR_OK);
  ASSERT_EQ(cgr__regions_unregister(r.regions.get(), region[0]), CGR_OK);
  EXPECT_EQ(r.regions->epoch, 2u) << "what holds one is stale";
  EXPECT_EQ(r.regions->region[region[2]].bytes, 0u);
  for (int32_t gone : { region[0], region[2] }) {
    const std::string number = "region is " + std::to_string(gone) + ", which has been unregistered";
    ExpectMessage(r.Move(gone, r.memory, 8), CGR_ERROR_INVALID_ARGUMENT, { "cgr_region_move", number });
    ExpectMessage(cgr__regions_unregister(r.regions.get(), gone), CGR_ERROR_INVALID_ARGUMENT,
                  { "cgr_region_unregister", number });
  }
  EXPECT_EQ(r.regions->epoch, 2u);
  for (int32_t want : { region[0], region[2], region[3] + 1 }) {
    ASSERT_EQ(r.Register(r.memory + 1, 4, &again), CGR_OK);
    EXPECT_EQ(again, want);
    EXPECT_EQ(r.regions->region[again].base, r.memory + 1);
  }
  EXPECT_EQ(r.regions->epoch, 2u);
}

TEST(Regions, TheRuntimesOwnAreNotUnregistered) {
  Registry r(3);
  int32_t region;
  ASSERT_EQ(r.Register(r.memory, 8, &region), CGR_OK);
  for (int32_t own = 0; own < 3; own++)
    ExpectMessage(cgr__regions_unregister(r.regions.get(), own), CGR_ERROR_INVALID_ARGUMENT,
                  { "cgr_region_unregister", "region is " + std::to_string(own), "3 .. 3", "the runtime's own" });
  for (int32_t bad : { -1, 4, INT32_MAX, INT32_MIN })
    ExpectMessage(cgr__regions_unregister(r.regions.get(), bad), CGR_ERROR_INVALID_ARGUMENT,
                  { "cgr_region_unregister", "region is " + std::to_string(bad), "3 .. 3" });
  EXPECT_EQ(r.regions->region[0].bytes, 16u);
  EXPECT_EQ(r.regions->epoch, 0u);
}

// Against a set of the numbers that are in use, with a registry that is full from time to time.
TEST(Regions, ComeAndGoAtRandom) {
  SeededRandom random;
  Registry r(2);
  std::set<int32_t> in_use;
  uint64_t epoch = 0;
  for (int n = 0; n < 300000 && !HasFailure(); n++) {
    const bool grows = n / 20000 % 2 == 0;
    int32_t region = -1;
    if (random.OneIn(grows ? 4 : 2) && !in_use.empty()) {
      auto victim = in_use.lower_bound(random.Pick32(2, CGR__MAX_REGIONS - 1));
      victim = victim == in_use.end() ? in_use.begin() : victim;
      ASSERT_EQ(cgr__regions_unregister(r.regions.get(), *victim), CGR_OK);
      in_use.erase(victim);
      EXPECT_EQ(r.regions->epoch, ++epoch);
    } else if (int32_t(in_use.size()) == CGR__MAX_REGIONS - 2) {
      EXPECT_EQ(r.Register(r.memory, 8, &region), CGR_ERROR_OUT_OF_MEMORY);
    } else {
      ASSERT_EQ(r.Register(r.memory, 8, &region), CGR_OK);
      EXPECT_TRUE(region >= 2 && region < CGR__MAX_REGIONS && in_use.insert(region).second) << region;
    }
  }
}

TEST(Regions, NoMoreThanTheLimit) {
  Registry r(1);
  int32_t region = -1;
  while (r.regions->count < CGR__MAX_REGIONS)
    ASSERT_EQ(r.Register(r.memory, 8, &region), CGR_OK);
  EXPECT_EQ(region, CGR__MAX_REGIONS - 1);
  ExpectMessage(r.Register(r.memory, 8, &region), CGR_ERROR_OUT_OF_MEMORY,
                { "cgr_region_register: of " + std::to_string(CGR__MAX_REGIONS) + " regions 1 are the runtime's own",
                  std::to_string(CGR__MAX_REGIONS - 1) + " are registered", "0 are free", "cgr_region_unregister" });
  EXPECT_EQ(region, CGR__MAX_REGIONS - 1);
  EXPECT_EQ(r.Move(CGR__MAX_REGIONS - 1, r.memory + 1, 8), CGR_OK);
}

} // namespace

// Seeds of random tests. CGR_TEST_SEED=<number> in the environment repeats a run.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <random>
#include <string>

namespace cgr_test {

inline uint64_t Seed() {
  const char *given = std::getenv("CGR_TEST_SEED");
  uint64_t seed = given != nullptr ? std::strtoull(given, nullptr, 0) : std::random_device{}();
  ::testing::Test::RecordProperty("seed", std::to_string(seed));
  return seed;
}

// For SCOPED_TRACE: how to repeat a run.
inline std::string Repeat(uint64_t seed) { return "CGR_TEST_SEED=" + std::to_string(seed); }

// A seeded source of numbers.
class Random {
public:
  explicit Random(uint64_t seed) : engine_(seed) {}
  // low .. high, both included.
  int64_t Pick(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(engine_() % (static_cast<uint64_t>(high - low) + 1));
  }
  int32_t Pick32(int32_t low, int32_t high) { return static_cast<int32_t>(Pick(low, high)); }
  bool OneIn(int32_t n) { return Pick(1, n) == 1; }
  uint64_t Bits() { return engine_(); }

private:
  std::mt19937_64 engine_;
};

// A test's numbers. As long as it is in scope, failures say how to repeat the run.
class SeededRandom : public Random {
public:
  explicit SeededRandom(uint64_t seed = Seed()) : Random(seed), trace_(__FILE__, __LINE__, Repeat(seed)) {}

private:
  ::testing::ScopedTrace trace_;
};

// Calls body(random) for `count` seeds from the test's on, until one fails.
template <class Body> void ForSeeds(uint64_t count, Body body) {
  const uint64_t first = Seed();
  for (uint64_t seed = first; seed - first < count && !::testing::Test::HasFailure(); seed++) {
    SeededRandom random(seed);
    body(random);
  }
}

} // namespace cgr_test

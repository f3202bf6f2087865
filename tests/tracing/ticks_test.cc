// The time stamp counter against the clock, also if the process continues with another counter, as after a checkpoint.
#include "tracing/ticks.h"

#include <gtest/gtest.h>

namespace cgr_test {
namespace {

uint64_t NowNs() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return uint64_t(now.tv_sec) * 1000000000u + uint64_t(now.tv_nsec);
}

void Pause(int64_t us) {
  const timespec time = { 0, us * 1000 };
  nanosleep(&time, nullptr);
}

// A clock of some ms.
cgr__tick_clock Made() {
  cgr__tick_clock clock;
  cgr__tick_clock_begin(&clock);
  Pause(5000);
  cgr__tick_clock_compare(&clock);
  return clock;
}

// A stamp of now is now.
void ExpectRight(const cgr__tick_clock &clock) {
  const uint64_t before = NowNs(), at = cgr__tick_clock_at(&clock, cgr__ticks()), after = NowNs();
  const uint64_t slack = 1000000;
  EXPECT_GE(at + slack, before);
  EXPECT_LE(at, after + slack);
}

TEST(Ticks, AreThoseOfTheClock) {
  const cgr__tick_clock clock = Made();
  ExpectRight(clock);
  EXPECT_EQ(cgr__tick_clock_at(&clock, clock.first_ticks), clock.first_ns);
  const uint64_t ticks = uint64_t(1e6 / clock.ns_per_tick); // 1 ms before the clock began
  EXPECT_NEAR(double(clock.first_ns - cgr__tick_clock_at(&clock, clock.first_ticks - ticks)), 1e6, 1e3);
}

TEST(Ticks, OfACounterThatHasJumped) {
  for (const double seconds : { -1e7, -100.0, -1.0, 1.0, 100.0, 1e7 }) {
    SCOPED_TRACE(seconds);
    cgr__tick_clock clock = Made();
    const double rate = clock.ns_per_tick;
    clock.first_ticks -= uint64_t(int64_t(seconds * 1e9 / rate)); // the same as if all later stamps were that much larger
    cgr__tick_clock_sync(&clock);
    ExpectRight(clock);
    EXPECT_NEAR(clock.ns_per_tick / rate, 1.0, 0.001) << "the rate of before, until there is another";
    Pause(5000);
    cgr__tick_clock_compare(&clock);
    ExpectRight(clock);
    EXPECT_NEAR(clock.ns_per_tick / rate, 1.0, 0.01);
  }
}

// On another machine, where the counter runs twice as fast: the first comparison notices, the next ones know the new rate.
TEST(Ticks, OfACounterOfAnotherRate) {
  cgr__tick_clock clock = Made();
  const double rate = clock.ns_per_tick;
  clock.ns_per_tick *= 2.0;
  cgr__tick_clock_compare(&clock);
  Pause(5000);
  cgr__tick_clock_compare(&clock);
  EXPECT_NEAR(clock.ns_per_tick / rate, 1.0, 0.01);
  ExpectRight(clock);
  const uint64_t first = clock.first_ticks;
  Pause(5000);
  cgr__tick_clock_compare(&clock);
  EXPECT_EQ(clock.first_ticks, first) << "it begins anew once";
}

// Stamps that the host's clock cannot have given: the result is neither below 0 nor past the end.
TEST(Ticks, OfNonsenseAreInRange) {
  cgr__tick_clock clock = Made();
  for (const double rate : { 0.2, 1.0, 40.0 }) {
    clock.ns_per_tick = rate;
    EXPECT_EQ(cgr__tick_clock_at(&clock, clock.first_ticks - (uint64_t(1) << 62)), 0u);
    EXPECT_GE(cgr__tick_clock_at(&clock, clock.first_ticks + (uint64_t(1) << 62)), uint64_t(double(uint64_t(1) << 59)));
  }
}

TEST(Ticks, AreComparedAgainWhenASecondHasPassed) {
  cgr__tick_clock clock = Made();
  const uint64_t compared = clock.compared;
  cgr__tick_clock_refresh(&clock);
  EXPECT_EQ(clock.compared, compared) << "it is young, and the same text comes twice";
  const uint64_t minute = uint64_t(60e9 / clock.ns_per_tick), second = uint64_t(1.1e9 / clock.ns_per_tick);
  clock.first_ticks -= minute; // one of a minute's age
  clock.first_ns -= 60000000000u;
  clock.compared = minute - second;
  cgr__tick_clock_refresh(&clock);
  EXPECT_GT(clock.compared, minute - 1);
}

} // namespace
} // namespace cgr_test

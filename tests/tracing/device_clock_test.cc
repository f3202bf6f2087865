// A device's clock mapped to the host's: at first by an offset, and by a rate too once two comparisons are a second apart.
#include <gtest/gtest.h>

#include "tracing/device_clock.h"

namespace cgr_test {
namespace {

constexpr uint64_t kSecond = 1000000000;

TEST(DeviceClock, HasAnOffsetAtFirst) {
  cgr__device_clock clock = {};
  const cgr__clock_pair pair = { 50 * kSecond, 7 * kSecond, 100 };
  cgr__device_clock_add(&clock, &pair);
  for (int64_t passed : { int64_t(0), int64_t(123), int64_t(-5 * int64_t(kSecond)), int64_t(90 * kSecond) })
    EXPECT_EQ(cgr__device_clock_at(&clock, 7 * kSecond + uint64_t(passed)), 50 * kSecond + uint64_t(passed));
}

TEST(DeviceClock, HasNoRateOverAShortStretch) {
  cgr__device_clock clock = {};
  const cgr__clock_pair first = { 50 * kSecond, 7 * kSecond, 100 }, last = { 50 * kSecond + 2000, 7 * kSecond + 1000, 100 };
  cgr__device_clock_add(&clock, &first);
  cgr__device_clock_add(&clock, &last);
  EXPECT_EQ(cgr__device_clock_at(&clock, 8 * kSecond), 51 * kSecond + 1000);
}

TEST(DeviceClock, HasARateFromOneSecondOn) {
  cgr__device_clock clock = {};
  const cgr__clock_pair first = { 50 * kSecond, 7 * kSecond, 100 }, last = { 51 * kSecond + 1000, 8 * kSecond, 100 };
  cgr__device_clock_add(&clock, &first);
  cgr__device_clock_add(&clock, &last);
  EXPECT_NEAR(double(cgr__device_clock_at(&clock, 9 * kSecond) - 52 * kSecond), 2000.0, 2.0);
}

// The device's clock is 100 ns per ms too slow, and more than a day ahead of the host's.
TEST(DeviceClock, FollowsTheRate) {
  cgr__device_clock clock = {};
  const uint64_t far = 100000 * kSecond;
  const cgr__clock_pair first = { kSecond, far, 100 }, last = { 11 * kSecond, far + 9999 * kSecond / 1000, 100 };
  cgr__device_clock_add(&clock, &first);
  cgr__device_clock_add(&clock, &last);
  EXPECT_EQ(cgr__device_clock_at(&clock, last.device_ns), last.host_ns);
  EXPECT_NEAR(double(cgr__device_clock_at(&clock, far)), double(kSecond), 2.0);
  EXPECT_NEAR(double(cgr__device_clock_at(&clock, far + 9999 * kSecond / 2000)), double(6 * kSecond), 2.0);
  EXPECT_NEAR(double(cgr__device_clock_at(&clock, far + 2 * (9999 * kSecond / 1000))), double(21 * kSecond), 2.0);
}

} // namespace
} // namespace cgr_test

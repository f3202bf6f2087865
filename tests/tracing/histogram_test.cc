// Histograms: borders, values at them, percentiles.
#include "tracing/histogram.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace {

TEST(Histogram, BordersAreThoseThatTheHeaderTells) {
  EXPECT_EQ(cgr_histogram_border(0), 128u);
  EXPECT_EQ(cgr_histogram_border(1), 192u);
  EXPECT_EQ(cgr_histogram_border(2), 256u);
  EXPECT_EQ(cgr_histogram_border(3), 384u);
  EXPECT_EQ(cgr_histogram_border(CGR_HISTOGRAM_BUCKETS - 2), uint64_t{ 128 } << 23);
  EXPECT_EQ(cgr_histogram_border(CGR_HISTOGRAM_BUCKETS - 1), UINT64_MAX);
  EXPECT_EQ(cgr_histogram_border(-1), 0u);
  EXPECT_EQ(cgr_histogram_border(CGR_HISTOGRAM_BUCKETS), 0u);
}

TEST(Histogram, ABorderBelongsToItsBucket) {
  for (int32_t i = 0; i < CGR_HISTOGRAM_BUCKETS - 1; i++) {
    const uint64_t border = cgr_histogram_border(i);
    EXPECT_EQ(cgr__histogram_bucket(border - 1), i);
    EXPECT_EQ(cgr__histogram_bucket(border), i);
    EXPECT_EQ(cgr__histogram_bucket(border + 1), i + 1);
  }
  EXPECT_EQ(cgr__histogram_bucket(0), 0);
  EXPECT_EQ(cgr__histogram_bucket(UINT64_MAX), CGR_HISTOGRAM_BUCKETS - 1);
}

TEST(Histogram, CountsSumsAndJoins) {
  cgr_histogram a = {}, b = {};
  cgr__histogram_add(&a, 100);
  cgr__histogram_add(&a, 5000);
  cgr__histogram_add(&b, 130);
  cgr__histogram_join(&a, &b);
  EXPECT_EQ(a.count, 3u);
  EXPECT_EQ(a.sum_ns, 5230u);
  EXPECT_EQ(a.max_ns, 5000u);
  EXPECT_EQ(a.bucket[0], 1u);
  EXPECT_EQ(a.bucket[1], 1u);
  EXPECT_EQ(a.bucket[cgr__histogram_bucket(5000)], 1u);
  EXPECT_EQ(b.count, 1u);
}

// A percentile is at least the time of that rank, and at most 1.5 times it or 128 ns.
TEST(Histogram, PercentilesBoundTheTimesOfTheirRank) {
  std::mt19937_64 random(7);
  for (int round = 0; round < 50; round++) {
    cgr_histogram h = {};
    std::vector<uint64_t> times;
    const size_t count = 1 + random() % 300;
    for (size_t i = 0; i < count; i++) {
      times.push_back(random() >> (34 + random() % 23));
      cgr__histogram_add(&h, times.back());
    }
    std::sort(times.begin(), times.end());
    for (int percent = 1; percent <= 100; percent++) {
      const size_t rank = (count * size_t(percent) + 99) / 100;
      const uint64_t exact = times[rank - 1], told = cgr_histogram_percentile(&h, percent);
      EXPECT_GE(told, exact);
      EXPECT_LE(told, std::max<uint64_t>(128, exact + exact / 2 + 1));
      EXPECT_LE(told, times.back());
    }
    EXPECT_EQ(cgr_histogram_percentile(&h, 100), times.back());
  }
}

TEST(Histogram, PercentilesOfNothingAndOutOfRange) {
  cgr_histogram h = {};
  EXPECT_EQ(cgr_histogram_percentile(&h, 50), 0u);
  EXPECT_EQ(cgr_histogram_percentile(nullptr, 50), 0u);
  cgr__histogram_add(&h, 100);
  cgr__histogram_add(&h, uint64_t{ 1 } << 40);
  EXPECT_EQ(cgr_histogram_percentile(&h, -3), 128u);
  EXPECT_EQ(cgr_histogram_percentile(&h, 0), 128u);
  EXPECT_EQ(cgr_histogram_percentile(&h, 400), uint64_t{ 1 } << 40) << "the last bucket has no border but the largest time";
}

} // namespace

#include "tracing/histogram.h"

uint64_t cgr_histogram_border(int32_t bucket) {
  if (bucket < 0 || bucket >= CGR_HISTOGRAM_BUCKETS)
    return 0;
  if (bucket == CGR_HISTOGRAM_BUCKETS - 1)
    return UINT64_MAX;
  return (uint64_t)(bucket % 2 ? 3 : 2) << (CGR__FIRST_BORDER_LOG2 - 1 + bucket / 2);
}

/* Which duration, in ascending order, has `percent` of all at or below it: 1 is the shortest. */
static uint64_t rank_of(uint64_t count, double percent) {
  double exact = percent > 0.0 ? (percent < 100.0 ? percent : 100.0) * (double)count / 100.0 : 0.0;
  uint64_t rank = (uint64_t)exact;
  rank += (double)rank < exact;
  return rank < 1 ? 1 : rank > count ? count : rank;
}

uint64_t cgr_histogram_percentile(const cgr_histogram *histogram, double percent) {
  if (!histogram || histogram->count == 0)
    return 0;
  uint64_t rank = rank_of(histogram->count, percent), below = 0;
  int32_t bucket = 0;
  while (bucket < CGR_HISTOGRAM_BUCKETS - 1 && (below += histogram->bucket[bucket]) < rank)
    bucket++;
  uint64_t border = cgr_histogram_border(bucket);
  return border < histogram->max_ns ? border : histogram->max_ns;
}

void cgr__histogram_join(cgr_histogram *h, const cgr_histogram *other) {
  h->count += other->count;
  h->sum_ns += other->sum_ns;
  h->max_ns = other->max_ns > h->max_ns ? other->max_ns : h->max_ns;
  for (int i = 0; i < CGR_HISTOGRAM_BUCKETS; i++)
    h->bucket[i] += other->bucket[i];
}

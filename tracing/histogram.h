/* Histograms of durations: cgr_histogram. */
#ifndef CGR_TRACING_HISTOGRAM_H
#define CGR_TRACING_HISTOGRAM_H

#include "cgr/tracing.h"

#ifdef __cplusplus
extern "C" {
#endif

#define CGR__FIRST_BORDER_LOG2 7 /* 128 ns */

/* Borders are 2^k and 1.5 * 2^k, and belong to the bucket below: the two highest bits of ns - 1 tell which it is. */
static inline int32_t cgr__histogram_bucket(uint64_t ns) {
  if (ns <= 1u << CGR__FIRST_BORDER_LOG2)
    return 0;
  int32_t log2 = 63 - __builtin_clzll(ns - 1);
  int32_t bucket = 2 * (log2 - CGR__FIRST_BORDER_LOG2) + (int32_t)(((ns - 1) >> (log2 - 1)) & 1) + 1;
  return bucket < CGR_HISTOGRAM_BUCKETS ? bucket : CGR_HISTOGRAM_BUCKETS - 1;
}

static inline void cgr__histogram_add(cgr_histogram *h, uint64_t ns) {
  h->count++;
  h->sum_ns += ns;
  h->max_ns = ns > h->max_ns ? ns : h->max_ns;
  h->bucket[cgr__histogram_bucket(ns)]++;
}

/* Adds all that `other` has counted. */
void cgr__histogram_join(cgr_histogram *h, const cgr_histogram *other);

#ifdef __cplusplus
}
#endif
#endif

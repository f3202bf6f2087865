/* The tail of a distribution of times: a histogram of fixed size, and what happened in the steps that took long. */
#ifndef CGR_PROFILES_SUPPORT_TAILS_H
#define CGR_PROFILES_SUPPORT_TAILS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* Times in ns. 128 buckets for each power of two: none is wider than 0.8%. */
#define BENCH_TAIL_BUCKETS (40 * 128)
#define BENCH_TAIL_WORST 20

/* What the kernel has counted for this thread. */
typedef struct bench_thread_counts {
  int64_t major_faults, minor_faults, involuntary, voluntary; /* the last two are context switches */
} bench_thread_counts;
bench_thread_counts bench_count_thread(void);

typedef enum bench_part { BENCH_PREPARE, BENCH_DRIVER, BENCH_REST, BENCH_NUM_PARTS } bench_part;

/* Why a step took long: the first that applies. The last three say only where the time went. */
typedef enum bench_cause {
  BENCH_MAJOR_FAULT,
  BENCH_MINOR_FAULT,
  BENCH_PREEMPTED, /* involuntary context switches */
  BENCH_SLEPT,     /* voluntary ones: a lock, most likely */
  BENCH_COUNTED,   /* the launch counted records for the statistics, and the time went into the rest */
  BENCH_IN_PREPARE,
  BENCH_IN_DRIVER, /* the driver's calls: they, or an interrupt meanwhile */
  BENCH_IN_REST,   /* of the launch */
  BENCH_NUM_CAUSES
} bench_cause;
extern const char *const bench_cause_names[BENCH_NUM_CAUSES];

typedef struct bench_sample {
  uint64_t step;
  double ns[BENCH_NUM_PARTS];
  bench_thread_counts before, after;
  bool counted; /* records */
} bench_sample;

typedef struct bench_outlier {
  uint64_t step;
  double us, parts[BENCH_NUM_PARTS];
  bench_cause cause;
} bench_outlier;

typedef struct bench_tail {
  double above_us;                   /* an outlier takes longer */
  double median_ns[BENCH_NUM_PARTS]; /* of the parts, to tell which of them an outlier is in */
  uint64_t count, bucket[BENCH_TAIL_BUCKETS], part[BENCH_NUM_PARTS][BENCH_TAIL_BUCKETS];
  double longest_ns;
  uint64_t causes[BENCH_NUM_CAUSES];
  bench_outlier worst[BENCH_TAIL_WORST]; /* the longest first */
  int32_t num_worst;
} bench_tail;

/* Empties it, but for the first two. */
void bench_tail_reset(bench_tail *tail);
void bench_tail_add(bench_tail *tail, const bench_sample *sample);
/* Takes the medians from what it has so far, and empties it. From now on an outlier is above `above_us` and above twice the
 * median. */
void bench_tail_learn(bench_tail *tail, double above_us);
double bench_tail_us(const bench_tail *tail, double quantile);

#endif

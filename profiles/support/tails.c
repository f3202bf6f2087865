#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* RUSAGE_THREAD */
#endif
#include "profiles/support/tails.h"

#include <stddef.h>
#include <string.h>
#include <sys/resource.h>

const char *const bench_cause_names[BENCH_NUM_CAUSES] = { "major faults", "minor faults", "preempted",     "slept",
                                                          "counting",     "in prepare",   "in the driver", "in the rest" };

bench_thread_counts bench_count_thread(void) {
  struct rusage usage;
  getrusage(RUSAGE_THREAD, &usage);
  return (bench_thread_counts){ usage.ru_majflt, usage.ru_minflt, usage.ru_nivcsw, usage.ru_nvcsw };
}

/* ------------------------------------------------------------------------------------------------------------- histogram */

/* The exponent of a double and the first 7 bits of its mantissa. */
static int32_t bucket_of(double ns) {
  uint64_t bits;
  double at_least = ns < 1.0 ? 1.0 : ns;
  memcpy(&bits, &at_least, sizeof bits);
  int64_t bucket = (int64_t)(bits >> 45) - (1023 << 7);
  return bucket < BENCH_TAIL_BUCKETS ? (int32_t)bucket : BENCH_TAIL_BUCKETS - 1;
}

/* The middle of a bucket. */
static double ns_of(int32_t bucket) {
  uint64_t bits = ((uint64_t)(bucket + (1023 << 7)) << 45) + ((uint64_t)1 << 44);
  double ns;
  memcpy(&ns, &bits, sizeof ns);
  return ns;
}

static double quantile_ns(const uint64_t *buckets, uint64_t count, double quantile) {
  uint64_t before = 0, wanted = (uint64_t)(quantile * (double)count);
  for (int32_t i = 0; i < BENCH_TAIL_BUCKETS; i++) {
    before += buckets[i];
    if (before > wanted)
      return ns_of(i);
  }
  return 0.0;
}

double bench_tail_us(const bench_tail *tail, double quantile) {
  double ns = quantile < 1.0 ? quantile_ns(tail->bucket, tail->count, quantile) : tail->longest_ns;
  return (ns < tail->longest_ns ? ns : tail->longest_ns) * 1e-3; /* the middle of the last bucket may be above */
}

void bench_tail_reset(bench_tail *tail) {
  size_t kept = offsetof(bench_tail, count);
  memset((char *)tail + kept, 0, sizeof *tail - kept);
}

void bench_tail_learn(bench_tail *tail, double above_us) {
  double twice_us = 2.0 * bench_tail_us(tail, 0.5);
  tail->above_us = twice_us > above_us ? twice_us : above_us;
  for (int p = 0; p < BENCH_NUM_PARTS; p++)
    tail->median_ns[p] = quantile_ns(tail->part[p], tail->count, 0.5);
  bench_tail_reset(tail);
}

/* ---------------------------------------------------------------------------------------------------------------- causes */

/* The part that took longest beyond its median. */
static bench_part longest_part(const bench_tail *tail, const bench_sample *s) {
  int longest = 0;
  for (int p = 1; p < BENCH_NUM_PARTS; p++)
    if (s->ns[p] - tail->median_ns[p] > s->ns[longest] - tail->median_ns[longest])
      longest = p;
  return (bench_part)longest;
}

static bench_cause cause_of(const bench_tail *tail, const bench_sample *s) {
  if (s->after.major_faults != s->before.major_faults)
    return BENCH_MAJOR_FAULT;
  if (s->after.minor_faults != s->before.minor_faults)
    return BENCH_MINOR_FAULT;
  if (s->after.involuntary != s->before.involuntary)
    return BENCH_PREEMPTED;
  if (s->after.voluntary != s->before.voluntary)
    return BENCH_SLEPT;
  bench_part part = longest_part(tail, s);
  if (part == BENCH_REST)
    return s->counted ? BENCH_COUNTED : BENCH_IN_REST;
  return part == BENCH_PREPARE ? BENCH_IN_PREPARE : BENCH_IN_DRIVER;
}

static void note_outlier(bench_tail *tail, const bench_sample *s, double us) {
  bench_outlier o = { .step = s->step, .us = us, .cause = cause_of(tail, s) };
  tail->causes[o.cause]++;
  for (int p = 0; p < BENCH_NUM_PARTS; p++)
    o.parts[p] = s->ns[p] * 1e-3;
  int32_t at = tail->num_worst < BENCH_TAIL_WORST ? tail->num_worst++ : BENCH_TAIL_WORST - 1;
  if (tail->num_worst == BENCH_TAIL_WORST && at == BENCH_TAIL_WORST - 1 && tail->worst[at].us >= us)
    return;
  for (; at > 0 && tail->worst[at - 1].us < us; at--)
    tail->worst[at] = tail->worst[at - 1];
  tail->worst[at] = o;
}

void bench_tail_add(bench_tail *tail, const bench_sample *s) {
  double ns = 0.0;
  for (int p = 0; p < BENCH_NUM_PARTS; p++) {
    ns += s->ns[p];
    tail->part[p][bucket_of(s->ns[p])]++;
  }
  tail->count++;
  tail->bucket[bucket_of(ns)]++;
  if (ns > tail->longest_ns)
    tail->longest_ns = ns;
  if (ns > tail->above_us * 1e3)
    note_outlier(tail, s, ns * 1e-3);
}

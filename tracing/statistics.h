/* Statistics: sums over the records of the flight recorder. Records are folded in batches while the host waits for a step, at the
 * latest before the ring overwrites them, and whenever they are read, so a step writes its record and nothing else. */
#ifndef CGR_TRACING_STATISTICS_H
#define CGR_TRACING_STATISTICS_H

#include "cgr/cgr.h"
#include "tracing/flight.h"
#include "tracing/ticks.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Whoever waits for a step folds this many records at a time: it has nothing else to do. */
#define CGR__FOLD_IN_WAIT 64
/* Where no call waits, records are folded when this many have been written. The step that does it pays for all of them, some
 * microseconds: at one step in 256 that is past the 99th percentile of steps, and the cache lines of the sums are fetched once
 * for many records. A divisor of every depth. */
#define CGR__FOLD_EVERY 256

/* The sums of one key. */
typedef struct cgr__key_sums {
  uint64_t reasons[16];
  uint64_t real_requests, padded_requests, real_tokens, padded_tokens, bytes_staged;
  uint64_t told; /* 1: a page of metrics has shown the key */
  cgr_histogram prepare, launch;
} cgr__key_sums;

typedef struct cgr__statistics {
  cgr__tick_clock clock;
  uint64_t folded;    /* records */
  cgr_stats sums;     /* what records tell of it */
  cgr__key_sums *key; /* [1 + keys]: of the eager steps, then of each key */
} cgr__statistics;

size_t cgr__statistics_bytes(int32_t num_keys);
/* `memory` is of that size; *statistics is zeros. Starts the clock. */
void cgr__statistics_init(cgr__statistics *statistics, int32_t num_keys, void *memory);

/* Takes in all records that it has not taken in yet, or the oldest of them. */
void cgr__statistics_fold(cgr__statistics *statistics, const cgr__flight *flight);
void cgr__statistics_fold_some(cgr__statistics *statistics, const cgr__flight *flight, uint64_t most);

/* A record has been written. Nothing is done if waits have kept up and the ring has room for as many again. */
static inline void cgr__statistics_follow(cgr__statistics *statistics, const cgr__flight *flight) {
  if (flight->count % CGR__FOLD_EVERY != 0)
    return;
  if (flight->count - statistics->folded >= CGR__FOLD_EVERY || flight->mask < 2 * CGR__FOLD_EVERY - 1)
    cgr__statistics_fold(statistics, flight);
}

/* The caller is about to wait. */
static inline void cgr__statistics_use_wait(cgr__statistics *statistics, const cgr__flight *flight) {
  if (flight->count - statistics->folded >= CGR__FOLD_IN_WAIT)
    cgr__statistics_fold_some(statistics, flight, CGR__FOLD_IN_WAIT);
}

/* Fills in what the records tell of a key, or of the eager steps: -1. */
void cgr__statistics_of_key(const cgr__statistics *statistics, int32_t key, bool with_times, cgr_key_stats *stats);

#ifdef __cplusplus
}
#endif
#endif

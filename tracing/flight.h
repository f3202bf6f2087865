/* The flight recorder: a ring of records of one cache line each, written when a step is over. */
#ifndef CGR_TRACING_FLIGHT_H
#define CGR_TRACING_FLIGHT_H

#include <stdbool.h>
#include <stddef.h>

#include "base/limits.h"
#include "cgr/tracing.h"

#ifdef __cplusplus
extern "C" {
#endif

#define CGR__MIN_FLIGHT_DEPTH 256
#define CGR__MAX_FLIGHT_DEPTH (1 << 20)
#define CGR__DEFAULT_FLIGHT_DEPTH 1024
#define CGR__MAX_TIME_EVERY 128
#define CGR__DEFAULT_TIME_EVERY 8
#define CGR__NO_REASON 0xff

typedef struct cgr__flight_entry { /* 64 bytes */
  uint64_t seq;                    /* 0: none */
  uint64_t at;                     /* ticks, when prepare began */
  uint32_t prepare_ticks, launch_ticks;
  int32_t key;                            /* index; -1 - program: none */
  uint8_t kind, reason, outcome, status;  /* reason: or CGR__NO_REASON */
  uint16_t num_requests, padded_requests; /* at most CGR__MAX_REQUESTS */
  int32_t num_tokens, padded_tokens, query_len;
  uint32_t variant, layout;
  union {
    uint64_t bytes_staged;
    uint64_t repeats; /* of a refused step: refusals after it that were the same */
  };
} CGR__CACHE_LINE cgr__flight_entry;

/* What every step needs of it, half a cache line. */
typedef struct cgr__flight {
  cgr__flight_entry *ring; /* [mask + 1] */
  uint64_t count;          /* written so far */
  uint64_t prepared_at;    /* of the prepared step: when its prepare began, and what it took */
  uint32_t prepare_ticks;  /* 0: it is not timed */
  uint32_t mask : 24, time_mask : 8;
} cgr__flight;

/* The depth that a configuration asks for, made a power of two. */
static inline uint32_t cgr__flight_depth(int32_t asked) {
  uint32_t depth = CGR__MIN_FLIGHT_DEPTH;
  while (depth < (uint32_t)(asked ? asked : CGR__DEFAULT_FLIGHT_DEPTH))
    depth *= 2;
  return depth;
}

/* `memory` is [depth] entries, aligned to a cache line. `time_every` is a power of two. */
static inline void cgr__flight_init(cgr__flight *flight, uint32_t depth, int32_t time_every, void *memory) {
  flight->ring = (cgr__flight_entry *)memory;
  flight->count = 0;
  flight->mask = (depth - 1) & 0xffffffu;
  flight->time_mask = (uint32_t)(time_every - 1) & 0xffu;
}

/* Whether the next step is timed. Chosen at random, because steps may follow a pattern of their own: one in 16 opens a page, and
 * timing every 16th would always or never hit that one. */
static inline bool cgr__flight_is_timed(const cgr__flight *flight) {
  return ((flight->count * 0x9e3779b97f4a7c15u) >> 40 & flight->time_mask) == 0;
}

/* The entry of the i-th record ever written, which is still there if it is one of the last `mask + 1`; i == count: the next one.
 */
static inline cgr__flight_entry *cgr__flight_at(const cgr__flight *flight, uint64_t i) { return &flight->ring[i & flight->mask]; }

/* The next record is about to be written. */
static inline void cgr__flight_prefetch(const cgr__flight *flight) {
  __builtin_prefetch(cgr__flight_at(flight, flight->count), 1);
}

/* The first record that is still there. */
static inline uint64_t cgr__flight_first(const cgr__flight *flight) {
  return flight->count > flight->mask ? flight->count - flight->mask - 1 : 0;
}

#ifdef __cplusplus
}
#endif
#endif

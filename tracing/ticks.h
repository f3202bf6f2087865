/* The processor's time stamp counter. A read costs 10 to 16 ns in virtual machines, half of clock_gettime: hence not every step
 * is timed.
 *
 * Its rate is found by comparing it with CLOCK_MONOTONIC, at creation and again and again later: the longer the stretch, the
 * better the rate. The counters of today's processors run at a constant rate and never stop; but a process that was restored from
 * a checkpoint, or a virtual machine that has moved, goes on with another counter. A comparison that does not fit the ones before
 * starts anew from there, and times of before that moment are then off by as much as the counter has jumped. */
#ifndef CGR_TRACING_TICKS_H
#define CGR_TRACING_TICKS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/clock.h"

#ifdef __cplusplus
extern "C" {
#endif

static inline uint64_t cgr__ticks(void) {
#if defined(__x86_64__)
  return __builtin_ia32_rdtsc();
#elif defined(__aarch64__)
  uint64_t ticks;
  __asm__ volatile("mrs %0, cntvct_el0" : "=r"(ticks));
  return ticks;
#else
  return cgr__now_ns();
#endif
}

/* Clamped to what a record has room for, 1 or more: the counters of two processors may differ by a few ticks, so the difference
 * may be negative. */
static inline uint32_t cgr__ticks_between(uint64_t begin, uint64_t end) {
  int64_t ticks = (int64_t)(end - begin);
  return ticks < 1 ? 1 : ticks < UINT32_MAX ? (uint32_t)ticks : UINT32_MAX;
}

typedef struct cgr__tick_clock {
  uint64_t first_ticks, first_ns; /* the same moment; ns of CLOCK_MONOTONIC */
  uint64_t compared;              /* ticks from there to the last comparison */
  double ns_per_tick;
  bool sure; /* the rate is that of a stretch long enough to tell that another does not fit */
} cgr__tick_clock;

void cgr__tick_clock_begin(cgr__tick_clock *clock);
/* Compares once more. */
void cgr__tick_clock_compare(cgr__tick_clock *clock);
/* The same if at least twice as much time has passed as at the last comparison: a few dozen times in a life. */
static inline void cgr__tick_clock_sync(cgr__tick_clock *clock) {
  if (cgr__ticks() - clock->first_ticks >= 2 * clock->compared)
    cgr__tick_clock_compare(clock);
}

/* The same if the last comparison is a second old, so that texts written one after the other agree. */
static inline void cgr__tick_clock_refresh(cgr__tick_clock *clock) {
  cgr__tick_clock_sync(clock);
  if ((double)(cgr__ticks() - clock->first_ticks - clock->compared) * clock->ns_per_tick >= 1e9)
    cgr__tick_clock_compare(clock);
}

static inline uint64_t cgr__tick_clock_ns(const cgr__tick_clock *clock, uint32_t ticks) {
  return (uint64_t)((double)ticks * clock->ns_per_tick);
}
/* CLOCK_MONOTONIC at a stamp; 0 for one from before the host's start, which only a counter that has jumped can give. */
static inline uint64_t cgr__tick_clock_at(const cgr__tick_clock *clock, uint64_t stamp) {
  double ns = (double)(int64_t)(stamp - clock->first_ticks) * clock->ns_per_tick + (double)clock->first_ns;
  if (ns <= 0.0 || ns >= 9.2e18)
    return ns <= 0.0 ? 0 : UINT64_MAX;
  return clock->first_ns + (uint64_t)(int64_t)((double)(int64_t)(stamp - clock->first_ticks) * clock->ns_per_tick);
}

#ifdef __cplusplus
}
#endif
#endif

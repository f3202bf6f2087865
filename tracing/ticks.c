#include "tracing/ticks.h"

#define TRIES 3

/* Both counters at one moment. Of several tries that one counts during which the least time passed: a thread may be put aside
 * between the two. */
static void read_both(uint64_t *ticks, uint64_t *ns) {
  uint64_t least = UINT64_MAX;
  for (int i = 0; i < TRIES; i++) {
    struct timespec time;
    uint64_t before = cgr__ticks();
    clock_gettime(CLOCK_MONOTONIC, &time);
    uint64_t passed = cgr__ticks() - before;
    if (passed >= least)
      continue;
    least = passed;
    *ticks = before + passed / 2;
    *ns = (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
  }
}

void cgr__tick_clock_begin(cgr__tick_clock *clock) {
  read_both(&clock->first_ticks, &clock->first_ns);
  clock->compared = 0;
  clock->ns_per_tick = 1.0;
}

void cgr__tick_clock_compare(cgr__tick_clock *clock) {
  uint64_t ticks = clock->first_ticks, ns = clock->first_ns;
  read_both(&ticks, &ns);
  if (ticks <= clock->first_ticks || ns <= clock->first_ns)
    return;
  clock->compared = ticks - clock->first_ticks;
  clock->ns_per_tick = (double)(ns - clock->first_ns) / (double)clock->compared;
}

#include "tracing/ticks.h"

#define TRIES 3
#define SURE_NS 1000000 /* a reading of both counters is off by 10 us at most, barring very bad luck: 1% of that */

/* Both counters at one moment. Of several tries, the one during which the least time passed counts: a thread may be preempted
 * between the two. */
static void read_both(uint64_t *ticks, uint64_t *ns) {
  uint64_t least = UINT64_MAX;
  for (int i = 0; i < TRIES; i++) {
    uint64_t before = cgr__ticks(), now = cgr__now_ns();
    uint64_t passed = cgr__ticks() - before;
    if (passed >= least)
      continue;
    least = passed;
    *ticks = before + passed / 2;
    *ns = now;
  }
}

void cgr__tick_clock_begin(cgr__tick_clock *clock) {
  read_both(&clock->first_ticks, &clock->first_ns);
  clock->compared = 0;
  clock->ns_per_tick = 1.0;
  clock->sure = false;
}

/* From this moment on; the rate is kept until there is another. */
static void begin_anew(cgr__tick_clock *clock, uint64_t ticks, uint64_t ns) {
  clock->first_ticks = ticks;
  clock->first_ns = ns;
  clock->compared = 0;
  clock->sure = false;
}

void cgr__tick_clock_compare(cgr__tick_clock *clock) {
  uint64_t ticks = clock->first_ticks, ns = clock->first_ns;
  read_both(&ticks, &ns);
  int64_t ticks_passed = (int64_t)(ticks - clock->first_ticks), ns_passed = (int64_t)(ns - clock->first_ns);
  double rate = ticks_passed > 0 ? (double)ns_passed / (double)ticks_passed : 0.0;
  bool fits = !clock->sure || (rate > 0.99 * clock->ns_per_tick && rate < 1.01 * clock->ns_per_tick);
  if (ticks_passed <= 0 || ns_passed <= 0 || !fits) {
    begin_anew(clock, ticks, ns);
    return;
  }
  clock->compared = (uint64_t)ticks_passed;
  clock->ns_per_tick = rate;
  clock->sure = ns_passed >= SURE_NS;
}

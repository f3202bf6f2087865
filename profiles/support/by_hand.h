/* A step that is staged and committed as usual, for kernels that are then run without the rest of it. */
#ifndef CGR_PROFILES_SUPPORT_BY_HAND_H
#define CGR_PROFILES_SUPPORT_BY_HAND_H

#include "profiles/support/bench.h"

/* Prepares the step and commits its ring slot, and the same content as the step after it, for whoever looks ahead. */
void bench_commit(bench_engine *engine, const cgr_batch *batch, cgr_step *step);
/* Fills the inbox as the step before would have, had it looked ahead. */
void bench_fill_inbox(bench_engine *engine);
/* Gives up the step. The device's batch layout may then differ from the one that the host knows; the next one travels whole. */
void bench_take_back(bench_engine *engine, cgr_step *step);
/* Tells the runtime of steps that it did not launch: epilogues by themselves. */
void bench_count_on(bench_engine *engine);

#endif

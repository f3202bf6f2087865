/* A step of an engine without cgr: the same `record`, enqueued in the same order, but with empty kernels in place of cgr's own
 * (prologue, planner, epilogue, what else there is), on the same branches; or without them and their branches. Append and
 * attention count as the engine's: they work on what the last step of the runtime has left. */
#ifndef CGR_PROFILES_SUPPORT_SIDES_H
#define CGR_PROFILES_SUPPORT_SIDES_H

#include "graphs/graphs.h"
#include "profiles/support/bench.h"

typedef enum bench_side { BENCH_SKELETON, BENCH_BARE } bench_side;

/* Captures it for the key. `entry->exec` is the graph, until cgr__graph_drop. */
void bench_capture_side(bench_engine *engine, const cgr_key *key, bench_side side, cgr__graph_entry *entry);

#endif

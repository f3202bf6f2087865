/* A step of an engine without cgr: the same `record`, enqueued in the same order, but with empty kernels in place of cgr's own
 * (prologue, planner, epilogue and any others), on the same branches; or without them and their branches. Append and
 * attention count as the engine's: they work on what the last step of the runtime has left. */
#ifndef CGR_PROFILES_SUPPORT_SIDES_H
#define CGR_PROFILES_SUPPORT_SIDES_H

#include "graphs/graphs.h"
#include "profiles/support/bench.h"
#include "profiles/support/least.h"

typedef struct bench_side {
  bool bare;                /* without them and their branches */
  const cgr__kernel *kept;  /* the one of cgr's own kernels that is there; NULL: none */
  const bench_least *least; /* in place of empty kernels those that do the least: a prologue that follows three loads, a fetch
                               that reads a word, an epilogue that publishes; `device` and `mapped` are read. NULL: empty ones */
} bench_side;

/* Captures it for the key. `entry->exec` is the graph, until cgr__graph_drop. */
void bench_capture_side(bench_engine *engine, const cgr_key *key, const bench_side *side, cgr__graph_entry *entry);

#endif

/* Graphs: why a step uses which one, capture and its budgets, and the regions whose addresses graphs hold. Keys, modes and sizes
 * are in config.h, `record` in record.h. */
#ifndef CGR_GRAPHS_H
#define CGR_GRAPHS_H

#include "cgr/record.h"

#ifdef __cplusplus
extern "C" {
#endif

/* -------------------------------------------------------------------------------------------------------------- dispatch */

/* Why a step runs the way it does. Every launched step counts under exactly one (kind, reason). */
typedef enum cgr_reason {
  CGR_REASON_EXACT = 0,      /* a graph of exactly this size */
  CGR_REASON_PADDED,         /* the next larger graph */
  CGR_REASON_MODE_NONE,      /* the graph mode is NONE */
  CGR_REASON_NOT_UNIFORM,    /* some request has more tokens than a captured query length, and mixed steps have no graphs */
  CGR_REASON_ABOVE_REQUESTS, /* more requests than in any bucket that holds the tokens, captured or not */
  CGR_REASON_NOT_CAPTURED,   /* capture has not been called for this key */
  CGR_REASON_CAPTURE_FAILED, /* the capture of this key failed */
  CGR_REASON_STALE,          /* a region has moved since the capture, or `record` has changed */
  CGR_REASON_FORCED,         /* batch.forced_key asked for it */
  CGR_REASON_INTERNAL,       /* the runtime's own (changes sent ahead, warm-up), or abandoned, whatever its cgr_step says */
  CGR_REASON_ABOVE_TOKENS,   /* more tokens than the largest mixed bucket */
  CGR_REASON_SUPERSET,       /* a graph of a variant that serves the batch's too */
  CGR_REASON_DISABLED,       /* cgr_runtime_enable_graphs has switched replays off; also for steps without a graph */
  CGR_REASON_BUDGET,         /* the budget of a capture had ended before this key */
  CGR_REASON_TOO_PADDED,     /* the smallest graph that holds the batch pads it too much (cgr_config.max_padding) */
  CGR_REASON_COUNT_
} cgr_reason;

/* --------------------------------------------------------------------------------------------------------------- capture */

typedef enum cgr_capture_flag {
  CGR_CAPTURE_MISSED = 1 /* only keys that a step wanted since their last capture and could not use. Steps that were refused count
                            too: in strict mode, or for a forced key without a graph. Keys that have failed three times in a row
                            are left out. Call it when there is time */
} cgr_capture_flag;

typedef struct cgr_capture {
  uint32_t size;
  int32_t program;            /* whose `record` and keys these are, 0 .. num_programs - 1 */
  cgr_record_function record; /* kept, with `engine`: eager steps call it. If either changes, all graphs become stale,
                                 even if every capture then fails */
  void *engine;
  const cgr_key *keys;        /* [num_keys] of cgr_runtime_graph_stats, to be captured in this order, if they have no graph or a
                                 stale one; NULL: all */
  int32_t num_keys;           /* 0: all of the program, and keys is NULL */
  uint32_t flags;             /* CGR_CAPTURE_* */
  double max_ms;              /* budget: time of this call; 0: none */
  uint64_t max_bytes;         /* budget: device memory of all graphs of the runtime, those captured before included; 0: none */
} cgr_capture;
#define CGR_CAPTURE_INIT { (uint32_t)sizeof(cgr_capture), 0, NULL, NULL, NULL, 0, 0, 0.0, 0 }

/* Needed in every mode: the runtime gets `record` here or from cgr_runtime_warmup, for eager steps too. Captures every key that
 * has no graph or a stale one, mixed ones first, then uniform ones, each from the largest down, so that later graphs find memory
 * that earlier ones have asked for; or those of `keys`, in their order (for a budget, say, the ones that matter most first).
 * Captures in thread-local mode, on a stream of its own. No step may be prepared. Waits for steps in flight: if they do not
 * complete within wait_timeout_ms, it returns CGR_NOT_READY and does nothing.
 *
 * A key whose capture fails is counted, and a later call tries again. The first failure is returned after all keys were tried.
 * If a key has no replayable graph, its steps use a larger graph, or one of another query length, kind or superset that serves
 * them, within max_padding. Otherwise they run eagerly (or are refused when strict).
 *
 * max_padding of cgr_config, 2 by default, holds for every graph that a step might use. A graph of more than that many times the
 * batch's tokens is not taken if another one that serves the batch has fewer tokens. If it has over 64 tokens more than the
 * batch, it is not taken even if it is the only one: the step runs eagerly (CGR_REASON_TOO_PADDED), unless strict forbids that. A
 * batch without tokens counts as one token. Within max_padding a graph of the batch's own variant comes first, whatever its kind,
 * then those of its superset, and so on. Among those of one variant FULL comes before PIECEWISE. Each capture logs which sizes
 * have no graph (INFO).
 *
 * Capture stops before the key whose expected cost, the average of its kind, would exceed a budget. A graph that exceeds max_bytes
 * all the same is dropped, unless only its measured memory exceeds it and not the estimate: memory that others take meanwhile
 * drops no graph. That is not a failure: the keys that are left, except failed and stale ones, are
 * CGR_GRAPH_OVER_BUDGET (CGR_REASON_BUDGET) until a later call captures them.
 * Threads one · Capture no · Sync may · Alloc cold */
CGR_API cgr_status cgr_runtime_capture(cgr_runtime *runtime, const cgr_capture *capture);

/* Releases graphs: stale ones first, then the least recently replayed, until the rest take at most `keep_bytes` of
 * device memory; 0 releases all. If the device cannot tell memory, only 0 has an effect. Their keys are as before a
 * capture; CGR_CAPTURE_MISSED brings back those that steps have asked for since. `*released` (may be NULL) is the device memory
 * of what was released. Steps in flight are not disturbed. If backends keep states, which end with their graphs, it waits for
 * these steps (CGR_NOT_READY after wait_timeout_ms: nothing was released). CGR_ERROR_STATE when one is prepared.
 * Threads one · Capture no · Sync may · Alloc cold */
CGR_API cgr_status cgr_runtime_release_graphs(cgr_runtime *runtime, uint64_t keep_bytes, uint64_t *released);

/* Sets whether steps prepared from now on may replay; at first they may. When off, they run eagerly (CGR_REASON_DISABLED, also
 * when strict), except those that force the key of a graph; the graphs stay. Use it to see whether a fault comes from replaying.
 * Threads one · Capture ok · Sync never · Alloc never */
CGR_API cgr_status cgr_runtime_enable_graphs(cgr_runtime *runtime, int32_t enabled);

/* Calls `record` once for every key, or those of `keys`, eagerly, in steps without requests, so that the engine's libraries load
 * and choose what they need before a capture. Writes padded rows only, and no page. Each of these steps takes a number, as those
 * of a flush do. They run on a stream of the runtime, which is not ordered after the engine's streams: synchronise with
 * what writes weights and caches first. CGR_NOT_READY as for a capture. Flags and budgets are ignored. The call is optional.
 * Threads one · Capture no · Sync may · Alloc cold */
CGR_API cgr_status cgr_runtime_warmup(cgr_runtime *runtime, const cgr_capture *capture);

/* --------------------------------------------------------------------------------------------------------------- regions */

/* A region is memory whose address graphs may hold. The arena, the rings, the KV views and their scales are registered at
 * creation, and stay; an engine adds its weights and activations. There are at most 8192 regions, the runtime's included; one
 * more is CGR_ERROR_OUT_OF_MEMORY. Moving one (cgr_region_move), even to its old address, makes graphs that were captured before and hold it
 * stale: their steps run eagerly (CGR_REASON_STALE), or are refused when strict or forced, until cgr_runtime_capture captures
 * them again; a step that is prepared for one of them already is refused at its launch (cgr_step_launch). Unregistering one does
 * the same, and its number may be given to another. A graph holds every region of the engine, also one that is registered after
 * its capture, unless its `record` says otherwise with cgr_record_use. Regions may overlap: an address belongs to each that
 * covers it, and each counts by itself.
 *
 * What a graph that is not stale holds is not freed: cgr_memory_free refuses it. First move or unregister the region, or release
 * the graphs.
 * Threads one · Capture no · Sync never · Alloc never */
CGR_API cgr_status cgr_region_register(cgr_runtime *runtime, const void *base, size_t bytes, int32_t *region);
CGR_API cgr_status cgr_region_move(cgr_runtime *runtime, int32_t region, const void *base, size_t bytes);
CGR_API cgr_status cgr_region_unregister(cgr_runtime *runtime, int32_t region);

#ifdef __cplusplus
}
#endif
#endif

/* What looks at a runtime: what captures will cost and have cost, tests of its graphs, its state as text (base.h says how
 * texts are written). Not included by cgr.h. */
#ifndef CGR_INSPECT_H
#define CGR_INSPECT_H

#include "cgr/graphs.h"
#include "cgr/step.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ------------------------------------------------------------------------------------------------------- what each costs */

typedef enum cgr_graph_state {
  CGR_GRAPH_EMPTY = 0, /* not captured */
  CGR_GRAPH_READY = 1,
  CGR_GRAPH_FAILED = 2, /* its capture failed */
  CGR_GRAPH_STALE = 3,  /* a region has moved since, or `record` has changed */
  CGR_GRAPH_OVER_BUDGET = 4 /* not captured: the budget had ended */
} cgr_graph_state;

typedef struct cgr_graph_stats {
  uint32_t size;
  int32_t state;          /* cgr_graph_state */
  cgr_key key;
  int32_t records;        /* times `record` ran for this key's captures */
  int32_t num_pieces;     /* graphs that a replay launches: 1 for FULL; 0: nothing is captured */
  uint64_t replays;       /* begun, those of abandoned steps included */
  uint64_t real_requests; /* summed over the replays */
  int64_t num_nodes;
  int64_t device_bytes;   /* taken by instantiation: the decrease in free memory, or an estimate; 0 if the device cannot tell */
  double capture_ms;      /* capture and instantiation */
  int64_t width;          /* most nodes at the same depth, in the widest of the graphs: from about 32 on, launches cost the host
                             more */
  uint64_t last_seq;      /* the last step that used it; 0: none */
  uint64_t misses;        /* steps that would have used it and could not, since it was last captured */
  int32_t failures;       /* captures that have failed in a row */
  int32_t bytes_estimated; /* graphs of num_pieces whose memory is estimated from their nodes and branches: what was measured was
                              far from that, because others used the device meanwhile */
  uint64_t turned_down;   /* steps that would have used or missed it without cgr_config.max_padding: they ran in a smaller graph
                             or eagerly */
} cgr_graph_stats;
#define CGR_GRAPH_STATS_INIT                                                                                              \
  { (uint32_t)sizeof(cgr_graph_stats), 0, { 0, 0, 0, 0, 0, 0, 0, 0, { 0, 0, 0, 0 } }, 0, 0, 0, 0, 0, 0, 0.0, 0, 0, 0, 0, 0, 0 }
/* Number of keys, and the statistics of one of them.
 * Threads one · Capture ok · Sync never · Alloc never */
CGR_API cgr_status cgr_runtime_num_keys(cgr_runtime *runtime, int32_t *count);
CGR_API cgr_status cgr_runtime_graph_stats(cgr_runtime *runtime, int32_t index, cgr_graph_stats *stats);

typedef struct cgr_capture_estimate {
  uint32_t size;
  int32_t num_keys;     /* to be captured */
  int32_t num_measured; /* that have been */
  int32_t num_estimated; /* of these, with memory that is estimated (cgr_graph_stats.bytes_estimated) */
  double ms;            /* for num_keys; cgr_stats.capture_ms has what it took */
  uint64_t bytes;       /* of device memory; cgr_stats.graph_bytes has what it took */
  uint64_t bytes_left;  /* of it, for those that have no graph yet: what to leave free */
} cgr_capture_estimate;
#define CGR_CAPTURE_ESTIMATE_INIT { (uint32_t)sizeof(cgr_capture_estimate), 0, 0, 0, 0.0, 0, 0 }

/* Estimates what it takes to capture all keys that have no graph, or those of `keys`, from a few of each kind, spread over the
 * sizes; these are captured and stay. Use it, say, before the memory for the KV cache is decided, with a runtime over the
 * smallest one that max_seq_len allows (a graph's size does not depend on the pages; views cannot move, so another runtime
 * follows). CGR_CAPTURE_MISSED counts, budgets do not. Fails as cgr_runtime_capture does, at the first failure.
 * Threads one · Capture no · Sync may · Alloc cold */
CGR_API cgr_status cgr_runtime_estimate_capture(cgr_runtime *runtime, const cgr_capture *capture, cgr_capture_estimate *estimate);

typedef struct cgr_key_advice {
  uint32_t size;
  int32_t num_keys;      /* that pay */
  uint64_t steps;        /* that used a key without forcing it, and those that missed one (cgr_graph_stats.misses: since its last
                            capture). A step that missed its key and used another counts for both */
  uint64_t tokens;       /* that these keys have, summed over the steps */
  uint64_t tokens_after; /* the same with the keys that pay alone */
  uint64_t bytes, bytes_after; /* bytes of device memory: of the graphs that there are, and of those whose keys pay */
  double ms, ms_after;   /* milliseconds that capturing these took */
} cgr_key_advice;
#define CGR_KEY_ADVICE_INIT { (uint32_t)sizeof(cgr_key_advice), 0, 0, 0, 0, 0, 0, 0.0, 0.0 }

/* Which keys pay, by the steps that this runtime has launched. A key that no step used or missed does not pay. Of the others one
 * key after another is given up, the one that adds fewest padded tokens first, while the tokens of all steps grow by at most
 * max_growth: a fraction, 0.01 is 1%. A key is given up for a larger one of the same kind, query length and variant, and only if
 * that one serves its steps within max_padding; never for a graph of another kind.
 *
 * `keys` gets those that pay, in the order of cgr_runtime_graph_stats. advice->num_keys says how many they are, of which at most
 * `capacity` are written; `keys` may be NULL if that is 0. The advice is about the load that was seen: a larger batch than any
 * before would have no graph. Tokens are all that it weighs, so keys that are used at low load go first, although padding makes
 * their steps longer. CGR_ERROR_INVALID_ARGUMENT for a max_growth outside 0 .. 1 or a negative `capacity`,
 * CGR_ERROR_NULL_POINTER for `keys` NULL with a capacity, CGR_ERROR_OUT_OF_MEMORY.
 * Threads one · Capture ok · Sync never · Alloc cold */
CGR_API cgr_status cgr_runtime_advise_keys(cgr_runtime *runtime, double max_growth, cgr_key *keys, int32_t capacity,
                                           cgr_key_advice *advice);

/* ------------------------------------------------------------------------------------------------------------- self-test */

/* Memory that `record` writes for each token or request, such as logits: a self-test compares it too. */
typedef struct cgr_watch {
  const char *name; /* for findings */
  const void *data; /* device memory, a row for each padded token or request */
  int64_t row_bytes, stride_bytes; /* compared, 1 or more; from row to row, row_bytes .. 2^31 */
  int32_t dimension;               /* cgr_dimension: TOKENS or REQUESTS (those that have tokens) */
  int32_t reserved;                /* 0 */
} cgr_watch;

/* What a self-test puts into a staged buffer of the engine's: numbers from `low` to `high`, both included, as max_token does for
 * tokens. They must be numbers of the buffer's dtype, whole ones if it is an integer (of i64, up to 2^53). */
typedef struct cgr_staged_range {
  int32_t buffer;   /* index into cgr_config.buffers, of one declared with CGR_SOURCE_STAGED; each once */
  int32_t reserved; /* 0 */
  double low, high;
} cgr_staged_range;

typedef struct cgr_self_test {
  uint32_t size;
  int32_t num_pages;    /* of each group, if there are any, 4 .. 2^24: with fewer than a graph could use, its requests are
                           shorter or fewer. If a graph needs exact lengths and the pages do not hold even one such request, it is
                           not tested, which is a finding (CGR_ERROR_PAGES_MISSING) */
  const int32_t *pages; /* [num_groups][num_pages] that are not in use; what they hold is lost */
  int32_t max_token;    /* the vocabulary, 1 or more: token ids are 0 .. max_token - 1 */
  uint32_t seed;        /* for lengths, tokens, the pages' order and what they hold */
  const cgr_watch *watched;
  int32_t num_watched;  /* 0 .. 32 */
  int32_t reserved;     /* 0 */
  const cgr_staged_range *staged;
  int32_t num_staged;   /* 0 .. 64. Buffers without a range hold their padding; the log names them (WARNING) */
  int32_t reserved_end; /* 0 */
} cgr_self_test;
#define CGR_SELF_TEST_INIT { (uint32_t)sizeof(cgr_self_test), 0, NULL, 0, 0, NULL, 0, 0, NULL, 0, 0 }

/* Tests every graph that can be replayed against an eager step of the same padded counts, with other lengths than at the capture:
 * three runs of equal inputs, one eager and two replays; twice, first with fewer requests and tokens than the key holds, then with
 * as many as the key and the pages allow, each request from position 0. Each run has four steps.
 * - An eager step of one request, of another size than the key's, after which host code that does something once for each size
 *   has to do it again. It is the same in every run.
 * - A decoy: an eager step of the same padded key. In it the rows of the test begin at length 0, with other tokens, lengths and
 *   staged data than in the test; so does whatever a model keeps for a row, if it resets that at position 0. So the engine's own
 *   memory, and what its host code keeps, hold wrong values for a graph that lacks a kernel, a copy, a fill or a call. In the
 *   replays' runs there are more decoys, which differ; one has the tested step's numbers of requests and tokens and its longest
 *   length, so that host code which keeps something for them does not do it again. It needs rows and pages of its own: max_rows
 *   of twice max_requests is enough, and num_pages must hold its pages, too. If max_rows (by default max_requests) or num_pages
 *   do not suffice, it has other numbers or is left out, and the log says once what would be enough (WARNING).
 * - The step that is tested. Stale data in the step's buffers and after the rows' pages, the padded tokens and the unowned pages
 *   vary.
 * - The next step, of the same kind, with as many requests and tokens as the key holds: it goes on with the tokens that were
 *   sampled, and shows whether the tested step has left for later ones what it should.
 *
 * These must be equal, bit for bit: of the tested step the planned buffers except CGR_BUFFER_PLAN, and every byte of the
 * requests' pages; of it and of the next step the sampled tokens (CGR_BUFFER_NEXT_TOKENS, and the result's) and the watched
 * memory of real requests. The calls of `record` are counted, because no value shows a check that a graph lacks: the graph must
 * have been made by as many cgr_record_check_values, with the same bits, as the eager step, and by at least as many
 * cgr_record_attention, _merge, _measure, _call and, for on-demand buffers, _buffer. Calls at breaks count what they do at each
 * replay. No other given page, and no read-trash page, may change in the tested step. Whatever differs is a finding
 * (CGR_ERROR_SELF_TEST), which names the key, what differs and how. Of a buffer or the watched memory that is the first difference: "name[row][index]"
 * and both values. For buffers and tokens, which are integers, index and values are of elements; for watched memory, which has no
 * dtype, they are of bytes, the values as two hexadecimal digits. A finding is also a `record` that does not do the same for
 * equal inputs. The test finds only what changes one of these: watch what your sampler reads. It cannot find errors
 * that eager steps share, such as staged data that is copied only once. Workspaces of backends hold zeros before a tested
 * step.
 * *count says how many findings there are, of which `capacity` are written; the status is that of the first. A step that fails
 * ends the test with its status.
 *
 * The steps run on a stream of the runtime, which is not ordered after the engine's streams: synchronise with what writes
 * weights and caches first. Meanwhile no work of the engine may write the given pages, the read-trash pages or the watched
 * memory. Each graph takes up to 28 steps, eight of them replays, plus others that send the pages ahead; statistics count them as
 * CGR_REASON_FORCED and _INTERNAL. CGR_ERROR_STATE when a row is open, a step is prepared, or no key has a graph that can be
 * replayed; CGR_ERROR_UNSUPPORTED when a group has a page table of the engine's; CGR_ERROR_PAGE_OUT_OF_RANGE for a page that is
 * reserved.
 * Threads one · Capture no · Sync may · Alloc cold */
CGR_API cgr_status cgr_runtime_self_test(cgr_runtime *runtime, const cgr_self_test *test, cgr_finding *findings, int32_t capacity,
                                         int32_t *count);

/* ----------------------------------------------------------------------------------------------------------------- audit */

typedef struct cgr_audit {
  uint32_t size;
  int32_t num_graphs;    /* that were looked at */
  int64_t num_nodes;     /* of all of them; a call at a break counts as one */
  int64_t num_hidden;    /* those whose parameters cannot be seen */
  int64_t num_addresses; /* of device and pinned memory, in the parameters of the others */
} cgr_audit;
#define CGR_AUDIT_INIT { (uint32_t)sizeof(cgr_audit), 0, 0, 0, 0 }

/* Looks for what a replay must not depend on: captures again, twice, every key whose graph can be replayed, as
 * cgr_runtime_capture does, but makes no graph and reads what the nodes hold. `record` must do what it did then. A finding
 * (CGR_ERROR_AUDIT) names the key, the node and the parameter of
 * - an address that is in no region, or in one that `record` did not name although it named others; once for each allocation,
 *   or region of a key;
 * - a number, in a parameter or a launch's dimensions, that differs in the second capture: a host value, which replays keep.
 *   Unset bytes between the fields of a struct are reported in the same way. Addresses may differ within a region. Reported once
 *   for each place in nodes of one name;
 * - a key that has different nodes in the second capture.
 * *count and the status are as in cgr_runtime_self_test; `*audit` may be NULL. A capture that fails ends the audit with its
 * status.
 *
 * It does not see: addresses that kernels find in memory (tables, and tensor maps made on the device) or in variables of their
 * modules; memory that the device does not know: freed memory and, on the host device, whatever cgr_memory_alloc did not return;
 * addresses that are not at a multiple of 8 bytes in a parameter; whether a kernel stays within a region (the address at its end
 * counts as outside); in which order branches run; a captured value that is the same in both captures (the self-test sees its
 * effect); and what captures leave out and eager steps do (the self-test compares both). Nodes of a kind other than kernel, copy,
 * fill, event, or host function of cgr_launch_host are hidden. CGR_ERROR_STATE when a step is prepared, or no key has a graph
 * that can be replayed.
 * Threads one · Capture no · Sync may · Alloc cold */
CGR_API cgr_status cgr_runtime_audit(cgr_runtime *runtime, cgr_audit *audit, cgr_finding *findings, int32_t capacity,
                                     int32_t *count);

/* ------------------------------------------------------------------------------------------------------------------ dump */

/* The flight recorder (tracing.h) as JSON, with whatever else explains the runtime's state: version, device, layout, the
 * prepared step, the last launch that failed, what a dead runtime has died of, and the first step that the device has not
 * completed: a device reports the fault of a kernel at a later call, by which time other steps may have been launched. Also
 * works on a dead runtime.
 * Threads one · Capture ok · Sync never · Alloc never */
CGR_API cgr_status cgr_runtime_dump(cgr_runtime *runtime, char *out, size_t capacity, size_t *length);

/* ------------------------------------------------------------------------------------------------------ labels of graphs */

/* What every node of the captured graphs belongs to, as JSON: for profilers, which see a replay as kernels without a context.
 * Only graphs that were captured with cgr_config.labels have labels; without it `graphs` is empty.
 *
 *   {"version": .., "device": {"kind": .., "name": .., "driver": 13000},
 *    "graphs": [{"index": 0, "key": "full 8r 8t q1 v0", "kind": "full", "padded_requests": 8, "padded_tokens": 8, "query_len": 1,
 *                "variant": 0, "state": "ready", "unlabelled": null,
 *                "pieces": [[{"phase": "attention", "layer": 3, "backend": "cgr", "nodes": ["name", ..], "ids": [..]}, ..], ..]}]}
 *
 * `index` is that of cgr_runtime_graph_stats. A piece is a graph of its own to the device: a FULL graph has one, a PIECEWISE one
 * several, in the order in which they are launched; what is launched between them is part of no graph and not listed. Consecutive
 * nodes that belong to the same are under one label. Labels are in the order in which they were captured; the nodes of a label
 * are as the device lists them, so far in that order too. `phase` is prologue, staged, on demand, planner, record (the engine's,
 * before its first layer), layer (the engine's, after the attention of `layer`), append, attention, merge (of cgr_record_merge),
 * measure (of cgr_record_measure), call (of cgr_record_call), fetch, epilogue; or none. Most times (cgr_phase) have the same
 * names, but planner is "plan first" or "plan", and merges and measures have none. Times nest: that of a layer holds what is
 * labelled layer, append and attention; that of record holds all layers, what is labelled record, the merges, the measures and
 * the calls. `layer` and `backend` are null if there is none. A node's name is its kernel's, as the driver has it, or "copy",
 * "fill", "event", ... `ids` are what CUPTI and Nsight call graphNodeId; drivers tell them from CUDA 13.1 on, and before that
 * there are none. A graph whose labels could not be taken says why in `unlabelled`, and has no pieces; it can be captured again
 * after cgr_runtime_release_graphs.
 * Threads one · Capture ok · Sync never · Alloc never */
CGR_API cgr_status cgr_runtime_graph_labels(cgr_runtime *runtime, char *out, size_t capacity, size_t *length);

#ifdef __cplusplus
}
#endif
#endif

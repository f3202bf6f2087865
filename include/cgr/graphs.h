/* cgr: keys, modes and captures of graphs, and what they hold and cost. Included by cgr.h, which has the steps.
 *
 * A step is a list of pieces: a FULL graph is one; a PIECEWISE one is several, with calls between them; an eager step has none.
 * All three come from one function of the engine, `record`. */
#ifndef CGR_GRAPHS_H
#define CGR_GRAPHS_H

#include "cgr/attention.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct cgr_runtime cgr_runtime;

/* ------------------------------------------------------------------------------------------------------------------ keys */

typedef enum cgr_graph_kind { CGR_KIND_NONE = 0, CGR_KIND_PIECEWISE = 1, CGR_KIND_FULL = 2 } cgr_graph_kind;

/* What a graph is captured for; compared by value. */
typedef struct cgr_key {
  int32_t kind;         /* cgr_graph_kind; NONE: an eager step */
  int32_t program;      /* 0 */
  int32_t lane;         /* 0 */
  int32_t num_tokens;   /* padded */
  int32_t num_requests; /* padded */
  int32_t query_len;    /* most new tokens of a request (exactly as many, unless all attention in use is ALWAYS); 0: mixed */
  int32_t max_steps;    /* 0 */
  uint32_t variant;     /* 0 or a word of cgr_config.variants: the batch's own, or that of a superset */
  uint32_t reserved[4];
} cgr_key;
#define CGR_KEY_INIT { 0, 0, 0, 0, 0, 0, 0, 0, { 0, 0, 0, 0 } }

/* Which steps are captured, as (uniform query lengths, everything else). FULL is one graph; PIECEWISE is several, with every
 * cgr_record_attention and cgr_record_call made between them, at each replay. A mode that the attention cannot do is lowered, and
 * the reason is kept (cgr_runtime_graph_mode): FULL to FULL_AND_PIECEWISE if some attention in use is not ALWAYS, and all to
 * PIECEWISE if some is NEVER. The engine's own attention, if a graph cannot hold it, belongs in a backend or a cgr_record_call;
 * for the latter, as for any other function that no graph can hold, set attention_support to NEVER or ask for PIECEWISE: a FULL
 * graph calls it once, at capture. The log names calls that added no node to a capture (WARNING). */
typedef enum cgr_graph_mode {
  CGR_MODE_DEFAULT = 0,          /* FULL where all attention in use is ALWAYS, else FULL_AND_PIECEWISE */
  CGR_MODE_NONE = 1,             /* (eager, eager) */
  CGR_MODE_PIECEWISE = 2,        /* (PIECEWISE, PIECEWISE) */
  CGR_MODE_FULL = 3,             /* (FULL, FULL) */
  CGR_MODE_FULL_DECODE_ONLY = 4, /* (FULL, eager) */
  CGR_MODE_FULL_AND_PIECEWISE = 5 /* (FULL, PIECEWISE) */
} cgr_graph_mode;

/* A captured size of mixed steps: it serves any batch with no more tokens and requests. */
typedef struct cgr_bucket {
  int32_t num_tokens, num_requests;
} cgr_bucket;

/* A variant of steps: a word that `record` finds in its key, and for which it may enqueue other kernels (with adapters, say, or
 * with up to two of them). A captured variant has graphs of its own, of every size. A batch whose variant has none that can be
 * replayed uses those of the superset, if there is one, and so on (CGR_REASON_SUPERSET, padded or not). `record` then sees the
 * superset's word; if the step runs eagerly, it sees the batch's own. So under every word that can serve a variant, it must do
 * that variant's work. What differs between batches of one graph comes as data, such as a staged buffer.
 *
 * A variant of a length set above 0 is a step of that set's tokens (an encoder's, say): the last query_len of the length that
 * cgr_request_set_other_length has set, so that length is the position after them. The tokens are ids on the host; nothing is
 * sampled (num_tokens of the result are 0), and the rows' sequences, last tokens and lengths stay as they are. The standing batch
 * cannot have such a variant; it goes on afterwards. */
typedef struct cgr_variant {
  uint32_t word;     /* cgr_batch.variant; each once */
  uint32_t superset; /* another word of the list, never variant 0; no cycles. 0: none */
  int32_t captured;  /* 1: it has graphs of its own; 0: those of the superset alone */
  int32_t length_set; /* whose tokens its steps have; the same as its superset's; variant 0 always has 0: the sequences */
} cgr_variant;

/* Threads any · Capture ok · Sync never · Alloc never */
CGR_API const char *cgr_graph_kind_name(cgr_graph_kind kind);
CGR_API const char *cgr_graph_mode_name(cgr_graph_mode mode);

/* --------------------------------------------------------------------------------------------------------------- capture */

/* The model, written once: enqueues one step on the recorder's stream, for its padded counts. The same function serves eager
 * steps and captures; a capture calls it exactly once per key that it captures, a replay never. Any status but CGR_OK gives up
 * the step or the capture, with CGR_ERROR_CALLBACK and the cause in the message; so does a failed cgr_record_ call, even if
 * `record` ignores it. It may call cgr_record_*, cgr_buffer_get and the functions of device.h that do not wait. */
typedef cgr_status (*cgr_record_function)(cgr_recorder *recorder, void *engine);

typedef enum cgr_capture_flag {
  CGR_CAPTURE_MISSED = 1 /* only keys that, since they were last captured, some step would have used and could not (steps refused
                            by strict mode, or for a forced key without a graph, count too), and that have not failed three times
                            in a row. Meant to be called when there is time */
} cgr_capture_flag;
/* Threads any · Capture ok · Sync never · Alloc never */
CGR_API const char *cgr_capture_flag_name(cgr_capture_flag flag);

typedef struct cgr_capture {
  uint32_t size;
  int32_t program;            /* 0 */
  cgr_record_function record; /* kept, with `engine`: eager steps call it. If either changes, all graphs become stale,
                                 even if every capture then fails */
  void *engine;
  const cgr_key *keys;        /* [num_keys] of cgr_runtime_graph_stats, to be captured in this order, if they have no graph or a
                                 stale one; NULL: all */
  int32_t num_keys;           /* 0: all, and keys is NULL */
  uint32_t flags;             /* CGR_CAPTURE_* */
  double max_ms;              /* budget: time of this call; 0: none */
  uint64_t max_bytes;         /* budget: device memory of all graphs of the runtime, those captured before included; 0: none */
} cgr_capture;
#define CGR_CAPTURE_INIT { (uint32_t)sizeof(cgr_capture), 0, NULL, NULL, NULL, 0, 0, 0.0, 0 }

/* Needed in every mode: the runtime gets `record` here or from cgr_runtime_warmup, for eager steps too. Captures every key that
 * has no graph or a stale one, mixed ones first, then uniform ones, each from the largest down, so that later graphs find memory
 * that earlier ones have asked for; or those of `keys`, in their order (for a budget, say, the ones that matter most first).
 * Captures in thread-local mode, on a stream of its own. No step may be prepared. Waits for steps in flight: if they do not
 * complete within wait_timeout_ms, it is CGR_NOT_READY and nothing is done.
 *
 * A key whose capture fails is counted, and a later call tries again. The first failure is returned after all keys were tried.
 * If a key has no replayable graph, its steps use a larger graph, or one of another query length, kind or superset that serves
 * them, within max_padding. Otherwise they run eagerly (or are refused when strict).
 *
 * max_padding of cgr_config, 2 by default, holds for every graph that a step might use. A graph of more than that many times the
 * batch's tokens is not taken if another one that serves the batch has fewer tokens. If it has over 64 tokens more than the
 * batch, it is not taken even if it is the only one: the step runs eagerly (CGR_REASON_TOO_PADDED), unless strict forbids that. A
 * batch without tokens counts as one token. Within max_padding FULL comes before PIECEWISE, and the batch's own variant before a
 * superset. Each capture logs which sizes have no graph (INFO).
 *
 * Capture stops before the key whose expected cost, the average of its kind, would exceed a budget. A graph that exceeds max_bytes
 * all the same is dropped, unless only its measured memory exceeds it and not the estimate: memory that others take meanwhile
 * drops no graph. That is not a failure: the keys that are left, except failed and stale ones, are
 * CGR_GRAPH_OVER_BUDGET (CGR_REASON_BUDGET) until a later call captures them.
 * Threads one · Capture no · Sync may · Alloc cold */
CGR_API cgr_status cgr_runtime_capture(cgr_runtime *runtime, const cgr_capture *capture);

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

/* Releases graphs: stale ones first, then the least recently replayed, until the rest take at most `keep_bytes` of
 * device memory; 0 gives up all of them. If the device cannot tell memory, only 0 has an effect. Their keys are as before a
 * capture; CGR_CAPTURE_MISSED brings back those that steps have asked for since. `*released` (may be NULL) is the device memory
 * of what was given up. Steps in flight are not disturbed. If backends keep states, which end with their graphs, it waits for
 * these steps (CGR_NOT_READY after wait_timeout_ms: nothing was given up). CGR_ERROR_STATE when one is prepared.
 * Threads one · Capture no · Sync may · Alloc cold */
CGR_API cgr_status cgr_runtime_release_graphs(cgr_runtime *runtime, uint64_t keep_bytes, uint64_t *released);

/* Sets whether steps prepared from now on may replay; at first they may. When off, they run eagerly (CGR_REASON_DISABLED, also
 * when strict), except those that force the key of a graph; the graphs stay. Use it to see whether a fault comes from replaying.
 * Threads one · Capture ok · Sync never · Alloc never */
CGR_API cgr_status cgr_runtime_enable_graphs(cgr_runtime *runtime, int32_t enabled);

/* Calls `record` once for every key, or those of `keys`, eagerly, in steps without requests, so that the engine's libraries load
 * and choose what they need before a capture. Writes padded rows only, and no page. Each of these steps takes a number, as those
 * of a flush do. They run on a stream of the runtime's own, which is not ordered after the engine's streams: synchronise with what
 * writes weights and caches first. CGR_NOT_READY as for a capture. Flags and budgets do not count. Optional.
 * Threads one · Capture no · Sync may · Alloc cold */
CGR_API cgr_status cgr_runtime_warmup(cgr_runtime *runtime, const cgr_capture *capture);

/* --------------------------------------------------------------------------------------------------------------- regions */

/* A region is memory whose address graphs may hold. The arena, the rings, the KV views and their scales are registered at
 * creation, and stay; an engine adds its weights and activations. There are at most 8192 regions, the runtime's included; one
 * more is CGR_ERROR_OUT_OF_MEMORY. Re-registering one, even at its old address, makes graphs that were captured before and hold it
 * stale: their steps run eagerly (CGR_REASON_STALE), or are refused when strict or forced, until cgr_runtime_capture captures
 * them again. Unregistering one does the same, and its number may be given to another. A graph holds every region of the engine,
 * also one that is registered after its capture, unless its `record` says otherwise with cgr_record_use. Regions may overlap: an address belongs to each that covers it, and
 * each counts by itself.
 *
 * What a graph that is not stale holds is not freed: cgr_memory_free refuses it. First move or unregister the region, or release
 * the graphs.
 * Threads one · Capture no · Sync never · Alloc never */
CGR_API cgr_status cgr_region_register(cgr_runtime *runtime, const void *base, size_t bytes, int32_t *region);
CGR_API cgr_status cgr_region_move(cgr_runtime *runtime, int32_t region, const void *base, size_t bytes);
CGR_API cgr_status cgr_region_unregister(cgr_runtime *runtime, int32_t region);

/* Says, in a capture, that the graph holds an address in `region`, as given by cgr_region_register. A `record` that calls this
 * must name every region in which its kernels, or the arguments of its calls at breaks, hold an address; those in which the views
 * of its attention calls begin are known. One that never calls it holds all regions. In other steps only the number is checked.
 * Threads one · Capture ok · Sync never · Alloc cold in a capture, else never */
CGR_API cgr_status cgr_record_use(cgr_recorder *recorder, int32_t region);

/* ------------------------------------------------------------------------------------------------------- what each costs */

typedef enum cgr_graph_state {
  CGR_GRAPH_EMPTY = 0, /* not captured */
  CGR_GRAPH_READY = 1,
  CGR_GRAPH_FAILED = 2, /* its capture failed */
  CGR_GRAPH_STALE = 3,  /* a region has moved since, or `record` has changed */
  CGR_GRAPH_OVER_BUDGET = 4 /* not captured: the budget had ended */
} cgr_graph_state;
/* Threads any · Capture ok · Sync never · Alloc never */
CGR_API const char *cgr_graph_state_name(cgr_graph_state state);

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
/* Number of keys (0 for a bad handle), and the statistics of one of them.
 * Threads one · Capture ok · Sync never · Alloc never */
CGR_API int32_t cgr_runtime_num_keys(cgr_runtime *runtime);
CGR_API cgr_status cgr_runtime_graph_stats(cgr_runtime *runtime, int32_t index, cgr_graph_stats *stats);

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
 * three runs of equal inputs, one eager and two replays; twice for a single request, which is a long one, then one that begins at
 * position 0. Each run has four steps.
 * - An eager step of one request, of another size than the key's, after which host code that does something once for each size
 *   has to do it again. It is the same in every run.
 * - A decoy: an eager step of the same padded key. In it the rows of the test begin at length 0, with other tokens, lengths and
 *   staged data than in the test; so does whatever a model keeps for a row, if it resets that at position 0. So the engine's own
 *   memory, and what its host code keeps, hold wrong values for a graph that lacks a kernel, a copy, a fill or a call. In the
 *   replays' runs there are more decoys, which differ; one has the tested step's numbers of requests and tokens and its longest
 *   length, if rows and pages suffice, so that host code which keeps something for them does not do it again.
 * - The step that is tested. Stale data in the step's buffers and after the rows' pages, the padded tokens and the unowned pages
 *   vary.
 * - The next step, of the same kind, with as many requests and tokens as the key holds: it goes on with the tokens that were
 *   sampled, and shows whether the tested step has left for later ones what it should.
 *
 * These must be equal, bit for bit: of the tested step the planned buffers except CGR_BUFFER_PLAN, and every byte of the requests'
 * pages; of it and of the next step the sampled tokens (CGR_BUFFER_NEXT_TOKENS, and the result's) and the watched memory of real
 * requests. No other given page, and no read-trash page, may change in the tested step. Whatever differs is a finding
 * (CGR_ERROR_SELF_TEST), which names the key, what differs and how; so is a `record` that does not do the same for equal inputs. It
 * finds only what changes one of these: watch what your sampler reads. What eager steps do wrong as well, like host code that copies
 * staged data only once ever, it does not find. Workspaces of backends hold zeros before a tested step.
 * *count says how many findings there are, of which `capacity` are written; the status is that of the first. A step that fails
 * ends the test with its status.
 *
 * The steps run on a stream of the runtime's own, which is not ordered after the engine's streams: synchronise with what writes
 * weights and caches first. Meanwhile no work of the engine may write the given pages, the read-trash pages or the watched memory. Each
 * graph takes up to fourteen steps, four of them replays (twice as many for one request), plus others that send the pages ahead; statistics count them as
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

/* Looks for what a replay must not depend on: captures again, twice, every key whose graph can be replayed, as cgr_runtime_capture
 * does, but makes no graph and reads what the nodes hold. `record` must do what it did then. A finding (CGR_ERROR_AUDIT) names
 * the key, the node and the parameter of
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
 * counts as outside); in which order branches run; and a captured value that is the same in both captures (the self-test sees its
 * effect). Nodes of a kind other than kernel, copy, fill, event, or host function of cgr_launch_host are hidden. CGR_ERROR_STATE
 * when a step is prepared, or no key has a graph that can be replayed.
 * Threads one · Capture no · Sync may · Alloc cold */
CGR_API cgr_status cgr_runtime_audit(cgr_runtime *runtime, cgr_audit *audit, cgr_finding *findings, int32_t capacity,
                                     int32_t *count);

#ifdef __cplusplus
}
#endif
#endif

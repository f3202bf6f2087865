/* cgr: the CUDA graph runtime. C11, also valid C++11.
 *
 * The runtime turns the steps of an LLM engine into CUDA graph replays. An engine opens a device, makes its KV cache, creates a
 * runtime over both and captures its model once per bucket. Then, per step, it calls cgr_step_prepare and cgr_step_launch.
 *
 * The interface consists of seven headers. Start with the rules in base.h; device.h has devices, attention.h layers, views and
 * backends, graphs.h keys, captures and regions, planners.h the planners without a runtime, tracing.h what a runtime reports
 * about itself. This one has the runtime and includes the others.
 *
 * Reserved for later versions, and refused by name until then (CGR_ERROR_UNSUPPORTED, or CGR_ERROR_INVALID_ARGUMENT where only
 * the number of a lane or program is given): more than one program and lane, drafts, several steps in one launch. */
#ifndef CGR_CGR_H
#define CGR_CGR_H

#include "cgr/graphs.h"
#include "cgr/planners.h"
#include "cgr/tracing.h"

#ifdef __cplusplus
extern "C" {
#endif

/* --------------------------------------------------------------------------------------------------------- configuration */

typedef enum cgr_dimension { CGR_DIMENSION_TOKENS = 1, CGR_DIMENSION_REQUESTS = 2, CGR_DIMENSION_ROWS = 3 } cgr_dimension;
typedef enum cgr_source { CGR_SOURCE_DEVICE = 1, CGR_SOURCE_STAGED = 2 } cgr_source;

/* A buffer of the engine's own that lives in the arena (sampling parameters, LoRA ids, logits, ...).
 *
 * STAGED data travels in the ring, as the library's own does, and is on the device from the step's first kernels on. Data of
 * tokens and requests comes with a batch (cgr_batch.staged), and takes ring_depth times the buffer's size in pinned memory:
 * [0, real count) is what was given, the rest up to the padded count is padding, and in a step that does not name the buffer all
 * of it is. Data of rows is set by cgr_request_set_data, stays, and is padding when a row opens. Kernels find it at
 * CGR_BUFFER_REQUEST_ROWS[i]; row max_rows, that of padded requests, always holds padding. DEVICE buffers belong to the engine's
 * kernels alone. */
typedef struct cgr_buffer_decl {
  uint32_t size;
  int32_t dimension; /* cgr_dimension: the leading one, at its configured limit (rows: max_rows + 1) */
  int32_t dtype;     /* cgr_dtype */
  int32_t source;    /* cgr_source; 0: DEVICE */
  int64_t width;     /* elements per token, request or row, 1 .. 2^40; 0: 1. STAGED data of ROWS: a multiple of
                        4 bytes, at most 2^20 */
  const char *name;  /* unique among the declared, 1 to 31 characters */
  int64_t padding;   /* what every element holds at first, as a value of the dtype; fp32: -2^24 .. 2^24; smaller floats: 0 */
} cgr_buffer_decl;
#define CGR_BUFFER_DECL_INIT { (uint32_t)sizeof(cgr_buffer_decl), 0, 0, 0, 0, NULL, 0 }

/* Threads any · Capture ok · Sync never · Alloc never */
CGR_API const char *cgr_dimension_name(cgr_dimension dimension);
CGR_API const char *cgr_source_name(cgr_source source);

enum { CGR_CONFIG_MAGIC = 0x63677231 };

typedef struct cgr_config {
  uint32_t size, magic, version; /* set by CGR_CONFIG_INIT. A header version with another major number, or before 0.2, is
                                    CGR_ERROR_INVALID_STRUCT */
  int32_t reserved;
  const char *device;            /* as for cgr_device_open. Ignored when device_handle is given */
  cgr_device *device_handle;     /* an open device, which the runtime does not close; or NULL */
  const cgr_group *groups;
  const cgr_layer *layers;
  const cgr_buffer_decl *buffers;
  const cgr_backend *backends;
  int32_t num_groups;            /* 1 .. 4; or 0 with layers that all have CGR_LAYER_NO_CACHE */
  int32_t num_layers;            /* 0 .. 1024. 0: the engine runs attention with kernels of its own */
  int32_t num_buffers;           /* 0 .. 64, minus one for each workspace and each plan_bytes of a backend in use, and minus one
                                    if num_length_sets is above 1 */
  int32_t num_backends;          /* 0 .. 8 */
  int32_t num_programs;          /* 0: 1 */
  int32_t num_lanes;             /* 0: 1 */
  int32_t num_draft_tokens;      /* 0 */
  int32_t max_steps;             /* 0 */

  /* Limits. */
  int32_t max_requests;          /* R: requests in one step, 1 .. 4096 */
  int32_t max_rows;              /* M: requests alive, max_requests .. 2^20; 0: max_requests */
  int32_t max_tokens;            /* T: tokens in one step, max_requests .. 2^24 */
  int32_t max_seq_len;           /* tokens of a row, 1 .. 2^30; at most what the pages of a group hold, if that group has a layer
                                    with neither window nor chunk, or no layers. For other length sets: max_other_lens */

  /* Graphs. */
  int32_t graph_mode;            /* cgr_graph_mode */
  int32_t attention_support;     /* cgr_graph_support of attention that the engine enqueues itself, without a backend; the lowest
                                    of this and of all backends in use decides the mode */
  int32_t strict;                /* not 0: a step that the mode promises a graph for is refused (CGR_ERROR_FALLBACK,
                                    CGR_ERROR_STALE_GRAPH) rather than run eagerly, unless it has no requests */
  int32_t num_decode_buckets;    /* 0: the default sizes up to max_decode_bucket */
  const int32_t *decode_buckets; /* captured sizes of uniform steps, in requests: ascending, 1 .. max_requests, at most 512 */
  int32_t max_decode_bucket;     /* largest default size; ignored with decode_buckets; 0: max_requests */
  int32_t num_query_lens;        /* 0 .. 8; 0: query length 1 alone */
  const int32_t *query_lens;     /* captured uniform query lengths, each with every decode bucket whose tokens fit max_tokens, the
                                    default sizes also with the most requests that do: ascending, 1 .. max_tokens. If FULL graphs
                                    of the attention hold only single tokens, only 1 is kept (cgr_runtime_graph_mode says why) */
  const cgr_bucket *mixed_buckets; /* captured sizes of mixed steps: ascending by tokens, then by requests; tokens
                                      1 .. max_tokens, requests 1 .. max_requests; at most 512 */
  int32_t num_mixed_buckets;     /* 0: by default every 8 tokens up to 128, then 8 sizes per doubling up to max_tokens, each with
                                    min(tokens, max_requests) requests */

  /* The rest has defaults that seldom need a change. */
  int32_t ring_depth;            /* steps in flight, 2 .. 64; 0: 4 */
  int32_t max_changes;           /* words of changed tables that one step carries, 1 .. 2^20; 0: 4096 */
  int32_t num_parts;             /* CTAs of the attention plan, 1 .. 4096; 0: from the device */
  int32_t wait_timeout_ms;       /* of waits that do not say otherwise, 1 or more; 0: 30000 */
  int32_t batch_invariant;       /* not 0: a request's attention has the same bits alone and in any batch, at some cost, if its own
                                    tokens come in the same chunks: a decode may have other bits than the same token in a chunk */
  void *device_memory;           /* the caller's memory for the arena, of cgr_runtime_memory's size, 256-byte aligned and
                                    overlapping nothing else; or NULL */
  size_t device_memory_size;
  void *pinned_memory;           /* the same for the rings: cgr_memory_alloc_pinned, or cudaHostAlloc with Mapped | Portable */
  size_t pinned_memory_size;
  cgr_log_function log;          /* gets why mode or query lengths were lowered, what captures leave out and which sizes have no
                                    graph (INFO), failed captures and wide graphs (WARNING); NULL: silent. Must not call cgr */
  void *log_context;
  const cgr_variant *variants;   /* of steps. Variant 0 always exists, captured and without a superset unless it is listed */
  int32_t num_variants;          /* 0 .. 15, or 16 with variant 0 */
  int32_t reserved_end;
  uint64_t on_demand;            /* CGR_ON_DEMAND bits of the on-demand buffers that the engine itself reads, not its backends */
  cgr_dump_function dump;        /* gets, as JSON, what the runtime did last: when it dies, after an abandoned step, and after a step
                                    of its own that failed; NULL: silent. The whole flight recorder is written before the call
                                    that failed returns: up to 768 bytes a step, about 2 us each */
  void *dump_context;            /* handed to it */
  int32_t flight_depth;          /* steps that the flight recorder keeps, rounded up to a power of two of at least 256; at most
                                    2^20; 0: 1024. Each takes 64 bytes of host memory, and 768 more with `dump` */
  int32_t time_every;            /* host times are taken of one step in this many, chosen at random: 1, 2, 4 .. 128; 0: 8. A timed
                                    step reads the processor's counter four times, any other once; a reading costs 10 to 16 ns */
  int32_t nvtx;                  /* 1: ranges in the domain `cgr` for Nsight and other tools, and names of streams and events,
                                    which belong to no domain; 0: none. Calls that only report (cgr_runtime_stats and all of
                                    tracing.h) have no range.
                                    Without a tool, or in a build without NVTX, there are none either, and the log says so (INFO) */
  int32_t labels;                /* 1: the runtime keeps what each node of its graphs belongs to, for cgr_runtime_graph_labels;
                                    0: it does not. Costs memory, and time only in captures */
  int32_t timing;                /* cgr_timing_mode: timestamps taken on the device inside every step, graphs included, for
                                    cgr_runtime_timing; OFF: none, at no cost. Each is a kernel of one block in the step: 3 to 13
                                    for phases, and 2 or 3 per layer, or 4 if it takes two calls. All steps then have host times,
                                    whatever time_every says */
  int32_t num_length_sets;       /* 1 .. 4: set 0, the sequences themselves, and other lengths of rows, such as an encoder's
                                    (cgr_request_set_other_length); 0: 1. More than 1 take the place of one of `buffers` */
  int32_t max_other_lens[4];     /* [s] bounds the tokens of a row in length set s, for s from 1: 1 .. 2^30, and at most what the
                                    pages of that set's groups hold, under the same condition as max_seq_len; 0: max_seq_len.
                                    Entry 0, and those of sets that do not exist, must be 0 */
  int32_t check_values;          /* 1: steps look for NaN and infinities where `record` asks (cgr_record_check_values); 0: they do
                                    not, at no cost */
  float max_padding;             /* a graph of more than this many times the batch's tokens gives way to others that serve
                                    (cgr_runtime_capture): 1 .. 2^24, which is no limit; 0: 2 */
  int32_t wait_mode;             /* cgr_wait_mode: how cgr_step_wait and other waits for steps wait */
  int32_t reserved_last;         /* 0 */
} cgr_config;
#define CGR_CONFIG_INIT                                                                                                    \
  { (uint32_t)sizeof(cgr_config), CGR_CONFIG_MAGIC, CGR_VERSION, 0, NULL, NULL, NULL, NULL, NULL, NULL, 0, 0, 0, 0, 0, 0,  \
    0, 0, 0, 0, 0, 0, 0, 0, 0, 0, NULL, 0, 0, NULL, NULL, 0, 0, 0, 0, 0, 0, NULL, 0, NULL, 0, NULL, NULL, NULL, 0, 0, 0,    \
    NULL, NULL, 0, 0, 0, 0, 0, 0, { 0, 0, 0, 0 }, 0, 0.0f, 0, 0 }

/* Finds every reason why a runtime of `config` cannot be created on `device` (NULL: the one that `config` names), without
 * creating anything: the way to ask whether a layer is served. CGR_OK and *count 0: it can, as far as memory allows. Else the
 * status of the first finding; *count: how many there are, `capacity` of them written. An unreadable config is one finding.
 * Threads any · Capture no · Sync may · Alloc cold */
CGR_API cgr_status cgr_validate(const cgr_config *config, cgr_device *device, cgr_finding *findings, int32_t capacity,
                                int32_t *count);

typedef struct cgr_memory_sizes {
  uint32_t size;
  uint32_t reserved;
  uint64_t device_bytes; /* the arena: persistent buffers, plan, partials */
  uint64_t pinned_bytes; /* staging and readback rings */
  uint64_t host_bytes;   /* what the runtime keeps in ordinary memory */
} cgr_memory_sizes;
#define CGR_MEMORY_SIZES_INIT { (uint32_t)sizeof(cgr_memory_sizes), 0, 0, 0, 0 }

/* The memory that a runtime of this configuration takes, without graphs. Opens the device briefly unless device_handle is given.
 * Threads any · Capture no · Sync may · Alloc cold */
CGR_API cgr_status cgr_runtime_memory(const cgr_config *config, cgr_memory_sizes *sizes);

/* Validates everything, lays the buffers out and fills them with their padding values. `*runtime` is NULL after a failure, whose
 * status and message are those of the first finding of cgr_validate. The configuration is copied.
 * Threads any · Capture no · Sync may · Alloc cold */
CGR_API cgr_status cgr_runtime_create(const cgr_config *config, cgr_runtime **runtime);

/* Waits for the steps in flight, destroys the graphs, then the buffers; a prepared step is dropped. The stream of the last
 * launch must exist until then, or until its steps have been waited for. If they do not complete within wait_timeout_ms
 * (CGR_NOT_READY), or if the wait fails on a device that is not lost, nothing is destroyed: call again. The runtime's own memory
 * is freed as by cgr_memory_free, which also waits for the device's other streams. NULL is allowed.
 * Threads one · Capture no · Sync may · Alloc never */
CGR_API cgr_status cgr_runtime_destroy(cgr_runtime *runtime);

/* The device of a runtime, which the runtime closes unless it was given as device_handle. NULL for a bad handle.
 * Threads any · Capture ok · Sync never · Alloc never */
CGR_API cgr_device *cgr_runtime_device(cgr_runtime *runtime);

/* The mode in use. `*reason`, always set, says why it, or the captured query lengths, differ from those asked for ("": neither
 * does); it is the runtime's memory. NONE for a bad handle. Read `*reason` after the call, not in the same expression.
 * Threads any · Capture ok · Sync never · Alloc never */
CGR_API cgr_graph_mode cgr_runtime_graph_mode(cgr_runtime *runtime, const char **reason);

/* --------------------------------------------------------------------------------------------------------------- buffers */

/* The persistent buffers, device memory at fixed addresses. Every step writes all rows up to its padded counts; what they hold
 * past the real ones is given as "padding". R, M, T as in cgr_config, k = num_draft_tokens; P = ceil(tokens /
 * page_size), for the most tokens that a row has in the group's length set.
 * `index` of cgr_buffer_get is the group, the length set, or 0. */
typedef enum cgr_buffer {
  CGR_BUFFER_INPUT_IDS = 0,    /* i32 [T] token ids; padding 0 */
  CGR_BUFFER_POSITIONS,        /* i32 [T] position of the token in its length set; padding 0 */
  CGR_BUFFER_SLOT_MAPPING,     /* i64 [T] per group: page * page_size + offset of the token; padding, and tokens of another length
                                  set than the group's, -1 */
  CGR_BUFFER_QUERY_START_LOC,  /* i32 [R+1] first token of each request; padding repeats the last value */
  CGR_BUFFER_SEQ_LENS,         /* i32 [R] per length set: tokens that the row has, this step's included; padding 0 */
  CGR_BUFFER_REQUEST_ROWS,     /* i32 [R] row of each request; padding M, the padding row. A row that a guard refused
                                  keeps the value that was sent; check seq_lens, which is 0, first */
  CGR_BUFFER_PAGE_TABLE,       /* i32 [M+1][P] per group: page numbers; row M and entries that no request has set hold the
                                  read-trash page. Beyond a row's own pages, entries of the row's previous request may remain */
  CGR_BUFFER_KV_INDPTR,        /* i32 [R+1] per group: running sum of each request's pages, from that of its first token on,
                                  whether it still has them or not; padding repeats the last value */
  CGR_BUFFER_KV_LAST_PAGE_LEN, /* i32 [R] per group: tokens in the last page; padding and empty requests 1 */
  CGR_BUFFER_ROW_COMPUTED,     /* i32 [M+1] tokens in the cache before this step; row M is 0 */
  CGR_BUFFER_ROW_LAST_TOKENS,  /* i32 [M+1][1+k] what the row's last step sampled; row M is 0 */
  CGR_BUFFER_ROW_NUM_ACCEPTED, /* i32 [M+1] 0 */
  CGR_BUFFER_LOGITS_INDICES,   /* i32 [R] the token whose hidden state predicts the next one; padding 0 */
  CGR_BUFFER_NEXT_TOKENS,      /* i32 [R][1+k] written by the engine's sampler, for the padded count; committed by the last kernel.
                                  A token that is out of the vocabulary comes back as the next step's input */
  CGR_BUFFER_COUNTS,           /* i32 [16] of this step, by cgr_count; the rest 0 */
  CGR_BUFFER_PLAN,             /* i32 words of the native attention plans */

  /* On demand, see below. */
  CGR_BUFFER_KV_INDICES,       /* i32 [R * P] per group: the pages of one request after the other, page p of request i at
                                  kv_indptr[i] + p; the read-trash page in place of one that the request has given back. Written
                                  only up to kv_indptr[R]. What follows is not padding: the read-trash page or pages of earlier
                                  batches, but always pages of the pool */
  CGR_BUFFER_BLOCK_TABLE,      /* i32 [R][P] per group: page_table in the order of the batch. After a request's own pages, and in
                                  padded requests, the read-trash page, to the end of the row */
  CGR_BUFFER_KV_START_LOC,     /* i32 [R+1] per length set: running sum of seq_lens; padding repeats the last value */
  CGR_BUFFER_CONTEXT_LENS,     /* i32 [R] tokens before this step: seq_lens of its length set without the new ones; padding 0 */
  CGR_BUFFER_CONTEXT_START_LOC, /* i32 [R+1] running sum of context_lens; padding repeats the last value */
  CGR_BUFFER_PREFILL_QUERY_START_LOC,  /* i32 [R+1] first token of each request from CGR_COUNT_DECODES on, counted from the
                                          first of them: begins with 0; padding repeats the last value */
  CGR_BUFFER_PREFILL_KV_INDPTR,        /* i32 [R+1] per group: kv_indptr of the same requests, unchanged, so that it indexes
                                          kv_indices; padding repeats the last value */
  CGR_BUFFER_PREFILL_KV_LAST_PAGE_LEN, /* i32 [R] per group: kv_last_page_len of the same requests; padding 1 */
  CGR_BUFFER_COUNT_
} cgr_buffer;

/* On-demand buffers, from CGR_BUFFER_KV_INDICES on, take memory, and a kernel in every step, only in a runtime that was asked for
 * one of them: by cgr_config.on_demand, or by cgr_backend.on_demand of a backend that a layer names. In both, each has bit
 * buffer - CGR_BUFFER_KV_INDICES; the union of all counts. Those of prefills need a backend in use with a reorder_threshold.
 * cgr_buffer_get of one that was not asked for is CGR_ERROR_STATE.
 *
 * The kernel runs alongside the engine's first ones. Its buffers can be read by what is enqueued after the step's first
 * cgr_record_attention, after a cgr_record_buffer of one of them, or between pieces; without layers, from the start of `record`.
 *
 * A page in an engine's own table that may not be read is reported (CGR_GUARD_PAGE) and replaced by the read-trash page. Requests
 * that a guard refused have no pages, and lengths 0. */
#define CGR_ON_DEMAND(buffer) ((uint64_t)1 << ((int)(buffer) - (int)CGR_BUFFER_KV_INDICES))

/* The words of CGR_BUFFER_COUNTS. */
typedef enum cgr_count {
  CGR_COUNT_REQUESTS = 0, /* real; 0 when a guard emptied the step */
  CGR_COUNT_TOKENS = 1,   /* the same */
  CGR_COUNT_PADDED_REQUESTS = 2,
  CGR_COUNT_PADDED_TOKENS = 3,
  CGR_COUNT_DECODES = 4, /* if a backend in use has a reorder_threshold: requests before the first with more new tokens than
                            that, or all of them if none has more; those without new tokens count too. Otherwise 0 */
  CGR_COUNT_DECODE_TOKENS = 5, /* new tokens of those */
  CGR_COUNT_APPEND_FIRST = 6 /* 1: a request may see tokens that others append in this step (cgr_request_set_length); else 0 */
} cgr_count;
/* Threads any · Capture ok · Sync never · Alloc never */
CGR_API const char *cgr_count_name(cgr_count count);

typedef struct cgr_buffer_view {
  uint32_t size;
  int32_t dtype;    /* cgr_dtype */
  void *data;       /* device address, fixed for the runtime's life */
  int64_t shape[2]; /* shape[1] is 1 for a vector */
  int64_t stride;   /* elements from row to row */
} cgr_buffer_view;
#define CGR_BUFFER_VIEW_INIT { (uint32_t)sizeof(cgr_buffer_view), 0, NULL, { 0, 0 }, 0 }

/* Threads any · Capture ok · Sync never · Alloc never */
CGR_API cgr_status cgr_buffer_get(cgr_runtime *runtime, int32_t lane, int32_t program, cgr_buffer buffer, int32_t index,
                                  cgr_buffer_view *view);
/* A buffer that was declared in cgr_config.buffers.
 * Threads any · Capture ok · Sync never · Alloc never */
CGR_API cgr_status cgr_buffer_get_declared(cgr_runtime *runtime, int32_t lane, const char *name, cgr_buffer_view *view);
/* Name ("slot_mapping"); static storage, never NULL.
 * Threads any · Capture ok · Sync never · Alloc never */
CGR_API const char *cgr_buffer_name(cgr_buffer buffer);

/* -------------------------------------------------------------------------------------------------------------- requests */

/* A request owns a row of the persistent tables from open to close. `tag` is the engine's name for it, handed back in results.
 * These calls change the host's copy of the tables; the changes travel with the next step that is prepared, and none is lost when
 * a step is cancelled or fails. While a step is prepared its rows cannot be closed, change their length or lose a page
 * (CGR_ERROR_STATE); they may get more pages. Refused inside `record` and calls (CGR_ERROR_STATE).
 *
 * A page that was taken away, or whose row was closed, may go to another request once the last step that used the row has
 * completed: cgr_request_info.last_seq, also after a failed launch and after the row was opened again. It may be in several rows,
 * as a shared prefix is; a step writes it for one of them at most, and over no other's tokens. cgr_validation_layer checks these
 * rules. Nothing notices if a page that replaces another below a row's length gets its tokens only in the row's next step.
 * Threads one · Capture no · Sync never · Alloc never */
CGR_API cgr_status cgr_request_open(cgr_runtime *runtime, uint64_t tag, int32_t *row);
/* CGR_ERROR_STATE for a row that is in the standing batch: take it first; and for one of the prepared step.
 * Threads one · Capture no · Sync never · Alloc never */
CGR_API cgr_status cgr_request_close(cgr_runtime *runtime, int32_t row);

/* Sets pages [first, first + count) of the row's table: page i holds tokens [i * page_size, (i + 1) * page_size). They must
 * adjoin the pages that the row has, or replace some; if it has none, they may be any. CGR_ERROR_PAGE_OUT_OF_RANGE for a page
 * outside the pool or reserved, CGR_ERROR_INVALID_ARGUMENT for one that the row has already, and for a `first` that would leave
 * a gap between these pages and those of the row; in these cases none is set. With a count of 0 the arguments are only checked.
 * Threads one · Capture no · Sync never · Alloc never */
CGR_API cgr_status cgr_request_set_pages(cgr_runtime *runtime, int32_t row, int32_t group, int32_t first, const int32_t *pages,
                                         int32_t count);

/* Takes pages [first, first + count) away, at the front or at the end of the row's pages: the table then holds the read-trash
 * page there, and a step that needs them is refused (CGR_ERROR_PAGES_MISSING). The next step of a row with c tokens needs the
 * pages from the first that its first new token sees: that of token c + 1 - window_left, or c / chunk * chunk, in the layer of
 * the group that sees furthest, the engine's backends included; with a layer that has neither, or no layers, all. So a page that
 * the windows have passed can be given back; a row may also begin without such pages.
 * Threads one · Capture no · Sync never · Alloc never */
CGR_API cgr_status cgr_request_drop_pages(cgr_runtime *runtime, int32_t row, int32_t group, int32_t first, int32_t count);

/* Sets the number of tokens in the cache: back (preemption, rejected drafts), or forward over pages that the engine or other rows
 * fill (a shared prefix), these perhaps in the row's next step. The row's pages must cover it, and that step has to give its
 * token. CGR_ERROR_PAGES_MISSING without the pages that the step will see; a shorter length may need some that windows had passed.
 * Threads one · Capture no · Sync never · Alloc never */
CGR_API cgr_status cgr_request_set_length(cgr_runtime *runtime, int32_t row, int32_t num_tokens);

/* Sets the row's length in length set `set`, 1 .. num_length_sets - 1. It is 0 when a row opens, and stays as set. In steps of
 * the sequences, layers of the set attend to this many tokens: 0 is a row that is not encoded yet. Before a step of the set's own
 * tokens (cgr_variant), set it to a length that counts them. A length above cgr_config.max_other_lens is
 * CGR_ERROR_SEQUENCE_TOO_LONG; the row's pages of every group of the set have to cover it (CGR_ERROR_PAGES_MISSING), from the
 * first one on, and cannot be dropped from under it. CGR_ERROR_STATE while the row is in the prepared step.
 * Threads one · Capture no · Sync never · Alloc never */
CGR_API cgr_status cgr_request_set_other_length(cgr_runtime *runtime, int32_t row, int32_t set, int32_t num_tokens);

/* Sets a row's data in a buffer declared with CGR_SOURCE_STAGED and CGR_DIMENSION_ROWS: `data` is [width] elements of its dtype,
 * which need no alignment; `buffer` is its index in cgr_config.buffers. All 4-byte words from the first to the last that changed
 * travel with the next step that is prepared, 16 bytes each, and count toward max_changes: after a large row cgr_step_prepare may
 * answer CGR_ERROR_CHANGES_PENDING. A step that is prepared already does not see them.
 * Threads one · Capture no · Sync never · Alloc never */
CGR_API cgr_status cgr_request_set_data(cgr_runtime *runtime, int32_t row, int32_t buffer, const void *data);

typedef struct cgr_request_info {
  uint32_t size;
  int32_t open;       /* 0 or 1; all fields below are 0 for a closed row, except last_seq */
  int32_t num_tokens; /* in the cache after every step launched so far */
  int32_t has_token;  /* 1: the row's last token is on the device, CGR_TOKEN_LAST is allowed */
  uint64_t tag;
  uint64_t last_seq;  /* last step that used the row, for this owner or one before, and may still write its pages; 0: none */
  int32_t other_lengths[4]; /* [s]: the length in length set s; 0 for set 0 and for sets that do not exist */
} cgr_request_info;
#define CGR_REQUEST_INFO_INIT { (uint32_t)sizeof(cgr_request_info), 0, 0, 0, 0, 0, { 0, 0, 0, 0 } }
/* Threads one · Capture ok · Sync never · Alloc never */
CGR_API cgr_status cgr_request_get_info(cgr_runtime *runtime, int32_t row, cgr_request_info *info);
/* The row has pages [*first, *end) in this group; both 0: none, or the table is the engine's own.
 * Threads one · Capture ok · Sync never · Alloc never */
CGR_API cgr_status cgr_request_get_pages(cgr_runtime *runtime, int32_t row, int32_t group, int32_t *first, int32_t *end);

/* --------------------------------------------------------------------------------------------------- recording a model */

typedef struct cgr_record_info {
  uint32_t size;
  int32_t capturing;    /* 1 inside a capture */
  cudaStream_t stream;
  cgr_key key;
  int32_t num_tokens;   /* padded: what every kernel must be launched for */
  int32_t num_requests; /* padded */
  int32_t real_tokens;  /* of this step, for information only: never a launch count. -1 when capturing */
  int32_t real_requests;
  int32_t max_seq_len;  /* the longest of this step in its length set, at least 1; when capturing, the set's bound */
  int32_t max_query_len; /* the most new tokens of a request, at least 1; when capturing, the most that the key serves */
  int32_t num_decodes;   /* as CGR_COUNT_DECODES; -1 when capturing, or if no backend in use has a reorder_threshold */
  int32_t num_decode_tokens; /* the same */
} cgr_record_info;
#define CGR_RECORD_INFO_INIT \
  { (uint32_t)sizeof(cgr_record_info), 0, NULL, { 0, 0, 0, 0, 0, 0, 0, 0, { 0, 0, 0, 0 } }, 0, 0, 0, 0, 0, 0, 0, 0 }
/* Threads one · Capture ok · Sync never · Alloc never */
CGR_API cgr_status cgr_record_get_info(cgr_recorder *recorder, cgr_record_info *info);

/* A persistent buffer of the recorder's lane and program.
 * Threads one · Capture ok · Sync never · Alloc never */
CGR_API cgr_status cgr_record_buffer(cgr_recorder *recorder, cgr_buffer buffer, int32_t index, cgr_buffer_view *view);

/* Calls `function` at this point of the step: at once in FULL captures and eager steps. A PIECEWISE capture breaks here, and
 * every replay makes the call, with a recorder that tells that step's stream, key and real counts. `args` (at most 4096 bytes,
 * else CGR_ERROR_INVALID_ARGUMENT) is copied; the function gets the copy. It may do what `record` may, but cgr_record_attention
 * is refused in it, and cgr_record_call runs at once. Its status is returned here, or gives up the step (CGR_ERROR_CALLBACK of
 * cgr_step_launch). A stream that is forked and not joined at a break fails the capture.
 * Threads one · Capture adds · Sync never · Alloc never (cold in a PIECEWISE capture) */
typedef cgr_status (*cgr_call_function)(cgr_recorder *recorder, const void *args);
CGR_API cgr_status cgr_record_call(cgr_recorder *recorder, cgr_call_function function, const void *args, size_t args_size);

/* ------------------------------------------------------------------------------------------------------------------ steps */

typedef enum cgr_request_flag {
  CGR_REQUEST_PARTIAL = 1 /* more of the prompt follows: what the sampler writes for this request is dropped */
} cgr_request_flag;

/* Threads any · Capture ok · Sync never · Alloc never */
CGR_API const char *cgr_request_flag_name(cgr_request_flag flag);

enum { CGR_BATCH_STANDING = -1 }; /* cgr_batch.num_requests: the standing batch, below; rows, query_lens, tokens and flags NULL */

/* Data of tokens or requests for a buffer declared with CGR_SOURCE_STAGED. */
typedef struct cgr_staged {
  int32_t buffer;   /* index into cgr_config.buffers */
  int32_t reserved; /* 0 */
  const void *data; /* [tokens of the batch][width], or [num_requests][width], for the standing batch in the order of its places;
                       needs no alignment */
} cgr_staged;

/* What a step does. Request i has query_lens[i] new tokens (0 is legal). Prepare reads the arrays and keeps none of them. */
typedef struct cgr_batch {
  uint32_t size;
  int32_t lane;              /* 0 */
  int32_t program;           /* 0 */
  int32_t num_requests;      /* 0 .. max_requests; 0: a step without requests (a dummy step); or CGR_BATCH_STANDING */
  const int32_t *rows;       /* [num_requests], each open, none twice */
  const int32_t *query_lens; /* [num_requests]; NULL: 1 each */
  const int32_t *tokens;     /* [sum of query_lens], one request after the other; NULL: CGR_TOKEN_LAST for all. Only the first token
                                of a request can be CGR_TOKEN_LAST */
  const uint32_t *flags;     /* [num_requests] CGR_REQUEST_*; NULL: 0 each */
  const cgr_staged *staged;  /* [num_staged], each buffer once; the others hold padding in this step */
  int32_t num_staged;        /* 0 .. 64 */
  int32_t common_prefix;     /* 0 */
  int32_t max_steps;         /* 0 */
  uint32_t variant;          /* 0, or one of cgr_config.variants; any other is refused */
  const cgr_key *forced_key; /* run as this key: kind; padded counts, at least the batch's (of an eager step too); query_len, 0 or
                                at least the batch's longest; variant, the batch's own or a superset of it, so a dummy step sets
                                `variant` to the key's. CGR_ERROR_STATE when the key has no graph. NULL: cgr chooses */
} cgr_batch;
#define CGR_BATCH_INIT { (uint32_t)sizeof(cgr_batch), 0, 0, 0, NULL, NULL, NULL, NULL, NULL, 0, 0, 0, 0, NULL }

/* The standing batch stays from step to step and is edited. A step that changes a few of its requests costs the host the same
 * with many requests as with few. A batch with num_requests CGR_BATCH_STANDING runs it. Whole batches may be given in between and
 * leave it as it is. But after any other step (a whole batch, a dummy step, changes sent ahead, a failed launch, a step that a
 * guard refused) all of it travels again, at the cost of a whole batch. Its order is that of its places: put appends the row,
 * take removes it and the last request takes its place, swap exchanges two places. Requests are named by their rows.
 *
 * query_len and flags stay until set again. `tokens` [query_len] is copied, and is used up by the step that is launched next, not
 * by one that is cancelled or fails; NULL: CGR_TOKEN_LAST, which only one token can be. So a request of one token without flags
 * goes on by itself; one of query_len 0 stands still, keeps its place and counts among the requests; any other must be set again
 * before each step, and a chunk that has run counts no tokens until then.
 *
 * Edits may come in any order, and in between every open row may be in the batch. It is checked when a step is prepared or
 * chosen, as any batch is; a request that lacks its tokens is CGR_ERROR_INVALID_ARGUMENT, and further edits correct it. These
 * edits are refused, without any change: a closed row (CGR_ERROR_ROW_CLOSED); a row that is in the batch, for put
 * (CGR_ERROR_ROW_REPEATED), or is not, for the others (CGR_ERROR_STATE); query_len below 0 (CGR_ERROR_INVALID_ARGUMENT) or above
 * max_tokens, or more than max(2 * max_tokens, 2^18) tokens that wait for a step (CGR_ERROR_TOO_MANY_TOKENS); two tokens or more
 * with `tokens` NULL (CGR_ERROR_NULL_POINTER); CGR_TOKEN_LAST after the first (CGR_ERROR_INVALID_ARGUMENT); other flags
 * (CGR_ERROR_INVALID_ENUM); drafts, lanes, programs (CGR_ERROR_UNSUPPORTED); while a step is prepared, inside `record` and calls
 * (CGR_ERROR_STATE).
 * Threads one · Capture no · Sync never · Alloc never */
CGR_API cgr_status cgr_standing_put(cgr_runtime *runtime, int32_t lane, int32_t program, int32_t row, int32_t query_len,
                                    const int32_t *tokens, uint32_t flags);
CGR_API cgr_status cgr_standing_set(cgr_runtime *runtime, int32_t lane, int32_t program, int32_t row, int32_t query_len,
                                    const int32_t *tokens, uint32_t flags);
CGR_API cgr_status cgr_standing_take(cgr_runtime *runtime, int32_t lane, int32_t program, int32_t row);
CGR_API cgr_status cgr_standing_swap(cgr_runtime *runtime, int32_t lane, int32_t program, int32_t row, int32_t other);
/* The rows in their order, valid until the next edit.
 * Threads one · Capture ok · Sync never · Alloc never */
CGR_API cgr_status cgr_standing_rows(cgr_runtime *runtime, int32_t lane, int32_t program, const int32_t **rows, int32_t *count);

/* Why a step runs the way it does. Every launched step counts under exactly one (kind, reason). */
typedef enum cgr_reason {
  CGR_REASON_EXACT = 0,      /* a graph of exactly this size */
  CGR_REASON_PADDED,         /* the next larger graph */
  CGR_REASON_MODE_NONE,      /* the graph mode is NONE */
  CGR_REASON_NOT_UNIFORM,    /* some request has more tokens than a captured query length, and mixed steps have no graphs */
  CGR_REASON_ABOVE_REQUESTS, /* more requests than in any bucket that holds the tokens, captured or not */
  CGR_REASON_NOT_CAPTURED,   /* capture has not been called for this key */
  CGR_REASON_CAPTURE_FAILED, /* it has, and failed */
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
/* Threads any · Capture ok · Sync never · Alloc never */
CGR_API const char *cgr_reason_name(cgr_reason reason);

typedef enum cgr_step_state {
  CGR_STEP_NONE = 0,
  CGR_STEP_PREPARED = 1,  /* can be launched or cancelled */
  CGR_STEP_LAUNCHED = 2,
  CGR_STEP_CANCELLED = 3,
  CGR_STEP_ABANDONED = 4  /* launch failed and the step is over: none of its tokens count, its rows keep their lengths, its changes
                             are pending again. `seq` is the number that it used up, 0 if none: its rows' pages are in use until
                             that step has completed. If the device ran the step despite the failure it reported, its rows no
                             longer have a last token (cgr_request_info.has_token) */
} cgr_step_state;
/* Threads any · Capture ok · Sync never · Alloc never */
CGR_API const char *cgr_step_state_name(cgr_step_state state);

/* A step: filled by prepare, given to launch or cancel. It is kept between calls, so a shorter one is refused
 * (CGR_ERROR_INVALID_STRUCT) rather than completed. */
typedef struct cgr_step {
  uint32_t size;
  int32_t state;         /* cgr_step_state */
  int32_t reason;        /* cgr_reason */
  int32_t lane;
  cgr_key key;           /* what launch will replay; kind NONE: eager */
  int32_t num_requests;  /* real */
  int32_t num_tokens;    /* real */
  uint64_t bytes_staged; /* that the device will read for this step */
  uint64_t seq;          /* the step's number, from launch on */
  uint64_t ticket;       /* of the runtime */
} cgr_step;
#define CGR_STEP_INIT \
  { (uint32_t)sizeof(cgr_step), 0, 0, 0, { 0, 0, 0, 0, 0, 0, 0, 0, { 0, 0, 0, 0 } }, 0, 0, 0, 0, 0 }

/* Tells the graph that a batch would use, without preparing it, even while another step is prepared: for ranks that must agree
 * before any of them launches. Ranks whose keys differ agree on one that holds every rank's batch, such as the mixed key of the
 * larger counts, and give it as forced_key; a rank without work prepares 0 requests with it.
 * Threads one · Capture no · Sync never · Alloc never */
CGR_API cgr_status cgr_step_choose(cgr_runtime *runtime, const cgr_batch *batch, cgr_key *key);

/* Validates the batch, chooses the graph and stages what has changed, while earlier steps may be in flight; one step can be
 * prepared at a time. CGR_ERROR_BUSY: the ring is full, wait for a step. CGR_ERROR_CHANGES_PENDING: more changes than the ring
 * carries, call cgr_runtime_flush. CGR_ERROR_STATE: no graph and no `record` can run it. After an error nothing has changed.
 * Threads one · Capture no · Sync never · Alloc never */
CGR_API cgr_status cgr_step_prepare(cgr_runtime *runtime, const cgr_batch *batch, cgr_step *step);

/* The same, but while the ring is full it waits for a step in flight, and while too many changes are pending it sends them as
 * cgr_runtime_flush does. It sends them on `stream`; the step may be launched on another one. CGR_NOT_READY after `timeout_ms`
 * (0: it never waits; -1: the configured one): nothing is prepared, and what was sent stays sent. CGR_ERROR_CHANGES_PENDING:
 * sending would make the result of a step with requests expire, and no cgr_step_wait has returned that step or a later one. Wait
 * for it (cgr_step_wait, with a result or NULL), then call again. Other statuses are those of cgr_step_prepare, cgr_runtime_flush
 * and cgr_step_wait.
 * Threads one · Capture no · Sync may · Alloc never */
CGR_API cgr_status cgr_step_prepare_wait(cgr_runtime *runtime, const cgr_batch *batch, cgr_step *step, int32_t timeout_ms,
                                         cudaStream_t stream);

/* Enqueues the prepared step and gives it its number. Steps complete in the order of their launch; a launch on another stream
 * than the one before is ordered after it by an event. After a failure step->state tells whether the step is still PREPARED (it
 * was refused, or its stream could not be ordered, before anything of it was enqueued) or ABANDONED. CGR_ERROR_CALLBACK:
 * `record`, a function of cgr_record_call or a backend failed, in an eager or a PIECEWISE step.
 * Threads one · Capture no · Sync never (may, after a failed call of the device) · Alloc never (but for what those functions do) */
CGR_API cgr_status cgr_step_launch(cgr_runtime *runtime, cgr_step *step, cudaStream_t stream);

/* Gives up a prepared step; its changes stay pending for the next one.
 * Threads one · Capture no · Sync never · Alloc never */
CGR_API cgr_status cgr_step_cancel(cgr_runtime *runtime, cgr_step *step);

/* Sends pending changes, as many as free slots hold, ahead of the next step, in steps without requests. `*seq` (may be NULL) is
 * then the last step launched on the lane. CGR_ERROR_BUSY when changes are left: wait for a step, call again. Each of these steps
 * takes a number, so results of earlier steps expire sooner: collect them first.
 * Threads one · Capture no · Sync never (may, after a failed call of the device) · Alloc never */
CGR_API cgr_status cgr_runtime_flush(cgr_runtime *runtime, int32_t lane, cudaStream_t stream, uint64_t *seq);

/* What a step gave. The arrays stay valid while up to ring_depth - 1 more steps are launched on the lane. */
typedef struct cgr_step_result {
  uint32_t size;
  int32_t lane;
  int32_t program;
  int32_t num_requests;      /* 0 for a step that was abandoned or that a guard emptied */
  int32_t num_steps;         /* 1 */
  int32_t token_stride;      /* 1 + num_draft_tokens */
  uint64_t seq;
  const int32_t *rows;       /* [num_requests] of the batch */
  const uint64_t *tags;      /* [num_requests] given to cgr_request_open, as they were at prepare */
  const int32_t *num_tokens; /* [num_steps][num_requests] sampled tokens: 0 for a request that is partial, had no tokens, or that
                                a guard emptied; after CGR_GUARD_PAGE it is 1, and the token cannot be trusted */
  const int32_t *tokens;     /* [num_steps][num_requests][token_stride] CGR_BUFFER_NEXT_TOKENS of the step; what is past
                                num_tokens is undefined */
  cgr_guard guard;           /* error CGR_GUARD_NONE: nothing was refused */
  const uint32_t *values;    /* [num_requests] bits of the checks that found NaN or an infinity; NULL without check_values */
} cgr_step_result;
#define CGR_STEP_RESULT_INIT \
  { (uint32_t)sizeof(cgr_step_result), 0, 0, 0, 0, 0, 0, NULL, NULL, NULL, NULL, { 0, 0, 0, 0, 0 }, NULL }

/* Waits for step `seq` alone, without synchronising the device: `timeout_ms` 0 polls, -1 is the configured timeout.
 * CGR_NOT_READY: it has not completed in time. CGR_ERROR_STEP: it has, and result->guard tells what a guard refused.
 * CGR_ERROR_EXPIRED: ring_depth newer steps have been launched. CGR_ERROR_STATE inside `record`, calls and functions of backends,
 * polls too. `result` may be NULL. A thread other than the one that launches must not wait here; it may look at
 * cgr_runtime_completed, and so may these functions.
 * Threads one · Capture no · Sync poll never, wait may · Alloc never */
CGR_API cgr_status cgr_step_wait(cgr_runtime *runtime, int32_t lane, uint64_t seq, int32_t timeout_ms, cgr_step_result *result);

/* Number of the last step that has completed on a lane; 0: none, or a bad handle or lane.
 * Threads any · Capture ok · Sync never · Alloc never */
CGR_API uint64_t cgr_runtime_completed(cgr_runtime *runtime, int32_t lane);

#ifdef __cplusplus
}
#endif
#endif

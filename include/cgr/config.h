/* The configuration of a runtime: its limits, its layers and which graphs it has; what can run, what memory that takes; creation.
 *
 * A step is a list of pieces: a FULL graph is one; a PIECEWISE one is several, with calls between them; an eager step has none.
 * All three come from one function of the engine, `record` (record.h). */
#ifndef CGR_CONFIG_H
#define CGR_CONFIG_H

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
  int32_t program;      /* 0 .. num_programs - 1 */
  int32_t lane;         /* 0 */
  int32_t num_tokens;   /* padded */
  int32_t num_requests; /* padded */
  int32_t query_len;    /* most new tokens of a request (exactly as many, if some attention in use is neither ALWAYS nor has
                           CGR_BACKEND_BOUNDS); 0: mixed */
  int32_t max_steps;    /* 0 */
  uint32_t variant;     /* 0 or a word of cgr_config.variants: the batch's own, or that of a superset */
  uint32_t reserved[4];
} cgr_key;
#define CGR_KEY_INIT { 0, 0, 0, 0, 0, 0, 0, 0, { 0, 0, 0, 0 } }

/* A lane (a set of step buffers) and a program (a target model, a draft, ...), for calls that concern one of several. NULL in its
 * place, like zeros, names the first of each; this version has no other lanes (programs: programs.h). Never grows. */
typedef struct cgr_where {
  int32_t lane;    /* 0 .. num_lanes - 1 */
  int32_t program; /* 0 .. num_programs - 1 */
} cgr_where;

/* Names a launched step: what is waited for. In cgr_step, cgr_step_result and cgr_request_info. Never grows. */
typedef struct cgr_mark {
  int32_t lane;
  int32_t reserved; /* 0 */
  uint64_t seq;     /* the step's number, counted from 1 in each lane, those of warm-up and self-tests too; 0: none */
} cgr_mark;

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

/* --------------------------------------------------------------------------------------------------------- configuration */

typedef enum cgr_dimension { CGR_DIMENSION_TOKENS = 1, CGR_DIMENSION_REQUESTS = 2, CGR_DIMENSION_ROWS = 3 } cgr_dimension;
typedef enum cgr_source { CGR_SOURCE_DEVICE = 1, CGR_SOURCE_STAGED = 2 } cgr_source;

/* A buffer that the engine declares and that is in the arena (sampling parameters, LoRA ids, logits, ...).
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

/* cgr_config.dump gets the JSON of cgr_runtime_dump, zero-terminated, and the dump_context, when the runtime dies and after a
 * step that was abandoned; if the runtime dies in a step's launch, it is called once. Called by the thread that calls cgr,
 * whose call has not returned yet; must not call cgr. */
typedef void (*cgr_dump_function)(void *context, const char *json, size_t length);

enum { CGR_CONFIG_MAGIC = 0x63677231 };

typedef struct cgr_config {
  uint32_t size, magic, version; /* set by CGR_CONFIG_INIT. Headers of another minor version are refused by number
                                    (CGR_ERROR_INVALID_STRUCT); from 1.0 on, those of another major version */
  int32_t reserved;
  const char *device;            /* as for cgr_device_open. Ignored when device_handle is given */
  cgr_device *device_handle;     /* an open device, which the runtime does not close; or NULL */
  const cgr_group *groups;
  const cgr_layer *layers;
  const cgr_buffer_decl *buffers;
  const cgr_backend *backends;
  int32_t num_groups;            /* 1 .. 4; or 0 with layers that all have CGR_LAYER_NO_CACHE */
  int32_t num_layers;            /* 0 .. 1024. 0: the engine runs attention with kernels of its own */
  int32_t num_buffers;           /* 0 .. 64, minus one for each workspace and each plan_bytes of a backend in use, minus one
                                    if num_length_sets is above 1, and minus one with max_stop_tokens */
  int32_t num_backends;          /* 0 .. 8 */
  int32_t num_programs;          /* 1 .. 4: the target and its drafts (programs.h), which need num_draft_tokens; 0: 1 */
  int32_t num_lanes;             /* 0: 1 */
  int32_t num_draft_tokens;      /* k: guesses that a request can have in a step (CGR_REQUEST_DRAFTS), 0 .. 64 */
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
  int32_t num_query_lens;        /* 0 .. 8; 0: query length 1 and, with num_draft_tokens, 1 + num_draft_tokens */
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
  int32_t max_stop_tokens;       /* stop tokens that a row can have (cgr_request_set_stops, stops.h), 0 .. 64; 0: no row has stops,
                                    at no cost. More than 0 take the place of one of `buffers` */
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
  int32_t vocab_size;            /* tokens that the device samples, and guesses that it has and that a step takes, are
                                    0 .. vocab_size - 1; others are CGR_GUARD_TOKEN. 0: they are not checked. Ids that the host
                                    gives never are: some engines have them stand for what is no token */
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

/* The device of a runtime, which the runtime closes unless it was given as device_handle.
 * Threads any · Capture ok · Sync never · Alloc never */
CGR_API cgr_status cgr_runtime_device(cgr_runtime *runtime, cgr_device **device);

/* The mode in use. `*reason` (`reason` may be NULL) says why it, or the captured query lengths, differ from those asked for ("":
 * neither does); it is the runtime's memory.
 * Threads any · Capture ok · Sync never · Alloc never */
CGR_API cgr_status cgr_runtime_graph_mode(cgr_runtime *runtime, cgr_graph_mode *mode, const char **reason);

#ifdef __cplusplus
}
#endif
#endif

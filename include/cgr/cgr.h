/* cgr: the CUDA graph runtime. The one public header; C11, also valid C++.
 *
 * The runtime turns the steps of an LLM engine into CUDA graph replays. An engine opens a device, makes its KV cache, creates
 * a runtime over both, captures its step once per bucket and then, per step, calls cgr_step_prepare and cgr_step_launch.
 *
 * Rules that hold for the whole header
 * - Every function returns a cgr_status unless it says otherwise. Nothing aborts, exits, prints or throws. After an error
 *   cgr_last_message tells which argument was wrong, what it got and what it expected.
 * - A struct that crosses this boundary starts with its `size`, set by its _INIT macro. Fields are only ever added at the end. A
 *   struct of an earlier version is accepted, what it lacks gets its default, which is always zero or NULL (this is the first
 *   version; cgr_config may end behind max_seq_len all the same); of a longer one, of a later version, the known part counts.
 *   Small values that never grow have no size: cgr_key, cgr_view, cgr_kv_view, cgr_metadata_group.
 * - The stream is the last argument of whatever enqueues: one of cgr_stream_create or any CUDA stream of the engine's but a default
 *   one. On the host device a stream made by cgr_stream_create is passed in the same type.
 * - Each prototype carries one line:  Threads · Capture · Sync · Alloc
 *     Threads  any: callable from any thread at once; one: one thread at a time per object (different objects are free)
 *     Capture  ok: legal while the calling thread captures a stream; no: refused or meaningless there; adds: adds nodes
 *     Sync     never: never waits for the device; may: may wait
 *     Alloc    never: allocates nothing; cold: may allocate memory of the host or the device
 */
#ifndef CGR_CGR_H
#define CGR_CGR_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define CGR_API __attribute__((visibility("default")))
#else
#define CGR_API
#endif

#define CGR_VERSION_MAJOR 0
#define CGR_VERSION_MINOR 1
#define CGR_VERSION_PATCH 0
#define CGR_VERSION (CGR_VERSION_MAJOR * 10000 + CGR_VERSION_MINOR * 100 + CGR_VERSION_PATCH)

/* The type that CUDA's own headers define; repeating the typedef is legal. */
typedef struct CUstream_st *cudaStream_t;

typedef struct cgr_device cgr_device;
typedef struct cgr_runtime cgr_runtime;
typedef struct cgr_recorder cgr_recorder;

/* ---------------------------------------------------------------------------------------------------------------- status */

/* X(name, number, text). Numbers are never reused. */
#define CGR_STATUS_LIST(X)                                                                          \
  X(CGR_OK, 0, "success")                                                                           \
  X(CGR_NOT_READY, 1, "the step has not completed yet")                                             \
  X(CGR_ERROR_NULL_POINTER, 2, "a required pointer is NULL")                                        \
  X(CGR_ERROR_INVALID_STRUCT, 3, "a struct's size, magic or version is not one this library knows") \
  X(CGR_ERROR_INVALID_ENUM, 4, "an enumerator is not one this library knows")                       \
  X(CGR_ERROR_INVALID_ARGUMENT, 5, "an argument is out of its range")                               \
  X(CGR_ERROR_PAGE_OUT_OF_RANGE, 6, "a page number is outside the pool or reserved")                \
  X(CGR_ERROR_ROW_CLOSED, 7, "a request row is not open")                                           \
  X(CGR_ERROR_ROW_REPEATED, 8, "a request row stands in the batch twice")                           \
  X(CGR_ERROR_TOO_MANY_REQUESTS, 9, "more requests than the configured limit")                      \
  X(CGR_ERROR_TOO_MANY_TOKENS, 10, "more tokens than the configured limit")                         \
  X(CGR_ERROR_SEQUENCE_TOO_LONG, 11, "a sequence would pass max_seq_len")                           \
  X(CGR_ERROR_PAGES_MISSING, 12, "a row has no page for a token of this step")                      \
  X(CGR_ERROR_BUSY, 13, "the ring is full: a step in flight must complete first")                   \
  X(CGR_ERROR_STATE, 14, "the call does not fit the state of the object")                           \
  X(CGR_ERROR_UNSUPPORTED, 15, "this version or this device does not support what was asked")       \
  X(CGR_ERROR_OUT_OF_MEMORY, 16, "no memory of the host or the device")                             \
  X(CGR_ERROR_STALE_GRAPH, 17, "a region that the graph holds has moved since capture")             \
  X(CGR_ERROR_CAPTURE, 18, "a capture failed, or the call is illegal during capture")               \
  X(CGR_ERROR_CALLBACK, 19, "a callback of the engine reported failure")                            \
  X(CGR_ERROR_FALLBACK, 20, "strict mode: no captured graph fits the step")                         \
  X(CGR_ERROR_EXPIRED, 21, "the result of that step has been overwritten")                          \
  X(CGR_ERROR_STEP, 22, "a guard on the device refused a part of the step")                         \
  X(CGR_ERROR_DEVICE, 23, "a call of the device failed")                                            \
  X(CGR_ERROR_DEAD, 24, "the device is lost; only destroy still works")

typedef enum cgr_status {
#define CGR_STATUS_ENUM(name, number, text) name = number,
  CGR_STATUS_LIST(CGR_STATUS_ENUM)
#undef CGR_STATUS_ENUM
  CGR_STATUS_MAX_ = 0x7fffffff
} cgr_status;

/* Name ("CGR_ERROR_BUSY") and text of a status; static storage, never NULL.
 * Threads any · Capture ok · Sync never · Alloc never */
CGR_API const char *cgr_status_name(cgr_status status);
CGR_API const char *cgr_status_text(cgr_status status);

/* The message of the last call on this thread that failed; "" if none. Valid until the next failing call on this thread.
 * Threads any · Capture ok · Sync never · Alloc never */
CGR_API const char *cgr_last_message(void);

/* The code of the device's own API (a cudaError_t) behind the last CGR_ERROR_DEVICE or CGR_ERROR_DEAD on this thread, or 0.
 * Threads any · Capture ok · Sync never · Alloc never */
CGR_API int cgr_last_device_code(void);

/* CGR_VERSION of the library that was linked, and how it was built ("cgr 0.1.0, with CUDA 13.0").
 * Threads any · Capture ok · Sync never · Alloc never */
CGR_API int cgr_version(void);
CGR_API const char *cgr_build_info(void);

/* ----------------------------------------------------------------------------------------------------------------- types */

typedef enum cgr_dtype {
  CGR_DTYPE_NONE = 0,
  CGR_DTYPE_FP32 = 1,
  CGR_DTYPE_FP16 = 2,
  CGR_DTYPE_BF16 = 3,
  CGR_DTYPE_FP8_E4M3 = 4,
  CGR_DTYPE_I8 = 5,
  CGR_DTYPE_I32 = 6,
  CGR_DTYPE_I64 = 7
} cgr_dtype;

/* Bytes of one element, 0 for an unknown dtype.
 * Threads any · Capture ok · Sync never · Alloc never */
CGR_API size_t cgr_dtype_size(cgr_dtype dtype);

/* ---------------------------------------------------------------------------------------------------------------- device */

typedef enum cgr_device_kind { CGR_DEVICE_HOST = 1, CGR_DEVICE_CUDA = 2 } cgr_device_kind;

/* When the host device executes what was enqueued. All are legal for a program that synchronises properly; LATEST and RANDOM
 * make a program that does not fail on purpose. */
typedef enum cgr_host_schedule {
  CGR_HOST_ASYNC = 0,    /* a worker thread per stream */
  CGR_HOST_EARLIEST = 1, /* in the call that enqueues, as soon as its dependencies are met */
  CGR_HOST_LATEST = 2,   /* only when somebody waits or queries */
  CGR_HOST_RANDOM = 3    /* seeded choice at each call */
} cgr_host_schedule;

typedef struct cgr_device_config {
  uint32_t size;
  uint32_t host_schedule; /* cgr_host_schedule; host device only */
  uint64_t host_seed;     /* for CGR_HOST_RANDOM */
} cgr_device_config;
#define CGR_DEVICE_CONFIG_INIT { (uint32_t)sizeof(cgr_device_config), CGR_HOST_ASYNC, 0 }

typedef struct cgr_device_info {
  uint32_t size;
  int32_t kind;               /* cgr_device_kind */
  int32_t ordinal;            /* CUDA device number; 0 for host */
  int32_t num_multiprocessors; /* SMs; online processors for host */
  int32_t compute_capability; /* 90 for sm_90; 0 for host */
  int32_t driver_version;     /* as cudaDriverGetVersion; 0 for host */
  uint64_t memory_total;      /* bytes */
  uint64_t memory_free;       /* bytes, now */
  char name[64];
} cgr_device_info;
#define CGR_DEVICE_INFO_INIT { (uint32_t)sizeof(cgr_device_info), 0, 0, 0, 0, 0, 0, 0, { 0 } }

/* Opens "cuda", "cuda:N" or "host"; NULL picks cuda:0 where there is a GPU and a driver, else host. `config` may be NULL.
 * A device outlives the runtimes, streams and memory made from it.
 * Threads any · Capture no · Sync may · Alloc cold */
CGR_API cgr_status cgr_device_open(const char *name, const cgr_device_config *config, cgr_device **device);

/* Waits for what runs on the device's streams, then frees it. NULL is allowed.
 * Threads one · Capture no · Sync may · Alloc never */
CGR_API cgr_status cgr_device_close(cgr_device *device);

/* Threads any · Capture ok · Sync never · Alloc never */
CGR_API cgr_status cgr_device_get_info(cgr_device *device, cgr_device_info *info);

/* Memory of the device, or page-locked memory of the host that the device can read and write at the same address. 256-byte
 * aligned, content undefined. Freeing NULL is allowed.
 * Threads any · Capture no · Sync may · Alloc cold */
CGR_API cgr_status cgr_memory_alloc(cgr_device *device, size_t bytes, void **memory);
CGR_API cgr_status cgr_memory_free(cgr_device *device, void *memory);
CGR_API cgr_status cgr_memory_alloc_pinned(cgr_device *device, size_t bytes, void **memory);
CGR_API cgr_status cgr_memory_free_pinned(cgr_device *device, void *memory);

/* A stream that is not ordered with the default stream. An engine with CUDA streams of its own passes those instead.
 * Threads any · Capture no · Sync never · Alloc cold */
CGR_API cgr_status cgr_stream_create(cgr_device *device, cudaStream_t *stream);
/* Threads one · Capture no · Sync may · Alloc never */
CGR_API cgr_status cgr_stream_destroy(cgr_device *device, cudaStream_t stream);
/* Threads any · Capture no · Sync may · Alloc never */
CGR_API cgr_status cgr_stream_synchronize(cgr_device *device, cudaStream_t stream);

/* Copies or fills when the stream gets there: source and destination must live until then. Pageable host memory is refused
 * during capture on CUDA by CUDA itself.
 * Threads any · Capture adds · Sync never · Alloc never */
CGR_API cgr_status cgr_copy(cgr_device *device, void *dst, const void *src, size_t bytes, cudaStream_t stream);
CGR_API cgr_status cgr_fill(cgr_device *device, void *dst, int byte, size_t bytes, cudaStream_t stream);

/* Enqueues a function of the engine on the host's processor; `args` (up to 4096 bytes) is copied now, and a captured call
 * keeps its copy. This is how an engine writes its "kernels" for the host device. On CUDA it becomes a host node, which
 * stalls the stream: not for a hot path; the function must not call CUDA or cgr.
 * Threads any · Capture adds · Sync never · Alloc cold */
typedef void (*cgr_host_function)(const void *args);
CGR_API cgr_status cgr_launch_host(cgr_device *device, cgr_host_function function, const void *args, size_t args_size,
                                   cudaStream_t stream);

/* --------------------------------------------------------------------------------------------------------- configuration */

/* A group: the layers that share one page table. */
typedef struct cgr_group {
  uint32_t size;
  int32_t page_size;        /* tokens per page: 16, 32 or 64 */
  int64_t num_pages;        /* pages in the pool, the two reserved ones included; 3 .. 2^31 - 1 */
  int32_t read_trash_page;  /* never written; what a guarded read reads instead of a bad page. The engine makes it finite once, with
                               zeros, say. Default 0 */
  int32_t write_trash_page; /* never read; with both left 0 it becomes page 1 */
  const int32_t *page_table; /* device, [max_rows][page_table_stride]: the engine keeps it; NULL: cgr_request_set_pages does */
  int64_t page_table_stride; /* elements from row to row; at least ceil(max_seq_len / page_size) */
} cgr_group;
#define CGR_GROUP_INIT { (uint32_t)sizeof(cgr_group), 16, 0, 0, 0, NULL, 0 }

/* Where K or V of a layer lies: element (page p, token t in the page, KV head h, d) is at
 * base + p * stride_page + t * stride_token + h * stride_head + d, counted in elements, in 64 bits. NHD, HND, K and V in one
 * tensor or two, layers interleaved: all are values of these strides. Base and strides are multiples of 16 bytes. */
typedef struct cgr_kv_view {
  void *base;
  int32_t dtype; /* cgr_dtype */
  int32_t reserved;
  int64_t stride_page;
  int64_t stride_token;
  int64_t stride_head;
} cgr_kv_view;

/* An attention layer. */
typedef struct cgr_layer {
  uint32_t size;
  int32_t group;          /* index into cgr_config.groups */
  int32_t num_q_heads;    /* a multiple of num_kv_heads */
  int32_t num_kv_heads;
  int32_t head_dim;       /* 64 or 128 on CUDA; up to 256, a multiple of 8, on the host */
  float scale;            /* of q.k before softmax; 0: 1 / sqrt(head_dim) */
  int32_t window;         /* sliding window in tokens; 0: none (others are not supported yet) */
  float softcap;          /* 0: none (others are not supported yet) */
  int32_t kv_source;      /* another layer + 1 whose cache this one reads and does not append to; 0: its own */
  int32_t reserved;
  cgr_kv_view k, v;
} cgr_layer;
#define CGR_LAYER_INIT \
  { (uint32_t)sizeof(cgr_layer), 0, 0, 0, 0, 0.0f, 0, 0.0f, 0, 0, { NULL, 0, 0, 0, 0, 0 }, { NULL, 0, 0, 0, 0, 0 } }

typedef enum cgr_dimension { CGR_DIM_TOKENS = 1, CGR_DIM_REQUESTS = 2, CGR_DIM_ROWS = 3 } cgr_dimension;
typedef enum cgr_source { CGR_SOURCE_DEVICE = 1, CGR_SOURCE_STAGED = 2 } cgr_source;

/* A buffer of the engine's own that lives in the arena (sampling parameters, LoRA ids, logits, ...). */
typedef struct cgr_buffer_decl {
  uint32_t size;
  int32_t dimension; /* cgr_dimension: the leading one, at its configured limit */
  int32_t dtype;     /* cgr_dtype */
  int32_t source;    /* cgr_source; STAGED is laid out but not staged yet: refused */
  int64_t width;     /* elements per token, request or row */
  const char *name;  /* unique, at most 31 characters */
  int64_t padding;   /* what every element holds at first, as a value of the dtype; only 0 for fp16, bf16 and fp8 yet */
} cgr_buffer_decl;
#define CGR_BUFFER_DECL_INIT { (uint32_t)sizeof(cgr_buffer_decl), 0, 0, CGR_SOURCE_DEVICE, 1, NULL, 0 }

typedef enum cgr_graph_mode {
  CGR_GRAPH_DEFAULT = 0, /* FULL_AND_PIECEWISE */
  CGR_GRAPH_NONE = 1,
  CGR_GRAPH_PIECEWISE = 2,
  CGR_GRAPH_FULL = 3,
  CGR_GRAPH_FULL_DECODE_ONLY = 4,
  CGR_GRAPH_FULL_AND_PIECEWISE = 5
} cgr_graph_mode;

/* What the attention of the engine can do inside a FULL graph; the mode is lowered by it once, at creation. */
typedef enum cgr_attention_support {
  CGR_ATTENTION_DEFAULT = 0, /* that of the library's own kernels */
  CGR_ATTENTION_NEVER = 1,
  CGR_ATTENTION_UNIFORM_SINGLE_TOKEN_DECODE = 2,
  CGR_ATTENTION_UNIFORM_BATCH = 3,
  CGR_ATTENTION_ALWAYS = 4
} cgr_attention_support;

typedef enum cgr_log_level { CGR_LOG_ERROR = 1, CGR_LOG_WARNING = 2, CGR_LOG_INFO = 3 } cgr_log_level;
typedef void (*cgr_log_function)(void *context, cgr_log_level level, const char *message);

#define CGR_CONFIG_MAGIC 0x63677231u

typedef struct cgr_config {
  uint32_t size;    /* these three are set by CGR_CONFIG_INIT */
  uint32_t magic;
  uint32_t version;
  int32_t num_groups;       /* 1 (more are laid out by a later version) */
  const char *device;       /* "cuda:0", "host", NULL: the best there is. Ignored when device_handle is given */
  cgr_device *device_handle; /* an open device; the runtime does not close it */
  const cgr_group *groups;
  const cgr_layer *layers;
  int32_t num_layers;
  int32_t max_requests;     /* R: requests in one step, 1 .. 4096 */
  int32_t max_rows;         /* M: requests alive, >= max_requests; default max_requests */
  int32_t max_tokens;       /* T: tokens in one step, >= max_requests */
  int32_t max_seq_len;      /* tokens of one sequence */
  int32_t graph_mode;       /* cgr_graph_mode */
  int32_t attention_support; /* cgr_attention_support */
  int32_t num_buckets;      /* FULL decode buckets in requests; 0: the default ladder up to max_bucket */
  const int32_t *buckets;   /* ascending, 1 .. max_requests */
  int32_t max_bucket;       /* of the default ladder; 0: min(max_requests, 512) */
  int32_t ring_depth;       /* steps in flight, 2 .. 64; 0: 4 */
  int32_t max_changes;      /* i32 words of changes that one slot carries; 0: 4096 */
  int32_t num_parts;        /* G: parts of the attention plan, 1 .. 4096; 0: from the device */
  int32_t strict;           /* non-zero: a step that the mode promises a graph for and that has none is refused
                               (CGR_ERROR_FALLBACK) instead of run eagerly */
  int32_t wait_timeout_ms;  /* of cgr_step_wait; 0: 30000 */
  const cgr_buffer_decl *buffers;
  int32_t num_buffers;      /* at most 64 */
  int32_t reserved;
  void *device_memory;      /* the caller's memory for the arena, of cgr_runtime_memory's size, 256-byte aligned; or NULL */
  size_t device_memory_size;
  void *pinned_memory;      /* the same for the rings: from cgr_memory_alloc_pinned or cudaHostAlloc(mapped); or NULL */
  size_t pinned_memory_size;
  cgr_log_function log;     /* NULL: silent */
  void *log_context;
} cgr_config;
#define CGR_CONFIG_INIT                                                                                                  \
  { (uint32_t)sizeof(cgr_config), CGR_CONFIG_MAGIC, CGR_VERSION, 0, NULL, NULL, NULL, NULL, 0, 0, 0, 0, 0, 0, 0, 0, NULL, 0, \
    0, 0, 0, 0, 0, NULL, 0, 0, NULL, 0, NULL, 0, NULL, NULL }

typedef struct cgr_memory_sizes {
  uint32_t size;
  uint32_t reserved;
  size_t device_bytes; /* the arena: persistent buffers, plan, partials */
  size_t pinned_bytes; /* staging and readback rings */
} cgr_memory_sizes;
#define CGR_MEMORY_SIZES_INIT { (uint32_t)sizeof(cgr_memory_sizes), 0, 0, 0 }

/* What a runtime of this configuration will take. Opens the device for a moment unless device_handle is given.
 * Threads any · Capture no · Sync may · Alloc cold */
CGR_API cgr_status cgr_runtime_memory(const cgr_config *config, cgr_memory_sizes *sizes);

/* Validates everything, lays the buffers out and fills them with their padding values. `*runtime` is NULL on failure.
 * Threads any · Capture no · Sync may · Alloc cold */
CGR_API cgr_status cgr_runtime_create(const cgr_config *config, cgr_runtime **runtime);

/* Waits for the steps in flight, drops the graphs, then the buffers. NULL is allowed.
 * Threads one · Capture no · Sync may · Alloc never */
CGR_API cgr_status cgr_runtime_destroy(cgr_runtime *runtime);

/* The device of a runtime. Owned by the runtime unless it was given as device_handle.
 * Threads any · Capture ok · Sync never · Alloc never */
CGR_API cgr_device *cgr_runtime_device(cgr_runtime *runtime);

/* The mode that capture will use and why it differs from the one asked for ("" if it does not); static storage.
 * Threads any · Capture ok · Sync never · Alloc never */
CGR_API cgr_graph_mode cgr_runtime_graph_mode(cgr_runtime *runtime, const char **reason);

/* --------------------------------------------------------------------------------------------------------------- buffers */

/* The persistent buffers; DESIGN of each in buffers/table.h. `index` of cgr_buffer_get is the group, the length set or 0. */
typedef enum cgr_buffer {
  CGR_BUFFER_INPUT_IDS = 0,      /* i32 [T] */
  CGR_BUFFER_POSITIONS,          /* i32 [T] position of each token in its sequence */
  CGR_BUFFER_SLOT_MAPPING,       /* i64 [T] per group: page * page_size + offset, -1 for padding */
  CGR_BUFFER_QUERY_START_LOC,    /* i32 [R+1] */
  CGR_BUFFER_SEQ_LENS,           /* i32 [R] per length set: KV length with the tokens of this step */
  CGR_BUFFER_REQUEST_ROWS,       /* i32 [R]; a request that a guard refused keeps what was sent: look at seq_lens (0) first */
  CGR_BUFFER_PAGE_TABLE,         /* i32 [M][P] per group */
  CGR_BUFFER_KV_INDPTR,          /* i32 [R+1] per group: running sum of pages */
  CGR_BUFFER_KV_LAST_PAGE_LEN,   /* i32 [R] per group */
  CGR_BUFFER_ROW_COMPUTED,       /* i32 [M] tokens in the cache */
  CGR_BUFFER_ROW_LAST_TOKENS,    /* i32 [M] */
  CGR_BUFFER_ROW_NUM_ACCEPTED,   /* i32 [M] */
  CGR_BUFFER_LOGITS_INDICES,     /* i32 [R] token whose hidden state predicts the next one; 0 for padding */
  CGR_BUFFER_NEXT_TOKENS,        /* i32 [R] the engine's sampler writes it; the epilogue commits and reads it back */
  CGR_BUFFER_COUNTS,             /* i32 [16]: num_requests, num_tokens, ... of the step */
  CGR_BUFFER_PLAN,               /* i32 words of the native work list */
  CGR_BUFFER_COUNT_
} cgr_buffer;

typedef struct cgr_buffer_view {
  uint32_t size;
  int32_t dtype;     /* cgr_dtype */
  void *data;        /* device address, fixed for the runtime's life */
  int64_t shape[2];  /* shape[1] is 1 for a vector */
  int64_t stride;    /* elements from row to row */
} cgr_buffer_view;
#define CGR_BUFFER_VIEW_INIT { (uint32_t)sizeof(cgr_buffer_view), 0, NULL, { 0, 0 }, 0 }

/* Threads any · Capture ok · Sync never · Alloc never */
CGR_API cgr_status cgr_buffer_get(cgr_runtime *runtime, cgr_buffer buffer, int32_t index, cgr_buffer_view *view);
/* A buffer that was declared in cgr_config.buffers.
 * Threads any · Capture ok · Sync never · Alloc never */
CGR_API cgr_status cgr_buffer_get_declared(cgr_runtime *runtime, const char *name, cgr_buffer_view *view);

/* A region is memory whose address graphs may hold: the arena and the KV views are registered at creation; an engine adds
 * its weights and activations. Moving one makes every graph captured before stale (CGR_ERROR_STALE_GRAPH) until the next
 * cgr_runtime_capture, which captures the stale keys again. The runtime's own regions cannot move.
 * Threads one · Capture no · Sync never · Alloc never */
CGR_API cgr_status cgr_region_register(cgr_runtime *runtime, const void *base, size_t bytes, int32_t *region);
CGR_API cgr_status cgr_region_move(cgr_runtime *runtime, int32_t region, const void *base, size_t bytes);

/* -------------------------------------------------------------------------------------------------------------- requests */

/* A request owns a row of the persistent tables from open to close. These calls change the host's mirror; the changes travel
 * with the next step that is prepared, and none is lost when a step is cancelled or fails. A row of the prepared step can neither
 * close nor rewind. Like prepare and launch, these calls are refused inside `record` (CGR_ERROR_STATE).
 *
 * A page may be given to another request once the last step that used it has completed (cgr_step_poll, cgr_step_wait).
 * Threads one · Capture no · Sync never · Alloc never */
CGR_API cgr_status cgr_request_open(cgr_runtime *runtime, int32_t *row);
CGR_API cgr_status cgr_request_close(cgr_runtime *runtime, int32_t row);

/* Sets pages [first, first + count) of the row's table: page i holds tokens [i * page_size, (i + 1) * page_size).
 * CGR_ERROR_PAGE_OUT_OF_RANGE for a page outside the pool or a reserved one; then none is set. Pages are set without holes:
 * first is at most the number of pages set so far.
 * Threads one · Capture no · Sync never · Alloc never */
CGR_API cgr_status cgr_request_set_pages(cgr_runtime *runtime, int32_t row, int32_t group, int32_t first, const int32_t *pages,
                                         int32_t count);

/* Sets the number of tokens in the cache back to `num_tokens` (at most the present one): preemption, rejected drafts; or
 * forward when the engine has filled the pages itself (a prefix found in its cache): then pages must cover it.
 * Threads one · Capture no · Sync never · Alloc never */
CGR_API cgr_status cgr_request_rewind(cgr_runtime *runtime, int32_t row, int32_t num_tokens);

typedef struct cgr_request_info {
  uint32_t size;
  int32_t open;       /* 0 or 1 */
  int32_t num_tokens; /* tokens in the cache after every step launched so far */
  int32_t num_pages;  /* pages set in group 0 */
  uint64_t last_seq;  /* last step that used the row; 0: none */
} cgr_request_info;
#define CGR_REQUEST_INFO_INIT { (uint32_t)sizeof(cgr_request_info), 0, 0, 0, 0 }
/* Threads one · Capture ok · Sync never · Alloc never */
CGR_API cgr_status cgr_request_get_info(cgr_runtime *runtime, int32_t row, cgr_request_info *info);

/* ----------------------------------------------------------------------------------------------------------------- graphs */

typedef enum cgr_graph_kind { CGR_KIND_NONE = 0, CGR_KIND_PIECEWISE = 1, CGR_KIND_FULL = 2 } cgr_graph_kind;

/* What a graph is captured for; compared by value. */
typedef struct cgr_key {
  int32_t kind;         /* cgr_graph_kind */
  int32_t program;      /* 0: target (draft and others come later) */
  int32_t lane;         /* 0 */
  int32_t num_tokens;   /* token bucket */
  int32_t num_requests; /* request bucket */
  int32_t query_len;    /* uniform query length; 0: mixed */
  uint32_t variant;     /* of the engine */
} cgr_key;

/* The model, written once: enqueues one step on the recorder's stream for its padded counts. The same function serves eager
 * steps and capture; it is called exactly once per captured key and never at replay.
 * Return CGR_OK, or any other status to give the step or the capture up. */
typedef cgr_status (*cgr_record_function)(cgr_recorder *recorder, void *engine);

typedef struct cgr_record_info {
  uint32_t size;
  int32_t capturing;     /* 1 inside a capture */
  cudaStream_t stream;
  cgr_key key;
  int32_t num_tokens;    /* padded: what every kernel must be launched for */
  int32_t num_requests;  /* padded */
  int32_t max_seq_len;   /* the bound for this key: the configured one */
  int32_t reserved;
} cgr_record_info;
#define CGR_RECORD_INFO_INIT { (uint32_t)sizeof(cgr_record_info), 0, NULL, { 0, 0, 0, 0, 0, 0, 0 }, 0, 0, 0, 0 }
/* Threads one · Capture ok · Sync never · Alloc never */
CGR_API cgr_status cgr_record_get_info(cgr_recorder *recorder, cgr_record_info *info);

/* A tensor [tokens, heads, head_dim] whose last dimension is dense. Strides count elements; base and strides are multiples
 * of 16 bytes. */
typedef struct cgr_view {
  void *data;
  int32_t dtype; /* cgr_dtype */
  int32_t reserved;
  int64_t stride_token;
  int64_t stride_head;
} cgr_view;

enum {
  CGR_ATTENTION_NO_APPEND = 1u,   /* k and v are in the cache already */
  CGR_ATTENTION_APPEND_ONLY = 2u, /* write k and v, compute nothing */
  CGR_ATTENTION_NON_CAUSAL = 4u,  /* not supported yet */
  CGR_ATTENTION_NO_CACHE = 8u     /* not supported yet */
};

/* One layer's attention: k and v of this step's tokens go to the cache, then every query attends to its whole sequence.
 * q, k, v and out have the dtype of the layer's cache. */
typedef struct cgr_attention {
  uint32_t size;
  int32_t layer;
  uint32_t flags;      /* CGR_ATTENTION_* */
  int32_t length_set;  /* 0: self (others come later) */
  cgr_view q;          /* [num_tokens, num_q_heads, head_dim] */
  cgr_view k, v;       /* [num_tokens, num_kv_heads, head_dim]; unused with NO_APPEND */
  cgr_view out;        /* [num_tokens, num_q_heads, head_dim]; padded tokens get 0 */
  float *lse;          /* [num_tokens, num_q_heads] natural logarithm of the sum of exp; padded tokens get -inf; or NULL */
  int64_t lse_stride;  /* elements from token to token */
  const float *k_scale, *v_scale; /* of a quantised cache: not supported yet, NULL */
  const float *sinks;  /* not supported yet, NULL */
} cgr_attention;
#define CGR_ATTENTION_INIT .size = (uint32_t)sizeof(cgr_attention)

/* Enqueues append and attention. In a PIECEWISE capture it is a break: struct and layer are kept by value.
 * Threads one · Capture adds · Sync never · Alloc never */
CGR_API cgr_status cgr_record_attention(cgr_recorder *recorder, const cgr_attention *attention);

/* Calls `function` now, with `context`; in a PIECEWISE capture it is a break that replays call again.
 * Threads one · Capture adds · Sync never · Alloc never */
CGR_API cgr_status cgr_record_call(cgr_recorder *recorder, cgr_record_function function, void *context);

/* Captures every key of the ladder that has no graph yet or a stale one, largest first, in thread-local mode on a stream of
 * its own. A key whose capture fails is dropped and counted, its steps run eagerly and a later call tries again; the first
 * such failure is returned after all keys were tried. No step may be prepared, and steps in flight are waited for.
 * `record` and `engine` are kept: eager steps call them.
 * Threads one · Capture no · Sync may · Alloc cold */
CGR_API cgr_status cgr_runtime_capture(cgr_runtime *runtime, cgr_record_function record, void *engine);

/* Calls `record` once, eagerly, in a step without requests at each padded count of the ladder, so that the engine's libraries
 * load and choose what they need before a capture. Writes only to padded rows and no page. Optional.
 * Threads one · Capture no · Sync may · Alloc cold */
CGR_API cgr_status cgr_runtime_warmup(cgr_runtime *runtime, cgr_record_function record, void *engine);

/* ------------------------------------------------------------------------------------------------------------------ steps */

/* In cgr_batch.tokens: the token that the row's last step sampled, which is on the device. Refused where there is none: in a new
 * row, after a partial chunk and after a rewind. */
#define CGR_TOKEN_LAST (-1)

enum {
  CGR_REQUEST_PARTIAL = 1u /* more of the prompt follows: the token sampled in this step is not the row's last token */
};

/* What a step does. Request i has query_lens[i] new tokens (0 is legal). */
typedef struct cgr_batch {
  uint32_t size;
  int32_t num_requests;      /* 0 .. max_requests; 0 is a dummy step */
  const int32_t *rows;       /* [num_requests], each open, none twice */
  const int32_t *query_lens; /* [num_requests], or NULL: 1 each */
  const int32_t *tokens;     /* [sum of query_lens], one request after the other, or NULL: CGR_TOKEN_LAST for all. Only the first
                                token of a request can be CGR_TOKEN_LAST */
  const uint32_t *flags;     /* [num_requests] CGR_REQUEST_*, or NULL: 0 each */
  const cgr_key *forced_key; /* use this kind and these padded counts, or fail; NULL: cgr chooses */
  uint32_t variant;
  uint32_t reserved;
} cgr_batch;
#define CGR_BATCH_INIT { (uint32_t)sizeof(cgr_batch), 0, NULL, NULL, NULL, NULL, NULL, 0, 0 }

/* Why a step runs the way it does; every launched step counts under exactly one (kind, reason). */
typedef enum cgr_reason {
  CGR_REASON_EXACT = 0,      /* a graph of exactly this size */
  CGR_REASON_PADDED,         /* the next larger graph */
  CGR_REASON_MODE_NONE,      /* graphs are switched off */
  CGR_REASON_NOT_UNIFORM,    /* not every request has the captured query length */
  CGR_REASON_ABOVE_LADDER,   /* more requests than the largest bucket */
  CGR_REASON_NOT_CAPTURED,   /* capture has not been called for this key */
  CGR_REASON_CAPTURE_FAILED, /* it has, and failed */
  CGR_REASON_FORCED,         /* batch.forced_key asked for it */
  CGR_REASON_INTERNAL,       /* extra apply launches, warm-up: steps of the runtime itself */
  CGR_REASON_COUNT_
} cgr_reason;
/* Threads any · Capture ok · Sync never · Alloc never */
CGR_API const char *cgr_reason_name(cgr_reason reason);

/* A prepared step: filled by prepare, given to launch or cancel once. */
typedef struct cgr_step {
  uint32_t size;
  int32_t reason;        /* cgr_reason */
  cgr_key key;           /* what launch will replay; kind NONE: eager */
  int32_t num_requests;  /* real */
  int32_t num_tokens;    /* real */
  uint32_t bytes_staged; /* that the device will read for this step */
  uint32_t reserved;
  uint64_t seq;          /* the step's number: set by launch */
  uint64_t ticket;       /* of the runtime */
} cgr_step;
#define CGR_STEP_INIT { (uint32_t)sizeof(cgr_step), 0, { 0, 0, 0, 0, 0, 0, 0 }, 0, 0, 0, 0, 0, 0 }

/* The graph that a batch would use, without preparing it: for ranks that must agree before anyone launches.
 * Threads one · Capture no · Sync never · Alloc never */
CGR_API cgr_status cgr_step_choose(cgr_runtime *runtime, const cgr_batch *batch, cgr_key *key);

/* Validates the batch, chooses the graph and stages what has changed. May run while earlier steps are in flight. At most one
 * step is prepared and not yet launched or cancelled. CGR_ERROR_BUSY: the ring is full, wait for a step; or more changes
 * are pending than the free slots hold, call cgr_runtime_flush. On any error nothing has changed. `step->size` must be set.
 * Threads one · Capture no · Sync never · Alloc never */
CGR_API cgr_status cgr_step_prepare(cgr_runtime *runtime, const cgr_batch *batch, cgr_step *step);

/* Enqueues the prepared step and gives it its number. Steps complete in the order of their launch; a launch on another stream
 * than the last is ordered after it by an event, so that stream must live until then. If it fails, the step is as if cancelled;
 * when the device had run it in spite of the failure it reported, its rows' last tokens are not known any more, and the next
 * batch must give them. CGR_ERROR_CAPTURE, CGR_ERROR_INVALID_ARGUMENT: a bad stream; the step stays prepared.
 * Threads one · Capture no · Sync never (after a failed call of the device: waits for the stream) · Alloc never (eager steps: what
 * `record` does) */
CGR_API cgr_status cgr_step_launch(cgr_runtime *runtime, cgr_step *step, cudaStream_t stream);

/* Gives a prepared step up; its changes stay pending for the next one.
 * Threads one · Capture no · Sync never · Alloc never */
CGR_API cgr_status cgr_step_cancel(cgr_runtime *runtime, cgr_step *step);

/* Sends pending changes ahead of the next step, as many as free slots hold. CGR_ERROR_BUSY when some are left: wait for
 * cgr_runtime_completed to move on. Each slot is a step of its own, without requests, so collect results before: they expire.
 * Threads one · Capture no · Sync never · Alloc never */
CGR_API cgr_status cgr_runtime_flush(cgr_runtime *runtime, cudaStream_t stream);

/* What a guard on the device refused. */
typedef enum cgr_step_error {
  CGR_STEP_OK = 0,
  CGR_STEP_SEQUENCE = 1,     /* the slot's number is not the device's: the step ran without requests, and so do those after it
                                that were prepared before the error was seen. Its rows keep the length on the host that
                                they would have had: rewind them. value: slot's number */
  CGR_STEP_PAGE = 2,         /* page `value` of (row, index) is outside the pool; the read-trash page was used */
  CGR_STEP_ROW = 3,          /* row out of range; the request ran with length 0 */
  CGR_STEP_COUNT = 4,        /* num_requests or num_tokens larger than the launched bucket; the step ran without requests */
  CGR_STEP_LENGTH = 5,       /* a sequence longer than max_seq_len; the request ran with length 0 */
  CGR_STEP_CHANGE = 6        /* a malformed change record; it was dropped */
} cgr_step_error;

typedef struct cgr_step_result {
  uint32_t size;
  int32_t num_requests;
  uint64_t seq;
  const int32_t *tokens; /* [num_requests] CGR_BUFFER_NEXT_TOKENS of the step; valid until ring_depth - 1 more steps launch */
  int32_t error;         /* cgr_step_error: the first of the step */
  int32_t error_row;     /* row, or -1 */
  int32_t error_index;
  int32_t reserved;
  int64_t error_value;
} cgr_step_result;
#define CGR_STEP_RESULT_INIT { (uint32_t)sizeof(cgr_step_result), 0, 0, NULL, 0, 0, 0, 0, 0 }

/* The result of step `seq`. poll returns CGR_NOT_READY instead of waiting; wait waits for that step alone, up to
 * wait_timeout_ms (then CGR_NOT_READY). CGR_ERROR_STEP: it completed, and `result` tells what a guard refused. `result` may be
 * NULL. CGR_ERROR_EXPIRED: ring_depth newer steps have been launched, those of
 * the runtime itself counted in. One launch never expires the step before it.
 * Threads one · Capture no · Sync poll never, wait may · Alloc never */
CGR_API cgr_status cgr_step_poll(cgr_runtime *runtime, uint64_t seq, cgr_step_result *result);
CGR_API cgr_status cgr_step_wait(cgr_runtime *runtime, uint64_t seq, cgr_step_result *result);

/* Number of the last step that has completed; 0: none.
 * Threads any · Capture ok · Sync never · Alloc never */
CGR_API uint64_t cgr_runtime_completed(cgr_runtime *runtime);

/* ------------------------------------------------------------------------------------------------------------- statistics */

typedef struct cgr_stats {
  uint32_t size;
  int32_t num_graphs;           /* usable now */
  uint64_t steps;               /* launched, internal ones included */
  uint64_t by_reason[3][16];    /* [cgr_graph_kind][cgr_reason]; adds up to steps */
  uint64_t real_tokens, padded_tokens; /* of steps with requests: real, and launched for */
  uint64_t bytes_staged;
  uint64_t cancelled, refused;  /* prepared steps cancelled; prepare calls that failed */
  uint64_t captures_failed;
} cgr_stats;
#define CGR_STATS_INIT { (uint32_t)sizeof(cgr_stats), 0, 0, { { 0 } }, 0, 0, 0, 0, 0, 0 }
/* Threads one · Capture ok · Sync never · Alloc never */
CGR_API cgr_status cgr_runtime_stats(cgr_runtime *runtime, cgr_stats *stats);

typedef struct cgr_graph_stats {
  uint32_t size;
  int32_t state;         /* 0: not captured, 1: ready, 2: capture failed, 3: stale */
  cgr_key key;
  int32_t records;       /* times `record` ran for this key's captures */
  uint64_t replays;
  uint64_t real_requests; /* summed over the replays */
  int64_t num_nodes;
  int64_t device_bytes;  /* taken by instantiation; 0 if the device does not tell */
  double capture_ms;     /* capture and instantiation */
} cgr_graph_stats;
#define CGR_GRAPH_STATS_INIT { (uint32_t)sizeof(cgr_graph_stats), 0, { 0, 0, 0, 0, 0, 0, 0 }, 0, 0, 0, 0, 0, 0.0 }
/* Number of keys in the ladder, and the statistics of one of them.
 * Threads one · Capture ok · Sync never · Alloc never */
CGR_API int32_t cgr_runtime_num_keys(cgr_runtime *runtime);
CGR_API cgr_status cgr_runtime_graph_stats(cgr_runtime *runtime, int32_t index, cgr_graph_stats *stats);

/* --------------------------------------------------------------------------------------------- planners without a runtime */

/* The native attention plan of a batch, from host arrays: what CGR_BUFFER_PLAN holds. Layout and arithmetic: planners/attention/plan.h.
 * For engines with kernels of their own, and for tests. */
typedef struct cgr_plan_input {
  uint32_t size;
  int32_t num_requests;
  const int32_t *query_lens; /* [num_requests] */
  const int32_t *seq_lens;   /* [num_requests] KV length with the new tokens; >= query_lens */
  int32_t num_parts;         /* G */
  int32_t tile_q;            /* query tokens per tile: a power of two, 1 .. 64 */
} cgr_plan_input;
#define CGR_PLAN_INPUT_INIT { (uint32_t)sizeof(cgr_plan_input), 0, NULL, NULL, 0, 0 }
/* Bytes of a plan of G parts.
 * Threads any · Capture ok · Sync never · Alloc never */
CGR_API size_t cgr_plan_size(int32_t num_parts);
/* `plan` is aligned to 8 bytes. Scratch for more than about 680 requests is allocated.
 * Threads any · Capture ok · Sync never · Alloc cold */
CGR_API cgr_status cgr_plan_build(const cgr_plan_input *input, void *plan, size_t plan_size);

/* The metadata of a step on the host: what the persistent buffers of the same names hold after the prologue, padding included.
 * Every output pointer is required and has room for the padded counts (query_start_loc and kv_indptr: one more). */
typedef struct cgr_metadata_group {
  int32_t page_size; /* a power of two */
  int32_t read_trash_page, write_trash_page;
  int32_t reserved;
  int64_t num_pages;
  const int32_t *page_table; /* [max_rows][page_table_stride] */
  int64_t page_table_stride;
  int64_t *slot_mapping;     /* out, [padded_tokens] */
  int32_t *kv_indptr;        /* out, [padded_requests + 1] */
  int32_t *kv_last_page_len; /* out, [padded_requests] */
} cgr_metadata_group;

typedef struct cgr_metadata {
  uint32_t size;
  int32_t num_requests;
  int32_t padded_requests, padded_tokens; /* at least the real counts */
  int32_t max_rows, max_seq_len, num_groups;
  int32_t reserved;
  const int32_t *rows;       /* [num_requests] */
  const int32_t *query_lens; /* [num_requests] */
  const int32_t *tokens;     /* as in cgr_batch, or NULL */
  const int32_t *row_computed, *row_last_tokens; /* [max_rows] */
  const cgr_metadata_group *groups;              /* [num_groups] */
  int32_t *input_ids, *positions;                /* out, [padded_tokens] */
  int32_t *query_start_loc;                      /* out, [padded_requests + 1] */
  int32_t *seq_lens, *request_rows, *logits_indices; /* out, [padded_requests] */
} cgr_metadata;
#define CGR_METADATA_INIT \
  { (uint32_t)sizeof(cgr_metadata), 0, 0, 0, 0, 0, 0, 0, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL }
/* CGR_ERROR_STEP: a row, page or length was refused by a guard, as the device would: the outputs are complete, that request has
 * length 0 (a page: its token has slot -1), and the message names the first one.
 * Threads any · Capture ok · Sync never · Alloc never */
CGR_API cgr_status cgr_metadata_build(const cgr_metadata *metadata);

#ifdef __cplusplus
}
#endif
#endif

/* The planners without a runtime: the attention plan and the metadata of a step, from host arrays, and the plans of other
 * projects' attention kernels, from host or device arrays. For engines with kernels of their own, and for tests. */
#ifndef CGR_PLANNERS_H
#define CGR_PLANNERS_H

#include "cgr/base.h"
#include "cgr/device.h"

#ifdef __cplusplus
extern "C" {
#endif

/* In an array of tokens: the token that the row's last step sampled, which is on the device. Refused where there is none: in a
 * new row, after a partial chunk, after cgr_request_set_length. Values below it are reserved. */
#define CGR_TOKEN_LAST (-1)

/* ------------------------------------------------------------------------------------------------------------------ plan */

/* The native attention plan of a batch, for layers that are alike: part of the content of CGR_BUFFER_PLAN, which has one for each
 * kind of layer. It is made for the library's own kernels, and opaque: its layout is not part of the interface. To be compared,
 * sized and measured; engines with kernels of their own want cgr_metadata_build, or CGR_BUFFER_SLOT_MAPPING and the like.
 *
 * Requests with at most line_query_len new tokens are the line: one tile for each head block (the query heads of one KV head, or
 * of a part of them, that a kernel takes together), laid end to end and cut into num_parts stretches of equal cost. The other
 * requests are the queue: tiles of queue_tile_q new tokens, that are taken one by one, the costliest first. KV is counted in
 * tiles of line_tile_kv or queue_tile_kv tokens. Costs are in any unit; those of all requests of the line, times head_blocks, are at
 * most 2^62. So many new tokens, however they are spread over so many
 * requests, make at most 2^31 - 1 tiles, all head blocks counted. */
typedef struct cgr_plan_input {
  uint32_t size;
  int32_t num_requests;      /* 0 .. 2^24 */
  const int32_t *query_lens; /* [num_requests] new tokens, 0 or more; at most 2^31 - 65 in all */
  const int32_t *seq_lens;   /* [num_requests] tokens in the cache, the new ones included; at most 2^30 */
  int32_t num_parts;         /* CTAs that the plan is for, 1 .. 4096; the runtime takes what the device holds at once */
  int32_t head_blocks;       /* 1 .. 1024; 0: 1 */
  int32_t line_query_len;    /* 1 .. 4096; 0: 1 */
  int32_t line_tile_kv;      /* 1 .. 4096; 0: 64 */
  int32_t cost_tile;         /* of a tile of the line, besides its KV tiles, 0 .. 2^20; with cost_kv 0: 2 */
  int32_t cost_kv;           /* of a KV tile, 1 .. 2^20; 0: 1 */
  int32_t snap;              /* a stretch ends where a tile does when that is no further away, 0 .. 2^20 */
  int32_t queue_tile_q;      /* 1 .. 4096; 0: 64 */
  int32_t queue_tile_kv;     /* 1 .. 4096; 0: 64 */
  int32_t window_left;       /* keys that a query sees, its own included; 0: all */
  int32_t window_right;      /* keys after its own, with `bidirectional`; 0: all */
  int32_t bidirectional;     /* not 0: a query also sees keys after its own */
  int32_t max_splits;        /* 1 .. 256: batch-invariant, a tile of the line is split at its own borders, into that many splits
                                at most, and tiles of the queue are whole; 0: tiles are split where stretches end */
} cgr_plan_input;
#define CGR_PLAN_INPUT_INIT { (uint32_t)sizeof(cgr_plan_input), 0, NULL, NULL, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }

/* Bytes of the plan of a batch; they follow from the numbers of requests and of new tokens (query_lens), not from seq_lens.
 * Threads any · Capture ok · Sync never · Alloc never */
CGR_API cgr_status cgr_plan_size(const cgr_plan_input *input, size_t *plan_size);

/* `plan` is aligned to 16 bytes. All bytes that cgr_plan_size tells are written, unused ones as 0. Allocates scratch.
 * Threads any · Capture ok · Sync never · Alloc cold */
CGR_API cgr_status cgr_plan_build(const cgr_plan_input *input, void *plan, size_t plan_size);

/* -------------------------------------------------------------------------------------------------------------- metadata */

/* What a guard refused, on the device or in cgr_metadata_build. */
typedef enum cgr_guard_error {
  CGR_GUARD_NONE = 0,
  CGR_GUARD_SEQUENCE = 1, /* the slot is not the one that the device expects: the step ran without requests, and so do the steps
                             that were prepared before this was seen. value: the number in the slot */
  CGR_GUARD_PAGE = 2,     /* page `value` at (row, index) is outside the pool or reserved; the read-trash page was used, and what
                             the row's request sampled cannot be trusted: set its length back */
  CGR_GUARD_ROW = 3,      /* row `value` is out of range; the request ran with length 0 */
  CGR_GUARD_COUNT = 4,    /* more requests or tokens (`value`) than the step was launched for; it ran without requests */
  CGR_GUARD_LENGTH = 5,   /* sequence of `value` tokens, longer than max_seq_len; the request ran with length 0 */
  CGR_GUARD_CHANGE = 6    /* a malformed change record; it was dropped */
} cgr_guard_error;

/* Threads any · Capture ok · Sync never · Alloc never */
CGR_API const char *cgr_guard_error_name(cgr_guard_error error);

/* The first thing that a guard refused in a step. There may have been others, in other rows. */
typedef struct cgr_guard {
  int32_t error; /* cgr_guard_error */
  int32_t row;   /* -1: none */
  int32_t index;
  int32_t reserved;
  int64_t value;
} cgr_guard;

/* One group of cgr_metadata. */
typedef struct cgr_metadata_group {
  int32_t page_size; /* a power of two */
  int32_t read_trash_page, write_trash_page;
  int32_t reserved;
  int64_t num_pages;
  const int32_t *page_table; /* [max_rows + 1][page_table_stride]; row max_rows is not read */
  int64_t page_table_stride;
  int64_t *slot_mapping;     /* out, [padded_tokens]: page * page_size + offset; -1: write nothing */
  int32_t *kv_indptr;        /* out, [padded_requests + 1]: running sum of pages */
  int32_t *kv_last_page_len; /* out, [padded_requests]: tokens in the last page; 1 for empty requests */
} cgr_metadata_group;

/* The metadata of a step: what the persistent buffers of the same names hold after the prologue, padding included. The outputs
 * have room for the padded counts and are all required. */
typedef struct cgr_metadata {
  uint32_t size;
  int32_t num_requests;
  int32_t padded_requests, padded_tokens; /* at least the real counts */
  int32_t max_rows, max_seq_len, num_groups;
  int32_t reserved;
  const int32_t *rows;            /* [num_requests] */
  const int32_t *query_lens;      /* [num_requests] */
  const int32_t *tokens;          /* [sum of query_lens], ids or CGR_TOKEN_LAST; NULL: CGR_TOKEN_LAST for all */
  const int32_t *row_computed;    /* [max_rows] tokens in the cache before this step */
  const int32_t *row_last_tokens; /* [max_rows]; may be NULL when CGR_TOKEN_LAST is not used */
  const cgr_metadata_group *groups; /* [num_groups] */
  int32_t *input_ids;             /* out, [padded_tokens]; padding 0 */
  int32_t *positions;             /* out, [padded_tokens] position in the sequence; padding 0 */
  int32_t *query_start_loc;       /* out, [padded_requests + 1] running sum of query_lens; padding repeats the last value */
  int32_t *seq_lens;              /* out, [padded_requests] tokens in the cache, the new ones included; padding 0 */
  int32_t *request_rows;          /* out, [padded_requests]; padding max_rows */
  int32_t *logits_indices;        /* out, [padded_requests] a request's last token; 0 for padding and requests without tokens */
} cgr_metadata;
#define CGR_METADATA_INIT                                                                                                      \
  { (uint32_t)sizeof(cgr_metadata), 0, 0, 0, 0, 0, 0, 0, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, \
    NULL }

/* CGR_ERROR_STEP: a guard refused a row, page or length, as it would on the device. The outputs are complete, that request has
 * length 0 (a page: its token has slot -1), and the message names the first case.
 * Threads any · Capture ok · Sync never · Alloc never */
CGR_API cgr_status cgr_metadata_build(const cgr_metadata *metadata);

/* ------------------------------------------------------------------------------------------------------------ flashinfer */

/* The plans of FlashInfer's batch decode (DecodePlan) and of its batch prefill with a paged KV cache, FA2 path (PrefillPlan), which
 * also serves decode with tensor cores (fast_decode_plan): the same plan_info and the same content of the int workspace, word for
 * word, as include/flashinfer/attention/scheduler.cuh of flashinfer-ai/flashinfer fb28d7242b35. Words that FlashInfer leaves as
 * they were are 0 here.
 *
 * int workspace, i32 unless said otherwise, at the byte offsets that plan_info names, each aligned to 16 but kv_chunk_size:
 *     request_indices [tiles], qo_tile_indices [tiles] (prefill), kv_tile_indices [tiles],
 *     o_indptr (decode [tiles + 1], of which B + 1 are used; prefill [B + 1]), kv_chunk_size [1] in tokens,
 *     total_num_rows [1] (prefill with a graph), merge_indptr [total_num_rows + 1] (prefill, split), block_valid_mask u8 [tiles]
 *     (split). `tiles` is padded_batch_size.
 * float workspace, fp32, when split: v [num_q_heads][tiles][cta_tile_q][head_dim], then s [num_q_heads][tiles][cta_tile_q];
 * cta_tile_q is 1 for decode.
 *
 * With `graph` not 0 (enable_cuda_graph) sizes, offsets and plan_info follow from the input without its arrays, so that a captured
 * graph's addresses and launches hold for every batch. Without it they follow from the lengths.
 *
 * Different from FlashInfer on purpose, where it goes wrong: decode with a graph counts an empty request as a tile when it looks
 * for the chunk size (FlashInfer overruns its arrays in such batches; wherever it does not, the plans are equal);
 * num_requests 0 (a division by zero), a graph with total_num_rows below num_requests - 1 (an unsigned wrap) and qo_indptr above
 * total_num_rows (an overrun) are refused, as are numbers that do not fit in 32 bits. With uniform_q_len a request may also have
 * no rows. With disable_split_kv kv_chunk_size is -page_size, as in FlashInfer: nobody reads it.
 *
 * Requests from *live_requests on are padding: they count as 0 pages and 0 rows, whatever the arrays hold there. */
typedef struct cgr_flashinfer_decode_input {
  uint32_t size;
  int32_t num_requests;         /* B, padding included: 1 .. 4096 */
  const int32_t *kv_indptr;     /* [num_requests + 1] running sum of pages; may begin above 0 */
  const int32_t *live_requests; /* [1]; NULL: all are live */
  int32_t *status;              /* out, [1], of enqueue: a cgr_status (see there); NULL: nowhere. Build does not use it */
  int32_t num_q_heads;          /* 1 .. 1024, a multiple of num_kv_heads */
  int32_t num_kv_heads;
  int32_t head_dim;                  /* 1 .. 65536 */
  int32_t page_size;                 /* tokens, 1 .. 65536; pages of a request * page_size are at most 2^31 - 1 */
  int32_t num_multiprocessors;       /* 1 .. 4096 */
  int32_t blocks_per_multiprocessor; /* 1 .. 64: occupancy of the compiled decode kernel (num_blocks_per_sm) */
  int32_t graph;                     /* not 0: enable_cuda_graph */
  int32_t reserved;                  /* 0 */
  uint64_t float_workspace_bytes;    /* that the caller has; 0: not checked */
} cgr_flashinfer_decode_input;
#define CGR_FLASHINFER_DECODE_INPUT_INIT \
  { (uint32_t)sizeof(cgr_flashinfer_decode_input), 0, NULL, NULL, NULL, 0, 0, 0, 0, 0, 0, 0, 0, 0 }

typedef struct cgr_flashinfer_prefill_input {
  uint32_t size;
  int32_t num_requests;         /* B, padding included: 1 .. 4096 */
  const int32_t *qo_indptr;     /* [num_requests + 1] running sum of rows (new tokens), from 0. NULL: every request has
                                   uniform_q_len rows (0: one), padding too, as decode with tensor cores has */
  const int32_t *kv_indptr;     /* [num_requests + 1] running sum of pages; may begin above 0 */
  const int32_t *live_requests; /* [1]; NULL: all are live */
  int32_t *status;              /* out, [1], of enqueue: a cgr_status (see there); NULL: nowhere. Build does not use it */
  int32_t total_num_rows;       /* rows, with a graph the most there can be; 0 .. 2^24 */
  int32_t num_q_heads;          /* 1 .. 1024, a multiple of num_kv_heads */
  int32_t num_kv_heads;
  int32_t head_dim_qk, head_dim_vo; /* 1 .. 65536 */
  int32_t page_size;                /* tokens, 1 .. 65536; pages of a request * page_size are at most 2^31 - 1 */
  int32_t kv_dtype_bytes;           /* 1 .. 4; 0: 2 */
  int32_t window;                   /* keys that a query sees, its own included: window_left + 1; 0: all */
  int32_t fixed_split_size;         /* pages of a chunk; 0: searched for. Times page_size at most 2^31 - 1 */
  int32_t disable_split_kv;         /* not 0: a request's KV is one chunk */
  int32_t force_split_kv;           /* not 0, with a graph and fixed_split_size: split_kv is 1 even where no request has two
                                       chunks (FlashInfer looks at the lengths), so that plan_info does not depend on them.
                                       Enqueue needs it */
  int32_t num_colocated_ctas;  /* of a decode kernel beside it, 0 or more */
  int32_t uniform_q_len;       /* with a graph: rows of every request that has any, 0 .. 2^24; 0: they differ */
  int32_t num_multiprocessors; /* 1 .. 4096 */
  int32_t compute_capability;  /* 80, 90, ...; 0: 90 */
  int32_t shared_memory;       /* bytes that a block may have (sharedMemPerBlockOptin); 0: 232448, of compute capability 9.0 */
  int32_t graph;               /* not 0: enable_cuda_graph */
  int32_t reserved;            /* 0 */
  uint64_t float_workspace_bytes; /* that the caller has; 0: not checked */
} cgr_flashinfer_prefill_input;
#define CGR_FLASHINFER_PREFILL_INPUT_INIT                                                                                       \
  { (uint32_t)sizeof(cgr_flashinfer_prefill_input), 0, NULL, NULL, NULL, NULL, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, \
    0, 0 }

/* What FlashInfer's plan functions return, and the workspaces that the plan takes. */
typedef struct cgr_flashinfer_plan {
  uint32_t size;
  int32_t num_info;    /* 10 of decode, 15 of prefill */
  int64_t info[16];    /* plan_info in the order of ToVector; the rest is 0 */
  uint64_t int_bytes;  /* of the int workspace, and of a page-locked copy if the caller keeps one */
  uint64_t float_bytes;
} cgr_flashinfer_plan;
#define CGR_FLASHINFER_PLAN_INIT { (uint32_t)sizeof(cgr_flashinfer_plan), 0, { 0 }, 0, 0 }

/* The plan without its content. The arrays are host memory; with a graph they are not read and may be NULL, but for
 * fixed_split_size without force_split_kv. A float workspace that is too small is refused, with the bytes that it takes.
 * Threads any · Capture ok · Sync never · Alloc never */
CGR_API cgr_status cgr_flashinfer_decode_size(const cgr_flashinfer_decode_input *input, cgr_flashinfer_plan *plan);
CGR_API cgr_status cgr_flashinfer_prefill_size(const cgr_flashinfer_prefill_input *input, cgr_flashinfer_plan *plan);

/* The plan on the host. Writes the first plan->int_bytes of `int_workspace` (aligned to 16), all of them; `plan` may be NULL. On an
 * error nothing is written. CGR_ERROR_INVALID_ARGUMENT also for a workspace that is too small (the message has the bytes that it
 * takes) and, with a graph and fixed_split_size, for more tiles than the graph was made for.
 * Threads any · Capture ok · Sync never · Alloc never */
CGR_API cgr_status cgr_flashinfer_decode_build(const cgr_flashinfer_decode_input *input, void *int_workspace, size_t int_bytes,
                                               cgr_flashinfer_plan *plan);
CGR_API cgr_status cgr_flashinfer_prefill_build(const cgr_flashinfer_prefill_input *input, void *int_workspace, size_t int_bytes,
                                                cgr_flashinfer_plan *plan);

/* The same plan by one kernel, with `graph` not 0: arrays, status and `int_workspace` are memory of the device, and are read and
 * written when it runs, so that lengths may change from replay to replay. Lengths that build would refuse give a plan without
 * tiles (all bytes 0) and *status CGR_ERROR_INVALID_ARGUMENT, else CGR_OK. The first call on a device loads the kernel: make it
 * outside of captures.
 * Threads any · Capture adds · Sync never · Alloc never */
CGR_API cgr_status cgr_flashinfer_decode_enqueue(cgr_device *device, const cgr_flashinfer_decode_input *input, void *int_workspace,
                                                 size_t int_bytes, cudaStream_t stream);
CGR_API cgr_status cgr_flashinfer_prefill_enqueue(cgr_device *device, const cgr_flashinfer_prefill_input *input,
                                                  void *int_workspace, size_t int_bytes, cudaStream_t stream);

/* Two levels for prefixes that requests share (MultiLevelCascadeAttentionWrapper, flashinfer/cascade.py): the shared level is a
 * prefill without a mask over groups, a group being one long request with the rows of all its requests and the prefix as its KV;
 * the unique level has every request with the rest of its pages, and the qo_indptr of the batch. Outputs of both are merged.
 * Groups are neighbours in the batch. New tokens come after the prefix. */
typedef struct cgr_flashinfer_cascade {
  uint32_t size;
  int32_t num_requests, num_groups; /* 1 .. 4096, padding included */
  int32_t page_size;                /* tokens, 1 .. 65536 */
  const int32_t *qo_indptr;         /* [num_requests + 1], from 0 */
  const int32_t *kv_indptr;         /* [num_requests + 1] running sum of all pages of a request, from 0 */
  const int32_t *kv_last_page_len;  /* [num_requests] tokens in the last page, 1 .. page_size */
  const int32_t *kv_indices;        /* [kv_indptr[num_requests]] pages; NULL: indices are not wanted */
  const int32_t *group_start;       /* [num_groups + 1] a group's first request; from 0 to num_requests, groups may be empty */
  const int32_t *prefix_pages;      /* [num_groups] full pages that the group's requests begin with; 0: none */
  int32_t *shared_qo_indptr, *shared_kv_indptr; /* out, [num_groups + 1] */
  int32_t *shared_last_page_len;                /* out, [num_groups]: page_size; 1 without a prefix */
  int32_t *shared_kv_indices;                   /* out, at most as many as kv_indices; NULL without them */
  int32_t *unique_kv_indptr;                    /* out, [num_requests + 1] */
  int32_t *unique_last_page_len;                /* out, [num_requests]; 1 without pages */
  int32_t *unique_kv_indices;                   /* out, at most as many as kv_indices; NULL without them */
} cgr_flashinfer_cascade;
#define CGR_FLASHINFER_CASCADE_INIT                                                                                            \
  { (uint32_t)sizeof(cgr_flashinfer_cascade), 0, 0, 0, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, \
    NULL }

/* Writes the arrays of both levels. Refused are prefixes that reach into new tokens or, with kv_indices, that differ; a request
 * without rows and without pages may be in any group. On an error the content of the outputs is undefined.
 * Threads any · Capture ok · Sync never · Alloc never */
CGR_API cgr_status cgr_flashinfer_cascade_split(const cgr_flashinfer_cascade *cascade);

/* The same, and then the plan of each level: cgr_flashinfer_prefill_build of `input`, whose num_requests, arrays and page_size are
 * those of the level in place of its own. plans[0] and workspaces [0] are the shared level's.
 * Threads any · Capture ok · Sync never · Alloc never */
CGR_API cgr_status cgr_flashinfer_cascade_build(const cgr_flashinfer_cascade *cascade, const cgr_flashinfer_prefill_input *input,
                                                void *const int_workspaces[2], const size_t int_bytes[2],
                                                cgr_flashinfer_plan plans[2]);

#ifdef __cplusplus
}
#endif
#endif

/* FlashInfer's plans, on the host or on a device. Not included by cgr.h. */
#ifndef CGR_INTEROP_FLASHINFER_H
#define CGR_INTEROP_FLASHINFER_H

#include "cgr/device.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The plans of FlashInfer's batch decode (DecodePlan) and of its batch prefill with a paged KV cache, FA2 path (PrefillPlan),
 * which also serves decode with tensor cores (fast_decode_plan): the same plan_info and the same content of the int workspace,
 * bit for bit, as include/flashinfer/attention/scheduler.cuh. Words that FlashInfer leaves as they were are 0 here. On compute
 * capability 9.0 FlashInfer's backend "auto" takes another plan (fa3, PrefillSM90Plan): pass backend="fa2". Neither that one, nor
 * MLAPlan, nor TwoStageHolisticPlan (BatchAttention) is here.
 *
 * The decode plan is that of releases 0.6.18 to 0.7.2.post1. The prefill plan changed in 0.7.1, so `layout` must name the release
 * whose kernels run it; 0 is the older one, so that older callers keep their plans. Kernels of 0.7.1 and later read
 * block_valid_mask in every graph. A plan of the older layout that is not split has none: those kernels take other words for it,
 * and leave out rows without an error. */
typedef enum cgr_flashinfer_layout {
  CGR_FLASHINFER_V0_6_18 = 0, /* 0.6.18 to 0.7.0.post1 (flashinfer-ai/flashinfer fb28d7242b35): a mask if split */
  CGR_FLASHINFER_V0_7_1 = 1   /* 0.7.1 to 0.7.2.post1: a mask with `graph`, split or not, none without; fewer rows of partials */
} cgr_flashinfer_layout;

/* Name ("v0.7.1").
 * Threads any · Capture ok · Sync never · Alloc never */
CGR_API const char *cgr_flashinfer_layout_name(cgr_flashinfer_layout layout);

/* int workspace, i32 unless said otherwise, at the byte offsets that plan_info names, each aligned to 16 except kv_chunk_size:
 *     request_indices [tiles], qo_tile_indices [tiles] (prefill), kv_tile_indices [tiles],
 *     o_indptr (decode [tiles + 1], of which B + 1 are used; prefill [B + 1]), kv_chunk_size [1] in tokens,
 *     total_num_rows [1] (prefill with a graph), merge_indptr [total_num_rows + 1] (prefill, split), block_valid_mask u8 [tiles]
 *     (split; prefill as `layout` says). `tiles` is padded_batch_size.
 * float workspace, fp32, when split: v [rows][num_q_heads][head_dim], then s [rows][num_q_heads]. `rows` is tiles for decode; for
 * prefill tiles * cta_tile_q, since 0.7.1 divided by the query heads of a KV head and rounded up.
 *
 * With `graph` not 0 (enable_cuda_graph) sizes, offsets and plan_info follow from the input without its arrays, so that a
 * captured graph's addresses and launches hold for every batch. Without it they follow from the lengths.
 *
 * Different from FlashInfer on purpose, where it goes wrong: decode with a graph counts an empty request as a tile when it looks
 * for the chunk size (FlashInfer overruns its arrays in such batches; wherever it does not, the plans are equal);
 * num_requests 0 (a division by zero), a graph with total_num_rows below num_requests - 1 (an unsigned wrap) and qo_indptr above
 * total_num_rows (an overrun) are refused, as are numbers that do not fit in 32 bits. With uniform_q_len a request may also have
 * no rows. With disable_split_kv kv_chunk_size is -page_size, as in FlashInfer: no kernel reads it.
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
  int32_t window;                   /* keys that a query sees, its own included: window_left + 1; 0: all. For causal kernels,
                                       as FlashInfer plans: see `unmasked` */
  int32_t fixed_split_size;         /* pages of a chunk; 0: searched for. Times page_size at most 2^31 - 1 */
  int32_t disable_split_kv;         /* not 0: a request's KV is one chunk */
  int32_t force_split_kv;           /* not 0, with a graph and fixed_split_size: split_kv is 1 even where no request has two
                                       chunks (FlashInfer looks at the lengths), so that plan_info does not depend on them.
                                       Enqueue needs it */
  int32_t num_colocated_ctas;  /* of a decode kernel alongside it, 0 or more */
  int32_t uniform_q_len;       /* with a graph: rows of every request that has any, 0 .. 2^24; 0: they differ */
  int32_t num_multiprocessors; /* 1 .. 4096 */
  int32_t compute_capability;  /* 80, 90, ...; 0: 90 */
  int32_t shared_memory;       /* bytes that a block may have (sharedMemPerBlockOptin); 0: 232448, of compute capability 9.0 */
  int32_t graph;               /* not 0: enable_cuda_graph */
  int32_t reserved;            /* 0 */
  uint64_t float_workspace_bytes; /* that the caller has; 0: not checked, and it has plan->float_bytes */
  int32_t layout;   /* cgr_flashinfer_layout */
  int32_t unmasked; /* not 0: a query also sees keys after its own. A window is then refused, unless disable_split_kv is set:
                       where KV is split, FlashInfer's kernel counts a window's keys as if there were none after the query's own,
                       and leaves out keys. 0: with a window the kernel has to be causal */
} cgr_flashinfer_prefill_input;
#define CGR_FLASHINFER_PREFILL_INPUT_INIT                                                                                       \
  { (uint32_t)sizeof(cgr_flashinfer_prefill_input), 0, NULL, NULL, NULL, NULL, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, \
    0, 0, 0, 0 }

/* What FlashInfer's plan functions return, and the workspaces that the plan takes. In info, offsets in bytes:
 * decode   padded_batch_size, v_offset, s_offset, request_indices_offset, kv_tile_indices_offset, o_indptr_offset,
 *          block_valid_mask_offset, kv_chunk_size_ptr_offset, enable_cuda_graph, split_kv
 * prefill  padded_batch_size, total_num_rows, total_num_rows_offset, cta_tile_q, request_indices_offset, qo_tile_indices_offset,
 *          kv_tile_indices_offset, merge_indptr_offset, o_indptr_offset, kv_chunk_size_ptr_offset, v_offset, s_offset,
 *          block_valid_mask_offset, enable_cuda_graph, split_kv */
typedef struct cgr_flashinfer_plan {
  uint32_t size;
  int32_t num_info;    /* 10 of decode, 15 of prefill */
  int64_t info[16];    /* plan_info in the order of ToVector (below); the rest is 0 */
  uint64_t int_bytes;  /* of the int workspace, and of a page-locked copy if the caller keeps one */
  uint64_t float_bytes;
} cgr_flashinfer_plan;
#define CGR_FLASHINFER_PLAN_INIT { (uint32_t)sizeof(cgr_flashinfer_plan), 0, { 0 }, 0, 0 }

/* The plan without its content. The arrays are host memory; with a graph they are not read and may be NULL, unless
 * fixed_split_size comes without force_split_kv. A float workspace that is too small is refused, with the bytes that it takes.
 * Threads any · Capture ok · Sync never · Alloc never */
CGR_API cgr_status cgr_flashinfer_decode_size(const cgr_flashinfer_decode_input *input, cgr_flashinfer_plan *plan);
CGR_API cgr_status cgr_flashinfer_prefill_size(const cgr_flashinfer_prefill_input *input, cgr_flashinfer_plan *plan);

/* The plan on the host. Writes the first plan->int_bytes of `int_workspace` (aligned to 16), all of them; `plan` may be NULL.
 * On an error nothing is written. CGR_ERROR_INVALID_ARGUMENT also for a workspace that is too small (the message has the bytes
 * that it takes) and, with a graph and fixed_split_size, for more tiles than the graph was made for.
 * Threads any · Capture ok · Sync never · Alloc never */
CGR_API cgr_status cgr_flashinfer_decode_build(const cgr_flashinfer_decode_input *input, void *int_workspace, size_t int_bytes,
                                               cgr_flashinfer_plan *plan);
CGR_API cgr_status cgr_flashinfer_prefill_build(const cgr_flashinfer_prefill_input *input, void *int_workspace, size_t int_bytes,
                                                cgr_flashinfer_plan *plan);

/* The same plan by one kernel, with `graph` not 0: arrays, status and `int_workspace` are memory of the device, and are read
 * and written when it runs, so that lengths may change from replay to replay. Lengths that build would refuse give a plan
 * without tiles (all bytes 0), and *status is CGR_ERROR_INVALID_ARGUMENT; otherwise it is CGR_OK. The first call on a device
 * loads the kernel: make it outside of captures.
 * Threads any · Capture adds · Sync never · Alloc cold */
CGR_API cgr_status cgr_flashinfer_decode_enqueue(cgr_device *device, const cgr_flashinfer_decode_input *input,
                                                 void *int_workspace, size_t int_bytes, cudaStream_t stream);
CGR_API cgr_status cgr_flashinfer_prefill_enqueue(cgr_device *device, const cgr_flashinfer_prefill_input *input,
                                                  void *int_workspace, size_t int_bytes, cudaStream_t stream);

/* Two levels for prefixes that requests share (MultiLevelCascadeAttentionWrapper, flashinfer/cascade.py): the shared level is a
 * prefill over groups, without a mask: a group is one long request with the rows of all its requests and the prefix as its KV;
 * the unique level has every request with the rest of its pages, and the qo_indptr of the batch. Outputs of both are merged.
 * The requests of a group are neighbours in the batch. New tokens come after the prefix.
 *
 * Requests from *live_requests on are padding, as in the plans of one level, whatever the arrays and group_start say of them:
 * they have no rows and no pages in either level. Give the unique level's plan the same number. */
typedef struct cgr_flashinfer_cascade {
  uint32_t size;
  int32_t num_requests, num_groups; /* 1 .. 4096, padding included */
  int32_t page_size;                /* tokens, 1 .. 65536 */
  const int32_t *qo_indptr;         /* [num_requests + 1], from 0 */
  const int32_t *kv_indptr;         /* [num_requests + 1] running sum of all pages of a request, from 0 */
  const int32_t *kv_last_page_len;  /* [num_requests] tokens in the last page, 1 .. page_size */
  const int32_t *kv_indices;        /* [kv_indptr[num_requests]] pages; NULL: indices are not wanted */
  const int32_t *group_start;       /* [num_groups + 1] a group's first request; from 0 to num_requests, or with live_requests to
                                       any number from the live ones on. Groups may be empty */
  const int32_t *prefix_pages;      /* [num_groups] full pages that the group's requests begin with; 0: none */
  int32_t *shared_qo_indptr, *shared_kv_indptr; /* out, [num_groups + 1] */
  int32_t *shared_last_page_len;                /* out, [num_groups]: page_size; 1 without a prefix */
  int32_t *shared_kv_indices;                   /* out, at most as many as kv_indices; NULL without them */
  int32_t *unique_kv_indptr;                    /* out, [num_requests + 1] */
  int32_t *unique_last_page_len;                /* out, [num_requests]; 1 without pages */
  int32_t *unique_kv_indices;                   /* out, at most as many as kv_indices; NULL without them */
  int32_t max_indices; /* of enqueue: entries that kv_indices and the two arrays of pages have room for; 1 or more with them */
  int32_t reserved;    /* 0 */
  int32_t *status;     /* out, [1], of enqueue: CGR_OK, or CGR_ERROR_INVALID_ARGUMENT; NULL: nowhere */
  const int32_t *live_requests; /* [1]; NULL: all are live */
} cgr_flashinfer_cascade;
#define CGR_FLASHINFER_CASCADE_INIT                                                                                            \
  { (uint32_t)sizeof(cgr_flashinfer_cascade), 0, 0, 0, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, \
    NULL, 0, 0, NULL, NULL }

/* Writes the arrays of both levels. Refuses prefixes that reach into new tokens or, with kv_indices, that differ; a request
 * without rows and without pages may be in any group. On an error the content of the outputs is undefined.
 * Threads any · Capture ok · Sync never · Alloc never */
CGR_API cgr_status cgr_flashinfer_cascade_split(const cgr_flashinfer_cascade *cascade);

/* The same, and then the plan of each level: cgr_flashinfer_prefill_build of `input`, whose num_requests, live_requests,
 * arrays and page_size are replaced by those of the level. uniform_q_len is the unique level's; the rest is of both, one float
 * workspace included, which the levels use one after the other. A window is refused: a row attends to all of its prefix. plans[0]
 * and int_workspaces[0] are the shared level's; both plans have the size of the first. Messages name the level.
 * Threads any · Capture ok · Sync never · Alloc never */
CGR_API cgr_status cgr_flashinfer_cascade_build(const cgr_flashinfer_cascade *cascade, const cgr_flashinfer_prefill_input *input,
                                                void *const int_workspaces[2], const size_t int_bytes[2],
                                                cgr_flashinfer_plan plans[2]);

/* The arrays of both levels by one kernel, from device memory, which is read and written when it runs: the plan of each level is
 * then cgr_flashinfer_prefill_enqueue of its arrays, after this on the stream, without a window in either level, and with
 * uniform_q_len for the unique level alone; set `unmasked` for the shared one. What split refuses gives levels without requests
 * (sums of 0, last pages of 1) and a *status that says so. The first call on a device loads the kernel: make it outside of
 * captures.
 * Threads any · Capture adds · Sync never · Alloc cold */
CGR_API cgr_status cgr_flashinfer_cascade_enqueue(cgr_device *device, const cgr_flashinfer_cascade *cascade, cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif

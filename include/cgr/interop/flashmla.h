/* The tile scheduler metadata of FlashMLA's kernels, on the host or on a device. Not included by cgr.h. */
#ifndef CGR_INTEROP_FLASHMLA_H
#define CGR_INTEROP_FLASHMLA_H

#include "cgr/device.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The layouts of FlashMLA's tile scheduler metadata: 8 words for each part (a CTA, or a few that work together). Each is named
 * here by its struct and commit, whatever FlashMLA has made since.
 * CURRENT, struct DecodingSchedMeta of csrc/params.h at deepseek-ai/FlashMLA 9241ae3ef9ba: begin_req_idx, end_req_idx (the
 * last one), begin_block_idx, end_block_idx (one past the last), begin_split_idx, is_first_req_splitted, is_last_req_splitted,
 * and padding.
 * V1, csrc/smxx/get_mla_metadata.cu at 1408756a88e5: begin_idx, begin_block_idx, end_idx, end_block_idx,
 * begin_n_split_idx, and three unused words.
 * A third layout is not served: that of the dense FP8 kernels in vLLM's fork (csrc/extension/sm90/dense_fp8) and in sgl-flash-mla.
 * Its begin and end are in tokens, and an empty request has no block. V1 looks like it, and is wrong for those kernels. */
typedef enum cgr_flashmla_layout { CGR_FLASHMLA_CURRENT = 0, CGR_FLASHMLA_V1 = 1 } cgr_flashmla_layout;

/* Threads any · Capture ok · Sync never · Alloc never */
CGR_API const char *cgr_flashmla_layout_name(cgr_flashmla_layout layout);

/* A decode batch for FlashMLA's kernels. The fields before the arrays are the key: sizes and the launch depend on it alone.
 *
 * Dense: a request attends to seq_lens[i] tokens. Sparse, topk above 0: to topk tokens, or topk_lens[i] of them, and to
 * extra_topk (or extra_topk_lens[i]) of a second cache after those, rounded up to a block. A request without tokens still
 * counts as one block and the fixed overhead, as upstream: the part that has it writes its zeros. So padding costs balance,
 * unless live_requests says how many requests there are: those after them get no part and no split, and FlashMLA's combine
 * kernel writes their zeros.
 *
 * A length is at most M = min(2^30, (2^29 / num_requests - fixed_overhead) * block_size), so that no sum wraps around, as
 * upstream's would. On the device, lengths outside 0 .. M (topk_lens: 0 .. topk) count as the nearest in it, live_requests
 * the same. */
typedef struct cgr_flashmla_input {
  uint32_t size;
  int32_t layout;                 /* cgr_flashmla_layout */
  int32_t num_requests;           /* B, padding included, 1 .. 4096 */
  int32_t num_parts;              /* 1 .. 1024; 0: as FlashMLA's own calls set it, from the next six fields, which otherwise may
                                     be 0, except query_len; the host device has no compute_capability */
  int32_t num_multiprocessors;    /* of the GPU, 1 .. 1024 */
  int32_t compute_capability;     /* 90 .. 109; dense: 90 .. 99 */
  int32_t query_len;              /* query tokens of each request, 1 .. 65536 */
  int32_t num_q_heads;            /* a multiple of num_kv_heads; sparse CURRENT: 64 or 128 */
  int32_t num_kv_heads;           /* sparse CURRENT: 1 */
  int32_t qk_head_dim;            /* 512 or 576; only used for sparse CURRENT with 128 heads on 100 .. 109 */
  int32_t block_size;             /* tokens of a block, 1 .. 65536; 0: 64, as in all kernels of FlashMLA */
  int32_t fixed_overhead;         /* cost of a request in blocks, 1 .. 64; 0: the kernel's own where parts are derived, else 5 */
  int32_t topk;                   /* 0: dense */
  int32_t extra_topk;             /* sparse CURRENT; 0: no second cache */
  const int32_t *live_requests;   /* [1] 0 .. num_requests; NULL: all are live */
  const int32_t *seq_lens;        /* [num_requests]; dense, else NULL */
  const int32_t *topk_lens;       /* [num_requests]; sparse CURRENT; NULL: all are topk */
  const int32_t *extra_topk_lens; /* [num_requests]; with extra_topk; NULL: all are extra_topk */
} cgr_flashmla_input;
#define CGR_FLASHMLA_INPUT_INIT                                                                                                \
  { (uint32_t)sizeof(cgr_flashmla_input), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, NULL, NULL, NULL, NULL }

/* Parts, and bytes of the metadata: tile_scheduler_metadata i32 [num_parts][8] first, then num_splits i32 [num_requests + 1]
 * at byte 32 * num_parts. num_splits is a running sum from 0: request i has splits num_splits[i] .. num_splits[i + 1] - 1, and a
 * part's split of its first request is the begin_split_idx-th of them. `num_parts` may be NULL. The arrays are not read.
 * Threads any · Capture ok · Sync never · Alloc never */
CGR_API cgr_status cgr_flashmla_size(const cgr_flashmla_input *input, int32_t *num_parts, size_t *bytes);

/* From host arrays. `metadata` is aligned to 32 bytes. All words are the ones that upstream's kernel writes for the live
 * requests; those that it never writes are 0. Parts without work begin at request num_requests, by which kernels know them. Their
 * other words are upstream's too, even begin_block_idx, which upstream reads past the end of an array: the last block of request
 * 0.
 * Threads any · Capture ok · Sync never · Alloc never */
CGR_API cgr_status cgr_flashmla_build(const cgr_flashmla_input *input, void *metadata, size_t bytes);

/* The same by one kernel on `stream`: arrays and `metadata` are memory of the device, and are read and written when it runs.
 * The first call on a device loads the kernel, and must not be inside a capture.
 * Threads any · Capture adds · Sync never · Alloc cold */
CGR_API cgr_status cgr_flashmla_enqueue(cgr_device *device, const cgr_flashmla_input *input, void *metadata, size_t bytes,
                                        cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif

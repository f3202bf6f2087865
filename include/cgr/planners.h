/* The planners without a runtime: the attention plan and the metadata of a step, from host arrays, and what other projects'
 * attention kernels want planned, on the host or on a device. For engines with kernels of their own, and for tests. */
#ifndef CGR_PLANNERS_H
#define CGR_PLANNERS_H

#include "cgr/device.h"

#ifdef __cplusplus
extern "C" {
#endif

/* In an array of tokens, including cgr_batch.tokens: the token that the row's last step sampled, which is on the device. Refused
 * if there is none: in a new row, after a partial chunk, after cgr_request_set_length. Values below it are reserved. */
enum { CGR_TOKEN_LAST = -1 };

/* ------------------------------------------------------------------------------------------------------------------ plan */

/* The native attention plan of a batch, for layers that are alike: part of the content of CGR_BUFFER_PLAN, which has one for each
 * kind of layer. It is made for the library's own kernels, and opaque: its layout is not part of the interface. It is here
 * to be compared, sized and measured; engines with kernels of their own want cgr_metadata_build, or
 * CGR_BUFFER_SLOT_MAPPING and the like.
 *
 * Requests with at most decode_query_len new tokens are the decode section: one tile for each head block (the query heads of one
 * KV head, or some of them, that a kernel takes together), one after the other, cut into num_parts parts of equal cost. The other
 * requests are the prefill queue: tiles of prefill_tile_q new tokens, taken one by one, the costliest first; if there are fewer
 * than num_parts (and max_splits is not set), they are cut into splits and taken in the order of the batch. KV is counted in
 * tiles of decode_tile_kv or prefill_tile_kv tokens. Costs are in any unit; those of all requests of the decode section, times
 * head_blocks, are at most 2^62. However the new tokens are spread over the requests, they make at most 2^31 - 1 tiles, all head
 * blocks counted. */
typedef struct cgr_plan_input {
  uint32_t size;
  int32_t num_requests;      /* 0 .. 2^24 */
  const int32_t *query_lens; /* [num_requests] new tokens, 0 or more; at most 2^31 - 65 in all */
  const int32_t *seq_lens;   /* [num_requests] tokens in the cache, the new ones included; at most 2^30 */
  int32_t num_parts;         /* CTAs that the plan is for, 1 .. 4096; the runtime takes what the device holds at once */
  int32_t head_blocks;       /* 1 .. 1024; 0: 1 */
  int32_t decode_query_len;  /* 1 .. 4096; 0: 1 */
  int32_t decode_tile_kv;    /* 1 .. 4096; 0: 64 */
  int32_t cost_tile;         /* of a tile of the decode section, besides its KV tiles, 0 .. 2^20; with cost_kv 0: 2 */
  int32_t cost_kv;           /* of a KV tile, 1 .. 2^20; 0: 1 */
  int32_t snap;              /* a part ends where a tile does if that is no further away than this, 0 .. 2^20; parts of equal
                                tiles may be lengthened by at most this, or twice this if no tile is then cut, and never by more
                                than 1/20 */
  int32_t prefill_tile_q;    /* 1 .. 4096; 0: 64 */
  int32_t prefill_tile_kv;   /* 1 .. 4096; 0: 64 */
  int32_t window_left;       /* keys that a query sees, its own included; 0: all */
  int32_t window_right;      /* keys after its own, with `bidirectional`; 0: all */
  int32_t bidirectional;     /* not 0: a query also sees keys after its own */
  int32_t max_splits;        /* 1 .. 256: batch-invariant: a tile of the decode section is split at its own borders, into at most
                                that many splits, and tiles of the prefill queue are whole; 0: tiles are split where parts end */
} cgr_plan_input;
#define CGR_PLAN_INPUT_INIT { (uint32_t)sizeof(cgr_plan_input), 0, NULL, NULL, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }

/* Bytes of the plan of a batch; they follow from the numbers of requests and of new tokens (query_lens), not from seq_lens.
 * Threads any · Capture ok · Sync never · Alloc never */
CGR_API cgr_status cgr_plan_size(const cgr_plan_input *input, size_t *plan_size);

/* `plan` is aligned to 16 bytes. Writes all the bytes that cgr_plan_size returned; unused bytes are 0. Allocates scratch.
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
  CGR_GUARD_COUNT = 4,    /* index 0 or 1: more requests or tokens (`value`) than the step was launched for. index 2 + i:
                             query_start_loc[i] is `value`, which does not start at 0, decreases, gives a request more tokens than
                             the kernels were launched for, or does not end at the step's. The step ran without requests: set
                             their lengths back */
  CGR_GUARD_LENGTH = 5,   /* sequence of `value` tokens, longer than max_seq_len (or max_other_lens); the request ran
                             with length 0 */
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
  int32_t page_size; /* tokens, at least 1 */
  int32_t read_trash_page, write_trash_page;
  int32_t reserved;
  int64_t num_pages;
  const int32_t *page_table; /* [max_rows + 1][page_table_stride]; row max_rows is not read */
  int64_t page_table_stride;
  int64_t *slot_mapping;     /* out, [padded_tokens]: page * page_size + offset; -1: write nothing */
  int32_t *kv_indptr;        /* out, [padded_requests + 1]: running sum of pages */
  int32_t *kv_last_page_len; /* out, [padded_requests]: tokens in the last page; 1 for empty requests */
} cgr_metadata_group;

/* What else some kernels want of one group: the on-demand buffers of the same names (cgr_buffer in cgr.h). Each may be NULL.
 * kv_indices has the pages of one request after the other, as many as kv_indptr ends with; the rest is not written. block_table
 * has the same pages in rows, then read_trash_page to a row's end. Fields named prefill_* are from the first prefill on. */
typedef struct cgr_metadata_on_demand {
  int32_t *kv_indices;         /* out */
  int64_t max_kv_indices;      /* room for this many */
  int32_t *block_table;        /* out, [padded_requests][block_table_stride] */
  int64_t block_table_stride;  /* at least ceil(max_seq_len / page_size) */
  int32_t *prefill_kv_indptr;  /* out, [padded_requests + 1]: of kv_indptr; padding repeats the last value */
  int32_t *prefill_kv_last_page_len; /* out, [padded_requests]: of kv_last_page_len; padding 1 */
} cgr_metadata_on_demand;

/* The metadata of a step: what the persistent buffers of the same names hold after the prologue, padding included. The outputs
 * have room for the padded counts and are all required, down to logits_indices. */
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
  /* The rest may be 0 and NULL: not wanted. */
  const cgr_metadata_on_demand *on_demand; /* [num_groups] */
  int32_t *kv_start_loc;          /* out, [padded_requests + 1] running sum of seq_lens */
  int32_t *context_lens;          /* out, [padded_requests] tokens in the cache before this step; padding 0 */
  int32_t *context_start_loc;     /* out, [padded_requests + 1] running sum of context_lens */
  int32_t *prefill_query_start_loc; /* out, [padded_requests + 1] query_start_loc from the first prefill on, less its first
                                       value; padding repeats the last one. All outputs of prefills need a reorder_threshold */
  int32_t *num_decodes;           /* out, [1] requests before the first prefill, as CGR_COUNT_DECODES */
  int32_t reorder_threshold;      /* most new tokens of a decode; batches then have their decodes first. 0: no request is one */
  int32_t reserved_end;
} cgr_metadata;
#define CGR_METADATA_INIT                                                                                                      \
  { (uint32_t)sizeof(cgr_metadata), 0, 0, 0, 0, 0, 0, 0, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, \
    NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, 0 }

/* CGR_ERROR_STEP: a guard refused a row, page or length, as it would on the device. The outputs are complete, that request has
 * length 0 (a page: its token has slot -1), and the message names the first case.
 * Threads any · Capture ok · Sync never · Alloc never */
CGR_API cgr_status cgr_metadata_build(const cgr_metadata *metadata);

/* ------------------------------------------------------------------------------------------------------ FlashAttention-3 */

/* The scheduler metadata of FlashAttention-3's kernels for batches of varied lengths, compute capability 9.0: what
 * mha_fwd_get_scheduler_metadata derives, and prepare_varlen_num_blocks writes, bit for bit (hopper/flash_api.cpp,
 * heuristics.h, tile_size.h and flash_prepare_scheduler.cu). FlashAttention-4 has other metadata, which is not here. */
typedef enum cgr_fa3_layout {
  CGR_FA3_UPSTREAM = 0, /* Dao-AILab/flash-attention at 0251105a2fb1 (August 2026) */
  CGR_FA3_VLLM = 1      /* vllm-project/flash-attention at 617264c1c795 (August 2026), built as its CMakeLists.txt does; the same
                           since April 2026, as in vLLM 0.25. Before that FP8 has other tiles: give tile_m and tile_n */
} cgr_fa3_layout;

/* Name ("upstream"); static storage, never NULL.
 * Threads any · Capture ok · Sync never · Alloc never */
CGR_API const char *cgr_fa3_layout_name(cgr_fa3_layout layout);

/* Everything but the arrays belongs to the key: sizes, offsets and the launch follow from it alone, so a captured graph holds for
 * every batch. Give the attention kernel the same numbers. Keys and values of the step are in the cache before the kernel runs
 * (it does not append), and there is no left padding.
 *
 * The arrays are host memory for cgr_fa3_build, device memory for cgr_fa3_enqueue. A padded request has length 0 in both: it has
 * no work, and changes nothing for the others, except their places if the layout sorts. */
typedef struct cgr_fa3_input {
  uint32_t size;
  int32_t layout;              /* cgr_fa3_layout */
  int32_t num_requests;        /* B, padded: 1 .. 4096. Above 992 no request is split, and every 992 are sorted by themselves */
  int32_t max_requests;        /* Bmax, which the buffer is made for: B .. 4096; 0: B */
  int32_t num_tokens;          /* T, padded new tokens, for the size of the partials: 0 .. 2^24; 0: the partials are the caller's
                                  business, and their sizes 0 */
  int32_t num_q_heads;         /* H: 1 .. 1024, a multiple of num_kv_heads */
  int32_t num_kv_heads;
  int32_t head_dim;            /* of q and k, 8 .. 256: a multiple of 8, of 16 for fp8 */
  int32_t head_dim_v;          /* D: 8 .. 512, as head_dim; 0: head_dim */
  int32_t dtype;               /* of q, k and v: CGR_DTYPE_FP16, _BF16 or _FP8_E4M3 */
  int32_t page_size;           /* tokens; 0: k and v have no pages */
  int32_t max_query_len;       /* new tokens of a request at most, 1 .. 2^30 */
  int32_t max_seq_len;         /* tokens in the cache at most, the new ones included: 0 .. 2^30 */
  int32_t causal;              /* not 0: a query sees no key after its own */
  int32_t window_left;         /* W, keys that a query sees, its own included: FlashAttention's window_size_left is W - 1; 0: all,
                                  FlashAttention's -1 */
  int32_t window_right;        /* keys after its own, without `causal`; 0: all, FlashAttention's -1 */
  int32_t attention_chunk;     /* C: a query at p sees no key before p / C * C, nor C past that; 0: all. CGR_FA3_UPSTREAM only */
  int32_t softcap;             /* not 0: logits are capped */
  int32_t pack_gqa;            /* 1: query heads of a KV head are rows of one tile; -1: they are not; 0: as FlashAttention's
                                  heuristic says. Its kernels pack in any case when num_splits > 1, or when pages do not hold
                                  whole tiles: then a plan with -1 is not for them */
  int32_t num_splits;          /* most splits of a request, 1 .. 255; 1: batch-invariant; 0: as FlashAttention's heuristic says,
                                  which is not for graphs: it follows max_query_len, max_seq_len and the SMs, and so would the
                                  partials. FlashAttention's product wraps around from 2^31 bytes of keys and values of a head
                                  on (4 Mi tokens of 128 in bf16), and may then choose another number; this one does not */
  int32_t num_multiprocessors; /* SMs that the attention kernel may use, 1 .. 4096 */
  int32_t tile_m, tile_n;      /* rows and keys of a tile, 16 .. 512, for kernels built with others; 0: FlashAttention's.
                                  Both or none */
  int32_t reserved;
  const int32_t *query_start_loc; /* [B + 1] running sum of new tokens */
  const int32_t *seq_lens;        /* [B] tokens in the cache, the new ones included */
  const int32_t *live_requests;   /* one word: requests from this on have length 0, whatever the arrays say; NULL: all are live */
} cgr_fa3_input;
#define CGR_FA3_INPUT_INIT                                                                                               \
  { (uint32_t)sizeof(cgr_fa3_input), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, NULL, NULL, NULL }

/* What follows from the key. A vector has roundup4(B) words; its place is in words from the start of the metadata, -1 if this key
 * has none. With `sort`, entry i of each vector is of the i-th request in sorted order, and batch_idx says which it is. */
typedef struct cgr_fa3_sizes {
  uint32_t size;
  int32_t used_words;             /* that FlashAttention knows of, the semaphore included */
  uint64_t metadata_bytes;        /* i32 [1 + roundup4(Bmax) * 4] */
  uint64_t partial_out_bytes;     /* fp32 [num_splits][H][T][D]; 0 when num_splits is 1 */
  uint64_t partial_lse_bytes;     /* fp32 [num_splits][H][T]; the same */
  int32_t num_splits;             /* the bound */
  int32_t tile_m, tile_n;
  int32_t pack_gqa;               /* 0 or 1, as the next four */
  int32_t is_causal, is_local;    /* which kernel runs: one with a window or chunks is local */
  int32_t sort;                   /* the request with the most work for its tiles first */
  int32_t head_swizzle;           /* heads that fit into L2 go together */
  int32_t at_num_splits;          /* splits of each request */
  int32_t at_num_m_blocks;        /* q tiles of each request, for one head; CGR_FA3_UPSTREAM only */
  int32_t at_seqlen_q;            /* rows of each request: new tokens times the packed heads; CGR_FA3_VLLM only */
  int32_t at_batch_idx;
  int32_t at_nheads_in_l2;
  int32_t at_semaphore;           /* one word, 0: the kernel's counter of tiles */
} cgr_fa3_sizes;
#define CGR_FA3_SIZES_INIT { (uint32_t)sizeof(cgr_fa3_sizes), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }

/* Reads no array.
 * Threads any · Capture ok · Sync never · Alloc never */
CGR_API cgr_status cgr_fa3_size(const cgr_fa3_input *input, cgr_fa3_sizes *sizes);

/* `metadata` is aligned to 16 bytes. All metadata_bytes are written: words that FlashAttention never writes, and those past the
 * used ones, are 0. Lengths must be within the key's limits. Where FlashAttention divides by 0, with no work at all in the batch,
 * num_splits is 1; its sums wrap around beyond 2^31 tiles, and these do not.
 * Threads any · Capture ok · Sync never · Alloc never */
CGR_API cgr_status cgr_fa3_build(const cgr_fa3_input *input, void *metadata, size_t bytes);

/* The same words by one kernel on `stream`. Arrays and `metadata` are read and written when it runs: a replay plans what is there
 * then. On the device, lengths below 0 count as 0, and those above the key's limits as the limit. The first call on a device
 * loads the kernel, and must not be inside a capture. num_splits 0 is refused: cgr_fa3_size tells the number.
 * Threads any · Capture adds · Sync never · Alloc cold */
CGR_API cgr_status cgr_fa3_enqueue(cgr_device *device, const cgr_fa3_input *input, void *metadata, size_t bytes,
                                   cudaStream_t stream);

/* ------------------------------------------------------------------------------------------------------------- FlashMLA */

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

/* ---------------------------------------------------------------------------------------------------------- block table */

/* What kernels like TRT-LLM-gen and XQA read, as vLLM's FlashInfer backend calls them: a table of pages in the order of the
 * batch, lengths and running sums of tokens. The fields before the arrays are the key.
 *
 * On the device, a request whose row or length is out of range is empty, and a page outside the pool is replaced by
 * read_trash_page. */
typedef struct cgr_block_table_input {
  uint32_t size;
  int32_t num_requests;           /* B, padding included, 1 .. 4096 */
  int32_t query_len;              /* query tokens of each request of the key, 1 .. 2^24 */
  int32_t max_seq_len;            /* tokens of the longest sequence that the key is for; B times that is below 2^31 */
  int32_t max_pages;              /* P: entries of a row that is written, at least max_seq_len / page_size rounded up */
  int32_t page_size;              /* 16, 32 or 64: what such kernels read */
  int32_t kv_layout;              /* CGR_LAYOUT_HND, the one that they read, or 0 */
  int32_t read_trash_page;        /* a page of the pool that may be read and means nothing */
  int32_t num_rows;               /* rows of page_table, one of padding included, 1 .. 2^20 + 1 */
  int32_t reserved;
  int64_t num_pages;              /* of the pool, below 2^31 */
  int64_t page_table_stride;      /* words from one row to the next, at least max_seq_len / page_size rounded up */
  const int32_t *page_table;      /* [num_rows][page_table_stride] */
  const int32_t *rows;            /* [num_requests] of page_table */
  const int32_t *seq_lens;        /* [num_requests] tokens in the cache, the new ones included */
  const int32_t *query_start_loc; /* [num_requests + 1] running sum of query tokens, at most query_len of each request; read up to
                                     the live ones */
  const int32_t *live_requests;   /* [1] 0 .. num_requests; NULL: all are live */
} cgr_block_table_input;
#define CGR_BLOCK_TABLE_INPUT_INIT                                                                                             \
  { (uint32_t)sizeof(cgr_block_table_input), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, NULL, NULL, NULL, NULL, NULL }

/* What follows from the key: where things are in the memory that is written, and the scalars that such kernels take. */
typedef struct cgr_block_table_layout {
  uint32_t size;
  int32_t query_len;      /* q_len_per_req */
  int32_t max_query_len;  /* max_q_len: the same */
  int32_t max_seq_len;    /* max_kv_len */
  size_t bytes;           /* of all */
  size_t block_table;     /* byte of i32 [num_requests][max_pages]: pages, then the read-trash page; padding the same */
  size_t seq_lens;        /* byte of i32 [num_requests]; padding 0 */
  size_t query_start_loc; /* byte of i32 [num_requests + 1]; padding repeats the last value */
  size_t kv_start_loc;    /* byte of i32 [num_requests + 1]: running sum of seq_lens; padding repeats the last value */
} cgr_block_table_layout;
#define CGR_BLOCK_TABLE_LAYOUT_INIT { (uint32_t)sizeof(cgr_block_table_layout), 0, 0, 0, 0, 0, 0, 0, 0 }

/* The arrays are not read.
 * Threads any · Capture ok · Sync never · Alloc never */
CGR_API cgr_status cgr_block_table_get_layout(const cgr_block_table_input *input, cgr_block_table_layout *layout);

/* From host arrays. `memory` is aligned to 16 bytes. Rows, lengths, pages and sums out of range are refused here. All words are
 * written.
 * Threads any · Capture ok · Sync never · Alloc never */
CGR_API cgr_status cgr_block_table_build(const cgr_block_table_input *input, void *memory, size_t bytes);

/* The same by one kernel on `stream`: arrays and `memory` are memory of the device, and are read and written when it runs. The
 * first call on a device loads the kernel, and must not be inside a capture.
 * Threads any · Capture adds · Sync never · Alloc cold */
CGR_API cgr_status cgr_block_table_enqueue(cgr_device *device, const cgr_block_table_input *input, void *memory, size_t bytes,
                                           cudaStream_t stream);

/* The two scales of such kernels. Q K^T is multiplied by q_scale * k_scale * softmax_scale, P V by v_scale / o_scale. q_scale,
 * k_scale and v_scale turn stored values into what they stand for; o_scale does so for an output that is stored as FP8, and is
 * 1 for others (0 is taken as 1). A captured graph keeps the scales of its recording.
 * Threads any · Capture ok · Sync never · Alloc never */
CGR_API double cgr_block_table_bmm1_scale(double q_scale, double k_scale, double softmax_scale);
CGR_API double cgr_block_table_bmm2_scale(double v_scale, double o_scale);

/* ------------------------------------------------------------------------------------------------------------ flashinfer */

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

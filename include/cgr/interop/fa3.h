/* The scheduler metadata of FlashAttention-3's kernels, on the host or on a device. Not included by cgr.h. */
#ifndef CGR_INTEROP_FA3_H
#define CGR_INTEROP_FA3_H

#include "cgr/device.h"

#ifdef __cplusplus
extern "C" {
#endif

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

#ifdef __cplusplus
}
#endif
#endif

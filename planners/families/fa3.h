/* FlashAttention-3's scheduler metadata: the arithmetic, compiled as C for the host and as CUDA for the device, so that both
 * write the same words. Read from hopper/flash_prepare_scheduler.cu of Dao-AILab/flash-attention at 0251105a2fb1 and of
 * vllm-project/flash-attention at 617264c1c795.
 *
 * A request has m tiles of rows (new tokens, times the query heads of a KV head when those are packed) and n tiles of keys. In a
 * batch of at most 992 requests that may be split, the work of all heads is spread over the SMs with a margin of 10 %,
 *
 *   blocks_per_sm = ceil(sum(m n) * 1.1f * heads / SMs),   splits = min(ceil(n / blocks_per_sm), bound), at least 1,
 *
 * and n becomes ceil(n / splits). Larger batches fill the SMs as they are. The product is of 32-bit floats, each operation
 * rounded to nearest as IEEE 754 says, in this order; there is no sum in it that a compiler could fuse. Upstream's kernel is
 * built with fast math, whose division may be off by 2 units in the last place: that is seen only where the quotient is as close
 * to a whole number, and with and without it upstream has written the same words in every record that there is. The sum itself is
 * in 64 bits.
 *
 * With sorting (upstream, unless it is local) the requests of each 992 stand in the order of falling n, or n tile_n - m tile_m
 * when the kernel is causal; requests that are equal in that keep their order. */
#ifndef CGR_PLANNERS_FAMILIES_FA3_H
#define CGR_PLANNERS_FAMILIES_FA3_H

#include <stdint.h>

#ifdef __CUDACC__
#define CGR__FA3_FN static __host__ __device__ __forceinline__
#else
#define CGR__FA3_FN static inline
#endif

#define CGR__FA3_CHUNK 992 /* requests that are planned, and sorted, together: 32 warps of 31 */

/* What follows from the key. */
typedef struct cgr__fa3_class {
  int32_t num_requests;
  int32_t tile_m, tile_n;
  int32_t packed_heads;   /* rows of a new token in a tile: 1 without packing */
  int32_t unpacked_heads; /* query heads of a KV head that are tiles of their own: 1 with packing */
  int32_t heads;          /* tiles side by side */
  int32_t is_causal, sort;
  int32_t num_splits, num_multiprocessors;
  int32_t max_query_len, max_seq_len;
  int32_t kv_tiles_in_l2;
  int32_t at_num_splits, at_num_m_blocks, at_seqlen_q, at_batch_idx, at_nheads_in_l2; /* words; -1: none */
  int32_t at_semaphore;                                                               /* from here on all words are 0 */
  int32_t num_words;
} cgr__fa3_class;

typedef struct cgr__fa3_request {
  int32_t query_len;
  int32_t m, n; /* tiles; n later of one split */
  int32_t splits;
} cgr__fa3_request;

CGR__FA3_FN int32_t cgr__fa3_limit(int64_t value, int32_t most) { return value < 0 ? 0 : value > most ? most : (int32_t)value; }

/* Request i from the words of the arrays, of which `live` count. */
CGR__FA3_FN cgr__fa3_request cgr__fa3_read(const cgr__fa3_class *c, int32_t i, int32_t live, int32_t start, int32_t end,
                                           int32_t seq_len) {
  cgr__fa3_request r = { 0, 0, 0, 1 };
  if (i >= live)
    return r;
  r.query_len = cgr__fa3_limit((int64_t)end - start, c->max_query_len);
  r.m = (r.query_len * c->packed_heads + c->tile_m - 1) / c->tile_m;
  r.n = (cgr__fa3_limit(seq_len, c->max_seq_len) + c->tile_n - 1) / c->tile_n;
  return r;
}

CGR__FA3_FN int cgr__fa3_may_split(const cgr__fa3_class *c) { return c->num_splits > 1 && c->num_requests <= CGR__FA3_CHUNK; }

/* 0 when no request has both new tokens and keys: upstream divides by it all the same. */
CGR__FA3_FN int32_t cgr__fa3_blocks_per_sm(const cgr__fa3_class *c, int64_t tiles) {
#ifdef __CUDA_ARCH__
  float heads = __fmul_rn(__fmul_rn(__ll2float_rn(tiles), 1.1f), __int2float_rn(c->heads));
  float blocks = __fdiv_rn(heads, __int2float_rn(c->num_multiprocessors));
#else
  float blocks = (float)tiles * 1.1f * (float)c->heads / (float)c->num_multiprocessors;
#endif
  if (blocks >= 2147483648.0f)
    return INT32_MAX;
  int32_t whole = (int32_t)blocks;
  return whole + ((float)whole < blocks);
}

/* `blocks_per_sm` is 0 without any work: then nothing is split. */
CGR__FA3_FN void cgr__fa3_split(const cgr__fa3_class *c, int32_t blocks_per_sm, cgr__fa3_request *r) {
  if (blocks_per_sm <= 0)
    return;
  int32_t splits = (int32_t)(((uint32_t)r->n + (uint32_t)blocks_per_sm - 1) / (uint32_t)blocks_per_sm);
  splits = splits < c->num_splits ? splits : c->num_splits;
  r->splits = splits > 1 ? splits : 1;
  r->n = (r->n + r->splits - 1) / r->splits;
}

/* Smaller keys come first, and no two are equal: the low half is the request's number in its 992. */
CGR__FA3_FN uint64_t cgr__fa3_sort_key(const cgr__fa3_class *c, const cgr__fa3_request *r, int32_t number) {
  int32_t work = c->is_causal ? r->n * c->tile_n - r->m * c->tile_m : r->n;
  return (uint64_t) ~((uint32_t)work ^ 0x80000000u) << 32 | (uint32_t)number;
}
CGR__FA3_FN int32_t cgr__fa3_sorted_number(uint64_t key) { return (int32_t)(uint32_t)key; }

/* As many heads as have their keys in L2, by powers of 2. */
CGR__FA3_FN int32_t cgr__fa3_heads_in_l2(const cgr__fa3_class *c, int32_t n) {
  int32_t heads = 16;
  while (heads > 1 && (int64_t)(n > 1 ? n : 1) * heads > c->kv_tiles_in_l2)
    heads /= 2;
  heads *= c->unpacked_heads;
  return heads < c->heads ? heads : c->heads;
}

/* Entry `at` of every vector. */
CGR__FA3_FN void cgr__fa3_put(const cgr__fa3_class *c, int32_t *metadata, int32_t at, int32_t request,
                              const cgr__fa3_request *r) {
  if (c->at_num_splits >= 0)
    metadata[c->at_num_splits + at] = r->splits;
  if (c->at_num_m_blocks >= 0)
    metadata[c->at_num_m_blocks + at] = r->m;
  if (c->at_seqlen_q >= 0)
    metadata[c->at_seqlen_q + at] = r->query_len * c->packed_heads;
  if (c->at_batch_idx >= 0)
    metadata[c->at_batch_idx + at] = request;
  if (c->at_nheads_in_l2 >= 0)
    metadata[c->at_nheads_in_l2 + at] = cgr__fa3_heads_in_l2(c, r->n);
}

/* An entry that rounds a vector up. */
CGR__FA3_FN void cgr__fa3_put_nothing(const cgr__fa3_class *c, int32_t *metadata, int32_t at) {
  if (c->at_num_splits >= 0)
    metadata[c->at_num_splits + at] = 0;
  if (c->at_num_m_blocks >= 0)
    metadata[c->at_num_m_blocks + at] = 0;
  if (c->at_seqlen_q >= 0)
    metadata[c->at_seqlen_q + at] = 0;
  if (c->at_batch_idx >= 0)
    metadata[c->at_batch_idx + at] = 0;
  if (c->at_nheads_in_l2 >= 0)
    metadata[c->at_nheads_in_l2 + at] = 0;
}

CGR__FA3_FN int32_t cgr__fa3_rounded(int32_t requests) { return (requests + 3) / 4 * 4; }

#endif

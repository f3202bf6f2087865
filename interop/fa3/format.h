/* FlashAttention-3's scheduler metadata: the arithmetic, compiled as C for the host and as CUDA for the device, so that both
 * write the same words. Read from hopper/flash_prepare_scheduler.cu of Dao-AILab/flash-attention at 0251105a2fb1 and of
 * vllm-project/flash-attention at 617264c1c795.
 *
 * A request has m tiles of rows (new tokens, times the query heads of a KV head when those are packed) and n tiles of keys. In a
 * batch of at most 992 requests that may be split, the work of all heads is spread over the SMs with a margin of 10 %,
 *
 *   blocks_per_sm = ceil(sum(m n) * 1.1f * heads / SMs),   splits = min(ceil(n / blocks_per_sm), bound), at least 1,
 *
 * and n becomes ceil(n / splits). Larger batches fill the SMs as they are. The product is computed in 32-bit floats, in this
 * order, each operation rounded to nearest as IEEE 754 says; it has no addition that a compiler could fuse. Upstream's kernel is
 * built with fast math, whose division may be off by 2 units in the last place: that shows only if the quotient is that close to
 * a whole number, and in every record of the tests upstream has written the same words with and without fast math. The sum itself
 * is in 64 bits.
 *
 * With sorting (upstream, unless it is local), each 992 requests are sorted by falling n, or by falling n tile_n - m tile_m when
 * the kernel is causal; requests that are equal in this keep their order. */
#ifndef CGR_INTEROP_FA3_FORMAT_H
#define CGR_INTEROP_FA3_FORMAT_H

#include <stdint.h>

#include "base/host_device.h"

#define CGR__FA3_CHUNK 992 /* requests that are planned, and sorted, together: 32 warps of 31 */

/* Divides numbers below 2^31 exactly, in two instructions where a GPU's division takes some 25: multiplies by
 * floor(2^(31 + l) / divisor) + 1 and shifts right by 31 + l, where 2^l is the first power of 2 that is not below the divisor. */
typedef struct cgr__fa3_divider {
  uint32_t multiplier, shift; /* of the product's high half */
} cgr__fa3_divider;

/* What follows from the key. */
typedef struct cgr__fa3_key {
  int32_t num_requests;
  int32_t tile_m, tile_n; /* 16 to 512 */
  cgr__fa3_divider by_tile_m, by_tile_n;
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
} cgr__fa3_key;

typedef struct cgr__fa3_request {
  int32_t query_len;
  int32_t m, n; /* tiles; in the end n is that of one split */
  int32_t splits;
} cgr__fa3_request;

/* For divisors from 2 to 2^31. */
CGR__HOST_DEVICE cgr__fa3_divider cgr__fa3_divide_by(uint32_t by) {
  cgr__fa3_divider d = { 0, 0 };
  while ((uint64_t)2 << d.shift < by)
    d.shift++; /* l - 1 */
  d.multiplier = (uint32_t)(((uint64_t)1 << (32 + d.shift)) / by + 1);
  return d;
}
CGR__HOST_DEVICE int32_t cgr__fa3_quotient(int32_t number, cgr__fa3_divider d) {
  return (int32_t)((uint32_t)((uint64_t)(uint32_t)number * d.multiplier >> 32) >> d.shift);
}

/* end - start, from 0 to `most`. */
CGR__HOST_DEVICE int32_t cgr__fa3_length(int32_t start, int32_t end, int32_t most) {
  uint32_t length = end > start ? (uint32_t)end - (uint32_t)start : 0;
  return length < (uint32_t)most ? (int32_t)length : most;
}

/* Request i from the words of the arrays; only the first `live` requests count. */
CGR__HOST_DEVICE cgr__fa3_request cgr__fa3_read(const cgr__fa3_key *c, int32_t i, int32_t live, int32_t start, int32_t end,
                                                int32_t seq_len) {
  cgr__fa3_request r = { 0, 0, 0, 1 };
  if (i >= live)
    return r;
  r.query_len = cgr__fa3_length(start, end, c->max_query_len);
  r.m = cgr__fa3_quotient(r.query_len * c->packed_heads + c->tile_m - 1, c->by_tile_m);
  r.n = cgr__fa3_quotient(cgr__fa3_length(0, seq_len, c->max_seq_len) + c->tile_n - 1, c->by_tile_n);
  return r;
}

CGR__HOST_DEVICE int cgr__fa3_may_split(const cgr__fa3_key *c) { return c->num_splits > 1 && c->num_requests <= CGR__FA3_CHUNK; }

/* 0 when no request has both new tokens and keys: upstream divides by it all the same. */
CGR__HOST_DEVICE int32_t cgr__fa3_blocks_per_sm(const cgr__fa3_key *c, int64_t tiles) {
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

/* `blocks_per_sm` is 0 without any work: then nothing is split. Most requests have one split, and need no division. */
CGR__HOST_DEVICE void cgr__fa3_split(const cgr__fa3_key *c, int32_t blocks_per_sm, cgr__fa3_request *r) {
  if (blocks_per_sm <= 0 || r->n <= blocks_per_sm)
    return;
  int32_t splits = (int32_t)(((uint32_t)r->n + (uint32_t)blocks_per_sm - 1) / (uint32_t)blocks_per_sm);
  splits = splits < c->num_splits ? splits : c->num_splits;
  r->splits = splits > 1 ? splits : 1;
  r->n = (int32_t)(((uint32_t)r->n + (uint32_t)r->splits - 1) / (uint32_t)r->splits);
}

/* The number that falls along the sorted order; at most 2^30 + 511 in size. */
CGR__HOST_DEVICE int32_t cgr__fa3_work(const cgr__fa3_key *c, const cgr__fa3_request *r) {
  return c->is_causal ? r->n * c->tile_n - r->m * c->tile_m : r->n;
}

/* Smaller keys come first, and no two are equal: the low half is the request's number in its 992. */
CGR__HOST_DEVICE uint64_t cgr__fa3_sort_key(const cgr__fa3_key *c, const cgr__fa3_request *r, int32_t number) {
  return (uint64_t) ~((uint32_t)cgr__fa3_work(c, r) ^ 0x80000000u) << 32 | (uint32_t)number;
}
CGR__HOST_DEVICE int32_t cgr__fa3_sorted_number(uint64_t key) { return (int32_t)(uint32_t)key; }

/* As many heads as have their keys in L2, by powers of 2 up to 16. 16 n fits: n is at most 2^26. */
CGR__HOST_DEVICE int32_t cgr__fa3_heads_in_l2(const cgr__fa3_key *c, int32_t n) {
  int32_t l2 = c->kv_tiles_in_l2, tiles = n > 1 ? n : 1;
  int32_t halvings = (16 * tiles > l2) + (8 * tiles > l2) + (4 * tiles > l2) + (2 * tiles > l2);
  int32_t heads = (16 >> halvings) * c->unpacked_heads;
  return heads < c->heads ? heads : c->heads;
}

/* Entry `at` of every vector. */
CGR__HOST_DEVICE void cgr__fa3_put(const cgr__fa3_key *c, int32_t *metadata, int32_t at, int32_t request,
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

/* An entry past the last request, which rounds a vector up. */
CGR__HOST_DEVICE void cgr__fa3_put_nothing(const cgr__fa3_key *c, int32_t *metadata, int32_t at) {
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

CGR__HOST_DEVICE int32_t cgr__fa3_rounded(int32_t requests) { return (requests + 3) / 4 * 4; }

#endif

/* The tile scheduler's metadata of FlashMLA's decode kernels: which CTA (part) works on which requests and blocks of KV, and
 * in how many splits each request is computed. Read from deepseek-ai/FlashMLA:
 *   CURRENT   csrc/smxx/decode/get_decoding_sched_meta/get_decoding_sched_meta.cu and csrc/params.h at 9241ae3ef9ba,
 *   V1        csrc/smxx/get_mla_metadata.cu and csrc/params.h at 1408756a88e5.
 *
 * There, one thread fills one part after the other with a payload of Q + c blocks, Q = ceil(sum of (n_i + c) / parts), n_i
 * being the blocks of request i (at least 1) and c the fixed cost of a request, in blocks. What is left of a request is
 * finished when it fits with its cost c; else it is cut after the payload less c, if that is more than nothing; else the rest of
 * the payload is wasted.
 *
 * The same in closed form. Lay the requests end to end, request i at [S_i, S_i + n_i + c). A part that begins k blocks into
 * request i is at x = S_i + k, and what is left to do up to the end of a request j costs S_(j+1) - x. So the part finishes all
 * j with S_(j+1) <= x + Q + c, and the next one begins at
 *   x' = max(x + Q, S_j), S_j being the last request that begins at or before x + Q + c;
 *   or at the end of the last request, when that is not after x + Q + c.
 * That is: a part takes Q, and a little more when a request ends within the next c. Requests begin at least c + 1 apart, so at
 * most one does. Parts that begin inside of one request begin Q apart, the first at most Q into it: the one that begins k into
 * it has split ceil(k / Q). No part begins in the last c of a request.
 *
 * All functions are compiled as C for the host and as CUDA for the device. Nothing is validated here. */
#ifndef CGR_INTEROP_FLASHMLA_FORMAT_H
#define CGR_INTEROP_FLASHMLA_FORMAT_H

#include <stdint.h>

#include "base/host_device.h"
#include "interop/limits.h"

#define CGR__FLASHMLA_WORDS 8 /* of a part, in both layouts */

/* What depends on the key alone. */
typedef struct cgr__flashmla_key {
  int32_t is_v1;
  int32_t num_requests; /* B, padding included */
  int32_t num_parts;
  int32_t block_size;
  uint32_t block_inverse, parts_inverse; /* cgr__flashmla_inverse of block_size and num_parts */
  int32_t overhead;                      /* c */
  int32_t topk, extra_topk;              /* 0: dense; no second cache */
  int32_t max_len;                       /* of a length: sums over all requests are at most 2^29 blocks */
} cgr__flashmla_key;

/* Live lengths; NULL as in the public input. */
typedef struct cgr__flashmla_lens {
  const int32_t *live_requests, *seq_lens, *topk_lens, *extra_topk_lens;
} cgr__flashmla_lens;

/* Where a part begins: `block` blocks into `request`; the number of live requests, 0: the end. */
typedef struct cgr__flashmla_point {
  int32_t request, block;
} cgr__flashmla_point;

CGR__HOST_DEVICE int32_t cgr__flashmla_min(int32_t a, int32_t b) { return a < b ? a : b; }
CGR__HOST_DEVICE int32_t cgr__flashmla_max(int32_t a, int32_t b) { return a > b ? a : b; }
CGR__HOST_DEVICE int32_t cgr__flashmla_clamp(int32_t value, int32_t high) {
  return cgr__flashmla_min(cgr__flashmla_max(value, 0), high);
}

/* n / d rounded up, d > 0. */
CGR__HOST_DEVICE int32_t cgr__flashmla_ceil(int32_t n, int32_t d) {
  return n <= 0 ? 0 : (int32_t)(((uint32_t)n + (uint32_t)d - 1) / (uint32_t)d);
}

/* n / d by a multiplication: n is below 2^31, and the estimate at most one too small. */
CGR__HOST_DEVICE uint32_t cgr__flashmla_inverse(int32_t d) { return ~0u / (uint32_t)d; }
CGR__HOST_DEVICE uint32_t cgr__flashmla_high(uint32_t a, uint32_t b) {
#ifdef __CUDA_ARCH__
  return __umulhi(a, b);
#else
  return (uint32_t)((uint64_t)a * b >> 32);
#endif
}
CGR__HOST_DEVICE int32_t cgr__flashmla_ceil_by(int32_t n, int32_t d, uint32_t inverse) {
  uint32_t above = (uint32_t)(n + d - 1), quotient = cgr__flashmla_high(above, inverse);
  return (int32_t)(quotient + (above - quotient * (uint32_t)d >= (uint32_t)d));
}

/* Longest sequence for which the sum over B requests stays within 2^29 blocks. */
CGR__HOST_DEVICE int32_t cgr__flashmla_max_len(int32_t num_requests, int32_t block_size, int32_t overhead) {
  int64_t tokens = (int64_t)(CGR__FLASHMLA_MAX_BLOCKS / num_requests - overhead) * block_size;
  return tokens < CGR__FORMATS_MAX_LEN ? (int32_t)tokens : CGR__FORMATS_MAX_LEN;
}

/* Tokens that a live request attends to, by its lengths; `extra`: of the second cache. A sparse request without tokens counts as
 * one token, as upstream. */
CGR__HOST_DEVICE int32_t cgr__flashmla_tokens_of(const cgr__flashmla_key *c, int32_t len, int32_t extra) {
  if (c->topk == 0)
    return cgr__flashmla_clamp(len, c->max_len);
  int32_t tokens = cgr__flashmla_max(cgr__flashmla_clamp(len, c->topk), 1);
  if (c->extra_topk == 0)
    return tokens;
  tokens = cgr__flashmla_ceil_by(tokens, c->block_size, c->block_inverse) * c->block_size;
  return tokens + cgr__flashmla_clamp(extra, c->extra_topk);
}

/* Where those lengths are: NULL when all are `c->topk` or `c->extra_topk`, or not asked for. */
CGR__HOST_DEVICE const int32_t *cgr__flashmla_own_lens(const cgr__flashmla_key *c, const cgr__flashmla_lens *l) {
  return c->topk == 0 ? l->seq_lens : l->topk_lens;
}
CGR__HOST_DEVICE const int32_t *cgr__flashmla_extra_lens(const cgr__flashmla_key *c, const cgr__flashmla_lens *l) {
  return c->topk == 0 || c->extra_topk == 0 ? 0 : l->extra_topk_lens;
}

CGR__HOST_DEVICE int32_t cgr__flashmla_tokens(const cgr__flashmla_key *c, const cgr__flashmla_lens *l, int32_t i) {
  const int32_t *own = cgr__flashmla_own_lens(c, l), *extra = cgr__flashmla_extra_lens(c, l);
  return cgr__flashmla_tokens_of(c, own ? own[i] : c->topk, extra ? extra[i] : c->extra_topk);
}

/* n_i: a request without tokens has one block all the same. */
CGR__HOST_DEVICE int32_t cgr__flashmla_blocks(const cgr__flashmla_key *c, int32_t tokens) {
  return cgr__flashmla_max(cgr__flashmla_ceil_by(tokens, c->block_size, c->block_inverse), 1);
}

/* Q; 1 when there is nothing to do. */
CGR__HOST_DEVICE int32_t cgr__flashmla_quota(const cgr__flashmla_key *c, int32_t total) {
  return cgr__flashmla_max(cgr__flashmla_ceil_by(total, c->num_parts, c->parts_inverse), 1);
}

/* The words of a part that begins at `begin`, in split `split` of that request, the next one beginning at `end`. `before`:
 * blocks of the request before end.request, or of request B - 1 (none when it is not live) for a part without work; 0 when it
 * has no tokens. `first_blocks`: n_0.
 *
 * Kernels return at once when a part's first request is not below B. Upstream fills such parts with what stands where it reads
 * past its arrays: the last block of request 0 as the first block, and the end of the last request as the end. So does this. */
CGR__HOST_DEVICE void cgr__flashmla_part(const cgr__flashmla_key *c, cgr__flashmla_point begin, cgr__flashmla_point end,
                                         int32_t num_live, int32_t split, int32_t before, int32_t first_blocks,
                                         int32_t words[CGR__FLASHMLA_WORDS]) {
  int32_t is_idle = begin.request >= num_live, cut = end.block > 0;
  int32_t begin_request = is_idle ? c->num_requests : begin.request;
  int32_t begin_block = is_idle ? first_blocks - 1 : begin.block;
  int32_t end_request = is_idle ? c->num_requests - 1 : end.request - (cut ? 0 : 1);
  int32_t end_block = cut ? end.block : before;
  int32_t first_cut = begin.block > 0, last_cut = cut;
  if (begin_request == end_request)
    first_cut = last_cut = first_cut | last_cut;
  words[0] = begin_request;
  words[1] = c->is_v1 ? begin_block : end_request;
  words[2] = c->is_v1 ? end_request : begin_block;
  words[3] = end_block;
  words[4] = split;
  words[5] = c->is_v1 ? 0 : first_cut;
  words[6] = c->is_v1 ? 0 : last_cut;
  words[7] = 0;
}

#endif

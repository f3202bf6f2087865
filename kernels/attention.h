/* Attention of a step's queries over the pages of their requests, or over the step's own keys. */
#ifndef CGR_KERNELS_ATTENTION_H
#define CGR_KERNELS_ATTENTION_H

#include <stdint.h>

#include "cgr/attention.h"
#include "kernels/step.h"
#include "planners/attention/plan.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Attention in one launch of num_parts * stripes CTAs, over the keys that the plan class lets queries see. A head block is
 * `block_heads` query heads of one KV head; the last block of a KV head has the remaining ones. A CTA works on its part of the
 * decode section and then, if max_query_len allows for any, on items of the prefill queue (planners/attention/plan.h), which it
 * takes by adding 1 to *prefill_queue until none is left. CTAs that share a tile leave fp32 partials; the last one to arrive at
 * plan_counters[first] merges them in the order of their partials, writes the output and resets the counter to 0. A CTA also
 * zeroes the outputs (and sets lse to -inf) of its share of the tokens that no tile covers: the padding [counts[TOKENS],
 * num_tokens) and guarded requests. Arithmetic: scores and sums in fp32, exp2 softmax, P rounded to V's dtype (as a tensor core
 * takes it), outputs rounded to nearest even, or quantised once they are complete (kernels/quantise.h). Codes of
 * 8 bits (kernels/quantise.h) are multiplied without their factors. Where V has codes, P is rounded to fp16; where K has, a GPU
 * rounds q to fp16. K's factor multiplies `scale` if it is the KV head's, and otherwise the products of its token. V's factors
 * multiply the finished sums of an item. Without factors they are 1. V of tokens that a tile does not see is zeroed,
 * not only masked; of pages outside of what it sees neither the number nor the content is read. A token that any query of a tile
 * sees is read for the whole tile, so an Inf or NaN that the engine itself puts into V of a real token may reach earlier queries
 * of the same request. A score is scale * q.k, then softcap * tanh(score / softcap), then minus slope * distance (ALiBi: Press et
 * al. 2022, with FlashAttention's bias, which counts from the query in both directions) or slope * sqrt(distance); query and key
 * have the positions of their sequence. A sink is one more score, without a value. It joins when a line is normalised, once
 * however many partials it had, and is included in lse. A line that sees no key has out 0 and lse -inf, even with a sink. */
typedef struct cgr__attention_args {
  cgr_view q, out, lse; /* [num_tokens, num_q_heads, head_dim, of out head_dim_v]; lse fp32 [num_tokens, num_q_heads], data NULL:
                           not wanted */
  cgr_view k, v;        /* keys and values with CGR__SEES_STEP: [num_tokens, num_kv_heads, head_dim or head_dim_v] */
  cgr_kv_view k_cache, v_cache; /* keys and values otherwise. With CGR__SEES_STEP only their dtypes are read: those of k and v */
  const float *alibi_slopes, *sinks; /* [num_q_heads] or NULL */
  const float *out_scale;            /* what outputs are divided by, if out has codes of fp8_e4m3; NULL: 1 */
  cgr__group_geometry group;
  const int32_t *page_table;                                         /* [M+1][group.page_table_stride] */
  const int32_t *query_start_loc, *seq_lens, *request_rows, *counts; /* seq_lens: of the class's length set */
  const int32_t *plan;                                               /* of plan_class, aligned to 16 bytes */
  int32_t *plan_counters;                                            /* [partials] */
  int32_t *prefill_queue;                                            /* items taken from this layer's prefill queue; 0 before */
  float *partial_out;                                                /* [lines of all partials][head_dim_v], not normalised */
  float *partial_state; /* [lines of all partials][2]: what was subtracted from scale*log2e*score, their max or up to 8 less; sum
                           of exp2 */
  cgr__step_error *error; /* a page outside the pool, or the write-trash page: CGR_GUARD_PAGE, read as the read-trash page */
  cgr__plan_class plan_class;
  int32_t num_tokens; /* padded */
  int32_t num_q_heads, num_kv_heads, head_dim, head_dim_v;
  int32_t q_per_kv, kv_blocks, block_heads; /* query heads of a KV head, its head blocks, query heads of one of them */
  int32_t decode_lines,
      prefill_lines;     /* lines ((token, head) pairs) of a partial of the decode section and of the prefill queue */
  float scale, softcap;  /* softcap 0: none */
  int32_t alibi_sqrt;    /* 1: slope * sqrt(distance) */
  int32_t max_query_len; /* most new tokens of a request: one with more is not attended, and its outputs are not zeroed; 0: any
                            number */
  int32_t shared_bytes; /* minimum dynamic shared memory of a CTA, so a multiprocessor holds no more CTAs than the plan counts on;
                           0: what it needs */
  int32_t reserved;     /* fills a hole */
  int32_t after_append; /* 1: the previous launch in the stream appends the step's tokens to k_cache and v_cache. If the device
                           can, attention begins before it ends; until the append is done, attention writes nothing and reads only
                           the plan, page numbers, queries, and KV tiles before a request's own new tokens, which other requests
                           must not be appending; these not either if CGR_COUNT_APPEND_FIRST is 1. All of these must be there when
                           the append begins, so the append is never launched early */
} cgr__attention_args;
/* The host's, and the mma kernels on CUDA. What launches a layer is what its kernel kind names (kernels/registry.h). */
extern const cgr__kernel cgr__kernel_attention; /* cgr__attention_args */

/* Call after plan_class is set. */
static inline void cgr__attention_set_heads(cgr__attention_args *a, int32_t num_q_heads, int32_t num_kv_heads,
                                            int32_t block_heads) {
  a->num_q_heads = num_q_heads;
  a->num_kv_heads = num_kv_heads;
  a->q_per_kv = num_q_heads / num_kv_heads;
  a->block_heads = block_heads;
  a->kv_blocks = a->plan_class.head_blocks * a->plan_class.stripes / num_kv_heads;
}

/* The query heads [head, head + heads) of a head block, and their KV head. */
typedef struct cgr__head_block {
  int32_t kv_head, head, heads;
} cgr__head_block;

CGR__HOST_DEVICE cgr__head_block cgr__attention_head_block(const cgr__attention_args *a, int32_t index) {
  int32_t kv_head = CGR__UNLIKELY(a->kv_blocks > 1) ? index / a->kv_blocks : index;
  int32_t first = (index - kv_head * a->kv_blocks) * a->block_heads; /* among those of the KV head */
  cgr__head_block block;
  block.kv_head = kv_head;
  block.head = kv_head * a->q_per_kv + first;
  block.heads = cgr__plan_min(a->q_per_kv - first, a->block_heads);
  return block;
}

/* An upper bound on the lines of an item of the launch: those of a full q tile, `tile_lines`, if some may be in the prefill
 * queue. */
static inline int32_t cgr__attention_most_lines(const cgr__attention_args *a, int32_t tile_lines) {
  if (a->max_query_len <= 0 || a->max_query_len > a->plan_class.decode_query_len)
    return tile_lines;
  int64_t lines = (int64_t)a->max_query_len * a->block_heads;
  return lines < tile_lines ? (int32_t)lines : tile_lines;
}

/* Line of the partials at which a partial begins. */
CGR__HOST_DEVICE int64_t cgr__attention_partial_line(const cgr__attention_args *a, int32_t partial) {
  int32_t decode_partials = cgr__plan_all_decode_partials(&a->plan_class);
  return partial < decode_partials
             ? (int64_t)partial * a->decode_lines
             : (int64_t)decode_partials * a->decode_lines + (int64_t)(partial - decode_partials) * a->prefill_lines;
}

#ifdef __cplusplus
}
#endif
#endif

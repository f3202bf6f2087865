/* Attention of a step's queries over the pages of their requests. */
#ifndef CGR_KERNELS_ATTENTION_H
#define CGR_KERNELS_ATTENTION_H

#include <stdint.h>

#include "cgr/attention.h"
#include "kernels/step.h"
#include "planners/attention/plan.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Attention over pages, causal, in one launch: grid (num_parts, head blocks). A head block is one KV head with up to
 * CGR__TILE_LINES of its query heads: head_blocks = num_kv_heads * ceil(group / 64), group = num_q_heads / num_kv_heads.
 * Each (part, head block) walks its work items (planners/attention/plan.h); tiles that are split leave fp32 partials, and the
 * last part to arrive at plan_counters[first * head_blocks + head block] merges in ascending order, writes the output and sets
 * the counter back to 0. Afterwards part p zeroes the outputs (and sets lse to -inf) of its share of the tokens that no request
 * with seq_len > 0 owns: the padding [counts[TOKENS], num_tokens) and guarded requests.
 * Arithmetic: scores and sums in fp32, exp2 softmax, P rounded to V's dtype for bf16 (as a tensor core takes it), outputs
 * rounded to nearest even. Lanes of V past the sequence's end are zeroed, not only masked. A token that some query of a tile
 * sees is read for the whole tile: an Inf or NaN that the engine itself puts into V of a real token may reach the queries of the
 * same request before it. */
typedef struct cgr__attention_args {
  cgr_view q, out, lse; /* [num_tokens, num_q_heads, head_dim]; lse fp32 [num_tokens, num_q_heads], data NULL: not wanted */
  cgr_kv_view k_cache, v_cache;
  cgr__group_geometry group;
  const int32_t *page_table; /* [M+1][group.page_table_stride] */
  const int32_t *query_start_loc, *seq_lens, *request_rows, *counts, *plan;
  int32_t *plan_counters;
  float *partial_out;     /* [2G][head_blocks][CGR__TILE_LINES][head_dim], not normalised */
  float *partial_state;   /* [2G][head_blocks][CGR__TILE_LINES][2]: max of scale*log2e*score, sum of exp2 */
  cgr__step_error *error; /* a page outside the pool, or the write-trash page: CGR_GUARD_PAGE, read as the read-trash page */
  int32_t num_tokens, padded_requests;
  int32_t num_q_heads, num_kv_heads, head_dim;
  int32_t num_parts, tile_q;
  float scale;
} cgr__attention_args;
extern const cgr__kernel cgr__kernel_attention; /* cgr__attention_args */

static inline int32_t cgr__attention_head_blocks(int32_t num_q_heads, int32_t num_kv_heads) {
  int32_t group = num_q_heads / num_kv_heads;
  return num_kv_heads * ((group + CGR__TILE_LINES - 1) / CGR__TILE_LINES);
}

/* Largest power of two of query tokens whose lines fit a tile for this GQA group. */
static inline int32_t cgr__attention_tile_q(int32_t group) {
  int32_t tile = CGR__TILE_LINES;
  while (tile > 1 && tile * group > CGR__TILE_LINES)
    tile /= 2;
  return tile;
}

#ifdef __cplusplus
}
#endif
#endif

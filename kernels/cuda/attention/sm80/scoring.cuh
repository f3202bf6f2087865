/* What a line's scores include besides scale * q.k (kernels/attention.h), in units of log2(e). */
#ifndef CGR_KERNELS_CUDA_ATTENTION_SM80_SCORING_CUH
#define CGR_KERNELS_CUDA_ATTENTION_SM80_SCORING_CUH

#include "kernels/cuda/attention/sm80/codes.cuh"
#include "kernels/cuda/attention/sm80/items.cuh"
#include "kernels/cuda/attention/sm80/mma.cuh"

namespace cgr {

constexpr float kLog2e = 1.44269504088896341f, kLn2 = 0.69314718055994531f;

/* The maximum to subtract: 0 for that of no scores (-inf), so that -inf - (-inf) never happens and masked scores become 0. */
__device__ __forceinline__ float safe_max(float max) { return max == -INFINITY ? 0.0f : max; }

/* The q tile of an item. Line r is query token r / heads of the tile and head r % heads of the head block. */
struct QueryTile {
  int32_t lines, heads, heads_inverse;
  int32_t token;    /* of line 0, in the batch */
  int32_t head;     /* of line 0 */
  int32_t position; /* of line 0's token in its sequence */

  __device__ __forceinline__ int32_t query_of(int32_t line) const { return line * heads_inverse >> 16; }
  __device__ __forceinline__ int32_t head_of(int32_t line) const { return line - query_of(line) * heads; }
  __device__ __forceinline__ int64_t offset(const cgr_view &view, int32_t line) const { /* elements */
    return (token + query_of(line)) * view.stride_token + (head + head_of(line)) * view.stride_head;
  }
};

__device__ __forceinline__ QueryTile query_tile(const ItemRecord &record) {
  QueryTile q;
  q.heads = record.heads;
  q.heads_inverse = record.heads_inverse;
  q.lines = record.lines;
  q.token = record.start + record.item.query_begin;
  q.head = record.head;
  q.position = record.position;
  return q;
}

/* The scoring of one general line. */
struct Scoring {
  float scale, softcap, slope;
  int32_t position;        /* of the line's token in its sequence */
  cgr__plan_range visible; /* tokens that it sees */
  bool has_slopes, sqrt_distance;

  /* tanh(y) is 1 - 2 / (exp(2 y) + 1), which loses precision if y is small; its series is used there. */
  __device__ __forceinline__ float cap(float x) const {
    float y = x / softcap, square = y * y;
    float series = __fmaf_rn(-0.0088632355f, square, 0.021869488f);
    series = __fmaf_rn(series, square, -0.053968254f);
    series = __fmaf_rn(series, square, 0.13333333f);
    series = __fmaf_rn(series, square, -0.33333333f);
    float far = softcap * (1.0f - __fdividef(2.0f, exp2_approx(2.0f * kLog2e * y) + 1.0f));
    return fabsf(y) < 0.25f ? __fmaf_rn(x, __fmul_rn(series, square), x) : far;
  }

  __device__ __forceinline__ float apply(float product, int32_t token) const {
    float x = __fmul_rn(product, scale);
    if (softcap != 0.0f)
      x = cap(x);
    if (has_slopes) {
      float distance = fabsf((float)(position - token));
      x = __fmaf_rn(-slope, sqrt_distance ? sqrtf(distance) : distance, x);
    }
    return token >= visible.begin && token < visible.end ? x * kLog2e : -INFINITY;
  }
};

/* Lines past the last belong to no query and see nothing, so that the bits of the others do not depend on how many of them there
 * are. */
__device__ __forceinline__ Scoring scoring_of(const cgr__attention_args &a, const ItemRecord &record, const QueryTile &q,
                                              int32_t line, float scale) {
  const cgr__plan_class &c = a.plan_class;
  int32_t query_len = a.query_start_loc[record.item.request + 1] - record.start;
  int32_t seen = cgr__plan_seen_len(&c, query_len, a.seq_lens[record.item.request]);
  int32_t own = min(line, q.lines - 1), query = record.item.query_begin + q.query_of(own);
  Scoring s;
  s.scale = scale;
  s.softcap = a.softcap;
  s.has_slopes = a.alibi_slopes != nullptr;
  s.sqrt_distance = a.alibi_sqrt != 0;
  s.visible = cgr__plan_kv_tokens(&c, query_len, seen, query, query);
  if (line >= q.lines)
    s.visible.end = s.visible.begin;
  s.position = seen - query_len + query;
  s.slope = s.has_slopes ? a.alibi_slopes[q.head + q.head_of(own)] : 0.0f;
  return s;
}

} // namespace cgr
#endif

/* How results leave the attention kernel: outputs, partials, the merge of partials, and the tokens without an owner. */
#ifndef CGR_KERNELS_CUDA_ATTENTION_SM80_COMBINE_CUH
#define CGR_KERNELS_CUDA_ATTENTION_SM80_COMBINE_CUH

#include "kernels/cuda/attention/sm80/mma.cuh"
#include "kernels/cuda/attention/sm80/softmax.cuh"
#include "kernels/cuda/attention/sm80/traits.h"

namespace cgr {

/* Index of a line of a partial among all partials. */
__device__ __forceinline__ int64_t partial_line(const cgr__attention_args &a, int32_t partial, int32_t line) {
  return cgr__attention_partial_line(&a, partial) + line;
}

/* Natural logarithm of a sum of exp2 relative to `max`. */
__device__ __forceinline__ float make_lse(float max, float sum) {
  return sum > 0.0f ? (max + log2f(sum)) * kLn2 : (sum == 0.0f ? -INFINITY : sum);
}

__device__ __forceinline__ float inverse(float sum) { return sum == 0.0f ? 0.0f : 1.0f / sum; }

/* The factor of a finished line's output, and its lse. A sink joins here: one more score, without a value. */
struct Finish {
  float scale, lse;
};
template <bool kGeneral>
__device__ __forceinline__ Finish finish_line(const cgr__attention_args &a, int32_t head, float max, float sum) {
  if (!kGeneral || !a.sinks || sum == 0.0f)
    return { inverse(sum), make_lse(max, sum) };
  float sink = a.sinks[head] * kLog2e, all = fmaxf(max, sink), rescale = exp2_approx(max - all);
  sum = __fmaf_rn(sum, rescale, exp2_approx(sink - all));
  return { rescale / sum, make_lse(all, sum) };
}

/* Elements of a line of v, of out and of partials. */
template <int kHeadDim, bool kGeneral> __device__ __forceinline__ int32_t dim_of(const cgr__attention_args &a) {
  return kGeneral ? a.head_dim_v : kHeadDim;
}

/* Merges two partials into one, the left one first. An empty left one leaves the right one unchanged, bit for bit, so results
 * do not depend on which CTA folds which splits. */
__device__ __forceinline__ float fold(float left_weight, float right_weight, float left, float right) {
  return __fmaf_rn(right, right_weight, __fmul_rn(left, left_weight));
}

/* The fold of one line, from the maxima and sums of both. */
struct Fold {
  float left, right, max, sum;

  __device__ __forceinline__ Fold(float2 left_state, float right_max, float right_sum) {
    max = fmaxf(left_state.x, right_max);
    float base = safe_max(max);
    left = exp2_approx(left_state.x - base);
    right = exp2_approx(right_max - base);
    sum = fold(left, right, left_state.y, right_sum);
  }
};

/* A line's state in a partial. Bypasses L1: another CTA may have written it. */
__device__ __forceinline__ float2 state_of_partial(const cgr__attention_args &a, int64_t at) {
  return __ldcg(reinterpret_cast<const float2 *>(a.partial_state) + at);
}

/* Neighbouring elements of a line: 2, 4 or 8. */
template <int kElements> struct Elements {
  float x[kElements];

  /* From shared memory. */
  __device__ __forceinline__ void load(const float *from) {
    if constexpr (kElements == 2) {
      *reinterpret_cast<float2 *>(x) = *reinterpret_cast<const float2 *>(from);
    } else {
#pragma unroll
      for (int k = 0; k < kElements; k += 4)
        *reinterpret_cast<float4 *>(x + k) = *reinterpret_cast<const float4 *>(from + k);
    }
  }
};

/* Two neighbouring elements of out. */
template <int kCache> __device__ __forceinline__ uint32_t pack_outputs(const cgr__attention_args &a, float low, float high) {
  if constexpr (kHasKeyCodes<kCache>) {
    const uint32_t bf16 = Element<CGR_DTYPE_BF16>::pack(low, high), fp16 = Element<CGR_DTYPE_FP16>::pack(low, high);
    return a.out.dtype == CGR_DTYPE_BF16 ? bf16 : fp16;
  } else {
    return Element<kCache>::pack(low, high);
  }
}

/* Whether out has codes of fp8_e4m3. General instances write them, too. */
template <bool kGeneral> __device__ __forceinline__ bool has_code_outputs(const cgr__attention_args &a) {
  return kGeneral && a.out.dtype == CGR_DTYPE_FP8_E4M3;
}

/* Stores 2, 4 or 8 neighbouring elements of out, from element `at` on: `x` times `scale`. */
template <int kCache, bool kGeneral, int kElements>
__device__ __forceinline__ void store_outputs(const cgr__attention_args &a, int64_t at, const float (&x)[kElements],
                                              float scale) {
  uint32_t packed[kElements / 2];
  if (has_code_outputs<kGeneral>(a)) {
    const float divisor = a.out_scale != nullptr ? *a.out_scale : 1.0f;
#pragma unroll
    for (int k = 0; k < kElements; k += 2) {
      packed[k / 2] = pack_codes(__fdiv_rn(x[k] * scale, divisor), __fdiv_rn(x[k + 1] * scale, divisor));
      *reinterpret_cast<uint16_t *>(static_cast<uint8_t *>(a.out.data) + at + k) = (uint16_t)packed[k / 2];
    }
    return;
  }
#pragma unroll
  for (int k = 0; k < kElements; k += 2)
    packed[k / 2] = pack_outputs<kCache>(a, x[k] * scale, x[k + 1] * scale);
  uint16_t *to = static_cast<uint16_t *>(a.out.data) + at;
  if constexpr (kElements == 8)
    *reinterpret_cast<uint4 *>(to) = make_uint4(packed[0], packed[1], packed[2], packed[3]);
  else if constexpr (kElements == 4)
    *reinterpret_cast<uint2 *>(to) = make_uint2(packed[0], packed[1]);
  else
    *reinterpret_cast<uint32_t *>(to) = packed[0];
}

/* Stores 2, 4 or 8 neighbouring elements of an output line. */
template <int kCache, bool kGeneral, int kElements>
__device__ __forceinline__ void store_elements(const cgr__attention_args &a, const QueryTile &q, int32_t line, int32_t d,
                                               const Elements<kElements> &o, float max, float sum) {
  const Finish finish = finish_line<kGeneral>(a, q.head + q.head_of(line), max, sum);
  store_outputs<kCache, kGeneral, kElements>(a, q.offset(a.out, line) + d, o.x, finish.scale);
  if (d == 0 && a.lse.data)
    static_cast<float *>(a.lse.data)[q.offset(a.lse, line)] = finish.lse;
}

/* What the warps of a CTA tell each other. */
struct AttentionShared {
  ItemShared items;
  int32_t is_last;
  float2 before[kFewLines];                 /* max and sum of the lines of a partial that is folded in */
  float2 state[kAttentionWarps][kFewLines]; /* max and sum of each warp, when the warps split the tokens */
};

/* Writes some elements of a line, complete in this CTA, to where the item says. If a partial is folded in, shared.before has its
 * states, for all threads. */
template <int kCache, int kHeadDim, bool kGeneral>
__device__ __forceinline__ void write_elements(const cgr__attention_args &a, const cgr__plan_item &item, const QueryTile &q,
                                               const AttentionShared &shared, int32_t line, int32_t d, Elements<4> &o, float max,
                                               float sum) {
  const int32_t dim = dim_of<kHeadDim, kGeneral>(a);
  if (CGR__UNLIKELY(item.fold >= 0)) {
    const Fold both(shared.before[line], max, sum);
    int64_t at = partial_line(a, item.fold, line);
    Elements<4> before;
    *reinterpret_cast<float4 *>(before.x) = __ldcg(reinterpret_cast<const float4 *>(a.partial_out + at * dim + d));
#pragma unroll
    for (int k = 0; k < 4; k++)
      o.x[k] = fold(both.left, both.right, before.x[k], o.x[k]);
    max = both.max;
    sum = both.sum;
  }
  if (item.partial < 0) {
    store_elements<kCache, kGeneral>(a, q, line, d, o, max, sum);
    return;
  }
  int64_t at = partial_line(a, item.partial, line);
  *reinterpret_cast<float4 *>(a.partial_out + at * dim + d) = make_float4(o.x[0], o.x[1], o.x[2], o.x[3]);
  if (d == 0)
    reinterpret_cast<float2 *>(a.partial_state)[at] = make_float2(max, sum);
}

/* The first of the two elements that a thread has of a line in state.o[n], for a warp that owns lines: of V with codes, four
 * neighbouring ones in two of them (many_lines.cuh). It is below `dim`, a multiple of 16 with codes, if n * 8 is. */
template <int kCache> __device__ __forceinline__ int32_t element_of(int n) {
  const int32_t quad = threadIdx.x & 3;
  return kHasValueCodes<kCache> ? n / 2 * 16 + quad * 4 + n % 2 * 2 : n * 8 + quad * 2;
}

/* For warps that own lines: each thread stores pairs of elements. */
template <int kCache, int kHeadDim, bool kGeneral>
__device__ __forceinline__ void write_lines(const cgr__attention_args &a, const cgr__plan_item &item, const QueryTile &q,
                                            Softmax<kHeadDim> &state, int32_t first) {
  int lane = threadIdx.x & 31;
  const int32_t dim = dim_of<kHeadDim, kGeneral>(a);
  float2 before[2]; /* the partial may be written again: all four lanes of a line read its state first */
#pragma unroll
  for (int half = 0; half < 2; half++) {
    int32_t line = first + lane / 4 + 8 * half;
    if (item.fold >= 0 && line < q.lines)
      before[half] = state_of_partial(a, partial_line(a, item.fold, line));
  }
  __syncwarp();
#pragma unroll
  for (int half = 0; half < 2; half++) {
    int32_t line = first + lane / 4 + 8 * half;
    if (line >= q.lines)
      continue;
    float max = state.max[half], sum = state.sum[half];
    if (item.fold >= 0) {
      int64_t at = partial_line(a, item.fold, line);
      const Fold both(before[half], max, sum);
      const float *from = a.partial_out + at * dim;
#pragma unroll
      for (int n = 0; n < kHeadDim / 8; n++) {
        if (n * 8 >= dim)
          continue;
        float2 x = __ldcg(reinterpret_cast<const float2 *>(from + element_of<kCache>(n)));
        state.o[n][2 * half] = fold(both.left, both.right, x.x, state.o[n][2 * half]);
        state.o[n][2 * half + 1] = fold(both.left, both.right, x.y, state.o[n][2 * half + 1]);
      }
      max = both.max;
      sum = both.sum;
    }
    if (item.partial < 0) {
      const Finish finish = finish_line<kGeneral>(a, q.head + q.head_of(line), max, sum);
      const int64_t at = q.offset(a.out, line);
#pragma unroll
      for (int n = 0; n < kHeadDim / 8; n++) {
        const float two[2] = { state.o[n][2 * half], state.o[n][2 * half + 1] };
        if (n * 8 < dim)
          store_outputs<kCache, kGeneral, 2>(a, at + element_of<kCache>(n), two, finish.scale);
      }
      if (lane % 4 == 0 && a.lse.data)
        static_cast<float *>(a.lse.data)[q.offset(a.lse, line)] = finish.lse;
    } else {
      int64_t at = partial_line(a, item.partial, line);
      float *to = a.partial_out + at * dim;
#pragma unroll
      for (int n = 0; n < kHeadDim / 8; n++)
        if (n * 8 < dim)
          *reinterpret_cast<float2 *>(to + element_of<kCache>(n)) = make_float2(state.o[n][2 * half], state.o[n][2 * half + 1]);
      if (lane % 4 == 0)
        reinterpret_cast<float2 *>(a.partial_state)[at] = make_float2(max, sum);
    }
  }
}

/* ----------------------------------------------------------------------------------------------------------------- merge */

/* Counts the arrival of a partial; true in all threads of the part whose partial came last. The barrier before the count
 * makes every thread's stores of its partial happen before thread 0's release, which is cumulative; its acquire and the
 * barrier after it order the count before all reads, which go past L1. */
__device__ __forceinline__ bool arrive(const cgr__attention_args &a, const cgr__plan_item &item, int32_t *is_last) {
  __syncthreads();
  if (threadIdx.x == 0) {
    int32_t *counter = &a.plan_counters[item.first];
    bool last = count_arrival(counter) == item.count - 1;
    if (last)
      *counter = 0;
    *is_last = last;
  }
  __syncthreads();
  return *is_last != 0;
}

/* The weights of up to 32 partials of a line, one per lane: the lanes compute at once what Fold computes one after the other. */
struct Weights {
  float left, right; /* of what comes before this lane's partial, and of the partial */
  float sum;         /* the partial's */

  /* `max`: of all partials before these; on return, of these too. */
  __device__ __forceinline__ Weights(float2 own, float &max) {
    int lane = threadIdx.x & 31;
    float upto = fmaxf(own.x, max), before = max;
#pragma unroll
    for (int d = 1; d < 32; d *= 2)
      upto = fmaxf(upto, __shfl_up_sync(~0u, upto, d)); /* a lane below d gets its own */
    float previous = __shfl_up_sync(~0u, upto, 1), base = safe_max(upto);
    left = exp2_approx((lane == 0 ? before : previous) - base);
    right = exp2_approx(own.x - base);
    sum = own.y;
    max = __shfl_sync(~0u, upto, 31);
  }
};

/* Copies `count` partials of a line, `stride` floats apart, to a warp's scratch, kHeadDim floats apart, all in flight
 * together. */
template <int kHeadDim>
__device__ __forceinline__ void fetch_partials(uint32_t scratch, const float *from, int64_t stride, int32_t count, int32_t dim) {
  constexpr int kChunks = kHeadDim / 4, kLanes = kChunks < 32 ? kChunks : 32; /* chunks of 16 bytes, lanes to a partial */
  int lane = threadIdx.x & 31;
#pragma unroll 2
  for (int32_t v = lane / kLanes; v < count; v += 32 / kLanes)
#pragma unroll
    for (int c = lane % kLanes; c < kChunks; c += kLanes)
      if (c * 4 < dim)
        copy_async(scratch + (uint32_t)(v * kHeadDim + c * 4) * 4, from + v * stride + c * 4);
  copy_async_commit();
}

/* values[i / 32] of lane i mod 32; i is less than 64, or the result does not count. */
__device__ __forceinline__ float2 value_of_lane(const float2 (&values)[2], int32_t i) {
  float2 low = make_float2(__shfl_sync(~0u, values[0].x, i), __shfl_sync(~0u, values[0].y, i));
  float2 high = make_float2(__shfl_sync(~0u, values[1].x, i), __shfl_sync(~0u, values[1].y, i));
  return i < 32 ? low : high;
}

/* Merges the partials of a tile in the order of their partials, whichever part does it. A warp takes every kAttentionWarps-th
 * line. It fetches the partials of as many lines at once as fit into its share of `scratch`, free shared memory (`room` partials,
 * at most 64), so it waits for memory once or twice for a tile, not once for each line. A line with more partials takes several
 * batches. The loops are short rather than unrolled: a CTA comes here once, if at all, so its instructions miss the cache, and a
 * miss costs about as much as fetching a partial. */
template <int kCache, int kHeadDim, bool kGeneral>
__device__ __forceinline__ void merge_partials(const cgr__attention_args &a, const cgr__plan_item &item, const QueryTile &q,
                                               float *scratch, int32_t room) {
  constexpr int kElements = kHeadDim / 32;
  int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  const int32_t dim = dim_of<kHeadDim, kGeneral>(a);
  const bool has_elements = lane * kElements < dim;
  int64_t stride = partial_line(a, item.first + 1, 0) - partial_line(a, item.first, 0); /* from partial to partial, in lines */
  const int32_t most = item.count < room ? room / item.count : 1;                       /* lines at once */
  scratch += warp * room * kHeadDim;
#pragma unroll 1
  for (int32_t begin = warp; begin < q.lines; begin += kAttentionWarps * most) {
    const int32_t lines = min(most, (q.lines - begin + kAttentionWarps - 1) / kAttentionWarps);
    float max = -INFINITY, sum = 0.0f;
    Elements<kElements> o = {};
#pragma unroll 1
    for (int32_t p = 0; p < item.count; p += room) {
      const int32_t count = min(room, item.count - p), all = lines * count;
      float2 states[2]; /* of what the scratch holds at `lane` and 32 + lane */
#pragma unroll
      for (int k = 0; k < 2; k++) {
        int32_t at = lane + 32 * k, line = begin + at / count * kAttentionWarps;
        states[k] = make_float2(-INFINITY, 0.0f);
        if (at < all)
          states[k] = state_of_partial(a, partial_line(a, item.first, line) + (p + at % count) * stride);
      }
      __syncwarp(); /* all lanes are done with the previous batch */
#pragma unroll 1
      for (int32_t i = 0; i < lines; i++) {
        int64_t from = partial_line(a, item.first, begin + i * kAttentionWarps) + p * stride;
        fetch_partials<kHeadDim>((uint32_t)__cvta_generic_to_shared(scratch + i * count * kHeadDim), a.partial_out + from * dim,
                                 stride * dim, count, dim);
      }
      copy_async_wait<0>(); /* also waits for the loader's tiles, issued earlier */
      __syncwarp();
#pragma unroll 1
      for (int32_t i = 0; i < lines; i++) {
#pragma unroll 1
        for (int32_t first = 0; first < count; first += 32) {
          const int32_t at = i * count + first, weighed = min(32, count - first);
          const float2 own = value_of_lane(states, at + lane);
          const Weights weights(lane < weighed ? own : make_float2(-INFINITY, 0.0f), max);
#pragma unroll 4
          for (int32_t u = 0; u < weighed; u++) {
            float left = __shfl_sync(~0u, weights.left, u), right = __shfl_sync(~0u, weights.right, u);
            float part = __shfl_sync(~0u, weights.sum, u);
            Elements<kElements> x;
            x.load(scratch + (at + u) * kHeadDim + lane * kElements);
            sum = fold(left, right, sum, part);
#pragma unroll
            for (int k = 0; k < kElements; k++)
              o.x[k] = fold(left, right, o.x[k], x.x[k]);
          }
        }
        if (p + count < item.count)
          continue; /* the only line of this batch */
        if (has_elements)
          store_elements<kCache, kGeneral>(a, q, begin + i * kAttentionWarps, lane * kElements, o, max, sum);
        max = -INFINITY;
        sum = 0.0f;
        o = {};
      }
    }
  }
}

/* ------------------------------------------------------------------------------------------------- tokens without an owner */

/* Zeroes the outputs of a token: eight elements per thread at a time. */
template <int kHeadDim, bool kGeneral> __device__ __forceinline__ void zero_token(const cgr__attention_args &a, int32_t token) {
  const int32_t chunks = dim_of<kHeadDim, kGeneral>(a) / 8;
  for (int32_t e = threadIdx.x; e < a.num_q_heads * chunks; e += kAttentionThreads) {
    int64_t offset = token * a.out.stride_token + (e / chunks) * a.out.stride_head + e % chunks * 8;
    if (has_code_outputs<kGeneral>(a))
      *reinterpret_cast<uint2 *>(static_cast<uint8_t *>(a.out.data) + offset) = make_uint2(0, 0);
    else
      *reinterpret_cast<uint4 *>(static_cast<uint16_t *>(a.out.data) + offset) = make_uint4(0, 0, 0, 0);
  }
  if (a.lse.data)
    for (int32_t h = threadIdx.x; h < a.num_q_heads; h += kAttentionThreads)
      static_cast<float *>(a.lse.data)[token * a.lse.stride_token + h * a.lse.stride_head] = -INFINITY;
}

/* Zeroes this CTA's share of the padding and of the requests that a guard emptied. Called by all threads. */
template <int kHeadDim, bool kGeneral>
__device__ __noinline__ void zero_unowned(const cgr__attention_args &a, int32_t num_requests, int32_t num_tokens,
                                          int32_t num_emptied) {
  int32_t cta = (int32_t)(blockIdx.y * gridDim.x + blockIdx.x), ctas = (int32_t)(gridDim.x * gridDim.y);
  for (int32_t t = num_tokens + cta; t < a.num_tokens; t += ctas)
    zero_token<kHeadDim, kGeneral>(a, t);
  for (int32_t i = cta; i < num_requests && num_emptied > 0; i += ctas) {
    if (a.seq_lens[i] != 0)
      continue;
    for (int32_t t = a.query_start_loc[i]; t < a.query_start_loc[i + 1]; t++)
      zero_token<kHeadDim, kGeneral>(a, t);
  }
}

} // namespace cgr
#endif

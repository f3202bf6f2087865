/* How results leave the attention kernel: outputs, partials, the merge of partials, and the tokens that nobody owns. */
#ifndef CGR_KERNELS_CUDA_SM80_ATTENTION_COMBINE_CUH
#define CGR_KERNELS_CUDA_SM80_ATTENTION_COMBINE_CUH

#include "kernels/cuda/sm80/attention/traits.h"
#include "kernels/cuda/sm80/attention/mma.cuh"
#include "kernels/cuda/sm80/attention/softmax.cuh"

namespace cgr {

/* The q tile of an item. Line r is query token r / heads of the tile and head r % heads of the head block. */
struct QueryTile {
  int32_t lines, heads;
  int32_t token;    /* of line 0, in the batch */
  int32_t head;     /* of line 0 */
  int32_t position; /* of line 0's token in its sequence */

  __device__ __forceinline__ int64_t offset(const cgr_view &view, int32_t line) const { /* elements */
    return (token + line / heads) * view.stride_token + (head + line % heads) * view.stride_head;
  }
};

/* Index of a line among all partials. */
__device__ __forceinline__ int64_t partial_line(int32_t slot, int32_t line) {
  return ((int64_t)slot * gridDim.y + blockIdx.y) * CGR__TILE_LINES + line;
}

/* Natural logarithm of a sum of exp2 relative to `max`. */
__device__ __forceinline__ float make_lse(float max, float sum) {
  return sum > 0.0f ? (max + log2f(sum)) * 0.69314718055994531f : (sum == 0.0f ? -INFINITY : sum);
}

__device__ __forceinline__ float inverse(float sum) { return sum == 0.0f ? 0.0f : 1.0f / sum; }

/* Stores 4 neighbouring elements of an output line. */
template <int kDtype>
__device__ __forceinline__ void store_output(const cgr__attention_args &a, const QueryTile &q, int32_t line, int32_t d, float4 o,
                                             float max, float sum) {
  float scale = inverse(sum);
  uint2 packed;
  packed.x = Element<kDtype>::pack(o.x * scale, o.y * scale);
  packed.y = Element<kDtype>::pack(o.z * scale, o.w * scale);
  *reinterpret_cast<uint2 *>(static_cast<uint16_t *>(a.out.data) + q.offset(a.out, line) + d) = packed;
  if (d == 0 && a.lse.data)
    static_cast<float *>(a.lse.data)[q.offset(a.lse, line)] = make_lse(max, sum);
}

struct AttentionShared {
  cgr__plan_part part;
  int32_t is_last;
  float2 state[kAttentionWarps][kWarpLines]; /* max and sum of each warp, when the warps split the tokens */
};

/* Of warps that own lines: each thread stores pairs of elements. */
template <int kDtype, int kHeadDim>
__device__ __forceinline__ void write_lines(const cgr__attention_args &a, const cgr__plan_item &item, const QueryTile &q,
                                            const Softmax<kHeadDim> &state, int32_t first) {
  int lane = threadIdx.x & 31;
#pragma unroll
  for (int half = 0; half < 2; half++) {
    int32_t line = first + lane / 4 + 8 * half;
    if (line >= q.lines)
      continue;
    if (item.slot < 0) {
      float scale = inverse(state.sum[half]);
      uint16_t *to = static_cast<uint16_t *>(a.out.data) + q.offset(a.out, line) + lane % 4 * 2;
#pragma unroll
      for (int n = 0; n < kHeadDim / 8; n++)
        *reinterpret_cast<uint32_t *>(to + n * 8) =
            Element<kDtype>::pack(state.o[n][2 * half] * scale, state.o[n][2 * half + 1] * scale);
      if (lane % 4 == 0 && a.lse.data)
        static_cast<float *>(a.lse.data)[q.offset(a.lse, line)] = make_lse(state.max[half], state.sum[half]);
    } else {
      int64_t at = partial_line(item.slot, line);
      float *to = a.partial_out + at * kHeadDim + lane % 4 * 2;
#pragma unroll
      for (int n = 0; n < kHeadDim / 8; n++)
        *reinterpret_cast<float2 *>(to + n * 8) = make_float2(state.o[n][2 * half], state.o[n][2 * half + 1]);
      if (lane % 4 == 0)
        reinterpret_cast<float2 *>(a.partial_state)[at] = make_float2(state.max[half], state.sum[half]);
    }
  }
}

/* Of warps that split the tokens: their states meet in `scratch` [4][16][kHeadDim], the stage that was worked on last, and
 * are added in the order of the warps. Columns are exchanged in groups of 8 so that rows lie in different banks. */
template <int kDtype, int kHeadDim>
__device__ __forceinline__ void combine_warps(const cgr__attention_args &a, const cgr__plan_item &item, const QueryTile &q,
                                              const Softmax<kHeadDim> &state, AttentionShared &shared, float *scratch) {
  constexpr int kVectors = kHeadDim / 4;
  int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  __syncthreads(); /* all warps are done with the stage */
#pragma unroll
  for (int half = 0; half < 2; half++) {
    int line = lane / 4 + 8 * half;
    if (lane % 4 == 0)
      shared.state[warp][line] = make_float2(state.max[half], state.sum[half]);
    float *to = scratch + (warp * kWarpLines + line) * kHeadDim;
#pragma unroll
    for (int n = 0; n < kHeadDim / 8; n++)
      *reinterpret_cast<float2 *>(to + ((n ^ (line & 7)) * 8 + lane % 4 * 2)) =
          make_float2(state.o[n][2 * half], state.o[n][2 * half + 1]);
  }
  __syncthreads();
  for (int32_t e = threadIdx.x; e < q.lines * kVectors; e += kAttentionThreads) {
    int32_t line = e / kVectors, d = e % kVectors * 4;
    float max = -INFINITY, sum = 0.0f;
#pragma unroll
    for (int w = 0; w < kAttentionWarps; w++)
      max = fmaxf(max, shared.state[w][line].x);
    float base = safe_max(max);
    float4 o = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll
    for (int w = 0; w < kAttentionWarps; w++) {
      float2 one = shared.state[w][line];
      float scale = exp2_approx(one.x - base);
      float4 x = *reinterpret_cast<const float4 *>(scratch + (w * kWarpLines + line) * kHeadDim + (d ^ ((line & 7) * 8)));
      sum += one.y * scale;
      o.x += x.x * scale;
      o.y += x.y * scale;
      o.z += x.z * scale;
      o.w += x.w * scale;
    }
    if (item.slot < 0) {
      store_output<kDtype>(a, q, line, d, o, max, sum);
    } else {
      int64_t at = partial_line(item.slot, line);
      *reinterpret_cast<float4 *>(a.partial_out + at * kHeadDim + d) = o;
      if (d == 0)
        reinterpret_cast<float2 *>(a.partial_state)[at] = make_float2(max, sum);
    }
  }
}

/* ----------------------------------------------------------------------------------------------------------------- merge */

/* Counts this part's arrival at a split tile; true in all threads of the part that came last. The barrier before the count
 * makes every thread's stores of its partial happen before thread 0's release, which is cumulative; its acquire and the
 * barrier after it order the count before anyone's reads, which go past L1. */
__device__ __forceinline__ bool arrive(const cgr__attention_args &a, const cgr__plan_item &item, int32_t *is_last) {
  __syncthreads();
  if (threadIdx.x == 0) {
    int32_t *counter = &a.plan_counters[item.first * (int32_t)gridDim.y + (int32_t)blockIdx.y];
    int32_t before;
    asm volatile("atom.add.acq_rel.gpu.global.s32 %0, [%1], 1;"
                 : "=r"(before)
                 : "l"(__cvta_generic_to_global(counter))
                 : "memory");
    bool last = before == item.last - item.first;
    if (last)
      *counter = 0;
    *is_last = last;
  }
  __syncthreads();
  return *is_last != 0;
}

/* Merges the partials of a tile in ascending order of their parts, whichever part does it. Every thread takes 4 elements of a
 * line at a time; kBatch partials are under way together. */
template <int kDtype, int kHeadDim>
__device__ __noinline__ void merge_partials(const cgr__attention_args &a, const cgr__plan_item &item, const QueryTile &q) {
  constexpr int kBatch = 16;
  constexpr int kVectors = kHeadDim / 4;
  for (int32_t e = threadIdx.x; e < q.lines * kVectors; e += kAttentionThreads) {
    int32_t line = e / kVectors, d = e % kVectors * 4;
    float max = -INFINITY, sum = 0.0f;
    float4 o = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    for (int32_t p = item.first; p <= item.last; p += kBatch) {
      float4 part_o[kBatch];
      float2 part[kBatch];
#pragma unroll
      for (int u = 0; u < kBatch; u++) {
        part[u] = make_float2(-INFINITY, 0.0f);
        part_o[u] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        if (p + u <= item.last) {
          int64_t at = partial_line(2 * (p + u) + (p + u == item.first ? 1 : 0), line);
          part[u] = __ldcg(reinterpret_cast<const float2 *>(a.partial_state) + at);
          part_o[u] = __ldcg(reinterpret_cast<const float4 *>(a.partial_out + at * kHeadDim + d));
        }
      }
#pragma unroll
      for (int u = 0; u < kBatch; u++) {
        float new_max = fmaxf(max, part[u].x), base = safe_max(new_max);
        float old_scale = exp2_approx(max - base), part_scale = exp2_approx(part[u].x - base);
        sum = sum * old_scale + part[u].y * part_scale;
        o.x = o.x * old_scale + part_o[u].x * part_scale;
        o.y = o.y * old_scale + part_o[u].y * part_scale;
        o.z = o.z * old_scale + part_o[u].z * part_scale;
        o.w = o.w * old_scale + part_o[u].w * part_scale;
        max = new_max;
      }
    }
    store_output<kDtype>(a, q, line, d, o, max, sum);
  }
}

/* ------------------------------------------------------------------------------------------------- tokens without an owner */

/* Zeroes the outputs of token `token` for heads [head, head + heads): 16 bytes per thread at a time. */
template <int kHeadDim>
__device__ __forceinline__ void zero_token(const cgr__attention_args &a, int32_t token, int32_t head, int32_t heads) {
  constexpr int kChunks = kHeadDim / 8;
  for (int32_t e = threadIdx.x; e < heads * kChunks; e += kAttentionThreads) {
    int64_t offset = token * a.out.stride_token + (head + e / kChunks) * a.out.stride_head + e % kChunks * 8;
    *reinterpret_cast<uint4 *>(static_cast<uint16_t *>(a.out.data) + offset) = make_uint4(0, 0, 0, 0);
  }
  if (a.lse.data)
    for (int32_t h = threadIdx.x; h < heads; h += kAttentionThreads)
      static_cast<float *>(a.lse.data)[token * a.lse.stride_token + (head + h) * a.lse.stride_head] = -INFINITY;
}

/* This part's share of the padding and of the requests that a guard emptied. Called by all threads. */
template <int kHeadDim>
__device__ __noinline__ void zero_unowned(const cgr__attention_args &a, int32_t num_requests, int32_t num_tokens, int32_t head,
                                          int32_t heads) {
  int32_t part = (int32_t)blockIdx.x, parts = (int32_t)gridDim.x;
  for (int32_t t = num_tokens + part; t < a.num_tokens; t += parts)
    zero_token<kHeadDim>(a, t, head, heads);

  int emptied = 0;
  for (int32_t i = part + parts * (int32_t)threadIdx.x; i < num_requests; i += parts * kAttentionThreads)
    emptied |= a.seq_lens[i] == 0 && a.query_start_loc[i + 1] > a.query_start_loc[i];
  if (!__syncthreads_or(emptied))
    return;
  for (int32_t i = part; i < num_requests; i += parts) {
    if (a.seq_lens[i] != 0)
      continue;
    for (int32_t t = a.query_start_loc[i]; t < a.query_start_loc[i + 1]; t++)
      zero_token<kHeadDim>(a, t, head, heads);
  }
}

} // namespace cgr
#endif

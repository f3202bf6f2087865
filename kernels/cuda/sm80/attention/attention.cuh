/* Attention over pages (kernels/kernels.h): one CTA of four warps walks the segments of one part for one head block.
 *
 * A q tile has up to 64 rows, a row being one (token, head) pair. With more than 16 rows each warp takes 16 of them and all 64
 * tokens of a KV tile. With 16 or fewer, as in decode, each warp takes all rows and 16 of the 64 tokens, those that it copied
 * itself; the warps meet at the end of the segment only, where their four states are combined. Which of the two depends on
 * the tile alone, as does everything else that decides on roundings.
 *
 * Registers of a thread hold, for mma's rows g and g + 8 (g = lane / 4): q, the scores of one KV tile, the sums of the
 * output. */
#ifndef CGR_KERNELS_CUDA_SM80_ATTENTION_ATTENTION_CUH
#define CGR_KERNELS_CUDA_SM80_ATTENTION_ATTENTION_CUH

#include "kernels/cuda/sm80/attention/loader.cuh"
#include "kernels/cuda/sm80/attention/merge.cuh"
#include "kernels/cuda/sm80/launch.cuh"

namespace cgr {

struct AttentionShared {
  cgr__plan_part part;
  int32_t is_last;
  float2 state[kAttentionWarps][kWarpRows]; /* max and sum of each warp, when the warps split the tokens */
};

/* Online softmax of a thread's two rows. sum holds this thread's columns alone until the end of the segment. */
template <int kHeadDim> struct Softmax {
  float o[kHeadDim / 8][4];
  float max[2], sum[2];

  __device__ __forceinline__ void reset() {
#pragma unroll
    for (int n = 0; n < kHeadDim / 8; n++)
      o[n][0] = o[n][1] = o[n][2] = o[n][3] = 0.0f;
    max[0] = max[1] = -INFINITY;
    sum[0] = sum[1] = 0.0f;
  }
};

/* ------------------------------------------------------------------------------------------------------------- q and k.q */

/* The A fragments of rows first .. first + 15, straight from global memory: 4-byte loads, all under way together. */
template <int kHeadDim>
__device__ __forceinline__ void load_q(uint32_t (&fragment)[kHeadDim / 16][4], const cgr__attention_args &a, const QueryTile &q,
                                       int32_t first) {
  int lane = threadIdx.x & 31;
#pragma unroll
  for (int half = 0; half < 2; half++) {
    int32_t row = first + lane / 4 + 8 * half;
    bool valid = row < q.rows;
    const uint16_t *from = static_cast<const uint16_t *>(a.q.data) + (valid ? q.offset(a.q, row) : 0) + lane % 4 * 2;
#pragma unroll
    for (int k = 0; k < kHeadDim / 16; k++) {
      fragment[k][half] = valid ? *reinterpret_cast<const uint32_t *>(from + k * 16) : 0;
      fragment[k][half + 2] = valid ? *reinterpret_cast<const uint32_t *>(from + k * 16 + 8) : 0;
    }
  }
}

/* Scores of kBlocks x 8 tokens from `token` of the tile on. */
template <int kDtype, int kHeadDim, int kBlocks>
__device__ __forceinline__ void score(float (&s)[kBlocks][4], const uint32_t (&q)[kHeadDim / 16][4], uint32_t tile, int token) {
  constexpr int kRowBytes = AttentionShape<kHeadDim>::kRowBytes;
  int lane = threadIdx.x & 31;
  int row = token + (lane & 7) + ((lane >> 4) & 1) * 8, column = (lane >> 3) & 1;
#pragma unroll
  for (int n = 0; n < kBlocks; n++)
    s[n][0] = s[n][1] = s[n][2] = s[n][3] = 0.0f;
#pragma unroll
  for (int k = 0; k < kHeadDim / 16; k++) {
#pragma unroll
    for (int n = 0; n < kBlocks; n += 2) {
      uint32_t b[4];
      load_matrix(b, tile + tile_offset<kRowBytes>(row + n * 8, 2 * k + column));
      Element<kDtype>::mma(s[n], q[k], b[0], b[1]);
      Element<kDtype>::mma(s[n + 1], q[k], b[2], b[3]);
    }
  }
}

/* Scores of tokens behind a row's own position become -inf. `token`: absolute, of column 0. */
template <int kBlocks> __device__ __forceinline__ void mask(float (&s)[kBlocks][4], int32_t token, const int32_t (&position)[2]) {
  int32_t column = token + (int32_t)(threadIdx.x & 3) * 2;
#pragma unroll
  for (int n = 0; n < kBlocks; n++) {
#pragma unroll
    for (int e = 0; e < 4; e++) {
      if (column + n * 8 + (e & 1) > position[e >> 1])
        s[n][e] = -INFINITY;
    }
  }
}

/* ------------------------------------------------------------------------------------------------------- softmax and p.v */

/* Scores become probabilities relative to the new maximum; sums and outputs so far are rescaled to it. */
template <int kHeadDim, int kBlocks>
__device__ __forceinline__ void softmax(float (&s)[kBlocks][4], Softmax<kHeadDim> &state, float scale) {
#pragma unroll
  for (int half = 0; half < 2; half++) {
    float max = state.max[half];
#pragma unroll
    for (int n = 0; n < kBlocks; n++) {
      s[n][2 * half] *= scale;
      s[n][2 * half + 1] *= scale;
      max = fmaxf(max, fmaxf(s[n][2 * half], s[n][2 * half + 1]));
    }
    max = fmaxf(max, __shfl_xor_sync(0xffffffffu, max, 1));
    max = fmaxf(max, __shfl_xor_sync(0xffffffffu, max, 2));
    float base = safe_max(max), rescale = exp2_approx(state.max[half] - base), sum = state.sum[half] * rescale;
    state.max[half] = max;
#pragma unroll
    for (int n = 0; n < kBlocks; n++) {
      s[n][2 * half] = exp2_approx(s[n][2 * half] - base);
      s[n][2 * half + 1] = exp2_approx(s[n][2 * half + 1] - base);
      sum += s[n][2 * half] + s[n][2 * half + 1];
    }
    state.sum[half] = sum;
#pragma unroll
    for (int n = 0; n < kHeadDim / 8; n++) {
      state.o[n][2 * half] *= rescale;
      state.o[n][2 * half + 1] *= rescale;
    }
  }
}

template <int kDtype, int kHeadDim, int kBlocks>
__device__ __forceinline__ void accumulate(Softmax<kHeadDim> &state, const float (&p)[kBlocks][4], uint32_t tile, int token) {
  constexpr int kRowBytes = AttentionShape<kHeadDim>::kRowBytes;
  int lane = threadIdx.x & 31;
  int row = token + (lane & 15), column = lane >> 4;
#pragma unroll
  for (int n = 0; n < kBlocks; n += 2) {
    uint32_t fragment[4] = { Element<kDtype>::pack(p[n][0], p[n][1]), Element<kDtype>::pack(p[n][2], p[n][3]),
                             Element<kDtype>::pack(p[n + 1][0], p[n + 1][1]), Element<kDtype>::pack(p[n + 1][2], p[n + 1][3]) };
#pragma unroll
    for (int d = 0; d < kHeadDim / 8; d += 2) {
      uint32_t b[4];
      load_matrix_transposed(b, tile + tile_offset<kRowBytes>(row + n * 8, d + column));
      Element<kDtype>::mma(state.o[d], fragment, b[0], b[1]);
      Element<kDtype>::mma(state.o[d + 1], fragment, b[2], b[3]);
    }
  }
}

template <int kHeadDim> __device__ __forceinline__ void finish_sums(Softmax<kHeadDim> &state) {
#pragma unroll
  for (int half = 0; half < 2; half++) {
    state.sum[half] += __shfl_xor_sync(0xffffffffu, state.sum[half], 1);
    state.sum[half] += __shfl_xor_sync(0xffffffffu, state.sum[half], 2);
  }
}

/* --------------------------------------------------------------------------------------------------------------- results */

/* Of warps that own rows: each thread stores pairs of elements. */
template <int kDtype, int kHeadDim>
__device__ __forceinline__ void write_rows(const cgr__attention_args &a, const cgr__plan_segment &segment, const QueryTile &q,
                                           const Softmax<kHeadDim> &state, int32_t first) {
  int lane = threadIdx.x & 31;
#pragma unroll
  for (int half = 0; half < 2; half++) {
    int32_t row = first + lane / 4 + 8 * half;
    if (row >= q.rows)
      continue;
    if (segment.slot < 0) {
      float scale = inverse(state.sum[half]);
      uint16_t *to = static_cast<uint16_t *>(a.out.data) + q.offset(a.out, row) + lane % 4 * 2;
#pragma unroll
      for (int n = 0; n < kHeadDim / 8; n++)
        *reinterpret_cast<uint32_t *>(to + n * 8) =
            Element<kDtype>::pack(state.o[n][2 * half] * scale, state.o[n][2 * half + 1] * scale);
      if (lane % 4 == 0 && a.lse)
        a.lse[q.lse_offset(a.lse_stride, row)] = make_lse(state.max[half], state.sum[half]);
    } else {
      int64_t at = partial_row(segment.slot, row);
      float *to = a.partial_out + at * kHeadDim + lane % 4 * 2;
#pragma unroll
      for (int n = 0; n < kHeadDim / 8; n++)
        *reinterpret_cast<float2 *>(to + n * 8) = make_float2(state.o[n][2 * half], state.o[n][2 * half + 1]);
      if (lane % 4 == 0)
        reinterpret_cast<float2 *>(a.partial_max_sum)[at] = make_float2(state.max[half], state.sum[half]);
    }
  }
}

/* Of warps that split the tokens: their states meet in `scratch` [4][16][kHeadDim], the stage that was worked on last, and
 * are added in the order of the warps. Columns are exchanged in groups of 8 so that rows lie in different banks. */
template <int kDtype, int kHeadDim>
__device__ __forceinline__ void combine_warps(const cgr__attention_args &a, const cgr__plan_segment &segment, const QueryTile &q,
                                              const Softmax<kHeadDim> &state, AttentionShared &shared, float *scratch) {
  constexpr int kVectors = kHeadDim / 4;
  int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  __syncthreads(); /* all warps are done with the stage */
#pragma unroll
  for (int half = 0; half < 2; half++) {
    int row = lane / 4 + 8 * half;
    if (lane % 4 == 0)
      shared.state[warp][row] = make_float2(state.max[half], state.sum[half]);
    float *to = scratch + (warp * kWarpRows + row) * kHeadDim;
#pragma unroll
    for (int n = 0; n < kHeadDim / 8; n++)
      *reinterpret_cast<float2 *>(to + ((n ^ (row & 7)) * 8 + lane % 4 * 2)) =
          make_float2(state.o[n][2 * half], state.o[n][2 * half + 1]);
  }
  __syncthreads();
  for (int32_t e = threadIdx.x; e < q.rows * kVectors; e += kAttentionThreads) {
    int32_t row = e / kVectors, d = e % kVectors * 4;
    float max = -INFINITY, sum = 0.0f;
#pragma unroll
    for (int w = 0; w < kAttentionWarps; w++)
      max = fmaxf(max, shared.state[w][row].x);
    float base = safe_max(max);
    float4 o = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll
    for (int w = 0; w < kAttentionWarps; w++) {
      float2 one = shared.state[w][row];
      float scale = exp2_approx(one.x - base);
      float4 x = *reinterpret_cast<const float4 *>(scratch + (w * kWarpRows + row) * kHeadDim + (d ^ ((row & 7) * 8)));
      sum += one.y * scale;
      o.x += x.x * scale;
      o.y += x.y * scale;
      o.z += x.z * scale;
      o.w += x.w * scale;
    }
    if (segment.slot < 0) {
      store_output<kDtype>(a, q, row, d, o, max, sum);
    } else {
      int64_t at = partial_row(segment.slot, row);
      *reinterpret_cast<float4 *>(a.partial_out + at * kHeadDim + d) = o;
      if (d == 0)
        reinterpret_cast<float2 *>(a.partial_max_sum)[at] = make_float2(max, sum);
    }
  }
}

/* -------------------------------------------------------------------------------------------------------------- segments */

/* All KV tiles of one segment. `stage` is the stage of its first tile, and of the next segment's afterwards.
 *
 * Whenever a tile begins, it and the two behind it are on their way, in six groups of copies. A warp that splits the tokens
 * refills the place of K or V as soon as it has read it. Warps that own rows share the tile, and refill after a barrier. The
 * place of a segment's last tile is refilled after the results have left, which pass through it. */
template <int kDtype, int kHeadDim, bool kSplitTokens>
__device__ __forceinline__ void run_segment(const cgr__attention_args &a, const cgr__plan_segment &segment, const QueryTile &q,
                                            Loader<kHeadDim> &loader, AttentionShared &shared, unsigned char *memory,
                                            int &stage) {
  using Shape = AttentionShape<kHeadDim>;
  constexpr int kBlocks = kSplitTokens ? 2 : CGR__TILE_KV / 8;
  int warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
  int token = kSplitTokens ? warp * kWarpRows : 0;     /* of the tile: this warp's first */
  int32_t first = kSplitTokens ? 0 : warp * kWarpRows; /* this warp's first row */
  bool busy = first < q.rows;
  uint32_t base = (uint32_t)__cvta_generic_to_shared(memory);
  float scale = a.scale * 1.44269504088896341f;

  uint32_t q_fragment[kHeadDim / 16][4];
  load_q<kHeadDim>(q_fragment, a, q, first);
  int32_t position[2] = { q.position + (first + lane / 4) / q.heads, q.position + (first + lane / 4 + 8) / q.heads };
  int32_t warp_position = q.position + first / q.heads; /* the smallest of the warp's rows */
  Softmax<kHeadDim> state;
  state.reset();

  for (int32_t tile = segment.kv_begin;; tile++) {
    bool last = tile + 1 == segment.kv_end;
    uint32_t k = base + stage * Shape::kStageBytes, v = k + Shape::kTileBytes;
    int32_t absolute = tile * CGR__TILE_KV + token;
    copy_async_wait<kSplitTokens ? 2 * kAttentionStages - 1 : 2 * kAttentionStages - 2>(); /* K is here, or K and V */
    if constexpr (kSplitTokens)
      __syncwarp();
    else
      __syncthreads();
    if (busy) {
      float s[kBlocks][4];
      score<kDtype, kHeadDim, kBlocks>(s, q_fragment, k, token);
      if constexpr (kSplitTokens) {
        __syncwarp();
        if (!last)
          loader.issue_k(a, k);
      }
      if (absolute + kBlocks * 8 - 1 > warp_position)
        mask<kBlocks>(s, absolute, position);
      softmax<kHeadDim, kBlocks>(s, state, scale);
      if constexpr (kSplitTokens) {
        if (last) /* no K was issued: V is the first of one group fewer */
          copy_async_wait<2 * kAttentionStages - 2>();
        else
          copy_async_wait<2 * kAttentionStages - 1>();
        __syncwarp();
      }
      accumulate<kDtype, kHeadDim, kBlocks>(state, s, v, token);
    }
    if (last)
      break;
    if constexpr (kSplitTokens) {
      __syncwarp();
    } else {
      __syncthreads();
      loader.issue_k(a, k);
    }
    loader.issue_v(a, &shared.part, k);
    stage = stage + 1 == kAttentionStages ? 0 : stage + 1;
  }

  finish_sums<kHeadDim>(state);
  if constexpr (kSplitTokens)
    combine_warps<kDtype, kHeadDim>(a, segment, q, state, shared, reinterpret_cast<float *>(memory + stage * Shape::kStageBytes));
  else
    write_rows<kDtype, kHeadDim>(a, segment, q, state, first);
  __syncthreads(); /* all are done with the last stage */
  loader.issue_k(a, base + stage * Shape::kStageBytes);
  loader.issue_v(a, &shared.part, base + stage * Shape::kStageBytes);
  stage = stage + 1 == kAttentionStages ? 0 : stage + 1;
  if (segment.slot >= 0 && arrive(a, segment, &shared.is_last))
    merge_partials<kDtype, kHeadDim>(a, segment, q);
}

/* ---------------------------------------------------------------------------------------------------------------- kernel */

template <int kDtype, int kHeadDim>
__global__ void __launch_bounds__(kAttentionThreads, 2) attention_kernel(const __grid_constant__ cgr__attention_args a) {
  using Shape = AttentionShape<kHeadDim>;
  static_assert(kAttentionWarps * kWarpRows * kHeadDim * 4 <= Shape::kStageBytes, "the warps' states fit a stage");
  extern __shared__ __align__(128) unsigned char memory[];
  __shared__ AttentionShared shared;

  int32_t part = (int32_t)blockIdx.x;
  if (threadIdx.x < sizeof(cgr__plan_part) / sizeof(int32_t))
    reinterpret_cast<int32_t *>(&shared.part)[threadIdx.x] =
        a.plan[(sizeof(cgr__plan_header) + part * sizeof(cgr__plan_part)) / sizeof(int32_t) + threadIdx.x];
  int32_t num_requests = a.counts[CGR__COUNT_REQUESTS], num_tokens = a.counts[CGR__COUNT_TOKENS];
  __syncthreads();

  int32_t group = a.num_q_heads / a.num_kv_heads;
  int32_t blocks = (group + CGR__TILE_ROWS - 1) / CGR__TILE_ROWS; /* of one KV head */
  int32_t kv_head = (int32_t)blockIdx.y / blocks, begin = (int32_t)blockIdx.y % blocks * CGR__TILE_ROWS;
  int32_t heads = min(group - begin, CGR__TILE_ROWS), head = kv_head * group + begin;

  Loader<kHeadDim> loader;
  loader.begin(a, &shared.part, kv_head);
#pragma unroll
  for (int s = 0; s < kAttentionStages; s++) {
    uint32_t stage = (uint32_t)__cvta_generic_to_shared(memory) + s * Shape::kStageBytes;
    loader.issue_k(a, stage);
    loader.issue_v(a, &shared.part, stage);
  }
  zero_unowned<kHeadDim>(a, num_requests, num_tokens, head, heads); /* while the first tiles are on their way */

  cgr__plan_walk walk = cgr__plan_walk_begin(&shared.part);
  cgr__plan_segment segment;
  int stage = 0;
  while (cgr__plan_walk_next(&walk, &shared.part, part, a.query_start_loc, a.seq_lens, a.tile_q, &segment)) {
    int32_t start = a.query_start_loc[segment.request], query_len = a.query_start_loc[segment.request + 1] - start;
    int32_t offset = segment.q_tile * a.tile_q;
    QueryTile q;
    q.heads = heads;
    q.rows = min(a.tile_q, query_len - offset) * heads;
    q.token = start + offset;
    q.head = head;
    q.position = a.seq_lens[segment.request] - query_len + offset;
    if (q.rows <= kWarpRows)
      run_segment<kDtype, kHeadDim, true>(a, segment, q, loader, shared, memory, stage);
    else
      run_segment<kDtype, kHeadDim, false>(a, segment, q, loader, shared, memory, stage);
  }
  copy_async_wait<0>();
}

template <int kHeadDim> int attention_launch(const cgr__attention_args *args, dim3 grid, cudaStream_t stream) {
  constexpr size_t kShared = AttentionShape<kHeadDim>::kSharedBytes;
  if (args->q.dtype == CGR_DTYPE_BF16)
    return launch(attention_kernel<CGR_DTYPE_BF16, kHeadDim>, args, grid, dim3(kAttentionThreads), kShared, stream);
  return launch(attention_kernel<CGR_DTYPE_FP16, kHeadDim>, args, grid, dim3(kAttentionThreads), kShared, stream);
}

template <int kHeadDim> int attention_preload() {
  constexpr size_t kShared = AttentionShape<kHeadDim>::kSharedBytes;
  int error = preload(attention_kernel<CGR_DTYPE_BF16, kHeadDim>, kShared);
  return error ? error : preload(attention_kernel<CGR_DTYPE_FP16, kHeadDim>, kShared);
}

} // namespace cgr
#endif

/* One work item: q against all KV tiles of the item, while the next tiles are on their way.
 *
 * A q tile has up to 64 lines, a line being one (token, head) pair. With more than 16 lines each warp takes 16 of them and all 64
 * tokens of a KV tile. With 16 or fewer, as in decode, each warp takes all lines and 16 of the 64 tokens, those that it copied
 * itself; the warps meet at the end of the item only, where their four states are combined. Which of the two depends on
 * the tile alone, as does everything else that decides on roundings. */
#ifndef CGR_KERNELS_CUDA_SM80_ATTENTION_MAINLOOP_CUH
#define CGR_KERNELS_CUDA_SM80_ATTENTION_MAINLOOP_CUH

#include "kernels/cuda/sm80/attention/combine.cuh"
#include "kernels/cuda/sm80/attention/producer.cuh"
#include "kernels/cuda/sm80/attention/softmax.cuh"

namespace cgr {

/* The A fragments of rows first .. first + 15, straight from global memory: 4-byte loads, all under way together. Zeros beyond
 * the head dim. */
template <int kHeadDim, bool kGeneral>
__device__ __forceinline__ void load_q(uint32_t (&fragment)[kHeadDim / 16][4], const cgr__attention_args &a, const QueryTile &q,
                                       int32_t first) {
  int lane = threadIdx.x & 31;
#pragma unroll
  for (int half = 0; half < 2; half++) {
    int32_t row = first + lane / 4 + 8 * half;
    bool valid = row < q.lines;
    const uint16_t *from = static_cast<const uint16_t *>(a.q.data) + (valid ? q.offset(a.q, row) : 0) + lane % 4 * 2;
#pragma unroll
    for (int k = 0; k < kHeadDim / 16; k++) {
      bool has_first = valid && (!kGeneral || k * 16 < a.head_dim), has_second = valid && (!kGeneral || k * 16 + 8 < a.head_dim);
      fragment[k][half] = has_first ? *reinterpret_cast<const uint32_t *>(from + k * 16) : 0;
      fragment[k][half + 2] = has_second ? *reinterpret_cast<const uint32_t *>(from + k * 16 + 8) : 0;
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

/* What the two lines of a thread, `line` and line + 8 of the tile, see, and what their scores come to. */
__device__ __forceinline__ Scoring scoring_of(const cgr__attention_args &a, const cgr__plan_item &item, const QueryTile &q,
                                              int32_t line) {
  const cgr__plan_class &c = a.plan_class;
  int32_t query_len = a.query_start_loc[item.request + 1] - a.query_start_loc[item.request];
  int32_t seen = cgr__plan_seen_len(&c, query_len, a.seq_lens[item.request]);
  Scoring s;
  s.scale = a.scale;
  s.softcap = a.softcap;
  s.has_slopes = a.alibi_slopes != nullptr;
  s.sqrt_distance = a.alibi_sqrt != 0;
#pragma unroll
  for (int half = 0; half < 2; half++) {
    int32_t own = min(line + 8 * half, q.lines - 1); /* lines past the last are nobody's: they see what it sees */
    int32_t query = item.query_begin + own / q.heads;
    s.visible[half] = cgr__plan_kv_tokens(&c, query_len, seen, query, query);
    s.position[half] = seen - query_len + query;
    s.slope[half] = s.has_slopes ? a.alibi_slopes[q.head + own % q.heads] : 0.0f;
  }
  return s;
}

/* All KV tiles of one item. `stage` is the stage of its first tile, and of its last afterwards.
 *
 * Whenever a tile begins, it and those after it in the other stages are on their way, in two groups of copies each. A warp that
 * splits the tokens refills the place of K or V as soon as it has read it. Warps that own lines share the tile, and refill after
 * a barrier. The stage of an item's last tile is refilled by the caller, after the results have left, which pass through it. */
template <int kDtype, int kHeadDim, bool kGeneral, bool kSplitTokens>
__device__ __forceinline__ void run_item(const cgr__attention_args &a, const cgr__plan_item &item, const QueryTile &q,
                                         Loader<kHeadDim, kGeneral> &loader, AttentionShared &shared, unsigned char *memory,
                                         int &stage) {
  using Shape = AttentionShape<kHeadDim>;
  constexpr int kBlocks = kSplitTokens ? 2 : kTileKv / 8;
  int warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
  int token = kSplitTokens ? warp * kWarpLines : 0;     /* of the tile: this warp's first */
  int32_t first = kSplitTokens ? 0 : warp * kWarpLines; /* this warp's first row */
  bool busy = first < q.lines;
  uint32_t base = (uint32_t)__cvta_generic_to_shared(memory);
  float scale = a.scale * kLog2e;

  uint32_t q_fragment[kHeadDim / 16][4];
  load_q<kHeadDim, kGeneral>(q_fragment, a, q, first);
  int32_t position[2] = { q.position + (first + lane / 4) / q.heads, q.position + (first + lane / 4 + 8) / q.heads };
  int32_t warp_position = q.position + first / q.heads; /* the smallest of the warp's rows */
  Scoring scoring;
  if constexpr (kGeneral)
    scoring = scoring_of(a, item, q, first + lane / 4);
  Softmax<kHeadDim> state;
  state.reset();

  for (int32_t tile = item.kv_begin;; tile++) {
    bool last = tile + 1 == item.kv_end;
    uint32_t k = base + stage * Shape::kStageBytes, v = k + Shape::kTileBytes;
    int32_t absolute = tile * kTileKv + token;
    copy_async_wait<kSplitTokens ? 2 * Shape::kStages - 1 : 2 * Shape::kStages - 2>(); /* K is here, or K and V */
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
      if constexpr (kGeneral)
        score_lines<kBlocks>(s, absolute, scoring);
      else if (absolute + kBlocks * 8 - 1 > warp_position)
        mask<kBlocks>(s, absolute, position);
      softmax<kHeadDim, kBlocks>(s, state, kGeneral ? 1.0f : scale);
      if constexpr (kSplitTokens) {
        if (last) /* no K was issued: V is the first of one group fewer */
          copy_async_wait<2 * Shape::kStages - 2>();
        else
          copy_async_wait<2 * Shape::kStages - 1>();
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
    loader.issue_v(a, shared.part, k);
    stage = stage + 1 == Shape::kStages ? 0 : stage + 1;
  }

  finish_sums<kHeadDim>(state);
  if constexpr (kSplitTokens)
    combine_warps<kDtype, kHeadDim, kGeneral>(a, item, q, state, shared,
                                              reinterpret_cast<float *>(memory + stage * Shape::kStageBytes));
  else
    write_lines<kDtype, kHeadDim, kGeneral>(a, item, q, state, first);
}

} // namespace cgr
#endif

/* The online softmax of one thread: for rows g and g + 8 of an mma (g = lane / 4) it keeps the running maximum, the running sum
 * and the output, not yet normalised. */
#ifndef CGR_KERNELS_CUDA_ATTENTION_SM80_SOFTMAX_CUH
#define CGR_KERNELS_CUDA_ATTENTION_SM80_SOFTMAX_CUH

#include "kernels/cuda/attention/sm80/mma.cuh"
#include "kernels/cuda/attention/sm80/scoring.cuh"
#include "kernels/cuda/attention/sm80/traits.h"

namespace cgr {

/* Online softmax of a thread's two rows. sum holds this thread's columns alone until the end of the item. */
template <int kHeadDim> struct Softmax {
  float o[kHeadDim / 8][4];
  float max[2], sum[2];
  float pending[2]; /* to be subtracted from all of a row's outputs */

  __device__ __forceinline__ void reset() {
#pragma unroll
    for (int n = 0; n < kHeadDim / 8; n++)
      o[n][0] = o[n][1] = o[n][2] = o[n][3] = 0.0f;
    max[0] = max[1] = -INFINITY;
    sum[0] = sum[1] = 0.0f;
    pending[0] = pending[1] = 0.0f;
  }
};

/* Scores of tokens after a line's own position become -inf. `token`: absolute, of column 0. */
__device__ __forceinline__ void mask(float (&s)[kTileKv / 8][4], int32_t token, const int32_t (&position)[2]) {
  int32_t column = token + (int32_t)(threadIdx.x & 3) * 2;
#pragma unroll
  for (int n = 0; n < kTileKv / 8; n++) {
#pragma unroll
    for (int e = 0; e < 4; e++) {
      if (column + n * 8 + (e & 1) > position[e >> 1])
        s[n][e] = -INFINITY;
    }
  }
}

/* Scores of general lines, in units of log2(e). `token`: absolute, of column 0. */
__device__ __forceinline__ void score_rows(float (&s)[kTileKv / 8][4], int32_t token, const Scoring (&scoring)[2]) {
  int32_t column = token + (int32_t)(threadIdx.x & 3) * 2;
#pragma unroll
  for (int n = 0; n < kTileKv / 8; n++) {
#pragma unroll
    for (int e = 0; e < 4; e++)
      s[n][e] = scoring[e >> 1].apply(s[n][e], column + n * 8 + (e & 1));
  }
}

/* Scores become probabilities relative to the new maximum; sums and outputs so far are rescaled to it. With kIsPending what is
 * pending is subtracted, too. */
template <int kHeadDim, bool kIsPending>
__device__ __forceinline__ void softmax(float (&s)[kTileKv / 8][4], Softmax<kHeadDim> &state, float scale) {
#pragma unroll
  for (int half = 0; half < 2; half++) {
    float max = state.max[half];
#pragma unroll
    for (int n = 0; n < kTileKv / 8; n++) {
      s[n][2 * half] = __fmul_rn(s[n][2 * half], scale);
      s[n][2 * half + 1] = __fmul_rn(s[n][2 * half + 1], scale);
      max = fmaxf(max, fmaxf(s[n][2 * half], s[n][2 * half + 1]));
    }
    max = fmaxf(max, __shfl_xor_sync(0xffffffffu, max, 1));
    max = fmaxf(max, __shfl_xor_sync(0xffffffffu, max, 2));
    float base = safe_max(max), rescale = exp2_approx(state.max[half] - base), sum = state.sum[half];
    state.max[half] = max;
#pragma unroll
    for (int n = 0; n < kTileKv / 8; n++) {
      s[n][2 * half] = exp2_approx(s[n][2 * half] - base);
      s[n][2 * half + 1] = exp2_approx(s[n][2 * half + 1] - base);
      const float two = __fadd_rn(s[n][2 * half], s[n][2 * half + 1]);
      sum = n == 0 ? __fmaf_rn(sum, rescale, two) : __fadd_rn(sum, two);
    }
    state.sum[half] = sum;
    const float pending = kIsPending ? __fmul_rn(state.pending[half], rescale) : 0.0f;
#pragma unroll
    for (int n = 0; n < kHeadDim / 8; n++)
#pragma unroll
      for (int e = 2 * half; e < 2 * half + 2; e++)
        state.o[n][e] = kIsPending ? __fmaf_rn(state.o[n][e], rescale, -pending) : __fmul_rn(state.o[n][e], rescale);
  }
}

template <int kHeadDim> __device__ __forceinline__ void finish_sums(Softmax<kHeadDim> &state) {
#pragma unroll
  for (int half = 0; half < 2; half++) {
    state.sum[half] += __shfl_xor_sync(0xffffffffu, state.sum[half], 1);
    state.sum[half] += __shfl_xor_sync(0xffffffffu, state.sum[half], 2);
  }
}

} // namespace cgr
#endif

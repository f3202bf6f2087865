/* The online softmax of one thread: for mma's rows g and g + 8 (g = lane / 4) it keeps the running maximum and sum and the
 * output that is not normalised yet. */
#ifndef CGR_KERNELS_CUDA_SM80_ATTENTION_SOFTMAX_CUH
#define CGR_KERNELS_CUDA_SM80_ATTENTION_SOFTMAX_CUH

#include "kernels/cuda/sm80/attention/mma.cuh"
#include "kernels/cuda/sm80/attention/traits.h"

namespace cgr {

constexpr float kLog2e = 1.44269504088896341f, kLn2 = 0.69314718055994531f;

/* A maximum to subtract: 0 for one of nothing (-inf), so that -inf - (-inf) never happens and masked scores become 0. */
__device__ __forceinline__ float safe_max(float max) { return max == -INFINITY ? 0.0f : max; }

/* Online softmax of a thread's two rows. sum holds this thread's columns alone until the end of the item. */
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

/* Scores of tokens after a line's own position become -inf. `token`: absolute, of column 0. */
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

/* What a general line's scores come to besides scale * q.k (kernels/attention.h), in units of log2(e). */
struct Scoring {
  float scale, softcap;
  float slope[2];
  int32_t position[2];        /* of the thread's two lines in their sequence */
  cgr__plan_range visible[2]; /* tokens that they see */
  bool has_slopes, sqrt_distance;

  /* tanh(y) is 1 - 2 / (exp(2 y) + 1), of which little is left where y is small: there its series. */
  __device__ __forceinline__ float cap(float x) const {
    float y = x / softcap, square = y * y;
    float series = -0.0088632355f * square + 0.021869488f;
    series = series * square - 0.053968254f;
    series = series * square + 0.13333333f;
    series = series * square - 0.33333333f;
    float far = softcap * (1.0f - __fdividef(2.0f, exp2_approx(2.0f * kLog2e * y) + 1.0f));
    return fabsf(y) < 0.25f ? x + x * (series * square) : far;
  }

  __device__ __forceinline__ float apply(float product, int32_t token, int half) const {
    float x = product * scale;
    if (softcap != 0.0f)
      x = cap(x);
    if (has_slopes) {
      float distance = fabsf((float)(position[half] - token));
      x -= slope[half] * (sqrt_distance ? sqrtf(distance) : distance);
    }
    return token >= visible[half].begin && token < visible[half].end ? x * kLog2e : -INFINITY;
  }
};

/* `token`: absolute, of column 0. */
template <int kBlocks> __device__ __forceinline__ void score_lines(float (&s)[kBlocks][4], int32_t token, const Scoring &scoring) {
  int32_t column = token + (int32_t)(threadIdx.x & 3) * 2;
#pragma unroll
  for (int n = 0; n < kBlocks; n++) {
#pragma unroll
    for (int e = 0; e < 4; e++)
      s[n][e] = scoring.apply(s[n][e], column + n * 8 + (e & 1), e >> 1);
  }
}

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

template <int kHeadDim> __device__ __forceinline__ void finish_sums(Softmax<kHeadDim> &state) {
#pragma unroll
  for (int half = 0; half < 2; half++) {
    state.sum[half] += __shfl_xor_sync(0xffffffffu, state.sum[half], 1);
    state.sum[half] += __shfl_xor_sync(0xffffffffu, state.sum[half], 2);
  }
}

} // namespace cgr
#endif

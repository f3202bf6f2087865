/* Running sum over a block of 1024 threads. */
#ifndef CGR_KERNELS_CUDA_STEP_SCAN_CUH
#define CGR_KERNELS_CUDA_STEP_SCAN_CUH

#include <stdint.h>

namespace cgr {

constexpr int kStepThreads = 1024; /* of the kernels that run as one block */

template <typename T> struct ScanScratch { T warp[32]; };

/* Inclusive sum of `value` over the threads of the block; `total` gets the sum of all. Called by all threads; ends with a
 * barrier, so that the scratch may be used again at once. */
template <typename T> __device__ __forceinline__ T block_scan(T value, ScanScratch<T> &scratch, T &total) {
  int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
#pragma unroll
  for (int d = 1; d < 32; d *= 2) {
    T other = __shfl_up_sync(0xffffffffu, value, d);
    if (lane >= d)
      value += other;
  }
  if (lane == 31)
    scratch.warp[warp] = value;
  __syncthreads();
  T sum = scratch.warp[lane]; /* every warp scans the 32 sums for itself: a barrier less */
#pragma unroll
  for (int d = 1; d < 32; d *= 2) {
    T other = __shfl_up_sync(0xffffffffu, sum, d);
    if (lane >= d)
      sum += other;
  }
  total = __shfl_sync(0xffffffffu, sum, 31);
  T before = __shfl_sync(0xffffffffu, sum, warp > 0 ? warp - 1 : 0);
  if (warp > 0)
    value += before;
  __syncthreads();
  return value;
}

} // namespace cgr
#endif

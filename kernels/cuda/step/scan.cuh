/* Running sum over a block of whole warps. */
#ifndef CGR_KERNELS_CUDA_STEP_SCAN_CUH
#define CGR_KERNELS_CUDA_STEP_SCAN_CUH

#include <stdint.h>

namespace cgr {

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
  T sum = lane < (int)(blockDim.x / 32) ? scratch.warp[lane] : 0; /* every warp adds up the sums itself: saves a barrier */
  total = __reduce_add_sync(0xffffffffu, sum);
  value += __reduce_add_sync(0xffffffffu, lane < warp ? sum : 0);
  __syncthreads();
  return value;
}

} // namespace cgr
#endif

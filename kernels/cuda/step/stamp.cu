/* A timestamp (kernels/stamp.h). One warp, or a block if a row of thousands of words is cleared. The time is taken first, so that
 * only the start of the kernel itself precedes it. */
#include "devices/cuda/access.cuh"
#include "devices/cuda/launch.cuh"
#include "kernels/cuda/launchers.h"
#include "kernels/stamp.h"

namespace cgr {
namespace {

constexpr int kThreads = 32, kClearingThreads = 256;

__global__ void __launch_bounds__(kClearingThreads) stamp_kernel(const __grid_constant__ cgr__stamp_args a) {
  int64_t now = device_time();
  uint64_t seq = a.state ? a.state->seq + 1 : 0;
  int64_t *row = cgr__stamp_row(a.stamps, seq, a.ring_depth, a.stride);
  if (a.first) {
    for (int32_t i = (int32_t)threadIdx.x; i < a.stride; i += (int32_t)blockDim.x)
      row[i] = i == 0 ? (int64_t)seq : 0;
    __syncthreads();
  }
  if (threadIdx.x != 0)
    return;
#pragma unroll
  for (int i = 0; i < CGR__STAMP_WORDS; i++)
    if (a.word[i] > 0)
      row[a.word[i]] = now;
}

} // namespace
} // namespace cgr

extern "C" int cgr__cuda_stamp(const void *args, cudaStream_t stream) {
  const cgr__stamp_args *a = static_cast<const cgr__stamp_args *>(args);
  if (a->ring_depth < 1)
    return (int)cudaErrorInvalidValue;
  return cgr::launch(cgr::stamp_kernel, args, dim3(1), dim3(a->first ? cgr::kClearingThreads : cgr::kThreads), 0, stream);
}

extern "C" int cgr__cuda_stamp_preload(void) { return cgr::preload(cgr::stamp_kernel, 0); }

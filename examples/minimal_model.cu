/* The operations on a GPU, one thread per token or request: written to be read, not to be fast. */
#include <cuda_runtime.h>

#include "minimal_arithmetic.h"

namespace {

constexpr int kThreads = 64;

__global__ void Run(minimal_launch launch) {
  const int i = blockIdx.x * kThreads + threadIdx.x;
  if (i < launch.count)
    minimal_one(&launch, i);
}

} // namespace

int minimal_launch_cuda(const minimal_launch *launch, cudaStream_t stream) {
  cudaError_t error = cudaSetDevice(launch->model.ordinal); /* cgr leaves the current device to the engine */
  if (error != cudaSuccess)
    return error;
  Run<<<(launch->count + kThreads - 1) / kThreads, kThreads, 0, stream>>>(*launch);
  return cudaGetLastError();
}

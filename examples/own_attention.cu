/* One thread per token: written to be read, not to be fast. */
#include <cuda_runtime.h>

#include "own_attention.h"

namespace {

constexpr int kThreads = 64;

__global__ void Attend(own_attention attention) {
  const int token = blockIdx.x * kThreads + threadIdx.x;
  if (token < attention.num_tokens)
    own_attend(&attention, token);
}

} // namespace

int own_attention_cuda(const own_attention *attention, cudaStream_t stream) {
  cudaError_t error = cudaSetDevice(attention->ordinal); /* cgr leaves the current device to the engine */
  if (error != cudaSuccess)
    return error;
  Attend<<<(attention->num_tokens + kThreads - 1) / kThreads, kThreads, 0, stream>>>(*attention);
  return cudaGetLastError();
}

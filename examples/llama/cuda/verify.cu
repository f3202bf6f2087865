/* Guesses: a thread per request. */
#include <cuda_runtime.h>

#include "examples/llama/cuda/kernels.h"
#include "examples/llama/verify.h"

namespace {

constexpr int kThreads = 64;

__global__ void Places(llama_places_args a) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i < a.requests)
    llama_place_request(&a, i);
}

__global__ void Verify(llama_verify_args a) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i < a.requests)
    llama_verify_request(&a, i);
}

int BlocksFor(int32_t requests) { return (requests + kThreads - 1) / kThreads; }

} // namespace

int llama_cuda_places(const llama_places_args *a, cudaStream_t stream) {
  Places<<<BlocksFor(a->requests), kThreads, 0, stream>>>(*a);
  return cudaGetLastError();
}

int llama_cuda_verify(const llama_verify_args *a, cudaStream_t stream) {
  Verify<<<BlocksFor(a->requests), kThreads, 0, stream>>>(*a);
  return cudaGetLastError();
}

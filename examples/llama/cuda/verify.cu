/* Guesses: a thread per request. Tests compile this file as C++, and launch a grid as a loop. */
#include "examples/llama/cuda/kernels.h"
#include "examples/llama/verify.h"

#ifndef LLAMA_LAUNCH
#define LLAMA_LAUNCH(kernel, blocks, threads, args, stream) kernel<<<blocks, threads, 0, stream>>>(args)
#endif

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
  LLAMA_LAUNCH(Places, BlocksFor(a->requests), kThreads, *a, stream);
  return cudaGetLastError();
}

int llama_cuda_verify(const llama_verify_args *a, cudaStream_t stream) {
  LLAMA_LAUNCH(Verify, BlocksFor(a->requests), kThreads, *a, stream);
  return cudaGetLastError();
}

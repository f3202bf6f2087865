/* The best of all ranks: a thread per row. Tests compile this file as C++, and launch a grid as a loop. */
#include "examples/llama/cuda/kernels.h"

#ifndef LLAMA_LAUNCH
#define LLAMA_LAUNCH(kernel, blocks, threads, args, stream) kernel<<<blocks, threads, 0, stream>>>(args)
#endif

namespace {

constexpr int kPickThreads = 64;

__global__ void Pick(llama_pick_args a) {
  const int row = static_cast<int>(blockIdx.x) * kPickThreads + static_cast<int>(threadIdx.x);
  if (row >= a.rows)
    return;
  llama_best best = a.best[row];
  for (int k = 1; k < a.ranks && best.token != LLAMA_NOT_FINITE; k++) {
    const llama_best other = a.best[k * a.rows + row];
    if (other.token == LLAMA_NOT_FINITE || other.value > best.value)
      best = other;
  }
  a.out[row] = best.token;
}

} // namespace

int llama_cuda_pick(const llama_pick_args *a, cudaStream_t stream) {
  LLAMA_LAUNCH(Pick, (a->rows + kPickThreads - 1) / kPickThreads, kPickThreads, *a, stream);
  return cudaGetLastError();
}

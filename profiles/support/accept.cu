#include "devices/cuda/launch.h"
#include "profiles/support/accept.h"

namespace {

constexpr uint32_t kThreads = 128;

__global__ void accept_kernel(const __grid_constant__ bench_accept a) {
  const int32_t i = static_cast<int32_t>(blockIdx.x * kThreads + threadIdx.x);
  if (i >= a.requests)
    return;
  a.num_accepted[i] = (a.seq_lens[i] + i) % (1 + a.num_drafts[i]);
  for (int32_t j = 0; j < a.stride; j++)
    a.next_tokens[static_cast<int64_t>(i) * a.stride + j] = j;
}

const void *symbol() { return reinterpret_cast<const void *>(accept_kernel); }

} // namespace

extern "C" int bench_cuda_accept(const void *args, cudaStream_t stream) {
  void *params[] = { const_cast<void *>(args) };
  const uint32_t requests = static_cast<uint32_t>(static_cast<const bench_accept *>(args)->requests);
  const uint32_t grid[3] = { (requests + kThreads - 1) / kThreads, 1, 1 }, block[3] = { kThreads, 1, 1 };
  return cgr__cuda_launch_kernel(symbol(), grid, block, params, 0, stream);
}

extern "C" int bench_cuda_accept_preload(void) { return cgr__cuda_preload_kernel(symbol(), 0); }

#include "devices/cuda/launch.h"
#include "profiles/support/read.h"

namespace {

constexpr uint32_t kThreads = 512, kBlocks = 8 /* per multiprocessor, one wave after the other */, kLoads = 4;

/* Nothing that is read stays in L1. */
__device__ __forceinline__ uint4 load(const uint4 *from) {
  uint4 x;
  asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w)
               : "l"(from));
  return x;
}

__global__ void read_kernel(const __grid_constant__ bench_read a) {
  const uint4 *data = static_cast<const uint4 *>(a.data);
  const int64_t count = a.bytes / 16, step = (int64_t)gridDim.x * kThreads;
  uint32_t sum = 0;
  int64_t i = (int64_t)blockIdx.x * kThreads + threadIdx.x;
  for (; i + (kLoads - 1) * step < count; i += kLoads * step) {
    uint4 x[kLoads];
#pragma unroll
    for (int u = 0; u < (int)kLoads; u++)
      x[u] = load(data + i + u * step);
#pragma unroll
    for (int u = 0; u < (int)kLoads; u++)
      sum ^= x[u].x ^ x[u].y ^ x[u].z ^ x[u].w;
  }
  for (; i < count; i += step)
    sum ^= load(data + i).x;
  if (sum == 0x9e3779b9u)
    *a.sink = sum;
}

const void *symbol() { return reinterpret_cast<const void *>(read_kernel); }

} // namespace

extern "C" int bench_cuda_read(const void *args, cudaStream_t stream) {
  const bench_read *a = static_cast<const bench_read *>(args);
  void *params[] = { const_cast<void *>(args) };
  const uint32_t grid[3] = { (uint32_t)a->multiprocessors * kBlocks, 1, 1 }, block[3] = { kThreads, 1, 1 };
  return cgr__cuda_launch_kernel(symbol(), grid, block, params, 0, stream);
}

extern "C" int bench_cuda_read_preload(void) { return cgr__cuda_preload_kernel(symbol(), 0); }

#include "devices/cuda/launch.h"
#include "profiles/support/clock.h"

namespace {

__device__ __forceinline__ uint64_t now_ns() {
  uint64_t ns;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns)::"memory");
  return ns;
}

__global__ void spin_kernel(const __grid_constant__ bench_spin a) {
  uint64_t ns = a.pace ? *a.pace : a.ns;
  uint64_t begin = ns > 0 ? now_ns() : 0;
  float value = (float)threadIdx.x;
  for (int32_t i = 0; i < a.iterations; i++)
    value = fmaf(value, value, value);
  if (value < 0.0f) /* never: but no compiler knows, so that it computes them */
    ns = 1;
  while (ns > 0 && now_ns() - begin < ns)
    ;
}

__global__ void mark_kernel(const __grid_constant__ bench_mark a) {
  *reinterpret_cast<volatile uint64_t *>(a.ns) = now_ns();
  __threadfence_system();
}

const void *spin_symbol() { return reinterpret_cast<const void *>(spin_kernel); }
const void *mark_symbol() { return reinterpret_cast<const void *>(mark_kernel); }

int launch(const void *symbol, const void *args, uint32_t blocks, uint32_t threads, cudaStream_t stream) {
  void *params[] = { const_cast<void *>(args) };
  const uint32_t grid[3] = { blocks, 1, 1 }, block[3] = { threads, 1, 1 };
  return cgr__cuda_launch_kernel(symbol, grid, block, params, 0, stream);
}

} // namespace

extern "C" int bench_cuda_spin(const void *args, cudaStream_t stream) {
  int32_t blocks = static_cast<const bench_spin *>(args)->blocks;
  return launch(spin_symbol(), args, blocks > 0 ? (uint32_t)blocks : 1, blocks > 0 ? 256 : 32, stream);
}

extern "C" int bench_cuda_spin_preload(void) { return cgr__cuda_preload_kernel(spin_symbol(), 0); }

extern "C" int bench_cuda_mark(const void *args, cudaStream_t stream) { return launch(mark_symbol(), args, 1, 1, stream); }

extern "C" int bench_cuda_mark_preload(void) { return cgr__cuda_preload_kernel(mark_symbol(), 0); }

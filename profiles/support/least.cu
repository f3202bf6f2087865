#include "devices/cuda/launch.h"
#include "profiles/support/least.h"

namespace {

constexpr uint32_t kThreads = 128; /* the fewest of cgr's */

__global__ void least_kernel(const __grid_constant__ bench_least a) {
  uint64_t value = 0;
  for (int32_t i = 0; i < a.num_loads; i++)
    asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(value) : "l"(a.device + 32 * (i + 1) + value) : "memory");
  if (threadIdx.x != 0)
    return;
  if (a.reads) {
    uint64_t word;
    asm volatile("ld.relaxed.sys.global.u64 %0, [%1];" : "=l"(word) : "l"(a.mapped) : "memory");
    value += word;
  }
  a.device[0] = value;
  if (!a.publishes)
    return;
  a.mapped[16] = value;
  asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(a.mapped + 32), "l"(value) : "memory");
}

const void *symbol() { return reinterpret_cast<const void *>(least_kernel); }

} // namespace

extern "C" int bench_cuda_least(const void *args, cudaStream_t stream) {
  void *params[] = { const_cast<void *>(args) };
  const uint32_t grid[3] = { 1, 1, 1 }, block[3] = { kThreads, 1, 1 };
  return cgr__cuda_launch_kernel(symbol(), grid, block, params, 0, stream);
}

extern "C" int bench_cuda_least_preload(void) { return cgr__cuda_preload_kernel(symbol(), 0); }

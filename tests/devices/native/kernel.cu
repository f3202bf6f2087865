/* Only sm_90a assembles this: the build fails when the file is compiled for anything else. */
#include "devices/cuda/launch.h"
#include "tests/devices/kernels.h"

static __global__ void native(test_native_args args) {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
  if (threadIdx.x == 0)
    *args.word += 90;
}

static void (*const kernel)(test_native_args) = native;

extern "C" int test_native(const void *args, cudaStream_t stream) {
  const uint32_t grid[3] = { 1, 1, 1 }, block[3] = { 128, 1, 1 };
  void *params[] = { const_cast<void *>(args) };
  return cgr__cuda_launch_kernel(reinterpret_cast<const void *>(kernel), grid, block, params, 0, stream);
}

extern "C" int test_native_preload(void) { return cgr__cuda_preload_kernel(reinterpret_cast<const void *>(kernel), 0); }

/* How a launcher enqueues its kernel: through the driver (devices/cuda/launch.h), so that the thread's pending runtime error
 * stays as it was. And how two consecutive kernels overlap. */
#ifndef CGR_DEVICES_CUDA_LAUNCH_CUH
#define CGR_DEVICES_CUDA_LAUNCH_CUH

#include <cuda_runtime_api.h>

#include "devices/cuda/launch.h"

namespace cgr {

/* `early`: the kernel may begin before the one before it in the stream is done; it calls wait_for_previous. */
template <typename Args>
inline int launch(void (*kernel)(Args), const void *args, dim3 grid, dim3 block, size_t shared, cudaStream_t stream,
                  bool early = false) {
  void *params[] = { const_cast<void *>(args) };
  const uint32_t blocks[3] = { grid.x, grid.y, grid.z }, threads[3] = { block.x, block.y, block.z };
  auto enqueue = early ? cgr__cuda_launch_kernel_early : cgr__cuda_launch_kernel;
  return enqueue(reinterpret_cast<const void *>(kernel), blocks, threads, params, shared, stream);
}

/* The next kernel, if it was launched early, may begin once all blocks have reached this point or ended. It sees what this kernel
 * writes only after wait_for_previous. */
__device__ __forceinline__ void let_next_begin() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  cudaTriggerProgrammaticLaunchCompletion();
#endif
}

/* In a kernel that was launched early: returns when the previous kernel is done and what it wrote can be read. In any other
 * kernel: returns at once. */
__device__ __forceinline__ void wait_for_previous() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  cudaGridDependencySynchronize();
#endif
}

/* Loads the kernel, and allows it `shared` bytes of dynamic shared memory. */
template <typename Args> inline int preload(void (*kernel)(Args), size_t shared) {
  return cgr__cuda_preload_kernel(reinterpret_cast<const void *>(kernel), shared);
}

/* The same for attention, which takes large shared memory, and for the kernel that it begins alongside: both split L1 alike. */
template <typename Args> inline int preload_with_attention(void (*kernel)(Args), size_t shared) {
  int error = preload(kernel, shared);
  if (error == 0)
    cgr__cuda_prefer_shared_memory(reinterpret_cast<const void *>(kernel));
  return error;
}

} // namespace cgr
#endif

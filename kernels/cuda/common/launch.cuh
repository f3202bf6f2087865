/* How a launcher enqueues its kernel: by the driver (devices/cuda/launch.h), so that the thread's pending error of the runtime
 * stays as it was. */
#ifndef CGR_KERNELS_CUDA_COMMON_LAUNCH_CUH
#define CGR_KERNELS_CUDA_COMMON_LAUNCH_CUH

#include <cuda_runtime_api.h>

#include "devices/cuda/launch.h"

namespace cgr {

template <typename Args>
inline int launch(void (*kernel)(Args), const void *args, dim3 grid, dim3 block, size_t shared, cudaStream_t stream) {
  void *params[] = { const_cast<void *>(args) };
  const uint32_t blocks[3] = { grid.x, grid.y, grid.z }, threads[3] = { block.x, block.y, block.z };
  return cgr__cuda_launch_kernel(reinterpret_cast<const void *>(kernel), blocks, threads, params, shared, stream);
}

/* Loads the kernel, and allows it `shared` bytes of dynamic shared memory. */
template <typename Args> inline int preload(void (*kernel)(Args), size_t shared) {
  return cgr__cuda_preload_kernel(reinterpret_cast<const void *>(kernel), shared);
}

} // namespace cgr
#endif

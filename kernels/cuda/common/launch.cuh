/* How a launcher enqueues its kernel: the error is that of this launch alone, and no failure stays behind in the runtime's
 * last-error word for somebody else to find. */
#ifndef CGR_KERNELS_CUDA_COMMON_LAUNCH_CUH
#define CGR_KERNELS_CUDA_COMMON_LAUNCH_CUH

#include <cuda_runtime_api.h>

namespace cgr {

template <typename Args>
inline int launch(void (*kernel)(Args), const void *args, dim3 grid, dim3 block, size_t shared, cudaStream_t stream) {
  void *params[] = { const_cast<void *>(args) };
  cudaError_t error = cudaLaunchKernel(reinterpret_cast<const void *>(kernel), grid, block, params, shared, stream);
  if (error != cudaSuccess)
    (void)cudaGetLastError();
  return (int)error;
}

/* Loads the kernel, and allows it `shared` bytes of dynamic shared memory. */
template <typename Args> inline int preload(void (*kernel)(Args), size_t shared) {
  cudaFuncAttributes attributes;
  const void *function = reinterpret_cast<const void *>(kernel);
  cudaError_t error = cudaFuncGetAttributes(&attributes, function);
  if (error == cudaSuccess && shared > 0)
    error = cudaFuncSetAttribute(function, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared);
  if (error != cudaSuccess)
    (void)cudaGetLastError();
  return (int)error;
}

} // namespace cgr
#endif

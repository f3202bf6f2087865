/* Copies, fills and kernels. Below: no allocation, no lock, no sync. A kernel and a fill need the device of their stream to
 * be current; where it is, that costs one read of a thread's variable. */
#include "devices/cuda/cuda_device.h"

int cgr__cuda_copy(cgr_device *dev, void *dst, const void *src, size_t bytes, cudaStream_t stream) {
  struct cuda_device *cuda = cgr__cuda_of(dev);
  if (cgr__cuda_is_dead(cuda))
    return cgr__cuda_dead(cuda);
  if (bytes == 0)
    return CGR__DEVICE_OK;
  return cgr__cuda_error(cuda, cudaMemcpyAsync(dst, src, bytes, cudaMemcpyDefault, stream));
}

int cgr__cuda_fill(cgr_device *dev, void *dst, int byte, size_t bytes, cudaStream_t stream) {
  struct cuda_device *cuda = cgr__cuda_of(dev);
  int previous;
  if (cgr__cuda_is_dead(cuda))
    return cgr__cuda_dead(cuda);
  if (bytes == 0)
    return CGR__DEVICE_OK;
  cudaError_t raw = cgr__cuda_enter(cuda, &previous);
  if (raw != cudaSuccess)
    return cgr__cuda_error(cuda, raw);
  raw = cudaMemsetAsync(dst, byte, bytes, stream);
  cgr__cuda_leave(previous);
  return cgr__cuda_error(cuda, raw);
}

int cgr__cuda_launch(cgr_device *dev, const cgr__kernel *kernel, const void *args, cudaStream_t stream) {
  struct cuda_device *cuda = cgr__cuda_of(dev);
  int previous;
  if (cgr__cuda_is_dead(cuda))
    return cgr__cuda_dead(cuda);
  if (kernel->cuda == NULL)
    return cgr__cuda_error(cuda, cudaErrorNotSupported);
  cudaError_t raw = cgr__cuda_enter(cuda, &previous);
  if (raw != cudaSuccess)
    return cgr__cuda_error(cuda, raw);
  raw = (cudaError_t)kernel->cuda(args, stream);
  cgr__cuda_leave(previous);
  return cgr__cuda_error(cuda, raw);
}

int cgr__cuda_preload(cgr_device *dev, const cgr__kernel *kernel) {
  struct cuda_device *cuda = cgr__cuda_of(dev);
  int previous;
  if (cgr__cuda_is_dead(cuda))
    return cgr__cuda_dead(cuda);
  if (kernel->cuda == NULL)
    return cgr__cuda_error(cuda, cudaErrorNotSupported);
  if (kernel->preload == NULL)
    return CGR__DEVICE_OK;
  cudaError_t raw = cgr__cuda_enter(cuda, &previous);
  if (raw != cudaSuccess)
    return cgr__cuda_error(cuda, raw);
  raw = (cudaError_t)kernel->preload();
  cgr__cuda_leave(previous);
  return cgr__cuda_error(cuda, raw);
}

/* Memory, and what a GPU is. */
#include <stdio.h>

#include "devices/cuda/cuda_device.h"

int cgr__cuda_mem_alloc(cgr_device *dev, size_t bytes, enum cgr__memory_kind kind, void **ptr) {
  struct cuda_device *cuda = cgr__cuda_of(dev);
  int previous;
  *ptr = NULL;
  if (cgr__cuda_is_dead(cuda))
    return cgr__cuda_dead(cuda);
  if (bytes == 0)
    return cgr__cuda_invalid(cuda);
  cudaError_t raw = cgr__cuda_enter(cuda, &previous);
  if (raw != cudaSuccess)
    return cgr__cuda_error(cuda, raw);
  /* With unified addressing, which open has checked, mapped memory has one address on both sides. */
  if (kind == CGR__MEMORY_PINNED)
    raw = cudaHostAlloc(ptr, bytes, cudaHostAllocMapped | cudaHostAllocPortable);
  else
    raw = cudaMalloc(ptr, bytes);
  cgr__cuda_leave(previous);
  if (raw != cudaSuccess)
    *ptr = NULL;
  return cgr__cuda_error(cuda, raw);
}

int cgr__cuda_mem_free(cgr_device *dev, void *ptr, enum cgr__memory_kind kind) {
  struct cuda_device *cuda = cgr__cuda_of(dev);
  int previous;
  if (ptr == NULL)
    return CGR__DEVICE_OK;
  cudaError_t raw = cgr__cuda_enter(cuda, &previous);
  if (raw == cudaSuccess) {
    raw = kind == CGR__MEMORY_PINNED ? cudaFreeHost(ptr) : cudaFree(ptr);
    cgr__cuda_leave(previous);
  }
  /* A free also reports what failed asynchronously before: that ends the device, yet the memory is gone with it. */
  int error = cgr__cuda_error(cuda, raw);
  return error == CGR__DEVICE_DEAD ? CGR__DEVICE_OK : error;
}

int cgr__cuda_info(cgr_device *dev, cgr_device_info *info) {
  struct cuda_device *cuda = cgr__cuda_of(dev);
  int previous;
  size_t available = 0, total = 0;
  if (cgr__cuda_is_dead(cuda))
    return cgr__cuda_dead(cuda);
  /* Relaxed for this one call: asking for the free memory must not spoil a capture of this thread. */
  enum cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
  cudaError_t raw = cudaThreadExchangeStreamCaptureMode(&mode);
  if (raw != cudaSuccess)
    return cgr__cuda_error(cuda, raw);
  raw = cgr__cuda_enter(cuda, &previous);
  if (raw == cudaSuccess) {
    raw = cudaMemGetInfo(&available, &total);
    cgr__cuda_leave(previous);
  }
  (void)cudaThreadExchangeStreamCaptureMode(&mode);
  if (raw != cudaSuccess)
    return cgr__cuda_error(cuda, raw);
  info->kind = CGR_DEVICE_CUDA;
  info->ordinal = cuda->ordinal;
  info->num_multiprocessors = cuda->num_multiprocessors;
  info->compute_capability = cuda->compute_capability;
  info->driver_version = cuda->driver_version;
  info->memory_total = total;
  info->memory_free = available;
  snprintf(info->name, sizeof info->name, "%s", cuda->name);
  return CGR__DEVICE_OK;
}

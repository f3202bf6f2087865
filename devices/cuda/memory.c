#include "devices/cuda/memory.h"

#include <stdio.h>

#include "devices/cuda/scope.h"

static CUresult allocate_memory(size_t bytes, enum cgr__memory_kind kind, void **ptr) {
  CUdeviceptr address = 0;
  /* With unified addressing, which open has checked, mapped memory has one address on both sides. */
  if (kind == CGR__MEMORY_PINNED)
    return cgr__cu.MemHostAlloc(ptr, bytes, CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_PORTABLE);
  CUresult raw = cgr__cu.MemAlloc(&address, bytes);
  *ptr = (void *)(uintptr_t)address;
  return raw;
}

static CUresult release_memory(void *ptr, enum cgr__memory_kind kind) {
  return kind == CGR__MEMORY_PINNED ? cgr__cu.MemFreeHost(ptr) : cgr__cu.MemFree((CUdeviceptr)(uintptr_t)ptr);
}

int cgr__cuda_mem_alloc(cgr_device *dev, size_t bytes, enum cgr__memory_kind kind, void **ptr) {
  struct cuda_device *cuda = cgr__cuda_of(dev);
  struct cgr__cuda_scope scope;
  void *memory = NULL;
  *ptr = NULL;
  if (bytes == 0)
    return cgr__cuda_invalid(cuda);
  int error = cgr__cuda_enter(cuda, &scope);
  if (error != CGR__DEVICE_OK)
    return error;
  cgr__cuda_set_mode(&scope, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
  CUresult raw = allocate_memory(bytes, kind, &memory);
  if (raw == CUDA_SUCCESS && !cgr__allocations_add(&cuda->allocations, memory, bytes, kind)) {
    (void)release_memory(memory, kind);
    raw = CUDA_ERROR_OUT_OF_MEMORY;
  }
  if (raw == CUDA_SUCCESS)
    *ptr = memory;
  return cgr__cuda_leave(&scope, raw);
}

/* CUDA would also free what others have allocated. */
int cgr__cuda_mem_free(cgr_device *dev, void *ptr, enum cgr__memory_kind kind) {
  struct cuda_device *cuda = cgr__cuda_of(dev);
  struct cgr__cuda_scope scope;
  if (!ptr)
    return CGR__DEVICE_OK;
  if (!cgr__allocations_claim(&cuda->allocations, ptr, kind))
    return cgr__cuda_invalid(cuda);
  int error = cgr__cuda_enter_anyway(cuda, &scope);
  if (error == CGR__DEVICE_OK) {
    cgr__cuda_set_mode(&scope, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    error = cgr__cuda_leave(&scope, release_memory(ptr, kind));
  }
  cgr__allocations_end_free(&cuda->allocations, ptr, !cgr__device_did_nothing(error));
  /* A free also reports what failed asynchronously before: that ends the device, yet the memory is gone with it. */
  return error == CGR__DEVICE_DEAD ? CGR__DEVICE_OK : error;
}

int cgr__cuda_mem_find(cgr_device *dev, const void *address, const void **base, size_t *bytes) {
  struct cuda_device *cuda = cgr__cuda_of(dev);
  struct cgr__cuda_scope scope;
  CUdeviceptr at = (CUdeviceptr)(uintptr_t)address, first = 0;
  *base = NULL;
  *bytes = 0;
  int error = cgr__cuda_enter(cuda, &scope);
  if (error != CGR__DEVICE_OK)
    return error;
  CUresult raw = cgr__cu.PointerGetAttribute(&first, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, at);
  if (raw == CUDA_SUCCESS)
    raw = cgr__cu.PointerGetAttribute(bytes, CU_POINTER_ATTRIBUTE_RANGE_SIZE, at);
  if (raw == CUDA_SUCCESS)
    *base = (const void *)(uintptr_t)first;
  return cgr__cuda_leave(&scope, raw == CUDA_ERROR_INVALID_VALUE ? CUDA_SUCCESS : raw); /* it knows no such address */
}

int cgr__cuda_info(cgr_device *dev, cgr_device_info *info) {
  struct cuda_device *cuda = cgr__cuda_of(dev);
  struct cgr__cuda_scope scope;
  size_t available = 0, total = 0;
  int error = cgr__cuda_enter(cuda, &scope);
  if (error != CGR__DEVICE_OK)
    return error;
  /* Querying is legal in a capture, even in one of this thread. */
  cgr__cuda_set_mode(&scope, CU_STREAM_CAPTURE_MODE_RELAXED);
  error = cgr__cuda_leave(&scope, cgr__cu.MemGetInfo(&available, &total));
  if (error != CGR__DEVICE_OK)
    return error;
  info->kind = CGR_DEVICE_KIND_CUDA;
  info->ordinal = cuda->ordinal;
  info->num_multiprocessors = cuda->num_multiprocessors;
  info->shared_memory = cuda->shared_memory;
  info->compute_capability = cuda->compute_capability;
  info->kernel_capability = cuda->kernel_capability;
  info->driver_version = cuda->driver_version;
  info->memory_total = total;
  info->memory_free = available;
  info->memory_bandwidth = cuda->memory_bandwidth;
  snprintf(info->name, sizeof info->name, "%s", cuda->name);
  return CGR__DEVICE_OK;
}

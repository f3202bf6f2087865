#include "devices/cuda/enqueue.h"

#include "base/limits.h"
#include "devices/cuda/scope.h"

static CUdeviceptr device_address(const void *pointer) { return (CUdeviceptr)(uintptr_t)pointer; }

int cgr__cuda_copy(cgr_device *dev, void *dst, const void *src, size_t bytes, cudaStream_t stream) {
  struct cuda_device *cuda = cgr__cuda_of(dev);
  struct cgr__cuda_scope scope;
  int error = cgr__cuda_enter(cuda, &scope);
  if (error != CGR__DEVICE_OK)
    return error;
  CUresult raw = bytes != 0 ? cgr__cu.MemcpyAsync(device_address(dst), device_address(src), bytes, stream) : CUDA_SUCCESS;
  return cgr__cuda_leave(&scope, raw);
}

static CUresult enqueue_fill(CUdeviceptr dst, uint64_t value, size_t width, size_t count, cudaStream_t stream) {
  if (width == 1)
    return cgr__cu.MemsetD8Async(dst, (unsigned char)value, count, stream);
  if (width == 2)
    return cgr__cu.MemsetD16Async(dst, (unsigned short)value, count, stream);
  if (width == 4)
    return cgr__cu.MemsetD32Async(dst, (unsigned)value, count, stream);
  return cgr__cu.MemsetD32Async(dst, (unsigned)value, 2 * count, stream); /* both halves are the same */
}

/* Elements of two different halves: each half is a column of a matrix with one element to the row. */
static int fill_halves(struct cgr__cuda_scope *scope, CUdeviceptr dst, uint64_t value, size_t count, cudaStream_t stream) {
  CUresult low = cgr__cu.MemsetD2D32Async(dst, 8, (unsigned)value, 1, count, stream);
  if (low != CUDA_SUCCESS)
    return cgr__cuda_leave(scope, low);
  int error = cgr__cuda_leave(scope, cgr__cu.MemsetD2D32Async(dst + 4, 8, (unsigned)(value >> 32), 1, count, stream));
  return cgr__device_did_nothing(error) ? CGR__DEVICE_FAILED : error; /* one half is enqueued */
}

int cgr__cuda_fill(cgr_device *dev, void *dst, uint64_t value, size_t width, size_t count, cudaStream_t stream) {
  struct cuda_device *cuda = cgr__cuda_of(dev);
  struct cgr__cuda_scope scope;
  if (count != 0 && !cgr__fill_is_valid(dst, width, count))
    return cgr__cuda_invalid(cuda);
  int error = cgr__cuda_enter(cuda, &scope);
  if (error != CGR__DEVICE_OK)
    return error;
  if (count == 0)
    return cgr__cuda_leave(&scope, CUDA_SUCCESS);
  if (width == 8 && (uint32_t)value != (uint32_t)(value >> 32))
    return fill_halves(&scope, device_address(dst), value, count, stream);
  return cgr__cuda_leave(&scope, enqueue_fill(device_address(dst), value, width, count, stream));
}

int cgr__cuda_launch(cgr_device *dev, const cgr__kernel *kernel, const void *args, cudaStream_t stream) {
  struct cuda_device *cuda = cgr__cuda_of(dev);
  struct cgr__cuda_scope scope;
  if (kernel->args_size > CGR__MAX_CALL_ARGS || (!args && kernel->args_size != 0))
    return cgr__cuda_invalid(cuda);
  int error = cgr__cuda_enter(cuda, &scope);
  if (error != CGR__DEVICE_OK)
    return error;
  CUresult raw = kernel->cuda ? (CUresult)kernel->cuda(args, stream) : CUDA_ERROR_NOT_SUPPORTED;
  return cgr__cuda_leave(&scope, raw);
}

int cgr__cuda_preload(cgr_device *dev, const cgr__kernel *kernel) {
  struct cuda_device *cuda = cgr__cuda_of(dev);
  struct cgr__cuda_scope scope;
  CUresult raw = kernel->cuda ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
  int error = cgr__cuda_enter(cuda, &scope);
  if (error != CGR__DEVICE_OK)
    return error;
  cgr__cuda_set_mode(&scope, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
  if (raw == CUDA_SUCCESS && kernel->preload)
    raw = (CUresult)kernel->preload();
  return cgr__cuda_leave(&scope, raw);
}

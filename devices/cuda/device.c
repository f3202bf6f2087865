/* Opening and closing a GPU, and its table. */
#include <stdio.h>
#include <stdlib.h>

#include "devices/cuda/cuda_device.h"

/* Everything asynchronous has to be over before the library's own memory goes; a dead context has nothing to wait for. */
static int device_close(cgr_device *dev) {
  struct cuda_device *cuda = cgr__cuda_of(dev);
  int previous;
  cudaError_t raw = cgr__cuda_enter(cuda, &previous);
  if (raw == cudaSuccess) {
    raw = cudaDeviceSynchronize();
    if (cuda->internal != NULL)
      (void)cudaStreamDestroy(cuda->internal);
    cgr__cuda_leave(previous);
  }
  int error = cgr__cuda_error(cuda, raw);
  cgr__cuda_calls_free(cuda);
  pthread_mutex_destroy(&cuda->lock);
  cuda->head.magic = 0;
  free(cuda);
  return error == CGR__DEVICE_DEAD ? CGR__DEVICE_OK : error;
}

static const cgr__device_ops cuda_ops = {
  .mem_alloc = cgr__cuda_mem_alloc,
  .mem_free = cgr__cuda_mem_free,
  .stream_create = cgr__cuda_stream_create,
  .stream_destroy = cgr__cuda_stream_destroy,
  .stream_sync = cgr__cuda_stream_sync,
  .stream_query = cgr__cuda_stream_query,
  .event_create = cgr__cuda_event_create,
  .event_destroy = cgr__cuda_event_destroy,
  .event_record = cgr__cuda_event_record,
  .event_wait = cgr__cuda_event_wait,
  .event_query = cgr__cuda_event_query,
  .event_sync = cgr__cuda_event_sync,
  .copy = cgr__cuda_copy,
  .fill = cgr__cuda_fill,
  .launch = cgr__cuda_launch,
  .host_call = cgr__cuda_host_call,
  .preload = cgr__cuda_preload,
  .capture_begin = cgr__cuda_capture_begin,
  .capture_end = cgr__cuda_capture_end,
  .capture_status = cgr__cuda_capture_status,
  .graph_destroy = cgr__cuda_graph_destroy,
  .instantiate = cgr__cuda_instantiate,
  .exec_launch = cgr__cuda_exec_launch,
  .exec_destroy = cgr__cuda_exec_destroy,
  .info = cgr__cuda_info,
  .close = device_close,
};

int cgr__cuda_device_count(void) {
  int count = 0;
  cudaError_t raw = cudaGetDeviceCount(&count);
  if (raw == cudaSuccess)
    return count;
  (void)cudaGetLastError(); /* no driver, or no GPU: not an error of anybody's */
  return 0;
}

/* What never changes, asked for once: CUDA's own query of all properties takes milliseconds. */
static cudaError_t describe(struct cuda_device *cuda) {
  struct cudaDeviceProp properties;
  int unified = 0;
  cudaError_t raw = cudaGetDeviceProperties(&properties, cuda->ordinal);
  if (raw == cudaSuccess)
    raw = cudaDriverGetVersion(&cuda->driver_version);
  if (raw == cudaSuccess)
    raw = cudaDeviceGetAttribute(&unified, cudaDevAttrUnifiedAddressing, cuda->ordinal);
  if (raw != cudaSuccess)
    return raw;
  /* Without it page-locked memory would have two addresses. */
  if (unified == 0 || properties.canMapHostMemory == 0)
    return cudaErrorNotSupported;
  cuda->num_multiprocessors = properties.multiProcessorCount;
  cuda->compute_capability = properties.major * 10 + properties.minor;
  snprintf(cuda->name, sizeof cuda->name, "%.63s", properties.name);
  return cudaStreamCreateWithFlags(&cuda->internal, cudaStreamNonBlocking);
}

int cgr__cuda_device_open(int ordinal, cgr_device **dev) {
  int previous;
  *dev = NULL;
  if (ordinal < 0 || ordinal >= cgr__cuda_device_count())
    return CGR__DEVICE_UNSUPPORTED;
  struct cuda_device *cuda = calloc(1, sizeof *cuda);
  if (cuda == NULL)
    return CGR__DEVICE_NO_MEMORY;
  if (pthread_mutex_init(&cuda->lock, NULL) != 0) {
    free(cuda);
    return CGR__DEVICE_NO_MEMORY;
  }
  cuda->head.ops = &cuda_ops;
  cuda->head.magic = CGR__DEVICE_MAGIC;
  cuda->head.kind = CGR_DEVICE_CUDA;
  cuda->ordinal = ordinal;
  cudaError_t raw = cgr__cuda_enter(cuda, &previous);
  if (raw == cudaSuccess) {
    raw = describe(cuda);
    cgr__cuda_leave(previous);
  }
  if (raw == cudaSuccess) {
    *dev = &cuda->head;
    return CGR__DEVICE_OK;
  }
  int error = cgr__cuda_error(cuda, raw);
  pthread_mutex_destroy(&cuda->lock);
  free(cuda);
  return error;
}

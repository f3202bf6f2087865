/* Opening and closing a GPU, and its table. */
#include <stdio.h>
#include <stdlib.h>

#include "base/status.h"
#include "devices/cuda/call.h"
#include "devices/cuda/enqueue.h"
#include "devices/cuda/graph.h"
#include "devices/cuda/memory.h"
#include "devices/cuda/scope.h"
#include "devices/cuda/stream.h"
#include "devices/cuda/waiter.h"
#include "devices/cuda/walk.h"
#include "devices/fork.h"

static void free_cuda_device(struct cuda_device *cuda) {
  cgr__fork_unwatch(&cuda->head);
  cgr__cuda_calls_free(cuda);
  cgr__cuda_waiters_free(cuda);
  cgr__allocations_free(&cuda->allocations);
  pthread_mutex_destroy(&cuda->lock);
  cuda->head.magic = 0;
  free(cuda);
}

/* All asynchronous work has to end before the library's own memory is freed; a dead context has nothing to wait for. CUDA
 * refuses to wait for a GPU on which a stream captures: the device then stays open. */
static int cuda_device_close(cgr_device *dev) {
  struct cuda_device *cuda = cgr__cuda_of(dev);
  struct cgr__cuda_scope scope;
  int error = cgr__cuda_enter_anyway(cuda, &scope);
  if (error == CGR__DEVICE_OK) {
    cgr__cuda_set_mode(&scope, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    CUresult raw = cgr__cu.CtxSynchronize();
    if (!cgr__device_did_nothing(cgr__cuda_error(cuda, (int)raw)))
      (void)cgr__cu.StreamDestroy(cuda->internal);
    error = cgr__cuda_leave(&scope, raw);
  }
  if (cgr__device_did_nothing(error))
    return error;
  (void)cgr__cu.DevicePrimaryCtxRelease(cuda->device);
  cgr__set_device_code(error == CGR__DEVICE_OK ? 0 : cuda->head.last_raw);
  free_cuda_device(cuda);
  return error == CGR__DEVICE_DEAD ? CGR__DEVICE_OK : error;
}

static const cgr__device_ops cuda_ops = {
  .mem_alloc = cgr__cuda_mem_alloc,
  .mem_free = cgr__cuda_mem_free,
  .mem_find = cgr__cuda_mem_find,
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
  .waiter_create = cgr__cuda_waiter_create,
  .waiter_destroy = cgr__cuda_waiter_destroy,
  .waiter_wait = cgr__cuda_waiter_wait,
  .copy = cgr__cuda_copy,
  .fill = cgr__cuda_fill,
  .launch = cgr__cuda_launch,
  .host_call = cgr__cuda_host_call,
  .preload = cgr__cuda_preload,
  .capture_begin = cgr__cuda_capture_begin,
  .capture_end = cgr__cuda_capture_end,
  .capture_status = cgr__cuda_capture_status,
  .graph_destroy = cgr__cuda_graph_destroy,
  .capture_nodes = cgr__cuda_capture_nodes,
  .graph_walk = cgr__cuda_graph_walk,
  .instantiate = cgr__cuda_instantiate,
  .exec_launch = cgr__cuda_exec_launch,
  .exec_destroy = cgr__cuda_exec_destroy,
  .info = cgr__cuda_info,
  .close = cuda_device_close,
};

static CUresult get_attribute(const struct cuda_device *cuda, CUdevice_attribute which, int *value) {
  return cgr__cu.DeviceGetAttribute(value, which, cuda->device);
}

/* What never changes. */
static CUresult describe_device(struct cuda_device *cuda, int max_capability) {
  int unified = 0, mapped = 0, major = 0, minor = 0, waits = 0, clock = 0, bus = 0;
  char name[256] = "";
  CUresult raw = cgr__cu.DeviceGet(&cuda->device, cuda->ordinal);
  if (raw == CUDA_SUCCESS)
    raw = cgr__cu.DeviceGetName(name, sizeof name, cuda->device);
  if (raw == CUDA_SUCCESS)
    raw = get_attribute(cuda, CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, &unified);
  if (raw == CUDA_SUCCESS)
    raw = get_attribute(cuda, CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY, &mapped);
  if (raw == CUDA_SUCCESS)
    raw = get_attribute(cuda, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, &cuda->num_multiprocessors);
  if (raw == CUDA_SUCCESS)
    raw = get_attribute(cuda, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR, &cuda->shared_memory);
  if (raw == CUDA_SUCCESS)
    raw = get_attribute(cuda, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, &major);
  if (raw == CUDA_SUCCESS)
    raw = get_attribute(cuda, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, &minor);
  if (raw == CUDA_SUCCESS)
    raw = get_attribute(cuda, CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS, &waits);
  if (raw != CUDA_SUCCESS)
    return raw;
  cuda->streams_wait = waits;
  /* 0 where the driver does not report them. */
  if (get_attribute(cuda, CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE, &clock) == CUDA_SUCCESS &&
      get_attribute(cuda, CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH, &bus) == CUDA_SUCCESS && clock > 0 && bus > 0)
    cuda->memory_bandwidth = 2 * (uint64_t)clock * 1000 * (uint64_t)bus / 8; /* kHz, bits; data moves on both edges */
  snprintf(cuda->name, sizeof cuda->name, "%.63s", name);
  cuda->compute_capability = major * 10 + minor;
  bool limited = max_capability != 0 && max_capability < cuda->compute_capability;
  cuda->kernel_capability = limited ? max_capability : cuda->compute_capability;
  /* Without both, page-locked memory would have two addresses. */
  return unified && mapped ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
}

/* Takes the primary context, and makes the device's own stream. */
static int take_context(struct cuda_device *cuda) {
  struct cgr__cuda_scope scope;
  CUresult raw = cgr__cu.DevicePrimaryCtxRetain(&cuda->context, cuda->device);
  if (raw != CUDA_SUCCESS)
    return cgr__cuda_error(cuda, (int)raw);
  int error = cgr__cuda_enter(cuda, &scope);
  if (error == CGR__DEVICE_OK) {
    cgr__cuda_set_mode(&scope, CU_STREAM_CAPTURE_MODE_RELAXED);
    error = cgr__cuda_leave(&scope, cgr__cu.StreamCreateWithPriority(&cuda->internal, CU_STREAM_NON_BLOCKING, 0));
  }
  if (error != CGR__DEVICE_OK)
    (void)cgr__cu.DevicePrimaryCtxRelease(cuda->device);
  return error;
}

static struct cuda_device *device_new(int ordinal) {
  struct cuda_device *cuda = calloc(1, sizeof *cuda);
  if (!cuda)
    return NULL;
  if (!cgr__allocations_init(&cuda->allocations))
    goto fail;
  if (pthread_mutex_init(&cuda->lock, NULL) != 0)
    goto fail_lock;
  if (!cgr__fork_watch(&cuda->head))
    goto fail_fork;
  cuda->head.ops = &cuda_ops;
  cuda->head.magic = CGR__DEVICE_MAGIC;
  cuda->head.allocations = &cuda->allocations;
  cuda->head.kind = CGR_DEVICE_KIND_CUDA;
  cuda->ordinal = ordinal;
  return cuda;

fail_fork:
  pthread_mutex_destroy(&cuda->lock);
fail_lock:
  cgr__allocations_free(&cuda->allocations);
fail:
  free(cuda);
  return NULL;
}

int cgr__cuda_device_open(int ordinal, const cgr_device_config *config, cgr_device **dev) {
  struct cgr__gpus probe = cgr__cuda_probe();
  *dev = NULL;
  if (ordinal < 0 || ordinal >= probe.num_devices)
    return CGR__DEVICE_UNSUPPORTED;
  struct cuda_device *cuda = device_new(ordinal);
  if (!cuda)
    return CGR__DEVICE_NO_MEMORY;
  cuda->driver_version = probe.driver_version;
  int error = cgr__cuda_error(cuda, (int)describe_device(cuda, config->max_capability));
  if (error == CGR__DEVICE_OK)
    error = take_context(cuda);
  if (error == CGR__DEVICE_OK) {
    *dev = &cuda->head;
    return CGR__DEVICE_OK;
  }
  cgr__set_device_code(cuda->head.last_raw);
  free_cuda_device(cuda);
  return error;
}

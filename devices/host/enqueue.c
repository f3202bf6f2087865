#include "devices/host/enqueue.h"

#include <string.h>

#include "base/limits.h"
#include "devices/host/capture.h"
#include "devices/host/handles.h"
#include "devices/host/pool.h"
#include "devices/host/queue.h"

static int enqueue_work(struct host_device *host, struct host_stream *stream, const struct host_work *work, size_t args_size) {
  struct host_op *op = cgr__host_op_take(host, args_size);
  if (!op)
    return CGR__DEVICE_NO_MEMORY;
  op->kind = HOST_OP_WORK;
  op->work = *work;
  if (args_size != 0)
    memcpy(op->args, work->args, args_size);
  op->work.args = op->args;
  cgr__host_push(stream, op);
  cgr__host_progress(host, stream);
  return CGR__DEVICE_OK;
}

static int submit_work(cgr_device *dev, cudaStream_t handle, const struct host_work *work, size_t args_size) {
  struct host_device *host = cgr__host_of(dev);
  int error;
  pthread_mutex_lock(&host->lock);
  struct host_stream *stream = cgr__host_stream(host, handle);
  if (!stream)
    error = CGR__DEVICE_INVALID;
  else if (stream->capture)
    error = cgr__host_capture_add(host, stream, work, args_size);
  else
    error = enqueue_work(host, stream, work, args_size);
  pthread_mutex_unlock(&host->lock);
  return error;
}

static int refuse_work(cgr_device *dev) { return cgr__host_fail(cgr__host_of(dev), CGR__DEVICE_INVALID, HOST_RAW_INVALID_VALUE); }

/* Nothing is known of memory that the device did not give out. */
static bool is_past_end(cgr_device *dev, const void *address, size_t bytes) {
  const void *base;
  size_t have;
  cgr__allocations_find(&cgr__host_of(dev)->allocations, address, &base, &have);
  return base && bytes > have - ((uintptr_t)address - (uintptr_t)base);
}

int cgr__host_copy(cgr_device *dev, void *dst, const void *src, size_t bytes, cudaStream_t stream) {
  if (bytes == 0)
    return CGR__DEVICE_OK;
  if (!dst || !src || is_past_end(dev, dst, bytes) || is_past_end(dev, src, bytes))
    return refuse_work(dev);
  struct host_work work = { .kind = HOST_WORK_COPY, .dst = dst, .src = src, .count = bytes };
  return submit_work(dev, stream, &work, 0);
}

int cgr__host_fill(cgr_device *dev, void *dst, uint64_t value, size_t width, size_t count, cudaStream_t stream) {
  if (count == 0)
    return CGR__DEVICE_OK;
  if (!cgr__fill_is_valid(dst, width, count) || is_past_end(dev, dst, width * count))
    return refuse_work(dev);
  struct host_work work = { .kind = HOST_WORK_FILL, .width = (uint32_t)width, .value = value, .dst = dst, .count = count };
  return submit_work(dev, stream, &work, 0);
}

int cgr__host_launch(cgr_device *dev, const cgr__kernel *kernel, const void *args, cudaStream_t stream) {
  if (!kernel->host)
    return cgr__host_fail(cgr__host_of(dev), CGR__DEVICE_UNSUPPORTED, 0);
  if (kernel->args_size > CGR__MAX_CALL_ARGS || (!args && kernel->args_size != 0))
    return refuse_work(dev);
  struct host_work work = { .kind = HOST_WORK_CALL, .name = kernel->name, .function = kernel->host, .args = args };
  return submit_work(dev, stream, &work, kernel->args_size);
}

int cgr__host_host_call(cgr_device *dev, cgr_host_function function, const void *args, size_t args_size, cudaStream_t stream) {
  if (!function || args_size > CGR__MAX_CALL_ARGS || (!args && args_size != 0))
    return refuse_work(dev);
  struct host_work work = { .kind = HOST_WORK_CALL, .function = function, .args = args };
  return submit_work(dev, stream, &work, args_size);
}

int cgr__host_preload(cgr_device *dev, const cgr__kernel *kernel) {
  if (!kernel->host)
    return cgr__host_fail(cgr__host_of(dev), CGR__DEVICE_UNSUPPORTED, 0);
  return CGR__DEVICE_OK;
}

/* Streams and events. Recording and waiting is one call of CUDA each: no allocation, no lock, no sync below. */
#include "devices/cuda/cuda_device.h"

static cudaEvent_t raw_event(cgr__event *event) { return (cudaEvent_t)(void *)event; }

int cgr__cuda_stream_create(cgr_device *dev, cudaStream_t *stream) {
  struct cuda_device *cuda = cgr__cuda_of(dev);
  int previous;
  *stream = NULL;
  if (cgr__cuda_is_dead(cuda))
    return cgr__cuda_dead(cuda);
  cudaError_t raw = cgr__cuda_enter(cuda, &previous);
  if (raw != cudaSuccess)
    return cgr__cuda_error(cuda, raw);
  raw = cudaStreamCreateWithFlags(stream, cudaStreamNonBlocking);
  cgr__cuda_leave(previous);
  if (raw != cudaSuccess)
    *stream = NULL;
  return cgr__cuda_error(cuda, raw);
}

/* CUDA would let a stream go with its work still running, and with a capture open: neither is what the table promises. */
int cgr__cuda_stream_destroy(cgr_device *dev, cudaStream_t stream) {
  struct cuda_device *cuda = cgr__cuda_of(dev);
  if (stream == NULL)
    return cgr__cuda_invalid(cuda);
  if (!cgr__cuda_is_dead(cuda)) {
    cudaError_t raw = cudaStreamSynchronize(stream); /* 900 while it captures */
    int error = cgr__cuda_error(cuda, raw);
    if (error != CGR__DEVICE_OK && error != CGR__DEVICE_DEAD)
      return error;
  }
  int error = cgr__cuda_error(cuda, cudaStreamDestroy(stream));
  return error == CGR__DEVICE_DEAD ? CGR__DEVICE_OK : error;
}

int cgr__cuda_stream_sync(cgr_device *dev, cudaStream_t stream) {
  struct cuda_device *cuda = cgr__cuda_of(dev);
  if (cgr__cuda_is_dead(cuda))
    return cgr__cuda_dead(cuda);
  return cgr__cuda_error(cuda, cudaStreamSynchronize(stream));
}

int cgr__cuda_stream_query(cgr_device *dev, cudaStream_t stream) {
  struct cuda_device *cuda = cgr__cuda_of(dev);
  if (cgr__cuda_is_dead(cuda))
    return cgr__cuda_dead(cuda);
  return cgr__cuda_error(cuda, cudaStreamQuery(stream));
}

int cgr__cuda_event_create(cgr_device *dev, cgr__event **event) {
  struct cuda_device *cuda = cgr__cuda_of(dev);
  int previous;
  cudaEvent_t created = NULL;
  *event = NULL;
  if (cgr__cuda_is_dead(cuda))
    return cgr__cuda_dead(cuda);
  cudaError_t raw = cgr__cuda_enter(cuda, &previous);
  if (raw != cudaSuccess)
    return cgr__cuda_error(cuda, raw);
  raw = cudaEventCreateWithFlags(&created, cudaEventDisableTiming);
  cgr__cuda_leave(previous);
  if (raw == cudaSuccess)
    *event = (cgr__event *)(void *)created;
  return cgr__cuda_error(cuda, raw);
}

int cgr__cuda_event_destroy(cgr_device *dev, cgr__event *event) {
  struct cuda_device *cuda = cgr__cuda_of(dev);
  if (event == NULL)
    return cgr__cuda_invalid(cuda);
  int error = cgr__cuda_error(cuda, cudaEventDestroy(raw_event(event)));
  return error == CGR__DEVICE_DEAD ? CGR__DEVICE_OK : error;
}

int cgr__cuda_event_record(cgr_device *dev, cgr__event *event, cudaStream_t stream) {
  struct cuda_device *cuda = cgr__cuda_of(dev);
  if (cgr__cuda_is_dead(cuda))
    return cgr__cuda_dead(cuda);
  return cgr__cuda_error(cuda, cudaEventRecord(raw_event(event), stream));
}

int cgr__cuda_event_wait(cgr_device *dev, cgr__event *event, cudaStream_t stream) {
  struct cuda_device *cuda = cgr__cuda_of(dev);
  if (cgr__cuda_is_dead(cuda))
    return cgr__cuda_dead(cuda);
  return cgr__cuda_error(cuda, cudaStreamWaitEvent(stream, raw_event(event), 0));
}

int cgr__cuda_event_query(cgr_device *dev, cgr__event *event) {
  struct cuda_device *cuda = cgr__cuda_of(dev);
  if (cgr__cuda_is_dead(cuda))
    return cgr__cuda_dead(cuda);
  return cgr__cuda_error(cuda, cudaEventQuery(raw_event(event)));
}

int cgr__cuda_event_sync(cgr_device *dev, cgr__event *event) {
  struct cuda_device *cuda = cgr__cuda_of(dev);
  if (cgr__cuda_is_dead(cuda))
    return cgr__cuda_dead(cuda);
  return cgr__cuda_error(cuda, cudaEventSynchronize(raw_event(event)));
}

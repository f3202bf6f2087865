#include "devices/cuda/stream.h"

#include "devices/cuda/scope.h"

static CUevent raw_event(cgr__event *event) { return (CUevent)(void *)event; }

static CUresult create_stream(enum cgr__stream_priority priority, cudaStream_t *stream) {
  int lowest = 0, highest = 0; /* numbers go down as priority goes up */
  CUresult raw = priority != CGR__STREAM_NORMAL ? cgr__cu.CtxGetStreamPriorityRange(&lowest, &highest) : CUDA_SUCCESS;
  int number = priority == CGR__STREAM_BETWEEN ? (lowest + highest) / 2 : highest;
  return raw != CUDA_SUCCESS ? raw : cgr__cu.StreamCreateWithPriority(stream, CU_STREAM_NON_BLOCKING, number);
}

int cgr__cuda_stream_create(cgr_device *dev, enum cgr__stream_priority priority, cudaStream_t *stream) {
  struct cuda_device *cuda = cgr__cuda_of(dev);
  struct cgr__cuda_scope scope;
  *stream = NULL;
  int error = cgr__cuda_enter(cuda, &scope);
  if (error != CGR__DEVICE_OK)
    return error;
  cgr__cuda_set_mode(&scope, CU_STREAM_CAPTURE_MODE_RELAXED);
  error = cgr__cuda_leave(&scope, create_stream(priority, stream));
  if (error != CGR__DEVICE_OK)
    *stream = NULL;
  return error;
}

/* CUDA would destroy a stream with its work still running, or with a capture open; the table promises otherwise. */
static CUresult finish_and_destroy(struct cuda_device *cuda, cudaStream_t stream) {
  CUresult raw = cgr__cuda_is_dead(cuda) ? CUDA_SUCCESS : cgr__cu.StreamSynchronize(stream); /* 900 while it captures */
  if (cgr__device_did_nothing(cgr__cuda_error(cuda, (int)raw)))
    return raw;
  CUresult destroyed = cgr__cu.StreamDestroy(stream);
  return raw != CUDA_SUCCESS ? raw : destroyed;
}

int cgr__cuda_stream_destroy(cgr_device *dev, cudaStream_t stream) {
  struct cuda_device *cuda = cgr__cuda_of(dev);
  struct cgr__cuda_scope scope;
  if (!stream)
    return cgr__cuda_invalid(cuda);
  int error = cgr__cuda_enter_anyway(cuda, &scope);
  if (error == CGR__DEVICE_OK) {
    cgr__cuda_set_mode(&scope, CU_STREAM_CAPTURE_MODE_RELAXED);
    error = cgr__cuda_leave(&scope, finish_and_destroy(cuda, stream));
  }
  return error == CGR__DEVICE_DEAD ? CGR__DEVICE_OK : error;
}

int cgr__cuda_stream_sync(cgr_device *dev, cudaStream_t stream) {
  struct cuda_device *cuda = cgr__cuda_of(dev);
  struct cgr__cuda_scope scope;
  int error = cgr__cuda_enter(cuda, &scope);
  if (error != CGR__DEVICE_OK)
    return error;
  cgr__cuda_set_mode(&scope, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
  return cgr__cuda_leave(&scope, cgr__cu.StreamSynchronize(stream));
}

int cgr__cuda_stream_query(cgr_device *dev, cudaStream_t stream) {
  struct cuda_device *cuda = cgr__cuda_of(dev);
  struct cgr__cuda_scope scope;
  int error = cgr__cuda_enter(cuda, &scope);
  if (error != CGR__DEVICE_OK)
    return error;
  cgr__cuda_set_mode(&scope, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
  return cgr__cuda_leave(&scope, cgr__cu.StreamQuery(stream));
}

int cgr__cuda_event_create(cgr_device *dev, cgr__event **event) {
  struct cuda_device *cuda = cgr__cuda_of(dev);
  struct cgr__cuda_scope scope;
  CUevent created = NULL;
  *event = NULL;
  int error = cgr__cuda_enter(cuda, &scope);
  if (error != CGR__DEVICE_OK)
    return error;
  cgr__cuda_set_mode(&scope, CU_STREAM_CAPTURE_MODE_RELAXED);
  error = cgr__cuda_leave(&scope, cgr__cu.EventCreate(&created, CU_EVENT_DISABLE_TIMING));
  if (error == CGR__DEVICE_OK)
    *event = (cgr__event *)(void *)created;
  return error;
}

int cgr__cuda_event_destroy(cgr_device *dev, cgr__event *event) {
  struct cuda_device *cuda = cgr__cuda_of(dev);
  struct cgr__cuda_scope scope;
  if (!event)
    return cgr__cuda_invalid(cuda);
  int error = cgr__cuda_enter_anyway(cuda, &scope);
  if (error == CGR__DEVICE_OK) {
    cgr__cuda_set_mode(&scope, CU_STREAM_CAPTURE_MODE_RELAXED);
    error = cgr__cuda_leave(&scope, cgr__cu.EventDestroy(raw_event(event)));
  }
  return error == CGR__DEVICE_DEAD ? CGR__DEVICE_OK : error;
}

int cgr__cuda_event_record(cgr_device *dev, cgr__event *event, cudaStream_t stream) {
  struct cuda_device *cuda = cgr__cuda_of(dev);
  struct cgr__cuda_scope scope;
  int error = cgr__cuda_enter(cuda, &scope);
  if (error != CGR__DEVICE_OK)
    return error;
  return cgr__cuda_leave(&scope, cgr__cu.EventRecord(raw_event(event), stream));
}

int cgr__cuda_event_wait(cgr_device *dev, cgr__event *event, cudaStream_t stream) {
  struct cuda_device *cuda = cgr__cuda_of(dev);
  struct cgr__cuda_scope scope;
  int error = cgr__cuda_enter(cuda, &scope);
  if (error != CGR__DEVICE_OK)
    return error;
  return cgr__cuda_leave(&scope, cgr__cu.StreamWaitEvent(stream, raw_event(event), 0));
}

int cgr__cuda_event_query(cgr_device *dev, cgr__event *event) {
  struct cuda_device *cuda = cgr__cuda_of(dev);
  struct cgr__cuda_scope scope;
  int error = cgr__cuda_enter(cuda, &scope);
  if (error != CGR__DEVICE_OK)
    return error;
  cgr__cuda_set_mode(&scope, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
  return cgr__cuda_leave(&scope, cgr__cu.EventQuery(raw_event(event)));
}

int cgr__cuda_event_sync(cgr_device *dev, cgr__event *event) {
  struct cuda_device *cuda = cgr__cuda_of(dev);
  struct cgr__cuda_scope scope;
  int error = cgr__cuda_enter(cuda, &scope);
  if (error != CGR__DEVICE_OK)
    return error;
  cgr__cuda_set_mode(&scope, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
  return cgr__cuda_leave(&scope, cgr__cu.EventSynchronize(raw_event(event)));
}

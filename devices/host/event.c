/* Events: a position in a stream, or, when recorded in a capture, a set of nodes. */
#include <stdlib.h>

#include "devices/host/host.h"

static cgr__event *live_event(struct host_device *host, cgr__event *handle) {
  for (cgr__event *e = host->events; e != NULL; e = e->next) {
    if (e == handle)
      return e->alive ? e : NULL;
  }
  cgr__host_fail(host, CGR__DEVICE_INVALID, HOST_RAW_INVALID_HANDLE);
  return NULL;
}

static cgr__event *take_event(struct host_device *host) {
  for (cgr__event *e = host->events; e != NULL; e = e->next) {
    if (!e->alive)
      return e;
  }
  cgr__event *event = calloc(1, sizeof *event);
  if (event == NULL)
    return NULL;
  event->dev = host;
  event->next = host->events;
  host->events = event;
  return event;
}

int cgr__host_event_create(cgr_device *dev, cgr__event **handle) {
  struct host_device *host = cgr__host_of(dev);
  pthread_mutex_lock(&host->lock);
  cgr__event *event = take_event(host);
  int error = CGR__DEVICE_OK;
  if (event == NULL)
    error = cgr__host_fail(host, CGR__DEVICE_NO_MEMORY, HOST_RAW_NO_MEMORY);
  if (event != NULL) {
    event->alive = true;
    event->stream = NULL;
    event->capture = 0;
  }
  pthread_mutex_unlock(&host->lock);
  *handle = event;
  return error;
}

int cgr__host_event_destroy(cgr_device *dev, cgr__event *handle) {
  struct host_device *host = cgr__host_of(dev);
  pthread_mutex_lock(&host->lock);
  cgr__event *event = live_event(host, handle);
  if (event != NULL)
    event->alive = false;
  pthread_mutex_unlock(&host->lock);
  return event != NULL ? CGR__DEVICE_OK : CGR__DEVICE_INVALID;
}

int cgr__host_event_record(cgr_device *dev, cgr__event *handle, cudaStream_t stream_handle) {
  struct host_device *host = cgr__host_of(dev);
  pthread_mutex_lock(&host->lock);
  cgr__event *event = live_event(host, handle);
  struct host_stream *stream = cgr__host_stream(host, stream_handle);
  int error = event != NULL && stream != NULL ? CGR__DEVICE_OK : CGR__DEVICE_INVALID;
  if (error == CGR__DEVICE_OK && stream->capture != NULL) {
    error = cgr__host_capture_event(host, stream, event);
  } else if (error == CGR__DEVICE_OK) {
    event->capture = 0;
    event->stream = stream;
    event->number = stream->enqueued;
    cgr__host_progress(host, stream);
  }
  pthread_mutex_unlock(&host->lock);
  return error;
}

int cgr__host_event_wait(cgr_device *dev, cgr__event *handle, cudaStream_t stream_handle) {
  struct host_device *host = cgr__host_of(dev);
  pthread_mutex_lock(&host->lock);
  cgr__event *event = live_event(host, handle);
  struct host_stream *stream = cgr__host_stream(host, stream_handle);
  int error = event != NULL && stream != NULL ? CGR__DEVICE_OK : CGR__DEVICE_INVALID;
  if (error == CGR__DEVICE_OK && (stream->capture != NULL || event->capture != 0)) {
    error = cgr__host_capture_wait(host, stream, event);
  } else if (error == CGR__DEVICE_OK) {
    if (event->stream != NULL)
      error = cgr__host_push_wait(host, stream, event->stream, event->number);
    cgr__host_progress(host, stream);
  }
  pthread_mutex_unlock(&host->lock);
  return error;
}

/* Shared by query and sync: CUDA refuses both for a captured event (907, which spoils the capture), and, as potentially
 * unsafe calls, for any event while the calling thread captures (900). */
static int waitable(struct host_device *host, cgr__event *handle, cgr__event **event) {
  *event = live_event(host, handle);
  if (*event == NULL)
    return CGR__DEVICE_INVALID;
  if ((*event)->capture != 0) {
    struct host_capture *capture = cgr__host_capture_find(host, (*event)->capture);
    return cgr__host_capture_spoil(host, capture, CGR__DEVICE_CAPTURE_ILLEGAL, HOST_RAW_CAPTURED_EVENT);
  }
  return cgr__host_refuse_capturing_thread(host);
}

int cgr__host_event_query(cgr_device *dev, cgr__event *handle) {
  struct host_device *host = cgr__host_of(dev);
  cgr__event *event;
  pthread_mutex_lock(&host->lock);
  int error = waitable(host, handle, &event);
  if (error == CGR__DEVICE_OK && event->stream != NULL)
    error = cgr__host_query(host, event->stream, event->number);
  pthread_mutex_unlock(&host->lock);
  return error;
}

int cgr__host_event_sync(cgr_device *dev, cgr__event *handle) {
  struct host_device *host = cgr__host_of(dev);
  cgr__event *event;
  pthread_mutex_lock(&host->lock);
  int error = waitable(host, handle, &event);
  if (error == CGR__DEVICE_OK && event->stream != NULL) {
    /* Copied: another thread may record the event again while this one waits. */
    struct host_stream *stream = event->stream;
    uint64_t number = event->number;
    cgr__host_wait(host, stream, number);
  }
  pthread_mutex_unlock(&host->lock);
  return error;
}

#include "devices/host/event.h"

#include <stdlib.h>

#include "devices/host/capture.h"
#include "devices/host/handles.h"
#include "devices/host/queue.h"

/* A destroyed one, or a new one; NULL without memory. */
static cgr__event *unused_event(struct host_device *host) {
  for (cgr__event *e = host->events; e; e = e->next)
    if (!e->alive)
      return e;
  cgr__event *event = calloc(1, sizeof *event);
  if (!event)
    return NULL;
  event->dev = host;
  event->next = host->events;
  host->events = event;
  return event;
}

static cgr__event *take_event(struct host_device *host) {
  cgr__event *event = unused_event(host);
  if (!event)
    return NULL;
  event->alive = true;
  event->stream = NULL;
  event->capture = 0;
  return event;
}

int cgr__host_event_create(cgr_device *dev, cgr__event **handle) {
  struct host_device *host = cgr__host_of(dev);
  pthread_mutex_lock(&host->lock);
  cgr__event *event = take_event(host);
  pthread_mutex_unlock(&host->lock);
  *handle = event;
  return event ? CGR__DEVICE_OK : cgr__host_fail(host, CGR__DEVICE_NO_MEMORY, HOST_RAW_NO_MEMORY);
}

int cgr__host_event_destroy(cgr_device *dev, cgr__event *handle) {
  struct host_device *host = cgr__host_of(dev);
  pthread_mutex_lock(&host->lock);
  cgr__event *event = cgr__host_event(host, handle);
  if (event)
    event->alive = false;
  pthread_mutex_unlock(&host->lock);
  return event ? CGR__DEVICE_OK : CGR__DEVICE_INVALID;
}

static int record_event(struct host_device *host, struct host_stream *stream, cgr__event *event) {
  if (stream->capture)
    return cgr__host_capture_record(host, stream, event);
  event->capture = 0;
  event->stream = stream;
  event->number = stream->enqueued;
  cgr__host_progress(host, stream);
  return CGR__DEVICE_OK;
}

static int wait_for_event(struct host_device *host, struct host_stream *stream, cgr__event *event) {
  int error = CGR__DEVICE_OK;
  if (stream->capture || event->capture != 0)
    return cgr__host_capture_wait(host, stream, event);
  if (event->stream)
    error = cgr__host_push_wait(host, stream, event->stream, event->number);
  cgr__host_progress(host, stream);
  return error;
}

int cgr__host_event_record(cgr_device *dev, cgr__event *handle, cudaStream_t stream_handle) {
  struct host_device *host = cgr__host_of(dev);
  pthread_mutex_lock(&host->lock);
  cgr__event *event = cgr__host_event(host, handle);
  struct host_stream *stream = cgr__host_stream(host, stream_handle);
  int error = event && stream ? record_event(host, stream, event) : CGR__DEVICE_INVALID;
  pthread_mutex_unlock(&host->lock);
  return error;
}

int cgr__host_event_wait(cgr_device *dev, cgr__event *handle, cudaStream_t stream_handle) {
  struct host_device *host = cgr__host_of(dev);
  pthread_mutex_lock(&host->lock);
  cgr__event *event = cgr__host_event(host, handle);
  struct host_stream *stream = cgr__host_stream(host, stream_handle);
  int error = event && stream ? wait_for_event(host, stream, event) : CGR__DEVICE_INVALID;
  pthread_mutex_unlock(&host->lock);
  return error;
}

/* Shared by query and sync: CUDA refuses both for a captured event (907, which invalidates the capture), and, as potentially
 * unsafe calls, for any event while the calling thread captures (900). */
static int find_waitable_event(struct host_device *host, cgr__event *handle, cgr__event **event) {
  *event = cgr__host_event(host, handle);
  if (!*event)
    return CGR__DEVICE_INVALID;
  if ((*event)->capture != 0)
    return cgr__host_refuse_captured_event(host, *event);
  return cgr__host_refuse_capturing_thread(host);
}

int cgr__host_event_query(cgr_device *dev, cgr__event *handle) {
  struct host_device *host = cgr__host_of(dev);
  cgr__event *event;
  pthread_mutex_lock(&host->lock);
  int error = find_waitable_event(host, handle, &event);
  if (error == CGR__DEVICE_OK && event->stream)
    error = cgr__host_query(host, event->stream, event->number);
  pthread_mutex_unlock(&host->lock);
  return error;
}

int cgr__host_event_sync(cgr_device *dev, cgr__event *handle) {
  struct host_device *host = cgr__host_of(dev);
  cgr__event *event;
  pthread_mutex_lock(&host->lock);
  int error = find_waitable_event(host, handle, &event);
  if (error == CGR__DEVICE_OK && event->stream) {
    /* Copied: another thread may record the event again while this one waits. */
    struct host_stream *stream = event->stream;
    uint64_t number = event->number;
    cgr__host_wait(host, stream, number);
  }
  pthread_mutex_unlock(&host->lock);
  return error;
}

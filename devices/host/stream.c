#include "devices/host/stream.h"

#include <stdlib.h>

#include "devices/host/capture.h"
#include "devices/host/handles.h"
#include "devices/host/queue.h"

static struct host_stream *take_stream(struct host_device *host) {
  for (struct host_stream *s = host->streams; s; s = s->next)
    if (!s->alive && !s->stop)
      return s;
  struct host_stream *stream = calloc(1, sizeof *stream);
  if (!stream)
    return NULL;
  if (pthread_cond_init(&stream->wake, NULL) != 0) {
    free(stream);
    return NULL;
  }
  stream->dev = host;
  stream->next = host->streams;
  host->streams = stream;
  return stream;
}

int cgr__host_stream_create(cgr_device *dev, enum cgr__stream_priority priority, cudaStream_t *handle) {
  (void)priority; /* no stream waits for another to run */
  struct host_device *host = cgr__host_of(dev);
  pthread_mutex_lock(&host->lock);
  struct host_stream *stream = take_stream(host);
  bool ok = stream;
  if (ok && host->schedule == CGR_SCHEDULE_ASYNC)
    ok = pthread_create(&stream->worker, NULL, cgr__host_worker, stream) == 0;
  if (ok)
    stream->alive = true;
  int error = ok ? CGR__DEVICE_OK : cgr__host_fail(host, CGR__DEVICE_NO_MEMORY, HOST_RAW_NO_MEMORY);
  pthread_mutex_unlock(&host->lock);
  *handle = ok ? (cudaStream_t)(void *)stream : NULL;
  return error;
}

void cgr__host_stream_retire(struct host_device *host, struct host_stream *stream) {
  stream->alive = false;
  stream->stop = true; /* until the thread is gone this stream may not be taken again */
  cgr__host_wait(host, stream, stream->enqueued);
  if (host->schedule == CGR_SCHEDULE_ASYNC) {
    pthread_cond_signal(&stream->wake);
    pthread_mutex_unlock(&host->lock);
    pthread_join(stream->worker, NULL);
    pthread_mutex_lock(&host->lock);
  }
  stream->stop = false;
}

int cgr__host_stream_destroy(cgr_device *dev, cudaStream_t handle) {
  struct host_device *host = cgr__host_of(dev);
  pthread_mutex_lock(&host->lock);
  struct host_stream *stream = cgr__host_stream(host, handle);
  int error = !stream ? CGR__DEVICE_INVALID : cgr__host_refuse_capturing_stream(host, stream);
  if (error == CGR__DEVICE_OK)
    cgr__host_stream_retire(host, stream);
  pthread_mutex_unlock(&host->lock);
  return error;
}

/* Shared by sync and query: a stream that may be waited for now. */
static int find_waitable_stream(struct host_device *host, cudaStream_t handle, struct host_stream **stream) {
  *stream = cgr__host_stream(host, handle);
  if (!*stream)
    return CGR__DEVICE_INVALID;
  int error = cgr__host_refuse_capturing_stream(host, *stream);
  return error != CGR__DEVICE_OK ? error : cgr__host_refuse_capturing_thread(host);
}

int cgr__host_stream_sync(cgr_device *dev, cudaStream_t handle) {
  struct host_device *host = cgr__host_of(dev);
  struct host_stream *stream;
  pthread_mutex_lock(&host->lock);
  int error = find_waitable_stream(host, handle, &stream);
  if (error == CGR__DEVICE_OK)
    cgr__host_wait(host, stream, stream->enqueued);
  pthread_mutex_unlock(&host->lock);
  return error;
}

int cgr__host_stream_query(cgr_device *dev, cudaStream_t handle) {
  struct host_device *host = cgr__host_of(dev);
  struct host_stream *stream;
  pthread_mutex_lock(&host->lock);
  int error = find_waitable_stream(host, handle, &stream);
  if (error == CGR__DEVICE_OK)
    error = cgr__host_query(host, stream, stream->enqueued);
  pthread_mutex_unlock(&host->lock);
  return error;
}

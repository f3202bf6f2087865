#include "devices/host/capture.h"

#include <stdlib.h>

#include "devices/host/handles.h"
#include "devices/host/nodes.h"

/* The open capture of an event; NULL: none, or it is over. */
static struct host_capture *capture_of(struct host_device *host, const cgr__event *event) {
  for (struct host_capture *c = host->captures; event->capture != 0 && c; c = c->next)
    if (c->id == event->capture)
      return c;
  return NULL;
}

static int invalidate_capture(struct host_device *host, struct host_capture *capture, int error, int raw) {
  if (capture)
    capture->invalid = true;
  return cgr__host_fail(host, error, raw);
}

int cgr__host_refuse_capturing_thread(struct host_device *host) {
  int error = CGR__DEVICE_OK;
  for (struct host_capture *c = host->captures; c; c = c->next) {
    if (!pthread_equal(c->owner, pthread_self()))
      continue;
    error = invalidate_capture(host, c, CGR__DEVICE_CAPTURE_ILLEGAL, HOST_RAW_CAPTURE_UNSUPPORTED);
  }
  return error;
}

int cgr__host_refuse_capturing_stream(struct host_device *host, struct host_stream *stream) {
  if (!stream->capture)
    return CGR__DEVICE_OK;
  return invalidate_capture(host, stream->capture, CGR__DEVICE_CAPTURE_ILLEGAL, HOST_RAW_CAPTURE_UNSUPPORTED);
}

int cgr__host_refuse_captured_event(struct host_device *host, const cgr__event *event) {
  return invalidate_capture(host, capture_of(host, event), CGR__DEVICE_CAPTURE_ILLEGAL, HOST_RAW_CAPTURED_EVENT);
}

static int refuse_invalid(struct host_device *host, const struct host_capture *capture) {
  if (!capture->invalid)
    return CGR__DEVICE_OK;
  return cgr__host_fail(host, CGR__DEVICE_CAPTURE_INVALID, HOST_RAW_CAPTURE_INVALIDATED);
}

static int out_of_memory(struct host_device *host, struct host_capture *capture) {
  return invalidate_capture(host, capture, CGR__DEVICE_NO_MEMORY, HOST_RAW_NO_MEMORY);
}

/* ------------------------------------------------------------------------------------------ work and events inside */

int cgr__host_capture_add(struct host_device *host, struct host_stream *stream, const struct host_work *work, size_t args_size) {
  struct host_capture *capture = stream->capture;
  int error = refuse_invalid(host, capture);
  if (error != CGR__DEVICE_OK)
    return error;
  if (!cgr__host_graph_add(capture->graph, work, args_size, &stream->deps))
    return out_of_memory(host, capture);
  stream->deps.count = 0;
  if (!cgr__host_deps_add(&stream->deps, capture->graph->num_nodes - 1))
    return out_of_memory(host, capture);
  return CGR__DEVICE_OK;
}

int cgr__host_capture_record(struct host_device *host, struct host_stream *stream, cgr__event *event) {
  struct host_capture *capture = stream->capture;
  int error = refuse_invalid(host, capture);
  if (error != CGR__DEVICE_OK)
    return error;
  if (!cgr__host_deps_copy(&event->deps, &stream->deps))
    return out_of_memory(host, capture);
  event->capture = capture->id;
  event->stream = NULL;
  return CGR__DEVICE_OK;
}

int cgr__host_capture_wait(struct host_device *host, struct host_stream *stream, cgr__event *event) {
  struct host_capture *from = capture_of(host, event);
  struct host_capture *into = stream->capture;
  if (into && into->invalid)
    return refuse_invalid(host, into);
  if (into && !from)
    return invalidate_capture(host, into, CGR__DEVICE_CAPTURE_INVALID, HOST_RAW_CAPTURE_ISOLATION);
  if (!from)
    return cgr__host_fail(host, CGR__DEVICE_CAPTURE_ILLEGAL, HOST_RAW_CAPTURED_EVENT);
  if (into && into != from) {
    invalidate_capture(host, into, CGR__DEVICE_CAPTURE_INVALID, HOST_RAW_CAPTURE_MERGE);
    return invalidate_capture(host, from, CGR__DEVICE_CAPTURE_INVALID, HOST_RAW_CAPTURE_MERGE);
  }
  int error = refuse_invalid(host, from);
  if (error != CGR__DEVICE_OK)
    return error;
  if (!into)
    stream->deps.count = 0;
  stream->capture = from;
  for (uint32_t i = 0; i < event->deps.count; i++)
    if (!cgr__host_deps_add(&stream->deps, event->deps.ids[i]))
      return out_of_memory(host, from);
  return CGR__DEVICE_OK;
}

/* -------------------------------------------------------------------------------------------------- begin and end */

int cgr__host_capture_begin(cgr_device *dev, cudaStream_t handle) {
  struct host_device *host = cgr__host_of(dev);
  struct host_capture *capture = calloc(1, sizeof *capture);
  cgr__graph *graph = cgr__host_graph_new();
  int error = CGR__DEVICE_OK;
  pthread_mutex_lock(&host->lock);
  struct host_stream *stream = cgr__host_stream(host, handle);
  if (!stream)
    error = CGR__DEVICE_INVALID;
  else if (stream->capture)
    error = cgr__host_fail(host, CGR__DEVICE_CAPTURE_ILLEGAL, HOST_RAW_ILLEGAL_STATE);
  else if (!capture || !graph)
    error = cgr__host_fail(host, CGR__DEVICE_NO_MEMORY, HOST_RAW_NO_MEMORY);
  if (error == CGR__DEVICE_OK) {
    capture->id = ++host->num_captures;
    capture->owner = pthread_self();
    capture->origin = stream;
    capture->graph = graph;
    capture->next = host->captures;
    host->captures = capture;
    stream->capture = capture;
    stream->deps.count = 0;
  }
  pthread_mutex_unlock(&host->lock);
  if (error == CGR__DEVICE_OK)
    return error;
  free(capture);
  if (graph)
    cgr__host_graph_unref(graph);
  return error;
}

/* Releases the streams and unlinks the capture; the graph is the caller's. */
static cgr__graph *take_apart(struct host_device *host, struct host_capture *capture) {
  for (struct host_stream *s = host->streams; s; s = s->next)
    if (s->capture == capture)
      s->capture = NULL;
  struct host_capture **link = &host->captures;
  while (*link != capture)
    link = &(*link)->next;
  *link = capture->next;
  cgr__graph *graph = capture->graph;
  free(capture);
  return graph;
}

void cgr__host_capture_drop(struct host_device *host, struct host_capture *capture) {
  cgr__host_graph_unref(take_apart(host, capture));
}

/* Checks that the first stream waits for all work of the others. */
static int check_joined(struct host_device *host, struct host_capture *capture) {
  const struct host_deps *ends = &capture->origin->deps;
  for (struct host_stream *s = host->streams; s; s = s->next) {
    if (s->capture != capture || s == capture->origin)
      continue;
    bool covers = false;
    if (!cgr__host_graph_covers(capture->graph, ends, &s->deps, &covers))
      return out_of_memory(host, capture);
    if (!covers)
      return cgr__host_fail(host, CGR__DEVICE_CAPTURE_INVALID, HOST_RAW_CAPTURE_UNJOINED);
  }
  if (!cgr__host_graph_order(capture->graph, ends))
    return out_of_memory(host, capture);
  return CGR__DEVICE_OK;
}

static int end_locked(struct host_device *host, cudaStream_t handle, cgr__graph **graph) {
  struct host_stream *stream = cgr__host_stream(host, handle);
  if (!stream)
    return CGR__DEVICE_INVALID;
  struct host_capture *capture = stream->capture;
  if (!capture)
    return cgr__host_fail(host, CGR__DEVICE_CAPTURE_INVALID, HOST_RAW_ILLEGAL_STATE);
  if (!pthread_equal(capture->owner, pthread_self())) {
    cgr__host_capture_drop(host, capture);
    return cgr__host_fail(host, CGR__DEVICE_CAPTURE_INVALID, HOST_RAW_CAPTURE_WRONG_THREAD);
  }
  if (capture->origin != stream)
    return invalidate_capture(host, capture, CGR__DEVICE_CAPTURE_INVALID, HOST_RAW_CAPTURE_UNMATCHED);
  int error = refuse_invalid(host, capture);
  if (error == CGR__DEVICE_OK)
    error = check_joined(host, capture);
  cgr__graph *built = take_apart(host, capture);
  if (error == CGR__DEVICE_OK)
    *graph = built;
  else
    cgr__host_graph_unref(built);
  return error;
}

int cgr__host_capture_end(cgr_device *dev, cudaStream_t handle, cgr__graph **graph) {
  struct host_device *host = cgr__host_of(dev);
  *graph = NULL;
  pthread_mutex_lock(&host->lock);
  int error = end_locked(host, handle, graph);
  pthread_mutex_unlock(&host->lock);
  return error;
}

/* An invalid capture still captures: it must be ended. */
int cgr__host_capture_status(cgr_device *dev, cudaStream_t handle, int *capturing) {
  struct host_device *host = cgr__host_of(dev);
  pthread_mutex_lock(&host->lock);
  struct host_stream *stream = cgr__host_stream(host, handle);
  *capturing = stream && stream->capture;
  pthread_mutex_unlock(&host->lock);
  return stream ? CGR__DEVICE_OK : CGR__DEVICE_INVALID;
}

int cgr__host_capture_nodes(cgr_device *dev, cudaStream_t handle, const void **nodes, size_t capacity, size_t *count) {
  struct host_device *host = cgr__host_of(dev);
  int error = CGR__DEVICE_OK;
  *count = 0;
  pthread_mutex_lock(&host->lock);
  struct host_stream *stream = cgr__host_stream(host, handle);
  if (!stream)
    error = CGR__DEVICE_INVALID;
  else if (!stream->capture || stream->capture->invalid)
    error = cgr__host_fail(host, CGR__DEVICE_CAPTURE_INVALID, HOST_RAW_CAPTURE_INVALIDATED);
  else
    *count = stream->capture->graph->num_nodes;
  for (size_t i = 0; i < *count && i < capacity; i++)
    nodes[i] = cgr__host_node_handle((uint32_t)i);
  pthread_mutex_unlock(&host->lock);
  return error;
}

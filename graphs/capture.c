#include <time.h>

#include "graphs/graphs.h"

static double now_ms(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec * 1e3 + (double)time.tv_nsec * 1e-6;
}

void cgr__graphs_drop(cgr__graph_entry *entry, cgr_device *dev) {
  if (entry->exec)
    dev->ops->exec_destroy(dev, entry->exec);
  entry->exec = NULL;
  entry->state = CGR__GRAPH_EMPTY;
}

/* Captures the body into a graph. A capture that was begun is ended exactly once, whatever the body did. */
static cgr_status capture_graph(cgr_device *dev, cudaStream_t stream, cgr__capture_body body, void *context, cgr__graph **graph,
                                int *device_error) {
  *device_error = dev->ops->capture_begin(dev, stream);
  if (*device_error)
    return CGR_ERROR_CAPTURE;
  cgr_status status = body(context, stream);
  int ended = dev->ops->capture_end(dev, stream, graph);
  if (status != CGR_OK)
    return status;
  *device_error = ended;
  return ended ? CGR_ERROR_CAPTURE : CGR_OK;
}

cgr_status cgr__graphs_capture(cgr__graphs *graphs, cgr__graph_entry *entry, cgr_device *dev, cudaStream_t stream,
                               cgr__capture_body body, void *context, int *device_error) {
  double begin = now_ms();
  cgr__graph *graph = NULL;
  cgr__graph_info info = { 0, 0 };
  cgr__graphs_drop(entry, dev);
  cgr_status status = capture_graph(dev, stream, body, context, &graph, device_error);
  if (status == CGR_OK) {
    *device_error = dev->ops->instantiate(dev, graph, &entry->exec, &info);
    status = *device_error ? CGR_ERROR_DEVICE : CGR_OK;
  }
  if (graph)
    dev->ops->graph_destroy(dev, graph);
  if (status != CGR_OK) {
    entry->exec = NULL;
    entry->state = CGR__GRAPH_FAILED;
    graphs->failures++;
    return status;
  }
  entry->state = CGR__GRAPH_READY;
  entry->num_nodes = info.num_nodes;
  entry->device_bytes = info.device_bytes;
  entry->capture_ms = now_ms() - begin;
  return CGR_OK;
}

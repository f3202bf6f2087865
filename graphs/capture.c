#include <time.h>

#include "base/status.h"
#include "graphs/graphs.h"

static double now_ms(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec * 1e3 + (double)time.tv_nsec * 1e-6;
}

/* Captures the body into a graph. A capture that was begun is ended exactly once, whatever the body did. The body's failure comes
 * first, unless the end finds that the device is lost. */
static cgr_status capture_graph(cgr_device *dev, cudaStream_t stream, cgr__capture_body body, void *context, cgr__graph **graph,
                                int *device_error) {
  *device_error = dev->ops->capture_begin(dev, stream);
  if (*device_error)
    return CGR_ERROR_CAPTURE;
  cgr_status status = body(context, stream);
  int ended = dev->ops->capture_end(dev, stream, graph);
  if (status != CGR_OK) {
    *device_error = ended == CGR__DEVICE_DEAD ? ended : 0;
    return status;
  }
  *device_error = ended;
  return ended ? CGR_ERROR_CAPTURE : CGR_OK;
}

static cgr_status capture(cgr__graphs *graphs, cgr__graph_entry *entry, cudaStream_t stream, cgr__capture_body body,
                          void *context, cgr__graph_info *info, int *device_error) {
  cgr_device *dev = graphs->dev;
  cgr__graph *graph = NULL;
  cgr_status status = capture_graph(dev, stream, body, context, &graph, device_error);
  if (status == CGR_OK) {
    *device_error = dev->ops->instantiate(dev, graph, &entry->exec, info);
    status = *device_error ? CGR_ERROR_DEVICE : CGR_OK;
  }
  if (graph)
    dev->ops->graph_destroy(dev, graph);
  return status;
}

cgr_status cgr__graphs_capture(cgr__graphs *graphs, cgr__graph_entry *entry, cudaStream_t stream, cgr__capture_body body,
                               void *context, int *device_error) {
  double begin = now_ms();
  cgr__graph_info info = { 0, 0 };
  cgr__graph_drop(graphs, entry);
  /* Read before the body: if `record` moves a region, the graph may hold its old address. */
  entry->epoch = graphs->regions->epoch;
  entry->layout_hash = graphs->layout_hash;
  entry->records++;
  cgr_status status = capture(graphs, entry, stream, body, context, &info, device_error);
  if (status != CGR_OK) {
    entry->exec = NULL;
    entry->state = CGR_GRAPH_FAILED;
    graphs->failures++;
    return status;
  }
  entry->state = CGR_GRAPH_READY;
  entry->num_nodes = info.num_nodes;
  entry->device_bytes = info.device_bytes;
  entry->capture_ms = now_ms() - begin;
  return CGR_OK;
}

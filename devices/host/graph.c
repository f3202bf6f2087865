#include "devices/host/graph.h"

#include <stdio.h>
#include <stdlib.h>

#include "devices/host/capture.h"
#include "devices/host/handles.h"
#include "devices/host/nodes.h"
#include "devices/host/pool.h"
#include "devices/host/queue.h"
#include "devices/shape.h"

int cgr__host_graph_destroy(cgr_device *dev, cgr__graph *graph) {
  if (!graph)
    return cgr__host_fail(cgr__host_of(dev), CGR__DEVICE_INVALID, HOST_RAW_INVALID_VALUE);
  cgr__host_graph_unref(graph);
  return CGR__DEVICE_OK;
}

struct node_name {
  char text[48];
};

static struct node_name node_name(const struct host_work *work) {
  struct node_name name;
  if (work->kind == HOST_WORK_CALL && !work->name)
    snprintf(name.text, sizeof name.text, CGR__HOST_FUNCTION_NAME, (unsigned long long)(uintptr_t)work->function);
  else
    snprintf(name.text, sizeof name.text, "%s",
             work->kind == HOST_WORK_COPY   ? "copy"
             : work->kind == HOST_WORK_FILL ? "fill"
                                            : work->name);
  return name;
}

int cgr__host_graph_walk(cgr_device *dev, cgr__graph *graph, cgr__node_visitor visit, void *context) {
  if (!graph)
    return cgr__host_fail(cgr__host_of(dev), CGR__DEVICE_INVALID, HOST_RAW_INVALID_VALUE);
  int error = CGR__DEVICE_OK;
  for (uint32_t i = 0; i < graph->num_nodes && !error; i++) {
    const struct host_node *node = &graph->nodes[i];
    const struct host_work *work = &node->work;
    const struct node_name name = node_name(work);
    cgr__node_param param = { .node = i, .name = name.text, .data = work->args, .bytes = node->args_size };
    param.handle = cgr__host_node_handle(i);
    bool fills = work->kind == HOST_WORK_FILL;
    const uint64_t words[] = { (uintptr_t)work->dst, fills ? work->value : (uintptr_t)work->src,
                               fills ? work->width * work->count : work->count };
    if (work->kind == HOST_WORK_CALL)
      error = visit(context, &param);
    else
      error = cgr__show_words(&param, words, sizeof words / sizeof words[0], visit, context);
  }
  return error;
}

/* The data for random orders: which node depends on which, and scratch. One block, so that nothing is allocated in a run. */
static bool index_dependents(cgr__exec *exec) {
  const cgr__graph *graph = exec->graph;
  size_t n = graph->num_nodes;
  uint32_t *block = calloc(3 * n + 1 + graph->num_deps, sizeof *block);
  if (!block)
    return false;
  exec->first_dependent = block;
  exec->waiting = block + n + 1;
  exec->ready = exec->waiting + n;
  exec->dependents = exec->ready + n;
  for (uint32_t d = 0; d < graph->num_deps; d++)
    exec->first_dependent[graph->deps[d] + 1]++;
  for (size_t i = 0; i < n; i++)
    exec->first_dependent[i + 1] += exec->first_dependent[i];
  for (uint32_t i = 0; i < n; i++) {
    const struct host_node *node = &graph->nodes[i];
    for (uint32_t d = 0; d < node->num_deps; d++) {
      uint32_t dep = graph->deps[node->first_dep + d];
      exec->dependents[exec->first_dependent[dep] + exec->waiting[dep]++] = i;
    }
  }
  return true;
}

static void exec_free(cgr__exec *exec) {
  cgr__host_graph_unref(exec->graph);
  free(exec->first_dependent); /* the block */
  free(exec);
}

static int64_t find_graph_width(const cgr__graph *graph) {
  cgr__graph_edge *edges = calloc((size_t)graph->num_deps + 1, sizeof *edges);
  size_t count = 0;
  int64_t width = -1;
  for (uint32_t i = 0; edges && i < graph->num_nodes; i++)
    for (uint32_t d = 0; d < graph->nodes[i].num_deps; d++)
      edges[count++] = (cgr__graph_edge){ graph->deps[graph->nodes[i].first_dep + d], i };
  if (edges)
    width = cgr__graph_width(graph->num_nodes, edges, count);
  free(edges);
  return width;
}

int cgr__host_instantiate(cgr_device *dev, cgr__graph *graph, cgr__exec **out, cgr__graph_info *info) {
  struct host_device *host = cgr__host_of(dev);
  *out = NULL;
  if (!graph)
    return cgr__host_fail(host, CGR__DEVICE_INVALID, HOST_RAW_INVALID_VALUE);
  pthread_mutex_lock(&host->lock);
  int error = cgr__host_refuse_capturing_thread(host);
  pthread_mutex_unlock(&host->lock);
  if (error != CGR__DEVICE_OK)
    return error;
  cgr__exec *exec = calloc(1, sizeof *exec);
  if (!exec)
    return cgr__host_fail(host, CGR__DEVICE_NO_MEMORY, HOST_RAW_NO_MEMORY);
  __atomic_add_fetch(&graph->refs, 1, __ATOMIC_RELAXED);
  exec->graph = graph;
  int64_t width = info ? find_graph_width(graph) : 0;
  if (!index_dependents(exec) || width < 0) {
    exec_free(exec);
    return cgr__host_fail(host, CGR__DEVICE_NO_MEMORY, HOST_RAW_NO_MEMORY);
  }
  if (info) {
    info->num_nodes = info->all_nodes = graph->num_nodes;
    info->width = width;
    info->device_bytes = 0;
    info->tools_id = 0;
  }
  *out = exec;
  return CGR__DEVICE_OK;
}

/* An exec never runs twice at once, even on two streams: each launch is ordered after the exec's last one. */
static int enqueue_launch(struct host_device *host, struct host_stream *stream, cgr__exec *exec) {
  struct host_op *op = cgr__host_op_take(host, 0);
  if (!op)
    return CGR__DEVICE_NO_MEMORY;
  int error = !exec->last ? CGR__DEVICE_OK : cgr__host_push_wait(host, stream, exec->last, exec->last_number);
  if (error != CGR__DEVICE_OK) {
    cgr__host_op_return(host, op);
    return error;
  }
  op->kind = HOST_OP_LAUNCH;
  op->exec = exec;
  cgr__host_push(stream, op);
  exec->last = stream;
  exec->last_number = stream->enqueued;
  cgr__host_progress(host, stream);
  return CGR__DEVICE_OK;
}

int cgr__host_exec_launch(cgr_device *dev, cgr__exec *exec, cudaStream_t handle) {
  struct host_device *host = cgr__host_of(dev);
  int error;
  if (!exec)
    return cgr__host_fail(host, CGR__DEVICE_INVALID, HOST_RAW_INVALID_VALUE);
  pthread_mutex_lock(&host->lock);
  struct host_stream *stream = cgr__host_stream(host, handle);
  if (!stream)
    error = CGR__DEVICE_INVALID;
  else if (stream->capture)
    error = cgr__host_refuse_capturing_stream(host, stream);
  else
    error = enqueue_launch(host, stream, exec);
  pthread_mutex_unlock(&host->lock);
  return error;
}

int cgr__host_exec_destroy(cgr_device *dev, cgr__exec *exec) {
  struct host_device *host = cgr__host_of(dev);
  if (!exec)
    return cgr__host_fail(host, CGR__DEVICE_INVALID, HOST_RAW_INVALID_VALUE);
  pthread_mutex_lock(&host->lock);
  if (exec->last)
    cgr__host_wait(host, exec->last, exec->last_number);
  pthread_mutex_unlock(&host->lock);
  exec_free(exec);
  return CGR__DEVICE_OK;
}

/* Instantiated graphs: one launch is one operation of a stream that executes all nodes, in an order that the schedule picks.
 * Nodes hold addresses and arguments by value and read memory anew in every run. */
#include <stdlib.h>
#include <string.h>

#include "devices/host/host.h"

int cgr__host_graph_destroy(cgr_device *dev, cgr__graph *graph) {
  (void)dev;
  cgr__host_graph_unref(graph);
  return CGR__DEVICE_OK;
}

/* What a random order needs: who depends on whom, and scratch. One block, so that nothing is allocated in a run. */
static bool index_dependents(cgr__exec *exec) {
  const cgr__graph *graph = exec->graph;
  size_t n = graph->num_nodes;
  uint32_t *block = calloc(3 * n + 1 + graph->num_deps, sizeof *block);
  if (block == NULL)
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

int cgr__host_instantiate(cgr_device *dev, cgr__graph *graph, cgr__exec **out, cgr__graph_info *info) {
  struct host_device *host = cgr__host_of(dev);
  *out = NULL;
  pthread_mutex_lock(&host->lock);
  int error = cgr__host_refuse_capturing_thread(host);
  pthread_mutex_unlock(&host->lock);
  if (error != CGR__DEVICE_OK)
    return error;
  cgr__exec *exec = calloc(1, sizeof *exec);
  if (exec == NULL)
    return cgr__host_fail(host, CGR__DEVICE_NO_MEMORY, HOST_RAW_NO_MEMORY);
  __atomic_add_fetch(&graph->refs, 1, __ATOMIC_RELAXED);
  exec->graph = graph;
  if (!index_dependents(exec)) {
    exec_free(exec);
    return cgr__host_fail(host, CGR__DEVICE_NO_MEMORY, HOST_RAW_NO_MEMORY);
  }
  if (info != NULL) {
    info->num_nodes = graph->num_nodes;
    info->device_bytes = 0;
  }
  *out = exec;
  return CGR__DEVICE_OK;
}

/* One exec never runs twice at once, also on two streams: a launch is ordered behind the exec's last one. */
static int enqueue_launch(struct host_device *host, struct host_stream *stream, cgr__exec *exec) {
  struct host_op *op = cgr__host_op_take(host, 0);
  if (op == NULL)
    return CGR__DEVICE_NO_MEMORY;
  int error = exec->last == NULL ? CGR__DEVICE_OK : cgr__host_push_wait(host, stream, exec->last, exec->last_number);
  if (error != CGR__DEVICE_OK) {
    cgr__host_op_give(host, op);
    return error;
  }
  op->kind = HOST_OP_LAUNCH;
  op->exec = exec;
  cgr__host_push(host, stream, op);
  exec->last = stream;
  exec->last_number = stream->enqueued;
  cgr__host_progress(host, stream);
  return CGR__DEVICE_OK;
}

int cgr__host_exec_launch(cgr_device *dev, cgr__exec *exec, cudaStream_t handle) {
  struct host_device *host = cgr__host_of(dev);
  int error;
  pthread_mutex_lock(&host->lock);
  struct host_stream *stream = cgr__host_stream(host, handle);
  if (stream == NULL)
    error = CGR__DEVICE_INVALID;
  else if (stream->capture != NULL)
    error = cgr__host_refuse_capturing_stream(host, stream);
  else
    error = enqueue_launch(host, stream, exec);
  pthread_mutex_unlock(&host->lock);
  return error;
}

int cgr__host_exec_destroy(cgr_device *dev, cgr__exec *exec) {
  struct host_device *host = cgr__host_of(dev);
  pthread_mutex_lock(&host->lock);
  if (exec->last != NULL)
    cgr__host_wait(host, exec->last, exec->last_number);
  pthread_mutex_unlock(&host->lock);
  exec_free(exec);
  return CGR__DEVICE_OK;
}

static void run_randomly(struct host_device *host, cgr__exec *exec) {
  const cgr__graph *graph = exec->graph;
  uint32_t num_ready = 0;
  for (uint32_t i = 0; i < graph->num_nodes; i++) {
    exec->waiting[i] = graph->nodes[i].num_deps;
    if (exec->waiting[i] == 0)
      exec->ready[num_ready++] = i;
  }
  while (num_ready != 0) {
    uint32_t pick = (uint32_t)(cgr__host_random(host) % num_ready);
    uint32_t id = exec->ready[pick];
    exec->ready[pick] = exec->ready[--num_ready];
    cgr__host_work_run(&graph->nodes[id].work);
    for (uint32_t d = exec->first_dependent[id]; d < exec->first_dependent[id + 1]; d++) {
      uint32_t next = exec->dependents[d];
      if (--exec->waiting[next] == 0)
        exec->ready[num_ready++] = next;
    }
  }
}

void cgr__host_exec_run(struct host_device *host, cgr__exec *exec) {
  const cgr__graph *graph = exec->graph;
  if (host->schedule == CGR_HOST_RANDOM) {
    run_randomly(host, exec);
    return;
  }
  for (uint32_t i = 0; i < graph->num_nodes; i++) {
    uint32_t id = host->schedule == CGR_HOST_LATEST ? graph->latest[i] : i;
    cgr__host_work_run(&graph->nodes[id].work);
  }
}

#include "devices/cuda/graph.h"

#include <stdlib.h>

#include "devices/cuda/scope.h"
#include "devices/shape.h"

static CUgraph raw_graph(cgr__graph *graph) { return (CUgraph)(void *)graph; }

static CUgraphExec raw_exec(cgr__exec *exec) { return (CUgraphExec)(void *)exec; }

int cgr__cuda_capture_begin(cgr_device *dev, cudaStream_t stream) {
  struct cuda_device *cuda = cgr__cuda_of(dev);
  struct cgr__cuda_scope scope;
  int error = cgr__cuda_enter(cuda, &scope);
  if (error != CGR__DEVICE_OK)
    return error;
  CUresult raw = cgr__cu.StreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
  error = cgr__cuda_leave(&scope, raw);
  return raw == CUDA_ERROR_ILLEGAL_STATE ? CGR__DEVICE_CAPTURE_ILLEGAL : error; /* it captures already */
}

/* A capture that failed must still be ended, but only once, so its status is queried first. On a dead device too, because
 * the thread must not be left in a capture. */
static CUresult end_capture(struct cuda_device *cuda, cudaStream_t stream, CUgraph *captured) {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_ACTIVE;
  CUresult raw = cgr__cuda_is_dead(cuda) ? CUDA_SUCCESS : cgr__cu.StreamIsCapturing(stream, &status);
  if (raw == CUDA_SUCCESS && status == CU_STREAM_CAPTURE_STATUS_NONE)
    raw = CUDA_ERROR_ILLEGAL_STATE;
  if (raw == CUDA_SUCCESS)
    raw = cgr__cu.StreamEndCapture(stream, captured);
  /* CUDA gives no graph with an error; nor does it name the cause when it gives none. */
  return raw == CUDA_SUCCESS && !*captured ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : raw;
}

int cgr__cuda_capture_end(cgr_device *dev, cudaStream_t stream, cgr__graph **graph) {
  struct cuda_device *cuda = cgr__cuda_of(dev);
  struct cgr__cuda_scope scope;
  CUgraph captured = NULL;
  *graph = NULL;
  int error = cgr__cuda_enter_anyway(cuda, &scope);
  if (error != CGR__DEVICE_OK)
    return error;
  bool dead = cgr__cuda_is_dead(cuda);
  CUresult raw = end_capture(cuda, stream, &captured);
  if (captured && (dead || raw != CUDA_SUCCESS))
    (void)cgr__cu.GraphDestroy(captured);
  error = cgr__cuda_leave(&scope, raw);
  if (dead)
    return cgr__cuda_dead(cuda);
  if (raw == CUDA_ERROR_ILLEGAL_STATE)
    return CGR__DEVICE_CAPTURE_INVALID;
  if (error == CGR__DEVICE_OK)
    *graph = (cgr__graph *)(void *)captured;
  return error;
}

/* The two calls of every replayed step, this one and exec_launch, are made without a scope first: a stream and an executable
 * graph know their context, and a driver that is cold after a wait takes 0.1 us to say which one is current. A driver that needs
 * the context to be current says so, and has done nothing. */
static bool wants_context(CUresult raw) { return raw == CUDA_ERROR_INVALID_CONTEXT || raw == CUDA_ERROR_INVALID_HANDLE; }

int cgr__cuda_capture_status(cgr_device *dev, cudaStream_t stream, int *capturing) {
  struct cuda_device *cuda = cgr__cuda_of(dev);
  struct cgr__cuda_scope scope;
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  *capturing = 0;
  if (cgr__cuda_is_dead(cuda))
    return cgr__cuda_dead(cuda);
  int error = CGR__DEVICE_OK;
  CUresult raw = cgr__cu.StreamIsCapturing(stream, &status);
  if (wants_context(raw) && (error = cgr__cuda_enter(cuda, &scope)) == CGR__DEVICE_OK)
    error = cgr__cuda_leave(&scope, cgr__cu.StreamIsCapturing(stream, &status));
  else if (raw != CUDA_SUCCESS)
    error = cgr__cuda_error(cuda, (int)raw);
  *capturing = status != CU_STREAM_CAPTURE_STATUS_NONE; /* an invalidated capture still has to be ended */
  return error;
}

static CUresult capture_nodes(cudaStream_t stream, const void **nodes, size_t capacity, size_t *count) {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  CUgraph graph = NULL;
  CUresult raw = cgr__cu.StreamGetCaptureInfo(stream, &status, NULL, &graph, NULL, NULL, NULL);
  if (raw == CUDA_SUCCESS && (status != CU_STREAM_CAPTURE_STATUS_ACTIVE || !graph))
    raw = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  if (raw == CUDA_SUCCESS)
    raw = cgr__cu.GraphGetNodes(graph, NULL, count);
  size_t taken = *count < capacity ? *count : capacity;
  if (raw == CUDA_SUCCESS && taken > 0)
    raw = cgr__cu.GraphGetNodes(graph, (CUgraphNode *)(void *)nodes, &taken);
  return raw;
}

int cgr__cuda_capture_nodes(cgr_device *dev, cudaStream_t stream, const void **nodes, size_t capacity, size_t *count) {
  struct cuda_device *cuda = cgr__cuda_of(dev);
  struct cgr__cuda_scope scope;
  *count = 0;
  int error = cgr__cuda_enter(cuda, &scope);
  return error == CGR__DEVICE_OK ? cgr__cuda_leave(&scope, capture_nodes(stream, nodes, capacity, count)) : error;
}

int cgr__cuda_graph_destroy(cgr_device *dev, cgr__graph *graph) {
  struct cuda_device *cuda = cgr__cuda_of(dev);
  struct cgr__cuda_scope scope;
  if (!graph)
    return cgr__cuda_invalid(cuda);
  int error = cgr__cuda_enter_anyway(cuda, &scope);
  if (error == CGR__DEVICE_OK) {
    cgr__cuda_set_mode(&scope, CU_STREAM_CAPTURE_MODE_RELAXED);
    error = cgr__cuda_leave(&scope, cgr__cu.GraphDestroy(raw_graph(graph)));
  }
  return error == CGR__DEVICE_DEAD ? CGR__DEVICE_OK : error;
}

static int by_address(const void *a, const void *b) {
  const CUgraphNode *x = a, *y = b;
  return (*x > *y) - (*x < *y);
}

static uint32_t number_of(const CUgraphNode *sorted, size_t count, const CUgraphNode *node) {
  return (uint32_t)((const CUgraphNode *)bsearch(node, sorted, count, sizeof *sorted, by_address) - sorted);
}

/* The edges' data is ignored, but a graph with programmatic edges (PDL) refuses a query without it. */
static CUresult get_edges(CUgraph graph, CUgraphNode *from, CUgraphNode *to, size_t *num_edges) {
  CUgraphEdgeData *data = malloc(*num_edges * sizeof *data);
  CUresult raw = data ? cgr__cu.GraphGetEdges(graph, from, to, data, num_edges) : CUDA_ERROR_OUT_OF_MEMORY;
  free(data);
  return raw;
}

/* `memory` has room for the nodes and twice the edges. */
static CUresult find_graph_width(CUgraph graph, CUgraphNode *memory, size_t num_nodes, size_t num_edges, cgr__graph_edge *edges,
                                 int64_t *width) {
  CUgraphNode *from = memory + num_nodes, *to = from + num_edges;
  CUresult raw = cgr__cu.GraphGetNodes(graph, memory, &num_nodes);
  if (raw == CUDA_SUCCESS && num_edges > 0)
    raw = get_edges(graph, from, to, &num_edges);
  if (raw != CUDA_SUCCESS)
    return raw;
  qsort(memory, num_nodes, sizeof *memory, by_address);
  for (size_t e = 0; e < num_edges; e++)
    edges[e] = (cgr__graph_edge){ number_of(memory, num_nodes, &from[e]), number_of(memory, num_nodes, &to[e]) };
  *width = cgr__graph_width((uint32_t)num_nodes, edges, num_edges);
  return *width < 0 ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

/* Adds the nodes of child graphs. */
static CUresult count_children(const CUgraphNode *nodes, size_t num_nodes, int64_t *all_nodes) {
  CUresult raw = CUDA_SUCCESS;
  for (size_t i = 0; i < num_nodes && raw == CUDA_SUCCESS; i++) {
    CUgraphNodeType type;
    CUgraph child = NULL;
    size_t count = 0;
    raw = cgr__cu.GraphNodeGetType(nodes[i], &type);
    if (raw != CUDA_SUCCESS || type != CU_GRAPH_NODE_TYPE_GRAPH)
      continue;
    raw = cgr__cu.GraphChildGraphNodeGetGraph(nodes[i], &child);
    if (raw == CUDA_SUCCESS)
      raw = cgr__cu.GraphGetNodes(child, NULL, &count);
    CUgraphNode *inner = raw == CUDA_SUCCESS && count > 0 ? malloc(count * sizeof *inner) : NULL;
    if (inner)
      raw = cgr__cu.GraphGetNodes(child, inner, &count);
    if (inner && raw == CUDA_SUCCESS)
      raw = count_children(inner, count, all_nodes);
    *all_nodes += (int64_t)count;
    free(inner);
  }
  return raw;
}

static CUresult describe_graph(CUgraph graph, cgr__graph_info *info) {
  size_t num_nodes = 0, num_edges = 0;
  CUresult raw = cgr__cu.GraphGetNodes(graph, NULL, &num_nodes);
  if (raw == CUDA_SUCCESS)
    raw = cgr__cu.GraphGetEdges(graph, NULL, NULL, NULL, &num_edges);
  info->num_nodes = info->all_nodes = (int64_t)num_nodes;
  info->width = info->device_bytes = 0;
  info->tools_id = 0;
  if (raw != CUDA_SUCCESS || num_nodes == 0)
    return raw;
  CUgraphNode *nodes = malloc((num_nodes + 2 * num_edges) * sizeof *nodes);
  cgr__graph_edge *edges = malloc((num_edges + 1) * sizeof *edges);
  raw = nodes && edges ? find_graph_width(graph, nodes, num_nodes, num_edges, edges, &info->width) : CUDA_ERROR_OUT_OF_MEMORY;
  if (raw == CUDA_SUCCESS)
    raw = count_children(nodes, num_nodes, &info->all_nodes);
  free(nodes);
  free(edges);
  return raw;
}

/* Instantiates and uploads, so that the first launch costs what every launch costs. */
static CUresult instantiate_graph(struct cuda_device *cuda, CUgraph graph, CUgraphExec *exec, cgr__graph_info *info) {
  size_t before = 0, after = 0, total;
  CUresult raw = info ? describe_graph(graph, info) : CUDA_SUCCESS;
  if (raw == CUDA_SUCCESS)
    raw = cgr__cu.MemGetInfo(&before, &total);
  if (raw == CUDA_SUCCESS)
    raw = cgr__cu.GraphInstantiateWithFlags(exec, graph, 0);
  if (raw != CUDA_SUCCESS) {
    *exec = NULL;
    return raw;
  }
  raw = cgr__cu.GraphUpload(*exec, cuda->internal);
  if (raw == CUDA_SUCCESS)
    raw = cgr__cu.StreamSynchronize(cuda->internal);
  if (raw == CUDA_SUCCESS)
    raw = cgr__cu.MemGetInfo(&after, &total);
  if (raw != CUDA_SUCCESS) {
    (void)cgr__cu.GraphExecDestroy(*exec);
    *exec = NULL;
    return raw;
  }
  if (!info)
    return CUDA_SUCCESS;
  info->device_bytes = (int64_t)before - (int64_t)after;
  if (cgr__cu.GraphExecGetId && cgr__cu.GraphExecGetId(*exec, &info->tools_id) != CUDA_SUCCESS)
    info->tools_id = 0;
  return CUDA_SUCCESS;
}

int cgr__cuda_instantiate(cgr_device *dev, cgr__graph *graph, cgr__exec **exec, cgr__graph_info *info) {
  struct cuda_device *cuda = cgr__cuda_of(dev);
  struct cgr__cuda_scope scope;
  CUgraphExec created = NULL;
  *exec = NULL;
  if (!graph)
    return cgr__cuda_invalid(cuda);
  int error = cgr__cuda_enter(cuda, &scope);
  if (error != CGR__DEVICE_OK)
    return error;
  cgr__cuda_set_mode(&scope, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
  error = cgr__cuda_leave(&scope, instantiate_graph(cuda, raw_graph(graph), &created, info));
  *exec = (cgr__exec *)(void *)created;
  return error;
}

/* The hot path: no allocation, no lock, no sync below. */
int cgr__cuda_exec_launch(cgr_device *dev, cgr__exec *exec, cudaStream_t stream) {
  struct cuda_device *cuda = cgr__cuda_of(dev);
  struct cgr__cuda_scope scope;
  if (cgr__cuda_is_dead(cuda))
    return cgr__cuda_dead(cuda);
  CUresult raw = cgr__cu.GraphLaunch(raw_exec(exec), stream);
  if (!wants_context(raw))
    return cgr__cuda_error(cuda, (int)raw);
  int error = cgr__cuda_enter(cuda, &scope);
  return error != CGR__DEVICE_OK ? error : cgr__cuda_leave(&scope, cgr__cu.GraphLaunch(raw_exec(exec), stream));
}

/* CUDA keeps a destroyed exec alive until its launches are done. */
int cgr__cuda_exec_destroy(cgr_device *dev, cgr__exec *exec) {
  struct cuda_device *cuda = cgr__cuda_of(dev);
  struct cgr__cuda_scope scope;
  if (!exec)
    return cgr__cuda_invalid(cuda);
  int error = cgr__cuda_enter_anyway(cuda, &scope);
  if (error == CGR__DEVICE_OK) {
    cgr__cuda_set_mode(&scope, CU_STREAM_CAPTURE_MODE_RELAXED);
    error = cgr__cuda_leave(&scope, cgr__cu.GraphExecDestroy(raw_exec(exec)));
  }
  return error == CGR__DEVICE_DEAD ? CGR__DEVICE_OK : error;
}

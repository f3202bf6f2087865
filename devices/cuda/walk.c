#include "devices/cuda/walk.h"

#include <stdio.h>
#include <stdlib.h>

#include "devices/cuda/call.h"
#include "devices/cuda/scope.h"

#define MAX_PARAMS 32764 /* of a kernel: they have no more bytes (4096 before CUDA 12.1) */

struct walk {
  cgr__node_visitor visit;
  void *context;
  cgr__node_param param; /* of the node that is being shown */
  int depth;             /* of the child graph that it is in; 0: none */
  int error;             /* the visitor's */
};

static void show_param(struct walk *w, int32_t index, const void *data, size_t bytes) {
  if (w->error)
    return;
  w->param.index = index;
  w->param.data = data;
  w->param.bytes = bytes;
  w->error = w->visit(w->context, &w->param);
}

static void show_hidden(struct walk *w) {
  w->param.hidden = true;
  show_param(w, 0, NULL, 0);
}

/* The buffer of a kernel that was launched with its parameters in a single buffer. */
static const unsigned char *find_buffer(void *const *extra) {
  for (; extra && *extra != CU_LAUNCH_PARAM_END; extra += 2)
    if (*extra == CU_LAUNCH_PARAM_BUFFER_POINTER)
      return extra[1];
  return NULL;
}

static CUresult param_info(const CUDA_KERNEL_NODE_PARAMS *kernel, int32_t index, size_t *offset, size_t *bytes) {
  return kernel->func ? cgr__cu.FuncGetParamInfo(kernel->func, (size_t)index, offset, bytes)
                      : cgr__cu.KernelGetParamInfo(kernel->kern, (size_t)index, offset, bytes);
}

static void show_kernel(struct walk *w, CUgraphNode node) {
  CUDA_KERNEL_NODE_PARAMS kernel = { .func = NULL };
  const char *name = NULL;
  if (cgr__cu.GraphKernelNodeGetParams(node, &kernel) != CUDA_SUCCESS) {
    show_hidden(w);
    return;
  }
  CUresult raw = kernel.func ? cgr__cu.FuncGetName(&name, kernel.func) : cgr__cu.KernelGetName(&name, kernel.kern);
  const unsigned char *buffer = find_buffer(kernel.extra);
  const uint32_t launch[] = { kernel.gridDimX,  kernel.gridDimY,  kernel.gridDimZ,       kernel.blockDimX,
                              kernel.blockDimY, kernel.blockDimZ, kernel.sharedMemBytes, 0 };
  size_t offset = 0, bytes = 0;
  w->param.name = raw == CUDA_SUCCESS && name ? name : "kernel";
  w->param.hidden = !kernel.kernelParams && !buffer && param_info(&kernel, 0, &offset, &bytes) == CUDA_SUCCESS;
  show_param(w, -1, launch, sizeof launch);
  /* Until there is no such parameter. */
  for (int32_t i = 0; i < MAX_PARAMS && !w->param.hidden && param_info(&kernel, i, &offset, &bytes) == CUDA_SUCCESS; i++)
    show_param(w, i, buffer ? buffer + offset : kernel.kernelParams[i], bytes);
}

static void show_words(struct walk *w, const uint64_t words[3]) {
  if (!w->error)
    w->error = cgr__show_words(&w->param, words, 3, w->visit, w->context);
}

/* 0: an array, whose address is not known. */
static uint64_t address_of(CUmemorytype type, const void *host, CUdeviceptr device) {
  if (type == CU_MEMORYTYPE_HOST)
    return (uintptr_t)host;
  return type == CU_MEMORYTYPE_ARRAY ? 0 : device;
}

static void show_copy(struct walk *w, CUgraphNode node) {
  CUDA_MEMCPY3D copy;
  w->param.name = "copy";
  if (cgr__cu.GraphMemcpyNodeGetParams(node, &copy) != CUDA_SUCCESS) {
    show_hidden(w);
    return;
  }
  const uint64_t words[] = { address_of(copy.dstMemoryType, copy.dstHost, copy.dstDevice),
                             address_of(copy.srcMemoryType, copy.srcHost, copy.srcDevice),
                             (uint64_t)copy.WidthInBytes * copy.Height * copy.Depth };
  show_words(w, words);
}

static void show_fill(struct walk *w, CUgraphNode node) {
  CUDA_MEMSET_NODE_PARAMS fill;
  w->param.name = "fill";
  if (cgr__cu.GraphMemsetNodeGetParams(node, &fill) != CUDA_SUCCESS) {
    show_hidden(w);
    return;
  }
  const uint64_t words[] = { fill.dst, fill.value, (uint64_t)fill.elementSize * fill.width * fill.height };
  show_words(w, words);
}

static void show_host_function(struct walk *w, CUgraphNode node) {
  CUDA_HOST_NODE_PARAMS call;
  const void *args = NULL;
  size_t bytes = 0;
  w->param.name = "host function";
  cgr_host_function function =
      cgr__cu.GraphHostNodeGetParams(node, &call) == CUDA_SUCCESS ? cgr__cuda_call_of(&call, &args, &bytes) : NULL;
  if (!function) {
    show_hidden(w);
    return;
  }
  char name[48];
  snprintf(name, sizeof name, CGR__HOST_FUNCTION_NAME, (unsigned long long)(uintptr_t)function);
  w->param.name = name;
  show_param(w, 0, args, bytes);
}

/* The nodes of a child graph are copied into the executable graph under numbers of their own. */
static uint32_t tools_id(const struct walk *w, CUgraphNode node) {
  unsigned long long id = 0;
  if (w->depth > 0 || !cgr__cu.GraphNodeGetToolsId || cgr__cu.GraphNodeGetToolsId(node, &id) != CUDA_SUCCESS)
    return 0;
  return (uint32_t)id;
}

static CUresult walk_graph(struct walk *w, CUgraph graph);

static CUresult walk_child(struct walk *w, CUgraph child) {
  w->depth++;
  CUresult raw = walk_graph(w, child);
  w->depth--;
  return raw;
}

static CUresult show_node(struct walk *w, CUgraphNode node) {
  CUgraphNodeType type;
  CUgraph child = NULL;
  CUresult raw = cgr__cu.GraphNodeGetType(node, &type);
  if (raw != CUDA_SUCCESS)
    return raw;
  w->param.name = "node";
  w->param.hidden = false;
  w->param.handle = node;
  w->param.tools_id = tools_id(w, node);
  switch (type) {
  case CU_GRAPH_NODE_TYPE_KERNEL:
    show_kernel(w, node);
    break;
  case CU_GRAPH_NODE_TYPE_MEMCPY:
    show_copy(w, node);
    break;
  case CU_GRAPH_NODE_TYPE_MEMSET:
    show_fill(w, node);
    break;
  case CU_GRAPH_NODE_TYPE_HOST:
    show_host_function(w, node);
    break;
  case CU_GRAPH_NODE_TYPE_EMPTY:
  case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
  case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
    w->param.name = "event";
    show_param(w, 0, NULL, 0);
    break;
  case CU_GRAPH_NODE_TYPE_GRAPH:
    w->param.name = "child graph";
    show_param(w, 0, NULL, 0);
    raw = cgr__cu.GraphChildGraphNodeGetGraph(node, &child);
    break;
  default:
    show_hidden(w);
    break;
  }
  w->param.node++;
  return raw == CUDA_SUCCESS && child ? walk_child(w, child) : raw;
}

static CUresult walk_graph(struct walk *w, CUgraph graph) {
  size_t count = 0;
  CUresult raw = cgr__cu.GraphGetNodes(graph, NULL, &count);
  if (raw != CUDA_SUCCESS || count == 0)
    return raw;
  CUgraphNode *nodes = calloc(count, sizeof *nodes);
  if (!nodes)
    return CUDA_ERROR_OUT_OF_MEMORY;
  raw = cgr__cu.GraphGetNodes(graph, nodes, &count);
  for (size_t i = 0; i < count && raw == CUDA_SUCCESS && !w->error; i++)
    raw = show_node(w, nodes[i]);
  free(nodes);
  return raw;
}

int cgr__cuda_graph_walk(cgr_device *dev, cgr__graph *graph, cgr__node_visitor visit, void *context) {
  struct cuda_device *cuda = cgr__cuda_of(dev);
  struct cgr__cuda_scope scope;
  struct walk walk = { .visit = visit, .context = context };
  if (!graph)
    return cgr__cuda_invalid(cuda);
  int error = cgr__cuda_enter(cuda, &scope);
  if (error != CGR__DEVICE_OK)
    return error;
  error = cgr__cuda_leave(&scope, walk_graph(&walk, (CUgraph)(void *)graph));
  return error == CGR__DEVICE_OK ? walk.error : error;
}

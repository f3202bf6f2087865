/* The table of a shim: every operation describes itself, asks `before`, calls the inner device, tells `after`. */
#include "devices/shims/shim.h"

#include <stdlib.h>

const char *cgr__shim_op_name(int op) {
  static const char *const names[] = {
#define NAME(enumerator, name) #name,
    CGR__SHIM_OPS(NAME)
#undef NAME
  };
  return op >= 0 && op < CGR__OP_COUNT ? names[op] : "unknown operation";
}

static struct cgr__shim *shim_of(cgr_device *dev) { return (struct cgr__shim *)(void *)dev; }

static bool is_call_refused(struct cgr__shim *shim, const struct cgr__shim_call *call, uint64_t *word, int *error) {
  *word = 0;
  *error = shim->hooks->before ? shim->hooks->before(shim, call, word) : CGR__DEVICE_OK;
  return *error != CGR__DEVICE_OK;
}

static int finish_call(struct cgr__shim *shim, const struct cgr__shim_call *call, uint64_t word, int error) {
  if (error != CGR__DEVICE_OK && error != CGR__DEVICE_NOT_READY) {
    int raw = __atomic_load_n(&shim->inner->last_raw, __ATOMIC_RELAXED);
    __atomic_store_n(&shim->head.last_raw, raw, __ATOMIC_RELAXED);
  }
  return shim->hooks->after ? shim->hooks->after(shim, call, word, error) : error;
}

/* The common case: nothing is made. */
#define FORWARD(dev, call, ...)                      \
  struct cgr__shim *shim = shim_of(dev);             \
  cgr_device *in = shim->inner;                      \
  uint64_t word;                                     \
  int error;                                         \
  if (is_call_refused(shim, &(call), &word, &error)) \
    return error;                                    \
  return finish_call(shim, &(call), word, in->ops->__VA_ARGS__)

/* ------------------------------------------------------------------------------------------- memory, streams, events */

static int shim_mem_alloc(cgr_device *dev, size_t bytes, enum cgr__memory_kind kind, void **ptr) {
  struct cgr__shim *shim = shim_of(dev);
  struct cgr__shim_call call = { .op = CGR__OP_MEM_ALLOC, .bytes = bytes, .kind = kind };
  uint64_t word;
  int error;
  *ptr = NULL;
  if (is_call_refused(shim, &call, &word, &error))
    return error;
  int inner_error = shim->inner->ops->mem_alloc(shim->inner, bytes, kind, ptr);
  call.object = *ptr;
  error = finish_call(shim, &call, word, inner_error);
  if (error != CGR__DEVICE_OK && inner_error == CGR__DEVICE_OK)
    shim->inner->ops->mem_free(shim->inner, *ptr, kind);
  if (error != CGR__DEVICE_OK)
    *ptr = NULL;
  return error;
}

static int shim_mem_free(cgr_device *dev, void *ptr, enum cgr__memory_kind kind) {
  struct cgr__shim *shim = shim_of(dev);
  struct cgr__shim_call call = { .op = CGR__OP_MEM_FREE, .object = ptr, .kind = kind };
  uint64_t word;
  int error;
  if (is_call_refused(shim, &call, &word, &error))
    return error;
  if (shim->hooks->mem_free)
    return finish_call(shim, &call, word, shim->hooks->mem_free(shim, ptr, kind));
  return finish_call(shim, &call, word, shim->inner->ops->mem_free(shim->inner, ptr, kind));
}

static int shim_mem_find(cgr_device *dev, const void *address, const void **base, size_t *bytes) {
  struct cgr__shim_call call = { .op = CGR__OP_MEM_FIND, .object = address };
  *base = NULL;
  *bytes = 0;
  FORWARD(dev, call, mem_find(in, address, base, bytes));
}

static int shim_stream_create(cgr_device *dev, enum cgr__stream_priority priority, cudaStream_t *stream) {
  struct cgr__shim *shim = shim_of(dev);
  struct cgr__shim_call call = { .op = CGR__OP_STREAM_CREATE, .priority = priority };
  uint64_t word;
  int error;
  *stream = NULL;
  if (is_call_refused(shim, &call, &word, &error))
    return error;
  int inner_error = shim->inner->ops->stream_create(shim->inner, priority, stream);
  call.stream = *stream;
  error = finish_call(shim, &call, word, inner_error);
  if (error != CGR__DEVICE_OK && inner_error == CGR__DEVICE_OK)
    shim->inner->ops->stream_destroy(shim->inner, *stream);
  if (error != CGR__DEVICE_OK)
    *stream = NULL;
  return error;
}

static int shim_stream_destroy(cgr_device *dev, cudaStream_t stream) {
  struct cgr__shim_call call = { .op = CGR__OP_STREAM_DESTROY, .stream = stream };
  FORWARD(dev, call, stream_destroy(in, stream));
}

static int shim_stream_sync(cgr_device *dev, cudaStream_t stream) {
  struct cgr__shim_call call = { .op = CGR__OP_STREAM_SYNC, .stream = stream };
  FORWARD(dev, call, stream_sync(in, stream));
}

static int shim_stream_query(cgr_device *dev, cudaStream_t stream) {
  struct cgr__shim_call call = { .op = CGR__OP_STREAM_QUERY, .stream = stream };
  FORWARD(dev, call, stream_query(in, stream));
}

static int shim_event_create(cgr_device *dev, cgr__event **event) {
  struct cgr__shim *shim = shim_of(dev);
  struct cgr__shim_call call = { .op = CGR__OP_EVENT_CREATE };
  uint64_t word;
  int error;
  *event = NULL;
  if (is_call_refused(shim, &call, &word, &error))
    return error;
  int inner_error = shim->inner->ops->event_create(shim->inner, event);
  call.object = *event;
  error = finish_call(shim, &call, word, inner_error);
  if (error != CGR__DEVICE_OK && inner_error == CGR__DEVICE_OK)
    shim->inner->ops->event_destroy(shim->inner, *event);
  if (error != CGR__DEVICE_OK)
    *event = NULL;
  return error;
}

static int shim_event_destroy(cgr_device *dev, cgr__event *event) {
  struct cgr__shim_call call = { .op = CGR__OP_EVENT_DESTROY, .object = event };
  FORWARD(dev, call, event_destroy(in, event));
}

static int shim_event_record(cgr_device *dev, cgr__event *event, cudaStream_t stream) {
  struct cgr__shim_call call = { .op = CGR__OP_EVENT_RECORD, .stream = stream, .object = event };
  FORWARD(dev, call, event_record(in, event, stream));
}

static int shim_event_wait(cgr_device *dev, cgr__event *event, cudaStream_t stream) {
  struct cgr__shim_call call = { .op = CGR__OP_EVENT_WAIT, .stream = stream, .object = event };
  FORWARD(dev, call, event_wait(in, event, stream));
}

static int shim_event_query(cgr_device *dev, cgr__event *event) {
  struct cgr__shim_call call = { .op = CGR__OP_EVENT_QUERY, .object = event };
  FORWARD(dev, call, event_query(in, event));
}

static int shim_event_sync(cgr_device *dev, cgr__event *event) {
  struct cgr__shim_call call = { .op = CGR__OP_EVENT_SYNC, .object = event };
  FORWARD(dev, call, event_sync(in, event));
}

static int shim_waiter_create(cgr_device *dev, uint64_t *value, cgr__waiter **waiter) {
  struct cgr__shim *shim = shim_of(dev);
  struct cgr__shim_call call = { .op = CGR__OP_WAITER_CREATE };
  uint64_t word;
  int error;
  *waiter = NULL;
  if (is_call_refused(shim, &call, &word, &error))
    return error;
  int inner_error = shim->inner->ops->waiter_create(shim->inner, value, waiter);
  call.object = *waiter;
  error = finish_call(shim, &call, word, inner_error);
  if (error != CGR__DEVICE_OK && inner_error == CGR__DEVICE_OK)
    shim->inner->ops->waiter_destroy(shim->inner, *waiter);
  if (error != CGR__DEVICE_OK)
    *waiter = NULL;
  return error;
}

static int shim_waiter_destroy(cgr_device *dev, cgr__waiter *waiter) {
  struct cgr__shim_call call = { .op = CGR__OP_WAITER_DESTROY, .object = waiter };
  FORWARD(dev, call, waiter_destroy(in, waiter));
}

static int shim_waiter_wait(cgr_device *dev, cgr__waiter *waiter, uint64_t value, uint64_t ns) {
  struct cgr__shim_call call = { .op = CGR__OP_WAITER_WAIT, .object = waiter };
  FORWARD(dev, call, waiter_wait(in, waiter, value, ns));
}

/* -------------------------------------------------------------------------------------------------------------- work */

static int shim_copy(cgr_device *dev, void *dst, const void *src, size_t bytes, cudaStream_t stream) {
  struct cgr__shim_call call = { .op = CGR__OP_COPY, .stream = stream, .object = dst, .input = src, .bytes = bytes };
  FORWARD(dev, call, copy(in, dst, src, bytes, stream));
}

static int shim_fill(cgr_device *dev, void *dst, uint64_t value, size_t width, size_t count, cudaStream_t stream) {
  struct cgr__shim_call call = { .op = CGR__OP_FILL, .stream = stream, .object = dst, .bytes = width * count };
  FORWARD(dev, call, fill(in, dst, value, width, count, stream));
}

static int shim_launch(cgr_device *dev, const cgr__kernel *kernel, const void *args, cudaStream_t stream) {
  struct cgr__shim_call call = { .op = CGR__OP_LAUNCH, .stream = stream, .object = kernel, .args = args };
  FORWARD(dev, call, launch(in, kernel, args, stream));
}

static int shim_host_call(cgr_device *dev, cgr_host_function function, const void *args, size_t args_size, cudaStream_t stream) {
  struct cgr__shim_call call = { .op = CGR__OP_HOST_CALL, .stream = stream, .args = args, .bytes = args_size };
  FORWARD(dev, call, host_call(in, function, args, args_size, stream));
}

static int shim_preload(cgr_device *dev, const cgr__kernel *kernel) {
  struct cgr__shim_call call = { .op = CGR__OP_PRELOAD, .object = kernel };
  FORWARD(dev, call, preload(in, kernel));
}

/* ------------------------------------------------------------------------------------------------ capture and graphs */

static int shim_capture_begin(cgr_device *dev, cudaStream_t stream) {
  struct cgr__shim_call call = { .op = CGR__OP_CAPTURE_BEGIN, .stream = stream };
  struct cgr__shim *shim = shim_of(dev);
  uint64_t word;
  int error;
  if (is_call_refused(shim, &call, &word, &error))
    return error;
  int inner_error = shim->inner->ops->capture_begin(shim->inner, stream);
  error = finish_call(shim, &call, word, inner_error);
  if (error == CGR__DEVICE_OK || inner_error != CGR__DEVICE_OK)
    return error;
  cgr__graph *graph = NULL; /* a caller that was told of a failure will not end it */
  if (shim->inner->ops->capture_end(shim->inner, stream, &graph) == CGR__DEVICE_OK)
    shim->inner->ops->graph_destroy(shim->inner, graph);
  return error;
}

static int shim_capture_end(cgr_device *dev, cudaStream_t stream, cgr__graph **graph) {
  struct cgr__shim *shim = shim_of(dev);
  struct cgr__shim_call call = { .op = CGR__OP_CAPTURE_END, .stream = stream };
  uint64_t word;
  int error;
  *graph = NULL;
  if (is_call_refused(shim, &call, &word, &error))
    return error;
  int inner_error = shim->inner->ops->capture_end(shim->inner, stream, graph);
  call.object = *graph;
  error = finish_call(shim, &call, word, inner_error);
  if (error != CGR__DEVICE_OK && inner_error == CGR__DEVICE_OK)
    shim->inner->ops->graph_destroy(shim->inner, *graph);
  if (error != CGR__DEVICE_OK)
    *graph = NULL;
  return error;
}

static int shim_capture_nodes(cgr_device *dev, cudaStream_t stream, const void **nodes, size_t capacity, size_t *count) {
  struct cgr__shim_call call = { .op = CGR__OP_CAPTURE_NODES, .stream = stream };
  *count = 0;
  FORWARD(dev, call, capture_nodes(in, stream, nodes, capacity, count));
}

static int shim_capture_status(cgr_device *dev, cudaStream_t stream, int *capturing) {
  struct cgr__shim_call call = { .op = CGR__OP_CAPTURE_STATUS, .stream = stream };
  *capturing = 0;
  FORWARD(dev, call, capture_status(in, stream, capturing));
}

static int shim_graph_destroy(cgr_device *dev, cgr__graph *graph) {
  struct cgr__shim_call call = { .op = CGR__OP_GRAPH_DESTROY, .object = graph };
  FORWARD(dev, call, graph_destroy(in, graph));
}

static int shim_graph_walk(cgr_device *dev, cgr__graph *graph, cgr__node_visitor visit, void *context) {
  struct cgr__shim_call call = { .op = CGR__OP_GRAPH_WALK, .object = graph };
  FORWARD(dev, call, graph_walk(in, graph, visit, context));
}

static int shim_instantiate(cgr_device *dev, cgr__graph *graph, cgr__exec **exec, cgr__graph_info *info) {
  struct cgr__shim *shim = shim_of(dev);
  struct cgr__shim_call call = { .op = CGR__OP_INSTANTIATE, .input = graph };
  uint64_t word;
  int error;
  *exec = NULL;
  if (is_call_refused(shim, &call, &word, &error))
    return error;
  int inner_error = shim->inner->ops->instantiate(shim->inner, graph, exec, info);
  call.object = *exec;
  error = finish_call(shim, &call, word, inner_error);
  if (error != CGR__DEVICE_OK && inner_error == CGR__DEVICE_OK)
    shim->inner->ops->exec_destroy(shim->inner, *exec);
  if (error != CGR__DEVICE_OK)
    *exec = NULL;
  return error;
}

static int shim_exec_launch(cgr_device *dev, cgr__exec *exec, cudaStream_t stream) {
  struct cgr__shim_call call = { .op = CGR__OP_EXEC_LAUNCH, .stream = stream, .object = exec };
  FORWARD(dev, call, exec_launch(in, exec, stream));
}

static int shim_exec_destroy(cgr_device *dev, cgr__exec *exec) {
  struct cgr__shim_call call = { .op = CGR__OP_EXEC_DESTROY, .object = exec };
  FORWARD(dev, call, exec_destroy(in, exec));
}

static int shim_info(cgr_device *dev, cgr_device_info *info) {
  struct cgr__shim_call call = { .op = CGR__OP_INFO };
  FORWARD(dev, call, info(in, info));
}

/* `before` cannot refuse it, only look; if the inner device refuses, everything stays open. */
static int shim_close(cgr_device *dev) {
  struct cgr__shim *shim = shim_of(dev);
  struct cgr__shim_call call = { .op = CGR__OP_CLOSE };
  uint64_t word;
  int error;
  (void)is_call_refused(shim, &call, &word, &error);
  int inner_error = shim->inner->ops->close(shim->inner);
  if (cgr__device_did_nothing(inner_error))
    return finish_call(shim, &call, word, inner_error);
  error = shim->hooks->after ? shim->hooks->after(shim, &call, word, inner_error) : inner_error;
  shim->head.magic = 0;
  if (shim->hooks->destroy)
    shim->hooks->destroy(shim);
  pthread_mutex_destroy(&shim->lock);
  free(shim);
  return error;
}

static const char *explain_refusal(cgr_device *dev) {
  cgr_device *inner = shim_of(dev)->inner;
  return inner->explain(inner);
}

static void report_misuse(cgr_device *dev, const char *message) {
  cgr_device *inner = shim_of(dev)->inner;
  inner->report(inner, message);
}

static void count_inside(cgr_device *dev, int change) {
  cgr_device *inner = shim_of(dev)->inner;
  inner->inside(inner, change);
}

static const cgr__device_ops shim_ops = {
#define OPERATION(enumerator, name) .name = shim_##name,
  CGR__SHIM_OPS(OPERATION)
#undef OPERATION
};

int cgr__shim_open(size_t size, cgr_device *inner, const cgr__shim_hooks *hooks, struct cgr__shim **out) {
  *out = NULL;
  struct cgr__shim *shim = calloc(1, size);
  if (!shim)
    return CGR__DEVICE_NO_MEMORY;
  if (pthread_mutex_init(&shim->lock, NULL) != 0) {
    free(shim);
    return CGR__DEVICE_NO_MEMORY;
  }
  shim->head.ops = &shim_ops;
  shim->head.magic = CGR__DEVICE_MAGIC;
  shim->head.kind = inner->kind;
  shim->head.allocations = inner->allocations;
  shim->head.explain = inner->explain ? explain_refusal : NULL;
  shim->head.report = inner->report ? report_misuse : NULL;
  shim->head.inside = inner->inside ? count_inside : NULL;
  shim->inner = inner;
  shim->hooks = hooks;
  *out = shim;
  return CGR__DEVICE_OK;
}

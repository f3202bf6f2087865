#define _POSIX_C_SOURCE 200809L
#include "devices/fork.h"

#include <pthread.h>

/* ------------------------------------------------------------------------------------------------- the table of a child */

static int refuse_in_child(cgr_device *dev) {
  dev->last_raw = CGR__RAW_FORKED;
  return CGR__DEVICE_DEAD;
}

/* An operation that makes no object; `arguments` are those that it does not use. */
#define REFUSED(name, parameters, arguments) \
  static int forked_##name parameters {      \
    (void)(arguments);                       \
    return refuse_in_child(dev);             \
  }
/* One that makes `*made`. */
#define MAKES_NOTHING(name, parameters, arguments, made) \
  static int forked_##name parameters {                  \
    (void)(arguments);                                   \
    *(made) = NULL;                                      \
    return refuse_in_child(dev);                         \
  }
/* One that destroys: what it names is the parent's. */
#define LEFT_ALONE(name, parameters, arguments) \
  static int forked_##name parameters {         \
    (void)(arguments);                          \
    return CGR__DEVICE_OK;                      \
  }

REFUSED(exec_launch, (cgr_device * dev, cgr__exec *exec, cudaStream_t stream), ((void)exec, stream))
MAKES_NOTHING(mem_alloc, (cgr_device * dev, size_t bytes, enum cgr__memory_kind kind, void **ptr), ((void)bytes, kind), ptr)
LEFT_ALONE(mem_free, (cgr_device * dev, void *ptr, enum cgr__memory_kind kind), ((void)dev, (void)ptr, kind))
MAKES_NOTHING(stream_create, (cgr_device * dev, enum cgr__stream_priority priority, cudaStream_t *stream), priority, stream)
LEFT_ALONE(stream_destroy, (cgr_device * dev, cudaStream_t stream), ((void)dev, stream))
REFUSED(stream_sync, (cgr_device * dev, cudaStream_t stream), stream)
REFUSED(stream_query, (cgr_device * dev, cudaStream_t stream), stream)
MAKES_NOTHING(event_create, (cgr_device * dev, cgr__event **event), dev, event)
LEFT_ALONE(event_destroy, (cgr_device * dev, cgr__event *event), ((void)dev, event))
REFUSED(event_record, (cgr_device * dev, cgr__event *event, cudaStream_t stream), ((void)event, stream))
REFUSED(event_wait, (cgr_device * dev, cgr__event *event, cudaStream_t stream), ((void)event, stream))
REFUSED(event_query, (cgr_device * dev, cgr__event *event), event)
REFUSED(event_sync, (cgr_device * dev, cgr__event *event), event)
MAKES_NOTHING(waiter_create, (cgr_device * dev, uint64_t *word, cgr__waiter **waiter), word, waiter)
LEFT_ALONE(waiter_destroy, (cgr_device * dev, cgr__waiter *waiter), ((void)dev, waiter))
REFUSED(waiter_wait, (cgr_device * dev, cgr__waiter *waiter, uint64_t value, uint64_t ns), ((void)waiter, (void)value, ns))
REFUSED(copy, (cgr_device * dev, void *dst, const void *src, size_t bytes, cudaStream_t stream),
        ((void)dst, (void)src, (void)bytes, stream))
REFUSED(fill, (cgr_device * dev, void *dst, uint64_t value, size_t width, size_t count, cudaStream_t stream),
        ((void)dst, (void)value, (void)width, (void)count, stream))
REFUSED(launch, (cgr_device * dev, const cgr__kernel *kernel, const void *args, cudaStream_t stream),
        ((void)kernel, (void)args, stream))
REFUSED(host_call, (cgr_device * dev, cgr_host_function function, const void *args, size_t args_size, cudaStream_t stream),
        ((void)function, (void)args, (void)args_size, stream))
REFUSED(preload, (cgr_device * dev, const cgr__kernel *kernel), kernel)
REFUSED(capture_begin, (cgr_device * dev, cudaStream_t stream), stream)
MAKES_NOTHING(capture_end, (cgr_device * dev, cudaStream_t stream, cgr__graph **graph), stream, graph)
LEFT_ALONE(graph_destroy, (cgr_device * dev, cgr__graph *graph), ((void)dev, graph))
REFUSED(graph_walk, (cgr_device * dev, cgr__graph *graph, cgr__node_visitor visit, void *context),
        ((void)graph, (void)visit, context))
MAKES_NOTHING(instantiate, (cgr_device * dev, cgr__graph *graph, cgr__exec **exec, cgr__graph_info *info), ((void)graph, info),
              exec)
LEFT_ALONE(exec_destroy, (cgr_device * dev, cgr__exec *exec), ((void)dev, exec))
REFUSED(info, (cgr_device * dev, cgr_device_info *info), info)

static int forked_capture_status(cgr_device *dev, cudaStream_t stream, int *capturing) {
  (void)stream;
  *capturing = 0;
  return refuse_in_child(dev);
}

static int forked_capture_nodes(cgr_device *dev, cudaStream_t stream, const void **nodes, size_t capacity, size_t *count) {
  (void)stream, (void)nodes, (void)capacity;
  *count = 0;
  return refuse_in_child(dev);
}

static int forked_mem_find(cgr_device *dev, const void *address, const void **base, size_t *bytes) {
  (void)address;
  *base = NULL;
  *bytes = 0;
  return refuse_in_child(dev);
}

/* What it owns cannot be taken apart without its threads, and is left to the end of the process. */
static int forked_close(cgr_device *dev) {
  dev->magic = 0;
  return CGR__DEVICE_OK;
}

static const cgr__device_ops forked_ops = {
  .capture_status = forked_capture_status,
  .exec_launch = forked_exec_launch,
  .mem_alloc = forked_mem_alloc,
  .mem_free = forked_mem_free,
  .mem_find = forked_mem_find,
  .stream_create = forked_stream_create,
  .stream_destroy = forked_stream_destroy,
  .stream_sync = forked_stream_sync,
  .stream_query = forked_stream_query,
  .event_create = forked_event_create,
  .event_destroy = forked_event_destroy,
  .event_record = forked_event_record,
  .event_wait = forked_event_wait,
  .event_query = forked_event_query,
  .event_sync = forked_event_sync,
  .waiter_create = forked_waiter_create,
  .waiter_destroy = forked_waiter_destroy,
  .waiter_wait = forked_waiter_wait,
  .copy = forked_copy,
  .fill = forked_fill,
  .launch = forked_launch,
  .host_call = forked_host_call,
  .preload = forked_preload,
  .capture_begin = forked_capture_begin,
  .capture_end = forked_capture_end,
  .capture_nodes = forked_capture_nodes,
  .graph_destroy = forked_graph_destroy,
  .graph_walk = forked_graph_walk,
  .instantiate = forked_instantiate,
  .exec_destroy = forked_exec_destroy,
  .info = forked_info,
  .close = forked_close,
};

/* ------------------------------------------------------------------------------------------------------- open devices */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static cgr_device *open_devices;

static void before_fork(void) { pthread_mutex_lock(&lock); }

static void in_parent(void) { pthread_mutex_unlock(&lock); }

/* Only stores: other threads' work at the fork is cut off half-way, so nothing else can be relied on. */
static void in_child(void) {
  for (cgr_device *dev = open_devices; dev; dev = dev->next_open)
    dev->ops = &forked_ops;
  open_devices = NULL;
  pthread_mutex_unlock(&lock);
}

static int registered; /* what pthread_atfork answered */

static void register_once(void) { registered = pthread_atfork(before_fork, in_parent, in_child); }

bool cgr__fork_watch(cgr_device *dev) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, register_once);
  if (registered != 0)
    return false;
  pthread_mutex_lock(&lock);
  dev->next_open = open_devices;
  open_devices = dev;
  pthread_mutex_unlock(&lock);
  return true;
}

void cgr__fork_unwatch(cgr_device *dev) {
  pthread_mutex_lock(&lock);
  for (cgr_device **link = &open_devices; *link; link = &(*link)->next_open)
    if (*link == dev) {
      *link = dev->next_open;
      break;
    }
  pthread_mutex_unlock(&lock);
}

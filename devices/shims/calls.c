#include "devices/shims/calls.h"

const char *cgr__call_name(enum cgr__shim_op op, enum cgr__memory_kind kind) {
  static const char *const names[CGR__OP_COUNT] = {
    [CGR__OP_MEM_ALLOC] = "cgr_memory_alloc",
    [CGR__OP_MEM_FREE] = "cgr_memory_free",
    [CGR__OP_MEM_FIND] = "memory look-up",
    [CGR__OP_STREAM_CREATE] = "cgr_stream_create",
    [CGR__OP_STREAM_DESTROY] = "cgr_stream_destroy",
    [CGR__OP_STREAM_SYNC] = "cgr_stream_synchronize",
    [CGR__OP_STREAM_QUERY] = "stream query",
    [CGR__OP_EVENT_CREATE] = "cgr_event_create",
    [CGR__OP_EVENT_DESTROY] = "cgr_event_destroy",
    [CGR__OP_EVENT_RECORD] = "cgr_event_record",
    [CGR__OP_EVENT_WAIT] = "cgr_event_wait",
    [CGR__OP_EVENT_QUERY] = "event query",
    [CGR__OP_EVENT_SYNC] = "host wait for an event",
    [CGR__OP_WAITER_CREATE] = "creation of a waiter",
    [CGR__OP_WAITER_DESTROY] = "destruction of a waiter",
    [CGR__OP_WAITER_WAIT] = "host wait for a waiter",
    [CGR__OP_COPY] = "cgr_copy",
    [CGR__OP_FILL] = "cgr_fill",
    [CGR__OP_LAUNCH] = "kernel launch",
    [CGR__OP_HOST_CALL] = "cgr_launch_host",
    [CGR__OP_PRELOAD] = "load of a kernel",
    [CGR__OP_CAPTURE_BEGIN] = "begin of a capture",
    [CGR__OP_CAPTURE_END] = "end of a capture",
    [CGR__OP_CAPTURE_NODES] = "count of captured nodes",
    [CGR__OP_CAPTURE_STATUS] = "capture query",
    [CGR__OP_GRAPH_DESTROY] = "destruction of a graph",
    [CGR__OP_GRAPH_WALK] = "walk over a graph",
    [CGR__OP_INSTANTIATE] = "graph instantiation",
    [CGR__OP_EXEC_LAUNCH] = "graph launch",
    [CGR__OP_EXEC_DESTROY] = "destruction of an executable graph",
    [CGR__OP_INFO] = "cgr_device_get_info",
    [CGR__OP_CLOSE] = "cgr_device_close",
  };
  if (op == CGR__OP_MEM_ALLOC && kind == CGR__MEMORY_PINNED)
    return "cgr_memory_alloc_pinned";
  if (op == CGR__OP_MEM_FREE && kind == CGR__MEMORY_PINNED)
    return "cgr_memory_free_pinned";
  return names[op];
}

/* A shim: a device that passes each call on to an inner device, with a hook before and a hook after. What the hooks do defines
 * the shim: trace, fault, validation. Shims stack, and closing one closes what is inside it. Handles are those of the inner
 * device. For tests and debugging; a release calls its device directly.
 *
 * Hooks may be called by several threads at once. Only headers of the library are used, because the validation layer is linked
 * next to a shared library that exports only its public functions. */
#ifndef CGR_DEVICES_SHIMS_SHIM_H
#define CGR_DEVICES_SHIMS_SHIM_H

#include <pthread.h>

#include "devices/device.h"

#ifdef __cplusplus
extern "C" {
#endif

/* X(enumerator, name in cgr__device_ops): one per operation of the table. */
#define CGR__SHIM_OPS(X)                    \
  X(CGR__OP_MEM_ALLOC, mem_alloc)           \
  X(CGR__OP_MEM_FREE, mem_free)             \
  X(CGR__OP_MEM_FIND, mem_find)             \
  X(CGR__OP_STREAM_CREATE, stream_create)   \
  X(CGR__OP_STREAM_DESTROY, stream_destroy) \
  X(CGR__OP_STREAM_SYNC, stream_sync)       \
  X(CGR__OP_STREAM_QUERY, stream_query)     \
  X(CGR__OP_EVENT_CREATE, event_create)     \
  X(CGR__OP_EVENT_DESTROY, event_destroy)   \
  X(CGR__OP_EVENT_RECORD, event_record)     \
  X(CGR__OP_EVENT_WAIT, event_wait)         \
  X(CGR__OP_EVENT_QUERY, event_query)       \
  X(CGR__OP_EVENT_SYNC, event_sync)         \
  X(CGR__OP_WAITER_CREATE, waiter_create)   \
  X(CGR__OP_WAITER_DESTROY, waiter_destroy) \
  X(CGR__OP_WAITER_WAIT, waiter_wait)       \
  X(CGR__OP_COPY, copy)                     \
  X(CGR__OP_FILL, fill)                     \
  X(CGR__OP_LAUNCH, launch)                 \
  X(CGR__OP_HOST_CALL, host_call)           \
  X(CGR__OP_PRELOAD, preload)               \
  X(CGR__OP_CAPTURE_BEGIN, capture_begin)   \
  X(CGR__OP_CAPTURE_END, capture_end)       \
  X(CGR__OP_CAPTURE_NODES, capture_nodes)   \
  X(CGR__OP_CAPTURE_STATUS, capture_status) \
  X(CGR__OP_GRAPH_DESTROY, graph_destroy)   \
  X(CGR__OP_GRAPH_WALK, graph_walk)         \
  X(CGR__OP_INSTANTIATE, instantiate)       \
  X(CGR__OP_EXEC_LAUNCH, exec_launch)       \
  X(CGR__OP_EXEC_DESTROY, exec_destroy)     \
  X(CGR__OP_INFO, info)                     \
  X(CGR__OP_CLOSE, close)

enum cgr__shim_op {
#define CGR__SHIM_ENUM(enumerator, name) enumerator,
  CGR__SHIM_OPS(CGR__SHIM_ENUM)
#undef CGR__SHIM_ENUM
      CGR__OP_COUNT
};

/* "copy", "event_wait", ...; static storage. */
const char *cgr__shim_op_name(int op);

/* One call, as the hooks see it. */
struct cgr__shim_call {
  enum cgr__shim_op op;
  cudaStream_t stream;                /* NULL where the operation has none; made or destroyed streams too */
  const void *object;                 /* memory, event, waiter, graph, exec or kernel; of a creation: what was made, seen after */
  const void *input;                  /* instantiate: the graph; copy: the source */
  const void *args;                   /* launch, host_call: valid for the duration of the call */
  size_t bytes;                       /* mem_alloc, copy, host_call; fill: elements x width */
  enum cgr__memory_kind kind;         /* mem_alloc, mem_free */
  enum cgr__stream_priority priority; /* stream_create */
};

struct cgr__shim;

typedef struct cgr__shim_hooks {
  /* Returns 0 to pass the call on, or the error to answer with instead. `*word`, 0 at first, is what `after` gets. NULL: always
   * passes on. */
  int (*before)(struct cgr__shim *shim, const struct cgr__shim_call *call, uint64_t *word);
  /* Returns what to answer; `error` is what the inner device said. A creation that is turned into a failure is undone. */
  int (*after)(struct cgr__shim *shim, const struct cgr__shim_call *call, uint64_t word, int error);
  /* Frees memory in the inner device's place. NULL: that one does. */
  int (*mem_free)(struct cgr__shim *shim, void *memory, enum cgr__memory_kind kind);
  /* Frees what the shim has besides itself, after the inner device has been closed. NULL: nothing. */
  void (*destroy)(struct cgr__shim *shim);
} cgr__shim_hooks;

/* The head of every shim. */
struct cgr__shim {
  struct cgr_device head;
  cgr_device *inner;
  const cgr__shim_hooks *hooks;
  pthread_mutex_t lock; /* for the hooks' own use */
};

/* Makes a shim of `size` bytes, cleared, whose struct begins with a struct cgr__shim. NO_MEMORY leaves `*shim` NULL. */
int cgr__shim_open(size_t size, cgr_device *inner, const cgr__shim_hooks *hooks, struct cgr__shim **shim);

#ifdef __cplusplus
}
#endif
#endif

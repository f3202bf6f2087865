/* What a device is: a table of operations over memory, streams, events, copies, kernels, capture and graphs.
 *
 * Two devices implement the table: `cuda/` (the CUDA driver) and `host/` (streams are queues, capture records, replay
 * executes). Shims (`shims/`) wrap a device with a table of their own and pass each call on. Nothing here knows of batches,
 * pages or attention: a kernel is a name, the size of its arguments and one launcher per device.
 *
 * Every operation returns 0 or one of enum cgr__device_error. The raw code of the device's own API (a CUresult) of the last
 * failing call on this device is kept in `last_raw` for messages. No operation prints, aborts or throws. */
#ifndef CGR_DEVICES_DEVICE_H
#define CGR_DEVICES_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cgr/device.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The error of a failed call tells what the call has done; code that counts live objects may rely on it. */
enum cgr__device_error {
  CGR__DEVICE_OK = 0,
  CGR__DEVICE_NOT_READY, /* query: work is still pending; not a failure */

  /* Nothing was done: no work was enqueued, nothing was made or destroyed. A capture whose rules the call broke may have become
   * invalid all the same, and capture_end ends its capture (see there). */
  CGR__DEVICE_INVALID,         /* a bad handle, size or pointer */
  CGR__DEVICE_UNSUPPORTED,     /* the device cannot do this (no such kernel, no driver) */
  CGR__DEVICE_CAPTURE_ILLEGAL, /* the call is not allowed while this stream or thread captures (CUDA 900, 906, 907) */
  CGR__DEVICE_CAPTURE_INVALID, /* the capture was invalidated, or its streams were not joined (CUDA 901 .. 905, 908) */

  /* The call may have taken effect, in part or in full. The object to be made does not exist; one to be destroyed is gone. */
  CGR__DEVICE_NO_MEMORY, /* an allocation or an instantiation found no memory */
  CGR__DEVICE_FAILED,    /* any other failure of one call; the device is usable */
  CGR__DEVICE_DEAD       /* sticky: every later call fails (illegal address, launch failure, ...) */
};

static inline bool cgr__device_did_nothing(int error) {
  return error >= CGR__DEVICE_INVALID && error <= CGR__DEVICE_CAPTURE_INVALID;
}

/* Name of an error for messages, static storage. */
const char *cgr__device_error_name(int error);

enum cgr__memory_kind {
  CGR__MEMORY_DEVICE = 0, /* device memory; on the host device ordinary memory */
  CGR__MEMORY_PINNED = 1  /* page-locked and mapped: host and device use the same address */
};

enum cgr__stream_priority { CGR__STREAM_NORMAL = 0, CGR__STREAM_URGENT = 1, CGR__STREAM_BETWEEN = 2 };

typedef struct cgr__waiter cgr__waiter; /* lets a thread of the host sleep until enqueued work has raised a word */

typedef cgr_event cgr__event;         /* no timing */
typedef struct cgr__graph cgr__graph; /* what a capture gives; immutable */
typedef struct cgr__exec cgr__exec;   /* an instantiated graph */

/* A kernel of the library, or a host function of an engine. `args` is a plain struct of at most CGR__MAX_CALL_ARGS bytes, copied
 * by value when the operation is enqueued or captured. `host` runs it at once on the calling thread; `cuda` enqueues it and
 * returns a CUresult (or a cudaError_t: where both exist the numbers agree). A launcher is NULL where the device does not have
 * the kernel. Launch dimensions are decided inside `cuda` from args alone. */
typedef struct cgr__kernel {
  const char *name;
  size_t args_size; /* bytes of the args struct */
  void (*host)(const void *args);
  int (*cuda)(const void *args, cudaStream_t stream);
  int (*preload)(void); /* CUDA: loads the module so that capture never does; NULL: nothing to load. Returns as `cuda` does */
  int32_t number;       /* of its bit in cgr_device.loaded: 1 .. 31, no two alike; 0: none, and it cannot be loaded late */
} cgr__kernel;

typedef struct cgr__graph_info {
  int64_t num_nodes;
  int64_t width;        /* of the graph: shape.h */
  int64_t device_bytes; /* by how much the device's free memory shrank while it was instantiated: what the graph takes, and what
                           others took or, negative, gave back meanwhile. 0 where it cannot be told */
  uint32_t tools_id;    /* of the executable graph, the high half of its nodes' ids; 0 where it cannot be told */
  int64_t all_nodes;    /* with those of child graphs */
} cgr__graph_info;

/* A parameter of a node of a captured graph, as a walk shows it. */
typedef struct cgr__node_param {
  int64_t node;     /* counts from 0, in an order that is the same for equal captures; a child graph's nodes after it */
  const char *name; /* of the node: a kernel's, "copy", "fill", "host function 0x55d0", ...; until the next node */
  int32_t index;    /* of the parameter. A node without any is shown once, with 0 bytes. -1: how a kernel is launched, on CUDA
                       u32 grid [3], block [3], bytes of dynamic shared memory, 0 */
  bool hidden;      /* the node has parameters that cannot be seen; shown once, with 0 bytes */
  const void *data; /* its value, aligned to 8 bytes or to its own size if that is less; until the next one */
  size_t bytes;
  const void *handle; /* of the node, as capture_nodes gives it; it gives none for nodes of child graphs */
  uint32_t tools_id;  /* the low half of the node's id for tools, the same in every executable graph made of this one; 0 where it
                         cannot be told, and in child graphs */
} cgr__node_param;

#define CGR__HOST_FUNCTION_NAME "host function %#llx" /* its address, for tools that know symbols */

/* Returns 0, or an error, which ends the walk and is what the walk returns. */
typedef int (*cgr__node_visitor)(void *context, const cgr__node_param *param);

typedef struct cgr__device_ops {
  /* The two calls of every replay, side by side: whether a stream captures, and the launch of an executable graph. */
  int (*capture_status)(cgr_device *dev, cudaStream_t stream, int *capturing);
  int (*exec_launch)(cgr_device *dev, cgr__exec *exec, cudaStream_t stream);

  /* Memory. Illegal for a thread that captures. Alignment is at least 256 bytes. Content is undefined. Freeing what this
   * device did not give out, has already got back, or gave out as the other kind is INVALID. */
  int (*mem_alloc)(cgr_device *dev, size_t bytes, enum cgr__memory_kind kind, void **ptr);
  int (*mem_free)(cgr_device *dev, void *ptr, enum cgr__memory_kind kind);
  /* The allocation that an address is in: one of the device's, or on CUDA any that the driver knows. `*base` NULL: none. */
  int (*mem_find)(cgr_device *dev, const void *address, const void **base, size_t *bytes);

  /* Streams are non-blocking; the host device's handles are its own, passed as a cudaStream_t. Waiting
   * kernels of an urgent stream start before those of other streams; inside a graph the priority of the stream that launches it
   * applies to all nodes. */
  int (*stream_create)(cgr_device *dev, enum cgr__stream_priority priority, cudaStream_t *stream);
  int (*stream_destroy)(cgr_device *dev, cudaStream_t stream); /* finishes its work first; illegal while it captures */
  int (*stream_sync)(cgr_device *dev, cudaStream_t stream);
  int (*stream_query)(cgr_device *dev, cudaStream_t stream); /* NOT_READY while work is pending. For the host device it is also
                                                                the moment at which `latest` execution makes progress: each
                                                                query executes one pending operation. */

  int (*event_create)(cgr_device *dev, cgr__event **event);
  int (*event_destroy)(cgr_device *dev, cgr__event *event); /* legal at any time: waits for it keep what they wait for */
  int (*event_record)(cgr_device *dev, cgr__event *event, cudaStream_t stream);
  int (*event_wait)(cgr_device *dev, cgr__event *event, cudaStream_t stream); /* stream waits for the event */
  int (*event_query)(cgr_device *dev, cgr__event *event);
  int (*event_sync)(cgr_device *dev, cgr__event *event);

  /* `word` is pinned memory that enqueued work only ever raises. wait: OK when it has reached `value`, at the latest NOT_READY
   * after `ns`; the thread sleeps meanwhile. A host device without threads, where work runs only when someone asks for it,
   * answers NOT_READY at once. One thread at a time waits, for work that has been enqueued. destroy: when no work that raises the
   * word is left. It sets the word to INT64_MAX, so that nothing on the device waits for it any longer: a GPU looks at the sign
   * of the difference, for which UINT64_MAX is less than the number of any step. */
  int (*waiter_create)(cgr_device *dev, uint64_t *word, cgr__waiter **waiter);
  int (*waiter_destroy)(cgr_device *dev, cgr__waiter *waiter);
  int (*waiter_wait)(cgr_device *dev, cgr__waiter *waiter, uint64_t value, uint64_t ns);

  /* Enqueue. Source and destination are read and written when the operation executes, not when it is enqueued. `fill` writes
   * `count` elements of `width` bytes (1, 2, 4 or 8) with the low bits of `value`; `dst` is aligned to the width. The host device
   * answers INVALID when one of these begins inside an allocation of its own and ends after it. */
  int (*copy)(cgr_device *dev, void *dst, const void *src, size_t bytes, cudaStream_t stream);
  int (*fill)(cgr_device *dev, void *dst, uint64_t value, size_t width, size_t count, cudaStream_t stream);
  int (*launch)(cgr_device *dev, const cgr__kernel *kernel, const void *args, cudaStream_t stream);
  int (*host_call)(cgr_device *dev, cgr_host_function function, const void *args, size_t args_size, cudaStream_t stream);
  int (*preload)(cgr_device *dev, const cgr__kernel *kernel);

  /* Capture, thread-local mode. A failed or invalidated capture is ended by capture_end, which then returns the error, gives
   * a NULL graph and leaves the stream usable. It ends nothing only if the stream does not capture, or joined a
   * capture that began on another one. */
  int (*capture_begin)(cgr_device *dev, cudaStream_t stream);
  int (*capture_end)(cgr_device *dev, cudaStream_t stream, cgr__graph **graph);
  /* How many nodes the stream's capture has by now, and the handles of the first `capacity` of them, in any order. A stream that
   * does not capture, or whose capture is invalid: CAPTURE_INVALID, and nothing changes. */
  int (*capture_nodes)(cgr_device *dev, cudaStream_t stream, const void **nodes, size_t capacity, size_t *count);

  int (*graph_destroy)(cgr_device *dev, cgr__graph *graph);
  /* Shows every node of a captured graph: a kernel's parameters by position; a copy's destination, source and bytes; a fill's
   * destination, value and bytes; the arguments of a host function that came through host_call. Those of others are hidden. */
  int (*graph_walk)(cgr_device *dev, cgr__graph *graph, cgr__node_visitor visit, void *context);
  int (*instantiate)(cgr_device *dev, cgr__graph *graph, cgr__exec **exec, cgr__graph_info *info); /* uploads too */
  int (*exec_destroy)(cgr_device *dev, cgr__exec *exec); /* legal at any time: the device keeps what still runs, or waits */

  int (*info)(cgr_device *dev, cgr_device_info *info);
  int (*close)(cgr_device *dev); /* frees the device itself, unless it answers that nothing was done */
} cgr__device_ops;

/* Shows parameters that are words: param->index counts them. */
static inline int cgr__show_words(cgr__node_param *param, const uint64_t *words, int32_t count, cgr__node_visitor visit,
                                  void *context) {
  int error = CGR__DEVICE_OK;
  for (int32_t i = 0; i < count && !error; i++) {
    param->index = i;
    param->data = &words[i];
    param->bytes = sizeof words[i];
    error = visit(context, param);
  }
  return error;
}

/* What every device asks of a fill of at least one element. */
static inline bool cgr__fill_is_valid(const void *dst, size_t width, size_t count) {
  bool known = width == 1 || width == 2 || width == 4 || width == 8;
  return dst && known && (uintptr_t)dst % width == 0 && count <= SIZE_MAX / width;
}

/* What was made through the public functions and is still alive. Atomic. */
struct cgr__device_live {
  int32_t runtimes, streams, events, allocations;
};

/* Streams of cgr_stream_create that have not been destroyed. */
struct cgr__device_streams {
  cudaStream_t *made; /* [count]; NULL while there is none */
  int32_t count;
};

/* The head of every device; `ops` is first so that a call is dev->ops->name(dev, ...). */
struct cgr_device {
  const cgr__device_ops *ops;
  uint32_t magic; /* CGR__DEVICE_MAGIC while open */
  int32_t kind;   /* enum cgr_device_kind */
  int last_raw;   /* CUresult (or 0) of the last failing call */
  int dead;       /* of a CUDA device: the first sticky CUresult, or 0; atomic. Here because a replay reads only it and `ops` */
  struct cgr__device_live live;
  struct cgr__device_streams streams; /* under a lock of devices/api.c */
  /* Of a layer: why this thread's last call was refused, or NULL when it was not the layer that refused it. NULL: no layer. */
  const char *(*explain)(cgr_device *dev);
  uint32_t loaded; /* kernels that need not be loaded again: a bit for each number. Atomic */
  /* Of a layer that checks, for code above the devices; both NULL: there is none, and runtimes do not check either. */
  void (*report)(cgr_device *dev,
                 const char *message);         /* of a violation that a runtime has found, as the layer reports its own */
  void (*inside)(cgr_device *dev, int change); /* this thread enters (1) or leaves (-1) functions of the engine's in a step */
  cgr_device *next_open;                       /* devices/fork.h */
  struct cgr__allocations *allocations;        /* what it has given out; of a layer that of the device below it */
};

/* What a replay reads of it. */
static inline void cgr__device_prefetch(const cgr_device *dev) { __builtin_prefetch(dev); }

/* Includes the version: a layer of another version of the library finds, and makes, devices that do not count as open. */
#define CGR__DEVICE_MAGIC (0x63670000u | CGR_VERSION)

/* A runtime counts as something that the device must outlive. */
static inline void cgr__device_retain_runtime(cgr_device *dev) { __atomic_add_fetch(&dev->live.runtimes, 1, __ATOMIC_RELAXED); }
static inline void cgr__device_release_runtime(cgr_device *dev) { __atomic_sub_fetch(&dev->live.runtimes, 1, __ATOMIC_RELEASE); }

/* Between the two calls, cgr_stream_destroy, cgr_device_open and cgr_device_close are refused on this thread, for any device: a
 * step that is being enqueued may need the stream. Pairs may be nested. */
void cgr__device_step_enter(void);
void cgr__device_step_leave(void);

/* A layer makes a device over another one. Closing it closes the inner one; when opening fails, `inner` is untouched. `config` is
 * the one that the device is opened with, complete. */
struct cgr_device_layer {
  int (*open)(cgr_device *inner, const cgr_device_config *config, cgr_device **dev);
};

/* Opens a device of one kind with a complete config that cgr_device_open has checked; its layer is ignored. `ordinal`
 * counts within the kind. UNSUPPORTED when this build or this machine has none.
 *
 * How the host device executes (config->host_schedule, enum cgr_host_schedule):
 *   ASYNC    one worker thread per stream executes as it goes (the default);
 *   EARLIEST each operation at the earliest legal moment: in the call that enqueues it when its dependencies are met;
 *   LATEST   nothing until someone waits: stream_sync, event_sync, a query, stream_destroy, exec_destroy, close;
 *   RANDOM   a generator seeded with host_seed decides, at every call on the device, how many of the ready operations run. */
int cgr__host_device_open(const cgr_device_config *config, cgr_device **dev);
int cgr__cuda_device_open(int ordinal, const cgr_device_config *config, cgr_device **dev);

enum cgr__cuda_state {
  CGR__CUDA_READY = 0,
  CGR__CUDA_NOT_BUILT,  /* a build without CUDA */
  CGR__CUDA_NO_DRIVER,  /* no libcuda on this machine */
  CGR__CUDA_OLD_DRIVER, /* older than this build works with */
  CGR__CUDA_BROKEN,     /* the driver does not start */
  CGR__CUDA_NO_GPU      /* none there, or none visible */
};

/* Whether there are GPUs and, if not, why. The driver is looked for once. */
struct cgr__gpus {
  enum cgr__cuda_state state;
  int num_devices;      /* 0 unless READY */
  int driver_version;   /* 12040 for 12.4; 0 unless there is a driver */
  int required_version; /* of the driver, at least */
  int raw;              /* what the driver, or the search for it, answered */
};
struct cgr__gpus cgr__cuda_probe(void);

static inline int cgr__cuda_device_count(void) { return cgr__cuda_probe().num_devices; }

#ifdef __cplusplus
}
#endif
#endif

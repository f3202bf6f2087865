/* What a device is: a table of operations over memory, streams, events, copies, kernels, capture and graphs.
 *
 * Two devices implement the table: `cuda/` (the CUDA runtime) and `host/` (streams are queues, capture records, replay
 * executes). Shims (`shims/`) wrap a device with a table of their own and hand on each call. Nothing here knows of batches,
 * pages or attention: a kernel is a name, the size of its arguments and one launcher per device.
 *
 * Every operation returns 0 or one of enum cgr__device_error. A raw code of the device's API (a cudaError_t) of the last
 * failing call on this device is kept in `last_raw` for messages. No operation prints, aborts or throws. */
#ifndef CGR_DEVICES_DEVICE_H
#define CGR_DEVICES_DEVICE_H

#include <stddef.h>
#include <stdint.h>

#include "cgr/cgr.h"

#ifdef __cplusplus
extern "C" {
#endif

enum cgr__device_error {
  CGR__DEVICE_OK = 0,
  CGR__DEVICE_NOT_READY,       /* query: work is still pending; not a failure */
  CGR__DEVICE_NO_MEMORY,       /* an allocation or an instantiation found no memory */
  CGR__DEVICE_INVALID,         /* a bad handle, size or pointer */
  CGR__DEVICE_UNSUPPORTED,     /* the device cannot do this (no such kernel, no driver) */
  CGR__DEVICE_CAPTURE_ILLEGAL, /* the call is not allowed while this stream or thread captures (CUDA 900, 906, 907) */
  CGR__DEVICE_CAPTURE_INVALID, /* the capture was invalidated, or its streams were not joined (CUDA 901 .. 905, 908) */
  CGR__DEVICE_FAILED,          /* any other failure of one call; the device lives */
  CGR__DEVICE_DEAD             /* sticky: every later call fails (illegal address, launch failure, ...) */
};

enum cgr__memory_kind {
  CGR__MEMORY_DEVICE = 0, /* device memory; on the host device ordinary memory */
  CGR__MEMORY_PINNED = 1  /* page-locked and mapped: host and device use the same address */
};

typedef struct cgr__event cgr__event; /* no timing */
typedef struct cgr__graph cgr__graph; /* what a capture gives; immutable */
typedef struct cgr__exec cgr__exec;   /* an instantiated graph */

/* A kernel of the library, or a host function of an engine. `args` is a plain struct, copied by value when the operation
 * is enqueued or captured. `host` runs it at once on the calling thread; `cuda` enqueues it and returns a cudaError_t. A
 * launcher is NULL where the device does not have the kernel. Launch dimensions are decided inside `cuda` from args alone. */
typedef struct cgr__kernel {
  const char *name;
  size_t args_size; /* bytes of the args struct */
  void (*host)(const void *args);
  int (*cuda)(const void *args, cudaStream_t stream);
  int (*preload)(void); /* CUDA: loads the module so that capture never does; NULL when nothing to load. cudaError_t */
} cgr__kernel;

typedef struct cgr__graph_info {
  int64_t num_nodes;
  int64_t device_bytes; /* device memory taken by instantiation, 0 where it cannot be told */
} cgr__graph_info;

struct cgr_device; /* public: typedef struct cgr_device cgr_device; */

typedef struct cgr__device_ops {
  /* Memory. Illegal in capture. Alignment is at least 256 bytes. Content is undefined. */
  int (*mem_alloc)(cgr_device *dev, size_t bytes, enum cgr__memory_kind kind, void **ptr);
  int (*mem_free)(cgr_device *dev, void *ptr, enum cgr__memory_kind kind);

  /* Streams: non-blocking ones; the handle of the host device is its own, passed as a cudaStream_t. */
  int (*stream_create)(cgr_device *dev, cudaStream_t *stream);
  int (*stream_destroy)(cgr_device *dev, cudaStream_t stream); /* finishes its work first; illegal while it captures */
  int (*stream_sync)(cgr_device *dev, cudaStream_t stream);
  int (*stream_query)(cgr_device *dev, cudaStream_t stream); /* NOT_READY while work is pending. For the host device it is also
                                                                the moment at which `latest` execution makes progress: each
                                                                query executes one pending operation. */

  int (*event_create)(cgr_device *dev, cgr__event **event);
  int (*event_destroy)(cgr_device *dev, cgr__event *event);
  int (*event_record)(cgr_device *dev, cgr__event *event, cudaStream_t stream);
  int (*event_wait)(cgr_device *dev, cgr__event *event, cudaStream_t stream); /* stream waits for the event */
  int (*event_query)(cgr_device *dev, cgr__event *event);
  int (*event_sync)(cgr_device *dev, cgr__event *event);

  /* Enqueue. Source and destination are read and written when the operation executes, not when it is enqueued. */
  int (*copy)(cgr_device *dev, void *dst, const void *src, size_t bytes, cudaStream_t stream);
  int (*fill)(cgr_device *dev, void *dst, int byte, size_t bytes, cudaStream_t stream);
  int (*launch)(cgr_device *dev, const cgr__kernel *kernel, const void *args, cudaStream_t stream);
  int (*host_call)(cgr_device *dev, cgr_host_function function, const void *args, size_t args_size, cudaStream_t stream);
  int (*preload)(cgr_device *dev, const cgr__kernel *kernel);

  /* Capture, thread-local mode. A failed or invalidated capture is ended by capture_end, which then returns the error, gives
   * a NULL graph and leaves the stream usable. */
  int (*capture_begin)(cgr_device *dev, cudaStream_t stream);
  int (*capture_end)(cgr_device *dev, cudaStream_t stream, cgr__graph **graph);
  int (*capture_status)(cgr_device *dev, cudaStream_t stream, int *capturing);

  int (*graph_destroy)(cgr_device *dev, cgr__graph *graph);
  int (*instantiate)(cgr_device *dev, cgr__graph *graph, cgr__exec **exec, cgr__graph_info *info); /* uploads too */
  int (*exec_launch)(cgr_device *dev, cgr__exec *exec, cudaStream_t stream);
  int (*exec_destroy)(cgr_device *dev, cgr__exec *exec);

  int (*info)(cgr_device *dev, cgr_device_info *info);
  int (*close)(cgr_device *dev); /* frees the device itself */
} cgr__device_ops;

/* The head of every device; `ops` is first so that a call is dev->ops->name(dev, ...). */
struct cgr_device {
  const cgr__device_ops *ops;
  uint32_t magic; /* CGR__DEVICE_MAGIC while open */
  int32_t kind;   /* enum cgr_device_kind */
  int last_raw;   /* cudaError_t (or 0) of the last failing call */
};

#define CGR__DEVICE_MAGIC 0x63677244u

/* Opens a device of one kind. `ordinal` counts within the kind. UNSUPPORTED when this build or this machine has none. */
int cgr__host_device_open(const cgr_device_config *config, cgr_device **dev);
int cgr__cuda_device_open(int ordinal, cgr_device **dev);
int cgr__cuda_device_count(void); /* 0 without a driver, a GPU or a CUDA build */

/* How the host device executes (cgr_device_config.host_schedule, enum cgr_host_schedule):
 *   ASYNC    one worker thread per stream executes as it goes (the default);
 *   EARLIEST each operation at the earliest legal moment: in the call that enqueues it when its dependencies are met;
 *   LATEST   nothing until someone waits: stream_sync, event_sync, a query, stream_destroy, close;
 *   RANDOM   a generator seeded with host_seed decides, at every call on the device, how many of the ready operations run. */

/* Name of an error for messages, static storage. */
const char *cgr__device_error_name(int error);

#ifdef __cplusplus
}
#endif
#endif

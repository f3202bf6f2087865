/* The CUDA device. Internal to devices/cuda/.
 *
 * Events, graphs and execs are CUDA's own handles behind the table's names: an operation on the hot path is one test of
 * `dead` and one call of the runtime. After a sticky error every call answers DEAD at once; what destroys still works. */
#ifndef CGR_DEVICES_CUDA_CUDA_DEVICE_H
#define CGR_DEVICES_CUDA_CUDA_DEVICE_H

#include <pthread.h>
#include <stdbool.h>

#include "devices/cuda/compat.h"
#include "devices/device.h"

#define CGR__CUDA_MAX_ARGS 4096u

struct cuda_call;

struct cuda_device {
  struct cgr_device head;
  int ordinal;
  int dead;              /* the first sticky cudaError_t, or 0; atomic */
  cudaStream_t internal; /* uploads graphs */
  int num_multiprocessors, compute_capability, driver_version;
  char name[64];
  pthread_mutex_t lock;    /* guards calls */
  struct cuda_call *calls; /* host calls enqueued outside of captures that have not run yet */
};

static inline struct cuda_device *cgr__cuda_of(cgr_device *dev) { return (struct cuda_device *)(void *)dev; }

static inline bool cgr__cuda_is_dead(struct cuda_device *cuda) { return __atomic_load_n(&cuda->dead, __ATOMIC_RELAXED) != 0; }

/* errors.c */
int cgr__cuda_error(struct cuda_device *cuda, cudaError_t raw); /* maps, remembers, clears the runtime's own last error */
int cgr__cuda_dead(struct cuda_device *cuda);                   /* DEAD, with the first cause in last_raw */
int cgr__cuda_invalid(struct cuda_device *cuda);                /* INVALID, found without asking CUDA */

/* Makes the device current for calls that need it, and restores what was. `*previous` is -1 when nothing was changed. */
cudaError_t cgr__cuda_enter(const struct cuda_device *cuda, int *previous);
void cgr__cuda_leave(int previous);

/* memory.c */
int cgr__cuda_mem_alloc(cgr_device *dev, size_t bytes, enum cgr__memory_kind kind, void **ptr);
int cgr__cuda_mem_free(cgr_device *dev, void *ptr, enum cgr__memory_kind kind);
int cgr__cuda_info(cgr_device *dev, cgr_device_info *info);

/* stream.c: streams and events */
int cgr__cuda_stream_create(cgr_device *dev, cudaStream_t *stream);
int cgr__cuda_stream_destroy(cgr_device *dev, cudaStream_t stream);
int cgr__cuda_stream_sync(cgr_device *dev, cudaStream_t stream);
int cgr__cuda_stream_query(cgr_device *dev, cudaStream_t stream);
int cgr__cuda_event_create(cgr_device *dev, cgr__event **event);
int cgr__cuda_event_destroy(cgr_device *dev, cgr__event *event);
int cgr__cuda_event_record(cgr_device *dev, cgr__event *event, cudaStream_t stream);
int cgr__cuda_event_wait(cgr_device *dev, cgr__event *event, cudaStream_t stream);
int cgr__cuda_event_query(cgr_device *dev, cgr__event *event);
int cgr__cuda_event_sync(cgr_device *dev, cgr__event *event);

/* enqueue.c, call.c */
int cgr__cuda_copy(cgr_device *dev, void *dst, const void *src, size_t bytes, cudaStream_t stream);
int cgr__cuda_fill(cgr_device *dev, void *dst, int byte, size_t bytes, cudaStream_t stream);
int cgr__cuda_launch(cgr_device *dev, const cgr__kernel *kernel, const void *args, cudaStream_t stream);
int cgr__cuda_preload(cgr_device *dev, const cgr__kernel *kernel);
int cgr__cuda_host_call(cgr_device *dev, cgr_host_function function, const void *args, size_t args_size, cudaStream_t stream);
void cgr__cuda_calls_free(struct cuda_device *cuda); /* at close, when nothing runs any more */

/* graph.c */
int cgr__cuda_capture_begin(cgr_device *dev, cudaStream_t stream);
int cgr__cuda_capture_end(cgr_device *dev, cudaStream_t stream, cgr__graph **graph);
int cgr__cuda_capture_status(cgr_device *dev, cudaStream_t stream, int *capturing);
int cgr__cuda_graph_destroy(cgr_device *dev, cgr__graph *graph);
int cgr__cuda_instantiate(cgr_device *dev, cgr__graph *graph, cgr__exec **exec, cgr__graph_info *info);
int cgr__cuda_exec_launch(cgr_device *dev, cgr__exec *exec, cudaStream_t stream);
int cgr__cuda_exec_destroy(cgr_device *dev, cgr__exec *exec);

#endif

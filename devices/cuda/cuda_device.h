/* The CUDA device. Internal to devices/cuda/.
 *
 * Streams, events, graphs and execs are CUDA's own handles: an operation on the hot path is one test of `dead` and one call of
 * the driver. The device keeps the GPU's primary context, which it shares with the CUDA runtime, from open to close. After a
 * sticky error every call answers DEAD at once; calls that destroy still work. */
#ifndef CGR_DEVICES_CUDA_CUDA_DEVICE_H
#define CGR_DEVICES_CUDA_CUDA_DEVICE_H

#include <pthread.h>

#include "devices/allocations.h"
#include "devices/cuda/driver.h"
#include "devices/device.h"

struct cuda_call;

struct cuda_device {
  struct cgr_device head;
  int ordinal;
  CUdevice device;
  CUcontext context; /* the primary one */
  CUstream internal; /* uploads graphs */
  int num_multiprocessors, shared_memory, compute_capability, kernel_capability, driver_version;
  uint64_t memory_bandwidth; /* bytes per second; 0: not known */
  bool streams_wait;         /* its streams can wait for a word of 64 bits */
  char name[64];
  struct cgr__allocations allocations;
  pthread_mutex_t lock;    /* guards calls and waiters */
  cgr__waiter *waiters;    /* that have not been freed */
  struct cuda_call *calls; /* host calls that were enqueued outside of captures and have not run yet */
};

static inline struct cuda_device *cgr__cuda_of(cgr_device *dev) { return (struct cuda_device *)(void *)dev; }

static inline bool cgr__cuda_is_dead(struct cuda_device *cuda) {
  return __atomic_load_n(&cuda->head.dead, __ATOMIC_RELAXED) != 0;
}

#endif

#define _POSIX_C_SOURCE 200809L
#include "devices/host/memory.h"

#include <stdlib.h>
#include <string.h>

#include "devices/host/capture.h"
#include "devices/host/handles.h"
#include "devices/host/queue.h"

/* As CUDA does: what has been enqueued may need the memory still. Streams are never freed before the device is. */
static void wait_for_all_streams(struct host_device *host) {
  pthread_mutex_lock(&host->lock);
  for (struct host_stream *s = host->streams; s; s = s->next)
    if (s->alive)
      cgr__host_wait(host, s, s->enqueued);
  pthread_mutex_unlock(&host->lock);
}

static int refuse_in_capture(struct host_device *host) {
  pthread_mutex_lock(&host->lock);
  int error = cgr__host_refuse_capturing_thread(host);
  pthread_mutex_unlock(&host->lock);
  return error;
}

int cgr__host_mem_alloc(cgr_device *dev, size_t bytes, enum cgr__memory_kind kind, void **ptr) {
  struct host_device *host = cgr__host_of(dev);
  void *memory = NULL;
  *ptr = NULL;
  int error = refuse_in_capture(host);
  if (error != CGR__DEVICE_OK)
    return error;
  if (bytes == 0)
    return cgr__host_fail(host, CGR__DEVICE_INVALID, HOST_RAW_INVALID_VALUE);
  if (posix_memalign(&memory, 256, bytes) != 0)
    return cgr__host_fail(host, CGR__DEVICE_NO_MEMORY, HOST_RAW_NO_MEMORY);
  if (!cgr__allocations_add(&host->allocations, memory, bytes, kind)) {
    free(memory);
    return cgr__host_fail(host, CGR__DEVICE_NO_MEMORY, HOST_RAW_NO_MEMORY);
  }
  memset(memory, 0xFF, bytes);
  *ptr = memory;
  return CGR__DEVICE_OK;
}

int cgr__host_mem_free(cgr_device *dev, void *ptr, enum cgr__memory_kind kind) {
  struct host_device *host = cgr__host_of(dev);
  int error = refuse_in_capture(host);
  if (error != CGR__DEVICE_OK || !ptr)
    return error;
  if (!cgr__allocations_claim(&host->allocations, ptr, kind))
    return cgr__host_fail(host, CGR__DEVICE_INVALID, HOST_RAW_INVALID_VALUE);
  wait_for_all_streams(host);
  cgr__allocations_end_free(&host->allocations, ptr, true);
  free(ptr);
  return CGR__DEVICE_OK;
}

int cgr__host_mem_find(cgr_device *dev, const void *address, const void **base, size_t *bytes) {
  cgr__allocations_find(&cgr__host_of(dev)->allocations, address, base, bytes);
  return CGR__DEVICE_OK;
}

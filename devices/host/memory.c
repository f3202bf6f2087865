/* Memory of the host device: ordinary memory whatever the kind, filled with 0xFF (NaN in every float format, an impossible
 * count or index as an integer) so that nothing relies on zeros. Unlike cudaFree, mem_free does not wait for the device:
 * memory that an enqueued operation still needs is the caller's error, and the address sanitizer finds it. */
#define _POSIX_C_SOURCE 200809L
#include <stdlib.h>
#include <string.h>

#include "devices/host/host.h"

static int refuse_in_capture(struct host_device *host) {
  pthread_mutex_lock(&host->lock);
  int error = cgr__host_refuse_capturing_thread(host);
  pthread_mutex_unlock(&host->lock);
  return error;
}

int cgr__host_mem_alloc(cgr_device *dev, size_t bytes, enum cgr__memory_kind kind, void **ptr) {
  struct host_device *host = cgr__host_of(dev);
  (void)kind;
  *ptr = NULL;
  int error = refuse_in_capture(host);
  if (error != CGR__DEVICE_OK)
    return error;
  if (bytes == 0)
    return cgr__host_fail(host, CGR__DEVICE_INVALID, HOST_RAW_INVALID_VALUE);
  void *memory = NULL;
  if (posix_memalign(&memory, 256, bytes) != 0)
    return cgr__host_fail(host, CGR__DEVICE_NO_MEMORY, HOST_RAW_NO_MEMORY);
  memset(memory, 0xFF, bytes);
  *ptr = memory;
  return CGR__DEVICE_OK;
}

int cgr__host_mem_free(cgr_device *dev, void *ptr, enum cgr__memory_kind kind) {
  (void)kind;
  int error = refuse_in_capture(cgr__host_of(dev));
  if (error == CGR__DEVICE_OK)
    free(ptr);
  return error;
}

/* Memory of the host device: ordinary memory whatever the kind, filled with 0xFF (NaN in every float format, an impossible
 * count or index as an integer) so that nothing relies on zeros. Unlike cudaFree, mem_free does not wait for the device:
 * memory that an enqueued operation still uses is the caller's error, and the address sanitizer finds it. Memory that is still
 * there when the device closes is not freed. */
#ifndef CGR_DEVICES_HOST_MEMORY_H
#define CGR_DEVICES_HOST_MEMORY_H

#include "devices/host/types.h"

int cgr__host_mem_alloc(cgr_device *dev, size_t bytes, enum cgr__memory_kind kind, void **ptr);
int cgr__host_mem_free(cgr_device *dev, void *ptr, enum cgr__memory_kind kind);
int cgr__host_mem_find(cgr_device *dev, const void *address, const void **base, size_t *bytes);

#endif

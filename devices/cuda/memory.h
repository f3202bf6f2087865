/* Memory, and what a GPU is. */
#ifndef CGR_DEVICES_CUDA_MEMORY_H
#define CGR_DEVICES_CUDA_MEMORY_H

#include "devices/cuda/cuda_device.h"

int cgr__cuda_mem_alloc(cgr_device *dev, size_t bytes, enum cgr__memory_kind kind, void **ptr);
int cgr__cuda_mem_free(cgr_device *dev, void *ptr, enum cgr__memory_kind kind);
int cgr__cuda_mem_find(cgr_device *dev, const void *address, const void **base, size_t *bytes);
int cgr__cuda_info(cgr_device *dev, cgr_device_info *info);

#endif

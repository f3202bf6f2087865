/* What is put into a stream: copies, fills, kernels and host functions. In a capture the same work becomes a node. Nothing here
 * allocates once the pools have grown to the depth in use. */
#ifndef CGR_DEVICES_HOST_ENQUEUE_H
#define CGR_DEVICES_HOST_ENQUEUE_H

#include "devices/host/types.h"

int cgr__host_copy(cgr_device *dev, void *dst, const void *src, size_t bytes, cudaStream_t stream);
int cgr__host_fill(cgr_device *dev, void *dst, uint64_t value, size_t width, size_t count, cudaStream_t stream);
int cgr__host_launch(cgr_device *dev, const cgr__kernel *kernel, const void *args, cudaStream_t stream);
int cgr__host_host_call(cgr_device *dev, cgr_host_function function, const void *args, size_t args_size, cudaStream_t stream);
int cgr__host_preload(cgr_device *dev, const cgr__kernel *kernel);

#endif

/* Copies, fills and kernels. No allocation, no lock, no sync. */
#ifndef CGR_DEVICES_CUDA_ENQUEUE_H
#define CGR_DEVICES_CUDA_ENQUEUE_H

#include "devices/cuda/cuda_device.h"

int cgr__cuda_copy(cgr_device *dev, void *dst, const void *src, size_t bytes, cudaStream_t stream);
int cgr__cuda_fill(cgr_device *dev, void *dst, uint64_t value, size_t width, size_t count, cudaStream_t stream);
int cgr__cuda_launch(cgr_device *dev, const cgr__kernel *kernel, const void *args, cudaStream_t stream);
int cgr__cuda_preload(cgr_device *dev, const cgr__kernel *kernel);

#endif

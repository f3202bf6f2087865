/* A kernel that does nothing: what a node of a graph costs by itself. */
#ifndef CGR_PROFILES_SUPPORT_EMPTY_H
#define CGR_PROFILES_SUPPORT_EMPTY_H

#include "devices/device.h"

#ifdef __cplusplus
extern "C" {
#endif

extern const cgr__kernel bench_kernel_empty; /* no arguments */

/* Its launcher for CUDA. */
int bench_cuda_empty(const void *args, cudaStream_t stream);
int bench_cuda_empty_preload(void);

#ifdef __cplusplus
}
#endif
#endif

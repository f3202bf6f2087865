/* How fast memory is read: the floor of whatever reads KV caches, measured in the run that is compared with it. */
#ifndef CGR_PROFILES_SUPPORT_READ_H
#define CGR_PROFILES_SUPPORT_READ_H

#include <stdint.h>

#include "devices/device.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Reads memory from one end to the other. */
typedef struct bench_read {
  const void *data;
  int64_t bytes;  /* a multiple of 16 */
  uint64_t *sink; /* device memory; written for one content of `data` in 2^32 */
  int32_t multiprocessors;
} bench_read;
extern const cgr__kernel bench_kernel_read; /* bench_read */

/* Its launcher for CUDA. */
int bench_cuda_read(const void *args, cudaStream_t stream);
int bench_cuda_read_preload(void);

/* Bytes per second of a plain streaming read of 4 GiB (of 64 MiB on the host): the median of ten. */
double bench_read_bandwidth(cgr_device *dev, cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif

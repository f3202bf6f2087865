/* A kernel that does the least that one of cgr's own must: what the protocol of a step costs before it does any work. */
#ifndef CGR_PROFILES_SUPPORT_LEAST_H
#define CGR_PROFILES_SUPPORT_LEAST_H

#include <stdint.h>

#include "devices/device.h"

#ifdef __cplusplus
extern "C" {
#endif

#define BENCH_LEAST_WORDS 512 /* of both memories, zeros at first */

typedef struct bench_least {
  uint64_t *device, *mapped; /* device memory; page-locked */
  int32_t num_loads;         /* of device memory, one after the other, 0 .. 8 */
  int32_t reads;             /* not 0: a word of the page-locked memory */
  int32_t publishes;         /* not 0: writes two words there, the second with release, as a step's result and its number are */
} bench_least;
extern const cgr__kernel bench_kernel_least; /* bench_least */

/* Its launcher for CUDA. */
int bench_cuda_least(const void *args, cudaStream_t stream);
int bench_cuda_least_preload(void);

#ifdef __cplusplus
}
#endif
#endif

/* Kernels of the device's clock: one that takes as long as it is told, and one that writes the time. */
#ifndef CGR_PROFILES_SUPPORT_CLOCK_H
#define CGR_PROFILES_SUPPORT_CLOCK_H

#include <stdint.h>

#include "devices/device.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Each thread computes `iterations` numbers, one from the other (about four clocks each), then waits until `ns`, or what is at
 * `pace`, have passed since it began. The host does not compute. */
typedef struct bench_spin {
  const uint64_t *pace; /* device memory; NULL: ns */
  uint64_t ns;
  int32_t iterations;
  int32_t blocks; /* of 256 threads; 0: one of 32 */
} bench_spin;
extern const cgr__kernel bench_kernel_spin; /* bench_spin */

/* Writes the time, in ns from an arbitrary origin, to page-locked memory. */
typedef struct bench_mark {
  uint64_t *ns;
} bench_mark;
extern const cgr__kernel bench_kernel_mark; /* bench_mark */

/* Their launchers for CUDA. */
int bench_cuda_spin(const void *args, cudaStream_t stream);
int bench_cuda_spin_preload(void);
int bench_cuda_mark(const void *args, cudaStream_t stream);
int bench_cuda_mark_preload(void);

#ifdef __cplusplus
}
#endif
#endif

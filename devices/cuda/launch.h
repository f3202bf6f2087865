/* How the launchers of kernels/cuda/ reach the driver: a kernel of this build is found by its symbol, as nvcc registers it with
 * the CUDA runtime, and everything else is the driver's, so that no launch sets the runtime's pending error. Only inside an
 * operation of the CUDA device, which has made its context current. Plain C: dimensions are x, y, z. */
#ifndef CGR_DEVICES_CUDA_LAUNCH_H
#define CGR_DEVICES_CUDA_LAUNCH_H

#include <stddef.h>
#include <stdint.h>

#include "cgr/device.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Enqueues one launch; `params` are the addresses of the kernel's parameters, `shared` bytes of dynamic shared memory. Returns a
 * CUresult, or the cudaError_t of a kernel that is not in this build. */
int cgr__cuda_launch_kernel(const void *symbol, const uint32_t grid[3], const uint32_t block[3], void **params, size_t shared,
                            cudaStream_t stream);

/* The same, but the kernel may begin as soon as every block of the kernel before it in the stream has allowed it or has ended (a
 * programmatic edge). The kernel must wait itself before it reads what that one writes, and before it writes anything. An
 * ordinary launch where the device runs code for an architecture before 9.0, which cannot wait. */
int cgr__cuda_launch_kernel_early(const void *symbol, const uint32_t grid[3], const uint32_t block[3], void **params,
                                  size_t shared, cudaStream_t stream);

/* Loads the kernel on the current device, so that a capture never does, and allows it `shared` bytes of dynamic shared memory.
 * Returns as cgr__cuda_launch_kernel does. */
int cgr__cuda_preload_kernel(const void *symbol, size_t shared);

/* A hint, after the above: L1 gives way to shared memory as far as it can where the kernel runs. A multiprocessor has to become
 * idle before it divides them in another way, so a kernel that begins alongside another should want the same. */
void cgr__cuda_prefer_shared_memory(const void *symbol);

#ifdef __cplusplus
}
#endif
#endif

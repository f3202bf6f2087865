/* Functions that are compiled as C for the host and as CUDA for the device. */
#ifndef CGR_BASE_HOST_DEVICE_H
#define CGR_BASE_HOST_DEVICE_H

#ifdef __CUDACC__
#define CGR__HOST_DEVICE static __host__ __device__ __forceinline__
#else
#define CGR__HOST_DEVICE static inline
#endif

/* Where the compiler should lay code that is seldom executed: away from the rest. A kernel that is launched for a few microseconds
 * waits for the instructions that its multiprocessor's cache does not hold. */
#define CGR__LIKELY(condition) __builtin_expect(!!(condition), 1)
#define CGR__UNLIKELY(condition) __builtin_expect(!!(condition), 0)

#endif

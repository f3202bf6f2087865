/* Functions that are compiled as C for the host and as CUDA for the device, and hints about their conditions. */
#ifndef CGR_BASE_HOST_DEVICE_H
#define CGR_BASE_HOST_DEVICE_H

#ifdef __CUDACC__
#define CGR__HOST_DEVICE static __host__ __device__ __forceinline__
#else
#define CGR__HOST_DEVICE static inline
#endif

/* Code that seldom runs is laid out of the way: a kernel of a few microseconds waits for every instruction that the cache of its
 * multiprocessor does not hold. */
#define CGR__LIKELY(condition) __builtin_expect(!!(condition), 1)
#define CGR__UNLIKELY(condition) __builtin_expect(!!(condition), 0)

#endif

/* Functions that are compiled as C for the host and as CUDA for the device. */
#ifndef CGR_BASE_HOST_DEVICE_H
#define CGR_BASE_HOST_DEVICE_H

#ifdef __CUDACC__
#define CGR__HOST_DEVICE static __host__ __device__ __forceinline__
#else
#define CGR__HOST_DEVICE static inline
#endif

#endif

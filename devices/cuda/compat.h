/* The CUDA runtime API, 12.4 to 13.x: calls whose signature differs between major versions. */
#ifndef CGR_DEVICES_CUDA_COMPAT_H
#define CGR_DEVICES_CUDA_COMPAT_H

#include <cuda_runtime_api.h>

#if CUDART_VERSION < 12040
#error "CUDA 12.4 or later is required"
#endif

/* Status of the capture of `stream` and, while it is active, the graph under construction. */
static inline cudaError_t cgr__cuda_capture_info(cudaStream_t stream, enum cudaStreamCaptureStatus *status, cudaGraph_t *graph) {
#if CUDART_VERSION >= 13000
  return cudaStreamGetCaptureInfo(stream, status, NULL, graph, NULL, NULL, NULL);
#else
  return cudaStreamGetCaptureInfo_v2(stream, status, NULL, graph, NULL, NULL);
#endif
}

#endif

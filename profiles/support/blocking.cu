#include "profiles/support/blocking.h"

#include <cuda_runtime_api.h>

extern "C" int bench_blocking_create(void **event) {
  cudaEvent_t made = nullptr;
  int error = cudaEventCreateWithFlags(&made, cudaEventBlockingSync | cudaEventDisableTiming);
  *event = made;
  return error;
}

extern "C" int bench_blocking_record(void *event, cudaStream_t stream) {
  return cudaEventRecord(static_cast<cudaEvent_t>(event), stream);
}

extern "C" int bench_blocking_wait(void *event) { return cudaEventSynchronize(static_cast<cudaEvent_t>(event)); }

extern "C" int bench_blocking_destroy(void *event) { return cudaEventDestroy(static_cast<cudaEvent_t>(event)); }

/* The driver's own way of waiting without the processor, as a measure for others: an event with blocking synchronisation. */
#ifndef CGR_PROFILES_SUPPORT_BLOCKING_H
#define CGR_PROFILES_SUPPORT_BLOCKING_H

#include "cgr/device.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Creates the event; records it; waits for it. Return a cudaError_t. Only in builds with CUDA, after a device was opened. */
int bench_blocking_create(void **event);
int bench_blocking_record(void *event, cudaStream_t stream);
int bench_blocking_wait(void *event);
int bench_blocking_destroy(void *event);

#ifdef __cplusplus
}
#endif
#endif

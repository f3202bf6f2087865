#include "profiles/support/blocking.h"

/* Without CUDA no program calls them. */
#if !(defined(CGR_WITH_CUDA) && CGR_WITH_CUDA)
int bench_blocking_create(void **event) { return *event = NULL, 1; }
int bench_blocking_record(void *event, cudaStream_t stream) { return (void)event, (void)stream, 1; }
int bench_blocking_wait(void *event) { return (void)event, 1; }
int bench_blocking_destroy(void *event) { return (void)event, 1; }
#endif

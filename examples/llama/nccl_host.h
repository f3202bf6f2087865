/* NCCL's functions, as far as this engine calls them, for the host device: over memory that the ranks' processes share. */
#ifndef LLAMA_NCCL_HOST_H
#define LLAMA_NCCL_HOST_H

#include <cgr/interop/nccl.h>

/* Their communicators enqueue on `device`, and move `most` bytes in a call, as on all ranks. One device in a process. */
void llama_nccl_host(cgr_device *device, size_t most, cgr_nccl_functions *functions);

#endif

/* Host functions in a stream. The copy of the arguments lives until the function has run; in a capture the graph owns it
 * through a user object, and so does every exec made from the graph.
 *
 * CUDA does not run host functions once the context has failed, so eager copies are also kept in a list that close frees. */
#ifndef CGR_DEVICES_CUDA_CALL_H
#define CGR_DEVICES_CUDA_CALL_H

#include "devices/cuda/cuda_device.h"

int cgr__cuda_host_call(cgr_device *dev, cgr_host_function function, const void *args, size_t args_size, cudaStream_t stream);
/* The function and the arguments of a captured one; NULL for a host node that is not the library's. */
cgr_host_function cgr__cuda_call_of(const CUDA_HOST_NODE_PARAMS *node, const void **args, size_t *args_size);
void cgr__cuda_calls_free(struct cuda_device *cuda); /* at close, when nothing runs any more */

#endif

/* What ranks' sums cost by themselves: a graph of nothing else, launched by the CUDA runtime without cgr. */
#ifndef LLAMA_CUDA_SUMS_H
#define LLAMA_CUDA_SUMS_H

#include <cuda_runtime_api.h>
#include <stdint.h>

#include "examples/llama/team.h"

/* Of all ranks together: captures `sums` all-reduces of data [count] of bf16, one after the other, and launches them as one
 * graph, `launches` times after a few others. microseconds[i]: what one of them took on the device, in launch i. */
cudaError_t llama_cuda_sums(const llama_team *team, void *data, uint64_t count, int32_t sums, int32_t launches,
                            float *microseconds, cudaStream_t stream);

#endif

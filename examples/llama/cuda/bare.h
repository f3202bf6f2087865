/* The floor of a launch: a graph of empty kernels, launched by the CUDA runtime without cgr. */
#ifndef LLAMA_CUDA_BARE_H
#define LLAMA_CUDA_BARE_H

#include <cuda_runtime_api.h>
#include <stdint.h>

/* Captures `nodes` empty kernels, one after the other, and launches them as one graph, `launches` times after a few others; each
 * but the last has completed before the next but one. microseconds[i]: what the i-th call of cudaGraphLaunch took. */
cudaError_t llama_cuda_bare_launch(int device, int32_t nodes, int32_t launches, float *microseconds, cudaStream_t stream);

#endif

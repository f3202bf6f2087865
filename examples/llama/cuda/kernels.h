/* Launchers of the kernels in kernels.cu: bf16 storage, fp32 arithmetic. Each returns a cudaError_t. */
#ifndef LLAMA_CUDA_KERNELS_H
#define LLAMA_CUDA_KERNELS_H

#include "examples/llama/ops.h"

#ifdef __cplusplus
extern "C" {
#endif

int llama_cuda_embed(const llama_embed_args *args, cudaStream_t stream);
int llama_cuda_rmsnorm(const llama_rmsnorm_args *args, cudaStream_t stream);
int llama_cuda_rope(const llama_rope_args *args, cudaStream_t stream);
int llama_cuda_silu(const llama_silu_args *args, cudaStream_t stream);
int llama_cuda_gather(const llama_gather_args *args, cudaStream_t stream);
int llama_cuda_empty(cudaStream_t stream); /* a kernel that does nothing */
int llama_cuda_sample(const llama_sample_args *args, cudaStream_t stream);
int llama_cuda_places(const llama_places_args *args, cudaStream_t stream);
int llama_cuda_verify(const llama_verify_args *args, cudaStream_t stream);
int llama_cuda_pick(const llama_pick_args *args, cudaStream_t stream);
int llama_cuda_fill(const llama_fill_args *args, cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif

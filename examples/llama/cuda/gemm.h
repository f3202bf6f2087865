/* GEMMs through cuBLASLt: bf16 in, fp32 sums, bf16 or fp32 out. */
#ifndef LLAMA_CUDA_GEMM_H
#define LLAMA_CUDA_GEMM_H

#include "examples/llama/ops.h"

typedef struct llama_cuda_gemm llama_cuda_gemm;

int llama_cuda_gemm_create(cgr_device *device, int32_t max_rows, llama_cuda_gemm **gemm);
void llama_cuda_gemm_destroy(llama_cuda_gemm *gemm);

/* Device memory that the GEMMs use besides their arguments. */
void *llama_cuda_gemm_workspace(const llama_cuda_gemm *gemm, size_t *bytes);

/* Enqueues. The first call for a matrix and a number of rows asks cuBLASLt for an algorithm; later ones reuse it. */
cgr_status llama_cuda_gemm_run(llama_cuda_gemm *gemm, const llama_gemm_args *args, cudaStream_t stream);

#endif

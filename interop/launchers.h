/* The launchers of the formats' kernels, one for each device. Their rules are those of kernels/host/launchers.h and of
 * kernels/cuda/launchers.h: a launcher of CUDA enqueues one launch whose dimensions follow from its args struct, and returns a
 * CUresult, or a cudaError_t if the driver was not called; a _preload loads the kernel, outside of a capture. */
#ifndef CGR_INTEROP_LAUNCHERS_H
#define CGR_INTEROP_LAUNCHERS_H

#include "cgr/device.h"

#ifdef __cplusplus
extern "C" {
#endif

void cgr__host_fa3(const void *args);         /* cgr__fa3_args */
void cgr__host_flashinfer(const void *args);  /* cgr__flashinfer_args */
void cgr__host_cascade(const void *args);     /* cgr_flashinfer_cascade */
void cgr__host_flashmla(const void *args);    /* cgr__flashmla_args */
void cgr__host_block_table(const void *args); /* cgr__block_table_args */

int cgr__cuda_fa3(const void *args, cudaStream_t stream);
int cgr__cuda_fa3_preload(void);

int cgr__cuda_flashinfer(const void *args, cudaStream_t stream);
int cgr__cuda_flashinfer_preload(void);

int cgr__cuda_cascade(const void *args, cudaStream_t stream);
int cgr__cuda_cascade_preload(void);

int cgr__cuda_flashmla(const void *args, cudaStream_t stream);
int cgr__cuda_flashmla_preload(void);

int cgr__cuda_block_table(const void *args, cudaStream_t stream);
int cgr__cuda_block_table_preload(void);

#ifdef __cplusplus
}
#endif
#endif

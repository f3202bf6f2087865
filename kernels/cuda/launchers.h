/* The launchers of the CUDA kernels. Each takes the args struct that the header of its kernel (in kernels/) names for it, checks
 * what is cheap to check, and enqueues one launch whose dimensions follow from that struct. This is legal in capture, and the
 * good path does nothing but launch. Returns a CUresult, or a cudaError_t if the driver was not called: cudaErrorInvalidValue or
 * cudaErrorNotSupported for args that no kernel here can run.
 *
 * A _preload loads every instance of a kernel and raises its limit of shared memory. It must have run on the device once
 * before the first launch, outside of any capture. */
#ifndef CGR_KERNELS_CUDA_LAUNCHERS_H
#define CGR_KERNELS_CUDA_LAUNCHERS_H

#include "cgr/cgr.h"

#ifdef __cplusplus
extern "C" {
#endif

int cgr__cuda_prologue(const void *args, cudaStream_t stream); /* cgr__step_args */
int cgr__cuda_prologue_preload(void);

int cgr__cuda_planner(const void *args, cudaStream_t stream); /* cgr__planner_args */
int cgr__cuda_planner_preload(void);

int cgr__cuda_fetch(const void *args, cudaStream_t stream); /* cgr__step_args */
int cgr__cuda_fetch_preload(void);

int cgr__cuda_staged(const void *args, cudaStream_t stream); /* cgr__staged_args */
int cgr__cuda_staged_preload(void);

int cgr__cuda_on_demand(const void *args, cudaStream_t stream); /* cgr__on_demand_args */
int cgr__cuda_on_demand_preload(void);

int cgr__cuda_epilogue(const void *args, cudaStream_t stream); /* cgr__step_args */
int cgr__cuda_epilogue_preload(void);

int cgr__cuda_append(const void *args, cudaStream_t stream); /* cgr__append_args */
int cgr__cuda_append_preload(void);

/* The same for caches of 8 bits; the append calls it. */
int cgr__cuda_append_quantised(const void *args, cudaStream_t stream); /* cgr__append_args */
int cgr__cuda_append_quantised_preload(void);

int cgr__cuda_transform(const void *args, cudaStream_t stream); /* cgr__transform_args */
int cgr__cuda_transform_preload(void);

int cgr__cuda_attention(const void *args, cudaStream_t stream); /* cgr__attention_args */
int cgr__cuda_attention_preload(void);

int cgr__cuda_merge(const void *args, cudaStream_t stream); /* cgr__merge_args */
int cgr__cuda_merge_preload(void);

int cgr__cuda_measure(const void *args, cudaStream_t stream); /* cgr__measure_args */
int cgr__cuda_measure_preload(void);

int cgr__cuda_gather(const void *args, cudaStream_t stream); /* cgr__gather_args */
int cgr__cuda_gather_preload(void);

int cgr__cuda_fill_pages(const void *args, cudaStream_t stream); /* cgr__pages_args */
int cgr__cuda_fill_pages_preload(void);

int cgr__cuda_digest_pages(const void *args, cudaStream_t stream); /* cgr__pages_args */
int cgr__cuda_digest_pages_preload(void);

int cgr__cuda_stamp(const void *args, cudaStream_t stream); /* cgr__stamp_args */
int cgr__cuda_stamp_preload(void);

int cgr__cuda_check_values(const void *args, cudaStream_t stream); /* cgr__check_values_args */
int cgr__cuda_check_values_preload(void);

int cgr__cuda_fingerprint(const void *args, cudaStream_t stream); /* cgr__fingerprint_args */
int cgr__cuda_fingerprint_preload(void);

int cgr__cuda_compare_fingerprints(const void *args, cudaStream_t stream); /* cgr__compare_fingerprints_args */
int cgr__cuda_compare_fingerprints_preload(void);

#ifdef __cplusplus
}
#endif
#endif

/* A sampler that accepts guesses without a model: how many follows from a request's length alone, so that it differs from step to
 * step and no host could know it. */
#ifndef CGR_PROFILES_SUPPORT_ACCEPT_H
#define CGR_PROFILES_SUPPORT_ACCEPT_H

#include "devices/device.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct bench_accept {
  const int32_t *num_drafts, *seq_lens; /* [requests] of the runtime */
  int32_t *num_accepted;                /* [requests] */
  int32_t *next_tokens;                 /* [requests][stride] */
  int32_t requests, stride;
} bench_accept;

extern const cgr__kernel bench_kernel_accept;

/* Its launcher for CUDA. */
int bench_cuda_accept(const void *args, cudaStream_t stream);
int bench_cuda_accept_preload(void);

#ifdef __cplusplus
}
#endif
#endif

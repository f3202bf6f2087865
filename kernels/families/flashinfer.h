/* FlashInfer's plans as a kernel (planners/families/flashinfer.h). */
#ifndef CGR_KERNELS_FAMILIES_FLASHINFER_H
#define CGR_KERNELS_FAMILIES_FLASHINFER_H

#include "devices/device.h"
#include "planners/families/flashinfer.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct cgr__flashinfer_args {
  cgr__flashinfer_key key;                              /* complete: with a graph, and split_kv known */
  const int32_t *qo_indptr, *kv_indptr, *live_requests; /* qo_indptr and live_requests may be NULL */
  int32_t *status;                                      /* may be NULL */
  unsigned char *int_workspace;
} cgr__flashinfer_args;

/* Writes the key->at.bytes of the plan, and the status. */
extern const cgr__kernel cgr__kernel_flashinfer; /* cgr__flashinfer_args */

#ifdef __cplusplus
}
#endif
#endif

/* FlashAttention-3's scheduler metadata. */
#ifndef CGR_KERNELS_FAMILIES_FA3_H
#define CGR_KERNELS_FAMILIES_FA3_H

#include <stdint.h>

#include "devices/device.h"
#include "planners/families/fa3.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct cgr__fa3_args {
  cgr__fa3_class c;
  const int32_t *query_start_loc; /* [num_requests + 1] */
  const int32_t *seq_lens;        /* [num_requests] */
  const int32_t *live_requests;   /* NULL: all */
  int32_t *metadata;              /* [num_words], aligned to 16 bytes */
} cgr__fa3_args;

/* Writes all words as cgr__fa3_fill does, for arrays of any content. */
extern const cgr__kernel cgr__kernel_fa3; /* cgr__fa3_args */

#ifdef __cplusplus
}
#endif
#endif

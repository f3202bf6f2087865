/* What the public functions of a format enqueue: its planner as a kernel. */
#ifndef CGR_INTEROP_FORMATS_H
#define CGR_INTEROP_FORMATS_H

#include "cgr/device.h"
#include "devices/device.h"
#include "devices/enqueue.h"
#include "interop/block_table/format.h"
#include "interop/fa3/format.h"
#include "interop/flashinfer/format.h"
#include "interop/flashmla/format.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct cgr__fa3_args {
  cgr__fa3_key c;
  const int32_t *query_start_loc; /* [num_requests + 1] */
  const int32_t *seq_lens;        /* [num_requests] */
  const int32_t *live_requests;   /* NULL: all */
  int32_t *metadata;              /* [num_words], aligned to 16 bytes */
} cgr__fa3_args;
extern const cgr__kernel cgr__kernel_fa3; /* cgr__fa3_args */

/* Writes the key->at.bytes of the plan, and the status. */
typedef struct cgr__flashinfer_args {
  cgr__flashinfer_key key;                              /* complete: with a graph, and split_kv known */
  const int32_t *qo_indptr, *kv_indptr, *live_requests; /* qo_indptr and live_requests may be NULL */
  int32_t *status;                                      /* may be NULL */
  unsigned char *int_workspace;
} cgr__flashinfer_args;
extern const cgr__kernel cgr__kernel_flashinfer; /* cgr__flashinfer_args */

/* The two levels of a cascade. Both are cleared if cgr__cascade_split refuses the arrays, or if there is not room for all
 * pages. */
extern const cgr__kernel cgr__kernel_cascade; /* cgr_flashinfer_cascade */

typedef struct cgr__flashmla_args {
  cgr__flashmla_key c;
  cgr__flashmla_lens lens;
  int32_t *metadata; /* [num_parts][8], then [num_requests + 1]; aligned to 32 bytes */
} cgr__flashmla_args;
extern const cgr__kernel cgr__kernel_flashmla; /* cgr__flashmla_args */

typedef struct cgr__block_table_args {
  cgr__block_table_task task;
  int32_t *memory; /* cgr__block_table_locate; aligned to 16 bytes */
} cgr__block_table_args;
extern const cgr__kernel cgr__kernel_block_table; /* cgr__block_table_args */

#ifdef __cplusplus
}
#endif
#endif

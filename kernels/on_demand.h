/* The buffers that engines and backends ask for (CGR_ON_DEMAND in cgr/record.h). */
#ifndef CGR_KERNELS_ON_DEMAND_H
#define CGR_KERNELS_ON_DEMAND_H

#include <stdint.h>

#include "base/limits.h"
#include "devices/device.h"
#include "kernels/step.h"
#include "planners/metadata/on_demand.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct cgr__on_demand_args {
  cgr__on_demand batch;  /* padded_requests: B_r of the key */
  const int32_t *counts; /* of decodes: CGR_COUNT_DECODES */
  cgr__step_error *error;
  uint64_t asked; /* CGR__ON_DEMAND bits: without any, steps leave the kernel out */
  int32_t num_groups, reserved;
  cgr__on_demand_group group[CGR__MAX_GROUPS];
} cgr__on_demand_args;

/* Runs after the prologue, whose buffers and counts determine everything here. Writes the following, except what is NULL:
 * - kv_start_loc, context_lens, context_start_loc and the prefills' buffers, [0, B_r) or [0, B_r]. Entry j of the prefills' is
 *   that of request num_decodes + j, the tokens counted from the first prefill on; from the last real one on they have padding.
 * - kv_indices [0, kv_indptr[B_r]): entry kv_indptr[i] + p is page p of request i, with n = pages_each
 *   page_table[request_rows[i]][p / n] * n + p % n. What comes after is left unchanged: the read-trash page's first at first,
 *   then pages of earlier batches.
 * - block_table, rows [0, B_r): the same page at [i][p], then the read-trash page's first to the end of the row. Only entries
 *   before block_extents[i] can hold anything else, so only these are written; block_extents[i] becomes the number of pages.
 * - prefill_block_table, rows [0, B_r), the same of request num_decodes + j, with prefill_block_extents.
 * A page outside the pool, or the write-trash page, which an engine's own table may have, is CGR_GUARD_PAGE, and the read-trash
 * page takes its place. A request that a guard refused has no pages; its row is not looked at. */
extern const cgr__kernel cgr__kernel_on_demand; /* cgr__on_demand_args */

#ifdef __cplusplus
}
#endif
#endif

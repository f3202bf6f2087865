/* The host planner of a step's metadata: every buffer that the prologue derives, from a batch's layout and the rows'
 * state. The prologue of the host device is this function; an engine without a runtime calls it through cgr_metadata_build. */
#ifndef CGR_PLANNERS_METADATA_METADATA_H
#define CGR_PLANNERS_METADATA_METADATA_H

#include <stdint.h>

#include "base/limits.h"
#include "cgr/planners.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Called for each thing that a guard refuses; cgr/planners.h says what row, index and value mean. */
typedef void (*cgr__refuse_function)(void *context, cgr_guard_error error, int32_t row, int32_t index, int64_t value);

/* Length sets other than the sequences, and requests of a draft that follow the target. */
typedef struct cgr__metadata_sets {
  int32_t num_sets, set;    /* how many; the one whose tokens the step has */
  const int32_t *lengths;   /* [rows][num_sets - 1] of the sets after 0 */
  const int32_t *max_lens;  /* [num_sets]: the most tokens of a row in each */
  int32_t *const *seq_lens; /* out, [num_sets][padded_requests]; those of set 0, and its bound, are the metadata's own */
  int32_t group_set[CGR__MAX_GROUPS];
  const int32_t *follows; /* [num_requests]: 1: the request follows the target (kernels/step.h, P26); NULL: none does */
  const int32_t *target_computed, *num_accepted; /* [rows], with `follows` */
} cgr__metadata_sets;

/* Tokens of the pages that kv_indptr counts and that are listed on demand. */
static inline int32_t cgr__kernel_page_size(const cgr_metadata_group *group) {
  return group->kernel_page_size > 0 ? group->kernel_page_size : group->page_size;
}

/* Writes every output of `m` for [0, padded_requests) and [0, padded_tokens). `m->query_start_loc` [num_requests + 1] holds the
 * real starts already: it begins at 0, does not decrease and ends at `num_tokens`; `m->request_rows` [num_requests] the rows.
 * query_lens and rows are not read. `sets`: NULL: none but set 0. `token_stride`: elements of row_last_tokens from row to row.
 * Nothing is allocated. */
void cgr__metadata_fill(const cgr_metadata *m, const cgr__metadata_sets *sets, int32_t num_tokens, int32_t token_stride,
                        cgr__refuse_function refused, void *context);

#ifdef __cplusplus
}
#endif

#endif

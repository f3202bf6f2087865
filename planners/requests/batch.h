/* Validation of a batch against the rows and the limits, and what it comes to. Host validation is always on; a batch that
 * repeats the last one is recognised by comparing it and validated once for as many steps as surely fit (cgr__steady). */
#ifndef CGR_PLANNERS_REQUESTS_BATCH_H
#define CGR_PLANNERS_REQUESTS_BATCH_H

#include <stdint.h>

#include "cgr/cgr.h"
#include "planners/requests/rows.h"

typedef struct cgr__step_plan {
  int32_t num_requests, num_tokens;
  int32_t query_len;      /* uniform query length, 0: mixed or none */
  int same_batch;         /* rows and query lengths are those of the step launched last */
  int has_flags;          /* some request is partial */
  int32_t headroom;       /* further steps like this one that fit */
  const cgr_batch *batch; /* valid during prepare only */
} cgr__step_plan;

/* Nothing but the rows' marks changes, and on failure nothing at all that matters. */
cgr_status cgr__batch_validate(cgr__rows *rows, const cgr_batch *batch, int32_t max_requests, int32_t max_tokens,
                               cgr__step_plan *plan);

/* The step was launched as `seq`: the rows advance. The arrays [num_requests] are the batch's own as they were kept at prepare;
 * they are not read when the batch is the steady one. */
void cgr__batch_commit(cgr__rows *rows, const cgr__step_plan *plan, const int32_t *batch_rows, const int32_t *query_lens,
                       const uint32_t *flags, uint64_t seq);

#endif

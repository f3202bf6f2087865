/* How a batch that is given whole differs from one that was: the stretches whose rows differ, and the requests that have other
 * work. */
#ifndef CGR_REQUESTS_DIFFERENCE_H
#define CGR_REQUESTS_DIFFERENCE_H

#include "requests/lane_batches.h"

#ifdef __cplusplus
extern "C" {
#endif

#define CGR__MAX_STRETCHES 32
#define CGR__MAX_DIFFERENCES 128 /* requests of either batch in such stretches, and others with other work */

/* Requests [old_first, old_end) gave way to [first, end). Rows before it, and between it and the next, are the same in the same
 * order. */
typedef struct cgr__stretch {
  int32_t old_first, old_end, first, end;
} cgr__stretch;

typedef struct cgr__difference {
  int32_t num_stretches, num_updates;
  int32_t left; /* requests that may differ yet */
  bool moves;   /* requests after a stretch have other places */
  cgr__stretch stretch[CGR__MAX_STRETCHES];
  int32_t update[CGR__MAX_DIFFERENCES]; /* places in the new batch: its row had another query length or other flags */
} cgr__difference;

/* How many of so many requests may be dealt with one by one: each costs about eight times as much as in a look at the whole
 * batch. */
static inline int32_t cgr__few_of(int32_t num_requests) {
  int32_t few = 4 + num_requests / 8;
  return few < CGR__MAX_DIFFERENCES ? few : CGR__MAX_DIFFERENCES;
}

/* False: they differ in so much that a look at the whole batch costs less. The arrays of both are only compared, never used as
 * row numbers. */
bool cgr__find_difference(const cgr__batch_layout *old, const cgr_batch *batch, cgr__difference *difference);

#ifdef __cplusplus
}
#endif

#endif

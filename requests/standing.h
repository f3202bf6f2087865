/* The standing batch: the edits of it, and its steps.
 *
 * Edits may come in any order, so each is checked alone only for what no step can have. How many requests and tokens they lead to
 * is known at any time, and checked with a step. Between two steps every row may be a member. What members cost a step:
 * members.h. */
#ifndef CGR_REQUESTS_STANDING_H
#define CGR_REQUESTS_STANDING_H

#include "requests/batch.h"
#include "requests/members.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The edits of step.h. On failure nothing has changed. The caller checks that no step is prepared. */
cgr_status cgr__standing_add(cgr__rows *rows, cgr__lane_batches *batches, int32_t row, int32_t query_len, const int32_t *tokens,
                             uint32_t flags);
cgr_status cgr__standing_update(cgr__rows *rows, cgr__lane_batches *batches, int32_t row, int32_t query_len,
                                const int32_t *tokens, uint32_t flags);
cgr_status cgr__standing_remove(cgr__rows *rows, cgr__lane_batches *batches, int32_t row);
cgr_status cgr__standing_swap(cgr__rows *rows, cgr__lane_batches *batches, int32_t row, int32_t other);

/* A member's tokens, as far as they count: a chunk that has run has none until it is set again. */
static inline int32_t cgr__standing_count(const cgr__rows *rows, const cgr__lane_batches *batches, int32_t row) {
  bool used_up = rows->row[row].irregular && batches->members.irregular[row].first_token == CGR__TOKENS_USED_UP;
  return used_up ? 0 : rows->row[row].query_len;
}

/* A step with the row's tokens was launched. */
void cgr__standing_use_up(cgr__rows *rows, cgr__lane_batches *batches, int32_t row);

/* Whether every member can step, and decodes come before members with more than `threshold` tokens (0: in any order). */
cgr_status cgr__standing_validate(cgr__rows *rows, cgr__lane_batches *batches, int32_t threshold, cgr__checked_batch *checked);

#ifdef __cplusplus
}
#endif

#endif

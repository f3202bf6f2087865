/* The standing batch: requests that stay in the batch from step to step, and the edits of it.
 *
 * A step of it costs the host what has changed, not what there is:
 * - Rows are not touched step by step. `steps` counts the steps, and a member's are added when somebody looks at it
 *   (cgr__members_settle).
 * - A member whose pages end is found in time: the calendar counts it under the step at which it may not fit any more, and moves
 *   it when it gets pages.
 * - Members that must be given something anew for every step are listed (`special`), and those that lack it are counted (needy).
 * - What the device must hear is kept by position (`dirty`) until a launch has told it; a cancelled step takes nothing away.
 * - Results refer to rows and tags as they were: to a copy that a journal of the edits brings up to date. */
#ifndef CGR_PLANNERS_REQUESTS_STANDING_H
#define CGR_PLANNERS_REQUESTS_STANDING_H

#include "buffers/slot.h"
#include "planners/requests/batch.h"
#include "planners/requests/members.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The edits of cgr.h. On failure nothing has changed. That no step is prepared is the caller's to check. */
cgr_status cgr__standing_put(cgr__rows *rows, int32_t row, int32_t query_len, const int32_t *tokens, uint32_t flags);
cgr_status cgr__standing_set(cgr__rows *rows, int32_t row, int32_t query_len, const int32_t *tokens, uint32_t flags);
cgr_status cgr__standing_take(cgr__rows *rows, int32_t row);
cgr_status cgr__standing_swap(cgr__rows *rows, int32_t row, int32_t other);

/* A step with the row's tokens was launched. */
void cgr__standing_use_up(cgr__rows *rows, int32_t row);

/* Whether every member can step, and decodes come before members with more than `threshold` tokens (0: in any order). */
cgr_status cgr__standing_validate(cgr__rows *rows, int32_t threshold, cgr__checked_batch *checked);

/* Writes what the device must hear: with `whole` the tokens alone, as it gets the composition otherwise. Returns the number of
 * edits, at most max_requests; *num_tokens are theirs, at most max_tokens. */
int32_t cgr__standing_edits(const cgr__rows *rows, bool whole, cgr__edit *edits, int32_t *tokens, int32_t *num_tokens);

/* What the result of a step refers to that is launched now. Only its rows and tags hold. */
cgr__composition *cgr__standing_snapshot(cgr__rows *rows, cgr__compositions *pool);

/* The step was launched as `seq`: tokens are used up, and the device has heard everything. */
void cgr__standing_commit(cgr__rows *rows, uint64_t seq);

#ifdef __cplusplus
}
#endif

#endif

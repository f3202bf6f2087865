/* Batches that are given whole, step by step: what a step costs on the host depends on how it differs from the last one.
 *
 * While the engine has no standing batch of its own, the members can follow the batches that are given whole. A batch that is
 * nearly the last one is compared with it. Only requests that have left, come or got other work are looked at; they become edits
 * of the members, and of what the device has. A batch that differs in more, or of which anything is in doubt, is looked at whole
 * by cgr__batch_validate, which alone finds what is wrong with one.
 *
 * A batch that is prepared and then cancelled stays the members: the next batch is compared with it. No row's length or last
 * token changes before a launch. */
#ifndef CGR_REQUESTS_FOLLOW_H
#define CGR_REQUESTS_FOLLOW_H

#include "requests/batch.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Whether the batch repeats the last one and needs no further look; if so, *checked describes it. */
bool cgr__follow_repeats(cgr__lane_batches *batches, const cgr_batch *batch, cgr__checked_batch *checked);
/* Whether the batch is surely good, and nearly the last one; if so, the members follow it, and *checked describes it. If it is
 * not, the members may by then be those of the last batch. */
bool cgr__follow_batch(cgr__rows *rows, cgr__lane_batches *batches, const cgr_batch *batch, int32_t max_requests,
                       int32_t max_tokens, cgr__checked_batch *checked);

/* A row that closes leaves the members. */
void cgr__follow_close(cgr__rows *rows, int32_t row);
/* The members follow no more: there are none. Does nothing unless they follow. */
void cgr__follow_drop(cgr__rows *rows, cgr__lane_batches *batches);
static inline void cgr__follow_end(cgr__rows *rows, cgr__lane_batches *batches) {
  if (batches->members.follows)
    cgr__follow_drop(rows, batches);
}

#ifdef __cplusplus
}
#endif

#endif

/* The steady batch, whose steps are added to its rows when these are read; and the schedule of its pages. */
#ifndef CGR_REQUESTS_STEADY_H
#define CGR_REQUESTS_STEADY_H

#include "requests/rows.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Adds the pending steps of a steady batch to its rows. */
void cgr__steady_add_pending(cgr__rows *rows, cgr__steady *steady);
/* Brings the rows up to date with the steady batch of every lane. */
static inline void cgr__rows_sync(cgr__rows *rows) {
  if (rows->batches->steady.pending > 0)
    cgr__steady_add_pending(rows, &rows->batches->steady);
}
/* The same, before a change to anything that a steady batch's headroom rests on. */
void cgr__rows_leave_steady(cgr__rows *rows);
/* A whole batch was launched: the members of every standing batch are looked at anew. */
static inline void cgr__rows_make_members_stale(cgr__rows *rows) { rows->batches->steady.standing_stale = true; }
/* Schedules the rows of the steady batch, which has just been validated. */
void cgr__steady_schedule(cgr__rows *rows, cgr__lane_batches *batches);
/* The steady batch whose schedule has the row; NULL: none has. */
cgr__steady *cgr__steady_of_row(const cgr__rows *rows, int32_t row);
/* A row has got pages. Does nothing for rows that are in no schedule. */
void cgr__steady_add_pages(cgr__rows *rows, int32_t row);

#ifdef __cplusplus
}
#endif

#endif

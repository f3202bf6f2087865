/* Members: requests that stay in the batch from step to step (standing.h, follow.h), as far as rows, pages, changes and batches
 * need to know them.
 *
 * The cost of a step on the host depends on what has changed, not on how many members there are:
 * - Rows are not touched step by step. `steps` counts the steps, and a member's are added when it is read (cgr__members_sync).
 * - A member that runs out of pages is found in time: the schedule counts it under the step at which it may no longer fit, and
 *   moves it when it gets pages.
 * - Members that need a look at every step are listed (`irregular`), and those that lack a token for the next one are counted
 *   (lacks_token).
 * - What the device must be told is kept by place (`dirty`) until a launch has told it; a cancelled step clears nothing.
 * - Results refer to rows and tags as they were, in a copy that the edit log brings up to date. */
#ifndef CGR_REQUESTS_MEMBERS_H
#define CGR_REQUESTS_MEMBERS_H

#include "buffers/ring_slot.h"
#include "requests/rows.h"
#include "requests/schedule.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Adds the steps of the members that a row does not have yet. Rows that are not members have them all. */
void cgr__members_sync(cgr__rows *rows, int32_t row);
/* The row's work, length or last token has changed, or it has lost pages. Does nothing for rows that are not members. */
void cgr__members_revalidate(cgr__rows *rows, int32_t row);
/* The row has got pages. Does nothing for rows that are not members. */
void cgr__members_add_pages(cgr__rows *rows, int32_t row);
/* The row is no longer a member. */
void cgr__members_leave(cgr__rows *rows, int32_t row);

/* Counts a member's new tokens, or no longer (`sign` is -1). */
static inline void cgr__members_count(cgr__members *s, int32_t query_len, int32_t sign) {
  if (query_len <= 1)
    s->num_short[query_len] += sign;
  s->sum_tokens += sign * query_len;
}

/* Appends to the list of irregular members; takes a row that may be in it out. */
void cgr__members_list(cgr__rows *rows, cgr__members *s, int32_t row);
void cgr__members_unlist(cgr__rows *rows, cgr__members *s, int32_t row);

/* Whether a member lacks pages for the next step; *missing: which. Members are looked at only where the schedule says that one
 * may: hardly ever, because a member that gets pages is scheduled anew. */
bool cgr__members_find_missing(cgr__rows *rows, const cgr__members *s, int32_t *missing);
static inline bool cgr__members_lack_pages(cgr__rows *rows, const cgr__members *s, int32_t *missing) {
  return !cgr__schedule_is_free(s->schedule, s->steps) && cgr__members_find_missing(rows, s, missing);
}

/* The device has something else at this place, or nothing. */
void cgr__members_mark_dirty(cgr__members *s, int32_t place);
/* Another row is at this place now. Its work is row->query_len and `flags`. */
void cgr__members_write_place(cgr__rows *rows, cgr__members *s, int32_t place, int32_t row, uint32_t flags);
/* There is another row at this place, or no longer one: results of earlier steps keep their copies. */
static inline void cgr__members_note_edit(cgr__members *s, int32_t place) {
  s->edit_log[s->version++ % CGR__EDIT_LOG] = place;
  s->copy = NULL;
}
/* The same of so many places that no copy can be brought up to date by the log. */
static inline void cgr__members_note_edits(cgr__members *s) {
  s->version += CGR__EDIT_LOG;
  s->copy = NULL;
}
void cgr__members_clear_dirty(cgr__members *s);
/* The device has been told everything: its batch layout is that of step `device_seq`. */
static inline void cgr__members_told(cgr__members *s, uint64_t device_seq) {
  if (s->num_dirty > 0 || s->all_dirty)
    cgr__members_clear_dirty(s);
  s->device_seq = device_seq;
}

/* Whether a member that has tokens has a `shared_prefix`: it was given the next one, so it is irregular. */
bool cgr__members_append_first(const cgr__rows *rows, const cgr__members *s);

/* What the result of a step that is launched now refers to. Only its num_requests, rows and tags are valid. */
cgr__batch_layout *cgr__members_take_copy(cgr__lane_batches *batches);
static inline cgr__batch_layout *cgr__members_snapshot(cgr__lane_batches *batches) {
  return batches->members.copy ? batches->members.copy : cgr__members_take_copy(batches);
}

/* Writes what the device must be told: with `whole` only the tokens, because it gets the batch layout separately. Returns the
 * number of edits, at most max_requests; *num_tokens is the number of their tokens, at most max_tokens. */
int32_t cgr__members_edits(const cgr__rows *rows, const cgr__lane_batches *batches, bool whole, cgr__edit *edits, int32_t *tokens,
                           int32_t *num_tokens);

/* A step of the members was launched as `seq`, also of ones that follow: tokens are used up, and the device has been told
 * everything. The batch layout that it has is that of step `device_seq`. */
void cgr__members_commit(cgr__rows *rows, cgr__lane_batches *batches, uint64_t seq, uint64_t device_seq);

#ifdef __cplusplus
}
#endif

#endif

/* Members of the standing batch: brought up to date, and looked at when something about them has changed. */
#include "requests/members.h"

#include "requests/schedule.h"

_Static_assert(sizeof(cgr__row) == CGR__ROW_BYTES, "a row is one cache line");
/* Between two steps there may be more members than a step of the schedule can count. The count then wraps, and is right again
 * once there are few enough. */
_Static_assert(CGR__MAX_REQUESTS < 1 << 16, "a step of a schedule counts every row of a batch");

/* ------------------------------------------------------------------------------------------------------------------- rows */

/* Adds the standing steps since the member was looked at last. */
static void add_steps(const cgr__standing *s, cgr__row *row) {
  row->computed = cgr__member_computed(s, row);
  row->since = s->steps;
  row->last_seq = s->last_seq;
  if (row->query_len > 0) /* a partial chunk leaves the row without a token to go on with */
    row->has_token = !(s->members.flags[row->position] & CGR_REQUEST_PARTIAL);
}

static inline void sync_member(const cgr__standing *s, cgr__row *row) {
  if (row->since != s->steps)
    add_steps(s, row);
}

void cgr__members_sync(cgr__rows *rows, int32_t row) {
  if (rows->row[row].position >= 0)
    sync_member(&cgr__rows_batches_of(rows, row)->standing, &rows->row[row]);
}

/* Whether the next step would lack a token of this row. */
static bool lacks_token(const cgr__standing *s, const cgr__row *row, int32_t index) {
  int32_t first = row->irregular ? s->irregular[index].first_token : CGR__TOKEN_LAST_GIVEN;
  if (row->query_len == 0)
    return false;
  if (first == CGR__TOKENS_USED_UP)
    return true;
  return (first == CGR__TOKEN_LAST_GIVEN || s->tokens[first] == CGR_TOKEN_LAST) && !row->has_token;
}

static void set_lacks_token(cgr__standing *s, cgr__row *row, bool lacks_token) {
  s->num_lacking_tokens += lacks_token - row->lacks_token;
  row->lacks_token = lacks_token;
}

/* --------------------------------------------------------------------------------------------------------------- schedule */

static void unschedule_member(const cgr__standing *s, cgr__row *row) {
  if (row->deadline >= 0)
    cgr__schedule_remove(s->schedule, row->deadline);
  row->deadline = -1;
}

/* A row without tokens always fits. */
static void schedule_member(const cgr__standing *s, cgr__row *row) {
  unschedule_member(s, row);
  if (row->query_len > 0)
    row->deadline =
        cgr__schedule_add(s->schedule, s->steps, cgr__steps_that_fit(row, cgr__member_computed(s, row), row->query_len));
}

void cgr__members_add_pages(cgr__rows *rows, int32_t row) {
  const cgr__lane_batches *batches = cgr__rows_batches_of(rows, row);
  if (rows->row[row].position >= 0 && !batches->steady.standing_stale) /* else every member is looked at again */
    schedule_member(&batches->standing, &rows->row[row]);
}

void cgr__members_revalidate(cgr__rows *rows, int32_t index) {
  cgr__standing *s = &cgr__rows_batches_of(rows, index)->standing;
  cgr__row *row = &rows->row[index];
  if (row->position < 0)
    return;
  sync_member(s, row);
  set_lacks_token(s, row, lacks_token(s, row, index));
  schedule_member(s, row);
}

void cgr__members_leave(cgr__rows *rows, int32_t index) {
  cgr__standing *s = &cgr__rows_batches_of(rows, index)->standing;
  cgr__row *row = &rows->row[index];
  sync_member(s, row);
  set_lacks_token(s, row, false);
  unschedule_member(s, row);
  row->position = -1;
}

/* Members of the standing batch: brought up to date, and looked at when something about them has changed. */
#include "requests/members.h"

#include "requests/schedule.h"

_Static_assert(sizeof(cgr__row) == CGR__ROW_BYTES, "a row is one line");
/* Between two steps there may be more members than a step of the schedule can count. The count then wraps, and is right again
 * once there are few enough. */
_Static_assert(CGR__MAX_REQUESTS < 1 << 16, "a step of a schedule counts every row of a batch");

void cgr__members_init(cgr__rows *rows) {
  cgr__standing *s = &rows->standing;
  s->version = 1;
  s->first_irregular = s->last_irregular = -1;
  for (int32_t i = 0; i < rows->limits->max_rows; i++) {
    rows->row[i].position = -1;
    rows->row[i].deadline = -1;
  }
}

/* ------------------------------------------------------------------------------------------------------------------- rows */

void cgr__members_sync(cgr__rows *rows, int32_t index) {
  cgr__standing *s = &rows->standing;
  cgr__row *row = &rows->row[index];
  if (row->position < 0 || row->since == s->steps)
    return;
  row->computed = cgr__rows_computed(rows, index);
  row->since = s->steps;
  row->last_seq = s->last_seq;
  if (row->query_len > 0) /* a partial chunk leaves the row without a token to go on with */
    row->has_token = !(s->members.flags[row->position] & CGR_REQUEST_PARTIAL);
}

/* Whether the next step would lack a token of this row. */
static bool lacks_token(const cgr__rows *rows, int32_t index) {
  const cgr__standing *s = &rows->standing;
  const cgr__row *row = &rows->row[index];
  int32_t first = row->irregular ? s->irregular[index].first_token : -1;
  if (row->query_len == 0)
    return false;
  if (first < 0)
    return row->query_len > 1 || !row->has_token;
  return s->tokens[first] == CGR_TOKEN_LAST && !row->has_token;
}

static void set_lacks_token(cgr__rows *rows, int32_t index, bool lacks_token) {
  rows->standing.num_lacking_tokens += lacks_token - rows->row[index].lacks_token;
  rows->row[index].lacks_token = lacks_token;
}

/* --------------------------------------------------------------------------------------------------------------- schedule */

static void unschedule_member(cgr__rows *rows, int32_t index) {
  if (rows->row[index].deadline >= 0)
    cgr__schedule_remove(rows->standing.schedule, rows->row[index].deadline);
  rows->row[index].deadline = -1;
}

/* A row without tokens always fits. */
static void schedule_member(cgr__rows *rows, int32_t index) {
  const cgr__standing *s = &rows->standing;
  cgr__row *row = &rows->row[index];
  unschedule_member(rows, index);
  if (row->query_len > 0)
    row->deadline =
        cgr__schedule_add(s->schedule, s->steps, cgr__steps_that_fit(row, cgr__rows_computed(rows, index), row->query_len));
}

void cgr__members_add_pages(cgr__rows *rows, int32_t row) {
  if (rows->row[row].position >= 0 && !rows->standing_stale) /* else every member is looked at again */
    schedule_member(rows, row);
}

void cgr__members_revalidate(cgr__rows *rows, int32_t row) {
  if (rows->row[row].position < 0)
    return;
  cgr__members_sync(rows, row);
  set_lacks_token(rows, row, lacks_token(rows, row));
  schedule_member(rows, row);
}

void cgr__members_leave(cgr__rows *rows, int32_t row) {
  cgr__members_sync(rows, row);
  set_lacks_token(rows, row, false);
  unschedule_member(rows, row);
  rows->row[row].position = -1;
}

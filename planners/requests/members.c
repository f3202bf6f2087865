/* Members of the standing batch: brought up to date, and looked at when something about them has changed. */
#include "planners/requests/members.h"

_Static_assert(sizeof(cgr__row) == CGR__ROW_BYTES, "a row is one line");

void cgr__members_init(cgr__rows *rows) {
  cgr__standing *s = &rows->standing;
  s->version = 1;
  s->first_special = s->last_special = -1;
  for (int32_t b = 0; b < CGR__CALENDAR; b++)
    s->calendar[b] = -1;
  for (int32_t i = 0; i < rows->max_rows; i++) {
    rows->row[i].position = -1;
    rows->row[i].bucket = -1;
  }
}

/* ------------------------------------------------------------------------------------------------------------------- rows */

void cgr__members_settle(cgr__rows *rows, int32_t index) {
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

/* Whether the next step would find a token of the row's missing. */
static bool lacks_token(const cgr__rows *rows, int32_t index) {
  const cgr__standing *s = &rows->standing;
  const cgr__row *row = &rows->row[index];
  int32_t first = row->special ? s->special[index].first_token : -1;
  if (row->query_len == 0)
    return false;
  if (first < 0)
    return row->query_len > 1 || !row->has_token;
  return s->tokens[first] == CGR_TOKEN_LAST && !row->has_token;
}

static void set_needy(cgr__rows *rows, int32_t index, bool needy) {
  rows->standing.num_needy += needy - rows->row[index].needy;
  rows->row[index].needy = needy;
}

/* --------------------------------------------------------------------------------------------------------------- calendar */

static void unfile(cgr__rows *rows, int32_t index) {
  cgr__row *row = &rows->row[index];
  if (row->bucket < 0)
    return;
  if (row->prev >= 0)
    rows->row[row->prev].next = row->next;
  else
    rows->standing.calendar[row->bucket] = row->next;
  if (row->next >= 0)
    rows->row[row->next].prev = row->prev;
  row->bucket = -1;
}

/* Further steps that fit a settled row. Most members decode: no division for them. */
static int32_t steps_that_fit(const cgr__row *row) {
  int32_t room = row->capacity - row->computed;
  return room <= 0 || row->query_len == 1 ? room : room / row->query_len;
}

/* Under the step at which it may not fit any more, or the furthest that there is a bucket for. A row without tokens always fits.
 */
static void file(cgr__rows *rows, int32_t index) {
  cgr__standing *s = &rows->standing;
  cgr__row *row = &rows->row[index];
  unfile(rows, index);
  if (row->query_len == 0)
    return;
  int32_t fit = steps_that_fit(row);
  fit = fit < 0 ? 0 : fit < CGR__CALENDAR - 1 ? fit : CGR__CALENDAR - 1;
  row->bucket = (int16_t)((s->steps + (uint64_t)fit) % CGR__CALENDAR);
  row->prev = -1;
  row->next = s->calendar[row->bucket];
  if (row->next >= 0)
    rows->row[row->next].prev = index;
  s->calendar[row->bucket] = index;
}

void cgr__members_look_again(cgr__rows *rows, int32_t row) {
  if (rows->row[row].position < 0)
    return;
  cgr__members_settle(rows, row);
  set_needy(rows, row, lacks_token(rows, row));
  file(rows, row);
}

void cgr__members_leave(cgr__rows *rows, int32_t row) {
  cgr__members_settle(rows, row);
  set_needy(rows, row, false);
  unfile(rows, row);
  rows->row[row].position = -1;
}

/* Members of the batch that stays from step to step: brought up to date, and looked at when something about them has changed. */
#include "requests/members.h"

#include <string.h>

#include "requests/schedule.h"

_Static_assert(sizeof(cgr__row) == CGR__ROW_BYTES, "a row is one cache line");
/* Between two steps there may be more members than a step of the schedule can count. The count then wraps, and is right again
 * once there are few enough. */
_Static_assert(CGR__MAX_REQUESTS < 1 << 16, "a step of a schedule counts every row of a batch");

/* ------------------------------------------------------------------------------------------------------------------- rows */

/* Adds the steps since the member was looked at last. */
static void add_steps(const cgr__members *s, cgr__row *row) {
  row->computed = cgr__member_computed(s, row);
  row->since = s->steps;
  row->last_seq = s->last_seq;
  if (row->query_len > 0 && !row->ended) /* a partial chunk leaves the row without a token to go on with */
    row->has_token = !row->partial;
}

static inline void sync_member(const cgr__members *s, cgr__row *row) {
  if (row->since != s->steps)
    add_steps(s, row);
}

void cgr__members_sync(cgr__rows *rows, int32_t row) {
  if (rows->row[row].place >= 0)
    sync_member(&cgr__rows_batches_of(rows, row)->members, &rows->row[row]);
}

/* Whether the next step would lack a token of this row. */
static bool lacks_token(const cgr__members *s, const cgr__row *row, int32_t index) {
  int32_t first = row->irregular ? s->irregular[index].first_token : CGR__TOKEN_LAST_GIVEN;
  if (row->query_len == 0)
    return false;
  if (first == CGR__TOKENS_USED_UP)
    return true;
  return (first == CGR__TOKEN_LAST_GIVEN || s->tokens[first] == CGR_TOKEN_LAST) && !row->has_token;
}

static void set_lacks_token(cgr__members *s, cgr__row *row, bool lacks_token) {
  s->num_lacking_tokens += lacks_token - row->lacks_token;
  row->lacks_token = lacks_token;
}

/* -------------------------------------------------------------------------------------------------------------- irregular */

void cgr__members_list(cgr__rows *rows, cgr__members *s, int32_t row) {
  s->irregular[row].prev = s->last_irregular;
  s->irregular[row].next = -1;
  if (s->last_irregular >= 0)
    s->irregular[s->last_irregular].next = row;
  else
    s->first_irregular = row;
  s->last_irregular = row;
  s->num_irregular++;
  rows->row[row].irregular = true;
}

void cgr__members_unlist(cgr__rows *rows, cgr__members *s, int32_t row) {
  const cgr__irregular *entry = &s->irregular[row];
  if (!rows->row[row].irregular)
    return;
  if (entry->prev >= 0)
    s->irregular[entry->prev].next = entry->next;
  else
    s->first_irregular = entry->next;
  if (entry->next >= 0)
    s->irregular[entry->next].prev = entry->prev;
  else
    s->last_irregular = entry->prev;
  s->num_irregular--;
  rows->row[row].irregular = false;
}

bool cgr__members_append_first(const cgr__rows *rows, const cgr__members *s) {
  bool first = false;
  for (int32_t row = s->first_irregular; row >= 0; row = s->irregular[row].next)
    first |= rows->row[row].shared_prefix && rows->row[row].query_len > 0;
  return first;
}

/* While the members follow, only those that a step may treat unlike a plain decode or chunk are listed. */
static void list_follower(cgr__rows *rows, cgr__members *s, int32_t index) {
  const cgr__row *row = &rows->row[index];
  if (row->irregular == (row->partial || row->shared_prefix || !row->has_token))
    return;
  if (row->irregular) {
    cgr__members_unlist(rows, s, index);
    return;
  }
  s->irregular[index].first_token = CGR__TOKEN_LAST_GIVEN;
  cgr__members_list(rows, s, index);
}

/* --------------------------------------------------------------------------------------------------------------- schedule */

static void unschedule_member(const cgr__members *s, cgr__row *row) {
  if (row->deadline >= 0)
    cgr__schedule_remove(s->schedule, row->deadline);
  row->deadline = -1;
}

/* A row without tokens always fits. */
static void schedule_member(const cgr__members *s, cgr__row *row) {
  unschedule_member(s, row);
  if (row->query_len > 0)
    row->deadline =
        cgr__schedule_add(s->schedule, s->steps, cgr__steps_that_fit(row, cgr__member_computed(s, row), row->query_len));
}

void cgr__members_add_pages(cgr__rows *rows, int32_t row) {
  const cgr__members *s = &cgr__rows_batches_of(rows, row)->members;
  if (rows->row[row].place >= 0 && !s->stale) /* else every member is looked at again */
    schedule_member(s, &rows->row[row]);
}

void cgr__members_revalidate(cgr__rows *rows, int32_t index) {
  cgr__members *s = &cgr__rows_batches_of(rows, index)->members;
  cgr__row *row = &rows->row[index];
  if (row->place < 0)
    return;
  sync_member(s, row);
  if (s->follows)
    list_follower(rows, s, index);
  set_lacks_token(s, row, lacks_token(s, row, index));
  schedule_member(s, row);
}

void cgr__members_leave(cgr__rows *rows, int32_t index) {
  cgr__members *s = &cgr__rows_batches_of(rows, index)->members;
  cgr__row *row = &rows->row[index];
  sync_member(s, row);
  set_lacks_token(s, row, false);
  unschedule_member(s, row);
  row->place = -1;
}

bool cgr__members_find_missing(cgr__rows *rows, const cgr__members *s, int32_t *missing) {
  for (int32_t i = 0; i < s->layout.num_requests; i++) {
    int32_t index = s->layout.rows[i];
    if (index < 0 || rows->row[index].deadline != (int16_t)(s->steps % CGR__SCHEDULE_STEPS))
      continue;
    cgr__members_revalidate(rows, index); /* to a later deadline, or back to this one */
    *missing = index;
    if (!cgr__row_can_step(&rows->row[index], rows->row[index].query_len))
      return true;
  }
  return false;
}

/* -------------------------------------------------------------------------------------------------------------- places */

void cgr__members_mark_dirty(cgr__members *s, int32_t place) {
  uint64_t *word = &s->dirty_bit[place / 64], bit = (uint64_t)1 << place % 64;
  if (*word & bit)
    return;
  *word |= bit;
  s->dirty[s->num_dirty++] = place;
}

void cgr__members_write_place(cgr__rows *rows, cgr__members *s, int32_t place, int32_t row, uint32_t flags) {
  rows->row[row].place = place;
  s->layout.rows[place] = row;
  s->layout.query_lens[place] = rows->row[row].query_len;
  s->layout.flags[place] = flags;
  s->layout.tags[place] = rows->row[row].tag;
  cgr__members_mark_dirty(s, place);
  cgr__members_note_edit(s, place);
}

void cgr__members_clear_dirty(cgr__members *s) {
  for (int32_t i = 0; i < s->num_dirty; i++)
    s->dirty_bit[s->dirty[i] / 64] = 0;
  s->num_dirty = 0;
  s->all_dirty = false;
}

/* --------------------------------------------------------------------------------------------------------------- snapshots */

/* Brings rows and tags up to date: from the edit log if it reaches that far and is less work. */
static void bring_up(const cgr__members *s, cgr__batch_layout *copy) {
  const cgr__batch_layout *layout = &s->layout;
  size_t n = (size_t)layout->num_requests;
  if (copy->version == 0 || s->version - copy->version > CGR__EDIT_LOG / 2) {
    memcpy(copy->rows, layout->rows, n * sizeof *copy->rows);
    memcpy(copy->tags, layout->tags, n * sizeof *copy->tags);
  } else {
    for (uint64_t v = copy->version; v < s->version; v++) {
      int32_t place = s->edit_log[v % CGR__EDIT_LOG];
      if (place >= layout->num_requests) /* by now, and perhaps past the end of the copy */
        continue;
      copy->rows[place] = layout->rows[place];
      copy->tags[place] = layout->tags[place];
    }
  }
  copy->version = s->version;
}

/* Of the copies that are not referred to, the one with the latest edits. */
static cgr__batch_layout *free_copy(const cgr__lane_batches *batches) {
  const cgr__batch_layouts *pool = &batches->layouts;
  cgr__batch_layout *latest = NULL;
  for (int32_t i = 0; i < pool->depth + CGR__SPARE_BATCH_LAYOUTS; i++) {
    cgr__batch_layout *c = &pool->all[i];
    if (c->uses == 0 && c != batches->last && (!latest || c->version > latest->version))
      latest = c;
  }
  return latest;
}

cgr__batch_layout *cgr__members_take_copy(cgr__lane_batches *batches) {
  cgr__members *s = &batches->members;
  s->copy = free_copy(batches);
  bring_up(s, s->copy);
  s->copy->program = 0;
  s->copy->num_requests = s->layout.num_requests;
  return s->copy;
}

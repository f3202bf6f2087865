#include "requests/follow.h"

#include <string.h>

#include "requests/difference.h"
#include "requests/members.h"
#include "requests/schedule.h"
#include "requests/tokens.h"

/* -------------------------------------------------------------------------------------------------------- members that follow */

/* A row's work counts, or no longer (`sign` is -1). */
static void count_work(cgr__members *s, const cgr__row *row, int32_t sign) {
  cgr__members_count(s, row->query_len, sign);
  s->layout.num_partial = (uint16_t)(s->layout.num_partial + sign * row->partial);
}

static void give_work(cgr__rows *rows, cgr__members *s, int32_t index, int32_t query_len, uint32_t flags) {
  cgr__row *row = &rows->row[index];
  row->query_len = query_len;
  row->partial = (flags & CGR_REQUEST_PARTIAL) != 0;
  count_work(s, row, 1);
  cgr__members_revalidate(rows, index);
}

static void enter(cgr__rows *rows, cgr__members *s, int32_t index, int32_t place, int32_t query_len, uint32_t flags) {
  rows->row[index].since = s->steps;
  rows->row[index].place = place;
  give_work(rows, s, index, query_len, flags);
}

static void leave(cgr__rows *rows, cgr__members *s, int32_t index) {
  count_work(s, &rows->row[index], -1);
  cgr__members_unlist(rows, s, index);
  cgr__members_leave(rows, index);
}

/* Gives a member other work. */
static void change_work(cgr__rows *rows, cgr__members *s, int32_t index, int32_t query_len, uint32_t flags) {
  cgr__members_sync(rows, index);
  count_work(s, &rows->row[index], -1);
  give_work(rows, s, index, query_len, flags);
}

void cgr__follow_drop(cgr__rows *rows, cgr__lane_batches *batches) {
  cgr__members *s = &batches->members;
  for (int32_t i = 0; i < s->layout.num_requests; i++)
    if (s->layout.rows[i] >= 0)
      leave(rows, s, s->layout.rows[i]);
  cgr__members_note_edit(s, 0);
  s->layout.num_requests = s->num_holes = 0;
  s->follows = false;
}

/* How far a row has usually moved since it was last looked for. */
#define NEAR 16

/* Where a member is in a list that has it: searched from its last place outwards, then from the beginning. */
static int32_t place_of(cgr__rows *rows, int32_t index, const int32_t *list, int32_t count) {
  int32_t *place = &rows->row[index].place, hint = *place;
  for (int32_t d = 0; d < NEAR; d++) {
    if (hint - d >= 0 && hint - d < count && list[hint - d] == index)
      return *place = hint - d;
    if (hint + d < count && list[hint + d] == index)
      return *place = hint + d;
  }
  for (*place = 0; list[*place] != index;)
    (*place)++;
  return *place;
}

/* A closed row leaves a hole, -1. A batch may have -1 there too: batch_repeats refuses a batch while query_len is 0, and
 * mark_leaving one that leaves a hole in place. */
void cgr__follow_close(cgr__rows *rows, int32_t row) {
  cgr__members *s = &cgr__rows_batches_of(rows, row)->members;
  s->layout.rows[place_of(rows, row, s->layout.rows, s->layout.num_requests)] = -1;
  s->layout.query_len = 0;
  s->num_holes++;
  leave(rows, s, row);
}

static void find_shape_of_followed(cgr__members *s) {
  cgr__batch_layout *layout = &s->layout;
  int32_t n = layout->num_requests, longest = layout->query_lens[0], shortest = longest;
  for (int32_t i = 1; s->num_short[1] != n && i < n; i++) {
    int32_t query_len = layout->query_lens[i];
    longest = query_len > longest ? query_len : longest;
    shortest = query_len < shortest ? query_len : shortest;
  }
  layout->num_tokens = (int32_t)s->sum_tokens;
  layout->max_query_len = longest;
  layout->query_len = longest == shortest && s->num_holes == 0 ? longest : 0; /* no batch repeats one with a hole */
}

/* The batch that was given whole last becomes the members. Its rows may have been closed since, or have another request. */
static void follow_last(cgr__rows *rows, cgr__lane_batches *batches) {
  cgr__members *s = &batches->members;
  cgr__batch_layout *last = batches->last, *layout = &s->layout;
  size_t n = (size_t)last->num_requests;
  bool same_tags = true;
  cgr__follow_end(rows, batches);
  s->follows = true;
  s->stale = false;
  cgr__members_told(s, batches->last_device_seq);
  layout->num_requests = last->num_requests;
  memcpy(layout->rows, last->rows, n * sizeof *layout->rows);
  memcpy(layout->query_lens, last->query_lens, n * sizeof *layout->query_lens);
  memcpy(layout->flags, last->flags, n * sizeof *layout->flags);
  for (int32_t i = 0; i < layout->num_requests; i++) {
    int32_t row = layout->rows[i];
    layout->tags[i] = rows->row[row].tag;
    same_tags &= layout->tags[i] == last->tags[i];
    if (rows->row[row].open) {
      enter(rows, s, row, i, layout->query_lens[i], layout->flags[i]);
    } else {
      layout->rows[i] = -1;
      s->num_holes++;
    }
  }
  find_shape_of_followed(s);
  cgr__members_note_edits(s);
  if (same_tags) {
    s->copy = last;
    last->version = s->version;
  }
  batches->last = NULL;
}

/* ---------------------------------------------------------------------------------------------------------------------- look */

#define MAX_LACKING (CGR__MAX_DIFFERENCES + CGR__MAX_DIFFERENCES / 2) /* requests that come, and irregular members */

/* What a batch comes to that nearly is the last one. */
typedef struct look {
  const cgr_batch *batch;
  const cgr__difference *difference;
  uint64_t leaving, coming; /* marks of rows in a stretch of the old batch, and in one of the new */
  int64_t num_tokens;
  int32_t num_short[2];
  int32_t num_lacking; /* requests whose last token is not on the device, as far as they are noted */
  int32_t *lacking;    /* [MAX_LACKING] */
} look;

static void note_lacking(look *l, int32_t place) { l->lacking[l->num_lacking++] = place; }

static void count(look *l, int32_t query_len, int32_t sign) {
  l->num_tokens += sign * (int64_t)query_len;
  if (query_len <= 1)
    l->num_short[query_len] += sign;
}

static bool work_is_good(cgr__rows *rows, look *l, int32_t index, int32_t place) {
  int32_t query_len = cgr__batch_query_len(l->batch, place);
  if (query_len < 0 || !cgr__batch_flags_are_good(l->batch, place))
    return false;
  cgr__members_sync(rows, index);
  count(l, query_len, 1);
  return cgr__row_can_step(&rows->row[index], query_len);
}

/* A request in a stretch: it comes, or has another place. */
static bool coming_is_good(cgr__rows *rows, look *l, int32_t place) {
  int32_t index = l->batch->rows[place];
  if (index < 0 || index >= rows->limits->max_rows || !rows->row[index].open)
    return false;
  cgr__row *row = &rows->row[index];
  if (row->mark == l->coming || (row->place >= 0 && row->mark != l->leaving))
    return false; /* it is in the batch twice */
  row->mark = l->coming;
  if (!work_is_good(rows, l, index, place))
    return false;
  if (!row->has_token)
    note_lacking(l, place);
  return true;
}

static bool look_at_coming(cgr__rows *rows, look *l) {
  for (int32_t k = 0; k < l->difference->num_stretches; k++)
    for (int32_t i = l->difference->stretch[k].first; i < l->difference->stretch[k].end; i++)
      if (!coming_is_good(rows, l, i))
        return false;
  return true;
}

/* Marks and uncounts the requests in stretches of the old batch. False: a hole is in none of them, so the batch has no row there.
 */
static bool mark_leaving(cgr__rows *rows, const cgr__members *s, look *l) {
  int32_t holes = 0;
  for (int32_t k = 0; k < l->difference->num_stretches; k++) {
    const cgr__stretch *stretch = &l->difference->stretch[k];
    for (int32_t i = stretch->old_first; i < stretch->old_end; i++) {
      holes += s->layout.rows[i] < 0;
      if (s->layout.rows[i] < 0)
        continue;
      rows->row[s->layout.rows[i]].mark = l->leaving;
      count(l, s->layout.query_lens[i], -1);
    }
  }
  return holes == s->num_holes;
}

static bool look_at_updates(cgr__rows *rows, look *l) {
  for (int32_t k = 0; k < l->difference->num_updates; k++) {
    int32_t place = l->difference->update[k], index = l->batch->rows[place];
    count(l, rows->row[index].query_len, -1);
    if (!work_is_good(rows, l, index, place))
      return false;
  }
  return true;
}

/* -------------------------------------------------------------------------------------------------------------------- tokens */

static int32_t start_of(const cgr_batch *batch, int32_t place) {
  int32_t start = 0;
  if (!batch->query_lens)
    return place;
  for (int32_t i = 0; i < place; i++)
    start += batch->query_lens[i];
  return start;
}

/* Ids, and CGR_TOKEN_LAST as the first of a request's. */
static bool tokens_of_requests_are_good(const cgr_batch *batch) {
  const int32_t *tokens = batch->tokens;
  for (int32_t i = 0; i < batch->num_requests; i++) {
    int32_t query_len = cgr__batch_query_len(batch, i);
    if (query_len > 0 &&
        (tokens[0] < CGR_TOKEN_LAST || (query_len > 1 && cgr__tokens_kind(tokens + 1, query_len - 1) != CGR__TOKENS_ARE_IDS)))
      return false;
    tokens += query_len;
  }
  return true;
}

/* Members that stay and have no token on the device are irregular. */
static void note_irregular(cgr__rows *rows, const cgr__members *s, look *l) {
  for (int32_t index = s->first_irregular; index >= 0; index = s->irregular[index].next) {
    const cgr__row *row = &rows->row[index];
    if (row->mark != l->leaving && row->mark != l->coming && !row->has_token)
      note_lacking(l, place_of(rows, index, l->batch->rows, l->batch->num_requests));
  }
}

static bool tokens_are_good(cgr__rows *rows, const cgr__members *s, look *l) {
  const cgr_batch *batch = l->batch;
  bool decodes = l->num_short[0] + l->num_short[1] == batch->num_requests;
  cgr__token_kind kind = batch->tokens ? cgr__tokens_kind(batch->tokens, (int32_t)l->num_tokens) : CGR__TOKENS_ARE_IDS_OR_LAST;
  if (kind == CGR__TOKENS_ARE_IDS)
    return true;
  if (batch->tokens && !(decodes ? kind == CGR__TOKENS_ARE_IDS_OR_LAST : tokens_of_requests_are_good(batch)))
    return false;
  note_irregular(rows, s, l);
  for (int32_t i = 0; i < l->num_lacking; i++)
    if (cgr__batch_query_len(batch, l->lacking[i]) > 0 &&
        (!batch->tokens || batch->tokens[start_of(batch, l->lacking[i])] == CGR_TOKEN_LAST))
      return false;
  return batch->tokens || decodes;
}

/* Whether there is room for the members while stretch after stretch is exchanged (move_places). */
static bool can_move(const cgr__rows *rows, const cgr__members *s, const cgr__difference *d) {
  int32_t n = s->layout.num_requests, most = n;
  for (int32_t k = 0; k < d->num_stretches; k++) {
    n += d->stretch[k].end - d->stretch[k].first - (d->stretch[k].old_end - d->stretch[k].old_first);
    most = n > most ? n : most;
  }
  return most <= rows->limits->max_rows;
}

/* Whether a batch that differs so much from the members is good. If it is not, members, lengths of rows and work stay as they
 * are; marks, hints of places and deadlines may be newer. */
static bool look_at_batch(cgr__rows *rows, const cgr__members *s, int32_t max_tokens, look *l) {
  int32_t missing;
  l->leaving = ++rows->ticket;
  l->coming = ++rows->ticket;
  return mark_leaving(rows, s, l) && look_at_coming(rows, l) && look_at_updates(rows, l) && can_move(rows, s, l->difference) &&
         l->num_tokens <= max_tokens && !cgr__members_lack_pages(rows, s, &missing) && tokens_are_good(rows, s, l);
}

/* -------------------------------------------------------------------------------------------------------------------- follow */

/* Copies words [first, end); the source may be NULL, and is `word` throughout then. */
static void copy_words(void *to, const void *from, int32_t word, int32_t first, int32_t end) {
  int32_t *words = to, i = first;
  if (from) {
    memcpy(words + first, (const int32_t *)from + first, (size_t)(end - first) * sizeof *words);
    return;
  }
  for (; i + CGR__WIDE_LOOP <= end; i += CGR__WIDE_LOOP)
    for (int32_t j = 0; j < CGR__WIDE_LOOP; j++)
      words[i + j] = word;
  for (; i < end; i++)
    words[i] = word;
}

/* Moves the tags of requests that have other places, and copies the rest from `first` on. */
static void move_places(cgr__members *s, const look *l) {
  const cgr__difference *d = l->difference;
  cgr__batch_layout *layout = &s->layout;
  int32_t first = d->stretch[0].first, n = layout->num_requests;
  for (int32_t k = 0; k < d->num_stretches; k++) {
    const cgr__stretch *h = &d->stretch[k];
    int32_t after = h->first + h->old_end - h->old_first; /* where those after the stretch are by now */
    if (after != h->end)
      memmove(layout->tags + h->end, layout->tags + after, (size_t)(n - after) * sizeof *layout->tags);
    n += h->end - after;
  }
  memcpy(layout->rows + first, l->batch->rows + first, (size_t)(n - first) * sizeof *layout->rows);
  copy_words(layout->query_lens, l->batch->query_lens, 1, first, n);
  copy_words(layout->flags, l->batch->flags, 0, first, n);
  layout->num_requests = n;
  s->all_dirty = true;
  cgr__members_note_edits(s);
}

/* All changes of the number of requests are at the end. */
static void resize(cgr__members *s, int32_t num_requests) {
  if (s->layout.num_requests != num_requests)
    cgr__members_note_edit(s, num_requests);
  s->layout.num_requests = num_requests;
}

static void let_leave(cgr__rows *rows, cgr__members *s, const look *l) {
  for (int32_t k = 0; k < l->difference->num_stretches; k++)
    for (int32_t i = l->difference->stretch[k].old_first; i < l->difference->stretch[k].old_end; i++)
      if (s->layout.rows[i] >= 0 && rows->row[s->layout.rows[i]].mark == l->leaving)
        leave(rows, s, s->layout.rows[i]);
}

static void let_come(cgr__rows *rows, cgr__members *s, const look *l, int32_t place) {
  int32_t index = l->batch->rows[place], query_len = cgr__batch_query_len(l->batch, place);
  uint32_t flags = cgr__batch_flags(l->batch, place);
  const cgr__row *row = &rows->row[index];
  if (row->place < 0)
    enter(rows, s, index, place, query_len, flags);
  else if (row->query_len != query_len || row->partial != (flags != 0))
    change_work(rows, s, index, query_len, flags);
  cgr__members_write_place(rows, s, place, index, flags);
}

static void update_members(cgr__rows *rows, cgr__members *s, const look *l) {
  const cgr__difference *d = l->difference;
  let_leave(rows, s, l);
  s->num_holes = 0;
  if (d->moves)
    move_places(s, l);
  else
    resize(s, l->batch->num_requests);
  for (int32_t k = 0; k < d->num_stretches; k++)
    for (int32_t i = d->stretch[k].first; i < d->stretch[k].end; i++)
      let_come(rows, s, l, i);
  for (int32_t k = 0; k < d->num_updates; k++) {
    int32_t place = d->update[k];
    s->layout.query_lens[place] = cgr__batch_query_len(l->batch, place);
    s->layout.flags[place] = cgr__batch_flags(l->batch, place);
    change_work(rows, s, s->layout.rows[place], s->layout.query_lens[place], s->layout.flags[place]);
    cgr__members_mark_dirty(s, place);
  }
}

/* Whether few enough members would be irregular if the members followed the last batch. */
static bool is_regular(const cgr__rows *rows, const cgr__batch_layout *last) {
  int32_t irregular = last->num_partial, few = cgr__few_of(last->num_requests) / 2;
  for (int32_t i = 0; irregular <= few && i < last->num_requests; i++)
    irregular += !rows->row[last->rows[i]].has_token || rows->row[last->rows[i]].shared_prefix;
  return irregular <= few;
}

/* Finds how the batch differs from the members, which become those of the last batch if that is the one to follow. */
static bool find_difference(cgr__rows *rows, cgr__lane_batches *batches, const cgr_batch *batch, cgr__difference *d) {
  cgr__members *s = &batches->members;
  const cgr__batch_layout *last = batches->last;
  if (s->follows && s->num_irregular <= cgr__few_of(batch->num_requests) / 2 && cgr__find_difference(&s->layout, batch, d))
    return true;
  /* Prefills of their own between steps of decodes leave the decodes as members. */
  if (!last || last->num_guessing > 0 || last->num_requests < s->num_short[0] + s->num_short[1] ||
      last->num_partial > cgr__few_of(last->num_requests) / 2)
    return false;
  if (!cgr__find_difference(last, batch, d) || !is_regular(rows, last))
    return false;
  follow_last(rows, batches);
  return s->num_holes == 0 || cgr__find_difference(&s->layout, batch, d);
}

bool cgr__follow_batch(cgr__rows *rows, cgr__lane_batches *batches, const cgr_batch *batch, int32_t max_requests,
                       int32_t max_tokens, cgr__checked_batch *checked) {
  cgr__members *s = &batches->members;
  cgr__difference difference;
  if (batch->num_requests <= 0 || batch->num_requests > max_requests || !batch->rows) /* arrays of too many are not read */
    return false;
  if (s->max_requests == 0 || (!s->follows && s->layout.num_requests > 0))
    return false;
  if (!find_difference(rows, batches, batch, &difference))
    return false;
  int32_t lacking[MAX_LACKING];
  look l = { .batch = batch, .difference = &difference, .num_tokens = s->sum_tokens, .lacking = lacking };
  memcpy(l.num_short, s->num_short, sizeof l.num_short);
  if (!look_at_batch(rows, s, max_tokens, &l))
    return false;
  update_members(rows, s, &l);
  if (difference.num_stretches + difference.num_updates > 0)
    find_shape_of_followed(s);
  cgr__batch_describe_members(&s->layout, false, cgr__members_append_first(rows, s), checked);
  return true;
}

/* ---------------------------------------------------------------------------------------------------------------- repetition */

static bool has_flag(const cgr_batch *batch) {
  uint32_t any = 0;
  for (int32_t i = 0; batch->flags && i < batch->num_requests; i++)
    any |= batch->flags[i];
  return any != 0;
}

/* The batch has the rows and the query lengths of the members, and no member is other than a decode or a whole chunk. */
static bool batch_repeats(const cgr__members *s, const cgr_batch *batch) {
  const cgr__batch_layout *layout = &s->layout;
  if (!s->follows || batch->num_requests != layout->num_requests || !batch->rows || s->first_irregular >= 0)
    return false;
  if (layout->query_len == 0 || (layout->query_len != 1 && !batch->query_lens) || has_flag(batch))
    return false;
  size_t bytes = (size_t)batch->num_requests * sizeof(int32_t);
  if (batch->query_lens && memcmp(batch->query_lens, layout->query_lens, bytes) != 0)
    return false;
  return memcmp(batch->rows, layout->rows, bytes) == 0;
}

bool cgr__follow_repeats(cgr__lane_batches *batches, const cgr_batch *batch, cgr__checked_batch *checked) {
  cgr__members *s = &batches->members;
  if (!batch_repeats(s, batch) || !cgr__schedule_is_free(s->schedule, s->steps))
    return false;
  cgr__token_kind worst = s->layout.query_len > 1 ? CGR__TOKENS_ARE_IDS : CGR__TOKENS_ARE_IDS_OR_LAST;
  if (batch->tokens ? cgr__tokens_kind(batch->tokens, s->layout.num_tokens) > worst : s->layout.query_len > 1)
    return false;
  cgr__batch_describe_members(&s->layout, false, false, checked);
  return true;
}

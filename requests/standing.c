/* Edits of the standing batch. What may not be together in one step may be together between two: standing_steps.c checks that. */
#include "requests/standing.h"

#include <string.h>

#include "base/choices.h"
#include "base/status.h"
#include "requests/follow.h"
#include "requests/guesses.h"

/* ----------------------------------------------------------------------------------------------------------------- tokens */

/* Moves together the tokens that are still to be used; they are in the order of the list. */
static void compact_tokens(const cgr__rows *rows, cgr__members *s) {
  s->num_tokens = 0;
  for (int32_t row = s->first_irregular; row >= 0; row = s->irregular[row].next) {
    cgr__irregular *entry = &s->irregular[row];
    int32_t count = rows->row[row].query_len;
    if (entry->first_token < 0)
      continue;
    memmove(s->tokens + s->num_tokens, s->tokens + entry->first_token, (size_t)count * sizeof *s->tokens);
    entry->first_token = s->num_tokens;
    s->num_tokens += count;
  }
}

/* At most max_kept tokens are kept: once the others' have been moved together there is room twice over. */
static int32_t keep_tokens(const cgr__rows *rows, cgr__members *s, const int32_t *tokens, int32_t count) {
  if (count > 2 * s->max_kept - s->num_tokens)
    compact_tokens(rows, s);
  int32_t first = s->num_tokens;
  memcpy(s->tokens + first, tokens, (size_t)count * sizeof *tokens);
  s->num_tokens += count;
  s->num_kept += count;
  return first;
}

/* Those of a row that are kept. */
static int32_t count_kept(const cgr__rows *rows, const cgr__members *s, int32_t row) {
  return rows->row[row].irregular && s->irregular[row].first_token >= 0 ? rows->row[row].query_len : 0;
}

void cgr__standing_use_up(cgr__rows *rows, cgr__lane_batches *batches, int32_t row) {
  cgr__members *s = &batches->members;
  const bool goes_on = cgr__flags_go_on(s->layout.flags[rows->row[row].place], rows->row[row].query_len);
  if (goes_on && s->irregular[row].first_token == CGR__TOKEN_LAST_GIVEN) {
    cgr__members_revalidate(rows, row);
    return;
  }
  s->num_kept -= count_kept(rows, s, row);
  s->sum_tokens -= cgr__standing_count(rows, batches, row);
  s->irregular[row].first_token = CGR__TOKENS_USED_UP;
  if (rows->row[row].query_len <= 1 && s->layout.flags[rows->row[row].place] == 0)
    cgr__members_unlist(rows, s, row); /* it goes on by itself */
  s->sum_tokens += cgr__standing_count(rows, batches, row);
  cgr__members_revalidate(rows, row);
}

/* ------------------------------------------------------------------------------------------------------------------ checks */

static cgr_status check_member(cgr__rows *rows, const char *function, int32_t row) {
  CGR__TRY(cgr__rows_check(rows, function, row));
  if (rows->row[row].place < 0 || cgr__rows_batches_of(rows, row)->members.follows)
    return cgr__fail(CGR_ERROR_STATE, "%s: row %d is not in the standing batch, expected a member (cgr_standing_add)", function,
                     row);
  return CGR_OK;
}

static cgr_status check_member_tokens(const char *function, const int32_t *tokens, int32_t count, uint32_t flags, int32_t most) {
  if (!tokens && count > 1 && !cgr__flags_go_on(flags, count))
    return cgr__fail(CGR_ERROR_NULL_POINTER, "%s: tokens is NULL, expected %d tokens", function, count);
  return tokens ? cgr__batch_check_ids(function, tokens, 0, count, cgr__flags_guesses(flags), most) : CGR_OK;
}

/* What a member is to do, by itself; `kept`: its tokens that are kept now. */
static cgr_status check_work(const cgr__rows *rows, const cgr__members *s, const char *function, int32_t kept, int32_t query_len,
                             const int32_t *tokens, uint32_t flags) {
  const int32_t most = cgr__rows_most_guesses(rows);
  int64_t all = (int64_t)s->num_kept - kept + query_len;
  if (query_len < 0)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "%s: query_len is %d, expected at least 0", function, query_len);
  CGR__TRY(cgr__check_choice(function, "flags", &cgr__request_flags, cgr__flags_but_guesses(flags)));
  if (cgr__flags_guesses(flags) > 0)
    CGR__TRY(cgr__guesses_check(function, "flags", flags, query_len, most));
  if (query_len > s->max_tokens)
    return cgr__fail(CGR_ERROR_TOO_MANY_TOKENS, "%s: query_len is %d, expected at most %d (max_tokens): no step has more",
                     function, query_len, s->max_tokens);
  if (tokens && all > s->max_kept)
    return cgr__fail(
        CGR_ERROR_TOO_MANY_TOKENS,
        "%s: query_len is %d, with which %lld tokens of the standing batch wait for a step, expected at most %d: set "
        "fewer for other rows, or take those out, before",
        function, query_len, (long long)all, s->max_kept);
  return check_member_tokens(function, tokens, query_len, flags, most);
}

/* ------------------------------------------------------------------------------------------------------------------- edits */

/* Clears a request's work; the row keeps its last query_len. */
static void drop_work(cgr__rows *rows, cgr__lane_batches *batches, int32_t index) {
  cgr__members *s = &batches->members;
  int32_t query_len = rows->row[index].query_len;
  s->sum_tokens += query_len - cgr__standing_count(rows, batches, index);
  cgr__members_count(s, query_len, -1);
  s->num_kept -= count_kept(rows, s, index);
  cgr__members_unlist(rows, s, index);
}

static void give_work(cgr__rows *rows, cgr__members *s, int32_t index, int32_t query_len, const int32_t *tokens, uint32_t flags) {
  bool has_tokens = tokens && query_len > 0 && (query_len > 1 || tokens[0] != CGR_TOKEN_LAST);
  cgr__members_count(s, query_len, 1);
  rows->row[index].query_len = query_len;
  rows->row[index].partial = (flags & CGR_REQUEST_PARTIAL) != 0;
  if (has_tokens || query_len > 1 || flags != 0) {
    s->irregular[index].first_token = has_tokens ? keep_tokens(rows, s, tokens, query_len) : CGR__TOKEN_LAST_GIVEN;
    cgr__members_list(rows, s, index);
  }
}

cgr_status cgr__standing_add(cgr__rows *rows, cgr__lane_batches *batches, int32_t index, int32_t query_len, const int32_t *tokens,
                             uint32_t flags) {
  cgr__members *s = &batches->members;
  CGR__TRY(cgr__rows_check(rows, "cgr_standing_add", index));
  if (rows->row[index].place >= 0 && !s->follows)
    return cgr__fail(CGR_ERROR_ROW_REPEATED,
                     "cgr_standing_add: row %d is in the standing batch already, expected another (or cgr_standing_update)",
                     index);
  CGR__TRY(check_work(rows, s, "cgr_standing_add", 0, query_len, tokens, flags));
  cgr__follow_end(rows, batches);
  rows->row[index].since = s->steps;
  give_work(rows, s, index, query_len, tokens, flags);
  cgr__members_write_place(rows, s, s->layout.num_requests++, index, flags);
  cgr__members_revalidate(rows, index);
  return CGR_OK;
}

cgr_status cgr__standing_update(cgr__rows *rows, cgr__lane_batches *batches, int32_t index, int32_t query_len,
                                const int32_t *tokens, uint32_t flags) {
  cgr__members *s = &batches->members;
  CGR__TRY(check_member(rows, "cgr_standing_update", index));
  int32_t before = rows->row[index].query_len, place = rows->row[index].place;
  CGR__TRY(check_work(rows, s, "cgr_standing_update", count_kept(rows, s, index), query_len, tokens, flags));
  cgr__members_sync(rows, index);
  drop_work(rows, batches, index);
  give_work(rows, s, index, query_len, tokens, flags);
  if (query_len != before || flags != s->layout.flags[place])
    cgr__members_mark_dirty(s, place);
  s->layout.query_lens[place] = query_len;
  s->layout.flags[place] = flags;
  cgr__members_revalidate(rows, index);
  return CGR_OK;
}

cgr_status cgr__standing_remove(cgr__rows *rows, cgr__lane_batches *batches, int32_t index) {
  cgr__members *s = &batches->members;
  CGR__TRY(check_member(rows, "cgr_standing_remove", index));
  int32_t place = rows->row[index].place, last = s->layout.num_requests - 1;
  drop_work(rows, batches, index);
  cgr__members_leave(rows, index);
  if (place != last)
    cgr__members_write_place(rows, s, place, s->layout.rows[last], s->layout.flags[last]);
  else
    cgr__members_note_edit(s, place);
  s->layout.num_requests = last;
  return CGR_OK;
}

cgr_status cgr__standing_swap(cgr__rows *rows, cgr__lane_batches *batches, int32_t index, int32_t other) {
  cgr__members *s = &batches->members;
  CGR__TRY(check_member(rows, "cgr_standing_swap", index));
  if (other < 0 || other >= rows->limits->max_rows)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "cgr_standing_swap: other is %d, expected 0 .. %d", other,
                     rows->limits->max_rows - 1);
  CGR__TRY(check_member(rows, "cgr_standing_swap", other));
  int32_t one = rows->row[index].place, two = rows->row[other].place;
  uint32_t flags = s->layout.flags[one];
  if (index == other)
    return CGR_OK;
  cgr__members_write_place(rows, s, one, other, s->layout.flags[two]);
  cgr__members_write_place(rows, s, two, index, flags);
  return CGR_OK;
}

/* Steps of the standing batch: validated, sent and launched by what has changed. */
#include <string.h>

#include "base/status.h"
#include "requests/follow.h"
#include "requests/standing.h"

_Static_assert(CGR__MAX_REQUESTS <= 1 << 16, "an edit has 16 bits for a place");

/* ------------------------------------------------------------------------------------------------------------- validation */

/* Which member has the most tokens. Looked for only for the message. */
static cgr_status refuse_standing_tokens(const cgr__rows *rows, const cgr__lane_batches *batches) {
  const cgr__standing *s = &batches->standing;
  int32_t most = 0, largest = s->members.rows[0];
  for (int32_t i = 0; i < s->members.num_requests; i++) {
    int32_t row = s->members.rows[i], count = cgr__standing_count(rows, batches, row);
    largest = count > most ? row : largest;
    most = count > most ? count : most;
  }
  return cgr__fail(CGR_ERROR_TOO_MANY_TOKENS,
                   "batch: the standing batch has %lld tokens, expected at most %d (max_tokens): cgr_standing_update fewer or "
                   "cgr_standing_remove rows; row %d has the most, %d",
                   (long long)s->sum_tokens, s->max_tokens, largest, most);
}

/* Edits may come in any order, so only what they lead to has to keep to the limits. */
static cgr_status check_standing_limits(const cgr__rows *rows, const cgr__lane_batches *batches) {
  const cgr__standing *s = &batches->standing;
  int32_t count = s->members.num_requests;
  if (count > s->max_requests)
    return cgr__fail(
        CGR_ERROR_TOO_MANY_REQUESTS,
        "batch: the standing batch has %d requests, expected at most %d (max_requests): cgr_standing_remove %d of them", count,
        s->max_requests, count - s->max_requests);
  return s->sum_tokens > s->max_tokens ? refuse_standing_tokens(rows, batches) : CGR_OK;
}

/* Which member lacks a token, and why. Looked for only for the message. */
static cgr_status refuse_missing_token(const cgr__rows *rows, const cgr__standing *s) {
  const cgr__batch_layout *members = &s->members;
  int32_t i = 0;
  while (!rows->row[members->rows[i]].lacks_token)
    i++;
  int32_t row = members->rows[i], query_len = members->query_lens[i];
  const cgr__irregular *irregular = rows->row[row].irregular ? &s->irregular[row] : NULL;
  if (irregular && irregular->first_token == CGR__TOKENS_USED_UP)
    return cgr__fail(
        CGR_ERROR_INVALID_ARGUMENT,
        "batch: the standing batch has no tokens for row %d, expected %d: cgr_standing_update gives those of one step", row,
        query_len);
  return cgr__fail(
      CGR_ERROR_INVALID_ARGUMENT,
      "batch: the token of row %d is CGR_TOKEN_LAST, expected a token (cgr_standing_update): no step has sampled one "
      "for this length. cgr_request_set_length and a chunk with CGR_REQUEST_PARTIAL leave none; a prompt's last chunk does not "
      "have "
      "that flag",
      row);
}

/* The longest and, if all are alike, the uniform query length. */
static void find_shape_of_standing(const cgr__rows *rows, cgr__standing *s) {
  cgr__batch_layout *members = &s->members;
  int32_t n = members->num_requests, alike = 0, longest = s->num_short[1] > 0;
  for (int32_t row = s->first_irregular; row >= 0; row = s->irregular[row].next) {
    int32_t query_len = rows->row[row].query_len;
    alike = query_len > longest ? 0 : alike;
    longest = query_len > longest ? query_len : longest;
    alike += query_len == longest;
  }
  alike = longest == 1 ? s->num_short[1] : alike;
  members->max_query_len = longest;
  members->query_len = alike == n ? longest : 0;
}

/* No decode comes after one that is longer. */
static cgr_status check_order(const cgr__rows *rows, const cgr__standing *s, int32_t threshold) {
  const cgr__batch_layout *members = &s->members;
  int32_t first = members->num_requests;
  for (int32_t row = s->first_irregular; row >= 0; row = s->irregular[row].next)
    if (rows->row[row].query_len > threshold && rows->row[row].position < first)
      first = rows->row[row].position;
  for (int32_t i = first; i < members->num_requests; i++)
    if (members->query_lens[i] > 0 && members->query_lens[i] <= threshold)
      return cgr__fail(CGR_ERROR_INVALID_ARGUMENT,
                       "batch: row %d is at place %d of the standing batch with %d new tokens, a decode (reorder_threshold is "
                       "%d), and a longer one is before it, expected decodes first (cgr_standing_swap)",
                       members->rows[i], i, members->query_lens[i], threshold);
  return CGR_OK;
}

cgr_status cgr__standing_validate(cgr__rows *rows, cgr__lane_batches *batches, int32_t threshold, cgr__checked_batch *checked) {
  cgr__standing *s = &batches->standing;
  int32_t missing = -1;
  cgr__follow_end(rows, batches);
  for (int32_t i = 0; s->stale && i < s->members.num_requests; i++)
    cgr__members_revalidate(rows, s->members.rows[i]);
  s->stale = false;
  if (s->num_dirty > 0) /* else it is no larger than when it was launched last */
    CGR__TRY(check_standing_limits(rows, batches));
  if (s->num_lacking_tokens > 0)
    return refuse_missing_token(rows, s);
  if (cgr__members_lack_pages(rows, s, &missing))
    return cgr__batch_refuse_length(rows, missing, (int64_t)rows->row[missing].computed + rows->row[missing].query_len);
  s->members.num_tokens = (int32_t)s->sum_tokens;
  find_shape_of_standing(rows, s);
  if (threshold > 0 && s->members.query_len == 0)
    CGR__TRY(check_order(rows, s, threshold));
  cgr__batch_describe_members(&s->members, true, cgr__members_append_first(rows, s), checked);
  return CGR_OK;
}

/* ------------------------------------------------------------------------------------------------------------------ staging */

static cgr__edit edit_of(const cgr__batch_layout *members, int32_t position, int32_t first_token) {
  uint32_t place = (uint32_t)position | members->flags[position] << 16;
  return (cgr__edit){ (int32_t)place, members->rows[position], members->query_lens[position], first_token };
}

static bool has_tokens(const cgr__rows *rows, const cgr__standing *s, int32_t row) {
  return rows->row[row].irregular && s->irregular[row].first_token >= 0;
}

int32_t cgr__standing_edits(const cgr__rows *rows, const cgr__lane_batches *batches, bool whole, cgr__edit *edits,
                            int32_t *tokens, int32_t *num_tokens) {
  const cgr__standing *s = &batches->standing;
  int32_t count = 0, used = 0;
  for (int32_t row = s->first_irregular; row >= 0; row = s->irregular[row].next) {
    int32_t query_len = rows->row[row].query_len;
    if (s->irregular[row].first_token < 0)
      continue;
    memcpy(tokens + used, s->tokens + s->irregular[row].first_token, (size_t)query_len * sizeof *tokens);
    edits[count++] = edit_of(&s->members, rows->row[row].position, used);
    used += query_len;
  }
  for (int32_t i = 0; !whole && i < s->num_dirty; i++) {
    int32_t position = s->dirty[i];
    if (position < s->members.num_requests && !has_tokens(rows, s, s->members.rows[position]))
      edits[count++] = edit_of(&s->members, position, -1);
  }
  *num_tokens = used;
  return count;
}

/* ------------------------------------------------------------------------------------------------------------------- launch */

void cgr__standing_commit(cgr__rows *rows, cgr__lane_batches *batches, uint64_t seq, uint64_t device_seq) {
  cgr__standing *s = &batches->standing;
  batches->last = NULL;
  s->steps++;
  s->last_seq = seq;
  for (int32_t row = s->first_irregular, next; row >= 0; row = next) {
    next = s->irregular[row].next;
    s->num_tokens = 0; /* only irregular members have any */
    rows->row[row].shared_prefix &= rows->row[row].query_len == 0;
    if (s->follows)
      cgr__members_revalidate(rows, row);
    else
      cgr__standing_use_up(rows, batches, row);
  }
  cgr__members_told(s, device_seq);
}

/* Steps of the standing batch: validated by what has changed. */
#include "base/status.h"
#include "requests/follow.h"
#include "requests/standing.h"

/* Which member has the most tokens. Looked for only for the message. */
static cgr_status refuse_standing_tokens(const cgr__rows *rows, const cgr__lane_batches *batches) {
  const cgr__members *s = &batches->members;
  int32_t most = 0, largest = s->layout.rows[0];
  for (int32_t i = 0; i < s->layout.num_requests; i++) {
    int32_t row = s->layout.rows[i], count = cgr__standing_count(rows, batches, row);
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
  const cgr__members *s = &batches->members;
  int32_t count = s->layout.num_requests;
  if (count > s->max_requests)
    return cgr__fail(
        CGR_ERROR_TOO_MANY_REQUESTS,
        "batch: the standing batch has %d requests, expected at most %d (max_requests): cgr_standing_remove %d of them", count,
        s->max_requests, count - s->max_requests);
  return s->sum_tokens > s->max_tokens ? refuse_standing_tokens(rows, batches) : CGR_OK;
}

/* Which member lacks a token, and why. Looked for only for the message. */
static cgr_status refuse_missing_token(const cgr__rows *rows, const cgr__members *s) {
  const cgr__batch_layout *layout = &s->layout;
  int32_t i = 0;
  while (!rows->row[layout->rows[i]].lacks_token)
    i++;
  int32_t row = layout->rows[i], query_len = layout->query_lens[i];
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
static void find_shape_of_standing(const cgr__rows *rows, cgr__members *s) {
  cgr__batch_layout *layout = &s->layout;
  int32_t n = layout->num_requests, alike = 0, longest = s->num_short[1] > 0;
  for (int32_t row = s->first_irregular; row >= 0; row = s->irregular[row].next) {
    int32_t query_len = rows->row[row].query_len;
    alike = query_len > longest ? 0 : alike;
    longest = query_len > longest ? query_len : longest;
    alike += query_len == longest;
  }
  alike = longest == 1 ? s->num_short[1] : alike;
  layout->max_query_len = longest;
  layout->query_len = alike == n ? longest : 0;
}

/* No decode comes after one that is longer. */
static cgr_status check_order(const cgr__rows *rows, const cgr__members *s, int32_t threshold) {
  const cgr__batch_layout *layout = &s->layout;
  int32_t first = layout->num_requests;
  for (int32_t row = s->first_irregular; row >= 0; row = s->irregular[row].next)
    if (rows->row[row].query_len > threshold && rows->row[row].place < first)
      first = rows->row[row].place;
  for (int32_t i = first; i < layout->num_requests; i++)
    if (layout->query_lens[i] > 0 && layout->query_lens[i] <= threshold)
      return cgr__fail(CGR_ERROR_INVALID_ARGUMENT,
                       "batch: row %d is at place %d of the standing batch with %d new tokens, a decode (reorder_threshold is "
                       "%d), and a longer one is before it, expected decodes first (cgr_standing_swap)",
                       layout->rows[i], i, layout->query_lens[i], threshold);
  return CGR_OK;
}

cgr_status cgr__standing_validate(cgr__rows *rows, cgr__lane_batches *batches, int32_t threshold, cgr__checked_batch *checked) {
  cgr__members *s = &batches->members;
  int32_t missing = -1;
  cgr__follow_end(rows, batches);
  for (int32_t i = 0; s->stale && i < s->layout.num_requests; i++)
    cgr__members_revalidate(rows, s->layout.rows[i]);
  s->stale = false;
  if (s->num_dirty > 0) /* else it is no larger than when it was launched last */
    CGR__TRY(check_standing_limits(rows, batches));
  if (s->num_lacking_tokens > 0)
    return refuse_missing_token(rows, s);
  if (cgr__members_lack_pages(rows, s, &missing))
    return cgr__batch_refuse_length(rows, missing, (int64_t)rows->row[missing].computed + rows->row[missing].query_len);
  s->layout.num_tokens = (int32_t)s->sum_tokens;
  find_shape_of_standing(rows, s);
  if (threshold > 0 && s->layout.query_len == 0)
    CGR__TRY(check_order(rows, s, threshold));
  cgr__batch_describe_members(&s->layout, true, cgr__members_append_first(rows, s), checked);
  return CGR_OK;
}

#include "planners/requests/batch.h"

#include <string.h>

#include "base/status.h"

static cgr_status check_shape(const cgr_batch *batch, int32_t max_requests) {
  if (batch->num_requests < 0)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "batch: num_requests is %d, expected at least 0", batch->num_requests);
  if (batch->num_requests > max_requests)
    return cgr__fail(CGR_ERROR_TOO_MANY_REQUESTS, "batch: num_requests is %d, expected at most %d (max_requests)",
                     batch->num_requests, max_requests);
  if (batch->num_requests > 0 && !batch->rows)
    return cgr__fail(CGR_ERROR_NULL_POINTER, "batch: rows is NULL, expected %d row numbers", batch->num_requests);
  return CGR_OK;
}

static int any_flag(const cgr_batch *batch) {
  uint32_t any = 0;
  for (int32_t i = 0; batch->flags && i < batch->num_requests; i++)
    any |= batch->flags[i];
  return any != 0;
}

/* The batch repeats the last one and surely fits: nothing needs to be looked at again. */
static int repeats(const cgr__rows *rows, const cgr_batch *batch) {
  const cgr__steady *steady = &rows->steady;
  if (batch->num_requests != steady->num_requests || batch->num_requests == 0 || any_flag(batch))
    return 0;
  if (steady->query_len == 0 || (steady->query_len != 1 && !batch->query_lens))
    return 0;
  size_t bytes = (size_t)batch->num_requests * 4;
  if (batch->query_lens && memcmp(batch->query_lens, rows->steady_lens, bytes) != 0)
    return 0;
  return memcmp(batch->rows, rows->steady_rows, bytes) == 0;
}

static int32_t steps_that_fit(const cgr__rows *rows, const cgr__row *row, int32_t length, int32_t query_len) {
  if (query_len == 0)
    return INT32_MAX;
  int32_t end = row->page_capacity < rows->max_seq_len ? row->page_capacity : rows->max_seq_len;
  return (end - length) / query_len;
}

static cgr_status check_request(const cgr__rows *rows, int32_t i, int32_t index, int32_t query_len) {
  if (index < 0 || index >= rows->max_rows)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "batch: rows[%d] is %d, expected 0 .. %d", i, index, rows->max_rows - 1);
  const cgr__row *row = &rows->row[index];
  if (!row->open)
    return cgr__fail(CGR_ERROR_ROW_CLOSED, "batch: rows[%d] is %d, which is closed, expected an open row", i, index);
  if (row->mark == rows->ticket)
    return cgr__fail(CGR_ERROR_ROW_REPEATED, "batch: rows[%d] is %d, which stands in the batch already", i, index);
  if (query_len < 0)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "batch: query_lens[%d] is %d, expected at least 0", i, query_len);
  int64_t length = (int64_t)row->computed + query_len;
  if (length > rows->max_seq_len)
    return cgr__fail(CGR_ERROR_SEQUENCE_TOO_LONG, "batch: row %d would hold %lld tokens, expected at most %d (max_seq_len)",
                     index, (long long)length, rows->max_seq_len);
  if (length > row->page_capacity)
    return cgr__fail(CGR_ERROR_PAGES_MISSING, "batch: row %d would hold %lld tokens, expected at most %d (its pages)", index,
                     (long long)length, row->page_capacity);
  return CGR_OK;
}

/* tokens[at ..] of one request: ids, and CGR_TOKEN_LAST where the device has one. */
static cgr_status check_tokens(const cgr__rows *rows, const cgr_batch *batch, int32_t i, int64_t at, int32_t query_len) {
  const cgr__row *row = &rows->row[batch->rows[i]];
  int32_t first = batch->tokens ? (query_len > 0 ? batch->tokens[at] : 0) : CGR_TOKEN_LAST;
  if (query_len > 0 && first == CGR_TOKEN_LAST && !row->has_token)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT,
                     "batch: the token of row %d is CGR_TOKEN_LAST, expected a token: no step has sampled one for it",
                     batch->rows[i]);
  if (!batch->tokens && query_len > 1)
    return cgr__fail(CGR_ERROR_NULL_POINTER, "batch: tokens is NULL, expected %d tokens for row %d", query_len, batch->rows[i]);
  for (int32_t j = 0; j < query_len && batch->tokens; j++)
    if (batch->tokens[at + j] < (j == 0 ? CGR_TOKEN_LAST : 0))
      return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "batch: tokens[%lld] is %d, expected a token id", (long long)(at + j),
                       batch->tokens[at + j]);
  return CGR_OK;
}

static cgr_status validate_all(cgr__rows *rows, const cgr_batch *batch, int32_t max_tokens, cgr__step_plan *plan) {
  int64_t tokens = 0;
  int32_t headroom = INT32_MAX;
  int uniform = 1;
  for (int32_t i = 0; i < batch->num_requests; i++) {
    int32_t query_len = batch->query_lens ? batch->query_lens[i] : 1;
    CGR__TRY(check_request(rows, i, batch->rows[i], query_len));
    if (tokens + query_len > max_tokens)
      return cgr__fail(CGR_ERROR_TOO_MANY_TOKENS,
                       "batch: the first %d requests have %lld tokens, expected at most %d (max_tokens)", i + 1,
                       (long long)tokens + query_len, max_tokens);
    CGR__TRY(check_tokens(rows, batch, i, tokens, query_len));
    cgr__row *row = &rows->row[batch->rows[i]];
    row->mark = rows->ticket;
    if (batch->flags && (batch->flags[i] & ~(uint32_t)CGR_REQUEST_PARTIAL))
      return cgr__fail(CGR_ERROR_INVALID_ENUM, "batch: flags[%d] is %#x, expected CGR_REQUEST_* bits", i, batch->flags[i]);
    plan->has_flags |= batch->flags && batch->flags[i];
    uniform &= query_len == (batch->query_lens ? batch->query_lens[0] : 1);
    int32_t fit = steps_that_fit(rows, row, row->computed, query_len);
    headroom = fit < headroom ? fit : headroom;
    tokens += query_len;
  }
  plan->num_tokens = (int32_t)tokens;
  plan->query_len = uniform && batch->num_requests > 0 ? (batch->query_lens ? batch->query_lens[0] : 1) : 0;
  plan->headroom = headroom == INT32_MAX ? 0 : headroom - 1;
  return CGR_OK;
}

static int valid_ids(const int32_t *tokens, int32_t count) {
  int32_t lowest = 0;
  for (int32_t i = 0; i < count; i++)
    lowest = tokens[i] < lowest ? tokens[i] : lowest;
  return lowest >= 0;
}

cgr_status cgr__batch_validate(cgr__rows *rows, const cgr_batch *batch, int32_t max_requests, int32_t max_tokens,
                               cgr__step_plan *plan) {
  CGR__TRY(check_shape(batch, max_requests));
  const cgr__steady *steady = &rows->steady;
  memset(plan, 0, sizeof *plan);
  plan->batch = batch;
  plan->num_requests = batch->num_requests;
  plan->same_batch = repeats(rows, batch);
  if (plan->same_batch && steady->headroom > 0) {
    int64_t tokens = (int64_t)batch->num_requests * steady->query_len;
    int known = batch->tokens ? valid_ids(batch->tokens, (int32_t)tokens) : steady->has_tokens && steady->query_len == 1;
    if (known) {
      plan->num_tokens = (int32_t)tokens;
      plan->query_len = steady->query_len;
      plan->headroom = steady->headroom - 1;
      return CGR_OK;
    }
  }
  cgr__rows_settle(rows);
  rows->ticket++;
  return validate_all(rows, batch, max_tokens, plan);
}

void cgr__batch_commit(cgr__rows *rows, const cgr__step_plan *plan, const int32_t *batch_rows, const int32_t *query_lens,
                       const uint32_t *flags, uint64_t seq) {
  cgr__steady *steady = &rows->steady;
  if (plan->same_batch) { /* counted, not added: see cgr__rows_settle */
    steady->pending++;
    steady->last_seq = seq;
    steady->headroom = plan->headroom;
    steady->has_tokens = 1;
    return;
  }
  cgr__rows_settle(rows);
  for (int32_t i = 0; i < plan->num_requests; i++) {
    cgr__row *row = &rows->row[batch_rows[i]];
    row->computed += query_lens[i];
    row->last_seq = seq;
    if (query_lens[i] > 0) /* a partial chunk leaves the row without a token to go on with */
      row->has_token = !(flags[i] & CGR_REQUEST_PARTIAL);
  }
  steady->num_requests = plan->has_flags ? -1 : plan->num_requests;
  steady->query_len = plan->query_len;
  steady->headroom = plan->headroom;
  steady->has_tokens = plan->query_len > 0;
  steady->pending = 0;
  memcpy(rows->steady_rows, batch_rows, (size_t)plan->num_requests * 4);
  memcpy(rows->steady_lens, query_lens, (size_t)plan->num_requests * 4);
}

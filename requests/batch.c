#include "requests/batch.h"

#include <stdio.h>
#include <string.h>

#include "base/choices.h"
#include "base/status.h"
#include "requests/data.h"
#include "requests/drafts.h"
#include "requests/follow.h"
#include "requests/guesses.h"
#include "requests/ledger.h"
#include "requests/members.h"
#include "requests/pages.h"
#include "requests/tokens.h"

/* ---------------------------------------------------------------------------------------------------------- batch layouts */

/* One that is not in use. */
static cgr__batch_layout *free_batch_layout(const cgr__lane_batches *batches) {
  const cgr__batch_layouts *pool = &batches->layouts;
  int32_t i = 0;
  while (pool->all[i].uses > 0 || &pool->all[i] == batches->last)
    i++;
  return &pool->all[i];
}

/* ------------------------------------------------------------------------------------------------------------ validation */

static cgr_status check_shape(const cgr_batch *batch, int32_t max_requests) {
  if (batch->num_requests < 0)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "batch: num_requests is %d, expected at least 0, or CGR_BATCH_STANDING",
                     batch->num_requests);
  if (batch->num_requests > max_requests)
    return cgr__fail(CGR_ERROR_TOO_MANY_REQUESTS, "batch: num_requests is %d, expected at most %d (max_requests)",
                     batch->num_requests, max_requests);
  if (batch->num_requests > 0 && !batch->rows)
    return cgr__fail(CGR_ERROR_NULL_POINTER, "batch: rows is NULL, expected %d row number%s", batch->num_requests,
                     cgr__plural(batch->num_requests));
  return CGR_OK;
}

cgr_status cgr__batch_refuse_length(const cgr__rows *rows, int32_t index, int64_t length) {
  int32_t capacity, g, needed = 0;
  if (length > rows->limits->max_lens[0])
    return cgr__fail(
        CGR_ERROR_SEQUENCE_TOO_LONG,
        "batch: row %d would hold %lld token%s, %d of them in the cache already, expected at most %d (max_seq_len): close "
        "the request, give fewer tokens, or set its length back (cgr_request_set_length) if some are given again",
        index, (long long)length, cgr__plural(length), rows->row[index].computed, rows->limits->max_lens[0]);
  g = cgr__rows_front_missing(rows, index, 0, cgr__row_least_computed(&rows->row[index]), &needed);
  if (g >= 0)
    return cgr__fail(CGR_ERROR_PAGES_MISSING,
                     "batch: row %d would hold %lld token%s and has pages %d .. %d of group %d, expected all from page %d on "
                     "(cgr_request_set_pages): its layers see tokens of it",
                     index, (long long)length, cgr__plural(length), rows->group[g].row[index].first,
                     rows->group[g].row[index].end - 1, g, needed);
  g = cgr__rows_shortest_group(rows, index, 0, 0, &capacity);
  return cgr__fail(
      CGR_ERROR_PAGES_MISSING,
      "batch: row %d would hold %lld token%s, expected at most %d (its pages of group %d): cgr_request_set_pages gives "
      "it more",
      index, (long long)length, cgr__plural(length), capacity, g);
}

/* The tokens of a set after 0 are the last ones of the length that the engine has set; pages cover that. */
static cgr_status check_other_length(const cgr__rows *rows, int32_t index, int32_t query_len, int32_t set) {
  int32_t length = cgr__rows_other_length(rows, index, set);
  if (query_len <= length)
    return CGR_OK;
  return cgr__fail(
      CGR_ERROR_INVALID_ARGUMENT,
      "batch: row %d has %d token%s in length set %d, expected at least the step's %d (cgr_request_set_other_length)", index,
      length, cgr__plural(length), set, query_len);
}

static cgr_status refuse_repeated_row(const cgr__rows *rows, const cgr_batch *batch, int32_t i) {
  int32_t before = 0;
  while (batch->rows[before] != batch->rows[i])
    before++;
  return cgr__fail(CGR_ERROR_ROW_REPEATED,
                   "batch: rows[%d] is %d, as rows[%d] is (the request with tag %llu), expected each row once: give all its new "
                   "tokens in one place",
                   i, batch->rows[i], before, (unsigned long long)rows->row[batch->rows[i]].tag);
}

static cgr_status check_request(cgr__rows *rows, const cgr_batch *batch, int32_t i, int32_t query_len, int32_t set) {
  int32_t index = batch->rows[i];
  if (index < 0 || index >= rows->limits->max_rows)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "batch: rows[%d] is %d, expected 0 .. %d", i, index, rows->limits->max_rows - 1);
  const cgr__row *row = &rows->row[index];
  if (!row->open)
    return cgr__fail(CGR_ERROR_ROW_CLOSED, "batch: rows[%d] is %d, which is closed, expected one that cgr_request_open gave", i,
                     index);
  if (row->mark == rows->ticket)
    return refuse_repeated_row(rows, batch, i);
  if (query_len < 0)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "batch: query_lens[%d] is %d, expected at least 0", i, query_len);
  cgr__members_sync(rows, index);
  if (set > 0)
    return check_other_length(rows, index, query_len, set);
  if (batch->program > 0)
    return cgr__drafts_check_pages(rows, batch, i, query_len);
  int64_t length = (int64_t)row->computed + query_len;
  return cgr__row_can_step(row, query_len) ? CGR_OK : cgr__batch_refuse_length(rows, index, length);
}

/* CGR_TOKEN_DRAFT where it cannot stand. */
static cgr_status refuse_draft(const char *function, int64_t at, int32_t token, bool is_guess, int32_t most) {
  const int64_t index = -2 - (int64_t)token;
  if (!is_guess || most <= 0)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT,
                     "%s: tokens[%lld] is %d, expected a token id or CGR_TOKEN_LAST (-1): those below are drafts, which only the "
                     "tokens that CGR_REQUEST_DRAFTS counts can be",
                     function, (long long)at, token);
  if (index >= most)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT,
                     "%s: tokens[%lld] is %d, which is draft %lld, expected CGR_TOKEN_DRAFT(0 .. %d) (num_draft_tokens)",
                     function, (long long)at, token, (long long)index, most - 1);
  return cgr__fail(
      CGR_ERROR_INVALID_ARGUMENT,
      "%s: tokens[%lld] is %d, draft %lld of the device's, expected a token id, or CGR_TOKEN_LAST as the request's first "
      "token: they follow that one",
      function, (long long)at, token, (long long)index);
}

cgr_status cgr__batch_check_ids(const char *function, const int32_t *tokens, int64_t at, int32_t count, int32_t guesses,
                                int32_t most) {
  if (cgr__tokens_kind(tokens + at, count) == CGR__TOKENS_ARE_IDS)
    return CGR_OK;
  for (int32_t j = 0; j < count; j++) {
    int32_t token = tokens[at + j];
    bool is_guess = j >= count - guesses, follows_last = tokens[at] == CGR_TOKEN_LAST;
    if (token < CGR_TOKEN_LAST && !(is_guess && follows_last && -2 - (int64_t)token < most))
      return refuse_draft(function, at + j, token, is_guess, most);
    if (token == CGR_TOKEN_LAST && j > 0)
      return cgr__fail(CGR_ERROR_INVALID_ARGUMENT,
                       "%s: tokens[%lld] is CGR_TOKEN_LAST, expected a token id: only a request's first token can be it",
                       function, (long long)(at + j));
  }
  return CGR_OK;
}

static cgr_status refuse_last_token(const cgr__rows *rows, const cgr_batch *batch, int32_t i, int64_t at) {
  char what[48] = "tokens is NULL, which is CGR_TOKEN_LAST";
  if (batch->tokens)
    snprintf(what, sizeof what, "tokens[%lld] is CGR_TOKEN_LAST", (long long)at);
  return cgr__fail(
      CGR_ERROR_INVALID_ARGUMENT,
      "batch: %s, for row %d with %d token%s in the cache, expected a token, the next one: no step has sampled one for "
      "this length. cgr_request_set_length and a chunk with CGR_REQUEST_PARTIAL leave none; a prompt's last chunk "
      "does not have that flag",
      what, batch->rows[i], rows->row[batch->rows[i]].computed, cgr__plural(rows->row[batch->rows[i]].computed));
}

/* tokens[at ..] of one request: ids, and CGR_TOKEN_LAST where the device has one. */
static cgr_status check_tokens(const cgr__rows *rows, const cgr_batch *batch, int32_t i, int64_t at, int32_t query_len) {
  const cgr__row *row = &rows->row[batch->rows[i]];
  const uint32_t flags = cgr__batch_flags(batch, i);
  int32_t first = batch->tokens && query_len > 0 ? batch->tokens[at] : CGR_TOKEN_LAST;
  if (!batch->tokens && query_len > 1 && !cgr__flags_go_on(flags, query_len))
    return cgr__fail(CGR_ERROR_NULL_POINTER, "batch: tokens is NULL, expected %d tokens for row %d", query_len, batch->rows[i]);
  if (query_len > 0 && first == CGR_TOKEN_LAST && !row->has_token)
    return refuse_last_token(rows, batch, i, at);
  if (!batch->tokens)
    return CGR_OK;
  return cgr__batch_check_ids("batch", batch->tokens, at, query_len, cgr__flags_guesses(flags), cgr__rows_most_guesses(rows));
}

/* Nothing is sampled in a step of a set after 0. */
static cgr_status check_other_tokens(const cgr_batch *batch, int32_t i, int64_t at, int32_t query_len, int32_t set) {
  if (query_len > 0 && !batch->tokens)
    return cgr__fail(CGR_ERROR_NULL_POINTER, "batch: tokens is NULL, expected %d token%s of length set %d for row %d", query_len,
                     cgr__plural(query_len), set, batch->rows[i]);
  for (int32_t j = 0; j < query_len; j++)
    if (batch->tokens[at + j] < 0)
      return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "batch: tokens[%lld] is %d, expected a token id in a step of length set %d",
                       (long long)(at + j), batch->tokens[at + j], set);
  return CGR_OK;
}

/* Flags of a request that has guesses, or that it cannot have. */
static cgr_status check_other_flags(const cgr__rows *rows, const cgr_batch *batch, int32_t i, int32_t set) {
  const uint32_t flags = batch->flags[i];
  char what[32];
  snprintf(what, sizeof what, "flags[%d]", i);
  CGR__TRY(cgr__check_choice("batch", what, &cgr__request_flags, cgr__flags_but_guesses(flags)));
  if (set > 0)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "batch: %s tells of %d drafts, expected none in a step of length set %d", what,
                     cgr__flags_guesses(flags), set);
  return cgr__guesses_check("batch", what, flags, cgr__batch_query_len(batch, i), cgr__rows_most_guesses(rows));
}

static cgr_status check_flags(const cgr__rows *rows, const cgr_batch *batch, int32_t i, int32_t set) {
  return cgr__batch_flags_are_good(batch, i) ? CGR_OK : check_other_flags(rows, batch, i, set);
}

/* Guesses tell which tokens may stand where, so their flags come first. */
static cgr_status check_work(const cgr__rows *rows, const cgr_batch *batch, int32_t i, int64_t at, int32_t query_len,
                             int32_t set) {
  if (batch->program > 0)
    return cgr__drafts_check_work(rows, batch, i, at, query_len);
  if (cgr__flags_guesses(cgr__batch_flags(batch, i)) > 0)
    CGR__TRY(check_flags(rows, batch, i, set));
  CGR__TRY(set > 0 ? check_other_tokens(batch, i, at, query_len, set) : check_tokens(rows, batch, i, at, query_len));
  return check_flags(rows, batch, i, set);
}

static cgr_status refuse_tokens(int32_t i, int64_t tokens, int32_t max_tokens) {
  return cgr__fail(
      CGR_ERROR_TOO_MANY_TOKENS,
      "batch: tokens of requests 0 .. %d are %lld, expected at most %d (max_tokens): leave requests to a later step, or "
      "give a chunk of a prompt (CGR_REQUEST_PARTIAL)",
      i, (long long)tokens, max_tokens);
}

/* Request `i` lacks pages. More of them would not help a batch that is beyond the limits of the configuration, so those come
 * first, of whatever request. The last message is of the pages. */
static cgr_status refuse_limits(cgr__rows *rows, const cgr_batch *batch, int32_t i, int64_t tokens, int32_t max_tokens) {
  for (; i < batch->num_requests; i++) {
    int32_t index = batch->rows[i], query_len = cgr__batch_query_len(batch, i);
    tokens += query_len > 0 ? query_len : 0;
    if (tokens > max_tokens)
      return refuse_tokens(i, tokens, max_tokens);
    if (index < 0 || index >= rows->limits->max_rows || !rows->row[index].open || query_len < 0 || rows->row[index].ended)
      continue;
    cgr__members_sync(rows, index);
    int64_t length = (int64_t)rows->row[index].computed + query_len;
    if (batch->program == 0 && length > rows->limits->max_lens[0])
      return cgr__batch_refuse_length(rows, index, length);
  }
  return CGR_ERROR_PAGES_MISSING;
}

static bool has_shared_prefix(const cgr__rows *rows, const cgr_batch *batch, int32_t row) {
  return batch->program == 0 ? rows->row[row].shared_prefix : rows->draft[batch->program][row].shared_prefix;
}

/* Looks at every request and writes the batch layout down on the way. */
static cgr_status validate_all(cgr__rows *rows, const cgr_batch *batch, int32_t set, int32_t max_tokens, cgr__batch_layout *out,
                               bool *append_first) {
  int64_t tokens = 0;
  int32_t longest = 0;
  bool uniform = true;
  *append_first = false;
  out->version = 0;
  out->num_partial = out->num_guessing = 0;
  for (int32_t i = 0; i < batch->num_requests; i++) {
    int32_t query_len = cgr__batch_query_len(batch, i);
    cgr_status status = check_request(rows, batch, i, query_len, set);
    if (status != CGR_OK)
      return status == CGR_ERROR_PAGES_MISSING ? refuse_limits(rows, batch, i, tokens, max_tokens) : status;
    if (tokens + query_len > max_tokens)
      return refuse_tokens(i, tokens + query_len, max_tokens);
    CGR__TRY(check_work(rows, batch, i, tokens, query_len, set));
    cgr__row *row = &rows->row[batch->rows[i]];
    row->mark = rows->ticket;
    out->rows[i] = batch->rows[i];
    out->query_lens[i] = query_len;
    out->flags[i] = cgr__batch_flags(batch, i);
    out->tags[i] = row->tag;
    out->num_partial += out->flags[i] != 0;
    out->num_guessing += cgr__flags_guesses(out->flags[i]) > 0;
    *append_first |= has_shared_prefix(rows, batch, batch->rows[i]) && query_len > 0;
    uniform &= query_len == out->query_lens[0];
    longest = query_len > longest ? query_len : longest;
    tokens += query_len;
  }
  out->num_requests = batch->num_requests;
  out->num_tokens = (int32_t)tokens;
  out->query_len = uniform && batch->num_requests > 0 ? out->query_lens[0] : 0;
  out->max_query_len = longest;
  return CGR_OK;
}

cgr_status cgr__batch_look(cgr__rows *rows, cgr__lane_batches *batches, const cgr_batch *batch, int32_t set, int32_t max_requests,
                           int32_t max_tokens, cgr__checked_batch *checked) {
  cgr__batch_layout *next = free_batch_layout(batches);
  *checked = (cgr__checked_batch){ .set = (uint8_t)set, .program = (uint8_t)batch->program, .batch_layout = next };
  CGR__TRY(check_shape(batch, max_requests));
  if (next == batches->members.copy)
    batches->members.copy = NULL;
  next->program = (uint8_t)batch->program;
  rows->ticket++;
  CGR__TRY(validate_all(rows, batch, set, max_tokens, next, &checked->append_first));
  checked->append_first |= set > 0; /* whose lengths the engine sets before every step */
  cgr__batch_describe(checked);
  return CGR_OK;
}

cgr_status cgr__batch_validate(cgr__rows *rows, cgr__lane_batches *batches, const cgr_batch *batch, int32_t set,
                               int32_t max_requests, int32_t max_tokens, cgr__checked_batch *checked) {
  if (set == 0 && batch->program == 0 && cgr__follow_batch(rows, batches, batch, max_requests, max_tokens, checked))
    return CGR_OK;
  return cgr__batch_look(rows, batches, batch, set, max_requests, max_tokens, checked);
}

/* ----------------------------------------------------------------------------------------------------------------- split */

cgr_status cgr__batch_check_order(const cgr__batch_layout *batch, int32_t threshold) {
  bool prefill = false;
  for (int32_t i = 0; i < batch->num_requests; i++) {
    if (batch->query_lens[i] == 0)
      continue;
    bool decodes = batch->query_lens[i] <= threshold;
    if (prefill && decodes)
      return cgr__fail(CGR_ERROR_INVALID_ARGUMENT,
                       "batch: query_lens[%d] is %d, a decode (reorder_threshold is %d), and a longer one is before it, "
                       "expected decodes first",
                       i, batch->query_lens[i], threshold);
    prefill = !decodes;
  }
  return CGR_OK;
}

/* ---------------------------------------------------------------------------------------------------------------- launch */

/* The rows stay as they are, but the device has another batch layout. */
static void commit_other_set(cgr__rows *rows, const cgr__batch_layout *batch, int32_t set, uint64_t seq) {
  for (int32_t i = 0; i < batch->num_requests; i++) {
    rows->row[batch->rows[i]].last_seq = seq;
    if (rows->has_ledger && batch->query_lens[i] > 0)
      cgr__ledger_fill(rows, batch->rows[i], set);
  }
}

/* Members that follow do so no more when they are stepped by a batch that is not followed; the engine's are looked at anew. */
static void part_from_members(cgr__rows *rows, cgr__lane_batches *batches, const cgr__batch_layout *batch) {
  bool steps_members = false;
  for (int32_t i = 0; i < batch->num_requests; i++)
    steps_members |= rows->row[batch->rows[i]].place >= 0;
  if (!steps_members)
    return;
  cgr__follow_end(rows, batches);
  batches->members.stale = true;
}

void cgr__batch_commit(cgr__rows *rows, cgr__lane_batches *batches, const cgr__checked_batch *checked, uint64_t seq,
                       uint64_t device_seq) {
  cgr__batch_layout *batch = checked->batch_layout;
  if (checked->set > 0) {
    commit_other_set(rows, batch, checked->set, seq);
    return;
  }
  if (checked->program > 0) {
    cgr__drafts_commit(rows, batch, checked->program, seq);
    return;
  }
  part_from_members(rows, batches, batch);
  for (int32_t i = 0; i < batch->num_requests; i++) {
    cgr__row *row = &rows->row[batch->rows[i]];
    row->last_seq = seq;
    if (row->ended)
      continue;
    row->computed += batch->query_lens[i];
    row->shared_prefix &= batch->query_lens[i] == 0;
    if (batch->query_lens[i] > 0) /* a partial chunk leaves the row without a token to go on with */
      row->has_token = !(batch->flags[i] & CGR_REQUEST_PARTIAL);
    if (cgr__flags_guesses(batch->flags[i]) > 0)
      cgr__guesses_note(rows, seq, batch->rows[i], i, cgr__flags_guesses(batch->flags[i]));
  }
  batches->last = batch->num_requests > 0 ? batch : NULL;
  batches->last_device_seq = device_seq;
}

void cgr__batch_abandon(cgr__rows *rows, const cgr__checked_batch *checked, uint64_t seq) {
  for (int32_t i = 0; i < checked->batch_layout->num_requests; i++) {
    cgr__members_sync(rows, checked->batch_layout->rows[i]);
    rows->row[checked->batch_layout->rows[i]].last_seq = seq;
  }
}

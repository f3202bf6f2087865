#include "requests/drafts.h"

#include <stdio.h>

#include "base/choices.h"
#include "base/status.h"
#include "requests/batch.h"
#include "requests/changes.h"
#include "requests/guesses.h"
#include "requests/ledger.h"
#include "requests/members.h"
#include "requests/pages.h"
#include "requests/stops.h"
#include "requests/tokens.h"

/* ---------------------------------------------------------------------------------------------------------------- lengths */

static void become(cgr__rows *rows, int32_t row, int32_t program, int32_t num_tokens) {
  cgr__draft_row *draft = &rows->draft[program][row];
  draft->computed = num_tokens;
  draft->slack = 0;
  draft->followed = 0;
  cgr__changes_mark_draft(rows, row, program);
}

void cgr__drafts_open(cgr__rows *rows, int32_t row) {
  for (int32_t p = 1; p < rows->limits->num_programs; p++) {
    rows->draft[p][row].shared_prefix = false;
    become(rows, row, p, 0);
  }
}

void cgr__drafts_end(cgr__rows *rows, uint64_t seq, int32_t row, int32_t num_tokens) {
  for (int32_t p = 1; p < rows->limits->num_programs; p++)
    if (rows->draft[p][row].followed > seq)
      become(rows, row, p, 0);
  cgr__drafts_cut(rows, row, num_tokens);
}

void cgr__drafts_doubt(cgr__rows *rows, int32_t row) {
  if (rows->limits->num_programs == 1 || !cgr__row_may_have_ended(rows, row))
    return;
  for (int32_t p = 1; p < rows->limits->num_programs; p++)
    if (rows->draft[p][row].followed > rows->guesses.taken)
      become(rows, row, p, 0);
}

void cgr__drafts_cut(cgr__rows *rows, int32_t row, int32_t num_tokens) {
  for (int32_t p = 1; p < rows->limits->num_programs; p++) {
    const cgr__draft_row *draft = &rows->draft[p][row];
    const int32_t least = cgr__draft_least_computed(draft);
    if (draft->slack > 0 || least > num_tokens)
      become(rows, row, p, least < num_tokens ? least : num_tokens);
  }
}

/* The draft's next step would see tokens whose pages the row no longer has. */
static cgr_status refuse_front(const cgr__rows *rows, const char *function, int32_t row, int32_t program, int32_t num_tokens) {
  int32_t needed = 0, g = cgr__rows_front_missing(rows, row, program, num_tokens, &needed);
  const cgr__row_pages *has = &rows->group[g].row[row];
  return cgr__fail(CGR_ERROR_PAGES_MISSING,
                   "%s: row %d has pages %d .. %d of group %d, of program %d, expected all from page %d on "
                   "(cgr_request_set_pages): its layers see tokens of it",
                   function, row, has->first, has->end - 1, g, program, needed);
}

cgr_status cgr__drafts_set_length(cgr__rows *rows, int32_t row, int32_t program, int32_t num_tokens) {
  static const char function[] = "cgr_program_set_length";
  cgr__draft_row *draft = &rows->draft[program][row];
  int32_t capacity;
  if (num_tokens < 0)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "%s: num_tokens is %d, expected at least 0", function, num_tokens);
  if (num_tokens > rows->limits->max_lens[0])
    return cgr__fail(CGR_ERROR_SEQUENCE_TOO_LONG, "%s: num_tokens is %d, expected at most %d (max_seq_len)", function, num_tokens,
                     rows->limits->max_lens[0]);
  if (num_tokens > draft->capacity)
    return cgr__fail(CGR_ERROR_PAGES_MISSING,
                     "%s: num_tokens is %d, expected at most %d (the pages of row %d in group %d, of program %d): "
                     "cgr_request_set_pages gives it more",
                     function, num_tokens, draft->capacity, row, cgr__rows_shortest_group(rows, row, program, 0, &capacity),
                     program);
  if (num_tokens > 0 && num_tokens < draft->least)
    return refuse_front(rows, function, row, program, num_tokens);
  draft->shared_prefix |= num_tokens > cgr__draft_least_computed(draft);
  become(rows, row, program, num_tokens);
  return CGR_OK;
}

void cgr__drafts_take(cgr__rows *rows, uint64_t seq, int32_t row, int32_t guesses, int32_t rejected) {
  for (int32_t p = 1; p < rows->limits->num_programs; p++) {
    cgr__draft_row *draft = &rows->draft[p][row];
    if (draft->followed < seq)
      continue;
    draft->computed -= rejected;
    draft->slack = (uint16_t)(draft->slack - guesses);
  }
}

void cgr__drafts_reject(cgr__rows *rows, int32_t row) {
  for (int32_t p = 1; p < rows->limits->num_programs; p++) {
    rows->draft[p][row].computed -= rows->draft[p][row].slack;
    rows->draft[p][row].slack = 0;
  }
}

void cgr__drafts_forget(cgr__rows *rows, const cgr__batch_layout *batch, int32_t program) {
  for (int32_t i = 0; i < batch->num_requests; i++)
    become(rows, batch->rows[i], program, cgr__draft_least_computed(&rows->draft[program][batch->rows[i]]));
}

/* ------------------------------------------------------------------------------------------------------------------ batches */

cgr_status cgr__drafts_check_pages(const cgr__rows *rows, const cgr_batch *batch, int32_t i, int32_t query_len) {
  const int32_t row = batch->rows[i], program = batch->program;
  const cgr__draft_row *draft = &rows->draft[program][row];
  const int64_t length = (int64_t)draft->computed + query_len;
  int32_t capacity;
  if (query_len == 0 || (rows->row[row].ended && cgr__flags_guesses(cgr__batch_flags(batch, i)) > 0)) /* then it is empty */
    return CGR_OK;
  if (length > rows->limits->max_lens[0])
    return cgr__fail(CGR_ERROR_SEQUENCE_TOO_LONG,
                     "batch: row %d would hold %lld token%s in program %d, %d of them in the cache already, expected at most %d "
                     "(max_seq_len)",
                     row, (long long)length, cgr__plural(length), program, draft->computed, rows->limits->max_lens[0]);
  if (cgr__draft_least_computed(draft) < draft->least)
    return refuse_front(rows, "batch", row, program, cgr__draft_least_computed(draft));
  if (length > draft->capacity)
    return cgr__fail(CGR_ERROR_PAGES_MISSING,
                     "batch: row %d would hold %lld token%s in program %d, expected at most %d (its pages of group %d): "
                     "cgr_request_set_pages gives it more",
                     row, (long long)length, cgr__plural(length), program, draft->capacity,
                     cgr__rows_shortest_group(rows, row, program, 0, &capacity));
  return CGR_OK;
}

/* How many tokens the row lacks of those that the target has sampled must be possible. */
static cgr_status check_distance(const cgr__rows *rows, const cgr_batch *batch, int32_t i, int32_t query_len) {
  const int32_t index = batch->rows[i], program = batch->program;
  const cgr__row *row = &rows->row[index];
  const cgr__draft_row *draft = &rows->draft[program][index];
  const int32_t most = row->computed + 1 - cgr__draft_least_computed(draft);
  const int32_t least = cgr__row_least_computed(row) + 1 - draft->computed;
  if (!row->has_token)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT,
                     "batch: row %d of program %d begins with CGR_TOKEN_LAST, expected a token: no step of program 0 has sampled "
                     "one for its length there",
                     index, program);
  if (most >= 1 && least <= query_len)
    return CGR_OK;
  return cgr__fail(
      CGR_ERROR_INVALID_ARGUMENT,
      "batch: row %d has %d token%s in program 0 and one more sampled, and %d in program %d, expected 1 .. %d fewer: "
      "give program %d the others from the host, or set its length (cgr_program_set_length)",
      index, row->computed, cgr__plural(row->computed), draft->computed, program, query_len, program);
}

/* CGR_TOKEN_LAST and CGR_TOKEN_DRAFT after it. */
static cgr_status check_following(const cgr__rows *rows, const cgr_batch *batch, int32_t i, int64_t at, int32_t query_len) {
  const int32_t *tokens = batch->tokens;
  for (int32_t j = 0; tokens && j < query_len; j++)
    if (j == 0 ? tokens[at] != CGR_TOKEN_LAST : tokens[at + j] >= CGR_TOKEN_LAST)
      return cgr__fail(CGR_ERROR_INVALID_ARGUMENT,
                       "batch: tokens[%lld] is %d, expected %s: in program %d a request with CGR_REQUEST_DRAFTS follows program "
                       "0, and all its tokens are on the device",
                       (long long)(at + j), tokens[at + j], j == 0 ? "CGR_TOKEN_LAST" : "CGR_TOKEN_DRAFT", batch->program);
  return rows->row[batch->rows[i]].ended ? CGR_OK : check_distance(rows, batch, i, query_len);
}

/* Ids. */
static cgr_status check_given(const cgr_batch *batch, int32_t i, int64_t at, int32_t query_len) {
  if (query_len > 0 && !batch->tokens)
    return cgr__fail(CGR_ERROR_NULL_POINTER,
                     "batch: tokens is NULL, expected %d token%s for row %d of program %d, or CGR_REQUEST_DRAFTS to follow "
                     "program 0",
                     query_len, cgr__plural(query_len), batch->rows[i], batch->program);
  if (query_len == 0 || cgr__tokens_kind(batch->tokens + at, query_len) == CGR__TOKENS_ARE_IDS)
    return CGR_OK;
  int32_t j = 0;
  while (batch->tokens[at + j] >= 0)
    j++;
  return cgr__fail(CGR_ERROR_INVALID_ARGUMENT,
                   "batch: tokens[%lld] is %d, expected a token id: in program %d only a request with CGR_REQUEST_DRAFTS follows "
                   "program 0",
                   (long long)(at + j), batch->tokens[at + j], batch->program);
}

cgr_status cgr__drafts_check_work(const cgr__rows *rows, const cgr_batch *batch, int32_t i, int64_t at, int32_t query_len) {
  const uint32_t flags = cgr__batch_flags(batch, i);
  const int32_t guesses = cgr__flags_guesses(flags);
  char what[32];
  snprintf(what, sizeof what, "flags[%d]", i);
  CGR__TRY(cgr__check_choice("batch", what, &cgr__request_flags, cgr__flags_but_guesses(flags)));
  if (guesses == 0)
    return check_given(batch, i, at, query_len);
  CGR__TRY(cgr__guesses_check("batch", what, flags, query_len, cgr__rows_most_guesses(rows)));
  if (query_len != 1 + guesses)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT,
                     "batch: query_lens[%d] is %d, expected %d in program %d: what the target's last step has sampled is at most "
                     "a token and the drafts of CGR_REQUEST_DRAFTS",
                     i, query_len, 1 + guesses, batch->program);
  return check_following(rows, batch, i, at, query_len);
}

void cgr__drafts_commit(cgr__rows *rows, const cgr__batch_layout *batch, int32_t program, uint64_t seq) {
  for (int32_t i = 0; i < batch->num_requests; i++) {
    cgr__row *row = &rows->row[batch->rows[i]];
    cgr__draft_row *draft = &rows->draft[program][batch->rows[i]];
    row->last_seq = seq;
    draft->shared_prefix &= batch->query_lens[i] == 0;
    if (cgr__flags_guesses(batch->flags[i]) == 0) {
      draft->computed += batch->query_lens[i];
      continue;
    }
    if (row->ended)
      continue;
    draft->computed = row->computed + 1;
    draft->slack = row->slack;
    draft->followed = seq;
  }
}

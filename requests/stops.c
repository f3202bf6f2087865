#include "requests/stops.h"

#include <string.h>

#include "base/status.h"
#include "requests/changes.h"
#include "requests/data.h"
#include "requests/drafts.h"
#include "requests/ledger.h"
#include "requests/members.h"

#define FUNCTION "cgr_request_set_stops"

static cgr_status check_lengths(const cgr__rows *rows, const cgr_stops *stops) {
  const int64_t most = (int64_t)rows->limits->max_lens[0] + 1;
  if (stops->max_length < 0 || stops->max_length > most)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT,
                     FUNCTION ": stops->max_length is %d, expected 0 .. %lld (max_seq_len and the token sampled last)",
                     stops->max_length, (long long)most);
  if (stops->max_length > 0 && stops->min_length > stops->max_length)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, FUNCTION ": stops->min_length is %d, expected at most max_length, %d",
                     stops->min_length, stops->max_length);
  if (stops->min_length < 0 || stops->min_length > most)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, FUNCTION ": stops->min_length is %d, expected 0 .. %lld", stops->min_length,
                     (long long)most);
  return CGR_OK;
}

static cgr_status check_tokens(const cgr_stops *stops, int32_t most, int32_t vocab_size) {
  const int32_t end = vocab_size > 0 ? vocab_size : INT32_MAX;
  if (stops->num_tokens < 0 || stops->num_tokens > most)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, FUNCTION ": stops->num_tokens is %d, expected 0 .. %d (max_stop_tokens)",
                     stops->num_tokens, most);
  if (stops->num_tokens > 0 && !stops->tokens)
    return cgr__fail(CGR_ERROR_NULL_POINTER, FUNCTION ": stops->tokens is NULL, expected %d token%s", stops->num_tokens,
                     cgr__plural(stops->num_tokens));
  for (int32_t i = 0; i < stops->num_tokens; i++)
    if (stops->tokens[i] < 0 || stops->tokens[i] >= end)
      return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, FUNCTION ": stops->tokens[%d] is %d, expected 0 .. %d%s", i, stops->tokens[i],
                       end - 1, vocab_size > 0 ? " (vocab_size)" : "");
  return CGR_OK;
}

/* Its length is exact since the host knows that it has ended: whatever was launched meanwhile has done nothing for it. */
static void bring_back(cgr__rows *rows, int32_t row) {
  cgr__members_sync(rows, row);
  rows->row[row].ended = CGR_END_NONE;
  cgr__guesses_forget(rows, row);
  cgr__changes_mark_length(rows, row);
  cgr__members_revalidate(rows, row);
}

cgr_status cgr__rows_set_stops(cgr__rows *rows, int32_t row, const cgr_stops *stops, int32_t vocab_size) {
  int32_t words[CGR__STOPS_TOKENS + CGR__MAX_STOP_TOKENS] = { 0 };
  if (!rows->has_stops)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT,
                     FUNCTION ": max_stop_tokens is 0, expected a runtime whose cgr_config.max_stop_tokens is more");
  CGR__TRY(check_tokens(stops, (int32_t)rows->limits->stop_words - CGR__STOPS_TOKENS, vocab_size));
  CGR__TRY(check_lengths(rows, stops));
  words[CGR__STOPS_MAX_LENGTH] = stops->max_length;
  words[CGR__STOPS_MIN_LENGTH] = stops->min_length;
  words[CGR__STOPS_COUNT] = stops->num_tokens;
  if (stops->num_tokens > 0)
    memcpy(words + CGR__STOPS_TOKENS, stops->tokens, (size_t)stops->num_tokens * sizeof *words);
  cgr__rows_set_data(rows, row, rows->stops, words);
  if (rows->row[row].ended)
    bring_back(rows, row);
  return CGR_OK;
}

static void end_row(cgr__rows *rows, uint64_t seq, int32_t row, cgr_end end, int32_t length) {
  cgr__members_sync(rows, row);
  if (rows->has_ledger)
    cgr__ledger_reject(rows, row, rows->row[row].computed - length);
  rows->row[row].computed = length;
  rows->row[row].ended = (uint8_t)end & 3u;
  cgr__drafts_end(rows, seq, row, length);
  cgr__guesses_forget(rows, row);
  cgr__members_revalidate(rows, row);
}

void cgr__stops_take(cgr__rows *rows, uint64_t seq, const cgr__batch_layout *batch, const int32_t *ended, const int32_t *lengths,
                     int32_t num_requests) {
  for (int32_t i = 0; i < num_requests; i++) {
    const int32_t row = batch->rows[i], end = ended[i];
    if (end == CGR_END_NONE || end == CGR_END_BEFORE || seq <= rows->guesses.since[row])
      continue;
    end_row(rows, seq, row, (cgr_end)end, lengths[i]);
  }
}

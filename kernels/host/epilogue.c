/* The epilogue: commits the rows, writes the result and publishes the step. */
#include <string.h>

#include "base/clock.h"
#include "kernels/host/launchers.h"
#include "kernels/host/step_error.h"
#include "kernels/stamp.h"
#include "kernels/step.h"
#include "kernels/values.h"

/* How many of its guesses request i has accepted. */
static int32_t count_accepted(const cgr__step_args *args, int32_t i, int32_t row, int32_t guesses) {
  int32_t accepted = guesses > 0 ? args->buffers.num_accepted[i] : 0;
  if (accepted >= 0 && accepted <= guesses)
    return accepted;
  cgr__host_claim_error(&args->state->error, CGR_GUARD_ACCEPTED, row, i, accepted);
  return 0;
}

/* A sampled token as rows go on with it. */
static int32_t checked_token(const cgr__step_args *args, int32_t i, int32_t row, int32_t token) {
  if (cgr__is_in_vocabulary(token, args->vocab_size))
    return token;
  cgr__host_claim_error(&args->state->error, CGR_GUARD_TOKEN, row, i, token);
  return 0;
}

/* What request i has sampled becomes what its row goes on with, the latest first. */
static void commit_tokens(const cgr__step_args *args, int32_t i, int32_t row, int32_t accepted) {
  int32_t *last = args->buffers.row_last_tokens + (int64_t)row * args->token_stride;
  const int32_t *next = args->buffers.next_tokens + (int64_t)i * args->token_stride;
  for (int32_t j = 0; j <= accepted; j++)
    last[j] = checked_token(args, i, row, next[accepted - j]);
}

/* Whether an earlier step has ended the row of a request, which may be no row at all. */
static bool has_ended_before(const cgr__step_args *args, int32_t row) {
  return args->stops && row >= 0 && row < args->max_rows &&
         cgr__row_has_ended(cgr__step_computed(args, 0)[row], args->max_lens[0]);
}

/* Commits request i of a program after the first, which guesses. */
static int32_t commit_draft(const cgr__step_args *args, int32_t i, cgr_end *end) {
  const cgr__buffers *b = &args->buffers;
  const int32_t upto = b->query_start_loc[i + 1], most = args->token_stride - 1;
  const int32_t row = b->request_rows[i], seq_len = b->seq_lens[0][i];
  *end = seq_len <= 0 && has_ended_before(args, row) ? CGR_END_BEFORE : CGR_END_NONE;
  if (seq_len <= 0 || upto <= b->query_start_loc[i])
    return 0;
  b->row_computed[row] = seq_len - (upto - 1 - b->logits_indices[i]);
  if ((uint32_t)b->request_flags[i] & CGR_REQUEST_PARTIAL)
    return 0;
  int32_t *guesses = b->row_draft_tokens + (int64_t)row * most;
  memcpy(guesses, b->draft_tokens + (int64_t)i * most, (size_t)most * sizeof *guesses);
  guesses[0] = checked_token(args, i, row, b->next_tokens[(int64_t)i * args->token_stride]);
  return 1;
}

/* Where what request i has sampled ends its row. */
static cgr_end find_end(const cgr__step_args *args, int32_t i, int32_t row, int32_t length, int32_t *accepted) {
  const int32_t *next = args->buffers.next_tokens + (int64_t)i * args->token_stride;
  if (!args->stops)
    return CGR_END_NONE;
  return cgr__find_end(args->stops + (int64_t)row * args->stop_words, next, length, accepted);
}

/* Commits request i and returns how many tokens it sampled. A request that a guard refused has length 0, and its row may be no
 * row at all. */
static int32_t commit_request(const cgr__step_args *args, int32_t i, cgr_end *end) {
  const cgr__buffers *b = &args->buffers;
  const int32_t query_len = b->query_start_loc[i + 1] - b->query_start_loc[i], most = args->token_stride - 1;
  int32_t row = b->request_rows[i], seq_len = b->seq_lens[0][i], guesses, accepted;
  *end = seq_len <= 0 && has_ended_before(args, row) ? CGR_END_BEFORE : CGR_END_NONE;
  if (args->set > 0 || seq_len <= 0 || query_len <= 0)
    return 0;
  guesses = cgr__step_guesses(b->request_flags[i], query_len, args->token_stride);
  accepted = count_accepted(args, i, row, guesses);
  if ((uint32_t)b->request_flags[i] & CGR_REQUEST_PARTIAL) {
    b->row_computed[row] = seq_len;
    return 0;
  }
  *end = find_end(args, i, row, seq_len - guesses, &accepted);
  b->row_computed[row] = (seq_len - guesses + accepted) | (*end ? CGR__ROW_ENDED : 0);
  commit_tokens(args, i, row, accepted);
  if (most > 0) {
    b->row_num_accepted[row] = accepted;
    memcpy(b->row_draft_tokens + (int64_t)row * most, b->draft_tokens + (int64_t)i * most, (size_t)most * sizeof(int32_t));
  }
  return 1 + accepted;
}

/* num_tokens of the result and, where rows have stops, which rows have ended. Returns whether one ends in this step. */
static bool write_requests(const cgr__step_args *args, unsigned char *slot, int32_t num_requests) {
  int32_t *num_tokens = (int32_t *)(void *)(slot + args->readback_slot.num_tokens);
  int32_t *ended = (int32_t *)(void *)(slot + cgr__readback_ended(&args->readback_slot));
  int32_t *lengths = (int32_t *)(void *)(slot + cgr__readback_lengths(&args->readback_slot));
  bool ends = false;
  for (int32_t i = 0; i < num_requests; i++) {
    cgr_end end;
    num_tokens[i] = args->program > 0 ? commit_draft(args, i, &end) : commit_request(args, i, &end);
    if (!args->stops)
      continue;
    ended[i] = (int32_t)end;
    if (end == CGR_END_NONE || end == CGR_END_BEFORE)
      continue;
    lengths[i] = args->buffers.row_computed[args->buffers.request_rows[i]] & INT32_MAX;
    ends = true;
  }
  return ends;
}

static void write_record(const cgr__step_args *args, cgr__result_record *record, uint64_t seq, int32_t num_requests, bool ends) {
  const cgr__step_error *error = &args->state->error;
  *record = (cgr__result_record){ .seq = seq, .num_requests = num_requests, .ended = ends };
  record->error = __atomic_load_n(&error->error, __ATOMIC_RELAXED);
  record->error_row = error->row;
  record->error_index = error->index;
  record->error_value = error->value;
  if (args->token_stride > 1 || args->stops)
    record->generation = args->state->generation;
}

static void write_values(const cgr__step_args *args, unsigned char *slot, uint64_t seq, int32_t num_requests) {
  uint32_t *values = (uint32_t *)(void *)(slot + args->readback_slot.values);
  for (int32_t i = 0; i < num_requests; i++)
    values[i] = cgr__value_bits((uint64_t)args->buffers.value_flags[i], seq);
}

void cgr__host_epilogue(const void *pointer) {
  const cgr__step_args *args = (const cgr__step_args *)pointer;
  cgr__step_state *state = args->state;
  uint64_t seq = state->seq + 1;
  int32_t num_requests = args->abandon ? 0 : args->buffers.counts[CGR_COUNT_REQUESTS];
  unsigned char *slot = args->readback + cgr__ring_slot_index(seq, args->ring_depth) * args->readback_slot.stride;
  bool ends = write_requests(args, slot, num_requests);
  memcpy(slot + args->readback_slot.tokens, args->buffers.next_tokens, (size_t)num_requests * (size_t)args->token_stride * 4);
  if (args->buffers.value_flags)
    write_values(args, slot, seq, num_requests);
  if (state->error.error != CGR_GUARD_NONE)
    state->errors++;
  state->generation += (uint64_t)state->lost;
  write_record(args, (cgr__result_record *)(void *)slot, seq, num_requests, ends);
  state->seq = seq;
  __atomic_store_n(&args->completion->generation, state->generation, __ATOMIC_RELAXED);
  __atomic_store_n(&args->completion->errors, state->errors, __ATOMIC_RELAXED);
  if (args->buffers.stamps)
    cgr__stamp_epilogue(cgr__stamp_row(args->buffers.stamps, seq, args->ring_depth, args->stamp_stride), (int64_t)cgr__now_ns());
  /* The host may read the result, reuse the ring slot and give pages away once it sees this. */
  __atomic_store_n(&args->completion->completed_seq, seq, __ATOMIC_RELEASE);
}

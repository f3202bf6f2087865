/* The epilogue: commits the rows, writes the result and publishes the step. */
#include "kernels/host/launchers.h"
#include "kernels/step.h"

static void commit_rows(const cgr__step_args *args, int32_t num_requests) {
  for (int32_t i = 0; i < num_requests; i++) {
    int32_t row = args->request_rows[i];
    /* A request that a guard refused has length 0, and its row may be no row at all. */
    if (args->seq_lens[i] <= 0 || args->query_start_loc[i + 1] <= args->query_start_loc[i])
      continue;
    args->row_computed[row] = args->seq_lens[i];
    if (!((uint32_t)args->request_flags[i] & CGR_REQUEST_PARTIAL))
      args->row_last_tokens[row] = args->next_tokens[i];
  }
}

static void write_result(const cgr__step_args *args, uint64_t seq, int32_t num_requests) {
  int64_t slot = (int64_t)(seq % (uint64_t)args->ring_depth);
  cgr__result_record *record = (cgr__result_record *)(args->readback + slot * args->readback_stride);
  const cgr__step_error *error = &args->state->error;
  *record = (cgr__result_record){ 0 };
  record->seq = seq;
  record->num_requests = num_requests;
  record->error = __atomic_load_n(&error->error, __ATOMIC_RELAXED);
  record->error_row = error->row;
  record->error_index = error->index;
  record->error_value = error->value;
  int32_t *tokens = (int32_t *)(record + 1);
  for (int32_t i = 0; i < num_requests; i++)
    tokens[i] = args->next_tokens[i];
}

void cgr__host_epilogue(const void *pointer) {
  const cgr__step_args *args = (const cgr__step_args *)pointer;
  cgr__step_state *state = args->state;
  uint64_t seq = state->seq + 1;
  int32_t num_requests = args->counts[CGR__COUNT_REQUESTS];
  if (!args->abandon)
    commit_rows(args, num_requests);
  write_result(args, seq, num_requests);
  if (state->error.error != CGR_STEP_OK)
    state->errors++;
  state->generation += (uint64_t)state->lost;
  state->seq = seq;
  __atomic_store_n(&args->completion->generation, state->generation, __ATOMIC_RELAXED);
  __atomic_store_n(&args->completion->errors, state->errors, __ATOMIC_RELEASE);
  /* The host may read the result, reuse the slot and give pages away once it sees this. */
  __atomic_store_n(&args->completion->completed_seq, seq, __ATOMIC_RELEASE);
}

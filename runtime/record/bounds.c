/* The longest lengths of a step, and its decodes: for plans on the host and for `record`. */
#include "requests/guesses.h"
#include "runtime/record/record.h"

/* Tokens of a row in the cache, in a program and a length set. */
static int32_t computed_of(const cgr_runtime *rt, int32_t row, int32_t program) {
  return program == 0 ? cgr__rows_computed(&rt->rows, row) : rt->rows.draft[program][row].computed;
}

int32_t cgr__fill_seq_lens(cgr_runtime *rt, const cgr__batch_layout *batch, int32_t program, int32_t set, int32_t *seq_lens) {
  int32_t longest = 1, count = batch ? batch->num_requests : 0;
  for (int32_t i = 0; i < count; i++) {
    int32_t row = batch->rows[i];
    int32_t seq_len =
        set > 0 ? cgr__rows_other_length(&rt->rows, row, set) : computed_of(rt, row, program) + batch->query_lens[i];
    if (cgr__request_has_ended(&rt->rows, batch, program, i)) /* planners expect at least the new tokens */
      seq_len = batch->query_lens[i];
    longest = seq_len > longest ? seq_len : longest;
    if (seq_lens)
      seq_lens[i] = seq_len;
  }
  return longest;
}

int32_t cgr__longest_query(const cgr__batch_layout *batch) {
  return batch && batch->max_query_len > 1 ? batch->max_query_len : 1;
}

int32_t cgr__count_decodes(const cgr_runtime *rt, const cgr__batch_layout *batch, int32_t *num_tokens) {
  cgr__decodes decodes = { .split = rt->setup.split };
  *num_tokens = decodes.split.threshold > 0 ? 0 : -1;
  if (decodes.split.threshold == 0 || !batch)
    return *num_tokens;
  for (int32_t i = 0; i < batch->num_requests; i++)
    cgr__decodes_add(&decodes, batch->query_lens[i]);
  const int32_t count = cgr__decodes_count(&decodes);
  for (int32_t i = 0; i < count; i++)
    *num_tokens += batch->query_lens[i];
  return count;
}

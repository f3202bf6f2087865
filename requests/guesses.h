/* Guesses (drafts): tokens of a step that it verifies. What the host knows of them until it has the step's result.
 *
 * A row's `computed` is an upper bound of its tokens in the cache while steps with guesses are under way, and `slack` is how many
 * of them may turn out not to be: computed - slack is a lower bound. A launched step adds its guesses to the slack and notes
 * them; its result takes them off again, and those that were rejected off `computed`. So
 * - a row without notes has no slack, and its `computed` is exact;
 * - no length is sent to the device while a row has slack: the device's own is the exact one. */
#ifndef CGR_REQUESTS_GUESSES_H
#define CGR_REQUESTS_GUESSES_H

#include "requests/rows.h"

#ifdef __cplusplus
extern "C" {
#endif

/* How many guesses the flags of a request tell of, and what else they have. */
static inline int32_t cgr__flags_guesses(uint32_t flags) { return (int32_t)(flags / CGR_REQUEST_DRAFTS(1) & 0xff); }
static inline uint32_t cgr__flags_but_guesses(uint32_t flags) { return flags & ~CGR_REQUEST_DRAFTS(0xff); }
/* Whether a request of so many tokens is its row's last one and guesses after it: it needs no tokens of the host's. */
static inline bool cgr__flags_go_on(uint32_t flags, int32_t query_len) {
  const int32_t guesses = cgr__flags_guesses(flags);
  return guesses > 0 && query_len == 1 + guesses;
}

/* Whether request `i` of a program's batch is known to be empty on the device, because its row has ended. Of a draft only what
 * follows is. */
static inline bool cgr__request_has_ended(const cgr__rows *rows, const cgr__batch_layout *batch, int32_t program, int32_t i) {
  return rows->row[batch->rows[i]].ended && (program == 0 || cgr__flags_guesses(batch->flags[i]) > 0);
}

/* The guesses that a request can have. */
static inline int32_t cgr__rows_most_guesses(const cgr__rows *rows) { return rows->limits->token_stride - 1; }

/* Checks guesses that the flags tell of, of a request of set 0 with so many tokens. `what`: the flags, for the message. */
cgr_status cgr__guesses_check(const char *function, const char *what, uint32_t flags, int32_t query_len, int32_t most);

/* Step `seq` was launched and verifies so many guesses of the row, whose request is at this place of the batch. */
void cgr__guesses_note(cgr__rows *rows, uint64_t seq, int32_t row, int32_t place, int32_t guesses);
/* The row's length is another one, or its request: what was noted before, and launched before, no longer concerns it. */
void cgr__guesses_forget(cgr__rows *rows, int32_t row);
/* Step `seq` has completed, with these sampled tokens of each request. */
void cgr__guesses_take(cgr__rows *rows, uint64_t seq, const int32_t *num_tokens, int32_t num_requests);
/* Every step that has notes and whose result was not taken was refused: no guess was accepted. */
void cgr__guesses_reject(cgr__rows *rows);

#ifdef __cplusplus
}
#endif

#endif

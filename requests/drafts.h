/* Drafts: the programs after the first, which follow it, the target. What a row has in each of them.
 *
 * A request of a draft has tokens of the host's, or it follows: it catches up with what the target's last step has sampled, of
 * which only the device knows how many tokens that were. Its length is the target's and one more token then, so it is known as
 * exactly as the target's: while the target's may be less by `slack`, so may the draft's, and a result that takes something off
 * the one takes it off the other. The rest is as in guesses.h: no length is sent while it has slack. */
#ifndef CGR_REQUESTS_DRAFTS_H
#define CGR_REQUESTS_DRAFTS_H

#include "requests/rows.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A row of a draft, with the tokens that are surely in its cache. */
static inline int32_t cgr__draft_least_computed(const cgr__draft_row *draft) { return draft->computed - draft->slack; }

/* A row opens: every draft has none of its tokens. */
void cgr__drafts_open(cgr__rows *rows, int32_t row);
/* The target's length becomes `num_tokens`: a draft keeps as many at most. The target's slack still counts. */
void cgr__drafts_cut(cgr__rows *rows, int32_t row, int32_t num_tokens);
/* The target's length is about to be set. If a step whose result has not been taken may have ended the row, a draft that followed
 * after it may not have run: nothing is known of how many tokens it has, and it keeps none. */
void cgr__drafts_doubt(cgr__rows *rows, int32_t row);
/* Step `seq` of the target ended the row with this length. A draft that followed a later step has not run: nothing is known of
 * how many tokens it has, and it keeps none. */
void cgr__drafts_end(cgr__rows *rows, uint64_t seq, int32_t row, int32_t num_tokens);
/* Sets a draft's length. The caller has checked row and program. */
cgr_status cgr__drafts_set_length(cgr__rows *rows, int32_t row, int32_t program, int32_t num_tokens);
/* Step `seq` of the target took so many of the row's tokens to be guesses, of which some were rejected. */
void cgr__drafts_take(cgr__rows *rows, uint64_t seq, int32_t row, int32_t guesses, int32_t rejected);
/* No guess that is not known to be was accepted. */
void cgr__drafts_reject(cgr__rows *rows, int32_t row);

/* The rows of a draft's step that ran although its launch reported a failure: what it has added is not theirs. */
void cgr__drafts_forget(cgr__rows *rows, const cgr__batch_layout *batch, int32_t program);

/* Request `i` of a draft's batch, whose row is open and up to date: whether it has the pages; its flags and its tokens, which
 * begin at tokens[at]. */
cgr_status cgr__drafts_check_pages(const cgr__rows *rows, const cgr_batch *batch, int32_t i, int32_t query_len);
cgr_status cgr__drafts_check_work(const cgr__rows *rows, const cgr_batch *batch, int32_t i, int64_t at, int32_t query_len);
/* The draft's step was launched as `seq`. */
void cgr__drafts_commit(cgr__rows *rows, const cgr__batch_layout *batch, int32_t program, uint64_t seq);

#ifdef __cplusplus
}
#endif

#endif

/* Batches: their validation against the rows and the limits, which is always on, and what is kept of them. A good batch is
 * recorded as a batch layout. One that is nearly the last is compared with that one instead (follow.h). */
#ifndef CGR_REQUESTS_BATCH_H
#define CGR_REQUESTS_BATCH_H

#include "requests/rows.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A validated batch. */
typedef struct cgr__checked_batch {
  cgr__batch_layout *batch_layout;
  int32_t num_requests, num_tokens;
  int32_t query_len, max_query_len; /* query_len: uniform; 0: mixed or none */
  bool standing;                    /* it is the engine's standing batch */
  bool follows;                     /* the members follow it. In either case its batch layout does not stay as it is */
  bool append_first;                /* a row has a `shared_prefix` */
  uint8_t set;                      /* whose tokens the step has; unless it is 0, the rows stay as they are */
  uint8_t program;                  /* whose step it is; unless it is 0, the draft's rows advance (drafts.h) */
} cgr__checked_batch;

/* What a request of a batch that is given whole has to do. */
static inline int32_t cgr__batch_query_len(const cgr_batch *batch, int32_t i) {
  return batch->query_lens ? batch->query_lens[i] : 1;
}
static inline uint32_t cgr__batch_flags(const cgr_batch *batch, int32_t i) { return batch->flags ? batch->flags[i] : 0; }
static inline bool cgr__batch_flags_are_good(const cgr_batch *batch, int32_t i) {
  return (cgr__batch_flags(batch, i) & ~(uint32_t)CGR_REQUEST_PARTIAL) == 0;
}

/* What a good batch has in common with its batch layout. */
static inline void cgr__batch_describe(cgr__checked_batch *checked) {
  const cgr__batch_layout *c = checked->batch_layout;
  checked->num_requests = c->num_requests;
  checked->num_tokens = c->num_tokens;
  checked->query_len = c->query_len;
  checked->max_query_len = c->max_query_len;
}

/* The same of a batch of the members: the engine's standing batch, or one that they follow. */
static inline void cgr__batch_describe_members(cgr__batch_layout *layout, bool standing, bool append_first,
                                               cgr__checked_batch *checked) {
  checked->batch_layout = layout;
  checked->standing = standing;
  checked->follows = !standing;
  checked->append_first = append_first;
  checked->set = 0;
  checked->program = 0;
  cgr__batch_describe(checked);
}
/* Whether its requests are the members. */
static inline bool cgr__batch_is_of_members(const cgr__checked_batch *checked) { return checked->standing || checked->follows; }

/* Whether the batch is good. On failure nothing has changed that a later call could see. `batch` is a copy that cgr__sized_read
 * made; `set` the length set of its tokens. */
cgr_status cgr__batch_validate(cgr__rows *rows, cgr__lane_batches *batches, const cgr_batch *batch, int32_t set,
                               int32_t max_requests, int32_t max_tokens, cgr__checked_batch *checked);
/* The same by a look at every request; the members stay as they are, as they must while a step is prepared. */
cgr_status cgr__batch_look(cgr__rows *rows, cgr__lane_batches *batches, const cgr_batch *batch, int32_t set, int32_t max_requests,
                           int32_t max_tokens, cgr__checked_batch *checked);
/* Checks tokens[at .. at + count) of one request: ids, except that the first may be CGR_TOKEN_LAST and, after that one, its
 * `guesses` CGR_TOKEN_DRAFT(0 .. most - 1). */
cgr_status cgr__batch_check_ids(const char *function, const int32_t *tokens, int64_t at, int32_t count, int32_t guesses,
                                int32_t most);
/* Fails: the row has no pages for that many tokens, or may not have that many. */
cgr_status cgr__batch_refuse_length(const cgr__rows *rows, int32_t row, int64_t length);

/* The step was launched as `seq`, and no members follow it: its rows advance. The batch layout that the device has is that of
 * step `device_seq`. */
void cgr__batch_commit(cgr__rows *rows, cgr__lane_batches *batches, const cgr__checked_batch *checked, uint64_t seq,
                       uint64_t device_seq);

/* A launched step was given up before it could change its rows: it only keeps their pages in use until it has completed. */
void cgr__batch_abandon(cgr__rows *rows, const cgr__checked_batch *checked, uint64_t seq);

/* Checks that requests of 1 .. threshold new tokens come before longer ones; those without tokens may stand anywhere. That is all
 * that a uniform split needs, too: where its decodes end follows from the order, and what comes after are prefills of any length.
 */
cgr_status cgr__batch_check_order(const cgr__batch_layout *batch, int32_t threshold);

#ifdef __cplusplus
}
#endif

#endif

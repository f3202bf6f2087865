/* Batches: their validation against the rows and the limits, which is always on, and what is kept of them.
 *
 * A good batch is recorded as a batch layout. One that repeats the last is recognised by comparing the two, and is not validated
 * again for as many steps as surely fit (cgr__steady). */
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
  int32_t headroom;                 /* further steps like this one that fit */
  bool standing;                    /* it is the standing batch: its batch layout does not stay as it is */
  bool same_rows;                   /* rows and query lengths are those of the step launched last */
  bool append_first;                /* a row has a `shared_prefix` */
  uint8_t set;                      /* whose tokens the step has; unless it is 0, the rows stay as they are */
} cgr__checked_batch;

/* On failure nothing has changed. `batch` is a copy that cgr__sized_read made; `set` the length set of its tokens. */
cgr_status cgr__batch_validate(cgr__rows *rows, cgr__lane_batches *batches, const cgr_batch *batch, int32_t set,
                               int32_t max_requests, int32_t max_tokens, cgr__checked_batch *checked);

/* Whether the batch repeats the last one and needs no further look; if so, *checked describes it. */
bool cgr__batch_is_known(const cgr__lane_batches *batches, const cgr_batch *batch, cgr__checked_batch *checked);
/* Checks tokens[at .. at + count) of one request: ids, except that the first may be CGR_TOKEN_LAST. */
cgr_status cgr__batch_check_ids(const char *function, const int32_t *tokens, int64_t at, int32_t count);
/* Fails: the row has no pages for that many tokens, or may not have that many. */
cgr_status cgr__batch_refuse_length(const cgr__rows *rows, int32_t row, int64_t length);

/* The step was launched as `seq`: its rows advance. */
void cgr__batch_commit(cgr__rows *rows, cgr__lane_batches *batches, const cgr__checked_batch *checked, uint64_t seq);

/* A launched step was given up before it could change its rows: it only keeps their pages in use until it has completed. */
void cgr__batch_abandon(cgr__rows *rows, const cgr__checked_batch *checked, uint64_t seq);

/* Checks that decodes (1 .. threshold new tokens) come before longer requests; those without tokens may stand anywhere. */
cgr_status cgr__batch_check_order(const cgr__batch_layout *batch, int32_t threshold);
/* Counts the requests before the first with more new tokens than `threshold`, and their tokens. */
int32_t cgr__batch_count_decodes(const cgr__batch_layout *batch, int32_t threshold, int32_t *num_tokens);

#ifdef __cplusplus
}
#endif

#endif

/* Who works on what under a plan, token by token, for tests. */
#ifndef CGR_TESTS_SUPPORT_COVER_H
#define CGR_TESTS_SUPPORT_COVER_H

#include <stdint.h>

#include "planners/attention/plan.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct cgr__cover_batch {
  int32_t num_requests, tile_q;
  const int32_t *query_start, *seq_lens; /* [num_requests + 1], [num_requests] */
  const int64_t *offsets;                /* [num_requests] where a request's matrix [query_len][seq_len] begins in counts */
} cgr__cover_batch;

/* An item and the part that runs it. */
typedef struct cgr__cover_item {
  int32_t part;
  cgr__plan_item item;
} cgr__cover_item;

/* Walks all parts of `plan`. Writes the items, up to `capacity`, in the order of the parts, adds 1 to `counts` for every
 * (request, new token, token of a KV tile within the q tile's causal end), and returns the number of items; -1 when a
 * item lies outside the batch or there are more than `capacity`. `counts` may be NULL. */
int64_t cgr__cover_plan(const void *plan, const cgr__cover_batch *batch, int32_t *counts, cgr__cover_item *items,
                        int64_t capacity);

#ifdef __cplusplus
}
#endif
#endif

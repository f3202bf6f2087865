/* Who works on what under a plan, item by item, for tests. */
#ifndef CGR_TESTS_SUPPORT_COVER_H
#define CGR_TESTS_SUPPORT_COVER_H

#include <stdint.h>

#include "planners/attention/plan.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct cgr__cover_batch {
  int32_t num_requests;
  const int32_t *query_start, *seq_lens; /* [num_requests + 1], [num_requests] */
} cgr__cover_batch;

/* An item and who runs it. */
typedef struct cgr__cover_item {
  int32_t part;  /* of the decode section; -1: the item is one of the prefill queue */
  int32_t entry; /* of the prefill queue; -1: the item is one of the decode section */
  cgr__plan_item item;
} cgr__cover_item;

/* Walks all parts of the decode section, then the prefill queue with every head block of every entry, and writes the items in
 * that order. Returns their number; -1 if the header does not fit the class, an item is outside the batch, a walk continues
 * after its last item or there are more than `capacity`. */
int64_t cgr__cover_plan(const cgr__plan_class *c, const void *plan, const cgr__cover_batch *batch, cgr__cover_item *items,
                        int64_t capacity);

#ifdef __cplusplus
}
#endif
#endif

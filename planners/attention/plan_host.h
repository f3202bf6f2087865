/* The host planner of the native attention plan: the same integers as the device planner, from arrays of the host. Nothing is
 * validated and nothing is allocated here. */
#ifndef CGR_PLANNERS_ATTENTION_PLAN_HOST_H
#define CGR_PLANNERS_ATTENTION_PLAN_HOST_H

#include <stddef.h>
#include <stdint.h>

#include "planners/attention/plan.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Bytes of scratch for cgr__plan_fill, aligned to 8; the macro takes any number of requests and parts. */
#define CGR__PLAN_SCRATCH_BYTES(requests, parts)          \
  (((size_t)(requests) + 1) * sizeof(cgr__plan_stretch) + \
   ((size_t)(parts) + 1) * (sizeof(cgr__plan_point) + sizeof(cgr__plan_before) + sizeof(int32_t)))
size_t cgr__plan_scratch_bytes(const cgr__plan_class *c);

/* Writes the plan of a batch. `query_start` [num_requests + 1] starts at 0 and does not decrease; a request whose seq_len is
 * below its query length is one that a guard has emptied. num_requests is at most c->max_requests, and the prefill queue's tiles
 * at most c->max_entries. `plan` is aligned to 16 bytes. */
void cgr__plan_fill(const cgr__plan_class *c, const int32_t *query_start, const int32_t *seq_lens, int32_t num_requests,
                    void *scratch, void *plan);

/* The most entries that the prefill queue of a batch can have; c->num_parts and c's tiles must be set. */
int64_t cgr__plan_max_entries(const cgr__plan_class *c, int32_t max_requests, int32_t max_tokens);

#ifdef __cplusplus
}
#endif
#endif

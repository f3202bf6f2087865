/* The host planner of the native attention plan: the same integers as the device planner, from arrays of the host. Nothing is
 * validated and nothing is allocated here. */
#ifndef CGR_PLANNERS_ATTENTION_PLAN_HOST_H
#define CGR_PLANNERS_ATTENTION_PLAN_HOST_H

#include <stddef.h>
#include <stdint.h>

#include "cgr/planners.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Bytes of a plan of G parts: the header and the parts. */
size_t cgr__plan_bytes(int32_t num_parts);

/* Writes every word of the plan. `query_start` [num_requests + 1] starts at 0 and does not decrease; a request whose seq_len is
 * below its query length costs nothing. `prefix` [num_requests + 1] is scratch. `plan` is aligned to 8 bytes. */
void cgr__plan_fill(const int32_t *query_start, const int32_t *seq_lens, int32_t num_requests, int32_t num_parts, int32_t tile_q,
                    int64_t *prefix, void *plan);

/* 64-bit words of scratch that cgr__plan_build takes: the prefix and the starts of the queries. */
static inline size_t cgr__plan_scratch_words(int32_t num_requests) {
  return (size_t)num_requests + 1 + ((size_t)num_requests + 2) / 2;
}

/* The same from a public input that has been validated: lengths not negative, the sum of query_lens at most INT32_MAX - 64,
 * seq_lens at least query_lens, num_parts at least 1, tile_q a power of two up to 64. */
void cgr__plan_build(const cgr_plan_input *input, int64_t *scratch, void *plan);

#ifdef __cplusplus
}
#endif
#endif

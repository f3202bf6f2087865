/* Whether what an attention launch wrote is right. */
#ifndef CGR_PROFILES_SUPPORT_ATTENTION_CHECK_H
#define CGR_PROFILES_SUPPORT_ATTENTION_CHECK_H

#include "profiles/support/attention_alone.h"

/* On the host: what the launch read and wrote. */
typedef struct bench_attention_output {
  const int32_t *query_start; /* [num_requests + 1] */
  const int32_t *table;       /* [num_requests][stride] pages of the requests */
  int64_t stride;
  const cgr_kv_view *cache; /* K and V: of i8 their factors are in device memory */
  const uint16_t *out;      /* [tokens][num_q_heads][head_dim] */
  const float *lse;         /* [tokens][num_q_heads] */
} bench_attention_output;

/* Checks that all lse and outputs are finite, that no head is 0 throughout, and that `samples` tokens, from the batch's first to
 * its last, are near the fp64 reference, each for the query heads of one KV head. Exits if not; returns how near they are. */
bench_attention_error bench_attention_check(const bench_attention *b, const bench_attention_output *output);

#endif

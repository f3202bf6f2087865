/* FlashAttention-3's scheduler metadata on the host, and what its key decides. */
#ifndef CGR_INTEROP_FA3_HOST_H
#define CGR_INTEROP_FA3_HOST_H

#include "cgr/interop/fa3.h"
#include "interop/fa3/format.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Reads and checks everything but the arrays, and derives the rest; `function` is named in messages. */
cgr_status cgr__fa3_read_key(const char *function, const cgr_fa3_input *given, cgr_fa3_input *in, cgr_fa3_sizes *sizes,
                             cgr__fa3_key *c);

/* The checks that build and enqueue share, after cgr__fa3_read_key. */
cgr_status cgr__fa3_check_memory(const char *function, const cgr_fa3_input *in, const cgr_fa3_sizes *sizes, const void *metadata,
                                 size_t bytes);

/* What mha_fwd_get_scheduler_metadata derives from an input within its limits. */
void cgr__fa3_derive(const cgr_fa3_input *in, cgr_fa3_sizes *sizes, cgr__fa3_key *c);

/* Writes all words. Lengths beyond a limit count as the limit. `live_requests` may be NULL. */
void cgr__fa3_fill(const cgr__fa3_key *c, const int32_t *query_start_loc, const int32_t *seq_lens, const int32_t *live_requests,
                   int32_t *metadata);

#ifdef __cplusplus
}
#endif
#endif

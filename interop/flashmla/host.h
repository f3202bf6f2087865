/* FlashMLA's metadata on the host: its planner, which validates nothing, and what reads and checks an input for all calls.
 * Nothing is allocated. */
#ifndef CGR_INTEROP_FLASHMLA_HOST_H
#define CGR_INTEROP_FLASHMLA_HOST_H

#include <stddef.h>

#include "cgr/interop/flashmla.h"
#include "interop/flashmla/format.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Bytes of the metadata: [num_parts][8] words, then [num_requests + 1] words of num_splits. */
static inline size_t cgr__flashmla_bytes(const cgr__flashmla_key *c) {
  return ((size_t)c->num_parts * CGR__FLASHMLA_WORDS + (size_t)c->num_requests + 1) * sizeof(int32_t);
}

/* Writes all words. */
void cgr__flashmla_fill(const cgr__flashmla_key *c, const cgr__flashmla_lens *lens, int32_t *metadata);

/* Checks what depends on the key alone and fills in what is derived; then the place of the metadata. */
cgr_status cgr__flashmla_read_key(const char *function, const cgr_flashmla_input *input, cgr__flashmla_key *c,
                                  cgr__flashmla_lens *lens);
cgr_status cgr__flashmla_check_memory(const char *function, const cgr__flashmla_key *c, const cgr__flashmla_lens *lens,
                                      const void *metadata, size_t bytes);

#ifdef __cplusplus
}
#endif
#endif

/* The append: K and V of a step's new tokens go to their pages. Which layers it can serve is in registry.h. */
#ifndef CGR_KERNELS_APPEND_H
#define CGR_KERNELS_APPEND_H

#include <stdint.h>

#include "cgr/attention.h"
#include "devices/device.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Puts k and v of tokens [0, num_tokens) into their slots, copied, or quantised if the cache has 8 bits (quantise.h); slot -1,
 * and any slot outside the pool, writes nothing. */
typedef struct cgr__append_args {
  cgr_kv_view k_cache, v_cache;
  cgr_view k, v;               /* [num_tokens, num_kv_heads, head_dim or head_dim_v] */
  const int64_t *slot_mapping; /* [num_tokens] */
  int64_t num_pages;
  int32_t page_size;
  int32_t num_tokens; /* padded */
  int32_t num_kv_heads, head_dim, head_dim_v;
  int32_t attention_follows; /* 1: the next launch in the stream is attention with after_append, which may begin before it ends.
                                So this one is launched in the ordinary way, never early */
} cgr__append_args;
extern const cgr__kernel cgr__kernel_append; /* cgr__append_args */

#ifdef __cplusplus
}
#endif
#endif

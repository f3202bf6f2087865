/* The append: K and V of a step's new tokens go to their pages. */
#ifndef CGR_KERNELS_APPEND_H
#define CGR_KERNELS_APPEND_H

#include <stddef.h>
#include <stdint.h>

#include "cgr/attention.h"
#include "devices/device.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Copies k and v of tokens [0, num_tokens) to their slots; slot -1, and any slot outside the pool, writes nothing. */
typedef struct cgr__append_args {
  cgr_kv_view k_cache, v_cache;
  cgr_view k, v;               /* [num_tokens, num_kv_heads, head_dim] */
  const int64_t *slot_mapping; /* [num_tokens] */
  int64_t num_pages;
  int32_t page_size;
  int32_t num_tokens; /* padded */
  int32_t num_kv_heads, head_dim;
} cgr__append_args;
extern const cgr__kernel cgr__kernel_append; /* cgr__append_args */

/* Pieces of 16 bytes that a step of `tokens` moves, of K or of V: the kernel counts them in 32 bits. */
static inline int64_t cgr__append_pieces(int32_t num_kv_heads, int32_t head_dim, size_t dtype_size, int32_t tokens) {
  return (int64_t)num_kv_heads * head_dim * (int64_t)dtype_size / 16 * tokens;
}
#define CGR__MAX_APPEND_PIECES (INT32_MAX - 1024)

#ifdef __cplusplus
}
#endif
#endif

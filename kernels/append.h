/* The append: K and V of a step's new tokens go to their pages. */
#ifndef CGR_KERNELS_APPEND_H
#define CGR_KERNELS_APPEND_H

#include <stddef.h>
#include <stdint.h>

#include "base/findings.h"
#include "cgr/attention.h"
#include "devices/device.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Copies k and v of tokens [0, num_tokens) to their slots; slot -1, and any slot outside the pool, writes nothing. */
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

/* Vectors of 16 bytes that a step of `tokens` moves, of the wider of K and V: the kernel counts them in 32 bits. */
static inline int64_t cgr__append_vectors(int32_t num_kv_heads, int32_t head_dim, size_t dtype_size, int32_t tokens) {
  return (int64_t)num_kv_heads * head_dim * (int64_t)dtype_size / 16 * tokens;
}
#define CGR__MAX_APPEND_VECTORS (INT32_MAX - 1024)

/* Adds a finding if a step of `max_tokens` has more vectors than the kernel can count. `otherwise` ends its text: what else would
 * do. */
static inline void cgr__append_check(const cgr_layer *l, int32_t max_tokens, const char *field, const char *otherwise,
                                     cgr__findings *findings) {
  int32_t head_dim = l->head_dim > l->head_dim_v ? l->head_dim : l->head_dim_v;
  int64_t vectors = cgr__append_vectors(l->num_kv_heads, head_dim, cgr_dtype_size((cgr_dtype)l->k.dtype), max_tokens);
  if (vectors > CGR__MAX_APPEND_VECTORS)
    cgr__findings_add(findings, CGR_ERROR_UNSUPPORTED, field,
                      "is %d, which with head_dim %d and max_tokens %d is %lld vectors of 16 bytes, expected at most %d%s",
                      l->num_kv_heads, head_dim, max_tokens, (long long)vectors, CGR__MAX_APPEND_VECTORS, otherwise);
}

#ifdef __cplusplus
}
#endif
#endif

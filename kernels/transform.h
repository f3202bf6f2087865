/* The transform: biases, norms and rope of q, k and v of a step's tokens. k and v go on to their pages, as in the append; q stays
 * where it is, and so do keys and values without a cache. */
#ifndef CGR_KERNELS_TRANSFORM_H
#define CGR_KERNELS_TRANSFORM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/host_device.h"
#include "cgr/attention.h"
#include "devices/device.h"

#ifdef __cplusplus
extern "C" {
#endif

#define CGR__TRANSFORM_UNIT 8         /* elements: head dims are multiples of it */
#define CGR__TRANSFORM_ROTARY_UNIT 16 /* the same of rotary dims: both halves are whole units */
#define CGR__TRANSFORM_MAX_HEAD_DIM 1024
#define CGR__TRANSFORM_EPSILON 1e-6f /* of norms, unless another is given */

/* q, k or v: what a token's head becomes, and where it goes. */
typedef struct cgr__transformed {
  cgr_view from;      /* [num_tokens, num_heads, head_dim], of fp32, fp16 or bf16 */
  cgr_kv_view to;     /* the cache, in which the tokens have slots; base NULL: from itself, whose padded tokens are not touched */
  const void *bias;   /* [num_heads][head_dim] of from's dtype; NULL: none */
  const void *norm;   /* [head_dim], the same */
  int32_t num_heads;  /* 0: this tensor is left out */
  int32_t head_dim;   /* a multiple of CGR__TRANSFORM_UNIT up to CGR__TRANSFORM_MAX_HEAD_DIM */
  int32_t rotary_dim; /* a multiple of CGR__TRANSFORM_ROTARY_UNIT up to head_dim; 0: no rope */
  int32_t reserved;   /* fills a hole */
} cgr__transformed;

/* Whether elements become others; if not, their bits stay. */
CGR__HOST_DEVICE bool cgr__is_transformed(const cgr__transformed *t) {
  return t->bias != NULL || t->norm != NULL || t->rotary_dim > 0;
}

enum { CGR__TRANSFORM_Q, CGR__TRANSFORM_K, CGR__TRANSFORM_V, CGR__NUM_TRANSFORMED };

/* In fp32: x + bias; then x / sqrt(mean of x^2 + epsilon) * (norm + norm_offset); then for each of the rotary_dim / 2 pairs (x,
 * y) of a head (x * cos - y * sin, y * cos + x * sin). The result is rounded to from's dtype. What a cache gets is what the
 * append (append.h) makes of the rounded elements. Without bias, norm and rope the bits of elements stay as they are. */
typedef struct cgr__transform_args {
  cgr__transformed tensor[CGR__NUM_TRANSFORMED];
  const float *cos_sin;        /* [num_positions][rotary_dim]: cosines, then sines; all rotary dims above 0 are equal */
  const int32_t *positions;    /* [num_tokens]; one outside the table is taken as the nearest inside */
  const int32_t *counts;       /* tokens from counts[TOKENS] on are padding */
  const int64_t *slot_mapping; /* [num_tokens], for tensors that go to a cache; as in the append */
  int64_t num_pages;
  int32_t page_size;
  int32_t num_tokens; /* padded */
  int32_t num_positions;
  int32_t interleaved; /* 1: pairs are neighbours; 0: half of rotary_dim apart */
  float epsilon, norm_offset;
} cgr__transform_args;
extern const cgr__kernel cgr__kernel_transform; /* cgr__transform_args */

#ifdef __cplusplus
}
#endif
#endif

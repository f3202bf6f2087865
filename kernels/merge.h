/* The merge: two attentions over parts of a sequence that have no key in common become the attention over both. */
#ifndef CGR_KERNELS_MERGE_H
#define CGR_KERNELS_MERGE_H

#include <math.h>
#include <stdint.h>

#include "base/host_device.h"
#include "cgr/attention.h"
#include "devices/device.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Merges tokens [0, counts[TOKENS]); those up to num_tokens are padding: out = 0, lse = -inf, and their inputs are not read. An
 * output may be the same memory as an input of its shape, with the same strides and dtype: each element of out, and each lse, is
 * written by the thread that has read its inputs. fp32 arithmetic, outputs rounded to nearest even. */
typedef struct cgr__merge_args {
  cgr_view a, b, out;         /* [num_tokens, num_heads, head_dim], of fp32, fp16 or bf16 each */
  cgr_view a_lse, b_lse, lse; /* fp32 [num_tokens, num_heads]; lse.data NULL: not wanted */
  const int32_t *counts;
  int32_t num_tokens; /* padded */
  int32_t num_heads;
  int32_t head_dim; /* a multiple of CGR__MERGE_UNIT */
  int32_t reserved;
} cgr__merge_args;
extern const cgr__kernel cgr__kernel_merge; /* cgr__merge_args */

#define CGR__MERGE_UNIT 8 /* elements: 16 bytes of the smallest dtype */

/* The weight of each side in one head of a token, and the lse of the merge. */
typedef struct cgr__merge_weights {
  float a, b, lse;
} cgr__merge_weights;

/* FlashAttention 2 and FlashMLA report +inf for a query that has seen no key, others -inf. */
CGR__HOST_DEVICE float cgr__merge_lse_of(float lse) { return lse == INFINITY ? -INFINITY : lse; }

/* A side that has seen nothing has weight 0. The other one then has exactly 1, or 0 if it has seen nothing either. */
CGR__HOST_DEVICE cgr__merge_weights cgr__merge_weigh(float a_lse, float b_lse) {
  float a = cgr__merge_lse_of(a_lse), b = cgr__merge_lse_of(b_lse);
  cgr__merge_weights w = { a == -INFINITY ? 0.0f : 1.0f, b == -INFINITY ? 0.0f : 1.0f, a == -INFINITY ? b : a };
  if (w.a == 0.0f || w.b == 0.0f)
    return w;
  float max = a > b ? a : b;
  float of_a = expf(a - max), of_b = expf(b - max);
  w.a = of_a / (of_a + of_b);
  w.b = of_b / (of_a + of_b);
  w.lse = max + logf(of_a + of_b);
  return w;
}

/* A side of weight 0 takes no part, whatever it holds. */
CGR__HOST_DEVICE float cgr__merge_element(const cgr__merge_weights *w, float a, float b) {
  if (w->b == 0.0f)
    return w->a == 0.0f ? 0.0f : w->a * a;
  return w->a == 0.0f ? w->b * b : w->a * a + w->b * b;
}

#ifdef __cplusplus
}
#endif
#endif

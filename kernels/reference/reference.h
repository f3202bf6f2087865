/* What attention computes, for tests: densely, for one request, from logical arrays. It shares no code with the kernels. All
 * arrays are dense: q [query_len][num_q_heads][head_dim], k [seq_len][num_kv_heads][head_dim], v and out the same with
 * head_dim_v, lse [query_len][num_q_heads]. New token j is token seq_len - query_len + j of the sequence, except with `apart`:
 * then it is in another sequence and sees all of this one. */
#ifndef CGR_KERNELS_REFERENCE_REFERENCE_H
#define CGR_KERNELS_REFERENCE_REFERENCE_H

#include <stdint.h>

#include "cgr/cgr.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct cgr__reference_shape {
  int32_t query_len, seq_len;
  int32_t num_q_heads, num_kv_heads, head_dim, head_dim_v;
  int32_t causal, apart;
  int32_t window_left, window_right, chunk; /* as in cgr_layer */
  double scale, softcap;
  const float *alibi_slopes, *sinks; /* [num_q_heads] or NULL */
  int32_t alibi_sqrt;
  int32_t weights_dtype; /* of cgr__reference_attention_in: what P is rounded to before it meets V; 0: its dtype */
} cgr__reference_shape;

/* In fp64. lse is the natural logarithm; -inf, with out 0, where nothing is visible. lse may be NULL. */
void cgr__reference_attention(const cgr__reference_shape *shape, const double *q, const double *k, const double *v, double *out,
                              double *lse);

/* The same at the precision of the kernels: fp32 arithmetic, P rounded to `dtype` or to the shape's weights_dtype before it meets
 * V, out rounded to `dtype`. The inputs are values that kernels get. A kernel may err twice as much as this does. */
void cgr__reference_attention_in(int32_t dtype, const cgr__reference_shape *shape, const double *q, const double *k,
                                 const double *v, double *out, double *lse);

/* Nearest value of fp32, fp16 or bf16, ties to even; NaN and infinities stay. Of fp8_e4m3, fp8_e5m2 and i8 as caches hold them:
 * what is larger than the largest finite value, 127 in i8, becomes that, infinities too; NaN becomes 0 in i8. */
double cgr__reference_round(int32_t dtype, double x);

/* An element of one of these dtypes, to fp64 and from it (rounded). */
double cgr__reference_load(int32_t dtype, const void *element);
void cgr__reference_store(int32_t dtype, void *element, double x);

#ifdef __cplusplus
}
#endif
#endif

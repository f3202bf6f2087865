/* The engine's attention kernels, for own_kernels.c: one head of bf16, causal, paged; on the host and on CUDA. */
#ifndef OWN_ATTENTION_H
#define OWN_ATTENTION_H

#include <math.h>

#include "minimal_arithmetic.h"

/* What a kernel is launched with, and what a graph keeps: addresses, and the counts of the key. Everything that changes from step
 * to step is behind the addresses. */
typedef struct own_attention {
  cgr_device *device;
  int32_t kind, ordinal;                                    /* of cgr_device_info */
  const int32_t *query_start_loc, *seq_lens, *request_rows; /* cgr's buffers of these names */
  const int32_t *page_table;                                /* the engine's, [rows + 1][page_table_stride] */
  int64_t page_table_stride;
  cgr_kv_view k, v;
  const uint16_t *q; /* [num_tokens][MINIMAL_HEAD_DIM] */
  uint16_t *out;
  float scale;
  int32_t page_size, num_requests, num_tokens; /* padded */
} own_attention;

MINIMAL_INLINE const uint16_t *own_at(const cgr_kv_view *view, const own_attention *a, int32_t row, int32_t token) {
  const int64_t page = a->page_table[row * a->page_table_stride + token / a->page_size];
  return (const uint16_t *)view->base + page * view->stride_page + token % a->page_size * view->stride_token;
}

MINIMAL_INLINE float own_score(const own_attention *a, const uint16_t *q, int32_t row, int32_t token) {
  const uint16_t *k = own_at(&a->k, a, row, token);
  float sum = 0.0f;
  for (int32_t d = 0; d < MINIMAL_HEAD_DIM; d++)
    sum += minimal_from_bf16(q[d]) * minimal_from_bf16(k[d]);
  return sum * a->scale;
}

/* One query over the keys up to its own; cgr has appended those of this step. A padded token belongs to no request: out is 0. */
MINIMAL_INLINE void own_attend(const own_attention *a, int32_t token) {
  const uint16_t *q = a->q + (int64_t)token * MINIMAL_HEAD_DIM;
  float top = -INFINITY, sum = 0.0f, acc[MINIMAL_HEAD_DIM] = { 0 };
  int32_t request = 0, row = 0, seen = 0;
  while (request < a->num_requests && a->query_start_loc[request + 1] <= token)
    request++;
  if (request < a->num_requests) {
    row = a->request_rows[request];
    seen = a->seq_lens[request] - (a->query_start_loc[request + 1] - token) + 1;
  }
  for (int32_t t = 0; t < seen; t++)
    top = fmaxf(top, own_score(a, q, row, t));
  for (int32_t t = 0; t < seen; t++) {
    const uint16_t *v = own_at(&a->v, a, row, t);
    const float weight = expf(own_score(a, q, row, t) - top);
    sum += weight;
    for (int32_t d = 0; d < MINIMAL_HEAD_DIM; d++)
      acc[d] += weight * minimal_from_bf16(v[d]);
  }
  for (int32_t d = 0; d < MINIMAL_HEAD_DIM; d++)
    a->out[(int64_t)token * MINIMAL_HEAD_DIM + d] = minimal_to_bf16(seen > 0 ? acc[d] / sum : 0.0f);
}

#ifdef __cplusplus
extern "C" {
#endif
cgr_status own_attention_enqueue(const own_attention *attention, cudaStream_t stream);
/* On the GPU, in builds with CUDA. Returns 0, or a cudaError_t. */
int own_attention_cuda(const own_attention *attention, cudaStream_t stream);
#ifdef __cplusplus
}
#endif
#endif

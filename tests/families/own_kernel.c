#include <math.h>

#include "tests/families/own_backend.h"

/* One token and one head over the first `seen` keys; 0 of them gives out 0 and lse -inf, as padding must have. */
static void attend(const own_args *x, const int32_t *pages, int32_t seen, int32_t token, int32_t h) {
  const int32_t dim = x->l.head_dim, size = x->in.page_size, kv_head = h / (x->l.num_q_heads / x->l.num_kv_heads);
  const float *q = (const float *)x->a.q.data + token * x->a.q.stride_token + h * x->a.q.stride_head;
  const float scale = x->l.scale > 0 ? x->l.scale : 1 / sqrtf((float)dim);
  float *out = (float *)x->a.out.data + token * x->a.out.stride_token + h * x->a.out.stride_head, top = -INFINITY, sum = 0;
  for (int32_t d = 0; d < dim; d++)
    out[d] = 0;
  for (int32_t t = 0; t < seen; t++) {
    const cgr_kv_view *kv[2] = { &x->l.k, &x->l.v };
    const float *at[2];
    for (int i = 0; i < 2; i++)
      at[i] = (const float *)kv[i]->base + pages[t / size] * kv[i]->stride_page + t % size * kv[i]->stride_token +
              kv_head * kv[i]->stride_head;
    float score = 0, before = top;
    for (int32_t d = 0; d < dim; d++)
      score += q[d] * at[0][d] * scale;
    top = fmaxf(top, score);
    sum = sum * expf(before - top) + expf(score - top);
    for (int32_t d = 0; d < dim; d++)
      out[d] = out[d] * expf(before - top) + expf(score - top) * at[1][d];
  }
  for (int32_t d = 0; d < dim && seen > 0; d++)
    out[d] /= sum;
  if (x->a.lse.data)
    ((float *)x->a.lse.data)[token * x->a.lse.stride_token + h * x->a.lse.stride_head] = top + (seen > 0 ? logf(sum) : 0);
}

void own_kernel(const void *args) {
  const own_args *x = args;
  const int32_t *pages = (const int32_t *)(x->plan + x->at.block_table), *lens = (const int32_t *)(x->plan + x->at.seq_lens);
  const int32_t *start = (const int32_t *)(x->plan + x->at.query_start_loc), n = x->in.num_requests;
  for (int32_t h = 0; h < x->l.num_q_heads; h++) {
    for (int32_t r = 0; r < n; r++)
      for (int32_t t = start[r]; t < start[r + 1]; t++)
        attend(x, pages + r * x->in.max_pages, lens[r] - (start[r + 1] - t) + 1, t, h);
    for (int32_t t = start[n]; t < x->num_tokens; t++)
      attend(x, pages, 0, t, h);
  }
}

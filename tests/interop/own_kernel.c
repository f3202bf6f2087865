#include <math.h>

#include "tests/interop/own_backend.h"

/* One token and one head over the first `seen` keys; 0 of them gives out 0 and lse -inf, as padding must have. */
static void attend(const own_args *args, const int32_t *pages, int32_t seen, int32_t token, int32_t h) {
  const cgr_attention *call = &args->attention;
  const cgr_layer *layer = &args->layer;
  const int32_t dim = layer->head_dim, size = args->input.page_size, kv_head = h / (layer->num_q_heads / layer->num_kv_heads);
  const float *q = (const float *)call->q.data + token * call->q.stride_token + h * call->q.stride_head;
  const float scale = layer->scale > 0 ? layer->scale : 1 / sqrtf((float)dim);
  float *out = (float *)call->out.data + token * call->out.stride_token + h * call->out.stride_head;
  float top = -INFINITY, sum = 0;
  for (int32_t d = 0; d < dim; d++)
    out[d] = 0;
  for (int32_t t = 0; t < seen; t++) {
    const cgr_kv_view *kv[2] = { &layer->k, &layer->v };
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
  if (call->lse.data)
    ((float *)call->lse.data)[token * call->lse.stride_token + h * call->lse.stride_head] = top + (seen > 0 ? logf(sum) : 0);
}

void own_kernel(const void *raw) {
  const own_args *args = raw;
  const int32_t *pages = (const int32_t *)(args->plan + args->layout.block_table), n = args->input.num_requests;
  const int32_t *lens = (const int32_t *)(args->plan + args->layout.seq_lens);
  const int32_t *start = (const int32_t *)(args->plan + args->layout.query_start_loc);
  for (int32_t h = 0; h < args->layer.num_q_heads; h++) {
    for (int32_t r = 0; r < n; r++)
      for (int32_t t = start[r]; t < start[r + 1]; t++)
        attend(args, pages + r * args->input.max_pages, lens[r] - (start[r + 1] - t) + 1, t, h);
    for (int32_t t = start[n]; t < args->num_tokens; t++)
      attend(args, pages, 0, t, h);
  }
}

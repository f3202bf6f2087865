#include "kernels/merge.h"

#include "cgr/cgr.h"
#include "base/convert.h"
#include "kernels/host/launchers.h"

enum { UNIT = CGR__MERGE_UNIT };

_Static_assert(UNIT % CGR__VECTOR_ELEMENTS == 0, "a stretch is whole rows of convert.h");

static unsigned char *address(const cgr_view *view, int64_t token, int32_t head, int32_t d) {
  return (unsigned char *)view->data +
         (token * view->stride_token + head * view->stride_head + d) * cgr__element_size(view->dtype);
}

/* An empty view, of an lse that is not wanted, takes nothing. */
static void put_lse(const cgr_view *view, int64_t token, int32_t head, float lse) {
  if (view->data)
    *(float *)(void *)address(view, token, head, 0) = lse;
}

static void merge_head(const cgr__merge_args *m, int64_t token, int32_t head) {
  const cgr__merge_weights w = cgr__merge_weigh(*(const float *)(const void *)address(&m->a_lse, token, head, 0),
                                                *(const float *)(const void *)address(&m->b_lse, token, head, 0));
  for (int32_t d = 0; d < m->head_dim; d += UNIT) {
    float a[UNIT], b[UNIT];
    cgr__row_to_float(a, address(&m->a, token, head, d), m->a.dtype, UNIT);
    cgr__row_to_float(b, address(&m->b, token, head, d), m->b.dtype, UNIT);
    for (int32_t i = 0; i < UNIT; i++)
      a[i] = cgr__merge_element(&w, a[i], b[i]);
    cgr__row_from_float(address(&m->out, token, head, d), a, m->out.dtype, UNIT);
  }
  put_lse(&m->lse, token, head, w.lse);
}

static void clear_head(const cgr__merge_args *m, int64_t token, int32_t head) {
  memset(address(&m->out, token, head, 0), 0, (size_t)(m->head_dim * cgr__element_size(m->out.dtype)));
  put_lse(&m->lse, token, head, -INFINITY);
}

void cgr__host_merge(const void *pointer) {
  const cgr__merge_args *m = (const cgr__merge_args *)pointer;
  const int32_t real = m->counts[CGR_COUNT_TOKENS];
  for (int32_t t = 0; t < m->num_tokens; t++)
    for (int32_t h = 0; h < m->num_heads; h++)
      t < real ? merge_head(m, t, h) : clear_head(m, t, h);
}

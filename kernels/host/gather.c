#include "kernels/gather.h"

#include <string.h>

#include "base/convert.h"
#include "kernels/host/launchers.h"
#include "kernels/quantise.h"

enum { UNIT = CGR__GATHER_UNIT };

_Static_assert(UNIT % CGR__VECTOR_ELEMENTS == 0, "a stretch is whole rows of convert.h");

static unsigned char *address(const cgr_kv_view *view, int64_t page, int32_t token, int32_t head, int32_t d) {
  return (unsigned char *)view->base +
         (page * view->stride_page + token * view->stride_token + head * view->stride_head + d) * cgr__element_size(view->dtype);
}

/* UNIT elements of a head, from d on. */
static void gather_unit(const cgr_kv_view *in, const cgr_kv_view *out, int32_t source, int64_t page, int32_t token, int32_t head,
                        int32_t d) {
  const unsigned char *from = address(in, source, token, head, d);
  unsigned char *to = address(out, page, token, head, d);
  float x[UNIT];
  if (in->dtype == out->dtype) {
    memcpy(to, from, UNIT * sizeof(uint16_t));
    return;
  }
  if (!cgr__is_quantised(in->dtype)) {
    cgr__row_to_float(x, from, in->dtype, UNIT);
  } else {
    for (int32_t i = 0; i < UNIT; i++) {
      const float factor = in->scale ? *cgr__scale_at(in, source, token, head, d + i) : 1.0f;
      x[i] = cgr__code_value(from[i], in->dtype) * factor;
    }
  }
  cgr__row_from_float(to, x, out->dtype, UNIT);
}

/* Page 0 of the output has no source: it is zeros. */
static void gather_page(const cgr__gather_args *g, const cgr_kv_view *in, const cgr_kv_view *out, int32_t dim, int32_t source,
                        int64_t page) {
  for (int32_t t = 0; t < g->page_size; t++)
    for (int32_t h = 0; h < g->num_kv_heads; h++) {
      if (page == 0)
        memset(address(out, page, t, h, 0), 0, (size_t)dim * sizeof(uint16_t));
      for (int32_t d = 0; page > 0 && d < dim; d += UNIT)
        gather_unit(in, out, source, page, t, h, d);
    }
}

static void fill_table(const cgr__gather_args *g, const cgr__gather_range *range) {
  int64_t lost = 0;
  for (int32_t j = 0; j < g->num_requests; j++) {
    int32_t *to = g->block_table + j * g->table_stride;
    cgr__gather_row row = { 0, 0, 0 };
    if (j < range->end - range->first)
      row = cgr__gather_row_of(g, range, range->first + j);
    for (int64_t i = 0; i < g->table_stride; i++)
      to[i] = i < row.entries ? (int32_t)(row.page + i) : 0;
    lost += row.count - row.entries;
  }
  *g->overflow = (int32_t)lost;
}

void cgr__host_gather(const void *pointer) {
  const cgr__gather_args *g = (const cgr__gather_args *)pointer;
  const cgr__gather_range range = cgr__gather_range_of(g);
  const int64_t written = cgr__gather_written(g, &range);
  for (int64_t page = 0; page < written; page++) {
    const int32_t source = page > 0 ? cgr__gather_source(g, &range, page) : 0;
    gather_page(g, &g->k, &g->out_k, g->head_dim, source, page);
    gather_page(g, &g->v, &g->out_v, g->head_dim_v, source, page);
  }
  fill_table(g, &range);
}

/* The usual views: cgr_kv_view_make, cgr_kv_view_make_pair, cgr_view_make. */
#include <string.h>

#include "cgr/names.h"
#include "runtime/runtime.h"

/* What all of them take. */
typedef struct shape {
  const char *function;
  const void *memory;
  cgr_dtype dtype;
  int32_t page_size, num_heads, head_dim;
} shape;

static cgr_status check_count(const char *function, const char *name, int32_t value) {
  if (value >= 1 && value <= 1 << 20)
    return CGR_OK;
  return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "%s: %s is %d, expected 1 .. 2^20", function, name, value);
}

static cgr_status check_view_shape(const shape *s, const char *memory, const char *heads) {
  if (!s->memory)
    return cgr__fail(CGR_ERROR_NULL_POINTER, "%s: %s is NULL, expected an address", s->function, memory);
  CGR__TRY(cgr__check_choice(s->function, "dtype", &cgr__dtypes, (int32_t)s->dtype));
  CGR__TRY(check_count(s->function, "page_size", s->page_size));
  CGR__TRY(check_count(s->function, heads, s->num_heads));
  CGR__TRY(check_count(s->function, "head_dim", s->head_dim));
  if (cgr_dtype_bits(s->dtype) < 8 && s->head_dim % 2 != 0)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "%s: head_dim is %d, expected an even number: two elements of %s are a byte",
                     s->function, s->head_dim, cgr_dtype_name(s->dtype));
  return CGR_OK;
}

static cgr_status make_kv(const shape *s, cgr_kv_layout layout, void *base, int64_t pages_apart, cgr_kv_view *view) {
  int64_t size = s->page_size, heads = s->num_heads, dim = s->head_dim;
  CGR__TRY(cgr__check_choice(s->function, "layout", &cgr__kv_layouts, (int32_t)layout));
  memset(view, 0, sizeof *view);
  view->base = base;
  view->dtype = (int32_t)s->dtype;
  view->stride_page = pages_apart * size * heads * dim;
  view->stride_token = layout == CGR_LAYOUT_NHD ? heads * dim : dim;
  view->stride_head = layout == CGR_LAYOUT_NHD ? dim : size * dim;
  return CGR_OK;
}

cgr_status cgr_kv_view_make(cgr_kv_layout layout, void *base, cgr_dtype dtype, int32_t page_size, int32_t num_kv_heads,
                            int32_t head_dim, cgr_kv_view *view) {
  const shape s = { "cgr_kv_view_make", base, dtype, page_size, num_kv_heads, head_dim };
  CGR__REQUIRE(view, s.function);
  CGR__TRY(check_view_shape(&s, "base", "num_kv_heads"));
  return make_kv(&s, layout, base, 1, view);
}

cgr_status cgr_kv_view_make_pair(cgr_kv_layout layout, void *base, cgr_dtype dtype, int32_t page_size, int32_t num_kv_heads,
                                 int32_t head_dim, cgr_kv_view *k, cgr_kv_view *v) {
  const shape s = { "cgr_kv_view_make_pair", base, dtype, page_size, num_kv_heads, head_dim };
  CGR__REQUIRE(k, s.function);
  CGR__REQUIRE(v, s.function);
  CGR__TRY(check_view_shape(&s, "base", "num_kv_heads"));
  CGR__TRY(make_kv(&s, layout, base, 2, k));
  size_t page = (size_t)page_size * (size_t)num_kv_heads * (size_t)head_dim * cgr_dtype_bits(dtype) / 8;
  return make_kv(&s, layout, (unsigned char *)base + page, 2, v);
}

cgr_status cgr_view_make(void *data, cgr_dtype dtype, int32_t num_heads, int32_t head_dim, cgr_view *view) {
  const shape s = { "cgr_view_make", data, dtype, 1, num_heads, head_dim };
  CGR__REQUIRE(view, s.function);
  CGR__TRY(check_view_shape(&s, "data", "num_heads"));
  *view = (cgr_view){ data, (int32_t)dtype, 0, (int64_t)num_heads * head_dim, head_dim };
  return CGR_OK;
}

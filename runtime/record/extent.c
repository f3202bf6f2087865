#include "runtime/record/extent.h"

#include "base/limits.h"
#include "base/status.h"
#include "cgr/names.h"

/* One of the two dimensions steps over all that the other covers. */
static bool fits(const cgr_view *view, const cgr__extent *e) {
  int64_t token = view->stride_token, head = view->stride_head;
  bool heads_inside = head >= e->dim && token >= (e->heads - 1) * head + e->dim;
  bool tokens_inside = token >= e->dim && head >= (e->tokens - 1) * token + e->dim;
  return heads_inside || tokens_inside;
}

static bool has_strides(const cgr_view *view, int64_t unit) {
  return view->stride_token > 0 && view->stride_head > 0 && view->stride_token <= CGR__MAX_STRIDE &&
         view->stride_head <= CGR__MAX_STRIDE && view->stride_token % unit == 0 && view->stride_head % unit == 0;
}

/* Bytes from the first element to the end of the last one: strides are checked before. */
static uint64_t span(const cgr_view *view, const cgr__extent *e) {
  int64_t tokens = e->tokens > 0 ? e->tokens - 1 : 0, heads = e->heads > 0 ? e->heads - 1 : 0;
  return (uint64_t)(tokens * view->stride_token + heads * view->stride_head + e->dim) * cgr_dtype_size((cgr_dtype)e->dtype);
}

cgr_status cgr__extent_check(const char *function, const cgr_view *view, const cgr__extent *e) {
  size_t alignment = (size_t)e->unit * cgr_dtype_size((cgr_dtype)e->dtype);
  if (!view->data)
    return cgr__fail(CGR_ERROR_NULL_POINTER, "%s: %s.data is NULL, expected an address", function, e->name);
  if (view->reserved != 0)
    return cgr__fail(CGR_ERROR_NEWER_STRUCT, "%s: %s.reserved is %d, expected 0", function, e->name, view->reserved);
  if (view->dtype != e->dtype)
    return cgr__fail(cgr_dtype_size((cgr_dtype)view->dtype) ? CGR_ERROR_UNSUPPORTED : CGR_ERROR_INVALID_ENUM,
                     "%s: %s.dtype is %s (%d), expected %s (%d)%s", function, e->name, cgr_dtype_name((cgr_dtype)view->dtype),
                     view->dtype, cgr_dtype_name((cgr_dtype)e->dtype), e->dtype, e->whose);
  if ((uintptr_t)view->data % alignment != 0)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "%s: %s.data is %p, expected a multiple of %zu bytes", function, e->name,
                     view->data, alignment);
  if (!has_strides(view, e->unit))
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "%s: %s has strides %lld, %lld, expected positive multiples of %lld up to 2^31",
                     function, e->name, (long long)view->stride_token, (long long)view->stride_head, (long long)e->unit);
  if (!fits(view, e))
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT,
                     "%s: %s has strides %lld, %lld, which overlap, expected room for %d token%s of %d head%s of %d elements",
                     function, e->name, (long long)view->stride_token, (long long)view->stride_head, e->tokens,
                     cgr__plural(e->tokens), e->heads, cgr__plural(e->heads), e->dim);
  if ((uint64_t)(uintptr_t)view->data > (uint64_t)INT64_MAX - span(view, e))
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "%s: %s.data is %p, expected %llu bytes from there on to lie within memory",
                     function, e->name, view->data, (unsigned long long)span(view, e));
  return CGR_OK;
}

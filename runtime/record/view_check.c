#include "runtime/record/view_check.h"

#include "base/limits.h"
#include "cgr/names.h"
#include "base/status.h"
#include "devices/allocations.h"
#include "runtime/runtime.h"

/* One of the two dimensions steps over all that the other covers. */
static bool strides_fit(const cgr_view *view, const cgr__view_shape *e) {
  int64_t token = view->stride_token, head = view->stride_head;
  bool heads_inside = head >= e->dim && token >= (e->heads - 1) * head + e->dim;
  bool tokens_inside = token >= e->dim && head >= (e->tokens - 1) * token + e->dim;
  return heads_inside || tokens_inside;
}

static bool has_strides(const cgr_view *view, int64_t unit) {
  return view->stride_token > 0 && view->stride_head > 0 && view->stride_token <= CGR__MAX_STRIDE &&
         view->stride_head <= CGR__MAX_STRIDE && view->stride_token % unit == 0 && view->stride_head % unit == 0;
}

/* Bytes that so many neighbouring elements touch. */
static uint64_t bytes_of(int32_t dtype, int64_t elements) {
  return ((uint64_t)elements * cgr_dtype_bits((cgr_dtype)dtype) + 7) / 8;
}

/* Bytes from the first element to the end of the last one: strides are checked before. */
static uint64_t view_bytes(const cgr_view *view, const cgr__view_shape *e) {
  int64_t tokens = e->tokens > 0 ? e->tokens - 1 : 0, heads = e->heads > 0 ? e->heads - 1 : 0;
  return bytes_of(e->dtype, tokens * view->stride_token + heads * view->stride_head + e->dim);
}

cgr_status cgr__memory_end_check(const cgr__step_recorder *recorder, const char *function, const char *name, const void *data,
                                 uint64_t bytes) {
  size_t left, whole;
  if (!recorder->checks_ends || !cgr__allocations_is_short(recorder->runtime->dev->allocations, data, bytes, &left, &whole))
    return CGR_OK;
  return cgr__fail(CGR_ERROR_INVALID_ARGUMENT,
                   "%s: %s takes %llu bytes from %p on, expected at most %zu, where its allocation of %zu bytes ends", function,
                   name, (unsigned long long)bytes, data, left, whole);
}

cgr_status cgr__check_outside_plan(const cgr_recorder *recorder, const char *function) {
  if (recorder->in_plan)
    return cgr__fail(CGR_ERROR_STATE, "%s: called inside a backend's plan, expected a call outside of it", function);
  return CGR_OK;
}

cgr_status cgr__check_heads(const char *function, int32_t num_heads, int32_t head_dim) {
  enum { UNIT = 8, MAX_HEAD_DIM = 1024 };
  if (num_heads < 1 || num_heads > CGR__MAX_Q_HEADS)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "%s: num_heads is %d, expected 1 .. %d", function, num_heads, CGR__MAX_Q_HEADS);
  if (head_dim < UNIT || head_dim > MAX_HEAD_DIM || head_dim % UNIT != 0)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "%s: head_dim is %d, expected a multiple of %d, %d .. %d", function, head_dim,
                     UNIT, UNIT, MAX_HEAD_DIM);
  return CGR_OK;
}

cgr_status cgr__check_float_dtype(const char *function, const char *name, int32_t dtype) {
  if (dtype == CGR_DTYPE_FP32 || dtype == CGR_DTYPE_FP16 || dtype == CGR_DTYPE_BF16)
    return CGR_OK;
  return cgr__fail(cgr_dtype_bits((cgr_dtype)dtype) ? CGR_ERROR_UNSUPPORTED : CGR_ERROR_INVALID_ENUM,
                   "%s: %s is %s (%d), expected fp32, fp16 or bf16", function, name, cgr_dtype_name((cgr_dtype)dtype), dtype);
}

cgr_status cgr__view_check(const cgr__step_recorder *recorder, const char *function, const cgr_view *view,
                           const cgr__view_shape *e) {
  size_t alignment = (size_t)bytes_of(e->dtype, e->unit);
  if (!view->data)
    return cgr__fail(CGR_ERROR_NULL_POINTER, "%s: %s.data is NULL, expected an address", function, e->name);
  if (view->reserved != 0)
    return cgr__fail(CGR_ERROR_NEWER_STRUCT, "%s: %s.reserved is %d, expected 0", function, e->name, view->reserved);
  if (view->dtype != e->dtype)
    return cgr__fail(cgr_dtype_bits((cgr_dtype)view->dtype) ? CGR_ERROR_UNSUPPORTED : CGR_ERROR_INVALID_ENUM,
                     "%s: %s.dtype is %s (%d), expected %s (%d)%s", function, e->name, cgr_dtype_name((cgr_dtype)view->dtype),
                     view->dtype, cgr_dtype_name((cgr_dtype)e->dtype), e->dtype, e->whose);
  if ((uintptr_t)view->data % alignment != 0)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "%s: %s.data is %p, expected a multiple of %zu bytes", function, e->name,
                     view->data, alignment);
  if (!has_strides(view, e->unit))
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "%s: %s has strides %lld, %lld, expected positive multiples of %lld up to 2^31",
                     function, e->name, (long long)view->stride_token, (long long)view->stride_head, (long long)e->unit);
  if (!strides_fit(view, e))
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT,
                     "%s: %s has strides %lld, %lld, which overlap, expected room for %d token%s of %d head%s of %d elements",
                     function, e->name, (long long)view->stride_token, (long long)view->stride_head, e->tokens,
                     cgr__plural(e->tokens), e->heads, cgr__plural(e->heads), e->dim);
  if ((uint64_t)(uintptr_t)view->data > (uint64_t)INT64_MAX - view_bytes(view, e))
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "%s: %s.data is %p, expected %llu bytes from there on to be within memory",
                     function, e->name, view->data, (unsigned long long)view_bytes(view, e));
  return cgr__memory_end_check(recorder, function, e->name, view->data, view_bytes(view, e));
}

/* -------------------------------------------------------------------------------------------------------------- overlaps */

/* A tensor in bytes: its points, of `run` bytes each, are `inner` bytes apart in the smaller dimension and `outer` in the larger
 * one, which steps over all that the smaller covers. */
typedef struct strides {
  uintptr_t base;
  int64_t run, inner, outer;
  int64_t num_inner, num_outer;
  int64_t row, length; /* bytes from the first to the last point: of the smaller dimension, of both */
} strides;

static strides strides_of(const cgr__tensor *t) {
  const int64_t tokens = t->shape.tokens, heads = t->shape.heads;
  const int64_t token = (int64_t)bytes_of(t->shape.dtype, t->view->stride_token);
  const int64_t head = (int64_t)bytes_of(t->shape.dtype, t->view->stride_head);
  const bool heads_inside = tokens > 1 && (heads == 1 || token >= head);
  strides l = { .base = (uintptr_t)t->view->data, .run = (int64_t)bytes_of(t->shape.dtype, t->shape.dim) };
  l.num_inner = heads_inside ? heads : tokens;
  l.num_outer = heads_inside ? tokens : heads;
  l.inner = l.num_inner > 1 ? (heads_inside ? head : token) : l.run; /* of a single one: the stride means nothing */
  l.row = (l.num_inner - 1) * l.inner + l.run;
  l.outer = l.num_outer > 1 ? (heads_inside ? token : head) : l.row;
  l.length = (l.num_outer - 1) * l.outer + l.row;
  return l;
}

/* Whether [0, a) and [distance, distance + b) have a byte in common. */
static bool runs_meet(int64_t a, int64_t distance, int64_t b) { return distance < a && distance > -b; }

/* Whether the two, of the same strides, have a byte in common; b begins `distance` bytes after a. */
static bool meet_alike(const strides *a, const strides *b, int64_t distance) {
  const int64_t near_outer = distance / a->outer;
  for (int64_t o = near_outer - 1; o <= near_outer + 1; o++) {
    const int64_t rest = distance - o * a->outer;
    if (o <= -b->num_outer || o >= a->num_outer || !runs_meet(a->row, rest, b->row))
      continue;
    const int64_t near_inner = rest / a->inner;
    for (int64_t i = near_inner - 1; i <= near_inner + 1; i++)
      if (i > -b->num_inner && i < a->num_inner && runs_meet(a->run, rest - i * a->inner, b->run))
        return true;
  }
  return false;
}

/* Whether each byte from the first to the last belongs to it. */
static bool has_no_gaps(const strides *l) { return l->inner == l->run && l->outer == l->row; }

/* Whether an end of `part` is in `whole`, which has no gaps. */
static bool is_met_by(const strides *whole, const strides *part) {
  const uintptr_t first = part->base - whole->base, last = first + (uintptr_t)part->length - 1;
  return has_no_gaps(whole) && (first < (uintptr_t)whole->length || last < (uintptr_t)whole->length);
}

/* Whether the byte belongs to the tensor. */
static bool has_byte(const strides *l, uintptr_t byte) {
  const uintptr_t offset = byte - l->base;
  if (offset >= (uintptr_t)l->length)
    return false;
  const int64_t in_row = (int64_t)offset % l->outer;
  return in_row < l->row && in_row % l->inner < l->run;
}

/* Whether an end of the first run of `part` is in `whole`. */
static bool is_begun_in(const strides *whole, const strides *part) {
  return has_byte(whole, part->base) || has_byte(whole, part->base + (uintptr_t)part->run - 1);
}

/* Whether they are known to have a byte in common. If the strides are the same, that is always known; otherwise only if one
 * begins in the other, or has no gaps in which the other could be. */
static bool tensors_meet(const cgr__tensor *x, const cgr__tensor *y) {
  const strides a = strides_of(x), b = strides_of(y);
  if (b.base - a.base >= (uintptr_t)a.length && a.base - b.base >= (uintptr_t)b.length)
    return false;
  if (a.inner == b.inner && a.outer == b.outer)
    return meet_alike(&a, &b, (int64_t)(b.base - a.base));
  return is_begun_in(&a, &b) || is_begun_in(&b, &a) || is_met_by(&a, &b) || is_met_by(&b, &a);
}

/* Whether each element of one is the same element of the other. */
static bool are_same(const cgr__tensor *x, const cgr__tensor *y) {
  const cgr_view *a = x->view, *b = y->view;
  return x->shape.dim == y->shape.dim && a->data == b->data && a->dtype == b->dtype &&
         (x->shape.tokens == 1 || a->stride_token == b->stride_token) &&
         (x->shape.heads == 1 || a->stride_head == b->stride_head);
}

cgr_status cgr__tensor_check_apart(const char *function, const cgr__tensor *written, const cgr__tensor *other, bool may_be_same) {
  if (!written->view->data || !other->view->data || written->shape.tokens == 0 || (may_be_same && are_same(written, other)) ||
      !tensors_meet(written, other))
    return CGR_OK;
  return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "%s: %s at %p overlaps %s at %p, expected %s", function, written->shape.name,
                   written->view->data, other->shape.name, other->view->data,
                   may_be_same ? "memory of its own, or the same with the same dtype and strides" : "memory of its own");
}

#include "runtime/record/overlap.h"

#include "base/status.h"

/* A tensor in bytes: its points, of `run` bytes each, lie `inner` bytes apart in the smaller dimension and `outer` in the larger
 * one, which steps over all that the smaller covers. */
typedef struct lattice {
  uintptr_t base;
  int64_t run, inner, outer;
  int64_t num_inner, num_outer;
  int64_t row, extent; /* bytes from the first to the last point: of the smaller dimension, of both */
} lattice;

static lattice lattice_of(const cgr__tensor *t) {
  const int64_t size = (int64_t)cgr_dtype_size((cgr_dtype)t->extent.dtype);
  const int64_t tokens = t->extent.tokens, heads = t->extent.heads;
  const int64_t token = t->view->stride_token * size, head = t->view->stride_head * size;
  const bool heads_inside = tokens > 1 && (heads == 1 || token >= head);
  lattice l = { .base = (uintptr_t)t->view->data, .run = t->extent.dim * size };
  l.num_inner = heads_inside ? heads : tokens;
  l.num_outer = heads_inside ? tokens : heads;
  l.inner = l.num_inner > 1 ? (heads_inside ? head : token) : l.run; /* of a single one: the stride means nothing */
  l.row = (l.num_inner - 1) * l.inner + l.run;
  l.outer = l.num_outer > 1 ? (heads_inside ? token : head) : l.row;
  l.extent = (l.num_outer - 1) * l.outer + l.row;
  return l;
}

/* Whether [0, a) and [distance, distance + b) have a byte in common. */
static bool touch(int64_t a, int64_t distance, int64_t b) { return distance < a && distance > -b; }

/* Whether the two, of the same strides, have a byte in common; b begins `distance` bytes after a. */
static bool meet_alike(const lattice *a, const lattice *b, int64_t distance) {
  const int64_t near_outer = distance / a->outer;
  for (int64_t o = near_outer - 1; o <= near_outer + 1; o++) {
    const int64_t rest = distance - o * a->outer;
    if (o <= -b->num_outer || o >= a->num_outer || !touch(a->row, rest, b->row))
      continue;
    const int64_t near_inner = rest / a->inner;
    for (int64_t i = near_inner - 1; i <= near_inner + 1; i++)
      if (i > -b->num_inner && i < a->num_inner && touch(a->run, rest - i * a->inner, b->run))
        return true;
  }
  return false;
}

/* Whether each byte from the first to the last belongs to it. */
static bool has_no_gaps(const lattice *l) { return l->inner == l->run && l->outer == l->row; }

/* Whether an end of `part` lies in `whole`, which has no gaps. */
static bool is_met_by(const lattice *whole, const lattice *part) {
  const uintptr_t first = part->base - whole->base, last = first + (uintptr_t)part->extent - 1;
  return has_no_gaps(whole) && (first < (uintptr_t)whole->extent || last < (uintptr_t)whole->extent);
}

/* Whether the byte belongs to the tensor. */
static bool has_byte(const lattice *l, uintptr_t byte) {
  const uintptr_t offset = byte - l->base;
  if (offset >= (uintptr_t)l->extent)
    return false;
  const int64_t in_row = (int64_t)offset % l->outer;
  return in_row < l->row && in_row % l->inner < l->run;
}

/* Whether an end of the first run of `part` is in `whole`. */
static bool is_begun_in(const lattice *whole, const lattice *part) {
  return has_byte(whole, part->base) || has_byte(whole, part->base + (uintptr_t)part->run - 1);
}

/* Whether they are known to have a byte in common. If the strides are the same, that is always known; otherwise only if one
 * begins in the other, or has no gaps in which the other could lie. */
static bool meet(const cgr__tensor *x, const cgr__tensor *y) {
  const lattice a = lattice_of(x), b = lattice_of(y);
  if (b.base - a.base >= (uintptr_t)a.extent && a.base - b.base >= (uintptr_t)b.extent)
    return false;
  if (a.inner == b.inner && a.outer == b.outer)
    return meet_alike(&a, &b, (int64_t)(b.base - a.base));
  return is_begun_in(&a, &b) || is_begun_in(&b, &a) || is_met_by(&a, &b) || is_met_by(&b, &a);
}

/* Whether each element of one is the same element of the other. */
static bool are_same(const cgr__tensor *x, const cgr__tensor *y) {
  const cgr_view *a = x->view, *b = y->view;
  return x->extent.dim == y->extent.dim && a->data == b->data && a->dtype == b->dtype &&
         (x->extent.tokens == 1 || a->stride_token == b->stride_token) &&
         (x->extent.heads == 1 || a->stride_head == b->stride_head);
}

cgr_status cgr__tensor_check_apart(const char *function, const cgr__tensor *written, const cgr__tensor *other, bool may_be_same) {
  if (!written->view->data || !other->view->data || written->extent.tokens == 0 || (may_be_same && are_same(written, other)) ||
      !meet(written, other))
    return CGR_OK;
  return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "%s: %s at %p lies over %s at %p, expected %s", function, written->extent.name,
                   written->view->data, other->extent.name, other->view->data,
                   may_be_same ? "memory of its own, or the same with the same dtype and strides" : "memory of its own");
}

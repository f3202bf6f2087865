/* cgr_record_merge: checks the struct of the engine and enqueues the kernel. */
#include "kernels/merge.h"
#include "runtime/extent.h"
#include "runtime/runtime.h"

#define FUNCTION "cgr_record_merge"
enum { MAX_HEAD_DIM = 1024 };

/* A view, and what it holds. */
typedef struct tensor {
  const cgr_view *view;
  cgr__extent extent;
} tensor;

enum { A, B, A_LSE, B_LSE, OUT, LSE, NUM_TENSORS };

/* --------------------------------------------------------------------------------------------------------------- overlap */

/* A tensor in bytes: its points, of `run` bytes each, lie `inner` bytes apart in the smaller dimension and `outer` in the larger
 * one, which steps over all that the smaller covers. */
typedef struct lattice {
  uintptr_t base;
  int64_t run, inner, outer;
  int64_t num_inner, num_outer;
  int64_t row, extent; /* bytes from the first to the last point: of the smaller dimension, of both */
} lattice;

static lattice lattice_of(const tensor *t) {
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

/* Whether bytes [0, a) and [distance, distance + b) have one in common. */
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

/* Whether they are known to have a byte in common: always where the strides are the same; else where they begin together or one
 * has no gaps in which the other could lie. */
static bool meet(const tensor *x, const tensor *y) {
  const lattice a = lattice_of(x), b = lattice_of(y);
  if (b.base - a.base >= (uintptr_t)a.extent && a.base - b.base >= (uintptr_t)b.extent)
    return false;
  if (a.inner == b.inner && a.outer == b.outer)
    return meet_alike(&a, &b, (int64_t)(b.base - a.base));
  return a.base == b.base || is_met_by(&a, &b) || is_met_by(&b, &a);
}

/* Whether each element of one is the same element of the other. */
static bool are_same(const tensor *x, const tensor *y) {
  const cgr_view *a = x->view, *b = y->view;
  return x->extent.dim == y->extent.dim && a->data == b->data && a->dtype == b->dtype &&
         (x->extent.tokens == 1 || a->stride_token == b->stride_token) &&
         (x->extent.heads == 1 || a->stride_head == b->stride_head);
}

static cgr_status check_apart(const tensor *written, const tensor *other, bool may_be_same) {
  if (!written->view->data || !other->view->data || (may_be_same && are_same(written, other)) || !meet(written, other))
    return CGR_OK;
  return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, FUNCTION ": %s at %p lies over %s at %p, expected %s", written->extent.name,
                   written->view->data, other->extent.name, other->view->data,
                   may_be_same ? "memory of its own, or the same with the same dtype and strides" : "memory of its own");
}

static cgr_status check_overlaps(const tensor *t) {
  if (t[OUT].extent.tokens == 0)
    return CGR_OK;
  for (int i = A; i <= B_LSE; i++) {
    CGR__TRY(check_apart(&t[OUT], &t[i], i == A || i == B));
    CGR__TRY(check_apart(&t[LSE], &t[i], i == A_LSE || i == B_LSE));
  }
  return check_apart(&t[LSE], &t[OUT], false);
}

/* ---------------------------------------------------------------------------------------------------------------- checks */

static cgr_status check_numbers(const cgr_recorder *recorder, const cgr_merge *m) {
  if (recorder->in_plan)
    return cgr__fail(CGR_ERROR_STATE, FUNCTION ": called inside a backend's plan, expected a call outside of it");
  if (m->num_heads < 1 || m->num_heads > CGR__MAX_Q_HEADS)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, FUNCTION ": num_heads is %d, expected 1 .. %d", m->num_heads, CGR__MAX_Q_HEADS);
  if (m->head_dim < CGR__MERGE_UNIT || m->head_dim > MAX_HEAD_DIM || m->head_dim % CGR__MERGE_UNIT != 0)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, FUNCTION ": head_dim is %d, expected a multiple of %d, %d .. %d", m->head_dim,
                     CGR__MERGE_UNIT, CGR__MERGE_UNIT, MAX_HEAD_DIM);
  return cgr__check_unused(FUNCTION ": reserved", m->reserved);
}

static cgr_status check_dtype(const cgr_view *view, const char *name) {
  if (view->dtype == CGR_DTYPE_FP32 || view->dtype == CGR_DTYPE_FP16 || view->dtype == CGR_DTYPE_BF16)
    return CGR_OK;
  return cgr__fail(cgr_dtype_size((cgr_dtype)view->dtype) ? CGR_ERROR_UNSUPPORTED : CGR_ERROR_INVALID_ENUM,
                   FUNCTION ": %s.dtype is %s (%d), expected fp32, fp16 or bf16", name, cgr_dtype_name((cgr_dtype)view->dtype),
                   view->dtype);
}

static cgr_status check_views(const cgr_recorder *recorder, const cgr_merge *m, tensor *t) {
  static const char *const names[NUM_TENSORS] = { "a", "b", "a_lse", "b_lse", "out", "lse" };
  const cgr_view *const views[NUM_TENSORS] = { &m->a, &m->b, &m->a_lse, &m->b_lse, &m->out, &m->lse };
  const int32_t tokens = recorder->key.num_tokens;
  for (int i = 0; i < NUM_TENSORS; i++) {
    const bool is_lse = i == A_LSE || i == B_LSE || i == LSE;
    if (!is_lse)
      CGR__TRY(check_dtype(views[i], names[i]));
    t[i].view = views[i];
    t[i].extent = is_lse ? cgr__extent_of_lse(names[i], tokens, m->num_heads)
                         : cgr__extent_of(names[i], views[i]->dtype, tokens, m->num_heads, m->head_dim);
    if (i != LSE || views[i]->data)
      CGR__TRY(cgr__extent_check(FUNCTION, views[i], &t[i].extent));
  }
  return check_overlaps(t);
}

/* --------------------------------------------------------------------------------------------------------------- enqueue */

/* A graph holds what its merges read and write. */
static cgr_status hold_views(const cgr_recorder *recorder, const tensor *t) {
  for (int i = 0; recorder->capture && i < NUM_TENSORS; i++)
    if (t[i].view->data)
      CGR__TRY(cgr__capture_hold_address(recorder->capture, t[i].view->data));
  return CGR_OK;
}

static cgr_status enqueue(cgr__step_recorder *rec, const cgr_merge *m) {
  cgr_runtime *rt = rec->runtime;
  cgr__merge_args args = { .a = m->a, .b = m->b, .out = m->out, .a_lse = m->a_lse, .b_lse = m->b_lse, .lse = m->lse };
  args.counts = rt->lane.args.buffers.counts;
  args.num_tokens = rec->base.key.num_tokens;
  args.num_heads = m->num_heads;
  args.head_dim = m->head_dim;
  cgr__recorder_range_begin(&rec->base, CGR__RANGE_MERGE);
  int error = rt->dev->ops->launch(rt->dev, &cgr__kernel_merge, &args, rec->base.stream);
  cgr__recorder_range_end(&rec->base);
  return cgr__runtime_device_error(rt, error, FUNCTION ": enqueuing the merge");
}

static cgr_status record_merge(cgr__step_recorder *rec, const cgr_merge *merge) {
  cgr_merge m;
  tensor tensors[NUM_TENSORS];
  CGR__TRY(cgr__sized_read(FUNCTION ": merge", merge, &m, sizeof m));
  CGR__TRY(check_numbers(&rec->base, &m));
  CGR__TRY(check_views(&rec->base, &m, tensors));
  CGR__TRY(hold_views(&rec->base, tensors));
  return enqueue(rec, &m);
}

cgr_status cgr_record_merge(cgr_recorder *recorder, const cgr_merge *merge) {
  CGR__TRY(cgr__recorder_check(recorder, FUNCTION));
  return cgr__recorder_latch(recorder, record_merge((cgr__step_recorder *)(void *)recorder, merge));
}

/* cgr_record_merge: checks the struct of the engine and enqueues the kernel. */
#include "cgr/names.h"
#include "kernels/merge.h"
#include "runtime/record/record.h"
#include "runtime/record/view_check.h"
#include "runtime/runtime.h"

#define FUNCTION "cgr_record_merge"

enum { A, B, A_LSE, B_LSE, OUT, LSE, NUM_TENSORS };

static cgr_status check_merge_overlaps(const cgr__tensor *t) {
  for (int i = A; i <= B_LSE; i++) {
    CGR__TRY(cgr__tensor_check_apart(FUNCTION, &t[OUT], &t[i], i == A || i == B));
    CGR__TRY(cgr__tensor_check_apart(FUNCTION, &t[LSE], &t[i], i == A_LSE || i == B_LSE));
  }
  return cgr__tensor_check_apart(FUNCTION, &t[LSE], &t[OUT], false);
}

/* ---------------------------------------------------------------------------------------------------------------- checks */

static cgr_status check_merge_numbers(const cgr_recorder *recorder, const cgr_merge *m) {
  CGR__TRY(cgr__check_outside_plan(recorder, FUNCTION));
  CGR__TRY(cgr__check_heads(FUNCTION, m->num_heads, m->head_dim));
  return cgr__check_unused(FUNCTION ": reserved", m->reserved);
}

static cgr_status check_views(const cgr_recorder *recorder, const cgr_merge *m, cgr__tensor *t) {
  static const char *const names[NUM_TENSORS] = { "a", "b", "a_lse", "b_lse", "out", "lse" };
  static const char *const dtypes[NUM_TENSORS] = { [A] = "a.dtype", [B] = "b.dtype", [OUT] = "out.dtype" };
  const cgr_view *const views[NUM_TENSORS] = { &m->a, &m->b, &m->a_lse, &m->b_lse, &m->out, &m->lse };
  const int32_t tokens = recorder->key.num_tokens;
  for (int i = 0; i < NUM_TENSORS; i++) {
    const bool is_lse = i == A_LSE || i == B_LSE || i == LSE;
    if (!is_lse)
      CGR__TRY(cgr__check_float_dtype(FUNCTION, dtypes[i], views[i]->dtype));
    t[i].view = views[i];
    t[i].shape = is_lse ? cgr__view_shape_of_lse(names[i], tokens, m->num_heads)
                        : cgr__view_shape_of(names[i], views[i]->dtype, tokens, m->num_heads, m->head_dim);
    if (i != LSE || views[i]->data)
      CGR__TRY(cgr__view_check(recorder->owner, FUNCTION, views[i], &t[i].shape));
  }
  return check_merge_overlaps(t);
}

/* --------------------------------------------------------------------------------------------------------------- enqueue */

/* A graph holds what its merges read and write. */
static cgr_status hold_merge_views(const cgr_recorder *recorder, const cgr__tensor *t) {
  for (int i = 0; recorder->capture && i < NUM_TENSORS; i++)
    if (t[i].view->data)
      CGR__TRY(cgr__capture_hold_address(recorder->capture, t[i].view->data));
  return CGR_OK;
}

static cgr_status enqueue_merge(cgr__step_recorder *rec, const cgr_merge *m) {
  cgr_runtime *rt = rec->runtime;
  cgr__merge_args args = { .a = m->a, .b = m->b, .out = m->out, .a_lse = m->a_lse, .b_lse = m->b_lse, .lse = m->lse };
  args.counts = rt->lane.args.buffers.counts;
  args.num_tokens = rec->base.key.num_tokens;
  args.num_heads = m->num_heads;
  args.head_dim = m->head_dim;
  cgr__recorder_range_begin(&rec->base, CGR__RANGE_MERGE);
  cgr_status status = cgr__record_kernel(rec, &cgr__kernel_merge, &args, FUNCTION ": enqueuing the merge");
  cgr__recorder_range_end(&rec->base);
  return status;
}

static cgr_status record_merge(cgr__step_recorder *rec, const cgr_merge *merge) {
  cgr_merge m;
  cgr__tensor tensors[NUM_TENSORS];
  CGR__TRY(cgr__sized_read(FUNCTION ": merge", "CGR_MERGE_INIT", merge, &m, sizeof m));
  CGR__TRY(check_merge_numbers(&rec->base, &m));
  CGR__TRY(check_views(&rec->base, &m, tensors));
  CGR__TRY(hold_merge_views(&rec->base, tensors));
  rec->base.calls.count[CGR__RECORDED_MERGE]++;
  return enqueue_merge(rec, &m);
}

cgr_status cgr_record_merge(cgr_recorder *recorder, const cgr_merge *merge) {
  CGR__TRY(cgr__recorder_check(recorder, FUNCTION));
  return cgr__recorder_latch(recorder, record_merge(recorder->owner, merge));
}

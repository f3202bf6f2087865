/* cgr_record_measure: checks the struct of the engine and enqueues the kernel. */
#include "cgr/names.h"
#include "kernels/measure.h"
#include "runtime/record/view_check.h"
#include "runtime/runtime.h"

#define FUNCTION "cgr_record_measure"
enum { MAX_HEAD_DIM = 1024 };

/* ---------------------------------------------------------------------------------------------------------------- checks */

static cgr_status check_measure_numbers(const cgr_recorder *recorder, const cgr_measure *m) {
  if (recorder->in_plan)
    return cgr__fail(CGR_ERROR_STATE, FUNCTION ": called inside a backend's plan, expected a call outside of it");
  if (m->num_heads < 1 || m->num_heads > CGR__MAX_Q_HEADS)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, FUNCTION ": num_heads is %d, expected 1 .. %d", m->num_heads, CGR__MAX_Q_HEADS);
  if (m->head_dim < CGR__MEASURE_UNIT || m->head_dim > MAX_HEAD_DIM || m->head_dim % CGR__MEASURE_UNIT != 0)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, FUNCTION ": head_dim is %d, expected a multiple of %d, %d .. %d", m->head_dim,
                     CGR__MEASURE_UNIT, CGR__MEASURE_UNIT, MAX_HEAD_DIM);
  return cgr__check_unused(FUNCTION ": reserved", m->reserved);
}

static cgr_status check_measure_dtype(const cgr_view *view) {
  if (view->dtype == CGR_DTYPE_FP32 || view->dtype == CGR_DTYPE_FP16 || view->dtype == CGR_DTYPE_BF16)
    return CGR_OK;
  return cgr__fail(cgr_dtype_size((cgr_dtype)view->dtype) ? CGR_ERROR_UNSUPPORTED : CGR_ERROR_INVALID_ENUM,
                   FUNCTION ": view.dtype is %s (%d), expected fp32, fp16 or bf16", cgr_dtype_name((cgr_dtype)view->dtype),
                   view->dtype);
}

static cgr_status check_maxima(const cgr__step_recorder *rec, const cgr_measure *m) {
  const uint64_t bytes = (uint64_t)m->num_heads * (uint64_t)m->head_dim * sizeof(float);
  if (!m->maxima)
    return cgr__fail(CGR_ERROR_NULL_POINTER, FUNCTION ": maxima is NULL, expected an address");
  if ((uintptr_t)m->maxima % sizeof(float) != 0)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, FUNCTION ": maxima is %p, expected a multiple of %zu bytes",
                     (const void *)m->maxima, sizeof(float));
  if ((uint64_t)(uintptr_t)m->maxima > (uint64_t)INT64_MAX - bytes)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, FUNCTION ": maxima is %p, expected %llu bytes from there on to be within memory",
                     (const void *)m->maxima, (unsigned long long)bytes);
  return cgr__memory_end_check(rec, FUNCTION, "maxima", m->maxima, bytes);
}

static cgr_status check_measure_views(const cgr__step_recorder *rec, const cgr_measure *m) {
  CGR__TRY(check_measure_dtype(&m->view));
  const cgr_view dense = { m->maxima, CGR_DTYPE_FP32, 0, (int64_t)m->num_heads * m->head_dim, m->head_dim };
  const cgr__tensor measured = { &m->view,
                                 cgr__view_shape_of("view", m->view.dtype, rec->base.key.num_tokens, m->num_heads, m->head_dim) };
  const cgr__tensor maxima = { &dense, { "maxima", "", CGR_DTYPE_FP32, 1, m->num_heads, m->head_dim, 1 } };
  CGR__TRY(cgr__view_check(rec, FUNCTION, &m->view, &measured.shape));
  CGR__TRY(check_maxima(rec, m));
  return cgr__tensor_check_apart(FUNCTION, &maxima, &measured, false);
}

/* --------------------------------------------------------------------------------------------------------------- enqueue */

/* A graph holds what its measures read and write. */
static cgr_status hold_measured(const cgr_recorder *recorder, const cgr_measure *m) {
  if (!recorder->capture)
    return CGR_OK;
  CGR__TRY(cgr__capture_hold_address(recorder->capture, m->view.data));
  return cgr__capture_hold_address(recorder->capture, m->maxima);
}

static cgr_status enqueue_measure(cgr__step_recorder *rec, const cgr_measure *m) {
  cgr_runtime *rt = rec->runtime;
  cgr__measure_args args = { .view = m->view, .maxima = m->maxima };
  args.counts = rt->lane.args.buffers.counts;
  args.num_tokens = rec->base.key.num_tokens;
  args.num_heads = m->num_heads;
  args.head_dim = m->head_dim;
  cgr__recorder_range_begin(&rec->base, CGR__RANGE_MEASURE);
  int error = rt->dev->ops->launch(rt->dev, &cgr__kernel_measure, &args, rec->base.stream);
  cgr__recorder_range_end(&rec->base);
  return cgr__runtime_device_error(rt, error, FUNCTION ": enqueuing the measure");
}

static cgr_status record_measure(cgr__step_recorder *rec, const cgr_measure *measure) {
  cgr_measure m;
  CGR__TRY(cgr__sized_read(FUNCTION ": measure", "CGR_MEASURE_INIT", measure, &m, sizeof m));
  CGR__TRY(check_measure_numbers(&rec->base, &m));
  CGR__TRY(check_measure_views(rec, &m));
  CGR__TRY(hold_measured(&rec->base, &m));
  rec->base.calls.count[CGR__RECORDED_MEASURE]++;
  return enqueue_measure(rec, &m);
}

cgr_status cgr_record_measure(cgr_recorder *recorder, const cgr_measure *measure) {
  CGR__TRY(cgr__recorder_check(recorder, FUNCTION));
  return cgr__recorder_latch(recorder, record_measure(recorder->owner, measure));
}

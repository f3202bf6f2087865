/* cgr_record_measure: checks the struct of the engine and enqueues the kernel. */
#include "cgr/names.h"
#include "kernels/measure.h"
#include "runtime/config/strided_set.h"
#include "runtime/record/record.h"
#include "runtime/record/view_check.h"
#include "runtime/runtime.h"

#define FUNCTION "cgr_record_measure"

/* ---------------------------------------------------------------------------------------------------------------- checks */

static cgr_status check_measure_numbers(const cgr_recorder *recorder, const cgr_measure *m) {
  CGR__TRY(cgr__check_outside_plan(recorder, FUNCTION));
  CGR__TRY(cgr__check_heads(FUNCTION, m->num_heads, m->head_dim));
  CGR__TRY(cgr__check_float_dtype(FUNCTION, "view.dtype", m->view.dtype));
  return cgr__check_unused(FUNCTION ": reserved", m->reserved);
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

/* Factors are made of maxima between steps: attention would read those that grow during one, and codes of before would change. */
static cgr_status check_apart_from_factors(const cgr__step_recorder *rec, const cgr_measure *m) {
  const cgr__setup *setup = &rec->runtime->setup;
  const cgr__strided_set maxima =
      cgr__strided_set_of_run(m->maxima, (int64_t)m->num_heads * m->head_dim * (int64_t)sizeof *m->maxima);
  for (int32_t i = 0; i < setup->config.num_layers; i++)
    for (int32_t t = CGR__LAYER_TENSOR_K_SCALE; t <= CGR__LAYER_TENSOR_V_SCALE; t++) {
      const cgr_layer *layer = &setup->layers[i];
      cgr__strided_set factors;
      if (cgr__layer_strided_set(layer, cgr__group_of(setup, layer->group), (cgr__layer_tensor)t, &factors) &&
          cgr__strided_sets_meet(&maxima, &factors))
        return cgr__fail(CGR_ERROR_INVALID_ARGUMENT,
                         FUNCTION ": maxima at %p overlaps layers[%d].%s at %p, expected memory of its own: factors are made of "
                                  "maxima, not measured into",
                         (const void *)m->maxima, i, cgr__layer_tensor_name((cgr__layer_tensor)t),
                         (const void *)(uintptr_t)factors.base);
    }
  return CGR_OK;
}

static cgr_status check_measure_views(const cgr__step_recorder *rec, const cgr_measure *m) {
  const cgr_view dense = { m->maxima, CGR_DTYPE_FP32, 0, (int64_t)m->num_heads * m->head_dim, m->head_dim };
  const cgr__tensor measured = { &m->view,
                                 cgr__view_shape_of("view", m->view.dtype, rec->base.key.num_tokens, m->num_heads, m->head_dim) };
  const cgr__tensor maxima = { &dense, { "maxima", "", CGR_DTYPE_FP32, 1, m->num_heads, m->head_dim, 1 } };
  CGR__TRY(cgr__view_check(rec, FUNCTION, &m->view, &measured.shape));
  CGR__TRY(check_maxima(rec, m));
  CGR__TRY(check_apart_from_factors(rec, m));
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
  cgr_status status = cgr__record_kernel(rec, &cgr__kernel_measure, &args, FUNCTION ": enqueuing the measure");
  cgr__recorder_range_end(&rec->base);
  return status;
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

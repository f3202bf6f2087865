/* cgr_record_check_values: checks the struct of the engine and enqueues the kernel. */
#include "cgr/names.h"
#include "runtime/record/view_check.h"
#include "runtime/runtime.h"

#define FUNCTION "cgr_record_check_values"

static int64_t value_row_bytes(const cgr_value_check *c) { return c->width * (int64_t)cgr_dtype_size((cgr_dtype)c->dtype); }

static cgr_status check_kinds(const cgr_recorder *recorder, const cgr_value_check *c) {
  CGR__TRY(cgr__check_outside_plan(recorder, FUNCTION));
  CGR__TRY(cgr__check_choice(FUNCTION, "flags", &cgr__value_flags, c->flags));
  CGR__TRY(cgr__check_float_dtype(FUNCTION, "dtype", c->dtype));
  CGR__TRY(cgr__check_choice(FUNCTION, "dimension", &cgr__dimensions_of_steps, c->dimension));
  if (c->bit < 0 || c->bit >= CGR__MAX_VALUE_BITS)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, FUNCTION ": bit is %d, expected 0 .. %d", c->bit, CGR__MAX_VALUE_BITS - 1);
  return cgr__check_unused(FUNCTION ": reserved", c->reserved);
}

static cgr_status check_value_rows(const cgr_value_check *c, int32_t num_rows) {
  const size_t size = cgr_dtype_size((cgr_dtype)c->dtype);
  if (!c->data)
    return cgr__fail(CGR_ERROR_NULL_POINTER, FUNCTION ": data is NULL, expected an address");
  if ((uintptr_t)c->data % size != 0)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, FUNCTION ": data is %p, expected a multiple of %zu bytes", c->data, size);
  if (c->width < 1 || c->width > CGR__MAX_STRIDE)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, FUNCTION ": width is %lld, expected 1 .. 2^31", (long long)c->width);
  if (c->stride < c->width || c->stride > CGR__MAX_STRIDE)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, FUNCTION ": stride is %lld, expected width (%lld) .. 2^31, or 0",
                     (long long)c->stride, (long long)c->width);
  const int64_t stretches = (value_row_bytes(c) + CGR__VALUES_STRETCH - 1) / CGR__VALUES_STRETCH;
  if (num_rows * stretches > INT32_MAX)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT,
                     FUNCTION ": width is %lld, which makes %lld stretches of %d bytes in %d rows, expected less than 2^31",
                     (long long)c->width, (long long)(num_rows * stretches), CGR__VALUES_STRETCH, num_rows);
  return CGR_OK;
}

static cgr_status enqueue_value_check(cgr__step_recorder *rec, const cgr_value_check *c, int32_t num_rows) {
  cgr_runtime *rt = rec->runtime;
  const cgr__step_args *step = &rt->lane.args;
  cgr__check_values_args args = { .data = c->data, .width = c->width, .stride = c->stride };
  args.counts = step->buffers.counts;
  args.query_start_loc = step->buffers.query_start_loc;
  args.seq_lens = step->buffers.seq_lens[rec->set];
  args.state = step->state;
  args.flags = (uint64_t *)step->buffers.value_flags;
  args.num_rows = num_rows;
  args.by_request = c->dimension == CGR_DIMENSION_REQUESTS;
  args.dtype = c->dtype;
  args.bit = c->bit;
  args.masked = (c->flags & CGR_VALUES_MASKED) != 0;
  int error = rt->dev->ops->launch(rt->dev, &cgr__kernel_check_values, &args, rec->base.stream);
  return cgr__runtime_device_error(rt, error, FUNCTION ": enqueuing the search");
}

static cgr_status check_values(cgr__step_recorder *rec, const cgr_value_check *given) {
  cgr_value_check c;
  CGR__TRY(cgr__sized_read(FUNCTION ": check", "CGR_VALUE_CHECK_INIT", given, &c, sizeof c));
  c.stride = c.stride == 0 ? c.width : c.stride;
  const cgr_key *key = &rec->base.key;
  const int32_t num_rows = c.dimension == CGR_DIMENSION_REQUESTS ? key->num_requests : key->num_tokens;
  CGR__TRY(check_kinds(&rec->base, &c));
  CGR__TRY(check_value_rows(&c, num_rows));
  const size_t bytes = ((size_t)(num_rows - 1) * (size_t)c.stride + (size_t)c.width) * cgr_dtype_size((cgr_dtype)c.dtype);
  CGR__TRY(cgr__memory_end_check(rec, FUNCTION, "data", c.data, bytes));
  rec->base.calls.count[CGR__RECORDED_CHECK]++;
  rec->base.calls.checked |= 1u << c.bit;
  if (rec->runtime->setup.limits.value_words == 0)
    return CGR_OK;
  if (rec->base.capture)
    CGR__TRY(cgr__capture_hold_address(rec->base.capture, c.data));
  return enqueue_value_check(rec, &c, num_rows);
}

cgr_status cgr_record_check_values(cgr_recorder *recorder, const cgr_value_check *check) {
  CGR__TRY(cgr__recorder_check(recorder, FUNCTION));
  return cgr__recorder_latch(recorder, check_values(recorder->owner, check));
}

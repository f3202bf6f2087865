/* Prepares a step, and waits for what cgr_step_prepare does not wait for: a ring slot, and changes that must go ahead. */
#include "base/clock.h"
#include "runtime/report/report.h"
#include "runtime/step/step.h"
#include "runtime/report/ranges.h"

static const char function[] = "cgr_step_prepare_wait";

/* The newest step of the engine's whose result can still be collected and has not been; 0: there is none. */
static uint64_t find_uncollected(const cgr_runtime *rt) {
  const cgr__lane *lane = &rt->lane;
  for (uint64_t seq = lane->launched; seq > rt->collected && lane->launched - seq < lane->ring.depth; seq--) {
    const cgr__batch_layout *batch = cgr__batch_layout_of(&lane->batches.layouts, seq);
    if (batch && batch->num_requests > 0)
      return seq;
  }
  return 0;
}

/* What prepare sends by itself keeps the last result; sending more would take that result's place in the ring. */
static cgr_status check_collected(const cgr_runtime *rt) {
  const uint64_t seq = find_uncollected(rt);
  if (seq == 0)
    return CGR_OK;
  return cgr__fail(CGR_ERROR_CHANGES_PENDING,
                   "%s: %lld changed words are pending, and sending them would expire the result of step %llu, expected it to be "
                   "collected first (cgr_step_wait), then this call again",
                   function, (long long)cgr__changes_pending(&rt->rows), (unsigned long long)seq);
}

/* Waits for the oldest step in flight. */
static cgr_status wait_for_slot(cgr_runtime *rt, int32_t timeout_ms, double deadline) {
  const uint64_t seq = cgr__ring_completed(&rt->lane.ring) + 1;
  const double left = deadline - cgr__now_ms();
  if (seq > rt->lane.launched)
    return CGR_OK;
  cgr__range_begin_number(rt, CGR__RANGE_WAIT, seq);
  cgr_status status = cgr__wait_completed(rt, function, seq, left > 0.0 ? (int32_t)left + 1 : 0);
  cgr__range_end(rt);
  if (status != CGR_NOT_READY)
    return status;
  return cgr__fail(CGR_NOT_READY, "%s: after %d ms step %llu has not completed, expected it to: nothing is prepared, call again",
                   function, timeout_ms, (unsigned long long)seq);
}

static cgr_status make_ring_room(cgr_runtime *rt, cgr_status refusal, int32_t timeout_ms, double deadline, cudaStream_t stream) {
  cgr_status status = CGR_ERROR_BUSY;
  if (refusal == CGR_ERROR_CHANGES_PENDING) {
    CGR__TRY(check_collected(rt));
    status = cgr_runtime_flush(rt, NULL, NULL, stream);
    cgr__fail_as(function, "cgr_runtime_flush", status);
  }
  return status == CGR_ERROR_BUSY ? wait_for_slot(rt, timeout_ms, deadline) : status;
}

static bool lacks_room(cgr_status status) { return status == CGR_ERROR_BUSY || status == CGR_ERROR_CHANGES_PENDING; }

/* An attempt that will be repeated leaves no record. */
static cgr_status attempt_prepare(cgr_runtime *rt, const cgr_batch *batch, cgr_step *step) {
  rt->flags |= CGR__RUNTIME_REPEATS;
  cgr_status status = cgr_step_prepare(rt, batch, step);
  rt->flags &= (uint8_t)~CGR__RUNTIME_REPEATS;
  return cgr__fail_as(function, "cgr_step_prepare", status);
}

/* The first attempt was refused with `prepared`. */
static cgr_status repeat_prepare(cgr_runtime *rt, const cgr_batch *batch, cgr_step *step, cgr_status prepared, int32_t timeout_ms,
                                 cudaStream_t stream) {
  const uint64_t began = cgr__ticks();
  const double deadline = cgr__now_ms() + timeout_ms;
  while (lacks_room(prepared)) {
    cgr_status made = make_ring_room(rt, prepared, timeout_ms, deadline, stream);
    if (made != CGR_OK) {
      cgr__flight_refused(rt, began, made);
      return made;
    }
    prepared = attempt_prepare(rt, batch, step);
  }
  return prepared;
}

cgr_status cgr_step_prepare_wait(cgr_runtime *runtime, const cgr_batch *batch, cgr_step *step, int32_t timeout_ms,
                                 cudaStream_t stream) {
  CGR__ONE_THREAD(runtime, function);
  CGR__TRY(cgr__runtime_check_outside(runtime, function));
  CGR__TRY(cgr__wait_timeout(runtime, function, &timeout_ms));
  if (cgr__is_default_stream(stream))
    return cgr__check_stream(runtime, function, stream);
  cgr_status status = attempt_prepare(runtime, batch, step);
  return lacks_room(status) ? repeat_prepare(runtime, batch, step, status, timeout_ms, stream) : status;
}

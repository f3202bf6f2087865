/* Steps of the runtime itself: changes sent ahead of a step, warm-up. They obey the protocol of every step: a ring slot, a
 * number, prologue and epilogue. */
#include "runtime/record/record.h"
#include "runtime/report/report.h"
#include "runtime/step/step.h"
#include "runtime/report/ranges.h"

static const cgr_key flush_key = { .num_tokens = 1, .num_requests = 1 };

/* A step without requests whose ring slot is filled; `bytes` count for it if it succeeds. */
static cgr_status launch_empty_step(cgr_runtime *rt, uint64_t seq, const cgr__enqueue *enqueue, uint64_t bytes,
                                    cgr__launch_error *failure) {
  cgr__enqueue_result result;
  cgr__ring_commit(cgr__ring_slot(&rt->lane.ring, seq), seq);
  failure->seq = seq;
  cgr_status status = cgr__enqueue_step(rt, enqueue, &result);
  if (result != CGR__ENQUEUE_BROKEN)
    cgr__launched_internal(rt, seq, enqueue->stream, status == CGR_OK ? bytes : 0);
  return result == CGR__ENQUEUE_BROKEN ? cgr__recover(rt, status, enqueue->stream, failure) : status;
}

cgr_status cgr__launch_change_steps(cgr_runtime *rt, cudaStream_t stream, cgr__launch_error *failure) {
  const cgr__enqueue enqueue = { .key = flush_key, .stream = stream };
  while (rt->lane.launched + 1 < rt->lane.prepared.seq)
    CGR__TRY(
        launch_empty_step(rt, rt->lane.launched + 1, &enqueue, 0, failure)); /* its bytes are among those of the prepared step */
  return CGR_OK;
}

static cgr_status launch_internal(cgr_runtime *rt, const char *function, const cgr__enqueue *enqueue, bool changes,
                                  cgr__launch_error *failure) {
  uint64_t seq = rt->lane.launched + 1;
  uint64_t bytes = sizeof(cgr__ring_slot_header);
  CGR__TRY(cgr__check_stream(rt, function, enqueue->stream));
  CGR__TRY(cgr__resync_after_losses(rt));
  cgr__ring_slot_header *slot = cgr__ring_acquire(&rt->lane.ring, seq);
  if (!slot)
    return cgr__ring_refuse(&rt->lane.ring, function, seq);
  cgr__results_take(rt);
  CGR__TRY(cgr__order_stream(rt, enqueue->stream));
  cgr__stage_empty(rt, slot);
  if (changes)
    bytes = cgr__stage_changes(rt, slot);
  cgr_status status = launch_empty_step(rt, seq, enqueue, bytes, failure);
  if (status != CGR_OK)
    cgr__unstage(rt, seq, seq);
  return status;
}

/* A failure before anything is enqueued, such as a full ring, is left to the caller, unless the runtime died of it. */
cgr_status cgr__launch_internal(cgr_runtime *rt, const char *function, const cgr__enqueue *enqueue, bool changes) {
  cgr__launch_error failure = { 0, false };
  cgr_status status = launch_internal(rt, function, enqueue, changes, &failure);
  if (status == CGR_OK)
    return CGR_OK;
  cgr__fail_in(function, status);
  if (failure.seq == 0 && status != CGR_ERROR_DEAD)
    return status;
  cgr__flight_failed(rt, failure.seq, &enqueue->key, status);
  cgr__failure_keep(rt, failure.seq, &enqueue->key, status);
  rt->at_return |= CGR__RETURN_DUMPS;
  return status;
}

static cgr_status flush_changes(cgr_runtime *rt, cgr_mark *last, cudaStream_t stream) {
  const cgr__enqueue enqueue = { .key = flush_key, .stream = stream };
  CGR__TRY(cgr__runtime_check_unprepared(rt, "cgr_runtime_flush"));
  CGR__TRY(cgr__check_stream(rt, "cgr_runtime_flush", stream));
  CGR__TRY(cgr__resync_after_losses(rt));
  cgr_status status = CGR_OK;
  while (status == CGR_OK && cgr__changes_pending(&rt->rows) > 0)
    status = cgr__launch_internal(rt, "cgr_runtime_flush", &enqueue, true);
  if (last)
    *last = (cgr_mark){ .seq = rt->lane.launched };
  return status;
}

cgr_status cgr_runtime_flush(cgr_runtime *runtime, const cgr_where *where, cgr_mark *last, cudaStream_t stream) {
  CGR__ONE_THREAD(runtime, "cgr_runtime_flush");
  CGR__TRY(cgr__runtime_check_outside(runtime, "cgr_runtime_flush"));
  CGR__TRY(cgr__runtime_check_where(runtime, "cgr_runtime_flush", where));
  cgr__range_begin(runtime, CGR__RANGE_FLUSH);
  cgr_status status = flush_changes(runtime, last, stream);
  cgr__range_end(runtime);
  return cgr__fail_in("cgr_runtime_flush", status);
}

/* Steps of the runtime itself (changes ahead of a step, warm-up), and what remains to be done when a launch fails. They obey
 * the protocol of every step: a slot, a number, prologue and epilogue. */
#include "runtime/runtime.h"

static void count_internal(cgr_runtime *rt) {
  rt->stats.steps++;
  rt->stats.by_reason[CGR_KIND_NONE][CGR_REASON_INTERNAL]++;
}

cgr_status cgr__check_stream(cgr_runtime *rt, const char *function, cudaStream_t stream, int eager) {
  int capturing = 0;
  if (cgr__is_default_stream(stream))
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT,
                     "%s: stream is %s, expected one of cgr_stream_create, or another that is not a default "
                     "stream",
                     function, stream ? "CUDA's default one" : "NULL");
  if (!eager) /* the device itself refuses a graph launch there */
    return CGR_OK;
  int error = rt->dev->ops->capture_status(rt->dev, stream, &capturing);
  if (error)
    return cgr__runtime_device_error(rt, error, "step: asking whether the stream captures");
  if (capturing)
    return cgr__fail(CGR_ERROR_CAPTURE, "%s: stream %p is capturing, expected one that executes", function, (void *)stream);
  return CGR_OK;
}

cgr_status cgr__order_stream(cgr_runtime *rt, cudaStream_t stream) {
  if (!rt->has_last_stream || rt->last_stream == stream || cgr__ring_completed(&rt->ring) == rt->launched)
    return CGR_OK;
  int error = rt->dev->ops->event_record(rt->dev, rt->order_event, rt->last_stream);
  if (!error)
    error = rt->dev->ops->event_wait(rt->dev, rt->order_event, stream);
  return error ? cgr__runtime_device_error(rt, error, "step: ordering the stream after the last step") : CGR_OK;
}

/* A call of the device failed in the middle of a step. The wait of an error path: a prologue may still read the slot that the
 * next step will write, and a call that reports a failure may have taken effect all the same. If the step has completed, its
 * number is used up, and the rows are sent again because the device's have moved on; the token that it may have sampled is
 * nobody's, so the engine has to give the next one itself. */
static int ran_after_all(cgr_runtime *rt, cudaStream_t stream) {
  rt->dev->ops->stream_sync(rt->dev, stream);
  rt->dev->ops->stream_sync(rt->dev, rt->planner_stream);
  if (cgr__ring_completed(&rt->ring) <= rt->launched)
    return 0;
  cgr__rows_all_dirty(&rt->rows);
  cgr__rows_forget_tokens(&rt->rows);
  return 1;
}

cgr_status cgr__launch_failed(cgr_runtime *rt, cgr_status status, enum cgr__progress progress, cudaStream_t stream) {
  rt->device_batch = 0; /* whatever composition the step brought, it is not the one that the rows remember */
  if (progress == CGR__PROGRESS_NONE)
    return status;
  if (progress == CGR__PROGRESS_BEGUN && !ran_after_all(rt, stream))
    return status;
  rt->launched++;
  rt->last_stream = stream;
  rt->has_last_stream = 1;
  count_internal(rt);
  return status;
}

cgr_status cgr__launch_internal(cgr_runtime *rt, const cgr_key *key, cgr_record_function record, void *engine, int changes,
                                cudaStream_t stream) {
  CGR__TRY(cgr__check_stream(rt, "step", stream, 1));
  cgr__see_losses(rt);
  uint64_t seq = rt->launched + 1;
  cgr__cursor cursor = { 0, 0 };
  cgr__slot_header *slot = cgr__ring_acquire(&rt->ring, seq);
  if (!slot)
    return cgr__fail(CGR_ERROR_BUSY, "step %llu: no slot of %d is free, expected more steps to have completed",
                     (unsigned long long)seq, rt->setup.config.ring_depth);
  cgr__stage_empty(rt, slot, seq);
  if (changes)
    slot->num_changes = cgr__rows_collect(&rt->rows, &cursor, cgr__ring_changes(&rt->ring, slot), rt->setup.config.max_changes);
  CGR__TRY(cgr__order_stream(rt, stream));
  enum cgr__progress progress;
  cgr_status status = cgr__record_step(rt, stream, key, 0, record, engine, &progress);
  if (status != CGR_OK)
    return cgr__launch_failed(rt, status, progress, stream);
  rt->launched = seq;
  rt->last_stream = stream;
  rt->has_last_stream = 1;
  rt->device_batch = 0;
  cgr__rows_commit(&rt->rows, cursor);
  rt->stats.bytes_staged += sizeof(cgr__slot_header) + (uint64_t)slot->num_changes * sizeof(cgr__change);
  count_internal(rt);
  return CGR_OK;
}

cgr_status cgr_runtime_flush(cgr_runtime *runtime, cudaStream_t stream) {
  const cgr_key key = { CGR_KIND_NONE, 0, 0, 1, 1, 0, 0 };
  CGR__TRY(cgr__runtime_check_outside(runtime, "cgr_runtime_flush"));
  if (runtime->prepared.ticket != 0)
    return cgr__fail(CGR_ERROR_STATE, "cgr_runtime_flush: a step is prepared, expected it to be launched or cancelled first");
  cgr__see_losses(runtime);
  while (runtime->rows.num_dirty > 0)
    CGR__TRY(cgr__launch_internal(runtime, &key, NULL, NULL, 1, stream));
  return CGR_OK;
}

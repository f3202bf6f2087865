/* Which streams steps may go to, the order of steps on different ones, and the host's counters, which follow what is on the
 * streams. */
#include <stdio.h>

#include "runtime/report/report.h"
#include "runtime/step/step.h"

static cgr_status refuse_stream(cgr_runtime *rt, const char *function, cudaStream_t stream, int error) {
  char what[128];
  if (cgr__is_default_stream(stream))
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT,
                     "%s: stream is %s, expected one of cgr_stream_create or another that is not a default stream", function,
                     stream ? "CUDA's default one" : "NULL");
  if (!error)
    return cgr__fail(CGR_ERROR_CAPTURE, "%s: stream %p is capturing, expected one that executes", function, (void *)stream);
  snprintf(what, sizeof what, "%s: stream is %p, expected a live one of the runtime's device", function, (void *)stream);
  return cgr__runtime_device_error(rt, error, what);
}

cgr_status cgr__check_stream(cgr_runtime *rt, const char *function, cudaStream_t stream) {
  int capturing = 0;
  if (cgr__is_default_stream(stream))
    return refuse_stream(rt, function, stream, 0);
  int error = rt->dev->ops->capture_status(rt->dev, stream, &capturing);
  return error || capturing ? refuse_stream(rt, function, stream, error) : CGR_OK;
}

/* If the engine is capturing the previous stream, waiting on its event would pull this step into that capture. */
static cgr_status order_after_last_stream(cgr_runtime *rt, cudaStream_t stream) {
  const cgr__device_ops *ops = rt->dev->ops;
  cudaStream_t last = rt->lane.last_stream;
  int capturing = 0;
  int error = ops->capture_status(rt->dev, last, &capturing);
  if (!error && capturing)
    return cgr__fail(CGR_ERROR_CAPTURE, "step: the stream of the last step, %p, is capturing, expected it to execute",
                     (void *)last);
  if (!error)
    error = ops->event_record(rt->dev, rt->order_event, last);
  if (!error)
    error = ops->event_wait(rt->dev, rt->order_event, stream);
  return cgr__runtime_device_error(rt, error, "step: ordering the stream after the last step");
}

cgr_status cgr__order_stream(cgr_runtime *rt, cudaStream_t stream) {
  const cgr__lane *lane = &rt->lane;
  if (!lane->last_stream || lane->last_stream == stream || cgr__ring_completed(&lane->ring) == lane->launched)
    return CGR_OK;
  return order_after_last_stream(rt, stream);
}

void cgr__launched(cgr_runtime *rt, uint64_t seq, cudaStream_t stream, cgr__batch_layout *batch) {
  __atomic_store_n(&rt->lane.launched, seq, __ATOMIC_RELEASE); /* another thread may look how far it is */
  rt->lane.last_stream = stream;
  cgr__batch_layouts_launch(&rt->lane.batches.layouts, seq, batch);
}

void cgr__launched_internal(cgr_runtime *rt, uint64_t seq, cudaStream_t stream, uint64_t bytes) {
  cgr__launched(rt, seq, stream, NULL);
  rt->lane.device_batch = 0;
  cgr__flight_internal(rt, seq, bytes);
}

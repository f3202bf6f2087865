/* The host's counters, which follow what is on the streams. */
#include "runtime/report/report.h"
#include "runtime/step/step.h"

void cgr__launched(cgr_runtime *rt, uint64_t seq, cudaStream_t stream, cgr__batch_layout *batch) {
  rt->lane.launched = seq;
  rt->lane.last_stream = stream;
  cgr__batch_layouts_launch(&rt->lane.batches.layouts, seq, batch);
}

void cgr__launched_internal(cgr_runtime *rt, uint64_t seq, cudaStream_t stream, uint64_t bytes) {
  cgr__launched(rt, seq, stream, NULL);
  rt->lane.device_batch = 0;
  cgr__flight_internal(rt, seq, bytes);
}

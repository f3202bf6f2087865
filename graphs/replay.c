/* Part of the hot path: no allocation, lock, wait or environment below this line. */
#include "base/status.h"
#include "graphs/graphs.h"
#include "graphs/recorder.h"

int cgr__graphs_launch(cgr__graphs *graphs, cgr__graph_entry *entry, int32_t real_requests, uint64_t seq, cudaStream_t stream) {
  int error = graphs->dev->ops->exec_launch(graphs->dev, entry->exec, stream);
  if (error)
    return error;
  entry->replays++;
  entry->last_seq = seq;
  entry->real_requests += (uint64_t)real_requests;
  return 0;
}

/* What is between two pieces. */
static cgr_status make_call(cgr_device *dev, const cgr__break *b, cgr_recorder *recorder, int *device_error) {
  if (b->function)
    return cgr__recorder_replay_call(recorder, b->function, b->args);
  *device_error = dev->ops->launch(dev, b->kernel, b->args, recorder->stream);
  return CGR_OK;
}

cgr_status cgr__graphs_launch_breaks(const cgr__graphs *graphs, const cgr__graph_entry *entry, cgr_recorder *recorder,
                                     int *device_error) {
  cgr_device *dev = graphs->dev;
  *device_error = 0;
  for (const cgr__break *b = entry->breaks; b; b = b->next) {
    cgr__recorder_range_begin(recorder, CGR__RANGE_BREAK);
    cgr_status status = make_call(dev, b, recorder, device_error);
    cgr__recorder_range_end(recorder);
    CGR__TRY(status);
    if (!*device_error && b->piece)
      *device_error = dev->ops->exec_launch(dev, b->piece, recorder->stream);
    if (*device_error)
      return CGR_ERROR_DEVICE;
  }
  return CGR_OK;
}

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

cgr_status cgr__graphs_launch_breaks(const cgr__graphs *graphs, const cgr__graph_entry *entry, cgr_recorder *recorder,
                                     int *device_error) {
  cgr_device *dev = graphs->dev;
  const cgr__device_ops *ops = dev->ops;
  *device_error = 0;
  for (const cgr__break *b = entry->breaks; b; b = b->next) {
    if (b->kernel)
      *device_error = ops->launch(dev, b->kernel, b->args, recorder->stream);
    else
      CGR__TRY(cgr__recorder_replay_call(recorder, b->function, b->args));
    if (!*device_error && b->piece)
      *device_error = ops->exec_launch(dev, b->piece, recorder->stream);
    if (*device_error)
      return CGR_ERROR_DEVICE;
  }
  return CGR_OK;
}

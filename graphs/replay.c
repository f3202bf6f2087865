/* Part of the hot path: no allocation, lock, wait or environment below this line. */
#include "graphs/graphs.h"

int cgr__graphs_launch(cgr__graphs *graphs, cgr__graph_entry *entry, int32_t real_requests, cudaStream_t stream) {
  int error = graphs->dev->ops->exec_launch(graphs->dev, entry->exec, stream);
  if (error)
    return error;
  entry->replays++;
  entry->real_requests += (uint64_t)real_requests;
  return 0;
}

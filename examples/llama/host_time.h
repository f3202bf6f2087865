/* What a decode step costs the host when a graph is replayed, and when the same step runs eagerly: measured in turn, in blocks,
 * on one batch, after the requests have been served. The host is one step ahead of the device, as an engine is. */
#ifndef LLAMA_HOST_TIME_H
#define LLAMA_HOST_TIME_H

#include <stdbool.h>

#include "examples/llama/engine.h"

typedef struct llama_host_time {
  int32_t requests; /* in each step; 0: no pages or positions for a few steps, so nothing was measured */
  int64_t nodes;    /* of the graph, if it is one; else 0 */
  float replayed;   /* medians of prepare + launch, in microseconds; on a host device, of this thread's processor time; 0: not
                       measured */
  float eager;
  float bare; /* launching a graph of as many empty kernels, by the CUDA runtime alone */
} llama_host_time;

/* With `requests` at a time, or as many as there are pages for. No request may be open: all pages are used. */
int llama_host_time_measure(llama_engine *engine, int32_t requests, bool on_host, llama_host_time *time);

#endif

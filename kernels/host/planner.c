/* The planner: the plan of the step whose composition the prologue has written. */
#include <string.h>

#include "kernels/host/launchers.h"
#include "kernels/step.h"
#include "planners/attention/plan_host.h"

void cgr__host_planner(const void *pointer) {
  const cgr__step_args *args = (const cgr__step_args *)pointer;
  int64_t prefix[CGR__MAX_REQUESTS + 1];
  cgr__plan_fill(args->buffers.query_start_loc, args->buffers.seq_lens[0], args->buffers.counts[CGR__COUNT_REQUESTS],
                 args->num_parts, args->tile_q, prefix, args->buffers.plan);
  memset(args->buffers.plan_counters, 0, (size_t)args->num_counters * sizeof *args->buffers.plan_counters);
}

/* The planner: the plans of the step whose composition the prologue has written. */
#include <string.h>

#include "kernels/host/launchers.h"
#include "kernels/planner.h"
#include "kernels/step.h"
#include "planners/attention/plan_host.h"

/* Scratch of the largest class that there can be. */
typedef struct scratch {
  int64_t prefix[CGR__MAX_REQUESTS + 1];
  cgr__plan_point cuts[CGR__MAX_PARTS + 1];
  int32_t others[2 * (CGR__MAX_PARTS + 1) + CGR__MAX_REQUESTS];
} scratch;

void cgr__host_planner(const void *pointer) {
  const cgr__planner_args *args = (const cgr__planner_args *)pointer;
  scratch memory;
  for (int32_t i = 0; i < args->num_classes; i++)
    cgr__plan_fill(&args->classes[i], args->query_start_loc, args->seq_lens[args->classes[i].length_set],
                   args->counts[CGR__COUNT_REQUESTS], &memory, args->plan + args->offset[i]);
  memset(args->counters, 0, (size_t)args->num_counters * sizeof *args->counters);
}

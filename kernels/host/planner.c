/* The planner: the plans of the step whose batch layout the prologue has written. */
#include <string.h>

#include "kernels/host/launchers.h"
#include "kernels/planner.h"
#include "kernels/step.h"
#include "planners/attention/plan_host.h"

void cgr__host_planner(const void *pointer) {
  const cgr__planner_args *args = (const cgr__planner_args *)pointer;
  _Alignas(8) unsigned char scratch[CGR__PLAN_SCRATCH_BYTES(CGR__MAX_REQUESTS, CGR__MAX_PARTS)]; /* of the largest class */
  for (int32_t i = 0; i < args->num_classes; i++)
    cgr__plan_fill(&args->classes[i], args->query_start_loc, args->seq_lens[args->classes[i].length_set],
                   args->counts[CGR_COUNT_REQUESTS], scratch, args->plan + args->offset[i]);
  memset(args->counters, 0, (size_t)args->num_counters * sizeof *args->counters);
}

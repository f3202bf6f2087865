/* The planner: the plan of the step whose composition the prologue has written. */
#include <string.h>

#include "kernels/host/launchers.h"
#include "kernels/step.h"
#include "planners/attention/plan_host.h"

#define MAX_REQUESTS 4096 /* the limit of cgr_config.max_requests */

void cgr__host_planner(const void *pointer) {
  const cgr__step_args *args = (const cgr__step_args *)pointer;
  int64_t prefix[MAX_REQUESTS + 1];
  cgr__plan_fill(args->query_start_loc, args->seq_lens, args->counts[CGR__COUNT_REQUESTS], args->num_parts, args->tile_q, prefix,
                 args->plan);
  memset(args->plan_counters, 0, (size_t)args->num_counters * sizeof *args->plan_counters);
}

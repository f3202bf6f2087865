#include "kernels/families/fa3.h"

#include "kernels/host/launchers.h"
#include "planners/families/fa3_host.h"

void cgr__host_fa3(const void *pointer) {
  const cgr__fa3_args *args = (const cgr__fa3_args *)pointer;
  cgr__fa3_fill(&args->c, args->query_start_loc, args->seq_lens, args->live_requests, args->metadata);
}

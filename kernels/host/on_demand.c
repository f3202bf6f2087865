/* The buffers that were asked for (kernels/on_demand.h). */
#include "kernels/on_demand.h"

#include "kernels/host/launchers.h"
#include "kernels/host/step_error.h"

static void refuse(void *context, cgr_guard_error error, int32_t row, int32_t index, int64_t value) {
  cgr__host_claim_error(context, error, row, index, value);
}

void cgr__host_on_demand(const void *pointer) {
  const cgr__on_demand_args *args = (const cgr__on_demand_args *)pointer;
  int32_t num_decodes = args->counts[CGR_COUNT_DECODES];
  cgr__on_demand_fill(&args->batch, num_decodes);
  for (int32_t g = 0; g < args->num_groups; g++)
    cgr__on_demand_fill_group(&args->batch, &args->group[g], num_decodes, refuse, args->error);
}

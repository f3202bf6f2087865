/* The buffers that were asked for (kernels/derived.h). */
#include "kernels/derived.h"

#include "kernels/host/launchers.h"
#include "kernels/host/step_error.h"

static void refuse(void *context, cgr_guard_error error, int32_t row, int32_t index, int64_t value) {
  cgr__host_claim_error(context, error, row, index, value);
}

void cgr__host_derived(const void *pointer) {
  const cgr__derived_args *args = (const cgr__derived_args *)pointer;
  int32_t num_decodes = args->counts[CGR_COUNT_DECODES];
  cgr__derived_fill(&args->batch, num_decodes);
  for (int32_t g = 0; g < args->num_groups; g++)
    cgr__derived_fill_group(&args->batch, &args->group[g], num_decodes, refuse, args->error);
}

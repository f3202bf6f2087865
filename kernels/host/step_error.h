/* The error record of the running step, as the host kernels fill it. */
#ifndef CGR_KERNELS_HOST_STEP_ERROR_H
#define CGR_KERNELS_HOST_STEP_ERROR_H

#include "kernels/step.h"

/* Only the first guard of a step that trips is recorded. */
static inline void cgr__host_claim_error(cgr__step_error *error, int32_t code, int32_t row, int32_t index, int64_t value) {
  int32_t none = CGR_GUARD_NONE;
  if (!__atomic_compare_exchange_n(&error->error, &none, code, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
    return;
  error->row = row;
  error->index = index;
  error->value = value;
}

#endif

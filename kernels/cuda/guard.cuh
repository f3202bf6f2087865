/* What a guard does when it trips: it claims the step's error record, and the kernel goes on with something harmless. */
#ifndef CGR_KERNELS_CUDA_GUARD_CUH
#define CGR_KERNELS_CUDA_GUARD_CUH

#include "kernels/step.h"

namespace cgr {

/* The first guard of the step fills the record; the others leave it alone. No kernel reads it before the epilogue. */
__device__ __noinline__ static void claim_error(cgr__step_error *record, int32_t error, int32_t row, int32_t index,
                                                int64_t value) {
  if (atomicCAS(&record->error, 0, error) != 0)
    return;
  record->row = row;
  record->index = index;
  record->value = value;
}

} // namespace cgr
#endif

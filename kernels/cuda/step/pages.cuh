/* What the prologue's files share: its parameters, and pages. */
#ifndef CGR_KERNELS_CUDA_STEP_PAGES_CUH
#define CGR_KERNELS_CUDA_STEP_PAGES_CUH

#include "kernels/step.h"

namespace cgr {

/* The parameters of a prologue: the struct of all devices, and what follows from it. */
struct PrologueArgs {
  cgr__step_args step;
  uint32_t page_inverse[CGR__MAX_GROUPS]; /* ~0u / page_size */
};

/* n / d; `inverse` is ~0u / d, n is not negative, and the estimate at most one too small. */
__device__ __forceinline__ int32_t divide(int32_t n, int32_t d, uint32_t inverse) {
  uint32_t quotient = __umulhi((uint32_t)n, inverse);
  return (int32_t)(quotient + ((uint32_t)n - quotient * (uint32_t)d >= (uint32_t)d));
}

/* The entry of a row's page table. */
__device__ __forceinline__ int32_t *page_entry(const cgr__step_args &a, int g, int32_t row, int32_t index) {
  return a.buffers.group[g].page_table + row * a.group[g].page_table_stride + index;
}

__device__ __forceinline__ bool page_in_pool(const cgr__group_geometry &group, int32_t page) {
  return page >= 0 && page < group.num_pages && page != group.write_trash_page;
}

} // namespace cgr
#endif

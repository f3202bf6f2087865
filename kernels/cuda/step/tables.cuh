/* The rows' tables, and their changes. */
#ifndef CGR_KERNELS_CUDA_STEP_TABLES_CUH
#define CGR_KERNELS_CUDA_STEP_TABLES_CUH

#include "kernels/cuda/step/prologue_args.cuh"

namespace cgr {

/* n / d; `inverse` is ~0u / d, n is not negative, and the estimate at most one too small. */
__device__ __forceinline__ int32_t divide(int32_t n, int32_t d, uint32_t inverse) {
  uint32_t quotient = __umulhi((uint32_t)n, inverse);
  return (int32_t)(quotient + ((uint32_t)n - quotient * (uint32_t)d >= (uint32_t)d));
}

/* The index of the page that has a row's token n, for backends: their pages may be smaller than the group's. */
__device__ __forceinline__ int32_t kernel_page_of(int32_t n, int32_t kernel_page_size, int32_t page_size, uint32_t inverse) {
  return kernel_page_size > 0 ? n >> (__ffs(kernel_page_size) - 1) : divide(n, page_size, inverse);
}

/* The entry of a row's page table. */
__device__ __forceinline__ int32_t *page_entry(const cgr__step_args &a, int g, int32_t row, int32_t index) {
  return a.buffers.group[g].page_table + row * a.group[g].page_table_stride + index;
}

__device__ __forceinline__ bool page_in_pool(const cgr__group_geometry &group, int32_t page) {
  return page >= 0 && page < group.num_pages && page != group.write_trash_page;
}

/* ------------------------------------------------------------------------------------------------------------- changes */

/* `word`: a cgr__change. Each of these applies the change if it is good, and returns whether it is. */
__device__ inline bool place_page(const cgr__step_args &a, int4 word) {
  int32_t g = word.x >> 8, row = word.y, index = word.z, page = word.w;
  if (g < 0 || g >= a.num_groups || a.group[g].engine_table || index < 0 || index >= a.group[g].page_table_stride ||
      !page_in_pool(a.group[g], page))
    return false;
  *page_entry(a, g, row, index) = page;
  return true;
}

__device__ inline bool place_data(const cgr__step_args &a, int4 word) {
  uint32_t buffer = (uint32_t)word.x >> 8;
  if (buffer >= CGR__MAX_DECLARED || word.z < 0 || word.z >= a.rows[buffer].words)
    return false;
  a.rows[buffer].data[word.y * a.rows[buffer].words + word.z] = word.w;
  return true;
}

__device__ inline bool place_change(const cgr__step_args &a, int4 word) {
  int32_t kind = word.x & 0xff, row = word.y;
  if (row < 0 || row >= a.max_rows)
    return false;
  if (kind == CGR__CHANGE_PAGE)
    return place_page(a, word);
  if (kind == CGR__CHANGE_DATA)
    return place_data(a, word);
  const uint32_t program = (uint32_t)word.x >> 8;
  if (kind != CGR__CHANGE_COMPUTED || program >= (uint32_t)max(a.num_programs, 1))
    return false;
  cgr__step_computed(&a, (int32_t)program)[row] = word.w;
  if (program == 0)
    a.buffers.row_num_accepted[row] = 0;
  return true;
}

} // namespace cgr
#endif

/* What both kernels that append to caches of 8 bits share: a head's factor and its codes, which must be the same bytes. */
#ifndef CGR_KERNELS_CUDA_CACHE_QUANTISE_CUH
#define CGR_KERNELS_CUDA_CACHE_QUANTISE_CUH

#include <stdint.h>

#include "kernels/quantise.h"

namespace cgr {

/* A head of a token, and the token's place in the cache. */
struct Head {
  int64_t page;
  int32_t token, offset, head; /* offset: of the token in the page */
};

/* Where a head's codes go, and what its elements are divided by. */
struct HeadCodes {
  uint8_t *bytes;
  float scale;
  bool varies; /* each element has a factor of its own */
};

/* `largest` gives the largest magnitude of the head's elements. All lanes ask for it where the append finds the factor, and the
 * lane that `writes` puts that factor into the cache. */
template <class Largest>
__device__ __forceinline__ HeadCodes begin_codes(const cgr_kv_view &to, const Head &at, bool writes, Largest largest) {
  const bool found = cgr__scales_are_written(&to);
  HeadCodes codes;
  codes.varies = to.scale != nullptr && to.scale_stride_d != 0;
  codes.scale = 1.0f;
  if (found)
    codes.scale = largest() / CGR__I8_MAX;
  else if (to.scale != nullptr)
    codes.scale = *cgr__scale_at(&to, at.page, at.offset, at.head, 0);
  if (found && writes)
    *cgr__scale_at(&to, at.page, at.offset, at.head, 0) = codes.scale;
  codes.bytes =
      static_cast<uint8_t *>(to.base) + at.page * to.stride_page + at.offset * to.stride_token + at.head * to.stride_head;
  return codes;
}

/* The codes of x[0 .. 3], elements d .. d + 3 of the head, in the order of memory. */
__device__ __forceinline__ uint32_t four_codes(const cgr_kv_view &to, const Head &at, const HeadCodes &codes, int32_t d,
                                               const float *x) {
  uint32_t word = 0;
#pragma unroll
  for (int i = 0; i < 4; i++) {
    const float own = codes.varies ? *cgr__scale_at(&to, at.page, at.offset, at.head, d + i) : codes.scale;
    word |= (uint32_t)cgr__quantise(x[i], own, to.dtype) << (8 * i);
  }
  return word;
}

} // namespace cgr

#endif

/* What both kernels that append to caches of 8 bits share: a head's factor and its codes, which must be the same bytes. */
#ifndef CGR_KERNELS_CUDA_CACHE_QUANTISE_CUH
#define CGR_KERNELS_CUDA_CACHE_QUANTISE_CUH

#include <math.h>
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
  float scale, inverse;
  bool is_usual; /* scale is within 2^-60 .. 2^60 in magnitude */
  bool varies;   /* each element has a factor of its own */
};

__device__ __forceinline__ bool is_usual(float x) {
  const float size = fabsf(x);
  return size >= 0x1p-60f && size <= 0x1p60f;
}

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
  codes.inverse = 1.0f / codes.scale;
  codes.is_usual = is_usual(codes.scale);
  codes.bytes =
      static_cast<uint8_t *>(to.base) + at.page * to.stride_page + at.offset * to.stride_token + at.head * to.stride_head;
  return codes;
}

/* x / scale, correctly rounded, as the division is: two corrections by the remainder, which a fused multiply-add finds exactly
 * (Markstein 1990, "Computation of elementary functions on the IBM RISC System/6000 processor"). No quotient or remainder of
 * usual numbers leaves the range of normal ones. Others are divided. */
__device__ __forceinline__ float quotient(float x, const HeadCodes &codes) {
  if (!codes.is_usual || !(is_usual(x) || x == 0.0f))
    return x / codes.scale;
  const float first = x * codes.inverse;
  const float second = fmaf(fmaf(-first, codes.scale, x), codes.inverse, first);
  return copysignf(fmaf(fmaf(-second, codes.scale, x), codes.inverse, second), first); /* the sign of a zero */
}

/* The codes of two values, those of cgr__quantise with the factor 1; that of `low` is the lower byte. */
__device__ __forceinline__ uint32_t two_codes(float low, float high, int32_t dtype) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890 /* has the conversions */
  uint16_t codes;
  if (dtype == CGR_DTYPE_FP8_E4M3) {
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(codes) : "f"(high), "f"(low));
    return codes;
  }
  if (dtype == CGR_DTYPE_FP8_E5M2) {
    asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(codes) : "f"(high), "f"(low));
    return codes;
  }
#endif
  return (uint32_t)cgr__value_code(low, dtype) | (uint32_t)cgr__value_code(high, dtype) << 8;
}

/* The codes of x[0 .. 3], elements d .. d + 3 of the head, in the order of memory. */
__device__ __forceinline__ uint32_t four_codes(const cgr_kv_view &to, const Head &at, const HeadCodes &codes, int32_t d,
                                               const float *x) {
  float values[4];
#pragma unroll
  for (int i = 0; i < 4; i++)
    values[i] = codes.varies ? x[i] / *cgr__scale_at(&to, at.page, at.offset, at.head, d + i) : quotient(x[i], codes);
  return two_codes(values[0], values[1], to.dtype) | two_codes(values[2], values[3], to.dtype) << 16;
}

} // namespace cgr

#endif

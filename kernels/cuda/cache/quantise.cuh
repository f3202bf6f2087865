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

/* The rare way, and that of factors that vary: a call, so that its code is there once. A step runs the code of a head once in
 * each CTA, whose time is that of fetching it. */
__device__ __noinline__ float divided(float x, float scale) { return x / scale; }

/* x / scale of usual numbers or x 0, correctly rounded, as the division is: two corrections by the remainder, which a fused
 * multiply-add finds exactly (Markstein 1990, "Computation of elementary functions on the IBM RISC System/6000 processor"). No
 * quotient or remainder of usual numbers leaves the range of normal ones. */
__device__ __forceinline__ float quotient(float x, const HeadCodes &codes) {
  const float first = x * codes.inverse;
  const float second = fmaf(fmaf(-first, codes.scale, x), codes.inverse, first);
  return copysignf(fmaf(fmaf(-second, codes.scale, x), codes.inverse, second), first); /* the sign of a zero */
}

/* Elements d .. d + kElements - 1 of the head become their quotients. */
template <int kElements>
__device__ __forceinline__ void divide(const cgr_kv_view &to, const Head &at, const HeadCodes &codes, int32_t d,
                                       float (&x)[kElements]) {
  bool usual = codes.is_usual && !codes.varies;
#pragma unroll
  for (int i = 0; i < kElements; i++)
    usual = usual && (is_usual(x[i]) || x[i] == 0.0f);
#pragma unroll
  for (int i = 0; i < kElements; i++)
    if (usual)
      x[i] = quotient(x[i], codes);
    else
      x[i] = divided(x[i], codes.varies ? *cgr__scale_at(&to, at.page, at.offset, at.head, d + i) : codes.scale);
}

__device__ __forceinline__ uint32_t value_code(float x, int32_t dtype) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890 /* which converts to the others itself */
  return cgr__i8_code(x);
#else
  return cgr__value_code(x, dtype);
#endif
}

/* The codes of four values, in the order of memory: those of cgr__quantise with the factor 1. */
__device__ __forceinline__ uint32_t four_codes(float a, float b, float c, float d, int32_t dtype) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
  uint16_t low, high;
  if (dtype == CGR_DTYPE_FP8_E4M3) {
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(low) : "f"(b), "f"(a));
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(high) : "f"(d), "f"(c));
    return (uint32_t)low | (uint32_t)high << 16;
  }
  if (dtype == CGR_DTYPE_FP8_E5M2) {
    asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(low) : "f"(b), "f"(a));
    asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(high) : "f"(d), "f"(c));
    return (uint32_t)low | (uint32_t)high << 16;
  }
#endif
  return value_code(a, dtype) | value_code(b, dtype) << 8 | value_code(c, dtype) << 16 | value_code(d, dtype) << 24;
}

} // namespace cgr

#endif

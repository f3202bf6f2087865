/* Elements of fp16, bf16 and, eight at a time, fp32. */
#ifndef CGR_KERNELS_CUDA_CACHE_HALF_CUH
#define CGR_KERNELS_CUDA_CACHE_HALF_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <stdint.h>

#include "cgr/attention.h"

namespace cgr {

__device__ __forceinline__ float2 unpack(uint32_t bits, bool is_bf16) {
  if (is_bf16)
    return make_float2(__uint_as_float(bits << 16), __uint_as_float(bits & 0xffff0000u));
  return __half22float2(*reinterpret_cast<const __half2 *>(&bits));
}

__device__ __forceinline__ uint32_t pack(float x, float y, bool is_bf16) {
  uint32_t bits;
  if (is_bf16)
    *reinterpret_cast<__nv_bfloat162 *>(&bits) = __floats2bfloat162_rn(x, y);
  else
    *reinterpret_cast<__half2 *>(&bits) = __floats2half2_rn(x, y);
  return bits;
}

/* Eight elements. */
__device__ __forceinline__ uint4 pack_eight(const float (&x)[8], bool is_bf16) {
  return make_uint4(pack(x[0], x[1], is_bf16), pack(x[2], x[3], is_bf16), pack(x[4], x[5], is_bf16), pack(x[6], x[7], is_bf16));
}

__device__ __forceinline__ void unpack_eight(float (&x)[8], const uint4 &bits, bool is_bf16) {
  const uint32_t words[4] = { bits.x, bits.y, bits.z, bits.w };
#pragma unroll
  for (int i = 0; i < 4; i++) {
    const float2 two = unpack(words[i], is_bf16);
    x[2 * i] = two.x, x[2 * i + 1] = two.y;
  }
}

/* From element `at` of a view on, whose dtype may also be fp32. */
__device__ __forceinline__ void load_eight(float (&x)[8], const cgr_view &view, int64_t at) {
  if (view.dtype == CGR_DTYPE_FP32) {
    const float4 *from = reinterpret_cast<const float4 *>(static_cast<const float *>(view.data) + at);
    const float4 low = from[0], high = from[1];
    x[0] = low.x, x[1] = low.y, x[2] = low.z, x[3] = low.w;
    x[4] = high.x, x[5] = high.y, x[6] = high.z, x[7] = high.w;
    return;
  }
  const uint4 bits = *reinterpret_cast<const uint4 *>(static_cast<const uint16_t *>(view.data) + at);
  unpack_eight(x, bits, view.dtype == CGR_DTYPE_BF16);
}

} // namespace cgr
#endif

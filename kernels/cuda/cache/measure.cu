/* The largest magnitudes of channels (kernels/measure.h). A thread has 8 neighbouring channels of a head, and the tokens of one
 * stretch; what it finds joins the maxima by their bits, which for numbers that are not negative have the same order. */
#include <cuda_fp16.h>

#include "cgr/cgr.h"
#include "devices/cuda/launch.cuh"
#include "kernels/cuda/launchers.h"
#include "kernels/measure.h"
#include "kernels/quantise.h"

namespace cgr {
namespace {

constexpr int kThreads = 128;
constexpr int kStretch = 32; /* tokens */
constexpr int kUnit = CGR__MEASURE_UNIT;

/* The larger magnitudes of two 16-bit numbers join `most`. */
__device__ __forceinline__ void join(float *most, uint32_t bits, bool is_bf16) {
  float2 two = make_float2(__uint_as_float(bits << 16), __uint_as_float(bits & 0xffff0000u));
  if (!is_bf16)
    two = __half22float2(*reinterpret_cast<const __half2 *>(&bits));
  most[0] = cgr__larger_magnitude(most[0], two.x);
  most[1] = cgr__larger_magnitude(most[1], two.y);
}

__device__ __forceinline__ void join_unit(float (&most)[kUnit], const cgr_view &view, int64_t at) {
  if (view.dtype == CGR_DTYPE_FP32) {
    const float4 *from = reinterpret_cast<const float4 *>(static_cast<const float *>(view.data) + at);
    const float4 low = from[0], high = from[1];
    const float unit[kUnit] = { low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w };
#pragma unroll
    for (int i = 0; i < kUnit; i++)
      most[i] = cgr__larger_magnitude(most[i], unit[i]);
    return;
  }
  const uint4 from = *reinterpret_cast<const uint4 *>(static_cast<const uint16_t *>(view.data) + at);
  const bool is_bf16 = view.dtype == CGR_DTYPE_BF16;
  join(most, from.x, is_bf16);
  join(most + 2, from.y, is_bf16);
  join(most + 4, from.z, is_bf16);
  join(most + 6, from.w, is_bf16);
}

__global__ void __launch_bounds__(kThreads) measure_kernel(const __grid_constant__ cgr__measure_args a) {
  const int32_t units = a.head_dim / kUnit, blocks = (a.num_heads * units + kThreads - 1) / kThreads; /* of a stretch */
  const int32_t stretch = (int32_t)blockIdx.x / blocks;
  const int32_t unit = ((int32_t)blockIdx.x - stretch * blocks) * kThreads + (int32_t)threadIdx.x;
  const int32_t head = unit / units, d = (unit - head * units) * kUnit;
  const int32_t begin = stretch * kStretch, end = min(begin + kStretch, a.counts[CGR_COUNT_TOKENS]);
  if (head >= a.num_heads)
    return;
  float most[kUnit] = {};
#pragma unroll 4
  for (int32_t token = begin; token < end; token++)
    join_unit(most, a.view, token * a.view.stride_token + head * a.view.stride_head + d);
#pragma unroll
  for (int i = 0; i < kUnit; i++) {
    float *maximum = a.maxima + (int64_t)head * a.head_dim + d + i;
    if (most[i] > *maximum) /* an older one is smaller, at most */
      atomicMax(reinterpret_cast<unsigned *>(maximum), __float_as_uint(most[i]));
  }
}

} // namespace
} // namespace cgr

extern "C" int cgr__cuda_measure(const void *args, cudaStream_t stream) {
  const cgr__measure_args *a = static_cast<const cgr__measure_args *>(args);
  const int32_t dtype = a->view.dtype;
  if ((dtype != CGR_DTYPE_FP32 && dtype != CGR_DTYPE_FP16 && dtype != CGR_DTYPE_BF16) || a->head_dim < 1 ||
      a->head_dim % cgr::kUnit != 0 || a->num_heads < 1 || a->num_tokens < 0)
    return (int)cudaErrorNotSupported;
  const int64_t units = (int64_t)a->num_heads * (a->head_dim / cgr::kUnit);
  const int64_t stretches = ((int64_t)a->num_tokens + cgr::kStretch - 1) / cgr::kStretch;
  const int64_t blocks = stretches * ((units + cgr::kThreads - 1) / cgr::kThreads);
  if (blocks > INT32_MAX)
    return (int)cudaErrorInvalidValue;
  if (blocks == 0)
    return (int)cudaSuccess;
  return cgr::launch(cgr::measure_kernel, a, dim3((unsigned)blocks), dim3(cgr::kThreads), 0, stream);
}

extern "C" int cgr__cuda_measure_preload(void) { return cgr::preload(cgr::measure_kernel, 0); }

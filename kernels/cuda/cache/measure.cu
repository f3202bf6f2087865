/* The largest magnitudes of channels (kernels/measure.h). A thread has 8 neighbouring channels of a head, and the tokens of one
 * stretch; what it finds joins the maxima by their bits, which for numbers that are not negative have the same order. */
#include "cgr/cgr.h"
#include "devices/cuda/launch.cuh"
#include "kernels/cuda/cache/half.cuh"
#include "kernels/cuda/launchers.h"
#include "kernels/measure.h"
#include "kernels/quantise.h"

namespace cgr {
namespace {

constexpr int kThreads = 128;
constexpr int kStretch = 32; /* tokens */
constexpr int kUnit = CGR__MEASURE_UNIT;

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
  for (int32_t token = begin; token < end; token++) {
    float x[kUnit];
    load_eight(x, a.view, token * a.view.stride_token + head * a.view.stride_head + d);
#pragma unroll
    for (int i = 0; i < kUnit; i++)
      most[i] = cgr__larger_magnitude(most[i], x[i]);
  }
#pragma unroll
  for (int i = 0; i < kUnit; i++) {
    float *maximum = a.maxima + (int64_t)head * a.head_dim + d + i;
    if (most[i] > *maximum) /* a stale value is never larger, so nothing is missed */
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

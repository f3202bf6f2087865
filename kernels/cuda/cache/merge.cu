/* Merges two attentions by their LSE. A few neighbouring threads of a warp have one head of one token: each takes 8 elements at a
 * time, 16 or 32 bytes. The first of them alone reads the two LSE and writes the new one, which may be in place of either; the
 * others get them by a shuffle. The grid covers the padded tokens. */
#include "cgr/cgr.h"
#include "devices/cuda/launch.cuh"
#include "kernels/cuda/cache/half.cuh"
#include "kernels/cuda/launchers.h"
#include "kernels/merge.h"

namespace cgr {
namespace {

constexpr int kThreads = 256;
constexpr int kUnit = CGR__MERGE_UNIT;

struct Merge {
  cgr__merge_args args;
  int64_t items;    /* heads of tokens */
  int32_t shift;    /* of the threads that have an item: a power of two, at most a warp */
  int32_t reserved; /* fills a hole: an audit compares all bytes */
};
static_assert(sizeof(Merge) == sizeof(cgr__merge_args) + sizeof(int64_t) + 2 * sizeof(int32_t), "no holes");

__device__ __forceinline__ int64_t element(const cgr_view &view, int64_t token, int32_t head, int32_t d) {
  return token * view.stride_token + head * view.stride_head + d;
}

__device__ __forceinline__ void store(const float (&x)[kUnit], const cgr_view &view, int64_t at) {
  if (view.dtype == CGR_DTYPE_FP32) {
    float4 *to = reinterpret_cast<float4 *>(static_cast<float *>(view.data) + at);
    to[0] = make_float4(x[0], x[1], x[2], x[3]);
    to[1] = make_float4(x[4], x[5], x[6], x[7]);
    return;
  }
  *reinterpret_cast<uint4 *>(static_cast<uint16_t *>(view.data) + at) = pack_eight(x, view.dtype == CGR_DTYPE_BF16);
}

__device__ __forceinline__ float load_lse(const cgr_view &view, int64_t token, int32_t head) {
  return static_cast<const float *>(view.data)[element(view, token, head, 0)];
}

/* Of one item, the elements from `first` on, `step` apart. */
__device__ __forceinline__ void merge_head(const cgr__merge_args &m, const cgr__merge_weights &w, int64_t token, int32_t head,
                                           int32_t first, int32_t step) {
  for (int32_t d = first; d < m.head_dim; d += step) {
    float a[kUnit], b[kUnit];
    load_eight(a, m.a, element(m.a, token, head, d));
    load_eight(b, m.b, element(m.b, token, head, d));
#pragma unroll
    for (int i = 0; i < kUnit; i++)
      a[i] = cgr__merge_element(&w, a[i], b[i]);
    store(a, m.out, element(m.out, token, head, d));
  }
}

__device__ __forceinline__ void clear_head(const cgr__merge_args &m, int64_t token, int32_t head, int32_t first, int32_t step) {
  const float zeros[kUnit] = {};
  for (int32_t d = first; d < m.head_dim; d += step)
    store(zeros, m.out, element(m.out, token, head, d));
}

/* No thread leaves before the shuffles. */
__global__ void __launch_bounds__(kThreads) merge_kernel(const __grid_constant__ Merge merge) {
  const cgr__merge_args &m = merge.args;
  const int32_t lanes = 1 << merge.shift, lane = (int32_t)threadIdx.x & (lanes - 1);
  const int64_t item = ((int64_t)blockIdx.x * kThreads + threadIdx.x) >> merge.shift;
  const int64_t token = item / m.num_heads;
  const int32_t head = (int32_t)(item - token * m.num_heads);
  const bool is_real = item < merge.items && token < m.counts[CGR_COUNT_TOKENS];
  float a_lse = -INFINITY, b_lse = -INFINITY;
  if (is_real && lane == 0) {
    a_lse = load_lse(m.a_lse, token, head);
    b_lse = load_lse(m.b_lse, token, head);
  }
  a_lse = __shfl_sync(0xffffffffu, a_lse, 0, lanes);
  b_lse = __shfl_sync(0xffffffffu, b_lse, 0, lanes);
  if (item >= merge.items)
    return;
  const cgr__merge_weights w = cgr__merge_weigh(a_lse, b_lse);
  if (is_real)
    merge_head(m, w, token, head, lane * kUnit, lanes * kUnit);
  else
    clear_head(m, token, head, lane * kUnit, lanes * kUnit);
  if (lane == 0 && m.lse.data != nullptr)
    static_cast<float *>(m.lse.data)[element(m.lse, token, head, 0)] = w.lse;
}

bool has_dtype(const cgr_view &view) {
  return view.dtype == CGR_DTYPE_FP32 || view.dtype == CGR_DTYPE_FP16 || view.dtype == CGR_DTYPE_BF16;
}

} // namespace
} // namespace cgr

extern "C" int cgr__cuda_merge(const void *args, cudaStream_t stream) {
  cgr::Merge merge = {};
  merge.args = *static_cast<const cgr__merge_args *>(args);
  const cgr__merge_args &m = merge.args;
  if (!cgr::has_dtype(m.a) || !cgr::has_dtype(m.b) || !cgr::has_dtype(m.out) || m.head_dim < 1 || m.head_dim % cgr::kUnit != 0 ||
      m.num_heads < 1 || m.num_tokens < 0)
    return (int)cudaErrorNotSupported;
  merge.items = (int64_t)m.num_tokens * m.num_heads;
  for (merge.shift = 0; merge.shift < 5 && (cgr::kUnit << merge.shift) < m.head_dim;)
    merge.shift++;
  int64_t blocks = ((merge.items << merge.shift) + cgr::kThreads - 1) / cgr::kThreads;
  if (blocks > INT32_MAX)
    return (int)cudaErrorInvalidValue;
  if (blocks == 0)
    return (int)cudaSuccess;
  return cgr::launch(cgr::merge_kernel, &merge, dim3((unsigned)blocks), dim3(cgr::kThreads), 0, stream);
}

extern "C" int cgr__cuda_merge_preload(void) { return cgr::preload(cgr::merge_kernel, 0); }

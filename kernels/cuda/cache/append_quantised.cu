/* The append to caches of 8 bits: a warp for each head of K and of V of a token. A lane takes four neighbouring elements at a
 * time: 8 bytes of a 16-bit tensor or 16 of an fp32 one, 4 of the cache. If only one of K and V has 8 bits, the other is copied,
 * 4 bytes a lane. */
#include <cuda_fp16.h>

#include "devices/cuda/launch.cuh"
#include "kernels/append.h"
#include "kernels/cuda/cache/quantise.cuh"
#include "kernels/cuda/launchers.h"

namespace cgr {
namespace {

constexpr int kThreads = 256;
constexpr int kLaneElements = 4; /* at a time */
constexpr int kWarpElements = 32 * kLaneElements;

/* Elements d .. d + 3 of a head. */
__device__ __forceinline__ float4 read_elements(const cgr_view &from, const Head &at, int32_t d) {
  int64_t i = at.token * from.stride_token + at.head * from.stride_head + d;
  if (from.dtype == CGR_DTYPE_FP32)
    return *reinterpret_cast<const float4 *>(static_cast<const float *>(from.data) + i);
  const uint2 raw = *reinterpret_cast<const uint2 *>(static_cast<const uint16_t *>(from.data) + i);
  float2 low, high;
  if (from.dtype == CGR_DTYPE_BF16) {
    low = make_float2(__uint_as_float(raw.x << 16), __uint_as_float(raw.x & 0xffff0000u));
    high = make_float2(__uint_as_float(raw.y << 16), __uint_as_float(raw.y & 0xffff0000u));
  } else {
    low = __half22float2(*reinterpret_cast<const __half2 *>(&raw.x));
    high = __half22float2(*reinterpret_cast<const __half2 *>(&raw.y));
  }
  return make_float4(low.x, low.y, high.x, high.y);
}

/* The largest magnitude of the head's elements, in all lanes; NaN does not count. */
__device__ __forceinline__ float largest_magnitude(const cgr_view &from, const Head &at, int32_t head_dim) {
  float most = 0.0f;
  for (int32_t d = (threadIdx.x & 31) * kLaneElements; d < head_dim; d += kWarpElements) {
    const float4 x = read_elements(from, at, d);
    const float elements[kLaneElements] = { x.x, x.y, x.z, x.w };
#pragma unroll
    for (float element : elements)
      most = cgr__larger_magnitude(most, element);
  }
#pragma unroll
  for (int lanes = 16; lanes > 0; lanes /= 2)
    most = cgr__larger_magnitude(most, __shfl_xor_sync(~0u, most, lanes));
  return most;
}

__device__ __forceinline__ void quantise_head(const cgr_view &from, const cgr_kv_view &to, const Head &at, int32_t head_dim) {
  const HeadCodes codes = begin_codes(to, at, (threadIdx.x & 31) == 0, [&] { return largest_magnitude(from, at, head_dim); });
  for (int32_t d = (threadIdx.x & 31) * kLaneElements; d < head_dim; d += kWarpElements) {
    const float4 x = read_elements(from, at, d);
    const float elements[kLaneElements] = { x.x, x.y, x.z, x.w };
    *reinterpret_cast<uint32_t *>(codes.bytes + d) = four_codes(to, at, codes, d, elements);
  }
}

__device__ __forceinline__ void copy_head(const cgr_view &from, const cgr_kv_view &to, const Head &at, int32_t head_dim) {
  const int32_t size = to.dtype == CGR_DTYPE_FP32 ? 4 : 2, words = head_dim * size / 4;
  const char *src = static_cast<const char *>(from.data) + (at.token * from.stride_token + at.head * from.stride_head) * size;
  char *dst =
      static_cast<char *>(to.base) + (at.page * to.stride_page + at.offset * to.stride_token + at.head * to.stride_head) * size;
  for (int32_t i = threadIdx.x & 31; i < words; i += 32)
    reinterpret_cast<uint32_t *>(dst)[i] = reinterpret_cast<const uint32_t *>(src)[i];
}

__device__ __forceinline__ void put_head(const cgr_view &from, const cgr_kv_view &to, const Head &at, int32_t head_dim) {
  if (cgr__is_quantised(to.dtype))
    quantise_head(from, to, at, head_dim);
  else
    copy_head(from, to, at, head_dim);
}

__global__ void __launch_bounds__(kThreads) append_quantised_kernel(const __grid_constant__ cgr__append_args a) {
  if (a.attention_follows)
    let_next_begin();
  const uint32_t warp = (blockIdx.x * (uint32_t)kThreads + threadIdx.x) / 32, heads = 2 * (uint32_t)a.num_kv_heads;
  Head at;
  at.token = (int32_t)(warp / heads);
  at.head = (int32_t)(warp - (uint32_t)at.token * heads);
  const bool is_v = at.head >= a.num_kv_heads;
  at.head -= is_v ? a.num_kv_heads : 0;
  if (at.token >= a.num_tokens)
    return;
  const int64_t slot = a.slot_mapping[at.token];
  if (slot < 0)
    return;
  at.page = slot / a.page_size;
  at.offset = (int32_t)(slot - at.page * a.page_size);
  if (at.page >= a.num_pages)
    return;
  if (is_v)
    put_head(a.v, a.v_cache, at, a.head_dim_v);
  else
    put_head(a.k, a.k_cache, at, a.head_dim);
}

bool is_input_dtype(int32_t dtype) { return dtype == CGR_DTYPE_FP32 || dtype == CGR_DTYPE_FP16 || dtype == CGR_DTYPE_BF16; }

bool can_put(const cgr_view &from, const cgr_kv_view &to, int32_t head_dim) {
  return is_input_dtype(from.dtype) && (cgr__is_quantised(to.dtype) || to.dtype == from.dtype) && head_dim > 0 &&
         head_dim % 16 == 0;
}

} // namespace
} // namespace cgr

extern "C" int cgr__cuda_append_quantised(const void *args, cudaStream_t stream) {
  const cgr__append_args *a = static_cast<const cgr__append_args *>(args);
  if (!cgr::can_put(a->k, a->k_cache, a->head_dim) || !cgr::can_put(a->v, a->v_cache, a->head_dim_v) || a->num_kv_heads < 1 ||
      a->num_tokens < 0 || a->page_size < 1)
    return (int)cudaErrorNotSupported;
  const int64_t warps = (int64_t)a->num_tokens * a->num_kv_heads * 2, blocks = (warps * 32 + cgr::kThreads - 1) / cgr::kThreads;
  if (warps > 1 << 27)
    return (int)cudaErrorInvalidValue;
  if (warps == 0)
    return (int)cudaSuccess;
  return cgr::launch(cgr::append_quantised_kernel, a, dim3((unsigned)blocks), dim3(cgr::kThreads), 0, stream);
}

extern "C" int cgr__cuda_append_quantised_preload(void) { return cgr::preload_with_attention(cgr::append_quantised_kernel, 0); }

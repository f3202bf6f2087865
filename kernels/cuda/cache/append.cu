/* Copies k and v of this step's tokens into their pages. A thread moves 16 bytes of K and the same 16 of V; the grid covers
 * the padded tokens, whose slots are -1. */
#include "kernels/cuda/launchers.h"
#include "devices/cuda/launch.cuh"
#include "kernels/append.h"
#include "kernels/quantise.h"

namespace cgr {
namespace {

constexpr int kThreads = 256;
constexpr int32_t kVector = 16; /* bytes */

__device__ __forceinline__ void copy_vector(const cgr_view &from, const cgr_kv_view &to, int32_t token, int64_t page,
                                            int32_t offset, int32_t head, int32_t byte, int32_t size) {
  const char *src = static_cast<const char *>(from.data) + (token * from.stride_token + head * from.stride_head) * size + byte;
  char *dst =
      static_cast<char *>(to.base) + (page * to.stride_page + offset * to.stride_token + head * to.stride_head) * size + byte;
  *reinterpret_cast<uint4 *>(dst) = *reinterpret_cast<const uint4 *>(src);
}

struct Append {
  cgr__append_args args;
  int32_t element_size, vectors, page_shift; /* vectors: of one head, of the wider of K and V; page_shift -1: divide */
  int32_t reserved;                          /* fills a hole: an audit compares all bytes */
};
static_assert(sizeof(Append) == sizeof(cgr__append_args) + 4 * sizeof(int32_t), "no holes");

__global__ void __launch_bounds__(kThreads) append_kernel(const __grid_constant__ Append append) {
  const cgr__append_args &a = append.args;
  if (a.attention_follows)
    let_next_begin(); /* the attention after it may look for its work */
  uint32_t index = blockIdx.x * (uint32_t)kThreads + threadIdx.x;
  uint32_t per_token = (uint32_t)(a.num_kv_heads * append.vectors);
  int32_t token = (int32_t)(index / per_token);
  if (token >= a.num_tokens)
    return;
  int32_t rest = (int32_t)(index % per_token);
  int32_t head = rest / append.vectors, byte = rest % append.vectors * kVector;
  int64_t slot = a.slot_mapping[token];
  if (slot < 0)
    return;
  int64_t page = append.page_shift >= 0 ? slot >> append.page_shift : slot / a.page_size;
  if (page >= a.num_pages)
    return;
  int32_t offset = (int32_t)(slot - page * a.page_size);
  if (byte < a.head_dim * append.element_size)
    copy_vector(a.k, a.k_cache, token, page, offset, head, byte, append.element_size);
  if (byte < a.head_dim_v * append.element_size)
    copy_vector(a.v, a.v_cache, token, page, offset, head, byte, append.element_size);
}

int32_t element_size(int32_t dtype) {
  switch (dtype) {
  case CGR_DTYPE_FP32:
    return 4;
  case CGR_DTYPE_FP16:
  case CGR_DTYPE_BF16:
    return 2;
  default:
    return 0;
  }
}

} // namespace
} // namespace cgr

extern "C" int cgr__cuda_append(const void *args, cudaStream_t stream) {
  cgr::Append append = {};
  append.args = *static_cast<const cgr__append_args *>(args);
  const cgr__append_args &a = append.args;
  if (cgr__is_quantised(a.k_cache.dtype) || cgr__is_quantised(a.v_cache.dtype))
    return cgr__cuda_append_quantised(&a, stream);
  append.element_size = cgr::element_size(a.k_cache.dtype);
  int64_t k_bytes = (int64_t)a.head_dim * append.element_size, v_bytes = (int64_t)a.head_dim_v * append.element_size;
  if (append.element_size == 0 || a.k.dtype != a.k_cache.dtype || a.v.dtype != a.v_cache.dtype ||
      a.v_cache.dtype != a.k_cache.dtype || k_bytes % cgr::kVector != 0 || v_bytes % cgr::kVector != 0 || k_bytes <= 0 ||
      v_bytes <= 0 || a.num_kv_heads < 1 || a.num_tokens < 0 || a.page_size < 1)
    return (int)cudaErrorNotSupported;
  append.vectors = (int32_t)((k_bytes > v_bytes ? k_bytes : v_bytes) / cgr::kVector);
  append.page_shift = (a.page_size & (a.page_size - 1)) == 0 ? __builtin_ctz((unsigned)a.page_size) : -1;
  int64_t work = (int64_t)a.num_tokens * a.num_kv_heads * append.vectors;
  if (work > 0x7fffffff - cgr::kThreads)
    return (int)cudaErrorInvalidValue;
  if (work == 0)
    return (int)cudaSuccess;
  unsigned blocks = (unsigned)((work + cgr::kThreads - 1) / cgr::kThreads);
  return cgr::launch(cgr::append_kernel, &append, dim3(blocks), dim3(cgr::kThreads), 0, stream);
}

extern "C" int cgr__cuda_append_preload(void) {
  int error = cgr::preload_with_attention(cgr::append_kernel, 0);
  return error ? error : cgr__cuda_append_quantised_preload();
}

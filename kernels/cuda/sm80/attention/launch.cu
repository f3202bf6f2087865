/* Launcher of the attention kernels: checks the args and chooses the instance by head_dim and dtype. */
#include "kernels/cuda/launchers.h"
#include "kernels/cuda/sm80/attention/traits.h"

namespace cgr {
namespace {

bool supported(const cgr__attention_args &a) {
  int32_t dtype = a.q.dtype;
  if ((dtype != CGR_DTYPE_BF16 && dtype != CGR_DTYPE_FP16) || a.out.dtype != dtype || a.k_cache.dtype != dtype ||
      a.v_cache.dtype != dtype)
    return false;
  if ((a.head_dim != 64 && a.head_dim != 128) || (a.page_size != 16 && a.page_size != 32 && a.page_size != 64))
    return false;
  if (a.num_kv_heads < 1 || a.num_q_heads < 1 || a.num_q_heads % a.num_kv_heads != 0)
    return false;
  /* One plan serves layers of several group sizes: its tile is that of the widest group. */
  return a.num_parts >= 1 && a.tile_q >= 1 && a.tile_q <= cgr__attention_tile_q(a.num_q_heads / a.num_kv_heads);
}

} // namespace
} // namespace cgr

extern "C" int cgr__cuda_attention(const void *args, cudaStream_t stream) {
  const cgr__attention_args *a = static_cast<const cgr__attention_args *>(args);
  if (!cgr::supported(*a))
    return (int)cudaErrorInvalidValue;
  dim3 grid((unsigned)a->num_parts, (unsigned)cgr__attention_head_blocks(a->num_q_heads, a->num_kv_heads));
  return a->head_dim == 64 ? cgr::attention_launch_d64(a, grid, stream) : cgr::attention_launch_d128(a, grid, stream);
}

extern "C" int cgr__cuda_attention_preload(void) {
  int error = cgr::attention_preload_d64();
  return error ? error : cgr::attention_preload_d128();
}

/* Launcher of the attention kernels. It chooses the instances by head dims, and plain or general ones; their file chooses by
 * dtype and lines (kernel.cuh). kernels/registry.c says which layers have instances. */
#include <cuda.h>

#include "kernels/cuda/attention/sm80/traits.h"
#include "kernels/cuda/launchers.h"

namespace cgr {
namespace {

/* Whether an instance for plain attention serves the launch. */
bool is_plain(const cgr__attention_args &a) {
  const cgr__plan_class &c = a.plan_class;
  bool sees_all = c.sees == CGR__SEES_CACHE && !c.bidirectional && c.window_left == 0 && c.chunk == 0;
  bool is_simple = a.softcap == 0.0f && !a.alibi_slopes && !a.sinks;
  bool has_width = a.head_dim == a.head_dim_v && (a.head_dim == 64 || a.head_dim == 128);
  return sees_all && is_simple && has_width && (a.group.page_size & (a.group.page_size - 1)) == 0;
}

int launch_plain(const cgr__attention_args *a, dim3 grid, cudaStream_t stream) {
  return a->head_dim == 64 ? attention_launch_d64(a, grid, stream) : attention_launch_d128(a, grid, stream);
}

int launch_general(const cgr__attention_args *a, dim3 grid, cudaStream_t stream) {
  int32_t width = a->head_dim > a->head_dim_v ? a->head_dim : a->head_dim_v;
  if (width <= 64)
    return attention_launch_general_d64(a, grid, stream);
  if (width <= 128)
    return attention_launch_general_d128(a, grid, stream);
  if (width <= 256)
    return attention_launch_general_d256(a, grid, stream);
  return (int)cudaErrorNotSupported;
}

} // namespace
} // namespace cgr

extern "C" int cgr__cuda_attention(const void *args, cudaStream_t stream) {
  const cgr__attention_args *a = static_cast<const cgr__attention_args *>(args);
  dim3 grid((unsigned)a->plan_class.stripes, (unsigned)a->plan_class.num_parts);
  if (a->q.dtype != CGR_DTYPE_BF16 && a->q.dtype != CGR_DTYPE_FP16)
    return (int)cudaErrorNotSupported;
  return cgr::is_plain(*a) ? cgr::launch_plain(a, grid, stream) : cgr::launch_general(a, grid, stream);
}

extern "C" int cgr__cuda_attention_preload(void) {
  int (*const preloads[])() = { cgr::attention_preload_d64, cgr::attention_preload_d128, cgr::attention_preload_general_d64,
                                cgr::attention_preload_general_d128 };
  for (auto preload : preloads)
    if (int error = preload())
      return error;
  /* Some devices lack the shared memory for the widest instance; layers that need it are refused there (kernels/registry.c). */
  int error = cgr::attention_preload_general_d256();
  return error == (int)CUDA_ERROR_INVALID_VALUE ? 0 : error;
}

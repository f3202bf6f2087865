/* Launcher of the attention kernels. It chooses the instances by the size of the cache's elements, head dims, and plain or
 * general ones; their file chooses by dtype and lines (kernel.cuh). kernels/registry.c says which layers have instances. */
#include <cuda.h>

#include "kernels/cuda/attention/sm80/traits.h"
#include "kernels/cuda/launchers.h"
#include "kernels/quantise.h"

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

/* Instances for one size of the cache's elements. */
struct Launchers {
  int (*plain[2])(const cgr__attention_args *args, dim3 grid, cudaStream_t stream);   /* head dims 64 and 128 */
  int (*general[3])(const cgr__attention_args *args, dim3 grid, cudaStream_t stream); /* up to 64, 128 and 256 */
};

const Launchers of_halves = { { attention_launch_d64, attention_launch_d128 },
                              { attention_launch_general_d64, attention_launch_general_d128, attention_launch_general_d256 } };
const Launchers of_fp8 = { { attention_launch_fp8_d64, attention_launch_fp8_d128 },
                           { attention_launch_fp8_general_d64, attention_launch_fp8_general_d128,
                             attention_launch_fp8_general_d256 } };

int launch_from(const Launchers &all, const cgr__attention_args *a, dim3 grid, cudaStream_t stream) {
  int32_t width = a->head_dim > a->head_dim_v ? a->head_dim : a->head_dim_v;
  if (width > 256)
    return (int)cudaErrorNotSupported;
  const int index = width <= 64 ? 0 : width <= 128 ? 1 : 2;
  return is_plain(*a) ? all.plain[index](a, grid, stream) : all.general[index](a, grid, stream);
}

} // namespace
} // namespace cgr

extern "C" int cgr__cuda_attention(const void *args, cudaStream_t stream) {
  const cgr__attention_args *a = static_cast<const cgr__attention_args *>(args);
  dim3 grid((unsigned)a->plan_class.stripes, (unsigned)a->plan_class.num_parts);
  if (a->q.dtype != CGR_DTYPE_BF16 && a->q.dtype != CGR_DTYPE_FP16)
    return (int)cudaErrorNotSupported;
  const bool has_cache = a->plan_class.sees != CGR__SEES_STEP;
  if (a->out.dtype != a->q.dtype || (has_cache && a->v_cache.dtype != a->k_cache.dtype))
    return (int)cudaErrorNotSupported;
  if (!has_cache || a->k_cache.dtype == a->q.dtype)
    return cgr::launch_from(cgr::of_halves, a, grid, stream);
  if (!cgr__is_fp8(a->k_cache.dtype) || (a->head_dim | a->head_dim_v) % 16 != 0)
    return (int)cudaErrorNotSupported;
  return cgr::launch_from(cgr::of_fp8, a, grid, stream);
}

extern "C" int cgr__cuda_attention_preload(void) {
  int (*const preloads[])() = { cgr::attention_preload_d64,
                                cgr::attention_preload_d128,
                                cgr::attention_preload_general_d64,
                                cgr::attention_preload_general_d128,
                                cgr::attention_preload_fp8_d64,
                                cgr::attention_preload_fp8_d128,
                                cgr::attention_preload_fp8_general_d64,
                                cgr::attention_preload_fp8_general_d128 };
  for (auto preload : preloads)
    if (int error = preload())
      return error;
  /* Some devices lack the shared memory for the widest instances; layers that need them are refused there (kernels/registry.c).
   */
  for (auto preload : { cgr::attention_preload_general_d256, cgr::attention_preload_fp8_general_d256 })
    if (int error = preload(); error != 0 && error != (int)CUDA_ERROR_INVALID_VALUE)
      return error;
  return 0;
}

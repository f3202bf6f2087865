/* Launcher of the attention kernels. It chooses the file of instances by what the cache holds (16 bits, fp8, i8, or other
 * mixtures with codes), by head dims, and by plain or general attention; the file chooses by `cache` and the most lines of an
 * item (kernel.cuh). kernels/registry.c says which layers have instances. */
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
  bool is_simple = a.softcap == 0.0f && !a.alibi_slopes && !a.sinks && a.out.dtype == a.q.dtype;
  bool has_width = a.head_dim == a.head_dim_v && (a.head_dim == 64 || a.head_dim == 128);
  return sees_all && is_simple && has_width && (a.group.page_size & (a.group.page_size - 1)) == 0;
}

/* Instances for what a cache may have. */
struct Launchers {
  typedef int (*Launcher)(const cgr__attention_args *args, int32_t cache, dim3 grid, cudaStream_t stream);
  Launcher plain[2];   /* head dims 64 and 128; NULL: general ones serve */
  Launcher general[3]; /* up to 64, 128 and 256 */
};

const Launchers of_halves = { { attention_launch_d64, attention_launch_d128 },
                              { attention_launch_general_d64, attention_launch_general_d128, attention_launch_general_d256 } };
const Launchers of_fp8 = { { attention_launch_fp8_d64, attention_launch_fp8_d128 },
                           { attention_launch_fp8_general_d64, attention_launch_fp8_general_d128,
                             attention_launch_fp8_general_d256 } };
const Launchers of_i8 = { { attention_launch_i8_d64, attention_launch_i8_d128 },
                          { attention_launch_i8_general_d64, attention_launch_i8_general_d128,
                            attention_launch_i8_general_d256 } };
const Launchers of_mixed = {
  {}, { attention_launch_mixed_general_d64, attention_launch_mixed_general_d128, attention_launch_mixed_general_d256 }
};

int launch_from(const Launchers &all, const cgr__attention_args *a, int32_t cache, dim3 grid, cudaStream_t stream) {
  int32_t width = a->head_dim > a->head_dim_v ? a->head_dim : a->head_dim_v;
  if (width > 256)
    return (int)cudaErrorNotSupported;
  const int index = width <= 64 ? 0 : width <= 128 ? 1 : 2;
  const Launchers::Launcher plain = is_plain(*a) ? all.plain[index] : nullptr;
  return (plain != nullptr ? plain : all.general[index])(a, cache, grid, stream);
}

/* K has codes. */
int launch_codes(const cgr__attention_args *a, dim3 grid, cudaStream_t stream) {
  const int32_t k = a->k_cache.dtype, v = a->v_cache.dtype;
  if ((a->head_dim | a->head_dim_v) % 16 != 0 || (!cgr__is_quantised(v) && v != a->q.dtype))
    return (int)cudaErrorNotSupported;
  if (k == v && cgr__is_fp8(k) && a->v_cache.scale_stride_d == 0)
    return launch_from(of_fp8, a, k, grid, stream);
  if (k == v && k == CGR_DTYPE_I8)
    return launch_from(of_i8, a, k, grid, stream);
  return launch_from(of_mixed, a, cgr__is_quantised(v) ? kAnyCodes : kAnyCodes + v, grid, stream);
}

} // namespace
} // namespace cgr

extern "C" int cgr__cuda_attention(const void *args, cudaStream_t stream) {
  const cgr__attention_args *a = static_cast<const cgr__attention_args *>(args);
  dim3 grid((unsigned)a->plan_class.stripes, (unsigned)a->plan_class.num_parts);
  if ((a->q.dtype != CGR_DTYPE_BF16 && a->q.dtype != CGR_DTYPE_FP16) ||
      (a->out.dtype != a->q.dtype && a->out.dtype != CGR_DTYPE_FP8_E4M3))
    return (int)cudaErrorNotSupported;
  if (a->plan_class.sees == CGR__SEES_STEP || (a->k_cache.dtype == a->q.dtype && a->v_cache.dtype == a->q.dtype))
    return cgr::launch_from(cgr::of_halves, a, a->q.dtype, grid, stream);
  if (!cgr__is_quantised(a->k_cache.dtype))
    return (int)cudaErrorNotSupported;
  return cgr::launch_codes(a, grid, stream);
}

extern "C" int cgr__cuda_attention_preload(void) {
  using namespace cgr;
  for (auto preload : { attention_preload_d64, attention_preload_d128, attention_preload_general_d64,
                        attention_preload_general_d128, attention_preload_fp8_d64, attention_preload_fp8_d128,
                        attention_preload_fp8_general_d64, attention_preload_fp8_general_d128, attention_preload_i8_d64,
                        attention_preload_i8_d128, attention_preload_i8_general_d64, attention_preload_i8_general_d128,
                        attention_preload_mixed_general_d64, attention_preload_mixed_general_d128 })
    if (int error = preload())
      return error;
  /* Some devices lack the shared memory for the widest instances; layers that need them are refused there (kernels/registry.c).
   */
  for (auto preload : { attention_preload_general_d256, attention_preload_fp8_general_d256, attention_preload_i8_general_d256,
                        attention_preload_mixed_general_d256 })
    if (int error = preload(); error != 0 && error != (int)CUDA_ERROR_INVALID_VALUE)
      return error;
  return 0;
}

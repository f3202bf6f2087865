/* Plain attention over caches of fp8, with head_dim 128. */
#include "kernels/cuda/attention/sm80/kernel.cuh"

namespace cgr {

int attention_launch_fp8_d128(const cgr__attention_args *args, dim3 grid, cudaStream_t stream) {
  return attention_launch<128, false, CGR_DTYPE_FP8_E4M3, CGR_DTYPE_FP8_E5M2>(args, args->k_cache.dtype, grid, stream);
}

int attention_preload_fp8_d128() { return attention_preload<128, false, CGR_DTYPE_FP8_E4M3, CGR_DTYPE_FP8_E5M2>(); }

} // namespace cgr

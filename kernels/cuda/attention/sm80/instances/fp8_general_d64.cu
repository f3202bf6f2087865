/* Every kind of attention over caches of fp8, with head dims up to 64. */
#include "kernels/cuda/attention/sm80/kernel.cuh"

namespace cgr {

int attention_launch_fp8_general_d64(const cgr__attention_args *args, dim3 grid, cudaStream_t stream) {
  return attention_launch<64, true, CGR_DTYPE_FP8_E4M3, CGR_DTYPE_FP8_E5M2>(args, args->k_cache.dtype, grid, stream);
}

int attention_preload_fp8_general_d64() { return attention_preload<64, true, CGR_DTYPE_FP8_E4M3, CGR_DTYPE_FP8_E5M2>(); }

} // namespace cgr

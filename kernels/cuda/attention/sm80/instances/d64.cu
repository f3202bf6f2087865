/* Plain attention with head_dim 64. */
#include "kernels/cuda/attention/sm80/kernel.cuh"

namespace cgr {

int attention_launch_d64(const cgr__attention_args *args, dim3 grid, cudaStream_t stream) {
  return attention_launch<64, false>(args, args->q.dtype, grid, stream);
}

int attention_preload_d64() { return attention_preload<64, false>(); }

} // namespace cgr

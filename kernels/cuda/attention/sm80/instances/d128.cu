/* Plain attention with head_dim 128. */
#include "kernels/cuda/attention/sm80/kernel.cuh"

namespace cgr {

int attention_launch_d128(const cgr__attention_args *args, dim3 grid, cudaStream_t stream) {
  return attention_launch<128, false>(args, args->q.dtype, grid, stream);
}

int attention_preload_d128() { return attention_preload<128, false>(); }

} // namespace cgr

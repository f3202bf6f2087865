/* Every kind of attention, with head dims up to 256. */
#include "kernels/cuda/attention/sm80/kernel.cuh"

namespace cgr {

int attention_launch_general_d256(const cgr__attention_args *args, dim3 grid, cudaStream_t stream) {
  return attention_launch<256, true>(args, args->q.dtype, grid, stream);
}

int attention_preload_general_d256() { return attention_preload<256, true>(); }

} // namespace cgr

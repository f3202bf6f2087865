/* Plain attention over caches of i8, with head_dim 128. */
#include "kernels/cuda/attention/sm80/kernel.cuh"

CGR__ATTENTION_INSTANCES(i8_d128, 128, false, CGR_DTYPE_I8)

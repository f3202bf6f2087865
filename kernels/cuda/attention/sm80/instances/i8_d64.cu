/* Plain attention over caches of i8, with head_dim 64. */
#include "kernels/cuda/attention/sm80/kernel.cuh"

CGR__ATTENTION_INSTANCES(i8_d64, 64, false, CGR_DTYPE_I8)

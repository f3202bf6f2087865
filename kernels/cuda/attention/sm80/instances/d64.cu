/* Plain attention, with head_dim 64. */
#include "kernels/cuda/attention/sm80/kernel.cuh"

CGR__ATTENTION_INSTANCES(d64, 64, false, CGR_DTYPE_FP16, CGR_DTYPE_BF16)

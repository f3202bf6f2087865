/* Plain attention, with head_dim 128. */
#include "kernels/cuda/attention/sm80/kernel.cuh"

CGR__ATTENTION_INSTANCES(d128, 128, false, CGR_DTYPE_FP16, CGR_DTYPE_BF16)

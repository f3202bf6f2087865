/* Plain attention over caches of fp8, with head_dim 128. */
#include "kernels/cuda/attention/sm80/kernel.cuh"

CGR__ATTENTION_INSTANCES(fp8_d128, 128, false, CGR_DTYPE_FP8_E4M3, CGR_DTYPE_FP8_E5M2)

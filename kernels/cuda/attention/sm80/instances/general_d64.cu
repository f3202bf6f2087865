/* Every kind of attention, with head dims up to 64. */
#include "kernels/cuda/attention/sm80/kernel.cuh"

CGR__ATTENTION_INSTANCES(general_d64, 64, true, CGR_DTYPE_FP16, CGR_DTYPE_BF16)

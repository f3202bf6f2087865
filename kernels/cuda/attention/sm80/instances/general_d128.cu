/* Every kind of attention, with head dims up to 128. */
#include "kernels/cuda/attention/sm80/kernel.cuh"

CGR__ATTENTION_INSTANCES(general_d128, 128, true, CGR_DTYPE_FP16, CGR_DTYPE_BF16)

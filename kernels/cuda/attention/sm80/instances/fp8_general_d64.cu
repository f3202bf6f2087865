/* Every kind of attention over caches of fp8, with head dims up to 64. */
#include "kernels/cuda/attention/sm80/kernel.cuh"

CGR__ATTENTION_INSTANCES(fp8_general_d64, 64, true, CGR_DTYPE_FP8_E4M3, CGR_DTYPE_FP8_E5M2)

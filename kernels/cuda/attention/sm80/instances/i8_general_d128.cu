/* Every kind of attention over caches of i8, with head dims up to 128. */
#include "kernels/cuda/attention/sm80/kernel.cuh"

CGR__ATTENTION_INSTANCES(i8_general_d128, 128, true, CGR_DTYPE_I8)

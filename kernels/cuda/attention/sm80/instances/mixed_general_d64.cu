/* Every kind of attention over caches whose K has codes and whose V has codes of any dtype, or none, with head dims up to 64. */
#include "kernels/cuda/attention/sm80/kernel.cuh"

CGR__ATTENTION_INSTANCES(mixed_general_d64, 64, true, cgr::kAnyCodes, cgr::kAnyCodesAndFp16, cgr::kAnyCodesAndBf16)

// Found in place of the toolkit's by the emulated kernels: what they use of it.
#ifndef CGR_TESTS_EMULATION_TOOLKIT_CUDA_BF16_H
#define CGR_TESTS_EMULATION_TOOLKIT_CUDA_BF16_H

#include "tests/emulation/cuda.h"
#include "tests/emulation/tensor.h"

struct __nv_bfloat162 {
  uint32_t bits;
};

inline __nv_bfloat162 __floats2bfloat162_rn(float x, float y) { return { cgr_emulation::Pack(true, x, y) }; }

#endif // CGR_TESTS_EMULATION_TOOLKIT_CUDA_BF16_H

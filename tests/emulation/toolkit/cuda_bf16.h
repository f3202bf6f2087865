// Found in place of the toolkit's by the emulated kernels: what they use of it.
#pragma once

#include "tests/emulation/cuda.h"
#include "tests/emulation/tensor.h"

struct __nv_bfloat162 {
  uint32_t bits;
};

inline __nv_bfloat162 __floats2bfloat162_rn(float x, float y) { return { cgr_emulation::Pack(true, x, y) }; }

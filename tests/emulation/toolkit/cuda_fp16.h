// Found in place of the toolkit's by the emulated kernels: what they use of it.
#pragma once

#include "tests/emulation/cuda.h"
#include "tests/emulation/tensor.h"

struct __half2 {
  uint32_t bits;
};

inline __half2 __floats2half2_rn(float x, float y) { return { cgr_emulation::Pack(false, x, y) }; }
inline float2 __half22float2(__half2 h) {
  return make_float2(cgr_emulation::Unpack(false, uint16_t(h.bits)), cgr_emulation::Unpack(false, uint16_t(h.bits >> 16)));
}

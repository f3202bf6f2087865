// Dynamic shared memory of kernels/cuda/step/prologue.cu, which names it in the unnamed namespace.
#ifndef CGR_TESTS_EMULATION_STAND_INS_STEP_PROLOGUE_H
#define CGR_TESTS_EMULATION_STAND_INS_STEP_PROLOGUE_H

#include "tests/emulation/cuda.h"

namespace cgr {
namespace {
CGR_EMULATED_SHARED(int32_t, words);
}
} // namespace cgr
#endif

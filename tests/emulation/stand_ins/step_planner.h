// Dynamic shared memory of kernels/cuda/step/planner.cu, which names it in the unnamed namespace.
#ifndef CGR_TESTS_EMULATION_STAND_INS_STEP_PLANNER_H
#define CGR_TESTS_EMULATION_STAND_INS_STEP_PLANNER_H

#include "tests/emulation/cuda.h"

namespace cgr {
namespace {
CGR_EMULATED_SHARED(unsigned char, memory);
}
} // namespace cgr
#endif

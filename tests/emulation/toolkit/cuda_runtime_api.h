// Found in place of the toolkit's by the emulated kernels, which need no toolkit.
#include "tests/emulation/cuda.h"

// Found in place of the driver's header by the emulated kernels, which need no toolkit: the names that launchers compare with.
#pragma once

enum { CUDA_ERROR_INVALID_VALUE = 1 };

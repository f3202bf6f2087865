// Found in place of the driver's header by the emulated kernels, which need no toolkit: the names that launchers compare with.
#ifndef CGR_TESTS_EMULATION_TOOLKIT_CUDA_H
#define CGR_TESTS_EMULATION_TOOLKIT_CUDA_H

enum { CUDA_ERROR_INVALID_VALUE = 1 };

#endif

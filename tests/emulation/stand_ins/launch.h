// Stands in for devices/cuda/launch.cuh: a launch runs the whole grid before it returns.
#ifndef CGR_DEVICES_CUDA_LAUNCH_CUH
#define CGR_DEVICES_CUDA_LAUNCH_CUH

#include "tests/emulation/grid.h"

namespace cgr_emulated {

template <typename Args>
inline int launch(void (*kernel)(Args), const void *args, dim3 grid, dim3 block, size_t shared, cudaStream_t, bool = false) {
  using Kernel = void (*)(Args);
  auto call = [](const void *one, const void *with) { (*static_cast<const Kernel *>(one))(*static_cast<const Args *>(with)); };
  return ::cgr_emulation::Run({ call, &kernel, args, grid, block, shared });
}

inline void let_next_begin() {}
// Most of the block's other lanes come as far as this before the wait is over.
inline void wait_for_previous() {
  for (int i = 0; i < 3 && ::cgr_emulation::PreviousRuns(); i++)
    __nanosleep(1);
  ::cgr_emulation::EndPrevious();
}

template <typename Args> inline int preload(void (*)(Args), size_t shared) {
  return shared <= ::cgr_emulation::kMostShared ? ::cgr_emulation::kLaunched : ::cgr_emulation::kInvalidValue;
}

template <typename Args> inline int preload_with_attention(void (*kernel)(Args), size_t shared) {
  return preload(kernel, shared);
}

} // namespace cgr_emulated
#endif

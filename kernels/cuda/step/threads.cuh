/* How large the blocks of prologue and epilogue are. */
#ifndef CGR_KERNELS_CUDA_STEP_THREADS_CUH
#define CGR_KERNELS_CUDA_STEP_THREADS_CUH

#include <stdint.h>

namespace cgr {

constexpr int kFewestStepThreads = 128, kMostStepThreads = 1024;

/* As many threads as the key has requests or tokens, because every warp costs the others time, even an idle one. */
inline unsigned step_threads(int32_t padded_requests, int32_t padded_tokens) {
  int32_t most = padded_requests > padded_tokens ? padded_requests : padded_tokens;
  if (most <= kFewestStepThreads)
    return kFewestStepThreads;
  return (unsigned)(most < kMostStepThreads ? (most + 31) / 32 * 32 : kMostStepThreads);
}

} // namespace cgr
#endif

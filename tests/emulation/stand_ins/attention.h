// Stands in for kernels/cuda/attention/sm80/mma.cuh, by the fragment layouts of the PTX ISA.
#ifndef CGR_KERNELS_CUDA_ATTENTION_SM80_MMA_CUH
#define CGR_KERNELS_CUDA_ATTENTION_SM80_MMA_CUH

#include "cgr/cgr.h"
#include "tests/emulation/cuda.h"
#include "tests/emulation/tensor.h"

namespace cgr {

using ::cgr_emulation::Site;

CGR_EMULATED_SHARED(unsigned char, memory);

struct CachePolicy {};
inline CachePolicy cache_policy(bool) { return {}; }

inline void copy_async(uint32_t shared, const void *global, CachePolicy, bool valid, Site site = Site()) {
  ::cgr_emulation::CopyAsync(shared, valid ? global : nullptr, site);
}
inline void copy_async(uint32_t shared, const void *global, CachePolicy policy, Site site = Site()) {
  copy_async(shared, global, policy, true, site);
}
inline void copy_async(uint32_t shared, const void *global, Site site = Site()) { copy_async(shared, global, {}, true, site); }
inline void copy_async_or_zeros(uint32_t shared, const void *global, bool valid, Site site = Site()) {
  copy_async(shared, global, {}, valid, site);
}
inline void copy_async_commit() { ::cgr_emulation::builtins.block->CommitCopies(); }
template <int kPending> inline void copy_async_wait() { ::cgr_emulation::builtins.block->WaitForCopies(kPending); }

inline void load_matrix(uint32_t (&r)[4], uint32_t shared, Site site = Site()) {
  ::cgr_emulation::LoadMatrix(r, shared, false, site);
}
inline void load_matrix_transposed(uint32_t (&r)[4], uint32_t shared, Site site = Site()) {
  ::cgr_emulation::LoadMatrix(r, shared, true, site);
}

inline uint32_t transpose(uint32_t pair, Site site = Site()) { return ::cgr_emulation::Transpose(pair, site); }

template <int kDtype> struct Element {
  static constexpr bool kIsBf16 = kDtype == CGR_DTYPE_BF16;
  static_assert(kIsBf16 || kDtype == CGR_DTYPE_FP16, "the types that mma takes");
  static void mma(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1, Site site = Site()) {
    ::cgr_emulation::Mma(kIsBf16, c, a, b0, b1, site);
  }
  static uint32_t pack(float low, float high) { return ::cgr_emulation::Pack(kIsBf16, low, high); }
};

// Numbers below the normal ones become 0, before and after.
inline float exp2_approx(float x) {
  float y = exp2f(fabsf(x) < 0x1p-126f ? 0.0f : x);
  return y < 0x1p-126f ? 0.0f : y;
}

inline int32_t count_arrival(int32_t *counter) { return atomicAdd(counter, 1); }

} // namespace cgr
#endif

// Stands in for kernels/cuda/attention/sm80/mma.cuh, by the fragment layouts of the PTX ISA.
#ifndef CGR_KERNELS_CUDA_ATTENTION_SM80_MMA_CUH
#define CGR_KERNELS_CUDA_ATTENTION_SM80_MMA_CUH

#include "cgr/cgr.h"
#include "kernels/quantise.h"
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
inline void copy_async_first(uint32_t shared, const void *global, int32_t count, Site site = Site()) {
  ::cgr_emulation::CopyAsync(shared, global, site, size_t(count) * 4);
}
inline void copy_async_commit() { ::cgr_emulation::builtins.block->CommitCopies(); }
template <int kPending> inline void copy_async_wait() { ::cgr_emulation::builtins.block->WaitForCopies(kPending); }

inline void load_matrix(uint32_t (&r)[4], uint32_t shared, Site site = Site()) {
  ::cgr_emulation::LoadMatrix(r, shared, false, site);
}
inline void load_matrix_transposed(uint32_t (&r)[4], uint32_t shared, Site site = Site()) {
  ::cgr_emulation::LoadMatrix(r, shared, true, site);
}

inline void load_words(uint32_t (&r)[2], uint32_t shared, Site site = Site()) { ::cgr_emulation::LoadWords(r, shared, site); }

inline uint32_t transpose(uint32_t pair, Site site = Site()) { return ::cgr_emulation::Transpose(pair, site); }

template <int kDtype> struct Element {
  static constexpr bool kIsBf16 = kDtype == CGR_DTYPE_BF16;
  static_assert(kIsBf16 || kDtype == CGR_DTYPE_FP16, "the types that mma takes");
  static void mma(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1, Site site = Site()) {
    ::cgr_emulation::Mma(kIsBf16, c, a, b0, b1, site);
  }
  static uint32_t pack(float low, float high) { return ::cgr_emulation::Pack(kIsBf16, low, high); }
};

template <int kDtype> struct Codes {
  static constexpr bool kIsE4m3 = kDtype == CGR_DTYPE_FP8_E4M3, kIsI8 = kDtype == CGR_DTYPE_I8;
  static_assert(kIsE4m3 || kIsI8 || kDtype == CGR_DTYPE_FP8_E5M2, "the codes that a cache may have");
  static void convert(uint32_t codes, uint32_t &low, uint32_t &high) {
    auto value = [&](int i) {
      const uint8_t code = uint8_t(codes >> 8 * i);
      return kIsI8 ? float(int8_t(code)) : ::cgr_emulation::ValueOfCode(kIsE4m3, code);
    };
    low = ::cgr_emulation::Pack(false, value(0), value(1));
    high = ::cgr_emulation::Pack(false, value(2), value(3));
  }
  static void raise(uint32_t codes, uint32_t &even, uint32_t &odd) {
    even = (codes ^ 0x80808080u) & 0xff00ffu;
    odd = (codes ^ 0x80808080u) >> 8 & 0xff00ffu;
  }
};

inline uint32_t pack_codes(float low, float high) {
  return cgr__fp8_code(low, 3, 7, 0x7eu) | uint32_t(cgr__fp8_code(high, 3, 7, 0x7eu)) << 8;
}

inline uint32_t even_first(uint32_t codes) { return (codes & 0xff0000ffu) | (codes >> 8 & 0xff00u) | (codes << 8 & 0xff0000u); }

inline uint32_t bf16_to_fp16(uint32_t pair) {
  return ::cgr_emulation::Pack(false, ::cgr_emulation::Unpack(true, uint16_t(pair)),
                               ::cgr_emulation::Unpack(true, uint16_t(pair >> 16)));
}

// Numbers below the normal ones become 0, before and after.
inline float exp2_approx(float x) {
  float y = exp2f(fabsf(x) < 0x1p-126f ? 0.0f : x);
  return y < 0x1p-126f ? 0.0f : y;
}

inline int32_t count_arrival(int32_t *counter) { return atomicAdd(counter, 1); }

} // namespace cgr
#endif

/* The sm_80 instructions that attention uses: asynchronous copies, ldmatrix, mma, exp2, the count of arrivals. All of its inline
 * assembly is here, and nothing else, so that another header can stand in for this one (tests/emulation). */
#ifndef CGR_KERNELS_CUDA_ATTENTION_SM80_MMA_CUH
#define CGR_KERNELS_CUDA_ATTENTION_SM80_MMA_CUH

#include <stdint.h>

#include "cgr/cgr.h"
#include "kernels/quantise.h"

namespace cgr {

/* ---------------------------------------------------------------------------------------------------------------- copies */

/* How L2 keeps what a copy reads. With `evict_first` it is evicted before anything else, so that it displaces nothing that is
 * read again. */
typedef uint64_t CachePolicy;
__device__ __forceinline__ CachePolicy cache_policy(bool evict_first) {
  CachePolicy first, normal;
  asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(first));
  asm("createpolicy.fractional.L2::evict_normal.b64 %0, 1.0;" : "=l"(normal));
  return evict_first ? first : normal;
}

/* Copies 16 bytes from global to shared memory; if not `valid`, writes zeros and reads nothing. */
__device__ __forceinline__ void copy_async(uint32_t shared, const void *global, CachePolicy policy, bool valid) {
  int bytes = valid ? 16 : 0;
  asm volatile("cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2, %3;" ::"r"(shared),
               "l"(__cvta_generic_to_global(global)), "r"(bytes), "l"(policy)
               : "memory");
}

__device__ __forceinline__ void copy_async(uint32_t shared, const void *global, CachePolicy policy) {
  asm volatile("cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2;" ::"r"(shared),
               "l"(__cvta_generic_to_global(global)), "l"(policy)
               : "memory");
}

/* With L2's own policy: for what is read once, and soon. */
__device__ __forceinline__ void copy_async(uint32_t shared, const void *global) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared), "l"(__cvta_generic_to_global(global)) : "memory");
}

/* The same; zeros when not `valid`. */
__device__ __forceinline__ void copy_async_or_zeros(uint32_t shared, const void *global, bool valid) {
  int bytes = valid ? 16 : 0;
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared), "l"(__cvta_generic_to_global(global)), "r"(bytes)
               : "memory");
}

/* The first `count` of four 4-byte words, 0 to 4, and zeros for the others. */
__device__ __forceinline__ void copy_async_first(uint32_t shared, const void *global, int32_t count) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared), "l"(__cvta_generic_to_global(global)),
               "r"(count * 4)
               : "memory");
}

__device__ __forceinline__ void copy_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }

/* Waits until at most `kPending` of this thread's groups are under way. */
template <int kPending> __device__ __forceinline__ void copy_async_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

/* ----------------------------------------------------------------------------------------------------------------- tiles */

__device__ __forceinline__ void load_matrix(uint32_t (&r)[4], uint32_t shared) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared)
               : "memory");
}

__device__ __forceinline__ void load_matrix_transposed(uint32_t (&r)[4], uint32_t shared) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared)
               : "memory");
}

/* 8 bytes. */
__device__ __forceinline__ void load_words(uint32_t (&r)[2], uint32_t shared) {
  asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];" : "=r"(r[0]), "=r"(r[1]) : "r"(shared) : "memory");
}

/* Transposes an 8 x 8 tile of 16-bit elements, of which lane l has elements 2 (l % 4) and 2 (l % 4) + 1 of row l / 4. */
__device__ __forceinline__ uint32_t transpose(uint32_t pair) {
  uint32_t r;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(r) : "r"(pair));
  return r;
}

/* What depends on the element type. */
template <int kDtype> struct Element;

template <> struct Element<CGR_DTYPE_BF16> {
  static __device__ __forceinline__ void mma(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
                 "{%0, %1, %2, %3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  }
  static __device__ __forceinline__ uint32_t pack(float low, float high) { /* nearest even */
    uint32_t r;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
    return r;
  }
};

template <> struct Element<CGR_DTYPE_FP16> {
  static __device__ __forceinline__ void mma(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
                 "{%0, %1, %2, %3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  }
  static __device__ __forceinline__ uint32_t pack(float low, float high) {
    uint32_t r;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
    return r;
  }
};

/* ------------------------------------------------------------------------------------------------------------- numbers */

/* Four codes as fp16: the first two in `low`, the others in `high`. Exact; NaN stays NaN. */
template <int kDtype> struct Codes;

template <> struct Codes<CGR_DTYPE_FP8_E4M3> {
  static __device__ __forceinline__ void convert(uint32_t codes, uint32_t &low, uint32_t &high) {
#if __CUDA_ARCH__ >= 890
    asm("{\n .reg .b16 a, b;\n mov.b32 {a, b}, %2;\n cvt.rn.f16x2.e4m3x2 %0, a;\n cvt.rn.f16x2.e4m3x2 %1, b;\n}"
        : "=r"(low), "=r"(high)
        : "r"(codes));
#else
    low = scale(__byte_perm(codes, 0, 0x1404));
    high = scale(__byte_perm(codes, 0, 0x3424));
#endif
  }

  /* Two codes, each in the upper byte of 16 bits. Their exponent is 8 less than fp16's, which a product corrects; subnormal
   * numbers become right in the same way. A magnitude of 0x7f is a NaN. */
  static __device__ __forceinline__ uint32_t scale(uint32_t codes) {
    uint32_t magnitude = codes >> 1 & 0x3f803f80u, nan = (magnitude + 0x00800080u) & 0x40004000u, r;
    asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(r) : "r"((codes & 0x80008000u) | magnitude), "r"(0x5c005c00u)); /* 256 */
    return r | nan | (nan - (nan >> 5));
  }
};

template <> struct Codes<CGR_DTYPE_FP8_E5M2> { /* the upper halves of fp16 */
  static __device__ __forceinline__ void convert(uint32_t codes, uint32_t &low, uint32_t &high) {
    low = __byte_perm(codes, 0, 0x1404);
    high = __byte_perm(codes, 0, 0x3424);
  }
};

template <> struct Codes<CGR_DTYPE_I8> {
  /* Raised by 128, in units of 2^-24: subnormal numbers. The first and the third in `even`. */
  static __device__ __forceinline__ void raise(uint32_t codes, uint32_t &even, uint32_t &odd) {
    const uint32_t raised = codes ^ 0x80808080u;
    even = raised & 0x00ff00ffu;
    odd = __byte_perm(raised, 0, 0x4341);
  }

  static __device__ __forceinline__ void convert(uint32_t codes, uint32_t &low, uint32_t &high) {
    const uint32_t raised = codes ^ 0x80808080u; /* by 128; below the exponent of 1024 they are fp16, raised by 1152 */
    asm("sub.rn.f16x2 %0, %1, %2;" : "=r"(low) : "r"(__byte_perm(raised, 0x64646464u, 0x4140)), "r"(0x64806480u));
    asm("sub.rn.f16x2 %0, %1, %2;" : "=r"(high) : "r"(__byte_perm(raised, 0x64646464u, 0x4342)), "r"(0x64806480u));
  }
};

/* Two numbers as codes of e4m3: rounded to nearest even, saturated; NaN becomes 0x7f. */
__device__ __forceinline__ uint32_t pack_codes(float low, float high) {
#if __CUDA_ARCH__ >= 890
  uint16_t r;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(r) : "f"(high), "f"(low));
  return r;
#else
  return cgr__fp8_code(low, 3, 7, 0x7eu) | (uint32_t)cgr__fp8_code(high, 3, 7, 0x7eu) << 8;
#endif
}

/* Four codes in the order 0, 2, 1, 3. */
__device__ __forceinline__ uint32_t even_first(uint32_t codes) { return __byte_perm(codes, 0, 0x3120); }

/* Two bf16 as fp16. */
__device__ __forceinline__ uint32_t bf16_to_fp16(uint32_t pair) {
  return Element<CGR_DTYPE_FP16>::pack(__uint_as_float(pair << 16), __uint_as_float(pair & 0xffff0000u));
}

__device__ __forceinline__ float exp2_approx(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

/* ------------------------------------------------------------------------------------------------------------- arrivals */

/* Adds 1 to a counter of all CTAs; returns its old value. Releases what came before it, acquires for what comes after. */
__device__ __forceinline__ int32_t count_arrival(int32_t *counter) {
  int32_t before;
  asm volatile("atom.add.acq_rel.gpu.global.s32 %0, [%1], 1;" : "=r"(before) : "l"(__cvta_generic_to_global(counter)) : "memory");
  return before;
}

} // namespace cgr
#endif

// Runs the kernels of kernels/cuda on the CPU: for tests without a GPU, and for the address sanitizer.
//
// A test's library compiles the .cu files themselves as C++, each after this header, which provides what nvcc adds to C++:
// keywords, built-in variables and functions. The lanes of a block are fibers (block.h) and meet where CUDA makes them meet;
// blocks run in random order, several at a time (grid.h); shared memory begins as poison (shared_memory.h). Inline assembly,
// which is not C++ at all, is confined to headers of the product; a stand-in header replaces each by defining its include guard
// (stand_ins/). The emulated kernels have their own names (stand_ins/names.h), so that a test can have both kinds.
//
// What it finds: wrong indices, masks and walks, by their results; reads of shared memory that was never written and writes past
// its end; a missing barrier or wait for copies, if the random order exposes it; lanes that miss a meeting; deadlocks. What it
// does not model: weak memory order, the read-only cache, timing, rounding in the tensor cores.
//
// A __shared__ variable is thread_local. A variable in dynamic shared memory (extern __shared__) must be defined before the
// kernel, in its namespace: CGR_EMULATED_SHARED(type, name).
#pragma once

#include <math.h>
#include <stddef.h>
#include <stdint.h>

#include <cstring>
#include <type_traits>

#include "tests/emulation/block.h"
#include "tests/emulation/shared_memory.h"
#include "tests/emulation/vector_types.h"

#define __global__
#define __device__
#define __host__
#define __constant__
#define __forceinline__ inline
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
#define __grid_constant__
#define __align__(bytes) __attribute__((aligned(bytes)))
#define __shared__ thread_local

#define CGR_EMULATED_SHARED(type, name)                                                     \
  alignas(1024) inline thread_local type name[::cgr_emulation::kMostShared / sizeof(type)]; \
  [[maybe_unused]] inline const bool name##_is_known =                                      \
      ::cgr_emulation::AddDynamicSharedMemory([] { return static_cast<void *>(name); })

#define threadIdx (::cgr_emulation::builtins.thread_index)
#define blockIdx (::cgr_emulation::builtins.block_index)
#define blockDim (::cgr_emulation::builtins.block_size)
#define gridDim (::cgr_emulation::builtins.grid_size)

enum cudaError_t { cudaSuccess = 0, cudaErrorInvalidValue = 1, cudaErrorNotSupported = 801 };
typedef struct CUstream_st *cudaStream_t;

#define CGR_EMULATION_SITE ::cgr_emulation::Site site = ::cgr_emulation::Site()

// ---------------------------------------------------------------------------------------------------------------- barriers

inline void __syncthreads(CGR_EMULATION_SITE) {
  int count, threads;
  ::cgr_emulation::builtins.block->MeetBlock(0, &count, &threads, site);
}
inline int __syncthreads_count(int vote, CGR_EMULATION_SITE) {
  int count, threads;
  ::cgr_emulation::builtins.block->MeetBlock(vote, &count, &threads, site);
  return count;
}
inline int __syncthreads_and(int vote, CGR_EMULATION_SITE) {
  int count, threads;
  ::cgr_emulation::builtins.block->MeetBlock(vote, &count, &threads, site);
  return count == threads;
}
inline int __syncthreads_or(int vote, CGR_EMULATION_SITE) { return __syncthreads_count(vote, site) != 0; }

inline void __syncwarp(unsigned mask = ~0u, CGR_EMULATION_SITE) {
  static const ::cgr_emulation::WarpOperation operation = { "__syncwarp", nullptr, true };
  ::cgr_emulation::builtins.block->MeetWarp(operation, mask, nullptr, site);
}

inline void __threadfence() { ::cgr_emulation::builtins.block->GiveWayAtTimes(); }
inline void __threadfence_system() { __threadfence(); }
inline void __nanosleep(unsigned, CGR_EMULATION_SITE) { ::cgr_emulation::builtins.block->Sleep(site); }

// ------------------------------------------------------------------------------------------------------------ within a warp

namespace cgr_emulation {

// Each lane's value, and what it gets.
template <class T> struct Exchange {
  T value, result;
  int from; // the lane whose value it gets; -1: its own
};

template <class T> void CombineShuffle(void *const *operands, uint32_t mask) {
  for (uint32_t left = mask; left != 0; left &= left - 1) {
    Exchange<T> *own = static_cast<Exchange<T> *>(operands[__builtin_ctz(left)]);
    if (own->from < 0)
      own->result = own->value;
    else if (mask >> own->from & 1)
      own->result = static_cast<Exchange<T> *>(operands[own->from])->value;
    else
      std::memset(&own->result, 0x7f, sizeof(T)); // from a lane that takes no part: anything
  }
}

template <class T> T Shuffle(const WarpOperation &operation, unsigned mask, T value, int from, Site site) {
  Exchange<T> exchange = { value, value, from };
  builtins.block->MeetWarp(operation, mask, &exchange, site);
  return exchange.result;
}

inline int OwnLane() { return builtins.block->lane().number & 31; }

template <class T, T (*kAdd)(T, T)> void CombineReduce(void *const *operands, uint32_t mask) {
  bool first = true;
  T sum = {};
  for (uint32_t left = mask; left != 0; left &= left - 1, first = false) {
    T value = static_cast<Exchange<T> *>(operands[__builtin_ctz(left)])->value;
    sum = first ? value : kAdd(sum, value);
  }
  for (uint32_t left = mask; left != 0; left &= left - 1)
    static_cast<Exchange<T> *>(operands[__builtin_ctz(left)])->result = sum;
}
template <class T> T Add(T a, T b) { return T(a + b); }
template <class T> T Smaller(T a, T b) { return b < a ? b : a; }
template <class T> T Larger(T a, T b) { return a < b ? b : a; }
template <class T> T Or(T a, T b) { return a | b; }
template <class T> T And(T a, T b) { return a & b; }

template <class T> void CombineMatch(void *const *operands, uint32_t mask) {
  for (uint32_t left = mask; left != 0; left &= left - 1) {
    Exchange<T> *own = static_cast<Exchange<T> *>(operands[__builtin_ctz(left)]);
    uint32_t same = 0;
    for (uint32_t other = mask; other != 0; other &= other - 1)
      if (static_cast<Exchange<T> *>(operands[__builtin_ctz(other)])->value == own->value)
        same |= other & -other;
    own->from = int(same);
  }
}

} // namespace cgr_emulation

#define CGR_EMULATION_SHUFFLE(name, argument, from_lane)                                                          \
  template <class T> inline T name(unsigned mask, T value, argument, int width = 32, CGR_EMULATION_SITE) {        \
    static const ::cgr_emulation::WarpOperation operation = { #name, ::cgr_emulation::CombineShuffle<T>, false }; \
    const int lane = ::cgr_emulation::OwnLane(), first = lane & ~(width - 1), last = first + width - 1;           \
    (void)last;                                                                                                   \
    return ::cgr_emulation::Shuffle(operation, mask, value, from_lane, site);                                     \
  }
CGR_EMULATION_SHUFFLE(__shfl_sync, int from, first + (from & (width - 1)))
CGR_EMULATION_SHUFFLE(__shfl_up_sync, unsigned delta, lane - int(delta) < first ? -1 : lane - int(delta))
CGR_EMULATION_SHUFFLE(__shfl_down_sync, unsigned delta, lane + int(delta) > last ? -1 : lane + int(delta))
CGR_EMULATION_SHUFFLE(__shfl_xor_sync, int bits, (lane ^ bits) > last ? -1 : (lane ^ bits))
#undef CGR_EMULATION_SHUFFLE

#define CGR_EMULATION_REDUCE(name, add)                                                                                          \
  template <class T> inline T name(unsigned mask, T value, CGR_EMULATION_SITE) {                                                 \
    static const ::cgr_emulation::WarpOperation operation = { #name, ::cgr_emulation::CombineReduce<T, ::cgr_emulation::add<T>>, \
                                                              false };                                                           \
    return ::cgr_emulation::Shuffle(operation, mask, value, -1, site);                                                           \
  }
CGR_EMULATION_REDUCE(__reduce_add_sync, Add)
CGR_EMULATION_REDUCE(__reduce_min_sync, Smaller)
CGR_EMULATION_REDUCE(__reduce_max_sync, Larger)
CGR_EMULATION_REDUCE(__reduce_or_sync, Or)
CGR_EMULATION_REDUCE(__reduce_and_sync, And)
#undef CGR_EMULATION_REDUCE

inline unsigned __ballot_sync(unsigned mask, int vote, CGR_EMULATION_SITE) {
  static const ::cgr_emulation::WarpOperation operation = {
    "a vote", ::cgr_emulation::CombineReduce<unsigned, ::cgr_emulation::Or<unsigned>>, false
  };
  return ::cgr_emulation::Shuffle(operation, mask, vote ? 1u << ::cgr_emulation::OwnLane() : 0u, -1, site);
}
inline int __any_sync(unsigned mask, int vote, CGR_EMULATION_SITE) { return __ballot_sync(mask, vote, site) != 0; }

template <class T> inline unsigned __match_any_sync(unsigned mask, T value, CGR_EMULATION_SITE) {
  static const ::cgr_emulation::WarpOperation operation = { "__match_any_sync", ::cgr_emulation::CombineMatch<T>, false };
  ::cgr_emulation::Exchange<T> exchange = { value, value, -1 };
  ::cgr_emulation::builtins.block->MeetWarp(operation, mask, &exchange, site);
  return unsigned(exchange.from);
}

// -------------------------------------------------------------------------------------------------------------------- memory

template <class T> inline T __ldcg(const T *address) { return *address; }

inline size_t __cvta_generic_to_shared(const void *address) { return ::cgr_emulation::ToShared(address); }

namespace cgr_emulation {
template <class T> struct Same { using Type = T; };
template <class T, class Change> T Atomic(T *address, Change change) {
  builtins.block->GiveWayAtTimes();
  T before = *address;
  *address = change(before);
  return before;
}
} // namespace cgr_emulation
#define CGR_EMULATION_ATOMIC(name, after)                                                                      \
  template <class T> inline T name(T *address, typename ::cgr_emulation::Same<T>::Type value) {                \
    return ::cgr_emulation::Atomic(address, [&]([[maybe_unused]] T before) { return static_cast<T>(after); }); \
  }
CGR_EMULATION_ATOMIC(atomicAdd, before + value)
CGR_EMULATION_ATOMIC(atomicSub, before - value)
CGR_EMULATION_ATOMIC(atomicMin, value < before ? value : before)
CGR_EMULATION_ATOMIC(atomicMax, before < value ? value : before)
CGR_EMULATION_ATOMIC(atomicOr, before | value)
CGR_EMULATION_ATOMIC(atomicAnd, before &value)
CGR_EMULATION_ATOMIC(atomicExch, value)
#undef CGR_EMULATION_ATOMIC
template <class T>
inline T atomicCAS(T *address, typename ::cgr_emulation::Same<T>::Type expected, typename ::cgr_emulation::Same<T>::Type value) {
  return ::cgr_emulation::Atomic(address, [&](T before) { return before == expected ? value : before; });
}

// ------------------------------------------------------------------------------------------------------------------- numbers

template <class A, class B> constexpr std::common_type_t<A, B> min(A a, B b) {
  using T = std::common_type_t<A, B>;
  return T(b) < T(a) ? T(b) : T(a);
}
template <class A, class B> constexpr std::common_type_t<A, B> max(A a, B b) {
  using T = std::common_type_t<A, B>;
  return T(a) < T(b) ? T(b) : T(a);
}

inline int __ffs(int bits) { return __builtin_ffs(bits); }
inline int __clz(int bits) { return bits == 0 ? 32 : __builtin_clz(unsigned(bits)); }
inline int __popc(unsigned bits) { return __builtin_popcount(bits); }
inline unsigned __umulhi(unsigned a, unsigned b) { return unsigned((uint64_t{ 1 } * a * b) >> 32); }
inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fdividef(float a, float b) { return a / b; }
inline float __expf(float x) { return expf(x); }
inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }

namespace cgr_emulation {
template <class To, class From> To Bits(From from) {
  static_assert(sizeof(To) == sizeof(From), "the same bits");
  To to;
  std::memcpy(&to, &from, sizeof to);
  return to;
}
} // namespace cgr_emulation
inline unsigned __float_as_uint(float x) { return ::cgr_emulation::Bits<unsigned>(x); }
inline float __uint_as_float(unsigned x) { return ::cgr_emulation::Bits<float>(x); }

#undef CGR_EMULATION_SITE
#include "tests/emulation/stand_ins/launch.h"
#include "tests/emulation/stand_ins/names.h" // must be last: it renames

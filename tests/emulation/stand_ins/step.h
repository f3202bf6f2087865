// Stands in for devices/cuda/access.cuh. One lane runs at a time, so every access is ordered; but others may come between,
// and mapped memory is the host's, which writes it at the same time.
#ifndef CGR_DEVICES_CUDA_ACCESS_CUH
#define CGR_DEVICES_CUDA_ACCESS_CUH

#include <chrono>

#include "tests/emulation/cuda.h"

namespace cgr {

inline void let_others_come() { ::cgr_emulation::builtins.block->GiveWayAtTimes(); }

inline int32_t load_mapped_word(const int32_t *address) { return __atomic_load_n(address, __ATOMIC_RELAXED); }
inline int4 load_mapped(const void *address) {
  const int32_t *words = static_cast<const int32_t *>(address);
  return { load_mapped_word(words), load_mapped_word(words + 1), load_mapped_word(words + 2), load_mapped_word(words + 3) };
}
inline uint64_t load_acquire_system(const uint64_t *address) {
  let_others_come();
  return __atomic_load_n(address, __ATOMIC_ACQUIRE);
}

inline int32_t load_early(const int32_t *address) { return *address; }
inline uint64_t load_early(const uint64_t *address) { return *address; }
inline int4 load_early(const int4 *address) { return *address; }
inline void prefetch(const void *) {}

inline void store_release_system(uint64_t *address, uint64_t value) { __atomic_store_n(address, value, __ATOMIC_RELEASE); }
inline void store_release_device(int32_t *address, int32_t value) {
  __atomic_store_n(address, value, __ATOMIC_RELEASE);
  let_others_come();
}
inline int32_t load_acquire_device(const int32_t *address) {
  let_others_come();
  return __atomic_load_n(address, __ATOMIC_ACQUIRE);
}

inline int64_t device_time() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

} // namespace cgr
#endif

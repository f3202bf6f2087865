/* Loads and stores that are not plain. Mapped host memory: loads are relaxed at system scope, so neither L1 nor the read-only
 * path can answer them with what an earlier step saw; one release at system scope makes results visible to the host. Device
 * memory: loads that keep their place in the program, and what orders the blocks of one launch, at device scope. */
#ifndef CGR_DEVICES_CUDA_ACCESS_CUH
#define CGR_DEVICES_CUDA_ACCESS_CUH

#include <stdint.h>

namespace cgr {

__device__ __forceinline__ int4 load_mapped(const void *address) {
  int4 v;
  asm volatile("ld.relaxed.sys.global.v4.s32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(__cvta_generic_to_global(address)));
  return v;
}

__device__ __forceinline__ int32_t load_mapped_word(const int32_t *address) {
  int32_t v;
  asm volatile("ld.relaxed.sys.global.s32 %0, [%1];" : "=r"(v) : "l"(__cvta_generic_to_global(address)));
  return v;
}

__device__ __forceinline__ uint64_t load_acquire_system(const uint64_t *address) {
  uint64_t v;
  asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(v) : "l"(__cvta_generic_to_global(address)) : "memory");
  return v;
}

/* Loads of device memory that keep their place in the program: relaxed ones, which the compiler does not move behind the
 * condition under which their values are used. Plain loads would be moved, and make a round trip each. */
__device__ __forceinline__ int32_t load_early(const int32_t *address) {
  int32_t v;
  asm volatile("ld.relaxed.gpu.global.s32 %0, [%1];" : "=r"(v) : "l"(__cvta_generic_to_global(address)) : "memory");
  return v;
}

__device__ __forceinline__ uint64_t load_early(const uint64_t *address) {
  uint64_t v;
  asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(v) : "l"(__cvta_generic_to_global(address)) : "memory");
  return v;
}

__device__ __forceinline__ int4 load_early(const int4 *address) {
  int4 v;
  asm volatile("ld.relaxed.gpu.global.v4.s32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(__cvta_generic_to_global(address))
               : "memory");
  return v;
}

/* Brings a cache line of device memory into L2. */
__device__ __forceinline__ void prefetch(const void *address) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(__cvta_generic_to_global(address)));
}

__device__ __forceinline__ void store_release_system(uint64_t *address, uint64_t value) {
  asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(__cvta_generic_to_global(address)), "l"(value) : "memory");
}

__device__ __forceinline__ void store_release_device(int32_t *address, int32_t value) {
  asm volatile("st.release.gpu.global.s32 [%0], %1;" ::"l"(__cvta_generic_to_global(address)), "r"(value) : "memory");
}

__device__ __forceinline__ int32_t load_acquire_device(const int32_t *address) {
  int32_t v;
  asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(v) : "l"(__cvta_generic_to_global(address)) : "memory");
  return v;
}

/* Nanoseconds of the clock that all SMs share. */
__device__ __forceinline__ int64_t device_time() {
  int64_t now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now)::"memory");
  return now;
}

} // namespace cgr
#endif

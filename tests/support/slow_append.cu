// The kernel of slow_append.h: one block.
#include <cuda_runtime.h>

#include <cstdint>

#include "tests/support/slow_append.h"

namespace {

constexpr int kThreads = 512;
constexpr uint64_t kDelay = 1000000; // ns

__device__ uint64_t Now() {
  uint64_t now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
}

__device__ void CopyToken(const cgr__append_args &a, const cgr_view &from, const cgr_kv_view &to, int32_t dim, int32_t token,
                          int64_t slot) {
  const uint16_t *source = static_cast<const uint16_t *>(from.data) + token * from.stride_token;
  uint16_t *target =
      static_cast<uint16_t *>(to.base) + slot / a.page_size * to.stride_page + slot % a.page_size * to.stride_token;
  for (int32_t i = static_cast<int32_t>(threadIdx.x); i < a.num_kv_heads * dim; i += kThreads)
    target[i / dim * to.stride_head + i % dim] = source[i / dim * from.stride_head + i % dim];
}

__global__ void AppendSlowly(cgr__append_args a) {
#if __CUDA_ARCH__ >= 900
  cudaTriggerProgrammaticLaunchCompletion();
#endif
  const uint64_t begin = Now();
  while (Now() - begin < kDelay) {
  }
  for (int32_t token = 0; token < a.num_tokens; token++) {
    const int64_t slot = a.slot_mapping[token];
    if (slot < 0 || slot / a.page_size >= a.num_pages)
      continue;
    CopyToken(a, a.k, a.k_cache, a.head_dim, token, slot);
    CopyToken(a, a.v, a.v_cache, a.head_dim_v, token, slot);
  }
}

} // namespace

extern "C" int test_append_slowly(const void *args, cudaStream_t stream) {
  AppendSlowly<<<1, kThreads, 0, stream>>>(*static_cast<const cgr__append_args *>(args));
  return cudaGetLastError();
}

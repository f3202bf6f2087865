/* Fingerprints of steps, and their comparison (kernels/fingerprint.h). One block each. */
#include "devices/cuda/launch.cuh"
#include "kernels/cuda/guard.cuh"
#include "kernels/cuda/launchers.h"
#include "kernels/fingerprint.h"

namespace cgr {
namespace {

constexpr int kThreads = 256, kRankThreads = CGR_MAX_RANKS;

__global__ void __launch_bounds__(kThreads) fingerprint_kernel(const __grid_constant__ cgr__fingerprint_args a) {
  __shared__ unsigned long long inputs;
  const int32_t num_tokens = a.inputs ? a.counts[CGR_COUNT_TOKENS] : 0;
  if (threadIdx.x == 0)
    inputs = a.inputs ? cgr__fingerprint_of_counts(a.counts[CGR_COUNT_REQUESTS], num_tokens) : 0;
  __syncthreads();
  uint64_t sum = 0;
  for (int32_t i = (int32_t)threadIdx.x; i < num_tokens; i += kThreads)
    sum += cgr__fingerprint_of_token(i, a.input_ids[i], a.positions[i]);
  if ((int32_t)threadIdx.x < num_tokens)
    atomicAdd(&inputs, (unsigned long long)sum);
  __syncthreads();
  if (threadIdx.x != 0)
    return;
  a.out->part[CGR_FINGERPRINT_KEY] = a.key;
  a.out->part[CGR_FINGERPRINT_CONFIG] = a.config;
  a.out->part[CGR_FINGERPRINT_SEQUENCE] = a.sequence ? (uint64_t)(uint32_t)*a.sequence : 0;
  a.out->part[CGR_FINGERPRINT_INPUTS] = inputs;
}

/* A thread for each rank. */
__global__ void __launch_bounds__(kRankThreads)
    compare_fingerprints_kernel(const __grid_constant__ cgr__compare_fingerprints_args a) {
  __shared__ unsigned long long ranks;
  __shared__ int32_t parts[kRankThreads];
  const int32_t r = (int32_t)threadIdx.x;
  if (r == 0)
    ranks = 0;
  __syncthreads();
  parts[r] = r < a.num_ranks ? cgr__fingerprint_difference(&a.all[r], &a.all[a.rank]) : CGR__FINGERPRINT_PARTS;
  if (parts[r] != CGR__FINGERPRINT_PARTS)
    atomicOr(&ranks, 1ull << r);
  __syncthreads();
  if (r != 0 || ranks == 0)
    return;
  int32_t first = 0;
  while ((ranks >> first & 1) == 0)
    first++;
  claim_error(&a.state->error, CGR_GUARD_RANK, first, parts[first], (int64_t)ranks);
}

} // namespace
} // namespace cgr

extern "C" int cgr__cuda_fingerprint(const void *args, cudaStream_t stream) {
  return cgr::launch(cgr::fingerprint_kernel, args, dim3(1), dim3(cgr::kThreads), 0, stream);
}

extern "C" int cgr__cuda_fingerprint_preload(void) { return cgr::preload(cgr::fingerprint_kernel, 0); }

extern "C" int cgr__cuda_compare_fingerprints(const void *args, cudaStream_t stream) {
  const cgr__compare_fingerprints_args *a = static_cast<const cgr__compare_fingerprints_args *>(args);
  if (a->num_ranks < 1 || a->num_ranks > CGR_MAX_RANKS || a->rank < 0 || a->rank >= a->num_ranks)
    return (int)cudaErrorInvalidValue;
  return cgr::launch(cgr::compare_fingerprints_kernel, args, dim3(1), dim3(cgr::kRankThreads), 0, stream);
}

extern "C" int cgr__cuda_compare_fingerprints_preload(void) { return cgr::preload(cgr::compare_fingerprints_kernel, 0); }

// The kernels of format_kernels.h for CUDA, as an engine launches its own: grids follow from the key.
#include <cuda_runtime.h>

#include "tests/support/format_arithmetic.h"

namespace {

constexpr int kThreads = 128;

__global__ void Clear(cgr_test::FormatAttention a) {
  cgr_test::ClearToken(a, static_cast<int32_t>(blockIdx.x), static_cast<int32_t>(threadIdx.x), kThreads);
}

__global__ void Attend(cgr_test::FormatAttention a) {
  cgr_test::RunCta(a, static_cast<int32_t>(blockIdx.x), static_cast<int32_t>(threadIdx.x), kThreads);
}

__global__ void Merge(cgr_test::FormatAttention a) {
  cgr_test::RunMerge(a, static_cast<int32_t>(blockIdx.x), static_cast<int32_t>(threadIdx.x), kThreads);
}

} // namespace

extern "C" int test_format_attention(const cgr_test::FormatAttention *args, cudaStream_t stream) {
  Clear<<<static_cast<unsigned>(args->num_tokens), kThreads, 0, stream>>>(*args);
  Attend<<<static_cast<unsigned>(args->num_ctas), kThreads, 0, stream>>>(*args);
  Merge<<<static_cast<unsigned>(cgr_test::NumMerges(*args)), kThreads, 0, stream>>>(*args);
  return cudaGetLastError();
}

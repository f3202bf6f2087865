// The model of guess_kernels.h for CUDA, as an engine launches its own kernels: one block, a thread per token and then per
// request.
#include <cuda_runtime.h>

#include "tests/support/guess_arithmetic.h"

namespace {

constexpr int kThreads = 128;

__global__ void RunModel(cgr_test::guesses::ModelArgs args) {
  const int32_t thread = static_cast<int32_t>(threadIdx.x);
  for (int32_t t = thread; t < args.num_tokens; t += kThreads)
    cgr_test::guesses::AppendToken(args, t);
  __syncthreads();
  for (int32_t i = thread; i < args.num_requests; i += kThreads)
    cgr_test::guesses::Sample(args, i);
}

} // namespace

extern "C" int test_guess_model(const cgr_test::guesses::ModelArgs *args, cudaStream_t stream) {
  RunModel<<<1, kThreads, 0, stream>>>(*args);
  return cudaGetLastError();
}

// The kernels of row_kernels.h for CUDA, as an engine launches its own: a block per token, a thread per request.
#include <cuda_runtime.h>

#include "tests/support/row_arithmetic.h"

namespace {

constexpr int kThreads = 128;

__global__ void MakeRows(cgr_test::RowInputs args) {
  cgr_test::MakeRow(args, static_cast<int32_t>(blockIdx.x), static_cast<int32_t>(threadIdx.x), kThreads);
}

__global__ void SampleRows(cgr_test::RowSampler args) {
  const int32_t request = static_cast<int32_t>(blockIdx.x * kThreads + threadIdx.x);
  if (request < args.num_requests)
    args.next_tokens[request] = cgr_test::SampleRow(args, request);
}

} // namespace

extern "C" {

int test_make_rows(const cgr_test::RowInputs *args, cudaStream_t stream) {
  if (args->num_tokens == 0)
    return cudaSuccess;
  MakeRows<<<static_cast<unsigned>(args->num_tokens), kThreads, 0, stream>>>(*args);
  return cudaGetLastError();
}

int test_sample_rows(const cgr_test::RowSampler *args, cudaStream_t stream) {
  if (args->num_requests == 0)
    return cudaSuccess;
  SampleRows<<<static_cast<unsigned>((args->num_requests + kThreads - 1) / kThreads), kThreads, 0, stream>>>(*args);
  return cudaGetLastError();
}

} // extern "C"

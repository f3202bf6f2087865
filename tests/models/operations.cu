// The kernel of operations.h for CUDA, as an engine launches its own: a block per row.
#include <cuda_runtime.h>

#include "tests/models/arithmetic.h"

namespace {

constexpr int kThreads = 128;

__global__ void Operate(cgr_test::models::Operation operation) {
  cgr_test::models::OperateOnRow(operation, static_cast<int32_t>(blockIdx.x), static_cast<int32_t>(threadIdx.x), kThreads);
}

} // namespace

extern "C" int test_model_operation(const cgr_test::models::Operation *operation, cudaStream_t stream) {
  if (operation->rows == 0)
    return cudaSuccess;
  Operate<<<static_cast<unsigned>(operation->rows), kThreads, 0, stream>>>(*operation);
  return cudaGetLastError();
}

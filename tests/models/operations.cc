#include "tests/models/arithmetic.h"

namespace cgr_test {
namespace models {

namespace {

void OperateOnHost(const void *raw) {
  const Operation &operation = *static_cast<const Operation *>(raw);
  for (int32_t t = 0; t < operation.rows; t++)
    OperateOnRow(operation, t, 0, 1);
}

// A build without a toolkit has no kernels and opens no GPU.
#if CGR_TEST_CUDA
int Launch(const Operation *operation, cudaStream_t stream) { return test_model_operation(operation, stream); }
#else
int Launch(const Operation *, cudaStream_t) { return -1; }
#endif

} // namespace

cgr_status Enqueue(cgr_device *device, bool on_cuda, const Operation &operation, cudaStream_t stream) {
  if (on_cuda)
    return Launch(&operation, stream) == 0 ? CGR_OK : CGR_ERROR_CALLBACK;
  return cgr_launch_host(device, OperateOnHost, &operation, sizeof operation, stream);
}

} // namespace models
} // namespace cgr_test

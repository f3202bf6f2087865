#include "tests/support/guess_arithmetic.h"

namespace cgr_test {
namespace guesses {

namespace {

void RunModelOnHost(const void *raw) {
  const ModelArgs &args = *static_cast<const ModelArgs *>(raw);
  for (int32_t t = 0; t < args.num_tokens; t++)
    AppendToken(args, t);
  for (int32_t i = 0; i < args.num_requests; i++)
    Sample(args, i);
}

} // namespace

cgr_status EnqueueModel(cgr_device *device, bool on_cuda, const ModelArgs &args, cudaStream_t stream) {
#if CGR_TEST_CUDA
  if (on_cuda)
    return test_guess_model(&args, stream) == 0 ? CGR_OK : CGR_ERROR_CALLBACK;
#else
  (void)on_cuda; // a build without a toolkit opens no GPU
#endif
  return cgr_launch_host(device, RunModelOnHost, &args, sizeof args, stream);
}

} // namespace guesses
} // namespace cgr_test

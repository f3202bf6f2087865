#include "tests/support/format_arithmetic.h"

namespace cgr_test {

namespace {

void RunOnHost(const void *raw) {
  const FormatAttention &a = *static_cast<const FormatAttention *>(raw);
  for (int32_t t = 0; t < a.num_tokens; t++)
    ClearToken(a, t, 0, 1);
  for (int32_t cta = 0; cta < a.num_ctas; cta++)
    RunCta(a, cta, 0, 1);
  for (int32_t entry = 0; entry < NumMerges(a); entry++)
    RunMerge(a, entry, 0, 1);
}

} // namespace

cgr_status EnqueueFormat(cgr_device *device, bool on_cuda, const FormatAttention &args, cudaStream_t stream) {
  static_assert(sizeof args <= 4096, "a host function takes no more");
  if (!on_cuda)
    return cgr_launch_host(device, RunOnHost, &args, sizeof args, stream);
#if CGR_TEST_CUDA
  return test_format_attention(&args, stream) == 0 ? CGR_OK : CGR_ERROR_CALLBACK;
#else
  return CGR_ERROR_UNSUPPORTED; // a build without a toolkit opens no GPU
#endif
}

} // namespace cgr_test

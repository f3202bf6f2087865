#include "tests/support/row_arithmetic.h"

namespace cgr_test {

namespace {

void MakeRowsOnHost(const void *raw) {
  const RowInputs &args = *static_cast<const RowInputs *>(raw);
  for (int32_t t = 0; t < args.num_tokens; t++)
    MakeRow(args, t, 0, 1);
}

void SampleRowsOnHost(const void *raw) {
  const RowSampler &args = *static_cast<const RowSampler *>(raw);
  for (int32_t i = 0; i < args.num_requests; i++)
    args.next_tokens[i] = SampleRow(args, i);
}

template <class Args> using Launcher = int (*)(const Args *, cudaStream_t);

// A build without a toolkit has no kernels and opens no GPU.
#if CGR_TEST_CUDA
const Launcher<RowInputs> make_rows = test_make_rows;
const Launcher<RowSampler> sample_rows = test_sample_rows;
#else
const Launcher<RowInputs> make_rows = nullptr;
const Launcher<RowSampler> sample_rows = nullptr;
#endif

template <class Args>
cgr_status Enqueue(cgr_device *device, Launcher<Args> launch, cgr_host_function function, const Args &args, cudaStream_t stream) {
  if (launch == nullptr)
    return cgr_launch_host(device, function, &args, sizeof args, stream);
  return launch(&args, stream) == 0 ? CGR_OK : CGR_ERROR_CALLBACK;
}

} // namespace

cgr_status EnqueueInputs(cgr_device *device, bool on_cuda, const RowInputs &args, cudaStream_t stream) {
  return Enqueue(device, on_cuda ? make_rows : nullptr, MakeRowsOnHost, args, stream);
}

cgr_status EnqueueSampler(cgr_device *device, bool on_cuda, const RowSampler &args, cudaStream_t stream) {
  return Enqueue(device, on_cuda ? sample_rows : nullptr, SampleRowsOnHost, args, stream);
}

} // namespace cgr_test

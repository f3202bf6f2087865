#include "base/status.h"
#include "interop/fa3/host.h"
#include "interop/formats.h"
#include "interop/limits.h"

cgr_status cgr_fa3_enqueue(cgr_device *device, const cgr_fa3_input *input, void *metadata, size_t bytes, cudaStream_t stream) {
  const char *function = "cgr_fa3_enqueue";
  cgr_fa3_input in;
  cgr_fa3_sizes sizes;
  cgr__fa3_args args;
  CGR__TRY(cgr__check_enqueue(function, device, stream));
  CGR__TRY(cgr__fa3_read_key(function, input, &in, &sizes, &args.c));
  CGR__TRY(cgr__fa3_check_memory(function, &in, &sizes, metadata, bytes));
  if (in.num_splits == 0)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT,
                     "%s: num_splits is 0, expected 1 .. %d: a graph keeps the number that the heuristic gave its capture, "
                     "now %d (cgr_fa3_size)",
                     function, CGR__FA3_MAX_SPLITS, sizes.num_splits);
  args.query_start_loc = in.query_start_loc;
  args.seq_lens = in.seq_lens;
  args.live_requests = in.live_requests;
  args.metadata = metadata;
  return cgr__enqueue_kernel(function, device, &cgr__kernel_fa3, &args, stream);
}

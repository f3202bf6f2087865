/* cgr_fa3_enqueue: validation, then one launch. */
#include "base/status.h"
#include "devices/error.h"
#include "kernels/families/fa3.h"
#include "planners/families/fa3_host.h"

#define FUNCTION "cgr_fa3_enqueue"

static cgr_status check_device(const cgr_device *device, cudaStream_t stream) {
  CGR__REQUIRE(device, FUNCTION);
  if (device->magic != CGR__DEVICE_MAGIC)
    return cgr__fail(CGR_ERROR_INVALID_STRUCT, FUNCTION ": device has magic 0x%08x, expected 0x%08x: it is not open",
                     (unsigned)device->magic, (unsigned)CGR__DEVICE_MAGIC);
  if (cgr__is_default_stream(stream))
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT,
                     FUNCTION ": stream is %s, expected one of cgr_stream_create, or another that is not a default stream",
                     stream ? "CUDA's default one" : "NULL");
  return CGR_OK;
}

/* A kernel is not loaded while its stream captures. */
static int launch(cgr_device *device, const cgr__fa3_args *args, cudaStream_t stream) {
  int capturing = 0, error = device->ops->capture_status(device, stream, &capturing);
  if (!error && !capturing)
    error = device->ops->preload(device, &cgr__kernel_fa3);
  return error ? error : device->ops->launch(device, &cgr__kernel_fa3, args, stream);
}

cgr_status cgr_fa3_enqueue(cgr_device *device, const cgr_fa3_input *input, void *metadata, size_t bytes, cudaStream_t stream) {
  cgr_fa3_input in;
  cgr_fa3_sizes sizes;
  cgr__fa3_args args;
  CGR__TRY(check_device(device, stream));
  CGR__TRY(cgr__fa3_key(FUNCTION, input, &in, &sizes, &args.c));
  CGR__TRY(cgr__fa3_check_memory(FUNCTION, &in, &sizes, metadata, bytes));
  if (in.num_splits == 0)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT,
                     FUNCTION
                     ": num_splits is 0, expected 1 .. 255: a graph keeps the number that the heuristic gave its capture, "
                     "now %d (cgr_fa3_size)",
                     sizes.num_splits);
  args.query_start_loc = in.query_start_loc;
  args.seq_lens = in.seq_lens;
  args.live_requests = in.live_requests;
  args.metadata = metadata;
  return cgr__device_fail(device, launch(device, &args, stream), FUNCTION);
}

/* The public functions of FlashInfer's plans on a device. */
#include "kernels/families/flashinfer.h"

#include "base/status.h"
#include "devices/error.h"
#include "planners/families/flashinfer_host.h"

static cgr_status check_device(const char *function, const cgr_device *device, cudaStream_t stream) {
  CGR__REQUIRE(device, function);
  if (device->magic != CGR__DEVICE_MAGIC)
    return cgr__fail(CGR_ERROR_INVALID_STRUCT, "%s: device has magic 0x%08x, expected 0x%08x: it is not open", function,
                     (unsigned)device->magic, (unsigned)CGR__DEVICE_MAGIC);
  if (cgr__is_default_stream(stream))
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT,
                     "%s: stream is %s, expected one of cgr_stream_create, or another that is not a default stream", function,
                     stream ? "CUDA's default one" : "NULL");
  return CGR_OK;
}

static cgr_status check_graph(const char *function, const cgr__flashinfer_key *key, bool open) {
  if (!key->graph)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "%s: graph is 0, expected 1: without it sizes follow from the lengths",
                     function);
  if (open)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT,
                     "%s: force_split_kv is 0, expected 1 with fixed_split_size: whether a request is split follows from the "
                     "lengths",
                     function);
  return CGR_OK;
}

/* Outside of captures the kernel is loaded first, which costs nothing when it is there. */
static cgr_status launch(const char *function, cgr_device *device, const cgr__flashinfer_args *args, cudaStream_t stream) {
  int capturing = 0, error = device->ops->capture_status(device, stream, &capturing);
  if (error == CGR__DEVICE_OK && !capturing)
    error = device->ops->preload(device, &cgr__kernel_flashinfer);
  if (error == CGR__DEVICE_OK)
    error = device->ops->launch(device, &cgr__kernel_flashinfer, args, stream);
  return cgr__device_fail(device, error, function);
}

static cgr_status enqueue(const char *function, cgr_device *device, bool open, uint64_t float_bytes, size_t int_bytes,
                          const cgr__flashinfer_args *args, cudaStream_t stream) {
  CGR__TRY(check_graph(function, &args->key, open));
  if (!args->kv_indptr)
    return cgr__fail(CGR_ERROR_NULL_POINTER, "%s: kv_indptr is NULL, expected %d numbers", function, args->key.num_requests + 1);
  const cgr_flashinfer_plan plan = cgr__flashinfer_describe(&args->key);
  CGR__TRY(cgr__flashinfer_check_float(function, &plan, float_bytes));
  CGR__TRY(cgr__flashinfer_check_int(function, &plan, args->int_workspace, int_bytes));
  return launch(function, device, args, stream);
}

cgr_status cgr_flashinfer_decode_enqueue(cgr_device *device, const cgr_flashinfer_decode_input *input, void *int_workspace,
                                         size_t int_bytes, cudaStream_t stream) {
  const char *function = "cgr_flashinfer_decode_enqueue";
  cgr_flashinfer_decode_input in;
  cgr__flashinfer_args args = { .int_workspace = (unsigned char *)int_workspace };
  bool open;
  CGR__TRY(check_device(function, device, stream));
  CGR__TRY(cgr__flashinfer_read_decode(function, input, &in, &args.key, &open));
  args.kv_indptr = in.kv_indptr;
  args.live_requests = in.live_requests;
  args.status = in.status;
  return enqueue(function, device, open, in.float_workspace_bytes, int_bytes, &args, stream);
}

cgr_status cgr_flashinfer_prefill_enqueue(cgr_device *device, const cgr_flashinfer_prefill_input *input, void *int_workspace,
                                          size_t int_bytes, cudaStream_t stream) {
  const char *function = "cgr_flashinfer_prefill_enqueue";
  cgr_flashinfer_prefill_input in;
  cgr__flashinfer_args args = { .int_workspace = (unsigned char *)int_workspace };
  bool open;
  CGR__TRY(check_device(function, device, stream));
  CGR__TRY(cgr__flashinfer_read_prefill(function, input, &in, &args.key, &open));
  args.qo_indptr = in.qo_indptr;
  args.kv_indptr = in.kv_indptr;
  args.live_requests = in.live_requests;
  args.status = in.status;
  return enqueue(function, device, open, in.float_workspace_bytes, int_bytes, &args, stream);
}

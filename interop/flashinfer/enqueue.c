#include "base/status.h"
#include "interop/flashinfer/host.h"
#include "interop/formats.h"

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

static cgr_status enqueue_plan(const char *function, cgr_device *device, bool open, uint64_t float_bytes, size_t int_bytes,
                               const cgr__flashinfer_args *args, cudaStream_t stream) {
  CGR__TRY(check_graph(function, &args->key, open));
  if (!args->kv_indptr)
    return cgr__fail(CGR_ERROR_NULL_POINTER, "%s: kv_indptr is NULL, expected %d numbers", function, args->key.num_requests + 1);
  const cgr_flashinfer_plan plan = cgr__flashinfer_describe(&args->key);
  CGR__TRY(cgr__flashinfer_check_float(function, &plan, float_bytes));
  CGR__TRY(cgr__flashinfer_check_memory(function, &plan, args->int_workspace, int_bytes));
  return cgr__enqueue_kernel(function, device, &cgr__kernel_flashinfer, args, stream);
}

cgr_status cgr_flashinfer_decode_enqueue(cgr_device *device, const cgr_flashinfer_decode_input *input, void *int_workspace,
                                         size_t int_bytes, cudaStream_t stream) {
  const char *function = "cgr_flashinfer_decode_enqueue";
  cgr_flashinfer_decode_input in;
  cgr__flashinfer_args args = { .int_workspace = (unsigned char *)int_workspace };
  bool open;
  CGR__TRY(cgr__check_enqueue(function, device, stream));
  CGR__TRY(cgr__flashinfer_read_decode_key(function, input, &in, &args.key, &open));
  args.kv_indptr = in.kv_indptr;
  args.live_requests = in.live_requests;
  args.status = in.status;
  return enqueue_plan(function, device, open, in.float_workspace_bytes, int_bytes, &args, stream);
}

cgr_status cgr_flashinfer_prefill_enqueue(cgr_device *device, const cgr_flashinfer_prefill_input *input, void *int_workspace,
                                          size_t int_bytes, cudaStream_t stream) {
  const char *function = "cgr_flashinfer_prefill_enqueue";
  cgr_flashinfer_prefill_input in;
  cgr__flashinfer_args args = { .int_workspace = (unsigned char *)int_workspace };
  bool open;
  CGR__TRY(cgr__check_enqueue(function, device, stream));
  CGR__TRY(cgr__flashinfer_read_prefill_key(function, input, &in, &args.key, &open));
  args.qo_indptr = in.qo_indptr;
  args.kv_indptr = in.kv_indptr;
  args.live_requests = in.live_requests;
  args.status = in.status;
  return enqueue_plan(function, device, open, in.float_workspace_bytes, int_bytes, &args, stream);
}

cgr_status cgr_flashinfer_cascade_enqueue(cgr_device *device, const cgr_flashinfer_cascade *cascade, cudaStream_t stream) {
  const char *function = "cgr_flashinfer_cascade_enqueue";
  cgr_flashinfer_cascade c;
  CGR__TRY(cgr__check_enqueue(function, device, stream));
  CGR__TRY(cgr__cascade_read(function, cascade, &c));
  if (c.kv_indices && c.max_indices < 1)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "%s: max_indices is %d, expected 1 or more with kv_indices", function,
                     c.max_indices);
  return cgr__enqueue_kernel(function, device, &cgr__kernel_cascade, &c, stream);
}

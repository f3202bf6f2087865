#include "base/status.h"
#include "interop/flashmla/host.h"
#include "interop/formats.h"

cgr_status cgr_flashmla_enqueue(cgr_device *device, const cgr_flashmla_input *input, void *metadata, size_t bytes,
                                cudaStream_t stream) {
  const char *function = "cgr_flashmla_enqueue";
  cgr__flashmla_args args = { .metadata = metadata };
  CGR__TRY(cgr__check_enqueue(function, device, stream));
  CGR__TRY(cgr__flashmla_read_key(function, input, &args.c, &args.lens));
  CGR__TRY(cgr__flashmla_check_memory(function, &args.c, &args.lens, metadata, bytes));
  return cgr__enqueue_kernel(function, device, &cgr__kernel_flashmla, &args, stream);
}

#include "base/status.h"
#include "kernels/families/families.h"
#include "planners/families/flashmla_host.h"

cgr_status cgr_flashmla_enqueue(cgr_device *device, const cgr_flashmla_input *input, void *metadata, size_t bytes,
                                cudaStream_t stream) {
  cgr__flashmla_args args = { .metadata = metadata };
  CGR__TRY(cgr__check_family_device("cgr_flashmla_enqueue", device, stream));
  CGR__TRY(cgr__flashmla_read("cgr_flashmla_enqueue", input, &args.c, &args.lens));
  CGR__TRY(cgr__flashmla_check_place("cgr_flashmla_enqueue", &args.c, &args.lens, metadata, bytes));
  return cgr__enqueue_family("cgr_flashmla_enqueue", device, &cgr__kernel_flashmla, &args, stream);
}

/* Launcher of the attention kernels: chooses the instance by head_dim and dtype. What there are instances for is said in
 * kernels/variants.c. */
#include "kernels/cuda/launchers.h"
#include "kernels/cuda/sm80/attention/traits.h"

extern "C" int cgr__cuda_attention(const void *args, cudaStream_t stream) {
  const cgr__attention_args *a = static_cast<const cgr__attention_args *>(args);
  dim3 grid((unsigned)a->plan_class.num_parts);
  if (a->q.dtype != CGR_DTYPE_BF16 && a->q.dtype != CGR_DTYPE_FP16)
    return (int)cudaErrorNotSupported;
  switch (a->head_dim) {
  case 64:
    return cgr::attention_launch_d64(a, grid, stream);
  case 128:
    return cgr::attention_launch_d128(a, grid, stream);
  default:
    return (int)cudaErrorNotSupported;
  }
}

extern "C" int cgr__cuda_attention_preload(void) {
  int error = cgr::attention_preload_d64();
  return error ? error : cgr::attention_preload_d128();
}

#include "own_attention.h"

static void run(const void *args) {
  const own_attention *attention = args;
  for (int32_t token = 0; token < attention->num_tokens; token++)
    own_attend(attention, token);
}

cgr_status own_attention_enqueue(const own_attention *attention, cudaStream_t stream) {
#ifdef MINIMAL_CUDA
  if (attention->kind == CGR_DEVICE_KIND_CUDA)
    return own_attention_cuda(attention, stream) == 0 ? CGR_OK : CGR_ERROR_DEVICE;
#endif
  return cgr_launch_host(attention->device, run, attention, sizeof *attention, stream);
}

/* The operations of ops.h for a GPU. */
#include <stdlib.h>

#include "examples/llama/cuda/bare.h"
#include "examples/llama/cuda/gemm.h"
#include "examples/llama/cuda/kernels.h"
#include "examples/llama/cuda/sums.h"
#include "examples/llama/engine.h"

typedef struct cuda_ops {
  llama_ops ops; /* first */
  int ordinal;
  llama_cuda_gemm *gemm;
} cuda_ops;

#define ENQUEUE(operation)                                                                                           \
  static cgr_status enqueue_##operation(llama_ops *ops, const llama_##operation##_args *args, cudaStream_t stream) { \
    (void)ops;                                                                                                       \
    return llama_cuda_##operation(args, stream) == 0 ? CGR_OK : CGR_ERROR_DEVICE;                                    \
  }
ENQUEUE(embed)
ENQUEUE(rmsnorm)
ENQUEUE(rope)
ENQUEUE(silu)
ENQUEUE(gather)
ENQUEUE(sample)
ENQUEUE(places)
ENQUEUE(verify)
ENQUEUE(pick)
ENQUEUE(fill)

static cgr_status enqueue_gemm(llama_ops *ops, const llama_gemm_args *args, cudaStream_t stream) {
  return llama_cuda_gemm_run(((cuda_ops *)ops)->gemm, args, stream);
}

static cgr_status bare_launch(llama_ops *ops, int32_t nodes, int32_t launches, float *microseconds, cudaStream_t stream) {
  int ordinal = ((cuda_ops *)ops)->ordinal;
  return llama_cuda_bare_launch(ordinal, nodes, launches, microseconds, stream) == cudaSuccess ? CGR_OK : CGR_ERROR_DEVICE;
}

static cgr_status sums(llama_ops *ops, const llama_team *team, void *data, uint64_t count, int32_t number, int32_t launches,
                       float *microseconds, cudaStream_t stream) {
  (void)ops;
  return llama_cuda_sums(team, data, count, number, launches, microseconds, stream) == cudaSuccess ? CGR_OK : CGR_ERROR_DEVICE;
}

static void close_cuda(llama_ops *ops) {
  llama_cuda_gemm_destroy(((cuda_ops *)ops)->gemm);
  free(ops);
}

int llama_ops_cuda(cgr_device *device, int32_t max_rows, llama_ops **out) {
  cuda_ops *cuda = calloc(1, sizeof(*cuda));
  if (!cuda)
    return llama_fail("no memory");
  cuda->ops = (llama_ops){ .device = device,
                           .embed = enqueue_embed,
                           .rmsnorm = enqueue_rmsnorm,
                           .rope = enqueue_rope,
                           .silu = enqueue_silu,
                           .gather = enqueue_gather,
                           .sample = enqueue_sample,
                           .places = enqueue_places,
                           .verify = enqueue_verify,
                           .pick = enqueue_pick,
                           .gemm = enqueue_gemm,
                           .bare_launch = bare_launch,
                           .sums = sums,
                           .fill = enqueue_fill,
                           .close = close_cuda };
  cgr_device_info info = CGR_DEVICE_INFO_INIT;
  int known = llama_cgr(cgr_device_get_info(device, &info), "cgr_device_get_info");
  cuda->ordinal = info.ordinal;
  /* cuBLASLt and NCCL use the thread's device, and so do the kernels' launches. */
  if (known == 0 && cudaSetDevice(info.ordinal) != cudaSuccess)
    known = llama_fail("CUDA device %d cannot be made the thread's own", info.ordinal);
  if (known != 0 || llama_cuda_gemm_create(device, max_rows, &cuda->gemm) != 0) {
    free(cuda);
    return -1;
  }
  cuda->ops.workspace = llama_cuda_gemm_workspace(cuda->gemm, &cuda->ops.workspace_bytes);
  *out = &cuda->ops;
  return 0;
}

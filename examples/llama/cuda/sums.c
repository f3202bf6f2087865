#include "examples/llama/cuda/sums.h"

#define WARM 4
enum { NCCL_BFLOAT16 = 9, NCCL_SUM = 0 }; /* of nccl.h */

#define TRY_CUDA(call)          \
  do {                          \
    cudaError_t error = (call); \
    if (error != cudaSuccess)   \
      return error;             \
  } while (0)

static cudaError_t capture_sums(const llama_team *team, void *data, uint64_t count, int32_t sums, cudaStream_t stream,
                                cudaGraphExec_t *exec) {
  const cgr_nccl_functions *nccl = &team->ranks->functions;
  cgr_nccl_info info = CGR_NCCL_INFO_INIT;
  cudaGraph_t graph = NULL;
  if (cgr_nccl_get_info(team->nccl, &info) != CGR_OK)
    return cudaErrorUnknown;
  TRY_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  int enqueued = 0;
  for (int32_t i = 0; i < sums && enqueued == 0; i++)
    enqueued = nccl->all_reduce(data, data, count, NCCL_BFLOAT16, NCCL_SUM, info.comm, stream);
  cudaError_t error = cudaStreamEndCapture(stream, &graph);
  if (error == cudaSuccess)
    error = enqueued != 0 ? cudaErrorUnknown : cudaGraphInstantiate(exec, graph, 0);
  if (graph)
    cudaGraphDestroy(graph);
  return error;
}

static cudaError_t launch_all(cudaGraphExec_t exec, const cudaEvent_t times[2], int32_t sums, int32_t launches,
                              float *microseconds, cudaStream_t stream) {
  for (int32_t i = -WARM; i < launches; i++) {
    float ms = 0.0f;
    TRY_CUDA(cudaEventRecord(times[0], stream));
    TRY_CUDA(cudaGraphLaunch(exec, stream));
    TRY_CUDA(cudaEventRecord(times[1], stream));
    TRY_CUDA(cudaStreamSynchronize(stream));
    TRY_CUDA(cudaEventElapsedTime(&ms, times[0], times[1]));
    if (i >= 0)
      microseconds[i] = 1e3f * ms / (float)sums;
  }
  return cudaSuccess;
}

cudaError_t llama_cuda_sums(const llama_team *team, void *data, uint64_t count, int32_t sums, int32_t launches,
                            float *microseconds, cudaStream_t stream) {
  cudaGraphExec_t exec = NULL;
  cudaEvent_t times[2] = { NULL, NULL };
  cudaError_t error = capture_sums(team, data, count, sums, stream, &exec);
  for (int i = 0; i < 2 && error == cudaSuccess; i++)
    error = cudaEventCreate(&times[i]);
  if (error == cudaSuccess)
    error = launch_all(exec, times, sums, launches, microseconds, stream);
  for (int i = 0; i < 2; i++)
    if (times[i])
      cudaEventDestroy(times[i]);
  if (exec)
    cudaGraphExecDestroy(exec);
  return error;
}

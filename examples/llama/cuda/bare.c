#include "examples/llama/cuda/bare.h"

#include "examples/llama/cuda/kernels.h"
#include "examples/llama/meter.h"

#define WARM 4

#define TRY_CUDA(call)          \
  do {                          \
    cudaError_t error = (call); \
    if (error != cudaSuccess)   \
      return error;             \
  } while (0)

static cudaError_t capture_chain(int32_t nodes, cudaStream_t stream, cudaGraphExec_t *exec) {
  cudaGraph_t graph = NULL;
  int enqueued = 0;
  TRY_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  for (int32_t i = 0; i < nodes && enqueued == cudaSuccess; i++)
    enqueued = llama_cuda_empty(stream);
  cudaError_t error = cudaStreamEndCapture(stream, &graph);
  if (error == cudaSuccess)
    error = enqueued != cudaSuccess ? (cudaError_t)enqueued : cudaGraphInstantiate(exec, graph, 0);
  if (graph)
    cudaGraphDestroy(graph);
  return error;
}

/* One launch ahead of the device, as the steps are that this is compared with. */
static cudaError_t launch_all(cudaGraphExec_t exec, cudaEvent_t done[2], int32_t launches, float *microseconds,
                              cudaStream_t stream) {
  TRY_CUDA(cudaGraphUpload(exec, stream));
  for (int32_t i = -WARM; i < launches; i++) {
    double start = llama_now();
    TRY_CUDA(cudaGraphLaunch(exec, stream));
    double end = llama_now();
    TRY_CUDA(cudaEventRecord(done[i & 1], stream));
    if (i > -WARM)
      TRY_CUDA(cudaEventSynchronize(done[~i & 1]));
    if (i >= 0)
      microseconds[i] = (float)(1e6 * (end - start));
  }
  return cudaStreamSynchronize(stream);
}

cudaError_t llama_cuda_bare_launch(int device, int32_t nodes, int32_t launches, float *microseconds, cudaStream_t stream) {
  cudaGraphExec_t exec = NULL;
  cudaEvent_t done[2] = { NULL, NULL };
  int before = 0;
  TRY_CUDA(cudaGetDevice(&before));
  TRY_CUDA(cudaSetDevice(device));
  cudaError_t error = capture_chain(nodes, stream, &exec);
  for (int i = 0; i < 2 && error == cudaSuccess; i++)
    error = cudaEventCreateWithFlags(&done[i], cudaEventDisableTiming);
  if (error == cudaSuccess)
    error = launch_all(exec, done, launches, microseconds, stream);
  for (int i = 0; i < 2; i++)
    if (done[i])
      cudaEventDestroy(done[i]);
  if (exec)
    cudaGraphExecDestroy(exec);
  cudaSetDevice(before);
  return error;
}

/* Capture, in thread-local mode, and graphs. */
#include "devices/cuda/cuda_device.h"

int cgr__cuda_capture_begin(cgr_device *dev, cudaStream_t stream) {
  struct cuda_device *cuda = cgr__cuda_of(dev);
  if (cgr__cuda_is_dead(cuda))
    return cgr__cuda_dead(cuda);
  cudaError_t raw = cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal);
  int error = cgr__cuda_error(cuda, raw);
  return raw == cudaErrorIllegalState ? CGR__DEVICE_CAPTURE_ILLEGAL : error; /* it captures already */
}

/* A capture that failed must be ended all the same, but only once: so its status is asked for first. */
int cgr__cuda_capture_end(cgr_device *dev, cudaStream_t stream, cgr__graph **graph) {
  struct cuda_device *cuda = cgr__cuda_of(dev);
  enum cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  cudaGraph_t captured = NULL;
  *graph = NULL;
  if (cgr__cuda_is_dead(cuda)) { /* the thread must not be left in a capture */
    if (cudaStreamEndCapture(stream, &captured) == cudaSuccess && captured != NULL)
      (void)cudaGraphDestroy(captured);
    (void)cudaGetLastError();
    return cgr__cuda_dead(cuda);
  }
  cudaError_t raw = cudaStreamIsCapturing(stream, &status);
  if (raw == cudaSuccess && status == cudaStreamCaptureStatusNone)
    raw = cudaErrorIllegalState;
  else if (raw == cudaSuccess)
    raw = cudaStreamEndCapture(stream, &captured);
  /* CUDA gives no graph with an error; nor does it name the cause when it gives none. */
  if (raw == cudaSuccess && captured == NULL)
    raw = cudaErrorStreamCaptureInvalidated;
  int error = cgr__cuda_error(cuda, raw);
  if (raw == cudaErrorIllegalState)
    error = CGR__DEVICE_CAPTURE_INVALID;
  if (error == CGR__DEVICE_OK)
    *graph = (cgr__graph *)(void *)captured;
  else if (captured != NULL)
    (void)cudaGraphDestroy(captured);
  return error;
}

int cgr__cuda_capture_status(cgr_device *dev, cudaStream_t stream, int *capturing) {
  struct cuda_device *cuda = cgr__cuda_of(dev);
  enum cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  *capturing = 0;
  if (cgr__cuda_is_dead(cuda))
    return cgr__cuda_dead(cuda);
  int error = cgr__cuda_error(cuda, cudaStreamIsCapturing(stream, &status));
  *capturing = status != cudaStreamCaptureStatusNone; /* an invalidated capture still has to be ended */
  return error;
}

int cgr__cuda_graph_destroy(cgr_device *dev, cgr__graph *graph) {
  struct cuda_device *cuda = cgr__cuda_of(dev);
  if (graph == NULL)
    return cgr__cuda_invalid(cuda);
  int error = cgr__cuda_error(cuda, cudaGraphDestroy((cudaGraph_t)(void *)graph));
  return error == CGR__DEVICE_DEAD ? CGR__DEVICE_OK : error;
}

/* Instantiates and uploads, so that the first launch costs what every launch costs. */
static cudaError_t instantiate(struct cuda_device *cuda, cudaGraph_t graph, cudaGraphExec_t *exec, cgr__graph_info *info) {
  size_t num_nodes = 0, before = 0, after = 0, total;
  cudaError_t raw = cudaGraphGetNodes(graph, NULL, &num_nodes);
  if (raw == cudaSuccess)
    raw = cudaMemGetInfo(&before, &total);
  if (raw == cudaSuccess)
    raw = cudaGraphInstantiate(exec, graph, 0);
  if (raw != cudaSuccess) {
    *exec = NULL;
    return raw;
  }
  raw = cudaGraphUpload(*exec, cuda->internal);
  if (raw == cudaSuccess)
    raw = cudaStreamSynchronize(cuda->internal);
  if (raw == cudaSuccess)
    raw = cudaMemGetInfo(&after, &total);
  if (raw != cudaSuccess) {
    (void)cudaGraphExecDestroy(*exec);
    *exec = NULL;
    return raw;
  }
  if (info != NULL) {
    info->num_nodes = (int64_t)num_nodes;
    info->device_bytes = before > after ? (int64_t)(before - after) : 0;
  }
  return cudaSuccess;
}

int cgr__cuda_instantiate(cgr_device *dev, cgr__graph *graph, cgr__exec **exec, cgr__graph_info *info) {
  struct cuda_device *cuda = cgr__cuda_of(dev);
  cudaGraphExec_t created = NULL;
  int previous;
  *exec = NULL;
  if (cgr__cuda_is_dead(cuda))
    return cgr__cuda_dead(cuda);
  if (graph == NULL)
    return cgr__cuda_invalid(cuda);
  cudaError_t raw = cgr__cuda_enter(cuda, &previous);
  if (raw != cudaSuccess)
    return cgr__cuda_error(cuda, raw);
  raw = instantiate(cuda, (cudaGraph_t)(void *)graph, &created, info);
  cgr__cuda_leave(previous);
  *exec = (cgr__exec *)(void *)created;
  return cgr__cuda_error(cuda, raw);
}

int cgr__cuda_exec_launch(cgr_device *dev, cgr__exec *exec, cudaStream_t stream) {
  struct cuda_device *cuda = cgr__cuda_of(dev);
  if (cgr__cuda_is_dead(cuda))
    return cgr__cuda_dead(cuda);
  return cgr__cuda_error(cuda, cudaGraphLaunch((cudaGraphExec_t)(void *)exec, stream));
}

/* CUDA keeps a destroyed exec alive until its launches are done. */
int cgr__cuda_exec_destroy(cgr_device *dev, cgr__exec *exec) {
  struct cuda_device *cuda = cgr__cuda_of(dev);
  if (exec == NULL)
    return cgr__cuda_invalid(cuda);
  int error = cgr__cuda_error(cuda, cudaGraphExecDestroy((cudaGraphExec_t)(void *)exec));
  return error == CGR__DEVICE_DEAD ? CGR__DEVICE_OK : error;
}

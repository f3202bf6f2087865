/* Host functions in a stream. The copy of the arguments lives until the function has run; in a capture the graph owns it,
 * through a user object, and with the graph every exec made from it.
 *
 * CUDA does not run host functions once the context has failed, so eager copies are also kept in a list that close frees. */
#include <stdlib.h>
#include <string.h>

#include "devices/cuda/cuda_device.h"

struct cuda_call {
  struct cuda_call *next, *previous; /* in cuda_device.calls; eager calls only */
  struct cuda_device *cuda;
  cgr_host_function function;
  _Alignas(16) unsigned char args[];
};

static struct cuda_call *call_new(struct cuda_device *cuda, cgr_host_function function, const void *args, size_t args_size) {
  struct cuda_call *call = malloc(sizeof *call + args_size);
  if (call == NULL)
    return NULL;
  call->next = call->previous = NULL;
  call->cuda = cuda;
  call->function = function;
  if (args_size != 0)
    memcpy(call->args, args, args_size);
  return call;
}

static void link_call(struct cuda_call *call) {
  struct cuda_device *cuda = call->cuda;
  pthread_mutex_lock(&cuda->lock);
  call->next = cuda->calls;
  if (call->next != NULL)
    call->next->previous = call;
  cuda->calls = call;
  pthread_mutex_unlock(&cuda->lock);
}

static void unlink_and_free(struct cuda_call *call) {
  struct cuda_device *cuda = call->cuda;
  pthread_mutex_lock(&cuda->lock);
  if (call->next != NULL)
    call->next->previous = call->previous;
  if (call->previous != NULL)
    call->previous->next = call->next;
  else
    cuda->calls = call->next;
  pthread_mutex_unlock(&cuda->lock);
  free(call);
}

void cgr__cuda_calls_free(struct cuda_device *cuda) {
  while (cuda->calls != NULL)
    unlink_and_free(cuda->calls);
}

static void CUDART_CB run_once(void *data) {
  struct cuda_call *call = data;
  call->function(call->args);
  unlink_and_free(call);
}

static void CUDART_CB run_captured(void *data) {
  struct cuda_call *call = data;
  call->function(call->args);
}

static void CUDART_CB free_captured(void *data) { free(data); }

static cudaError_t capture_call(struct cuda_call *call, cudaGraph_t graph, cudaStream_t stream) {
  cudaUserObject_t object;
  cudaError_t raw = cudaUserObjectCreate(&object, call, free_captured, 1, cudaUserObjectNoDestructorSync);
  if (raw != cudaSuccess) {
    free(call);
    return raw;
  }
  raw = cudaGraphRetainUserObject(graph, object, 1, cudaGraphUserObjectMove);
  if (raw != cudaSuccess) {
    (void)cudaUserObjectRelease(object, 1);
    return raw;
  }
  /* From here the graph frees the copy, also when the launch below fails. */
  return cudaLaunchHostFunc(stream, run_captured, call);
}

int cgr__cuda_host_call(cgr_device *dev, cgr_host_function function, const void *args, size_t args_size, cudaStream_t stream) {
  struct cuda_device *cuda = cgr__cuda_of(dev);
  enum cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  cudaGraph_t graph = NULL;
  if (cgr__cuda_is_dead(cuda))
    return cgr__cuda_dead(cuda);
  if (function == NULL || args_size > CGR__CUDA_MAX_ARGS || (args == NULL && args_size != 0))
    return cgr__cuda_invalid(cuda);
  cudaError_t raw = cgr__cuda_capture_info(stream, &status, &graph);
  if (raw != cudaSuccess)
    return cgr__cuda_error(cuda, raw);
  if (status == cudaStreamCaptureStatusInvalidated)
    return cgr__cuda_error(cuda, cudaErrorStreamCaptureInvalidated);
  struct cuda_call *call = call_new(cuda, function, args, args_size);
  if (call == NULL)
    return cgr__cuda_error(cuda, cudaErrorMemoryAllocation);
  if (status == cudaStreamCaptureStatusActive)
    return cgr__cuda_error(cuda, capture_call(call, graph, stream));
  link_call(call);
  raw = cudaLaunchHostFunc(stream, run_once, call);
  if (raw != cudaSuccess)
    unlink_and_free(call);
  return cgr__cuda_error(cuda, raw);
}

#include "devices/cuda/call.h"

#include <stdlib.h>
#include <string.h>

#include "base/limits.h"
#include "devices/cuda/scope.h"

struct cuda_call {
  struct cuda_call *next, *previous; /* in cuda_device.calls; eager calls only */
  struct cuda_device *cuda;
  cgr_host_function function;
  size_t args_size;
  _Alignas(16) unsigned char args[];
};

static struct cuda_call *call_new(struct cuda_device *cuda, cgr_host_function function, const void *args, size_t args_size) {
  struct cuda_call *call = malloc(sizeof *call + args_size);
  if (!call)
    return NULL;
  call->next = call->previous = NULL;
  call->cuda = cuda;
  call->function = function;
  call->args_size = args_size;
  if (args_size != 0)
    memcpy(call->args, args, args_size);
  return call;
}

static void link_call(struct cuda_call *call) {
  struct cuda_device *cuda = call->cuda;
  pthread_mutex_lock(&cuda->lock);
  call->next = cuda->calls;
  if (call->next)
    call->next->previous = call;
  cuda->calls = call;
  pthread_mutex_unlock(&cuda->lock);
}

static void free_call(struct cuda_call *call) {
  struct cuda_device *cuda = call->cuda;
  pthread_mutex_lock(&cuda->lock);
  if (call->next)
    call->next->previous = call->previous;
  if (call->previous)
    call->previous->next = call->next;
  else
    cuda->calls = call->next;
  pthread_mutex_unlock(&cuda->lock);
  free(call);
}

void cgr__cuda_calls_free(struct cuda_device *cuda) {
  while (cuda->calls)
    free_call(cuda->calls);
}

static void CUDA_CB run_once(void *data) {
  struct cuda_call *call = data;
  call->function(call->args);
  free_call(call);
}

static void CUDA_CB run_captured(void *data) {
  struct cuda_call *call = data;
  call->function(call->args);
}

cgr_host_function cgr__cuda_call_of(const CUDA_HOST_NODE_PARAMS *node, const void **args, size_t *args_size) {
  if (node->fn != run_captured)
    return NULL;
  const struct cuda_call *call = node->userData;
  *args = call->args;
  *args_size = call->args_size;
  return call->function;
}

static void CUDA_CB free_captured(void *data) { free(data); }

static CUresult capture_call(struct cuda_call *call, CUgraph graph, cudaStream_t stream) {
  CUuserObject object;
  CUresult raw = cgr__cu.UserObjectCreate(&object, call, free_captured, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC);
  if (raw != CUDA_SUCCESS) {
    free(call);
    return raw;
  }
  raw = cgr__cu.GraphRetainUserObject(graph, object, 1, CU_GRAPH_USER_OBJECT_MOVE);
  if (raw != CUDA_SUCCESS) {
    (void)cgr__cu.UserObjectRelease(object, 1);
    return raw;
  }
  /* From here the graph frees the copy, also when the launch below fails. */
  return cgr__cu.LaunchHostFunc(stream, run_captured, call);
}

static CUresult enqueue_call(struct cuda_call *call, cudaStream_t stream) {
  link_call(call);
  CUresult raw = cgr__cu.LaunchHostFunc(stream, run_once, call);
  if (raw != CUDA_SUCCESS)
    free_call(call);
  return raw;
}

int cgr__cuda_host_call(cgr_device *dev, cgr_host_function function, const void *args, size_t args_size, cudaStream_t stream) {
  struct cuda_device *cuda = cgr__cuda_of(dev);
  struct cgr__cuda_scope scope;
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  CUgraph graph = NULL;
  if (!function || args_size > CGR__MAX_CALL_ARGS || (!args && args_size != 0))
    return cgr__cuda_invalid(cuda);
  int error = cgr__cuda_enter(cuda, &scope);
  if (error != CGR__DEVICE_OK)
    return error;
  CUresult raw = cgr__cu.StreamGetCaptureInfo(stream, &status, NULL, &graph, NULL, NULL, NULL);
  if (raw == CUDA_SUCCESS && status == CU_STREAM_CAPTURE_STATUS_INVALIDATED)
    raw = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  if (raw != CUDA_SUCCESS)
    return cgr__cuda_leave(&scope, raw);
  struct cuda_call *call = call_new(cuda, function, args, args_size);
  if (!call)
    return cgr__cuda_leave(&scope, CUDA_ERROR_OUT_OF_MEMORY);
  raw = status == CU_STREAM_CAPTURE_STATUS_ACTIVE ? capture_call(call, graph, stream) : enqueue_call(call, stream);
  return cgr__cuda_leave(&scope, raw);
}

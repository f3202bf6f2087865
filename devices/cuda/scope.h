/* What surrounds every call of the driver but the two of a replay (graph.c): the device's context is current from enter to leave,
 * and afterwards the thread is as it was.
 *
 * Calls that CUDA counts as unsafe while a stream captures (an allocation, a query, a wait, the loading of a module) also switch
 * the thread's capture mode while they run. In the default mode, global, such a call fails, and invalidates the capture, if any
 * other thread of the process has a global capture open: the engine's, say. As documented at cuThreadExchangeStreamCaptureMode:
 * - CU_STREAM_CAPTURE_MODE_THREAD_LOCAL considers only the captures of the calling thread. What the table refuses to a thread
 *   that captures is still refused, and invalidates that thread's capture; relaxed mode would allow it. Used for memory,
 *   instantiation, waits, queries and loading.
 * - CU_STREAM_CAPTURE_MODE_RELAXED considers none; only what conflicts with a capture in itself is refused, such as waiting for a
 *   stream that captures. Used for what the table allows in a capture: info, making and destroying streams and events, destroying
 *   graphs and execs. */
#ifndef CGR_DEVICES_CUDA_SCOPE_H
#define CGR_DEVICES_CUDA_SCOPE_H

#include "devices/cuda/errors.h"

struct cgr__cuda_scope {
  struct cuda_device *cuda;
  bool pushed, exchanged;
  CUstreamCaptureMode mode; /* the thread's own, while exchanged */
};

/* Also on a dead device, for calls that destroy. */
static inline int cgr__cuda_enter_anyway(struct cuda_device *cuda, struct cgr__cuda_scope *scope) {
  CUcontext current = NULL;
  CUresult raw = cgr__cu.CtxGetCurrent(&current);
  scope->cuda = cuda;
  scope->pushed = scope->exchanged = false;
  if (raw == CUDA_SUCCESS && current == cuda->context)
    return CGR__DEVICE_OK;
  if (raw == CUDA_SUCCESS)
    raw = cgr__cu.CtxPushCurrent(cuda->context);
  scope->pushed = raw == CUDA_SUCCESS;
  return cgr__cuda_error(cuda, (int)raw);
}

static inline int cgr__cuda_enter(struct cuda_device *cuda, struct cgr__cuda_scope *scope) {
  return cgr__cuda_is_dead(cuda) ? cgr__cuda_dead(cuda) : cgr__cuda_enter_anyway(cuda, scope);
}

/* Between enter and leave. If the mode cannot be set, the call is made in the thread's own. */
static inline void cgr__cuda_set_mode(struct cgr__cuda_scope *scope, CUstreamCaptureMode mode) {
  scope->mode = mode;
  scope->exchanged = cgr__cu.ThreadExchangeStreamCaptureMode(&scope->mode) == CUDA_SUCCESS;
}

/* Ends the scope and answers for the call inside. */
static inline int cgr__cuda_leave(struct cgr__cuda_scope *scope, CUresult raw) {
  CUcontext popped;
  if (scope->exchanged)
    (void)cgr__cu.ThreadExchangeStreamCaptureMode(&scope->mode);
  if (scope->pushed)
    (void)cgr__cu.CtxPopCurrent(&popped);
  return cgr__cuda_error(scope->cuda, (int)raw);
}

#endif

/* The functions of the CUDA driver, looked up when the first of them is needed: nothing links libcuda, so a build with CUDA also
 * runs without a driver. The library calls the driver, and the runtime only to find its kernels: a call of the
 * driver touches no device but the one whose context is current, and neither sets nor clears the runtime's pending error. */
#ifndef CGR_DEVICES_CUDA_DRIVER_H
#define CGR_DEVICES_CUDA_DRIVER_H

#include <cuda.h>
#include <cudaTypedefs.h>

#if CUDA_VERSION < 12040
#error "CUDA 12.4 or later is required"
#endif

/* X(name, CUDA version of its signature): cuName is cgr__cu.Name. The signatures are the newest of CUDA 12.4. The two of a replay
 * come first, in one cache line. */
#define CGR__CUDA_FUNCTIONS(X)              \
  X(StreamIsCapturing, 10000)               \
  X(GraphLaunch, 10000)                     \
  X(Init, 2000)                             \
  X(DeviceGet, 2000)                        \
  X(DeviceGetCount, 2000)                   \
  X(DeviceGetName, 2000)                    \
  X(DeviceGetAttribute, 2000)               \
  X(DevicePrimaryCtxRetain, 7000)           \
  X(DevicePrimaryCtxRelease, 11000)         \
  X(CtxGetCurrent, 4000)                    \
  X(CtxPushCurrent, 4000)                   \
  X(CtxPopCurrent, 4000)                    \
  X(CtxSynchronize, 2000)                   \
  X(CtxGetStreamPriorityRange, 5050)        \
  X(MemAlloc, 3020)                         \
  X(MemFree, 3020)                          \
  X(MemHostAlloc, 2020)                     \
  X(MemFreeHost, 2000)                      \
  X(MemGetInfo, 3020)                       \
  X(StreamCreateWithPriority, 5050)         \
  X(StreamDestroy, 4000)                    \
  X(StreamSynchronize, 2000)                \
  X(StreamQuery, 2000)                      \
  X(StreamWaitEvent, 3020)                  \
  X(StreamWaitValue64, 11070)               \
  X(StreamBeginCapture, 10010)              \
  X(StreamEndCapture, 10000)                \
  X(StreamGetCaptureInfo, 12030)            \
  X(ThreadExchangeStreamCaptureMode, 10010) \
  X(EventCreate, 2000)                      \
  X(EventDestroy, 4000)                     \
  X(EventRecord, 2000)                      \
  X(EventQuery, 2000)                       \
  X(EventSynchronize, 2000)                 \
  X(MemcpyAsync, 4000)                      \
  X(MemsetD8Async, 3020)                    \
  X(MemsetD16Async, 3020)                   \
  X(MemsetD32Async, 3020)                   \
  X(MemsetD2D32Async, 3020)                 \
  X(LaunchKernel, 4000)                     \
  X(LaunchKernelEx, 11060)                  \
  X(LaunchHostFunc, 10000)                  \
  X(FuncLoad, 12040)                        \
  X(FuncGetAttribute, 2020)                 \
  X(FuncSetAttribute, 9000)                 \
  X(GraphGetNodes, 10000)                   \
  X(GraphGetEdges, 12030)                   \
  X(GraphNodeGetType, 10000)                \
  X(GraphKernelNodeGetParams, 12000)        \
  X(GraphMemcpyNodeGetParams, 10000)        \
  X(GraphMemsetNodeGetParams, 10000)        \
  X(GraphHostNodeGetParams, 10000)          \
  X(GraphChildGraphNodeGetGraph, 10000)     \
  X(FuncGetName, 12030)                     \
  X(FuncGetParamInfo, 12040)                \
  X(KernelGetName, 12030)                   \
  X(KernelGetParamInfo, 12040)              \
  X(PointerGetAttribute, 4000)              \
  X(GraphDestroy, 10000)                    \
  X(GraphInstantiateWithFlags, 11040)       \
  X(GraphUpload, 11010)                     \
  X(GraphExecDestroy, 10000)                \
  X(GraphRetainUserObject, 11030)           \
  X(UserObjectCreate, 11030)                \
  X(UserObjectRelease, 11030)

/* X(name, arguments): of CUDA 13.1, whose headers this build may not have. NULL in an older driver. */
#define CGR__CUDA_OPTIONAL_FUNCTIONS(X)                                    \
  X(GraphNodeGetToolsId, (CUgraphNode node, unsigned long long *tools_id)) \
  X(GraphExecGetId, (CUgraphExec exec, unsigned int *graph_id))

struct cgr__cuda_functions {
#define CGR__CUDA_FIELD(name, version) PFN_cu##name##_v##version name;
  CGR__CUDA_FUNCTIONS(CGR__CUDA_FIELD)
#undef CGR__CUDA_FIELD
#define CGR__CUDA_FIELD(name, arguments) CUresult(CUDAAPI *name) arguments;
  CGR__CUDA_OPTIONAL_FUNCTIONS(CGR__CUDA_FIELD)
#undef CGR__CUDA_FIELD
};

/* Complete once cgr__cuda_probe has answered READY; no device is open before. */
extern struct cgr__cuda_functions cgr__cu;

#endif

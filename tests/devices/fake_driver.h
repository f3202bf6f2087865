// A fake driver that only records calls, for tests of what the CUDA device asks of the driver. It replaces devices/cuda/driver.c,
// which is therefore not linked. Only one file of a program includes it.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "cgr/device.h"

extern "C" {
#include "devices/cuda/driver.h"
}

namespace {

template <class T> T Handle(uintptr_t number) { return reinterpret_cast<T>(number); }
const auto kOurs = Handle<CUcontext>(0x1000), kOther = Handle<CUcontext>(0x2000);

// One call of the driver, and the state of the thread at that moment.
struct Call {
  std::string name;
  CUcontext context;
  CUstreamCaptureMode mode;
};

// What cgr_step_launch asks the driver to replay a step.
bool IsOfReplay(const std::string &name) { return name == "GraphLaunch" || name == "StreamIsCapturing"; }

// The driver's side. One thread.
struct Driver {
  std::vector<CUcontext> stack;
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
  std::vector<Call> calls;
  std::map<std::string, CUresult> failures; // answered by name, every time
  CUstreamCaptureStatus capture = CU_STREAM_CAPTURE_STATUS_NONE;
  int contexts = 0, streams = 0; // alive
  int priority = 0;              // of the last stream
  uint64_t awaited = 0;          // by the last StreamWaitValue64
  uintptr_t next_address = 0x10000;
  void *object = nullptr; // of the last UserObjectCreate
  CUhostFn free_object = nullptr, host_function = nullptr;
  void *host_data = nullptr;

  CUresult without_context = CUDA_SUCCESS; // what calls of a replay answer when our context is not current

  std::vector<int> nodes = { CU_GRAPH_NODE_TYPE_KERNEL, CU_GRAPH_NODE_TYPE_MEMCPY, CU_GRAPH_NODE_TYPE_MEMSET }; // of every graph
  CUDA_KERNEL_NODE_PARAMS_v2 kernel = {};
  size_t num_params = 0; // of every kernel: words, 16 bytes apart

  size_t ListNodes(CUgraphNode *list, size_t capacity) const {
    const size_t count = list == nullptr ? nodes.size() : std::min(capacity, nodes.size());
    for (size_t i = 0; list != nullptr && i < count; i++)
      list[i] = Handle<CUgraphNode>(0x100 * (i + 1) + uintptr_t(nodes[i]));
    return count;
  }
  CUresult ParamInfo(size_t index, size_t *offset, size_t *bytes) const {
    *offset = 16 * index;
    *bytes = 8;
    return index < num_params ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  }

  CUcontext Current() const { return stack.empty() ? nullptr : stack.back(); }
  // Records the call and returns the answer.
  CUresult Note(const char *name) {
    calls.push_back({ name, Current(), mode });
    auto failure = failures.find(name);
    if (failure != failures.end())
      return failure->second;
    return IsOfReplay(name) && Current() != kOurs ? without_context : CUDA_SUCCESS;
  }
  int Count(const std::string &name) const {
    int count = 0;
    for (const Call &call : calls)
      count += call.name == name;
    return count;
  }
};

Driver driver;

CUgraphNodeType TypeOf(CUgraphNode node) { return static_cast<CUgraphNodeType>(reinterpret_cast<uintptr_t>(node) & 0xff); }

// A fake of cu<name>: records the call; `effect` is what a successful call does besides.
#define FAKE(name, parameters, effect)     \
  CUresult CUDAAPI Fake##name parameters { \
    CUresult raw = driver.Note(#name);     \
    if (raw == CUDA_SUCCESS) {             \
      effect;                              \
    }                                      \
    return raw;                            \
  }

// clang-format off
FAKE(Init, (unsigned), )
FAKE(DeviceGet, (CUdevice *device, int ordinal), *device = 70 + ordinal)
FAKE(DeviceGetCount, (int *count), *count = 2)
FAKE(DeviceGetName, (char *name, int size, CUdevice), snprintf(name, static_cast<size_t>(size), "Fake"))
FAKE(DeviceGetAttribute, (int *value, CUdevice_attribute which, CUdevice),
     *value = which == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR ? 9 : which == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR ? 0 : 1)
FAKE(DevicePrimaryCtxRetain, (CUcontext *context, CUdevice), *context = kOurs; driver.contexts++)
FAKE(DevicePrimaryCtxRelease, (CUdevice), driver.contexts--)
FAKE(CtxGetCurrent, (CUcontext *context), *context = driver.Current())
FAKE(CtxPushCurrent, (CUcontext context), driver.stack.push_back(context))
FAKE(CtxPopCurrent, (CUcontext *context), *context = driver.Current(); driver.stack.pop_back())
FAKE(CtxSynchronize, (void), )
FAKE(MemAlloc, (CUdeviceptr_v2 *address, size_t), *address = driver.next_address += 0x1000)
FAKE(MemFree, (CUdeviceptr_v2), )
FAKE(MemHostAlloc, (void **address, size_t, unsigned), *address = Handle<void *>(driver.next_address += 0x1000))
FAKE(MemFreeHost, (void *), )
FAKE(MemGetInfo, (size_t *available, size_t *total), *available = 1; *total = 2)
FAKE(CtxGetStreamPriorityRange, (int *lowest, int *highest), *lowest = 0; *highest = -5)
FAKE(StreamCreateWithPriority, (CUstream *stream, unsigned, int priority),
     *stream = Handle<CUstream>(driver.next_address += 0x1000); driver.streams++; driver.priority = priority)
FAKE(StreamDestroy, (CUstream), driver.streams--)
FAKE(StreamSynchronize, (CUstream), )
FAKE(StreamQuery, (CUstream), )
FAKE(StreamWaitEvent, (CUstream, CUevent, unsigned), )
FAKE(StreamWaitValue64, (CUstream, CUdeviceptr_v2, cuuint64_t value, unsigned), driver.awaited = value)
FAKE(StreamBeginCapture, (CUstream, CUstreamCaptureMode), driver.capture = CU_STREAM_CAPTURE_STATUS_ACTIVE)
FAKE(StreamEndCapture, (CUstream, CUgraph *graph), *graph = Handle<CUgraph>(0x5000); driver.capture = CU_STREAM_CAPTURE_STATUS_NONE)
FAKE(StreamIsCapturing, (CUstream, CUstreamCaptureStatus *status), *status = driver.capture)
FAKE(StreamGetCaptureInfo, (CUstream, CUstreamCaptureStatus *status, cuuint64_t *, CUgraph *graph, const CUgraphNode **,
     const CUgraphEdgeData **, size_t *), *status = driver.capture; *graph = Handle<CUgraph>(0x5000))
FAKE(ThreadExchangeStreamCaptureMode, (CUstreamCaptureMode *mode), std::swap(*mode, driver.mode))
FAKE(EventCreate, (CUevent *event, unsigned), *event = Handle<CUevent>(0x6000))
FAKE(EventDestroy, (CUevent), )
FAKE(EventRecord, (CUevent, CUstream), )
FAKE(EventQuery, (CUevent), )
FAKE(EventSynchronize, (CUevent), )
FAKE(MemcpyAsync, (CUdeviceptr_v2, CUdeviceptr_v2, size_t, CUstream), )
FAKE(MemsetD8Async, (CUdeviceptr_v2, unsigned char, size_t, CUstream), )
FAKE(MemsetD16Async, (CUdeviceptr_v2, unsigned short, size_t, CUstream), )
FAKE(MemsetD32Async, (CUdeviceptr_v2, unsigned, size_t, CUstream), )
FAKE(MemsetD2D32Async, (CUdeviceptr_v2, size_t, unsigned, size_t, size_t, CUstream), )
FAKE(LaunchKernel, (CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream, void **, void **), )
FAKE(LaunchKernelEx, (const CUlaunchConfig *, CUfunction, void **, void **), )
FAKE(LaunchHostFunc, (CUstream, CUhostFn function, void *data), driver.host_function = function; driver.host_data = data)
FAKE(FuncLoad, (CUfunction), )
FAKE(FuncGetAttribute, (int *value, CUfunction_attribute, CUfunction), *value = 90)
FAKE(FuncSetAttribute, (CUfunction, CUfunction_attribute, int), )
FAKE(GraphGetNodes, (CUgraph, CUgraphNode *nodes, size_t *count), *count = driver.ListNodes(nodes, *count))
FAKE(GraphGetEdges, (CUgraph, CUgraphNode *, CUgraphNode *, CUgraphEdgeData *, size_t *count), *count = 0)
FAKE(GraphNodeGetType, (CUgraphNode node, CUgraphNodeType *type), *type = TypeOf(node))
FAKE(GraphKernelNodeGetParams, (CUgraphNode, CUDA_KERNEL_NODE_PARAMS_v2 *kernel), *kernel = driver.kernel)
FAKE(GraphMemcpyNodeGetParams, (CUgraphNode, CUDA_MEMCPY3D_v2 *copy), *copy = CUDA_MEMCPY3D_v2())
FAKE(GraphMemsetNodeGetParams, (CUgraphNode, CUDA_MEMSET_NODE_PARAMS_v1 *fill), *fill = CUDA_MEMSET_NODE_PARAMS_v1())
FAKE(GraphHostNodeGetParams, (CUgraphNode, CUDA_HOST_NODE_PARAMS_v1 *call), *call = CUDA_HOST_NODE_PARAMS_v1())
FAKE(GraphChildGraphNodeGetGraph, (CUgraphNode, CUgraph *graph), *graph = Handle<CUgraph>(0x5000))
FAKE(FuncGetName, (const char **name, CUfunction), *name = "function")
FAKE(FuncGetParamInfo, (CUfunction, size_t index, size_t *offset, size_t *bytes), raw = driver.ParamInfo(index, offset, bytes))
FAKE(KernelGetName, (const char **name, CUkernel), *name = "kernel")
FAKE(KernelGetParamInfo, (CUkernel, size_t index, size_t *offset, size_t *bytes), raw = driver.ParamInfo(index, offset, bytes))
FAKE(PointerGetAttribute, (void *value, CUpointer_attribute, CUdeviceptr_v2), *static_cast<uint64_t *>(value) = 64)
FAKE(GraphDestroy, (CUgraph), )
FAKE(GraphInstantiateWithFlags, (CUgraphExec *exec, CUgraph, unsigned long long), *exec = Handle<CUgraphExec>(0x7000))
FAKE(GraphUpload, (CUgraphExec, CUstream), )
FAKE(GraphLaunch, (CUgraphExec, CUstream), )
FAKE(GraphExecDestroy, (CUgraphExec), )
FAKE(GraphRetainUserObject, (CUgraph, CUuserObject, unsigned, unsigned), )
FAKE(UserObjectCreate, (CUuserObject *object, void *data, CUhostFn destroy, unsigned, unsigned),
     *object = Handle<CUuserObject>(0x8000); driver.object = data; driver.free_object = destroy)
FAKE(GraphNodeGetToolsId, (CUgraphNode node, unsigned long long *id), *id = 5ull << 32 | reinterpret_cast<uintptr_t>(node))
FAKE(GraphExecGetId, (CUgraphExec, unsigned *id), *id = 9)
FAKE(UserObjectRelease, (CUuserObject, unsigned), driver.free_object(driver.object))
// clang-format on

const std::vector<std::string> kFunctions = {
#define NAME(name, version) #name,
  CGR__CUDA_FUNCTIONS(NAME)
#undef NAME
};

} // namespace

extern "C" {
struct cgr__cuda_functions cgr__cu = {
#define FUNCTION(name, version) Fake##name,
  CGR__CUDA_FUNCTIONS(FUNCTION) CGR__CUDA_OPTIONAL_FUNCTIONS(FUNCTION)
#undef FUNCTION
};

struct cgr__gpus cgr__cuda_probe(void) {
  return { CGR__CUDA_READY, 2, 12040, 12040, 0 };
}
}

namespace {

int LaunchNothing(const void *, cudaStream_t) { return static_cast<int>(driver.Note("Kernel")); }
int PreloadNothing() { return static_cast<int>(driver.Note("Preload")); }
void Nothing(const void *) {}

const cgr__kernel kKernel = { "kernel", sizeof(int), nullptr, LaunchNothing, PreloadNothing, 0 };

class CudaCallsTest : public ::testing::Test {
protected:
  void SetUp() override { driver = Driver(); }

  void Open() {
    cgr_device_config config = CGR_DEVICE_CONFIG_INIT;
    ASSERT_EQ(cgr__cuda_device_open(1, &config, &dev_), CGR__DEVICE_OK);
    ops_ = dev_->ops;
    driver.calls.clear();
  }

  // Calls every operation once, in an order in which they succeed; `after` is called with each answer.
  void CallAll(const std::function<void(const char *, int)> &after) {
    cudaStream_t stream = Handle<cudaStream_t>(0x3000);
    cgr__event *event = Handle<cgr__event *>(0x6000);
    cgr__graph *graph = Handle<cgr__graph *>(0x5000);
    cgr__exec *exec = Handle<cgr__exec *>(0x7000);
    cgr_device_info info = CGR_DEVICE_INFO_INIT;
    void *memory = nullptr, *pinned = nullptr, *buffer = Handle<void *>(0x9000);
    int number = 0, capturing = 0;
    cudaStream_t made;
    cgr__event *new_event;
    cgr__graph *captured;
    cgr__exec *new_exec;
    after("info", ops_->info(dev_, &info));
    after("mem_alloc", ops_->mem_alloc(dev_, 64, CGR__MEMORY_DEVICE, &memory));
    after("mem_alloc pinned", ops_->mem_alloc(dev_, 64, CGR__MEMORY_PINNED, &pinned));
    after("mem_free", ops_->mem_free(dev_, memory, CGR__MEMORY_DEVICE));
    after("mem_free pinned", ops_->mem_free(dev_, pinned, CGR__MEMORY_PINNED));
    after("stream_create", ops_->stream_create(dev_, CGR__STREAM_NORMAL, &made));
    after("stream_sync", ops_->stream_sync(dev_, stream));
    after("stream_query", ops_->stream_query(dev_, stream));
    after("stream_destroy", ops_->stream_destroy(dev_, stream));
    after("event_create", ops_->event_create(dev_, &new_event));
    after("event_record", ops_->event_record(dev_, event, stream));
    after("event_wait", ops_->event_wait(dev_, event, stream));
    after("event_query", ops_->event_query(dev_, event));
    after("event_sync", ops_->event_sync(dev_, event));
    after("event_destroy", ops_->event_destroy(dev_, event));
    uint64_t word = 4;
    cgr__waiter *waiter = nullptr;
    after("waiter_create", ops_->waiter_create(dev_, &word, &waiter));
    if (waiter != nullptr) {
      driver.host_function = nullptr;
      after("waiter_wait", ops_->waiter_wait(dev_, waiter, 5, 1000) == CGR__DEVICE_NOT_READY ? CGR__DEVICE_OK : -1);
      if (driver.host_function != nullptr)
        driver.host_function(driver.host_data); // as if the word had come
      after("waiter_destroy", ops_->waiter_destroy(dev_, waiter));
      EXPECT_EQ(word, uint64_t{ INT64_MAX });
    }
    after("copy", ops_->copy(dev_, buffer, buffer, 8, stream));
    for (size_t width : { 1, 2, 4, 8 })
      after("fill", ops_->fill(dev_, buffer, 1, width, 8, stream));
    after("launch", ops_->launch(dev_, &kKernel, &number, stream));
    after("preload", ops_->preload(dev_, &kKernel));
    after("capture_begin", ops_->capture_begin(dev_, stream));
    const void *nodes[2];
    size_t num_nodes;
    after("capture_nodes", ops_->capture_nodes(dev_, stream, nodes, 2, &num_nodes));
    after("capture_status", ops_->capture_status(dev_, stream, &capturing));
    after("host_call captured", ops_->host_call(dev_, Nothing, &number, sizeof number, stream));
    after("capture_end", ops_->capture_end(dev_, stream, &captured));
    if (driver.free_object != nullptr && driver.Count("UserObjectRelease") == 0)
      driver.free_object(driver.object); // as the graph's end does
    driver.free_object = nullptr;
    after("instantiate", ops_->instantiate(dev_, graph, &new_exec, nullptr));
    after("exec_launch", ops_->exec_launch(dev_, exec, stream));
    after("exec_destroy", ops_->exec_destroy(dev_, exec));
    const void *base;
    size_t bytes;
    after("mem_find", ops_->mem_find(dev_, buffer, &base, &bytes));
    after("graph_walk", ops_->graph_walk(dev_, graph, IgnoreParam, nullptr));
    after("graph_destroy", ops_->graph_destroy(dev_, graph));
  }
  static int IgnoreParam(void *, const cgr__node_param *) { return CGR__DEVICE_OK; }
  // What a walk shows: name, parameter, and the parameter's word, or "hidden".
  std::vector<std::string> Walk(int *error = nullptr) {
    std::vector<std::string> shown;
    auto show = [](void *context, const cgr__node_param *p) -> int {
      uint64_t word = 0;
      memcpy(&word, p->bytes > 0 ? p->data : &word, p->bytes < 8 ? p->bytes : 8);
      std::string text = std::to_string(p->node) + " " + p->name + " " + std::to_string(p->index);
      text += p->hidden ? " hidden" : p->bytes > 0 ? " is " + std::to_string(word) : " none";
      static_cast<std::vector<std::string> *>(context)->push_back(text);
      return CGR__DEVICE_OK;
    };
    const int answer = ops_->graph_walk(dev_, Handle<cgr__graph *>(0x5000), show, &shown);
    EXPECT_EQ(error == nullptr ? answer : 0, CGR__DEVICE_OK);
    if (error != nullptr)
      *error = answer;
    return shown;
  }

  cgr_device *dev_ = nullptr;
  const cgr__device_ops *ops_ = nullptr;
};

} // namespace

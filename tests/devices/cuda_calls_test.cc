// What the CUDA device asks of the driver, and in which state of the calling thread, with a driver that only takes notes: on
// every machine with a toolkit, GPU or not. This file stands in for devices/cuda/driver.c, which is therefore not linked.
#include <gtest/gtest.h>

#include "devices/device.h"

#if CGR_TEST_CUDA
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
  // Notes the call and tells what to answer.
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

// A fake of cu<name>: notes the call; `effect` is what a call that succeeds does besides.
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
FAKE(LaunchHostFunc, (CUstream, CUhostFn function, void *data), driver.host_function = function; driver.host_data = data)
FAKE(FuncLoad, (CUfunction), )
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

  // Every operation once, in an order in which they succeed; `after` is told of each answer.
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
  // What a walk shows: name, parameter, and the word that it is, or "hidden".
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

// The thread has no context, another one's, or ours: the driver sees ours, and the thread gets back what it had. A replay's calls
// are made in whatever context there is.
TEST_F(CudaCallsTest, EveryCallIsMadeInTheDevicesContext) {
  for (const std::vector<CUcontext> &before : { std::vector<CUcontext>(), { kOther }, { kOurs }, { kOurs, kOther } }) {
    driver = Driver();
    driver.stack = before;
    Open();
    CallAll([&](const char *what, int error) {
      EXPECT_EQ(error, CGR__DEVICE_OK) << what;
      EXPECT_EQ(driver.stack, before) << what;
      EXPECT_EQ(driver.mode, CU_STREAM_CAPTURE_MODE_GLOBAL) << what;
    });
    for (const Call &call : driver.calls) {
      bool looks = call.name == "CtxGetCurrent" || call.name == "CtxPushCurrent";
      EXPECT_TRUE(looks || call.context == kOurs || IsOfReplay(call.name)) << call.name;
    }
    bool ours = !before.empty() && before.back() == kOurs;
    EXPECT_EQ(driver.Count("CtxPushCurrent") == 0, ours); // where it is current nothing is pushed
    EXPECT_EQ(driver.Count("CtxPushCurrent"), driver.Count("CtxPopCurrent"));
    EXPECT_EQ(ops_->close(dev_), CGR__DEVICE_OK);
    EXPECT_EQ(driver.stack, before);
    EXPECT_EQ(driver.contexts, 0);
  }
}

// Whatever fails: the thread is as it was, and what destroys says nothing of a device that is lost.
TEST_F(CudaCallsTest, FailuresLeaveTheThreadAsItWas) {
  for (CUresult raw : { CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_UNKNOWN, CUDA_ERROR_ILLEGAL_ADDRESS }) {
    for (const std::string &name : kFunctions) {
      if (name == "CtxPopCurrent")
        continue; // nothing could be done about it
      driver = Driver();
      driver.stack = { kOther };
      Open();
      driver.failures[name] = raw;
      CallAll([&](const char *what, int) {
        EXPECT_EQ(driver.stack, std::vector<CUcontext>{ kOther }) << what << " with " << name;
        if (name != "ThreadExchangeStreamCaptureMode") {
          EXPECT_EQ(driver.mode, CU_STREAM_CAPTURE_MODE_GLOBAL) << what << " with " << name;
        }
      });
      driver.failures.clear();
      EXPECT_EQ(ops_->close(dev_), CGR__DEVICE_OK) << name;
      EXPECT_EQ(driver.contexts, 0) << name;
    }
  }
}

// As documented in devices/cuda/scope.h.
TEST_F(CudaCallsTest, UnsafeCallsTakeACaptureMode) {
  const CUstreamCaptureMode global = CU_STREAM_CAPTURE_MODE_GLOBAL, local = CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
                            relaxed = CU_STREAM_CAPTURE_MODE_RELAXED;
  const std::map<std::string, CUstreamCaptureMode> expected = {
    { "MemAlloc", local },
    { "MemHostAlloc", local },
    { "MemFree", local },
    { "MemFreeHost", local },
    { "StreamQuery", local },
    { "EventQuery", local },
    { "EventSynchronize", local },
    { "Preload", local },
    { "GraphInstantiateWithFlags", local },
    { "GraphUpload", local },
    { "StreamCreateWithPriority", relaxed },
    { "StreamDestroy", relaxed },
    { "EventCreate", relaxed },
    { "EventDestroy", relaxed },
    { "GraphExecDestroy", relaxed },
    { "GraphDestroy", relaxed },
    { "GraphLaunch", global },
    { "Kernel", global },
    { "MemcpyAsync", global },
    { "MemsetD8Async", global },
    { "EventRecord", global },
    { "StreamWaitEvent", global },
    { "StreamBeginCapture", global },
    { "StreamEndCapture", global },
  };
  Open();
  CallAll([](const char *, int) {});
  for (const auto &entry : expected) {
    EXPECT_GE(driver.Count(entry.first), 1) << entry.first;
    for (const Call &call : driver.calls) {
      if (call.name == entry.first) {
        EXPECT_EQ(call.mode, entry.second) << call.name;
      }
    }
  }
  driver.calls.clear();
  cgr_device_info info = CGR_DEVICE_INFO_INIT;
  EXPECT_EQ(ops_->info(dev_, &info), CGR__DEVICE_OK);
  ASSERT_EQ(driver.Count("MemGetInfo"), 1);
  for (const Call &call : driver.calls) {
    if (call.name == "MemGetInfo") {
      EXPECT_EQ(call.mode, relaxed);
    }
  }
  EXPECT_EQ(ops_->close(dev_), CGR__DEVICE_OK);
}

using Lines = std::vector<std::string>;

// A kernel is known by its function or as a kernel of a library; its parameters stand one by one or in a buffer.
TEST_F(CudaCallsTest, AWalkReadsKernelsHoweverTheyWereLaunched) {
  uint64_t words[] = { 11, 0, 22, 0 };
  void *params[] = { &words[0], &words[2] };
  void *extra[] = { CU_LAUNCH_PARAM_BUFFER_SIZE, params, CU_LAUNCH_PARAM_BUFFER_POINTER, words, CU_LAUNCH_PARAM_END };
  Open();
  driver.nodes = { CU_GRAPH_NODE_TYPE_KERNEL };
  driver.num_params = 2;
  for (bool is_function : { false, true }) {
    const std::string name = is_function ? "0 function" : "0 kernel",
                      launch = name + " -1 is " + std::to_string((3ull << 32) + 2);
    driver.kernel = {};
    driver.kernel.gridDimX = 2;
    driver.kernel.gridDimY = 3;
    driver.kernel.func = is_function ? Handle<CUfunction>(0xb000) : nullptr;
    driver.kernel.kernelParams = params;
    EXPECT_EQ(Walk(), (Lines{ launch, name + " 0 is 11", name + " 1 is 22" }));
    driver.kernel.kernelParams = nullptr;
    driver.kernel.extra = extra;
    EXPECT_EQ(Walk(), (Lines{ launch, name + " 0 is 11", name + " 1 is 22" }));
    driver.kernel.extra = nullptr;
    EXPECT_EQ(Walk(), Lines{ name + " -1 hidden" });
    driver.num_params = 0;
    EXPECT_EQ(Walk(), Lines{ launch });
    driver.num_params = 2;
    driver.failures[is_function ? "FuncGetName" : "KernelGetName"] = CUDA_ERROR_NOT_FOUND;
    EXPECT_EQ(Walk(), Lines{ "0 kernel -1 hidden" });
    driver.failures.clear();
  }
  EXPECT_EQ(ops_->close(dev_), CGR__DEVICE_OK);
}

TEST_F(CudaCallsTest, AWalkHidesWhatTheDriverDoesNotTell) {
  const std::pair<int, Lines> kinds[] = {
    { CU_GRAPH_NODE_TYPE_KERNEL, { "0 node 0 hidden" } },    { CU_GRAPH_NODE_TYPE_MEMCPY, { "0 copy 0 hidden" } },
    { CU_GRAPH_NODE_TYPE_MEMSET, { "0 fill 0 hidden" } },    { CU_GRAPH_NODE_TYPE_HOST, { "0 host function 0 hidden" } },
    { CU_GRAPH_NODE_TYPE_MEM_ALLOC, { "0 node 0 hidden" } }, { CU_GRAPH_NODE_TYPE_EMPTY, { "0 event 0 none" } },
  };
  Open();
  for (const auto &[kind, lines] : kinds) {
    driver.nodes = { kind };
    for (const char *name : { "Kernel", "Memcpy", "Memset", "Host" })
      driver.failures[std::string("Graph") + name + "NodeGetParams"] = CUDA_ERROR_NOT_SUPPORTED;
    EXPECT_EQ(Walk(), lines);
  }
  driver.failures.clear();
  driver.nodes = { CU_GRAPH_NODE_TYPE_HOST }; // of somebody else
  EXPECT_EQ(Walk(), Lines{ "0 host function 0 hidden" });
  driver.nodes = { CU_GRAPH_NODE_TYPE_MEMSET, CU_GRAPH_NODE_TYPE_MEMCPY };
  for (const char *name : { "GraphGetNodes", "GraphNodeGetType" }) {
    int error = 0;
    driver.failures[name] = CUDA_ERROR_UNKNOWN;
    EXPECT_TRUE(Walk(&error).empty());
    EXPECT_EQ(error, CGR__DEVICE_FAILED);
    driver.failures.clear();
  }
  EXPECT_EQ(Walk().size(), 6u);
  EXPECT_EQ(ops_->close(dev_), CGR__DEVICE_OK);
}

TEST_F(CudaCallsTest, NodesOfACapture) {
  cudaStream_t stream = Handle<cudaStream_t>(0x3000);
  Open();
  const void *nodes[4] = {};
  size_t count = 7;
  for (CUstreamCaptureStatus status : { CU_STREAM_CAPTURE_STATUS_NONE, CU_STREAM_CAPTURE_STATUS_INVALIDATED }) {
    driver.capture = status;
    EXPECT_EQ(ops_->capture_nodes(dev_, stream, nodes, 4, &count), CGR__DEVICE_CAPTURE_INVALID);
    EXPECT_EQ(count, 0u);
  }
  driver.capture = CU_STREAM_CAPTURE_STATUS_ACTIVE;
  EXPECT_EQ(ops_->capture_nodes(dev_, stream, nullptr, 0, &count), CGR__DEVICE_OK);
  EXPECT_EQ(count, 3u);
  EXPECT_EQ(ops_->capture_nodes(dev_, stream, nodes, 2, &count), CGR__DEVICE_OK);
  EXPECT_EQ(count, 3u);
  EXPECT_EQ(nodes[2], nullptr) << "past the capacity";
  EXPECT_EQ(ops_->capture_nodes(dev_, stream, nodes, 4, &count), CGR__DEVICE_OK);
  std::vector<const void *> walked;
  auto add = [](void *context, const cgr__node_param *p) -> int {
    auto &handles = *static_cast<std::vector<const void *> *>(context);
    if (p->node == int64_t(handles.size()))
      handles.push_back(p->handle);
    return CGR__DEVICE_OK;
  };
  EXPECT_EQ(ops_->graph_walk(dev_, Handle<cgr__graph *>(0x5000), add, &walked), CGR__DEVICE_OK);
  EXPECT_EQ(walked, std::vector<const void *>(nodes, nodes + 3));
  for (const char *name : { "StreamGetCaptureInfo", "GraphGetNodes" }) {
    driver.failures = { { name, CUDA_ERROR_UNKNOWN } };
    EXPECT_EQ(ops_->capture_nodes(dev_, stream, nodes, 4, &count), CGR__DEVICE_FAILED) << name;
  }
  driver.failures.clear();
  EXPECT_EQ(ops_->close(dev_), CGR__DEVICE_OK);
}

// From CUDA 13.1 on: the half of the graph that was captured does not count, for the executable graph has one of its own.
TEST_F(CudaCallsTest, IdsForTools) {
  Open();
  const auto ids = [&] {
    std::vector<uint32_t> all;
    auto add = [](void *context, const cgr__node_param *p) -> int {
      static_cast<std::vector<uint32_t> *>(context)->push_back(p->tools_id);
      return CGR__DEVICE_OK;
    };
    cgr__exec *exec = nullptr;
    cgr__graph_info info = { 1, 1, 1, 1 };
    EXPECT_EQ(ops_->instantiate(dev_, Handle<cgr__graph *>(0x5000), &exec, &info), CGR__DEVICE_OK);
    EXPECT_EQ(ops_->graph_walk(dev_, Handle<cgr__graph *>(0x5000), add, &all), CGR__DEVICE_OK);
    all.push_back(info.tools_id);
    return all;
  };
  driver.nodes = { CU_GRAPH_NODE_TYPE_EMPTY, CU_GRAPH_NODE_TYPE_EMPTY };
  EXPECT_EQ(ids(), (std::vector<uint32_t>{ 0x100 + CU_GRAPH_NODE_TYPE_EMPTY, 0x200 + CU_GRAPH_NODE_TYPE_EMPTY, 9 }));
  driver.failures = { { "GraphNodeGetToolsId", CUDA_ERROR_UNKNOWN }, { "GraphExecGetId", CUDA_ERROR_UNKNOWN } };
  EXPECT_EQ(ids(), (std::vector<uint32_t>{ 0, 0, 0 }));
  driver.failures.clear();
  const cgr__cuda_functions all = cgr__cu;
  cgr__cu.GraphNodeGetToolsId = nullptr;
  cgr__cu.GraphExecGetId = nullptr;
  EXPECT_EQ(ids(), (std::vector<uint32_t>{ 0, 0, 0 })) << "an older driver";
  cgr__cu = all;
  EXPECT_EQ(ops_->close(dev_), CGR__DEVICE_OK);
}

TEST_F(CudaCallsTest, TheCallsOfAReplayAreOneCallOfTheDriverEach) {
  int capturing = 1;
  for (const std::vector<CUcontext> &before : { std::vector<CUcontext>(), { kOther }, { kOurs } }) {
    driver = Driver();
    driver.stack = before;
    Open();
    EXPECT_EQ(ops_->capture_status(dev_, Handle<cudaStream_t>(0x3000), &capturing), CGR__DEVICE_OK);
    EXPECT_EQ(ops_->exec_launch(dev_, Handle<cgr__exec *>(0x7000), Handle<cudaStream_t>(0x3000)), CGR__DEVICE_OK);
    ASSERT_EQ(driver.calls.size(), 2u);
    EXPECT_EQ(driver.calls[0].name, "StreamIsCapturing");
    EXPECT_EQ(driver.calls[1].name, "GraphLaunch");
    EXPECT_EQ(ops_->close(dev_), CGR__DEVICE_OK);
  }
}

TEST_F(CudaCallsTest, ADriverThatWantsTheContextCurrentGetsIt) {
  for (CUresult raw : { CUDA_ERROR_INVALID_CONTEXT, CUDA_ERROR_INVALID_HANDLE }) {
    int capturing = 0;
    driver = Driver();
    driver.stack = { kOther };
    driver.without_context = raw;
    driver.capture = CU_STREAM_CAPTURE_STATUS_ACTIVE;
    Open();
    EXPECT_EQ(ops_->capture_status(dev_, Handle<cudaStream_t>(0x3000), &capturing), CGR__DEVICE_OK);
    EXPECT_EQ(capturing, 1);
    EXPECT_EQ(ops_->exec_launch(dev_, Handle<cgr__exec *>(0x7000), Handle<cudaStream_t>(0x3000)), CGR__DEVICE_OK);
    EXPECT_EQ(driver.Count("GraphLaunch"), 2);
    EXPECT_EQ(driver.calls.back().name, "CtxPopCurrent");
    EXPECT_EQ(driver.stack, std::vector<CUcontext>{ kOther });
    EXPECT_EQ(ops_->close(dev_), CGR__DEVICE_OK);
  }
}

TEST_F(CudaCallsTest, CodesBecomeErrors) {
  const std::map<int, int> expected = {
    { 1, CGR__DEVICE_INVALID },           { 2, CGR__DEVICE_NO_MEMORY },         { 9, CGR__DEVICE_INVALID },
    { 98, CGR__DEVICE_UNSUPPORTED },      { 209, CGR__DEVICE_UNSUPPORTED },     { 222, CGR__DEVICE_UNSUPPORTED },
    { 400, CGR__DEVICE_INVALID },         { 600, CGR__DEVICE_NOT_READY },       { 801, CGR__DEVICE_UNSUPPORTED },
    { 900, CGR__DEVICE_CAPTURE_ILLEGAL }, { 901, CGR__DEVICE_CAPTURE_INVALID }, { 902, CGR__DEVICE_CAPTURE_INVALID },
    { 903, CGR__DEVICE_CAPTURE_INVALID }, { 904, CGR__DEVICE_CAPTURE_INVALID }, { 905, CGR__DEVICE_CAPTURE_INVALID },
    { 906, CGR__DEVICE_CAPTURE_ILLEGAL }, { 907, CGR__DEVICE_CAPTURE_ILLEGAL }, { 908, CGR__DEVICE_CAPTURE_INVALID },
    { 701, CGR__DEVICE_FAILED },          { 999, CGR__DEVICE_FAILED },
  };
  Open();
  for (const auto &entry : expected) {
    driver.failures["StreamQuery"] = static_cast<CUresult>(entry.first);
    dev_->last_raw = 0;
    EXPECT_EQ(ops_->stream_query(dev_, Handle<cudaStream_t>(0x3000)), entry.second) << entry.first;
    EXPECT_EQ(dev_->last_raw, entry.first == 600 ? 0 : entry.first);
  }
  driver.failures.clear();
  EXPECT_EQ(ops_->stream_query(dev_, Handle<cudaStream_t>(0x3000)), CGR__DEVICE_OK);
  EXPECT_EQ(ops_->close(dev_), CGR__DEVICE_OK);
}

TEST_F(CudaCallsTest, AStickyCodeEndsTheDevice) {
  for (int raw : { 4, 214, 220, 226, 700, 702, 709, 710, 714, 715, 716, 717, 718, 719, 721, 810, 911 }) {
    driver = Driver();
    Open();
    void *memory;
    ASSERT_EQ(ops_->mem_alloc(dev_, 64, CGR__MEMORY_DEVICE, &memory), CGR__DEVICE_OK);
    driver.failures["StreamQuery"] = static_cast<CUresult>(raw);
    EXPECT_EQ(ops_->stream_query(dev_, Handle<cudaStream_t>(0x3000)), CGR__DEVICE_DEAD) << raw;
    // From here the first cause is the answer to everything, and the driver is not asked; what destroys still works.
    driver.failures.clear();
    for (const std::string &name : kFunctions)
      driver.failures[name] = CUDA_ERROR_LAUNCH_FAILED;
    driver.failures.erase("CtxGetCurrent");
    driver.failures.erase("CtxPushCurrent");
    driver.failures.erase("CtxPopCurrent");
    driver.failures.erase("DevicePrimaryCtxRelease");
    driver.calls.clear();
    EXPECT_EQ(ops_->exec_launch(dev_, Handle<cgr__exec *>(0x7000), Handle<cudaStream_t>(0x3000)), CGR__DEVICE_DEAD);
    EXPECT_EQ(dev_->last_raw, raw);
    EXPECT_TRUE(driver.calls.empty());
    EXPECT_EQ(ops_->mem_free(dev_, memory, CGR__MEMORY_DEVICE), CGR__DEVICE_OK);
    EXPECT_EQ(ops_->stream_destroy(dev_, Handle<cudaStream_t>(0x3000)), CGR__DEVICE_OK);
    EXPECT_EQ(driver.Count("StreamSynchronize"), 0); // there is nothing to wait for
    EXPECT_EQ(driver.Count("StreamDestroy"), 1);
    EXPECT_EQ(ops_->event_destroy(dev_, Handle<cgr__event *>(0x6000)), CGR__DEVICE_OK);
    EXPECT_EQ(ops_->exec_destroy(dev_, Handle<cgr__exec *>(0x7000)), CGR__DEVICE_OK);
    EXPECT_EQ(ops_->graph_destroy(dev_, Handle<cgr__graph *>(0x5000)), CGR__DEVICE_OK);
    cgr__graph *graph;
    EXPECT_EQ(ops_->capture_end(dev_, Handle<cudaStream_t>(0x3000), &graph), CGR__DEVICE_DEAD);
    EXPECT_EQ(driver.Count("StreamEndCapture"), 1); // the thread must not be left in a capture
    EXPECT_EQ(ops_->close(dev_), CGR__DEVICE_OK);
    EXPECT_EQ(driver.contexts, 0);
  }
}

TEST_F(CudaCallsTest, FillsPickTheDriversWidth) {
  void *buffer = Handle<void *>(0x9000);
  auto stream = Handle<cudaStream_t>(0x3000);
  Open();
  const struct {
    size_t width;
    uint64_t value;
    const char *name;
    int calls;
  } cases[] = {
    { 1, 7, "MemsetD8Async", 1 },
    { 2, 7, "MemsetD16Async", 1 },
    { 4, 7, "MemsetD32Async", 1 },
    { 8, ~0ull, "MemsetD32Async", 1 },
    { 8, 0x0000000700000007ull, "MemsetD32Async", 1 },
    { 8, 7, "MemsetD2D32Async", 2 },
  };
  for (const auto &c : cases) {
    driver.calls.clear();
    EXPECT_EQ(ops_->fill(dev_, buffer, c.value, c.width, 5, stream), CGR__DEVICE_OK);
    EXPECT_EQ(driver.Count(c.name), c.calls) << c.width << " " << c.value;
  }
  driver.calls.clear();
  EXPECT_EQ(ops_->fill(dev_, buffer, 7, 3, 5, stream), CGR__DEVICE_INVALID);
  EXPECT_EQ(ops_->fill(dev_, Handle<void *>(0x9004), 7, 8, 5, stream), CGR__DEVICE_INVALID);
  EXPECT_EQ(ops_->fill(dev_, buffer, 7, 8, 0, stream), CGR__DEVICE_OK);
  for (const Call &call : driver.calls)
    EXPECT_EQ(call.name.find("Memset"), std::string::npos);
  EXPECT_EQ(ops_->close(dev_), CGR__DEVICE_OK);
}

int half;
CUresult CUDAAPI SecondHalfFails(CUdeviceptr_v2, size_t, unsigned, size_t, size_t, CUstream) {
  return half++ == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

TEST_F(CudaCallsTest, AFillThatIsHalfDoneIsNotNothing) {
  Open();
  auto real = cgr__cu.MemsetD2D32Async;
  cgr__cu.MemsetD2D32Async = SecondHalfFails;
  EXPECT_EQ(ops_->fill(dev_, Handle<void *>(0x9000), 7, 8, 5, Handle<cudaStream_t>(0x3000)), CGR__DEVICE_FAILED);
  cgr__cu.MemsetD2D32Async = real;
  driver.failures["MemsetD2D32Async"] = CUDA_ERROR_INVALID_VALUE;
  EXPECT_EQ(ops_->fill(dev_, Handle<void *>(0x9000), 7, 8, 5, Handle<cudaStream_t>(0x3000)), CGR__DEVICE_INVALID);
  EXPECT_EQ(ops_->close(dev_), CGR__DEVICE_OK);
}

TEST_F(CudaCallsTest, FreesAreCheckedBeforeTheDriverSeesThem) {
  void *memory, *pinned;
  Open();
  ASSERT_EQ(ops_->mem_alloc(dev_, 64, CGR__MEMORY_DEVICE, &memory), CGR__DEVICE_OK);
  ASSERT_EQ(ops_->mem_alloc(dev_, 64, CGR__MEMORY_PINNED, &pinned), CGR__DEVICE_OK);
  driver.calls.clear();
  EXPECT_EQ(ops_->mem_free(dev_, pinned, CGR__MEMORY_DEVICE), CGR__DEVICE_INVALID);
  EXPECT_EQ(ops_->mem_free(dev_, memory, CGR__MEMORY_PINNED), CGR__DEVICE_INVALID);
  EXPECT_EQ(ops_->mem_free(dev_, Handle<void *>(0x4321), CGR__MEMORY_DEVICE), CGR__DEVICE_INVALID);
  EXPECT_TRUE(driver.calls.empty());
  driver.failures["MemFree"] = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  EXPECT_EQ(ops_->mem_free(dev_, memory, CGR__MEMORY_DEVICE), CGR__DEVICE_CAPTURE_ILLEGAL);
  driver.failures.clear();
  EXPECT_EQ(ops_->mem_free(dev_, memory, CGR__MEMORY_DEVICE), CGR__DEVICE_OK);
  EXPECT_EQ(ops_->mem_free(dev_, memory, CGR__MEMORY_DEVICE), CGR__DEVICE_INVALID);
  driver.failures["MemFreeHost"] = CUDA_ERROR_UNKNOWN; // it may be gone
  EXPECT_EQ(ops_->mem_free(dev_, pinned, CGR__MEMORY_PINNED), CGR__DEVICE_FAILED);
  EXPECT_EQ(ops_->mem_free(dev_, pinned, CGR__MEMORY_PINNED), CGR__DEVICE_INVALID);
  EXPECT_EQ(driver.Count("MemFree"), 2);
  EXPECT_EQ(ops_->close(dev_), CGR__DEVICE_OK);
}

TEST_F(CudaCallsTest, AStreamThatCapturesIsNotDestroyed) {
  auto stream = Handle<cudaStream_t>(0x3000);
  Open();
  driver.failures["StreamSynchronize"] = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  EXPECT_EQ(ops_->stream_destroy(dev_, stream), CGR__DEVICE_CAPTURE_ILLEGAL);
  EXPECT_EQ(driver.Count("StreamDestroy"), 0);
  driver.failures["StreamSynchronize"] = CUDA_ERROR_UNKNOWN;
  EXPECT_EQ(ops_->stream_destroy(dev_, stream), CGR__DEVICE_FAILED); // gone all the same
  EXPECT_EQ(driver.Count("StreamDestroy"), 1);
  driver.failures.clear();
  EXPECT_EQ(ops_->close(dev_), CGR__DEVICE_OK);
}

TEST_F(CudaCallsTest, ACaptureIsEndedOnce) {
  auto stream = Handle<cudaStream_t>(0x3000);
  cgr__graph *graph = nullptr;
  Open();
  EXPECT_EQ(ops_->capture_end(dev_, stream, &graph), CGR__DEVICE_CAPTURE_INVALID);
  EXPECT_EQ(dev_->last_raw, 401);
  EXPECT_EQ(driver.Count("StreamEndCapture"), 0);
  ASSERT_EQ(ops_->capture_begin(dev_, stream), CGR__DEVICE_OK);
  driver.failures["StreamEndCapture"] = CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
  EXPECT_EQ(ops_->capture_end(dev_, stream, &graph), CGR__DEVICE_CAPTURE_INVALID);
  EXPECT_EQ(graph, nullptr);
  driver.failures.clear();
  EXPECT_EQ(ops_->capture_end(dev_, stream, &graph), CGR__DEVICE_OK);
  EXPECT_EQ(graph, Handle<cgr__graph *>(0x5000));
  driver.failures["StreamBeginCapture"] = CUDA_ERROR_ILLEGAL_STATE;
  EXPECT_EQ(ops_->capture_begin(dev_, stream), CGR__DEVICE_CAPTURE_ILLEGAL);
  driver.failures.clear();
  EXPECT_EQ(ops_->close(dev_), CGR__DEVICE_OK);
}

struct CountArgs {
  int *count;
};
void Count(const void *raw) { ++*static_cast<const CountArgs *>(raw)->count; }

TEST_F(CudaCallsTest, HostFunctionsKeepTheirArgumentsUntilTheyHaveRun) {
  int count = 0;
  CountArgs args = { &count };
  auto stream = Handle<cudaStream_t>(0x3000);
  Open();
  ASSERT_EQ(ops_->host_call(dev_, Count, &args, sizeof args, stream), CGR__DEVICE_OK);
  args.count = nullptr;
  driver.host_function(driver.host_data); // frees its copy
  EXPECT_EQ(count, 1);
  args.count = &count;
  ASSERT_EQ(ops_->host_call(dev_, Count, &args, sizeof args, stream), CGR__DEVICE_OK); // never runs: close frees the copy
  driver.capture = CU_STREAM_CAPTURE_STATUS_ACTIVE;
  ASSERT_EQ(ops_->host_call(dev_, Count, &args, sizeof args, stream), CGR__DEVICE_OK);
  driver.host_function(driver.host_data);
  driver.host_function(driver.host_data); // as often as the graph is launched
  driver.free_object(driver.object);
  EXPECT_EQ(count, 3);
  driver.failures["UserObjectCreate"] = CUDA_ERROR_UNKNOWN;
  EXPECT_EQ(ops_->host_call(dev_, Count, &args, sizeof args, stream), CGR__DEVICE_FAILED);
  driver.failures.clear();
  driver.failures["GraphRetainUserObject"] = CUDA_ERROR_UNKNOWN;
  EXPECT_EQ(ops_->host_call(dev_, Count, &args, sizeof args, stream), CGR__DEVICE_FAILED);
  EXPECT_EQ(driver.Count("UserObjectRelease"), 1);
  driver.failures.clear();
  driver.capture = CU_STREAM_CAPTURE_STATUS_INVALIDATED;
  EXPECT_EQ(ops_->host_call(dev_, Count, &args, sizeof args, stream), CGR__DEVICE_CAPTURE_INVALID);
  EXPECT_EQ(ops_->close(dev_), CGR__DEVICE_OK);
  EXPECT_EQ(count, 3);
}

TEST_F(CudaCallsTest, OpeningThatFailsLeavesNothing) {
  cgr_device_config config = CGR_DEVICE_CONFIG_INIT;
  for (const char *name : { "DeviceGet", "DeviceGetName", "DeviceGetAttribute", "DevicePrimaryCtxRetain", "CtxGetCurrent",
                            "CtxPushCurrent", "StreamCreateWithPriority" }) {
    driver = Driver();
    driver.failures[name] = CUDA_ERROR_OUT_OF_MEMORY;
    cgr_device *dev = Handle<cgr_device *>(1);
    EXPECT_EQ(cgr__cuda_device_open(0, &config, &dev), CGR__DEVICE_NO_MEMORY) << name;
    EXPECT_EQ(dev, nullptr) << name;
    EXPECT_EQ(driver.contexts, 0) << name;
    EXPECT_TRUE(driver.stack.empty()) << name;
    EXPECT_EQ(cgr_last_device_code(), 2) << name;
  }
  cgr_device *dev = nullptr;
  driver = Driver();
  EXPECT_EQ(cgr__cuda_device_open(2, &config, &dev), CGR__DEVICE_UNSUPPORTED);
  EXPECT_EQ(cgr__cuda_device_open(-1, &config, &dev), CGR__DEVICE_UNSUPPORTED);
  EXPECT_TRUE(driver.calls.empty());
}

TEST_F(CudaCallsTest, CloseGivesBackWhatOpenTook) {
  Open();
  EXPECT_EQ(driver.contexts, 1);
  EXPECT_EQ(driver.streams, 1);
  driver.failures["CtxSynchronize"] = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  EXPECT_EQ(ops_->close(dev_), CGR__DEVICE_CAPTURE_ILLEGAL); // it is still open
  EXPECT_EQ(driver.contexts, 1);
  EXPECT_EQ(driver.streams, 1);
  EXPECT_EQ(dev_->magic, CGR__DEVICE_MAGIC);
  driver.failures["CtxSynchronize"] = CUDA_ERROR_UNKNOWN;
  EXPECT_EQ(ops_->close(dev_), CGR__DEVICE_FAILED); // it is gone
  EXPECT_EQ(cgr_last_device_code(), 999);
  EXPECT_EQ(driver.contexts, 0);
  EXPECT_EQ(driver.streams, 0);
}

TEST_F(CudaCallsTest, AnUrgentStreamHasTheHighestPriority) {
  cudaStream_t stream = nullptr;
  Open();
  EXPECT_EQ(ops_->stream_create(dev_, CGR__STREAM_URGENT, &stream), CGR__DEVICE_OK);
  EXPECT_EQ(driver.priority, -5);
  EXPECT_EQ(ops_->stream_destroy(dev_, stream), CGR__DEVICE_OK);
  EXPECT_EQ(ops_->stream_create(dev_, CGR__STREAM_NORMAL, &stream), CGR__DEVICE_OK);
  EXPECT_EQ(driver.priority, 0);
  EXPECT_EQ(ops_->stream_destroy(dev_, stream), CGR__DEVICE_OK);
  driver.failures["CtxGetStreamPriorityRange"] = CUDA_ERROR_UNKNOWN;
  EXPECT_EQ(ops_->stream_create(dev_, CGR__STREAM_URGENT, &stream), CGR__DEVICE_FAILED);
  EXPECT_EQ(stream, nullptr);
  EXPECT_EQ(driver.streams, 1); // the device's own
  EXPECT_EQ(ops_->close(dev_), CGR__DEVICE_OK);
}

TEST_F(CudaCallsTest, InfoTellsOfTheLimit) {
  for (int32_t max : { 0, 80, 90, 100 }) {
    cgr_device_config config = CGR_DEVICE_CONFIG_INIT;
    cgr_device_info info = CGR_DEVICE_INFO_INIT;
    config.max_capability = max;
    ASSERT_EQ(cgr__cuda_device_open(1, &config, &dev_), CGR__DEVICE_OK);
    ASSERT_EQ(dev_->ops->info(dev_, &info), CGR__DEVICE_OK);
    EXPECT_EQ(info.ordinal, 1);
    EXPECT_EQ(info.compute_capability, 90);
    EXPECT_EQ(info.kernel_capability, max == 80 ? 80 : 90);
    EXPECT_EQ(info.driver_version, 12040);
    EXPECT_STREQ(info.name, "Fake");
    EXPECT_EQ(dev_->ops->close(dev_), CGR__DEVICE_OK);
  }
}

} // namespace

#else

TEST(CudaCallsTest, NeedsABuildWithCuda) { GTEST_SKIP() << "built without CUDA"; }

#endif

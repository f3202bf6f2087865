// What the CUDA device asks of the driver, and in which state of the calling thread. The driver is a fake that only records
// calls, so this runs on every machine with a toolkit, GPU or not.
#include "devices/device.h"

#if CGR_TEST_CUDA
#include "tests/devices/fake_driver.h"

namespace {

// The thread has no context, another one, or ours: the driver sees ours, and the thread gets back what it had. A replay's calls
// are made in whatever context is current.
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
    EXPECT_EQ(driver.Count("CtxPushCurrent") == 0, ours); // if ours is current, nothing is pushed
    EXPECT_EQ(driver.Count("CtxPushCurrent"), driver.Count("CtxPopCurrent"));
    EXPECT_EQ(ops_->close(dev_), CGR__DEVICE_OK);
    EXPECT_EQ(driver.stack, before);
    EXPECT_EQ(driver.contexts, 0);
  }
}

// Whatever fails, the thread is left as it was, and calls that destroy do not report a lost device.
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
    // From here every call returns the first cause without asking the driver; calls that destroy still work.
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
  EXPECT_EQ(ops_->stream_destroy(dev_, stream), CGR__DEVICE_FAILED); // gone anyway
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

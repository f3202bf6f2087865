// What a call leaves unchanged in the calling thread: its current context and device, its pending CUDA error, its captures and
// those of others. One GPU, with CUDA's runtime used alongside the library, as an engine does.
#include <functional>
#include <thread>

#include "cgr/device.h"
#include "tests/devices/kernels.h"
#include "tests/support/devices.h"

#if CGR_TEST_CUDA
#include <cuda_runtime_api.h>

extern "C" {
#include "devices/cuda/driver.h"
}
#endif

namespace {

class CudaThreadTest : public ::testing::Test {
protected:
  void SetUp() override { CGR_SKIP_WITHOUT_DEVICE(cgr_test::CudaParam()); }
};

#if CGR_TEST_CUDA

// What the thread has, without changing it.
struct ThreadState {
  ThreadState() : pending(cudaPeekAtLastError()) {
    EXPECT_EQ(cgr__cu.CtxGetCurrent(&context), CUDA_SUCCESS);
    EXPECT_EQ(cudaGetDevice(&device), cudaSuccess);
  }
  cudaError_t pending;
  int device = -1;
  CUcontext context = nullptr;
};

class Watch {
public:
  void Same(const char *what) const {
    ThreadState now;
    EXPECT_EQ(now.pending, before_.pending) << what;
    EXPECT_EQ(now.device, before_.device) << what;
    EXPECT_EQ(now.context, before_.context) << what;
  }

private:
  ThreadState before_;
};

#define GOOD(...)                                                                        \
  do {                                                                                   \
    EXPECT_EQ(__VA_ARGS__, CGR_OK) << cgr_last_message() << " (" << #__VA_ARGS__ << ")"; \
    watch.Same(#__VA_ARGS__);                                                            \
  } while (0)
#define BAD(status, ...)                                                                 \
  do {                                                                                   \
    EXPECT_EQ(__VA_ARGS__, status) << cgr_last_message() << " (" << #__VA_ARGS__ << ")"; \
    watch.Same(#__VA_ARGS__);                                                            \
  } while (0)
#define TABLE(error, ...)                                                          \
  do {                                                                             \
    EXPECT_EQ(__VA_ARGS__, error) << dev->last_raw << " (" << #__VA_ARGS__ << ")"; \
    watch.Same(#__VA_ARGS__);                                                      \
  } while (0)

void Nothing(const void *) {}

// Every public function, succeeding and failing.
void CallEverything() {
  Watch watch;
  cgr_device *dev = nullptr, *none = nullptr;
  cgr_device_info info = CGR_DEVICE_INFO_INIT;
  cudaStream_t stream = nullptr;
  cgr_event *event = nullptr;
  void *memory = nullptr, *pinned = nullptr, *huge = nullptr;
  char here[16];
  const size_t too_much = static_cast<size_t>(1) << 60;
  BAD(CGR_ERROR_UNSUPPORTED, cgr_device_open("cuda:9999", nullptr, &none));
  GOOD(cgr_device_open("cuda:0", nullptr, &dev));
  ASSERT_NE(dev, nullptr);
  GOOD(cgr_device_get_info(dev, &info));
  GOOD(cgr_memory_alloc(dev, 4096, &memory));
  GOOD(cgr_memory_alloc_pinned(dev, 4096, &pinned));
  BAD(CGR_ERROR_OUT_OF_MEMORY, cgr_memory_alloc(dev, too_much, &huge));
  BAD(CGR_ERROR_OUT_OF_MEMORY, cgr_memory_alloc_pinned(dev, too_much, &huge));
  BAD(CGR_ERROR_INVALID_ARGUMENT, cgr_memory_free(dev, here));
  GOOD(cgr_stream_create(dev, &stream));
  GOOD(cgr_event_create(dev, &event));
  GOOD(cgr_copy(dev, memory, pinned, 4096, stream));
  GOOD(cgr_fill(dev, memory, 7, 4096, stream));
  GOOD(cgr_launch_host(dev, Nothing, here, sizeof here, stream));
  GOOD(cgr_event_record(dev, event, stream));
  GOOD(cgr_event_wait(dev, event, stream));
  GOOD(cgr_stream_synchronize(dev, stream));
  BAD(CGR_ERROR_STATE, cgr_device_close(dev));
  TABLE(CGR__DEVICE_OK, dev->ops->capture_begin(dev, stream));
  BAD(CGR_ERROR_CAPTURE, cgr_stream_synchronize(dev, stream));
  BAD(CGR_ERROR_CAPTURE, cgr_fill(dev, memory, 7, 4096, stream)); // invalid by now
  cgr__graph *graph = nullptr;
  TABLE(CGR__DEVICE_CAPTURE_INVALID, dev->ops->capture_end(dev, stream, &graph));
  GOOD(cgr_event_destroy(dev, event));
  GOOD(cgr_stream_destroy(dev, stream));
  GOOD(cgr_memory_free(dev, memory));
  GOOD(cgr_memory_free_pinned(dev, pinned));
  GOOD(cgr_device_close(dev));
}

// The rest of the table.
void CallTheTable() {
  Watch watch;
  const cgr__kernel scale = { "scale", sizeof(test_scale_args), nullptr, test_scale, test_scale_preload, 0 };
  const cgr__kernel nowhere = { "nowhere", sizeof(test_scale_args), nullptr, test_scale_nowhere, nullptr, 0 };
  cgr_device *dev = nullptr;
  cgr__graph *graph = nullptr;
  cgr__exec *exec = nullptr;
  cgr__event *event = nullptr;
  cudaStream_t stream = nullptr;
  void *memory = nullptr;
  int capturing = 0;
  GOOD(cgr_device_open("cuda:0", nullptr, &dev));
  ASSERT_NE(dev, nullptr);
  const cgr__device_ops *ops = dev->ops;
  TABLE(CGR__DEVICE_OK, ops->stream_create(dev, CGR__STREAM_NORMAL, &stream));
  TABLE(CGR__DEVICE_OK, ops->event_create(dev, &event));
  TABLE(CGR__DEVICE_OK, ops->mem_alloc(dev, 4096, CGR__MEMORY_PINNED, &memory));
  test_scale_args args = { static_cast<int *>(memory), 100, 1 };
  TABLE(CGR__DEVICE_OK, ops->preload(dev, &scale));
  TABLE(CGR__DEVICE_OK, ops->launch(dev, &scale, &args, stream));
  TABLE(CGR__DEVICE_INVALID, ops->launch(dev, &nowhere, &args, stream));
  TABLE(CGR__DEVICE_OK, ops->fill(dev, memory, 1ull << 32, 8, 100, stream));
  TABLE(CGR__DEVICE_OK, ops->event_record(dev, event, stream));
  TABLE(CGR__DEVICE_OK, ops->event_sync(dev, event));
  TABLE(CGR__DEVICE_OK, ops->event_query(dev, event));
  TABLE(CGR__DEVICE_OK, ops->stream_sync(dev, stream));
  TABLE(CGR__DEVICE_OK, ops->stream_query(dev, stream));
  TABLE(CGR__DEVICE_CAPTURE_INVALID, ops->capture_end(dev, stream, &graph));
  TABLE(CGR__DEVICE_OK, ops->capture_begin(dev, stream));
  TABLE(CGR__DEVICE_OK, ops->capture_status(dev, stream, &capturing));
  TABLE(CGR__DEVICE_OK, ops->launch(dev, &scale, &args, stream));
  TABLE(CGR__DEVICE_OK, ops->host_call(dev, Nothing, &args, sizeof args, stream));
  TABLE(CGR__DEVICE_OK, ops->capture_end(dev, stream, &graph));
  TABLE(CGR__DEVICE_OK, ops->instantiate(dev, graph, &exec, nullptr));
  TABLE(CGR__DEVICE_OK, ops->exec_launch(dev, exec, stream));
  int error = ops->stream_query(dev, stream);
  EXPECT_TRUE(error == CGR__DEVICE_OK || error == CGR__DEVICE_NOT_READY) << error;
  watch.Same("stream_query while work may be pending");
  TABLE(CGR__DEVICE_OK, ops->exec_destroy(dev, exec));
  TABLE(CGR__DEVICE_OK, ops->graph_destroy(dev, graph));
  TABLE(CGR__DEVICE_OK, ops->stream_destroy(dev, stream));
  TABLE(CGR__DEVICE_OK, ops->event_destroy(dev, event));
  TABLE(CGR__DEVICE_OK, ops->mem_free(dev, memory, CGR__MEMORY_PINNED));
  GOOD(cgr_device_close(dev));
}

void CallAll() {
  CallEverything();
  CallTheTable();
}

// Runs on a new thread, on which nothing is current and nothing pending at first.
void OnAThread(const std::function<void()> &prepare) {
  std::thread([&] {
    prepare();
    CallAll();
  }).join();
}

TEST_F(CudaThreadTest, AThreadWithoutAContextStaysWithout) {
  OnAThread([] {
    CUcontext context = nullptr;
    ASSERT_EQ(cgr__cu.CtxGetCurrent(&context), CUDA_SUCCESS);
    ASSERT_EQ(context, nullptr);
  });
}

TEST_F(CudaThreadTest, ACurrentDeviceStaysCurrent) {
  OnAThread([] { ASSERT_EQ(cudaSetDevice(0), cudaSuccess); });
}

TEST_F(CudaThreadTest, AnErrorOfABadDeviceStaysPending) {
  OnAThread([] {
    ASSERT_EQ(cudaSetDevice(9999), cudaErrorInvalidDevice);
    ASSERT_EQ(cudaPeekAtLastError(), cudaErrorInvalidDevice);
  });
}

TEST_F(CudaThreadTest, AnErrorOfABadLaunchStaysPending) {
  OnAThread([] {
    ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
    ASSERT_NE(cudaLaunchKernel(reinterpret_cast<const void *>(Nothing), dim3(1), dim3(1), nullptr, 0, nullptr), cudaSuccess);
    ASSERT_NE(cudaPeekAtLastError(), cudaSuccess);
  });
}

// ------------------------------------------------------------------------------------------------- captures of others

// The engine's own capture, in CUDA's default mode, on a stream of its own.
class GlobalCapture {
public:
  GlobalCapture() {
    EXPECT_EQ(cudaSetDevice(0), cudaSuccess);
    EXPECT_EQ(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), cudaSuccess);
    EXPECT_EQ(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeGlobal), cudaSuccess);
  }
  // It was not invalidated.
  ~GlobalCapture() {
    cudaGraph_t graph = nullptr;
    EXPECT_EQ(cudaStreamEndCapture(stream_, &graph), cudaSuccess);
    EXPECT_NE(graph, nullptr);
    if (graph != nullptr) {
      EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
    }
    EXPECT_EQ(cudaStreamDestroy(stream_), cudaSuccess);
  }

private:
  cudaStream_t stream_ = nullptr;
};

TEST_F(CudaThreadTest, AnotherThreadsGlobalCaptureIsLeftAlone) {
  const cgr__kernel scale = { "scale", sizeof(test_scale_args), nullptr, test_scale, test_scale_preload, 0 };
  cgr_device *dev = cgr_test::OpenDevice(cgr_test::CudaParam());
  ASSERT_NE(dev, nullptr);
  {
    GlobalCapture capture;
    std::thread([&] {
      const cgr__device_ops *ops = dev->ops;
      cgr_device_info info = CGR_DEVICE_INFO_INIT;
      cudaStream_t stream;
      cgr__event *event;
      cgr__graph *graph;
      cgr__exec *exec;
      void *memory, *pinned;
      ASSERT_EQ(ops->info(dev, &info), CGR__DEVICE_OK);
      ASSERT_EQ(ops->mem_alloc(dev, 4096, CGR__MEMORY_DEVICE, &memory), CGR__DEVICE_OK);
      ASSERT_EQ(ops->mem_alloc(dev, 4096, CGR__MEMORY_PINNED, &pinned), CGR__DEVICE_OK);
      ASSERT_EQ(ops->stream_create(dev, CGR__STREAM_NORMAL, &stream), CGR__DEVICE_OK);
      ASSERT_EQ(ops->event_create(dev, &event), CGR__DEVICE_OK);
      ASSERT_EQ(ops->preload(dev, &scale), CGR__DEVICE_OK);
      ASSERT_EQ(ops->copy(dev, memory, pinned, 4096, stream), CGR__DEVICE_OK);
      ASSERT_EQ(ops->event_record(dev, event, stream), CGR__DEVICE_OK);
      EXPECT_EQ(ops->event_sync(dev, event), CGR__DEVICE_OK);
      EXPECT_EQ(ops->event_query(dev, event), CGR__DEVICE_OK);
      EXPECT_EQ(ops->stream_sync(dev, stream), CGR__DEVICE_OK);
      EXPECT_EQ(ops->stream_query(dev, stream), CGR__DEVICE_OK);
      ASSERT_EQ(ops->capture_begin(dev, stream), CGR__DEVICE_OK);
      ASSERT_EQ(ops->fill(dev, memory, 0, 8, 512, stream), CGR__DEVICE_OK);
      ASSERT_EQ(ops->capture_end(dev, stream, &graph), CGR__DEVICE_OK);
      ASSERT_EQ(ops->instantiate(dev, graph, &exec, nullptr), CGR__DEVICE_OK);
      ASSERT_EQ(ops->exec_launch(dev, exec, stream), CGR__DEVICE_OK);
      EXPECT_EQ(ops->exec_destroy(dev, exec), CGR__DEVICE_OK);
      EXPECT_EQ(ops->graph_destroy(dev, graph), CGR__DEVICE_OK);
      EXPECT_EQ(ops->stream_destroy(dev, stream), CGR__DEVICE_OK);
      EXPECT_EQ(ops->event_destroy(dev, event), CGR__DEVICE_OK);
      EXPECT_EQ(ops->mem_free(dev, memory, CGR__MEMORY_DEVICE), CGR__DEVICE_OK);
      EXPECT_EQ(ops->mem_free(dev, pinned, CGR__MEMORY_PINNED), CGR__DEVICE_OK);
    }).join();
  }
  EXPECT_EQ(dev->ops->close(dev), CGR__DEVICE_OK);
}

// What the header calls legal in a capture is legal in one of the calling thread's own too.
TEST_F(CudaThreadTest, AThreadsOwnCaptureIsLeftAloneByWhatIsLegalInIt) {
  cgr_device *dev = cgr_test::OpenDevice(cgr_test::CudaParam());
  ASSERT_NE(dev, nullptr);
  std::thread([&] {
    cgr_device_info info = CGR_DEVICE_INFO_INIT;
    cudaStream_t stream;
    cgr_event *event;
    GlobalCapture capture;
    EXPECT_EQ(cgr_device_get_info(dev, &info), CGR_OK) << cgr_last_message();
    EXPECT_EQ(cgr_stream_create(dev, &stream), CGR_OK) << cgr_last_message();
    EXPECT_EQ(cgr_event_create(dev, &event), CGR_OK) << cgr_last_message();
    EXPECT_EQ(cgr_event_destroy(dev, event), CGR_OK) << cgr_last_message();
    EXPECT_EQ(cgr_stream_destroy(dev, stream), CGR_OK) << cgr_last_message();
  }).join();
  EXPECT_EQ(dev->ops->close(dev), CGR__DEVICE_OK);
}

#else

TEST_F(CudaThreadTest, NeedsABuildWithCuda) {}

#endif

} // namespace

// Capture and graphs: what is recorded, what is refused, and that a refused capture affects nothing else.
#include <thread>

#include "tests/devices/device_case.h"

namespace {

class CaptureTest : public cgr_test::DeviceCase {
protected:
  void SetUpOnDevice() override {
    a_ = NewStream(), b_ = NewStream();
    fork_ = NewEvent(), join_ = NewEvent();
    words_ = NewPinned<int>(4);
  }

  bool Capturing(cudaStream_t stream) {
    int capturing = -1;
    EXPECT_EQ(ops_->capture_status(dev_, stream, &capturing), CGR__DEVICE_OK);
    return capturing != 0;
  }

  int Copy(int to, int from, cudaStream_t stream) { return ops_->copy(dev_, words_ + to, words_ + from, sizeof(int), stream); }

  void Begin(cudaStream_t stream) {
    ASSERT_EQ(ops_->capture_begin(dev_, stream), CGR__DEVICE_OK);
    ASSERT_TRUE(Capturing(stream));
  }

  // Ends a capture that must fail with `error`; afterwards the streams work, and so does a new capture.
  void EndsWith(int error) {
    cgr__graph *graph = reinterpret_cast<cgr__graph *>(this);
    EXPECT_EQ(ops_->capture_end(dev_, a_, &graph), error);
    EXPECT_EQ(graph, nullptr);
    for (cudaStream_t stream : { a_, b_ }) {
      EXPECT_FALSE(Capturing(stream));
      words_[0] = 11;
      words_[1] = 0;
      EXPECT_EQ(Copy(1, 0, stream), CGR__DEVICE_OK);
      EXPECT_EQ(ops_->stream_sync(dev_, stream), CGR__DEVICE_OK);
      EXPECT_EQ(words_[1], 11);
    }
    Begin(a_);
    EXPECT_EQ(Copy(1, 0, a_), CGR__DEVICE_OK);
    EXPECT_EQ(ops_->capture_end(dev_, a_, &graph), CGR__DEVICE_OK);
    ASSERT_NE(graph, nullptr);
    EXPECT_EQ(ops_->graph_destroy(dev_, graph), CGR__DEVICE_OK);
  }

  cudaStream_t a_ = nullptr, b_ = nullptr;
  cgr__event *fork_ = nullptr, *join_ = nullptr;
  int *words_ = nullptr;
};

TEST_P(CaptureTest, RecordsWithoutExecutingAndReplaysWithFreshMemory) {
  cgr__graph_info info = { -1, -1, -1, 1, -1 };
  words_[0] = 5;
  Begin(a_);
  ASSERT_EQ(Copy(1, 0, a_), CGR__DEVICE_OK);
  ASSERT_EQ(Copy(2, 1, a_), CGR__DEVICE_OK);
  ASSERT_EQ(ops_->fill(dev_, words_ + 3, 0x01, 1, sizeof(int), a_), CGR__DEVICE_OK);
  cgr__exec *exec = Captured(a_, &info);
  EXPECT_FALSE(Capturing(a_));
  ASSERT_EQ(ops_->stream_sync(dev_, a_), CGR__DEVICE_OK);
  EXPECT_EQ(words_[2], 0);
  EXPECT_EQ(info.num_nodes, 3);
  EXPECT_EQ(info.width, 1);
  EXPECT_EQ(info.all_nodes, 3);
  for (int value = 7; value < 12; value++) {
    words_[0] = value;
    words_[3] = 0;
    ASSERT_EQ(ops_->exec_launch(dev_, exec, b_), CGR__DEVICE_OK);
    ASSERT_EQ(ops_->stream_sync(dev_, b_), CGR__DEVICE_OK);
    EXPECT_EQ(words_[2], value);
    EXPECT_EQ(words_[3], 0x01010101);
  }
}

struct AddArgs {
  int *target;
  int value;
};

void Add(const void *raw) {
  const auto *args = static_cast<const AddArgs *>(raw);
  *args->target += args->value;
}

TEST_P(CaptureTest, HostFunctionsKeepTheirArguments) {
  AddArgs args = { words_, 3 };
  Begin(a_);
  ASSERT_EQ(ops_->host_call(dev_, Add, &args, sizeof args, a_), CGR__DEVICE_OK);
  args.value = 100;
  ASSERT_EQ(ops_->host_call(dev_, Add, &args, sizeof args, a_), CGR__DEVICE_OK);
  args.value = 12345;
  cgr__exec *exec = Captured(a_);
  for (int i = 0; i < 10; i++)
    ASSERT_EQ(ops_->exec_launch(dev_, exec, i % 2 ? a_ : b_), CGR__DEVICE_OK);
  // One exec runs once at a time and in launch order, also over two streams: b's last launch is ordered before a's.
  ASSERT_EQ(ops_->stream_sync(dev_, a_), CGR__DEVICE_OK);
  EXPECT_EQ(words_[0], 1030);
}

TEST_P(CaptureTest, AForkThatIsJoinedBecomesPartOfTheGraph) {
  cgr__graph_info info;
  Begin(a_);
  ASSERT_EQ(Copy(1, 0, a_), CGR__DEVICE_OK);
  ASSERT_EQ(ops_->event_record(dev_, fork_, a_), CGR__DEVICE_OK);
  ASSERT_EQ(ops_->event_wait(dev_, fork_, b_), CGR__DEVICE_OK);
  EXPECT_TRUE(Capturing(b_));
  ASSERT_EQ(Copy(2, 1, b_), CGR__DEVICE_OK);
  ASSERT_EQ(ops_->event_record(dev_, join_, b_), CGR__DEVICE_OK);
  ASSERT_EQ(ops_->event_wait(dev_, join_, a_), CGR__DEVICE_OK);
  ASSERT_EQ(Copy(3, 2, a_), CGR__DEVICE_OK);
  cgr__exec *exec = Captured(a_, &info);
  EXPECT_FALSE(Capturing(b_));
  EXPECT_EQ(info.num_nodes, 3);
  words_[0] = 42;
  ASSERT_EQ(ops_->exec_launch(dev_, exec, a_), CGR__DEVICE_OK);
  ASSERT_EQ(ops_->stream_sync(dev_, a_), CGR__DEVICE_OK);
  EXPECT_EQ(words_[3], 42);
}

TEST_P(CaptureTest, AnEmptyCaptureIsAGraphWithoutNodes) {
  cgr__graph_info info;
  Begin(a_);
  cgr__exec *exec = Captured(a_, &info);
  EXPECT_EQ(info.num_nodes, 0);
  EXPECT_EQ(info.width, 0);
  ASSERT_EQ(ops_->exec_launch(dev_, exec, a_), CGR__DEVICE_OK);
  ASSERT_EQ(ops_->stream_sync(dev_, a_), CGR__DEVICE_OK);
}

TEST_P(CaptureTest, AGraphLaunchedInACaptureIsRefused) {
  cgr__graph *none;
  Begin(a_);
  ASSERT_EQ(Copy(2, 1, a_), CGR__DEVICE_OK);
  cgr__exec *exec = Captured(a_);
  Begin(a_);
  EXPECT_EQ(ops_->exec_launch(dev_, exec, a_), CGR__DEVICE_CAPTURE_ILLEGAL);
  EXPECT_NE(ops_->capture_end(dev_, a_, &none), CGR__DEVICE_OK);
  EXPECT_EQ(none, nullptr);
  words_[1] = 9;
  ASSERT_EQ(ops_->exec_launch(dev_, exec, a_), CGR__DEVICE_OK);
  ASSERT_EQ(ops_->stream_sync(dev_, a_), CGR__DEVICE_OK);
  EXPECT_EQ(words_[2], 9);
}

TEST_P(CaptureTest, AnExecDestroyedInFlightStillRuns) {
  cgr__graph *graph;
  cgr__exec *exec;
  AddArgs args = { words_, 1 };
  Begin(a_);
  ASSERT_EQ(ops_->host_call(dev_, Add, &args, sizeof args, a_), CGR__DEVICE_OK);
  ASSERT_EQ(ops_->capture_end(dev_, a_, &graph), CGR__DEVICE_OK);
  ASSERT_EQ(ops_->instantiate(dev_, graph, &exec, nullptr), CGR__DEVICE_OK);
  for (int i = 0; i < 5; i++)
    ASSERT_EQ(ops_->exec_launch(dev_, exec, a_), CGR__DEVICE_OK);
  ASSERT_EQ(ops_->exec_destroy(dev_, exec), CGR__DEVICE_OK);
  ASSERT_EQ(ops_->graph_destroy(dev_, graph), CGR__DEVICE_OK);
  ASSERT_EQ(ops_->stream_sync(dev_, a_), CGR__DEVICE_OK);
  EXPECT_EQ(words_[0], 5);
}

// ----------------------------------------------------------------------------------------------------------- refusals

TEST_P(CaptureTest, EndWithoutACapture) {
  cgr__graph *graph = reinterpret_cast<cgr__graph *>(this);
  EXPECT_EQ(ops_->capture_end(dev_, a_, &graph), CGR__DEVICE_CAPTURE_INVALID);
  EXPECT_EQ(graph, nullptr);
}

TEST_P(CaptureTest, BeginTwiceIsIllegal) {
  cgr__graph *graph;
  Begin(a_);
  EXPECT_EQ(ops_->capture_begin(dev_, a_), CGR__DEVICE_CAPTURE_ILLEGAL);
  int error = ops_->capture_end(dev_, a_, &graph);
  if (error == CGR__DEVICE_OK)
    ops_->graph_destroy(dev_, graph);
  EXPECT_FALSE(Capturing(a_));
}

TEST_P(CaptureTest, SyncOfACapturingStreamInvalidates) {
  Begin(a_);
  ASSERT_EQ(Copy(1, 0, a_), CGR__DEVICE_OK);
  EXPECT_EQ(ops_->stream_sync(dev_, a_), CGR__DEVICE_CAPTURE_ILLEGAL);
  EXPECT_EQ(dev_->last_raw, 900);
  EXPECT_TRUE(Capturing(a_));
  EXPECT_EQ(Copy(1, 0, a_), CGR__DEVICE_CAPTURE_INVALID);
  EXPECT_EQ(dev_->last_raw, 901);
  EndsWith(CGR__DEVICE_CAPTURE_INVALID);
}

TEST_P(CaptureTest, QueryOfACapturingStreamInvalidates) {
  Begin(a_);
  EXPECT_EQ(ops_->stream_query(dev_, a_), CGR__DEVICE_CAPTURE_ILLEGAL);
  EndsWith(CGR__DEVICE_CAPTURE_INVALID);
}

TEST_P(CaptureTest, DestroyOfACapturingStreamIsRefused) {
  Begin(a_);
  EXPECT_EQ(ops_->stream_destroy(dev_, a_), CGR__DEVICE_CAPTURE_ILLEGAL);
  EndsWith(CGR__DEVICE_CAPTURE_INVALID);
}

TEST_P(CaptureTest, AllocationByTheCapturingThreadInvalidates) {
  void *memory = nullptr;
  Begin(a_);
  EXPECT_EQ(ops_->mem_alloc(dev_, 64, CGR__MEMORY_DEVICE, &memory), CGR__DEVICE_CAPTURE_ILLEGAL);
  EXPECT_EQ(memory, nullptr);
  EndsWith(CGR__DEVICE_CAPTURE_INVALID);
}

TEST_P(CaptureTest, AllocationByAnotherThreadIsFine) {
  cgr__graph *graph;
  Begin(a_);
  std::thread([this] {
    void *memory = nullptr;
    EXPECT_EQ(ops_->mem_alloc(dev_, 64, CGR__MEMORY_DEVICE, &memory), CGR__DEVICE_OK);
    EXPECT_EQ(ops_->stream_sync(dev_, b_), CGR__DEVICE_OK);
    EXPECT_EQ(ops_->mem_free(dev_, memory, CGR__MEMORY_DEVICE), CGR__DEVICE_OK);
  }).join();
  ASSERT_EQ(ops_->capture_end(dev_, a_, &graph), CGR__DEVICE_OK);
  ASSERT_EQ(ops_->graph_destroy(dev_, graph), CGR__DEVICE_OK);
}

TEST_P(CaptureTest, HostSideUseOfACapturedEventInvalidates) {
  Begin(a_);
  ASSERT_EQ(ops_->event_record(dev_, fork_, a_), CGR__DEVICE_OK);
  EXPECT_EQ(ops_->event_query(dev_, fork_), CGR__DEVICE_CAPTURE_ILLEGAL);
  EXPECT_NE(ops_->event_sync(dev_, fork_), CGR__DEVICE_OK);
  EndsWith(CGR__DEVICE_CAPTURE_INVALID);
  // The event is usable again once it is recorded outside.
  ASSERT_EQ(ops_->event_record(dev_, fork_, a_), CGR__DEVICE_OK);
  EXPECT_EQ(ops_->event_sync(dev_, fork_), CGR__DEVICE_OK);
}

TEST_P(CaptureTest, ACapturedEventIsOutOfBoundsForOtherThreadsToo) {
  Begin(a_);
  ASSERT_EQ(ops_->event_record(dev_, fork_, a_), CGR__DEVICE_OK);
  std::thread([this] {
    EXPECT_EQ(ops_->event_query(dev_, fork_), CGR__DEVICE_CAPTURE_ILLEGAL);
    EXPECT_EQ(dev_->last_raw, 907);
  }).join();
  EndsWith(CGR__DEVICE_CAPTURE_INVALID);
}

TEST_P(CaptureTest, AnUnjoinedForkFails) {
  Begin(a_);
  ASSERT_EQ(Copy(1, 0, a_), CGR__DEVICE_OK);
  ASSERT_EQ(ops_->event_record(dev_, fork_, a_), CGR__DEVICE_OK);
  ASSERT_EQ(ops_->event_wait(dev_, fork_, b_), CGR__DEVICE_OK);
  ASSERT_EQ(Copy(2, 1, b_), CGR__DEVICE_OK);
  EndsWith(CGR__DEVICE_CAPTURE_INVALID);
}

TEST_P(CaptureTest, WorkAfterTheJoinIsUnjoined) {
  Begin(a_);
  ASSERT_EQ(ops_->event_record(dev_, fork_, a_), CGR__DEVICE_OK);
  ASSERT_EQ(ops_->event_wait(dev_, fork_, b_), CGR__DEVICE_OK);
  ASSERT_EQ(Copy(2, 1, b_), CGR__DEVICE_OK);
  ASSERT_EQ(ops_->event_record(dev_, join_, b_), CGR__DEVICE_OK);
  ASSERT_EQ(ops_->event_wait(dev_, join_, a_), CGR__DEVICE_OK);
  ASSERT_EQ(Copy(3, 1, b_), CGR__DEVICE_OK);
  EndsWith(CGR__DEVICE_CAPTURE_INVALID);
}

TEST_P(CaptureTest, AWaitAcrossTheBoundaryIsIsolation) {
  ASSERT_EQ(Copy(1, 0, b_), CGR__DEVICE_OK);
  ASSERT_EQ(ops_->event_record(dev_, fork_, b_), CGR__DEVICE_OK);
  ASSERT_EQ(ops_->stream_sync(dev_, b_), CGR__DEVICE_OK); // that it is complete does not help
  Begin(a_);
  EXPECT_EQ(ops_->event_wait(dev_, fork_, a_), CGR__DEVICE_CAPTURE_INVALID);
  EXPECT_EQ(dev_->last_raw, 905);
  EndsWith(CGR__DEVICE_CAPTURE_INVALID);
}

TEST_P(CaptureTest, TwoCapturesDoNotMerge) {
  cgr__graph *graph;
  Begin(a_);
  Begin(b_);
  ASSERT_EQ(Copy(1, 0, a_), CGR__DEVICE_OK);
  ASSERT_EQ(ops_->event_record(dev_, fork_, a_), CGR__DEVICE_OK);
  EXPECT_EQ(ops_->event_wait(dev_, fork_, b_), CGR__DEVICE_CAPTURE_INVALID);
  EXPECT_EQ(dev_->last_raw, 902);
  EXPECT_EQ(ops_->capture_end(dev_, b_, &graph), CGR__DEVICE_CAPTURE_INVALID);
  EndsWith(CGR__DEVICE_CAPTURE_INVALID);
}

TEST_P(CaptureTest, OnlyTheThreadThatBeganGetsAGraph) {
  cgr__graph *graph;
  Begin(a_);
  ASSERT_EQ(Copy(1, 0, a_), CGR__DEVICE_OK);
  std::thread([this] {
    cgr__graph *other = reinterpret_cast<cgr__graph *>(this);
    EXPECT_EQ(ops_->capture_end(dev_, a_, &other), CGR__DEVICE_CAPTURE_INVALID);
    EXPECT_EQ(dev_->last_raw, 908);
    EXPECT_EQ(other, nullptr);
  }).join();
  EXPECT_FALSE(Capturing(a_)); // ended anyway, without a graph
  EXPECT_EQ(ops_->capture_end(dev_, a_, &graph), CGR__DEVICE_CAPTURE_INVALID);
  Begin(a_);
  ASSERT_EQ(Copy(1, 0, a_), CGR__DEVICE_OK);
  ASSERT_EQ(ops_->capture_end(dev_, a_, &graph), CGR__DEVICE_OK);
  EXPECT_EQ(ops_->graph_destroy(dev_, graph), CGR__DEVICE_OK);
}

CGR_INSTANTIATE_OVER_DEVICES(CaptureTest);

// What the host device promises beyond what CUDA documents.
class HostCaptureTest : public ::testing::TestWithParam<cgr_test::DeviceParam> {};

TEST_P(HostCaptureTest, CloseDropsAnOpenCapture) {
  cgr_device *dev = nullptr;
  CGR_OPEN_OR_SKIP(dev, GetParam());
  cudaStream_t stream;
  char bytes[2] = { 1, 0 };
  ASSERT_EQ(dev->ops->stream_create(dev, CGR__STREAM_NORMAL, &stream), CGR__DEVICE_OK);
  ASSERT_EQ(dev->ops->capture_begin(dev, stream), CGR__DEVICE_OK);
  ASSERT_EQ(dev->ops->copy(dev, bytes + 1, bytes, 1, stream), CGR__DEVICE_OK);
  ASSERT_EQ(dev->ops->close(dev), CGR__DEVICE_OK);
  EXPECT_EQ(bytes[1], 0);
}

TEST_P(HostCaptureTest, EndOnAForkedStreamIsUnmatched) {
  cgr_device *dev = nullptr;
  CGR_OPEN_OR_SKIP(dev, GetParam());
  cudaStream_t a, b;
  cgr__event *event;
  cgr__graph *graph;
  ASSERT_EQ(dev->ops->stream_create(dev, CGR__STREAM_NORMAL, &a), CGR__DEVICE_OK);
  ASSERT_EQ(dev->ops->stream_create(dev, CGR__STREAM_NORMAL, &b), CGR__DEVICE_OK);
  ASSERT_EQ(dev->ops->event_create(dev, &event), CGR__DEVICE_OK);
  ASSERT_EQ(dev->ops->capture_begin(dev, a), CGR__DEVICE_OK);
  ASSERT_EQ(dev->ops->event_record(dev, event, a), CGR__DEVICE_OK);
  ASSERT_EQ(dev->ops->event_wait(dev, event, b), CGR__DEVICE_OK);
  EXPECT_EQ(dev->ops->capture_end(dev, b, &graph), CGR__DEVICE_CAPTURE_INVALID);
  EXPECT_EQ(dev->last_raw, 903);
  EXPECT_EQ(dev->ops->capture_end(dev, a, &graph), CGR__DEVICE_CAPTURE_INVALID);
  // Once a capture is over, nothing outside can wait for its event.
  EXPECT_EQ(dev->ops->event_wait(dev, event, b), CGR__DEVICE_CAPTURE_ILLEGAL);
  EXPECT_EQ(dev->last_raw, 907);
  ASSERT_EQ(dev->ops->close(dev), CGR__DEVICE_OK);
}

CGR_INSTANTIATE_OVER_HOST_DEVICES(HostCaptureTest);

} // namespace

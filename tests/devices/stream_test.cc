// Streams, events, copies, fills and host functions: the same promises on every device under every schedule.
#include <atomic>
#include <cstring>
#include <thread>
#include <vector>

#include "tests/devices/device_case.h"

namespace {

class StreamTest : public cgr_test::DeviceCase {
protected:
  void SetUpOnDevice() override {
    for (auto &stream : streams_)
      stream = NewStream();
  }
  cudaStream_t streams_[3] = {};
};

struct AppendArgs {
  std::vector<int> *log;
  int value;
};

void Append(const void *raw) {
  const auto *args = static_cast<const AppendArgs *>(raw);
  args->log->push_back(args->value);
}

TEST_P(StreamTest, CopiesRoundTripThroughDeviceMemory) {
  const size_t bytes = 100001;
  auto *src = NewPinned<unsigned char>(bytes);
  auto *dst = NewPinned<unsigned char>(bytes);
  for (size_t i = 0; i < bytes; i++)
    src[i] = static_cast<unsigned char>(i * 7 + 3);
  void *memory = NewMemory(bytes);
  for (void *each : { memory, static_cast<void *>(src), static_cast<void *>(dst) })
    EXPECT_EQ(reinterpret_cast<uintptr_t>(each) % 256, 0u);
  ASSERT_EQ(ops_->copy(dev_, memory, src, bytes, streams_[0]), CGR__DEVICE_OK);
  ASSERT_EQ(ops_->fill(dev_, memory, 0x5A, 1, 17, streams_[0]), CGR__DEVICE_OK);
  ASSERT_EQ(ops_->copy(dev_, dst, memory, bytes, streams_[0]), CGR__DEVICE_OK);
  ASSERT_EQ(ops_->stream_sync(dev_, streams_[0]), CGR__DEVICE_OK);
  for (size_t i = 0; i < bytes; i++)
    ASSERT_EQ(dst[i], i < 17 ? 0x5A : src[i]) << i;
}

TEST_P(StreamTest, StreamOrderHoldsAndArgumentsAreCopied) {
  std::vector<int> log;
  AppendArgs args = { &log, 0 };
  for (int i = 0; i < 300; i++) {
    args.value = i;
    ASSERT_EQ(ops_->host_call(dev_, Append, &args, sizeof args, streams_[1]), CGR__DEVICE_OK);
  }
  args.value = -1;
  ASSERT_EQ(ops_->stream_sync(dev_, streams_[1]), CGR__DEVICE_OK);
  ASSERT_EQ(log.size(), 300u);
  for (int i = 0; i < 300; i++)
    EXPECT_EQ(log[static_cast<size_t>(i)], i);
}

TEST_P(StreamTest, EventsOrderStreams) {
  std::vector<int> log;
  cgr__event *const events[2] = { NewEvent(), NewEvent() };
  for (int i = 0; i < 50; i++) { // ping-pong between two streams
    AppendArgs args = { &log, 2 * i };
    ASSERT_EQ(ops_->host_call(dev_, Append, &args, sizeof args, streams_[0]), CGR__DEVICE_OK);
    ASSERT_EQ(ops_->event_record(dev_, events[0], streams_[0]), CGR__DEVICE_OK);
    ASSERT_EQ(ops_->event_wait(dev_, events[0], streams_[1]), CGR__DEVICE_OK);
    args.value = 2 * i + 1;
    ASSERT_EQ(ops_->host_call(dev_, Append, &args, sizeof args, streams_[1]), CGR__DEVICE_OK);
    ASSERT_EQ(ops_->event_record(dev_, events[1], streams_[1]), CGR__DEVICE_OK);
    ASSERT_EQ(ops_->event_wait(dev_, events[1], streams_[0]), CGR__DEVICE_OK);
  }
  ASSERT_EQ(ops_->event_sync(dev_, events[1]), CGR__DEVICE_OK);
  ASSERT_EQ(log.size(), 100u);
  for (int i = 0; i < 100; i++)
    EXPECT_EQ(log[static_cast<size_t>(i)], i);
}

TEST_P(StreamTest, AWaitKeepsItsRecordWhenTheEventMovesOnOrIsDestroyed) {
  std::vector<int> log;
  cgr__event *event;
  ASSERT_EQ(ops_->event_create(dev_, &event), CGR__DEVICE_OK);
  AppendArgs args = { &log, 1 };
  ASSERT_EQ(ops_->host_call(dev_, Append, &args, sizeof args, streams_[0]), CGR__DEVICE_OK);
  ASSERT_EQ(ops_->event_record(dev_, event, streams_[0]), CGR__DEVICE_OK);
  ASSERT_EQ(ops_->event_wait(dev_, event, streams_[1]), CGR__DEVICE_OK);
  ASSERT_EQ(ops_->event_record(dev_, event, streams_[2]), CGR__DEVICE_OK);
  ASSERT_EQ(ops_->event_destroy(dev_, event), CGR__DEVICE_OK);
  args.value = 2;
  ASSERT_EQ(ops_->host_call(dev_, Append, &args, sizeof args, streams_[1]), CGR__DEVICE_OK);
  ASSERT_EQ(ops_->stream_sync(dev_, streams_[1]), CGR__DEVICE_OK);
  EXPECT_EQ(log, (std::vector<int>{ 1, 2 }));
}

TEST_P(StreamTest, AnEventNeverRecordedIsComplete) {
  cgr__event *event = NewEvent();
  EXPECT_EQ(ops_->event_query(dev_, event), CGR__DEVICE_OK);
  EXPECT_EQ(ops_->event_sync(dev_, event), CGR__DEVICE_OK);
  EXPECT_EQ(ops_->event_wait(dev_, event, streams_[0]), CGR__DEVICE_OK);
  EXPECT_EQ(ops_->stream_sync(dev_, streams_[0]), CGR__DEVICE_OK);
}

TEST_P(StreamTest, PollingAloneMakesProgress) {
  std::vector<int> log;
  cgr__event *event = NewEvent();
  AppendArgs args = { &log, 1 };
  for (int i = 0; i < 20; i++)
    ASSERT_EQ(ops_->host_call(dev_, Append, &args, sizeof args, streams_[0]), CGR__DEVICE_OK);
  ASSERT_EQ(ops_->event_record(dev_, event, streams_[0]), CGR__DEVICE_OK);
  ASSERT_EQ(ops_->event_wait(dev_, event, streams_[1]), CGR__DEVICE_OK);
  args.value = 2;
  ASSERT_EQ(ops_->host_call(dev_, Append, &args, sizeof args, streams_[1]), CGR__DEVICE_OK);
  int error;
  while ((error = ops_->event_query(dev_, event)) == CGR__DEVICE_NOT_READY)
    std::this_thread::yield();
  ASSERT_EQ(error, CGR__DEVICE_OK);
  while ((error = ops_->stream_query(dev_, streams_[1])) == CGR__DEVICE_NOT_READY)
    std::this_thread::yield();
  ASSERT_EQ(error, CGR__DEVICE_OK);
  EXPECT_EQ(log.size(), 21u);
}

TEST_P(StreamTest, DestroyingAStreamFinishesItsWork) {
  std::vector<int> log;
  cudaStream_t stream;
  ASSERT_EQ(ops_->stream_create(dev_, CGR__STREAM_NORMAL, &stream), CGR__DEVICE_OK);
  AppendArgs args = { &log, 1 };
  for (int i = 0; i < 10; i++)
    ASSERT_EQ(ops_->host_call(dev_, Append, &args, sizeof args, stream), CGR__DEVICE_OK);
  ASSERT_EQ(ops_->stream_destroy(dev_, stream), CGR__DEVICE_OK);
  EXPECT_EQ(log.size(), 10u);
}

struct BigArgs {
  std::atomic<int> *bad;
  unsigned char fill;
  unsigned char bytes[4096 - sizeof(void *) - 1];
};
static_assert(sizeof(BigArgs) == 4096, "as large as arguments may be");

void CheckBig(const void *raw) {
  const auto *args = static_cast<const BigArgs *>(raw);
  for (unsigned char byte : args->bytes) {
    if (byte != args->fill)
      args->bad->fetch_add(1);
  }
}

TEST_P(StreamTest, ArgumentsUpToTheLimitAndNotBeyond) {
  std::atomic<int> bad(0);
  static BigArgs args;
  args.bad = &bad;
  for (int i = 0; i < 40; i++) {
    args.fill = static_cast<unsigned char>(i);
    std::memset(args.bytes, i, sizeof args.bytes);
    ASSERT_EQ(ops_->host_call(dev_, CheckBig, &args, sizeof args, streams_[0]), CGR__DEVICE_OK);
  }
  EXPECT_EQ(ops_->host_call(dev_, CheckBig, &args, sizeof args + 1, streams_[0]), CGR__DEVICE_INVALID);
  ASSERT_EQ(ops_->stream_sync(dev_, streams_[0]), CGR__DEVICE_OK);
  EXPECT_EQ(bad.load(), 0);
}

TEST_P(StreamTest, KernelsWithoutALauncherAreUnsupported) {
  cgr__kernel kernel = { "none", 0, nullptr, nullptr, nullptr, 0 };
  EXPECT_EQ(ops_->launch(dev_, &kernel, nullptr, streams_[0]), CGR__DEVICE_UNSUPPORTED);
  EXPECT_EQ(ops_->preload(dev_, &kernel), CGR__DEVICE_UNSUPPORTED);
}

TEST_P(StreamTest, EmptyCopiesAndFillsAreNothing) {
  EXPECT_EQ(ops_->copy(dev_, nullptr, nullptr, 0, streams_[0]), CGR__DEVICE_OK);
  EXPECT_EQ(ops_->fill(dev_, nullptr, 0, 1, 0, streams_[0]), CGR__DEVICE_OK);
  void *memory = &memory;
  EXPECT_EQ(ops_->mem_alloc(dev_, 0, CGR__MEMORY_DEVICE, &memory), CGR__DEVICE_INVALID);
  EXPECT_EQ(memory, nullptr);
}

TEST_P(StreamTest, ThreadsWorkAtOnce) {
  auto work = [this](int index) {
    auto *ops = dev_->ops;
    cudaStream_t stream;
    cgr__event *event;
    std::vector<int> log;
    ASSERT_EQ(ops->stream_create(dev_, CGR__STREAM_NORMAL, &stream), CGR__DEVICE_OK);
    ASSERT_EQ(ops->event_create(dev_, &event), CGR__DEVICE_OK);
    for (int i = 0; i < 200; i++) {
      AppendArgs args = { &log, i };
      ASSERT_EQ(ops->host_call(dev_, Append, &args, sizeof args, stream), CGR__DEVICE_OK);
      ASSERT_EQ(ops->event_record(dev_, event, stream), CGR__DEVICE_OK);
      ASSERT_EQ(ops->event_wait(dev_, event, streams_[index % 3]), CGR__DEVICE_OK);
    }
    ASSERT_EQ(ops->event_sync(dev_, event), CGR__DEVICE_OK);
    EXPECT_EQ(log.size(), 200u);
    EXPECT_EQ(ops->event_destroy(dev_, event), CGR__DEVICE_OK);
    EXPECT_EQ(ops->stream_destroy(dev_, stream), CGR__DEVICE_OK);
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; i++)
    threads.emplace_back(work, i);
  for (auto &thread : threads)
    thread.join();
}

CGR_INSTANTIATE_OVER_DEVICES(StreamTest);

class HostOnlyTest : public ::testing::TestWithParam<cgr_test::DeviceParam> {};

TEST_P(HostOnlyTest, DestroyedAndForeignHandlesAreRefused) {
  cgr_device *dev = nullptr;
  CGR_OPEN_OR_SKIP(dev, GetParam());
  cudaStream_t stream;
  cgr__event *event;
  char byte = 0;
  ASSERT_EQ(dev->ops->stream_create(dev, CGR__STREAM_NORMAL, &stream), CGR__DEVICE_OK);
  ASSERT_EQ(dev->ops->event_create(dev, &event), CGR__DEVICE_OK);
  ASSERT_EQ(dev->ops->stream_destroy(dev, stream), CGR__DEVICE_OK);
  EXPECT_EQ(dev->ops->fill(dev, &byte, 1, 1, 1, stream), CGR__DEVICE_INVALID);
  EXPECT_EQ(dev->ops->stream_sync(dev, stream), CGR__DEVICE_INVALID);
  EXPECT_EQ(dev->ops->event_record(dev, event, stream), CGR__DEVICE_INVALID);
  EXPECT_EQ(dev->ops->stream_destroy(dev, stream), CGR__DEVICE_INVALID);
  EXPECT_EQ(dev->ops->fill(dev, &byte, 1, 1, 1, nullptr), CGR__DEVICE_INVALID);
  EXPECT_EQ(dev->ops->fill(dev, &byte, 1, 1, 1, reinterpret_cast<cudaStream_t>(&byte)), CGR__DEVICE_INVALID);
  ASSERT_EQ(dev->ops->event_destroy(dev, event), CGR__DEVICE_OK);
  EXPECT_EQ(dev->ops->event_query(dev, event), CGR__DEVICE_INVALID);
  ASSERT_EQ(dev->ops->close(dev), CGR__DEVICE_OK);
}

TEST_P(HostOnlyTest, CloseRunsWhatIsPendingAndFreesWhatIsOpen) {
  cgr_device *dev = nullptr;
  CGR_OPEN_OR_SKIP(dev, GetParam());
  cudaStream_t streams[2];
  cgr__event *event;
  std::vector<int> log;
  AppendArgs args = { &log, 1 };
  for (auto &stream : streams)
    ASSERT_EQ(dev->ops->stream_create(dev, CGR__STREAM_NORMAL, &stream), CGR__DEVICE_OK);
  ASSERT_EQ(dev->ops->event_create(dev, &event), CGR__DEVICE_OK);
  ASSERT_EQ(dev->ops->host_call(dev, Append, &args, sizeof args, streams[1]), CGR__DEVICE_OK);
  ASSERT_EQ(dev->ops->event_record(dev, event, streams[1]), CGR__DEVICE_OK);
  ASSERT_EQ(dev->ops->event_wait(dev, event, streams[0]), CGR__DEVICE_OK);
  args.value = 2;
  ASSERT_EQ(dev->ops->host_call(dev, Append, &args, sizeof args, streams[0]), CGR__DEVICE_OK);
  ASSERT_EQ(dev->ops->close(dev), CGR__DEVICE_OK);
  EXPECT_EQ(log, (std::vector<int>{ 1, 2 }));
}

CGR_INSTANTIATE_OVER_HOST_DEVICES(HostOnlyTest);

} // namespace

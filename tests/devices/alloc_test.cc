// After warm-up no call that enqueues, waits or replays on the host device allocates. Allocations are counted in malloc itself.
#include <atomic>
#include <cstring>

#include "devices/device.h"
#include "tests/support/count_allocations.h"
#include "tests/support/devices.h"

namespace {

struct StepArgs {
  std::atomic<int> *runs;
  unsigned char bytes[1000];
};

void Step(const void *raw) { static_cast<const StepArgs *>(raw)->runs->fetch_add(1); }

class AllocTest : public ::testing::TestWithParam<cgr_test::DeviceParam> {};

TEST_P(AllocTest, NothingIsAllocatedAfterWarmUp) {
#if !CGR_COUNT_MALLOC
  GTEST_SKIP() << "malloc belongs to a sanitizer";
#endif
  cgr_device *dev = nullptr;
  CGR_OPEN_OR_SKIP(dev, GetParam());
  const cgr__device_ops *ops = dev->ops;
  cudaStream_t a, b;
  cgr__event *event;
  cgr__graph *graph;
  cgr__exec *exec;
  std::atomic<int> runs(0);
  StepArgs args;
  args.runs = &runs;
  std::memset(args.bytes, 0, sizeof args.bytes);
  int from = 1, to = 0;
  ASSERT_EQ(ops->stream_create(dev, CGR__STREAM_NORMAL, &a), CGR__DEVICE_OK);
  ASSERT_EQ(ops->stream_create(dev, CGR__STREAM_NORMAL, &b), CGR__DEVICE_OK);
  ASSERT_EQ(ops->event_create(dev, &event), CGR__DEVICE_OK);
  ASSERT_EQ(ops->capture_begin(dev, a), CGR__DEVICE_OK);
  ASSERT_EQ(ops->host_call(dev, Step, &args, sizeof args, a), CGR__DEVICE_OK);
  ASSERT_EQ(ops->capture_end(dev, a, &graph), CGR__DEVICE_OK);
  ASSERT_EQ(ops->instantiate(dev, graph, &exec, nullptr), CGR__DEVICE_OK);
  auto round = [&] {
    for (int i = 0; i < 30; i++) {
      ASSERT_EQ(ops->host_call(dev, Step, &args, sizeof args, a), CGR__DEVICE_OK);
      ASSERT_EQ(ops->copy(dev, &to, &from, sizeof to, a), CGR__DEVICE_OK);
      ASSERT_EQ(ops->event_record(dev, event, a), CGR__DEVICE_OK);
      ASSERT_EQ(ops->event_wait(dev, event, b), CGR__DEVICE_OK);
      ASSERT_EQ(ops->exec_launch(dev, exec, b), CGR__DEVICE_OK);
    }
    ops->stream_query(dev, b);
    ASSERT_EQ(ops->event_sync(dev, event), CGR__DEVICE_OK);
    ASSERT_EQ(ops->stream_sync(dev, b), CGR__DEVICE_OK);
    ASSERT_EQ(ops->stream_sync(dev, a), CGR__DEVICE_OK);
  };
  // The pools grow to the depth in use. Under ASYNC and RANDOM the depth of the queues differs from round to round, but it
  // cannot exceed what is enqueued without a wait: enqueue that much at once.
  std::atomic<bool> open(false);
  struct GateArgs {
    std::atomic<bool> *open;
  } gate = { &open };
  if (GetParam().config.host_schedule == CGR_SCHEDULE_ASYNC) {
    auto wait = [](const void *raw) {
      while (!static_cast<const GateArgs *>(raw)->open->load())
        continue;
    };
    ASSERT_EQ(ops->host_call(dev, wait, &gate, sizeof gate, a), CGR__DEVICE_OK);
  }
  for (int i = 0; i < 40; i++) {
    ASSERT_EQ(ops->host_call(dev, Step, &args, sizeof args, a), CGR__DEVICE_OK);
    for (int j = 0; j < 8; j++)
      ASSERT_EQ(ops->copy(dev, &to, &from, sizeof to, a), CGR__DEVICE_OK);
  }
  open = true;
  for (int i = 0; i < 20; i++)
    round();
  uint64_t before = num_allocations.load();
  for (int i = 0; i < 50; i++)
    round();
  EXPECT_EQ(num_allocations.load() - before, 0u);
  EXPECT_EQ(runs.load(), 40 + 70 * 60);
  ASSERT_EQ(ops->exec_destroy(dev, exec), CGR__DEVICE_OK);
  ASSERT_EQ(ops->graph_destroy(dev, graph), CGR__DEVICE_OK);
  ASSERT_EQ(ops->close(dev), CGR__DEVICE_OK);
}

CGR_INSTANTIATE_OVER_HOST_DEVICES(AllocTest);

#if CGR_COUNT_MALLOC
TEST(AllocCountTest, TheCounterCounts) {
  uint64_t before = num_allocations.load();
  void *volatile memory = std::malloc(100);
  std::free(memory);
  EXPECT_EQ(num_allocations.load() - before, 1u);
}
#endif

} // namespace

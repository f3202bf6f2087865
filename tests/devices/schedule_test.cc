// When the host device executes what was enqueued: each schedule's own promise, and that nothing is allocated per operation.
#include <set>
#include <string>

#include "devices/device.h"
#include "tests/support/devices.h"

namespace {

struct AppendArgs {
  std::string *log;
  char value;
};

void Append(const void *raw) {
  const auto *args = static_cast<const AppendArgs *>(raw);
  args->log->push_back(args->value);
}

// A device with two streams and an event.
struct Bench {
  explicit Bench(cgr_test::DeviceParam param) {
    dev = cgr_test::OpenDevice(param);
    EXPECT_EQ(dev->ops->stream_create(dev, CGR__STREAM_NORMAL, &a), CGR__DEVICE_OK);
    EXPECT_EQ(dev->ops->stream_create(dev, CGR__STREAM_NORMAL, &b), CGR__DEVICE_OK);
    EXPECT_EQ(dev->ops->event_create(dev, &event), CGR__DEVICE_OK);
  }
  ~Bench() { EXPECT_EQ(dev->ops->close(dev), CGR__DEVICE_OK); }

  void Call(char value, cudaStream_t stream) {
    AppendArgs args = { &log, value };
    EXPECT_EQ(dev->ops->host_call(dev, Append, &args, sizeof args, stream), CGR__DEVICE_OK);
  }
  void Record(cudaStream_t stream) { EXPECT_EQ(dev->ops->event_record(dev, event, stream), CGR__DEVICE_OK); }
  void Wait(cudaStream_t stream) { EXPECT_EQ(dev->ops->event_wait(dev, event, stream), CGR__DEVICE_OK); }

  cgr_device *dev;
  cudaStream_t a, b;
  cgr__event *event;
  std::string log;
};

TEST(ScheduleTest, EarliestExecutesInTheCall) {
  Bench bench(cgr_test::HostParam(CGR_SCHEDULE_EARLIEST));
  bench.Call('1', bench.a);
  EXPECT_EQ(bench.log, "1");
  bench.Record(bench.a);
  bench.Wait(bench.b);
  bench.Call('2', bench.b);
  EXPECT_EQ(bench.log, "12");
  EXPECT_EQ(bench.dev->ops->stream_query(bench.dev, bench.b), CGR__DEVICE_OK);
}

TEST(ScheduleTest, LatestExecutesNothingUntilAWait) {
  Bench bench(cgr_test::HostParam(CGR_SCHEDULE_LATEST));
  bench.Call('1', bench.a);
  bench.Call('2', bench.b);
  EXPECT_EQ(bench.log, "");
  EXPECT_EQ(bench.dev->ops->stream_sync(bench.dev, bench.b), CGR__DEVICE_OK);
  EXPECT_EQ(bench.log, "2");
  EXPECT_EQ(bench.dev->ops->stream_sync(bench.dev, bench.a), CGR__DEVICE_OK);
  EXPECT_EQ(bench.log, "21");
}

TEST(ScheduleTest, LatestRunsOfOtherStreamsOnlyWhatAWaitNeeds) {
  Bench bench(cgr_test::HostParam(CGR_SCHEDULE_LATEST));
  bench.Call('1', bench.a);
  bench.Record(bench.a);
  bench.Call('x', bench.a);
  bench.Call('2', bench.b);
  bench.Wait(bench.b);
  bench.Call('3', bench.b);
  EXPECT_EQ(bench.dev->ops->stream_sync(bench.dev, bench.b), CGR__DEVICE_OK);
  EXPECT_EQ(bench.log, "213"); // '1' as late as it can, 'x' not at all
}

TEST(ScheduleTest, LatestEventSyncRunsUpToTheEvent) {
  Bench bench(cgr_test::HostParam(CGR_SCHEDULE_LATEST));
  bench.Call('1', bench.a);
  bench.Record(bench.a);
  bench.Call('2', bench.a);
  EXPECT_EQ(bench.dev->ops->event_sync(bench.dev, bench.event), CGR__DEVICE_OK);
  EXPECT_EQ(bench.log, "1");
}

TEST(ScheduleTest, LatestQueryRunsOneOperation) {
  Bench bench(cgr_test::HostParam(CGR_SCHEDULE_LATEST));
  bench.Call('1', bench.a);
  bench.Record(bench.a);
  bench.Wait(bench.b);
  bench.Call('2', bench.b);
  bench.Call('3', bench.b);
  EXPECT_EQ(bench.dev->ops->stream_query(bench.dev, bench.b), CGR__DEVICE_NOT_READY);
  EXPECT_EQ(bench.log, "1");
  EXPECT_EQ(bench.dev->ops->event_query(bench.dev, bench.event), CGR__DEVICE_OK);
  EXPECT_EQ(bench.dev->ops->stream_query(bench.dev, bench.b), CGR__DEVICE_NOT_READY);
  EXPECT_EQ(bench.log, "12");
  EXPECT_EQ(bench.dev->ops->stream_query(bench.dev, bench.b), CGR__DEVICE_OK);
  EXPECT_EQ(bench.log, "123");
}

TEST(ScheduleTest, LatestReadsACopysSourceWhenItExecutes) {
  Bench bench(cgr_test::HostParam(CGR_SCHEDULE_LATEST));
  int src = 1, dst = 0;
  ASSERT_EQ(bench.dev->ops->copy(bench.dev, &dst, &src, sizeof src, bench.a), CGR__DEVICE_OK);
  src = 2;
  EXPECT_EQ(dst, 0);
  ASSERT_EQ(bench.dev->ops->stream_sync(bench.dev, bench.a), CGR__DEVICE_OK);
  EXPECT_EQ(dst, 2);
}

std::string RandomRun(uint64_t seed) {
  Bench bench(cgr_test::HostParam(CGR_SCHEDULE_RANDOM, seed));
  for (int i = 0; i < 20; i++) {
    bench.Call('a', bench.a);
    bench.Call('b', bench.b);
  }
  std::string log = bench.log + "|";
  EXPECT_EQ(bench.dev->ops->stream_sync(bench.dev, bench.a), CGR__DEVICE_OK);
  return log + bench.log;
}

TEST(ScheduleTest, RandomIsDecidedByItsSeed) {
  std::set<std::string> runs;
  for (uint64_t seed = 0; seed < 20; seed++) {
    EXPECT_EQ(RandomRun(seed), RandomRun(seed));
    runs.insert(RandomRun(seed));
  }
  EXPECT_GE(runs.size(), 15u);
}

// A fork whose branch is independent of the first stream's work in between: how each schedule orders the branch.
std::string ForkedReplay(cgr_test::DeviceParam param) {
  Bench bench(param);
  auto *ops = bench.dev->ops;
  cgr__event *join;
  cgr__graph *graph;
  cgr__exec *exec;
  EXPECT_EQ(ops->event_create(bench.dev, &join), CGR__DEVICE_OK);
  EXPECT_EQ(ops->capture_begin(bench.dev, bench.a), CGR__DEVICE_OK);
  bench.Call('s', bench.a);
  bench.Record(bench.a);
  bench.Wait(bench.b);
  bench.Call('f', bench.b);
  bench.Call('g', bench.b);
  EXPECT_EQ(ops->event_record(bench.dev, join, bench.b), CGR__DEVICE_OK);
  bench.Call('1', bench.a);
  bench.Call('2', bench.a);
  EXPECT_EQ(ops->event_wait(bench.dev, join, bench.a), CGR__DEVICE_OK);
  bench.Call('e', bench.a);
  EXPECT_EQ(ops->capture_end(bench.dev, bench.a, &graph), CGR__DEVICE_OK);
  EXPECT_EQ(bench.log, "");
  EXPECT_EQ(ops->instantiate(bench.dev, graph, &exec, nullptr), CGR__DEVICE_OK);
  EXPECT_EQ(ops->graph_destroy(bench.dev, graph), CGR__DEVICE_OK);
  EXPECT_EQ(ops->exec_launch(bench.dev, exec, bench.b), CGR__DEVICE_OK);
  EXPECT_EQ(ops->stream_sync(bench.dev, bench.b), CGR__DEVICE_OK);
  EXPECT_EQ(ops->exec_destroy(bench.dev, exec), CGR__DEVICE_OK);
  return bench.log;
}

TEST(ScheduleTest, AForkedBranchRunsAsRecordedOrLateOrAnywhereLegal) {
  EXPECT_EQ(ForkedReplay(cgr_test::HostParam(CGR_SCHEDULE_ASYNC)), "sfg12e");
  EXPECT_EQ(ForkedReplay(cgr_test::HostParam(CGR_SCHEDULE_EARLIEST)), "sfg12e");
  EXPECT_EQ(ForkedReplay(cgr_test::HostParam(CGR_SCHEDULE_LATEST)), "s12fge");
  std::set<std::string> orders;
  for (uint64_t seed = 0; seed < 60; seed++)
    orders.insert(ForkedReplay(cgr_test::HostParam(CGR_SCHEDULE_RANDOM, seed)));
  EXPECT_GE(orders.size(), 4u);
  for (const std::string &order : orders) {
    EXPECT_EQ(order.size(), 6u);
    EXPECT_EQ(order.front(), 's');
    EXPECT_EQ(order.back(), 'e');
    EXPECT_LT(order.find('f'), order.find('g'));
    EXPECT_LT(order.find('1'), order.find('2'));
  }
}

} // namespace

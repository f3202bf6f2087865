// Random programs of several streams, with every conflict ordered by events, give the same result as running their operations one
// by one: on every device, under every schedule, enqueued directly and as a captured graph that is replayed.
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "tests/devices/device_case.h"

namespace {

constexpr int kStreams = 4;
constexpr int kSlots = 6;

struct Operation {
  int stream, dst, src;
};

struct MixArgs {
  uint64_t *dst;
  const uint64_t *src;
};

void Mix(const void *raw) {
  const auto *args = static_cast<const MixArgs *>(raw);
  *args->dst = *args->dst * 6364136223846793005u + *args->src + 1; // the order of any two on one slot matters
}

std::vector<Operation> RandomProgram(uint64_t seed, int length) {
  std::mt19937_64 random(seed);
  std::vector<Operation> program;
  for (int i = 0; i < length; i++) {
    program.push_back(
        { static_cast<int>(random() % kStreams), static_cast<int>(random() % kSlots), static_cast<int>(random() % kSlots) });
  }
  return program;
}

void RunAlone(const std::vector<Operation> &program, uint64_t *slots) {
  for (const Operation &operation : program) {
    MixArgs args = { slots + operation.dst, slots + operation.src };
    Mix(&args);
  }
}

class ProgramTest : public cgr_test::DeviceCase {
protected:
  void SetUpOnDevice() override {
    for (auto &stream : streams_)
      stream = NewStream();
    for (auto &event : events_)
      event = NewEvent();
    slots_ = NewPinned<uint64_t>(kSlots);
  }

  // One event per stream, recorded after its last operation; an operation waits for every stream that touched its slots.
  void Enqueue(const std::vector<Operation> &program) {
    std::vector<std::vector<bool>> touched(kSlots, std::vector<bool>(kStreams, false));
    for (const Operation &operation : program) {
      for (int s = 0; s < kStreams; s++) {
        if (s == operation.stream || (!touched[operation.dst][s] && !touched[operation.src][s]))
          continue;
        ASSERT_EQ(ops_->event_wait(dev_, events_[s], streams_[operation.stream]), CGR__DEVICE_OK);
      }
      MixArgs args = { slots_ + operation.dst, slots_ + operation.src };
      ASSERT_EQ(ops_->host_call(dev_, Mix, &args, sizeof args, streams_[operation.stream]), CGR__DEVICE_OK);
      ASSERT_EQ(ops_->event_record(dev_, events_[operation.stream], streams_[operation.stream]), CGR__DEVICE_OK);
      touched[operation.dst][operation.stream] = true;
      touched[operation.src][operation.stream] = true;
    }
  }

  // All streams start after the first one, and end before it goes on.
  void Fork() {
    ASSERT_EQ(ops_->event_record(dev_, events_[kStreams], streams_[0]), CGR__DEVICE_OK);
    for (int s = 1; s < kStreams; s++) {
      ASSERT_EQ(ops_->event_wait(dev_, events_[kStreams], streams_[s]), CGR__DEVICE_OK);
    }
  }
  void Join() {
    for (int s = 1; s < kStreams; s++) {
      ASSERT_EQ(ops_->event_record(dev_, events_[s], streams_[s]), CGR__DEVICE_OK);
      ASSERT_EQ(ops_->event_wait(dev_, events_[s], streams_[0]), CGR__DEVICE_OK);
    }
  }

  cudaStream_t streams_[kStreams] = {};
  cgr__event *events_[kStreams + 1] = {};
  uint64_t *slots_ = nullptr;
};

TEST_P(ProgramTest, EnqueuedDirectly) {
  for (uint64_t seed = 0; seed < 40; seed++) {
    std::vector<Operation> program = RandomProgram(seed, 60);
    uint64_t expected[kSlots] = { 1, 2, 3, 4, 5, 6 };
    std::memcpy(slots_, expected, sizeof expected);
    RunAlone(program, expected);
    Fork();
    Enqueue(program);
    Join();
    ASSERT_EQ(ops_->stream_sync(dev_, streams_[0]), CGR__DEVICE_OK);
    ASSERT_EQ(std::memcmp(slots_, expected, sizeof expected), 0) << "seed " << seed;
  }
}

TEST_P(ProgramTest, CapturedAndReplayed) {
  for (uint64_t seed = 0; seed < 20; seed++) {
    std::vector<Operation> program = RandomProgram(seed, 60);
    uint64_t expected[kSlots] = { 1, 2, 3, 4, 5, 6 };
    std::memcpy(slots_, expected, sizeof expected);
    cgr__graph_info info;
    ASSERT_EQ(ops_->capture_begin(dev_, streams_[0]), CGR__DEVICE_OK);
    Fork();
    Enqueue(program);
    Join();
    cgr__exec *exec = Captured(streams_[0], &info);
    ASSERT_FALSE(HasFailure()) << "seed " << seed;
    ASSERT_EQ(std::memcmp(slots_, expected, sizeof expected), 0) << "capture executed something";
    EXPECT_EQ(info.num_nodes, 60);
    for (int replay = 0; replay < 6; replay++) { // alternating streams: one exec still runs once at a time, in order
      RunAlone(program, expected);
      ASSERT_EQ(ops_->exec_launch(dev_, exec, streams_[replay % 2]), CGR__DEVICE_OK);
      if (replay % 3 != 2)
        continue;
      ASSERT_EQ(ops_->stream_sync(dev_, streams_[replay % 2]), CGR__DEVICE_OK);
      ASSERT_EQ(std::memcmp(slots_, expected, sizeof expected), 0) << "seed " << seed << " replay " << replay;
    }
  }
}

CGR_INSTANTIATE_OVER_DEVICES(ProgramTest);

// The host schedules do find a missing edge: without waits, LATEST runs the second stream's operation too early or too late.
TEST(ProgramOracleTest, AMissingWaitIsSeen) {
  int differing = 0;
  for (uint64_t seed = 0; seed < 20; seed++) {
    cgr_device *dev = cgr_test::OpenDevice(cgr_test::HostParam(seed == 0 ? CGR_SCHEDULE_LATEST : CGR_SCHEDULE_RANDOM, seed));
    cudaStream_t streams[2];
    uint64_t slots[1] = { 1 }, expected[1] = { 1 }, one = 1, two = 2;
    for (auto &stream : streams)
      ASSERT_EQ(dev->ops->stream_create(dev, CGR__STREAM_NORMAL, &stream), CGR__DEVICE_OK);
    MixArgs first = { slots, &one }, second = { slots, &two };
    ASSERT_EQ(dev->ops->host_call(dev, Mix, &first, sizeof first, streams[0]), CGR__DEVICE_OK);
    ASSERT_EQ(dev->ops->host_call(dev, Mix, &second, sizeof second, streams[1]), CGR__DEVICE_OK);
    ASSERT_EQ(dev->ops->stream_sync(dev, streams[1]), CGR__DEVICE_OK);
    first.dst = second.dst = expected;
    Mix(&first);
    Mix(&second);
    differing += slots[0] != expected[0];
    if (seed == 0) {
      EXPECT_NE(slots[0], expected[0]) << "LATEST must show it every time";
    }
    ASSERT_EQ(dev->ops->close(dev), CGR__DEVICE_OK);
  }
  EXPECT_GE(differing, 5);
}

} // namespace

// Events through the public functions: they order streams, and fork and join branches of a capture.
#include <algorithm>

#include "tests/devices/device_case.h"

namespace {

class EventTest : public cgr_test::PublicCase {
protected:
  void SetUpOnDevice() override {
    for (auto &stream : streams_)
      stream = NewStream();
    for (auto &event : events_)
      event = NewEvent();
    words_ = static_cast<int *>(NewPinned(4 * sizeof(int)));
    std::fill_n(words_, 4, 0);
  }
  cudaStream_t streams_[3] = {};
  cgr_event *events_[3] = {};
  int *words_ = nullptr;
};

struct MixArgs {
  int *word;
  int digit;
};
// The result shows the order of any two.
void Mix(const void *raw) {
  const auto *args = static_cast<const MixArgs *>(raw);
  *args->word = *args->word * 10 + args->digit;
}

TEST_P(EventTest, OrderStreams) {
  for (int i = 0; i < 4; i++) {
    MixArgs args = { words_, i + 1 };
    ASSERT_EQ(cgr_launch_host(dev_, Mix, &args, sizeof args, streams_[i % 2]), CGR_OK);
    ASSERT_EQ(cgr_event_record(dev_, events_[i % 2], streams_[i % 2]), CGR_OK);
    ASSERT_EQ(cgr_event_wait(dev_, events_[i % 2], streams_[1 - i % 2]), CGR_OK);
  }
  ASSERT_EQ(cgr_stream_synchronize(dev_, streams_[0]), CGR_OK);
  EXPECT_EQ(words_[0], 1234);
}

TEST_P(EventTest, AnEventNeverRecordedIsNotWaitedFor) {
  MixArgs args = { words_, 7 };
  ASSERT_EQ(cgr_event_wait(dev_, events_[0], streams_[0]), CGR_OK);
  ASSERT_EQ(cgr_launch_host(dev_, Mix, &args, sizeof args, streams_[0]), CGR_OK);
  ASSERT_EQ(cgr_stream_synchronize(dev_, streams_[0]), CGR_OK);
  EXPECT_EQ(words_[0], 7);
}

// A wait keeps what the event stood for, even if the event is recorded again or destroyed.
TEST_P(EventTest, AWaitIsForTheRecordBeforeIt) {
  cgr_event *event;
  MixArgs args = { words_, 1 };
  ASSERT_EQ(cgr_event_create(dev_, &event), CGR_OK);
  ASSERT_EQ(cgr_launch_host(dev_, Mix, &args, sizeof args, streams_[0]), CGR_OK);
  ASSERT_EQ(cgr_event_record(dev_, event, streams_[0]), CGR_OK);
  ASSERT_EQ(cgr_event_wait(dev_, event, streams_[1]), CGR_OK);
  ASSERT_EQ(cgr_event_record(dev_, event, streams_[2]), CGR_OK);
  ASSERT_EQ(cgr_event_destroy(dev_, event), CGR_OK);
  args.digit = 2;
  ASSERT_EQ(cgr_launch_host(dev_, Mix, &args, sizeof args, streams_[1]), CGR_OK);
  ASSERT_EQ(cgr_stream_synchronize(dev_, streams_[1]), CGR_OK);
  EXPECT_EQ(words_[0], 12);
}

TEST_P(EventTest, ForkAndJoinBranchesOfACapture) {
  const cgr__device_ops *ops = dev_->ops;
  cgr__graph *graph;
  cgr__exec *exec;
  cgr__graph_info info;
  MixArgs args = { words_, 1 };
  ASSERT_EQ(ops->capture_begin(dev_, streams_[0]), CGR__DEVICE_OK);
  ASSERT_EQ(cgr_launch_host(dev_, Mix, &args, sizeof args, streams_[0]), CGR_OK);
  ASSERT_EQ(cgr_event_record(dev_, events_[0], streams_[0]), CGR_OK);
  for (int branch = 1; branch < 3; branch++) { // each works on a word of its own
    MixArgs own = { words_ + branch, branch };
    ASSERT_EQ(cgr_event_wait(dev_, events_[0], streams_[branch]), CGR_OK);
    ASSERT_EQ(cgr_copy(dev_, words_ + branch, words_, sizeof(int), streams_[branch]), CGR_OK);
    ASSERT_EQ(cgr_launch_host(dev_, Mix, &own, sizeof own, streams_[branch]), CGR_OK);
    ASSERT_EQ(cgr_event_record(dev_, events_[branch], streams_[branch]), CGR_OK);
    ASSERT_EQ(cgr_event_wait(dev_, events_[branch], streams_[0]), CGR_OK);
  }
  ASSERT_EQ(cgr_copy(dev_, words_ + 3, words_ + 2, sizeof(int), streams_[0]), CGR_OK);
  ASSERT_EQ(ops->capture_end(dev_, streams_[0], &graph), CGR__DEVICE_OK);
  ASSERT_EQ(ops->instantiate(dev_, graph, &exec, &info), CGR__DEVICE_OK);
  EXPECT_EQ(info.num_nodes, 6);
  EXPECT_EQ(info.width, 2);
  EXPECT_EQ(words_[0], 0); // recorded, not executed
  for (int replay = 0; replay < 3; replay++) {
    words_[0] = 4;
    ASSERT_EQ(ops->exec_launch(dev_, exec, streams_[2]), CGR__DEVICE_OK);
    ASSERT_EQ(cgr_stream_synchronize(dev_, streams_[2]), CGR_OK);
    EXPECT_EQ(words_[0], 41);
    EXPECT_EQ(words_[1], 411);
    EXPECT_EQ(words_[2], 412);
    EXPECT_EQ(words_[3], 412);
  }
  EXPECT_EQ(ops->exec_destroy(dev_, exec), CGR__DEVICE_OK);
  EXPECT_EQ(ops->graph_destroy(dev_, graph), CGR__DEVICE_OK);
}

// An event recorded in a capture belongs to it: it can be waited for in the capture, but not outside.
TEST_P(EventTest, ACapturedEventIsNotForOthers) {
  const cgr__device_ops *ops = dev_->ops;
  cgr__graph *graph;
  ASSERT_EQ(ops->capture_begin(dev_, streams_[0]), CGR__DEVICE_OK);
  ASSERT_EQ(cgr_event_record(dev_, events_[0], streams_[0]), CGR_OK);
  ASSERT_EQ(cgr_event_wait(dev_, events_[0], streams_[0]), CGR_OK);
  ASSERT_EQ(ops->capture_end(dev_, streams_[0], &graph), CGR__DEVICE_OK);
  ASSERT_EQ(ops->graph_destroy(dev_, graph), CGR__DEVICE_OK);
  // CUDA remembers no capture once its graph is gone, and then calls the event invalid.
  cgr_status refused = cgr_event_wait(dev_, events_[0], streams_[1]);
  EXPECT_EQ(refused, cgr_last_device_code() == 1 ? CGR_ERROR_INVALID_ARGUMENT : CGR_ERROR_CAPTURE);
  EXPECT_TRUE(cgr_last_device_code() == 907 || (dev_->kind == CGR_DEVICE_KIND_CUDA && cgr_last_device_code() == 1));
  ASSERT_EQ(cgr_event_record(dev_, events_[0], streams_[0]), CGR_OK); // once recorded outside, it is like any other
  EXPECT_EQ(cgr_event_wait(dev_, events_[0], streams_[1]), CGR_OK);
}

CGR_INSTANTIATE_OVER_DEVICES(EventTest);

} // namespace

// A cgr_record_call that adds no node to a capture is a warning in the log, once for each call of a list of captures, with the
// graph and how many others there are; at breaks and in eager steps it is not.
#include "cgr/inspect.h"
#include "tests/support/devices.h"
#include "tests/support/expect.h"

namespace cgr_test {
namespace {

class LostCalls : public OverDevices {
protected:
  enum Which { kNothing, kKernel, kNested, kFails };
  struct Args {
    LostCalls *test;
    Which which;
  };
  void SetUpOnDevice() override {
    CGR_ASSERT_OK(cgr_device_open(GetParam().name.c_str(), &GetParam().config, &dev_));
    CGR_ASSERT_OK(cgr_memory_alloc(dev_, 64, &memory_));
  }
  void TearDown() override {
    if (dev_ == nullptr)
      return;
    CGR_EXPECT_OK(cgr_runtime_destroy(rt_));
    CGR_EXPECT_OK(cgr_memory_free(dev_, memory_));
    CGR_EXPECT_OK(cgr_device_close(dev_));
  }
  void Make(cgr_graph_mode mode) {
    static const int32_t decodes[] = { 1, 2, 4 };
    CGR_ASSERT_OK(cgr_runtime_destroy(rt_));
    cgr_group group = CGR_GROUP_INIT;
    group.num_pages = 20;
    cgr_config config = CGR_CONFIG_INIT;
    config.device_handle = dev_;
    config.groups = &group, config.num_groups = 1;
    config.max_requests = 4, config.max_tokens = 4, config.max_seq_len = 64;
    config.graph_mode = mode;
    config.decode_buckets = decodes, config.num_decode_buckets = 3;
    config.log_context = this;
    config.log = [](void *test, cgr_log_level level, const char *text) {
      if (level == CGR_LOG_WARNING)
        static_cast<LostCalls *>(test)->logs_.push_back(text);
    };
    CGR_ASSERT_OK(cgr_runtime_create(&config, &rt_));
  }
  cgr_capture Capture() {
    cgr_capture capture = CGR_CAPTURE_INIT;
    capture.record = [](cgr_recorder *recorder, void *engine) {
      LostCalls &self = *static_cast<LostCalls *>(engine);
      cgr_status status = CGR_OK;
      for (Which which : self.calls_) {
        const Args args = { &self, which };
        status = status == CGR_OK ? cgr_record_call(recorder, Function, &args, sizeof args) : status;
      }
      return status;
    };
    capture.engine = this;
    return capture;
  }
  static cgr_status Function(cgr_recorder *recorder, const void *raw) {
    const Args &args = *static_cast<const Args *>(raw);
    cgr_record_info info = CGR_RECORD_INFO_INIT;
    const Args inner = { args.test, kKernel };
    args.test->made_++;
    switch (args.which) {
    case kNothing:
      return CGR_OK;
    case kKernel:
      CGR_EXPECT_OK(cgr_record_get_info(recorder, &info));
      return cgr_fill(args.test->dev_, args.test->memory_, 1, 64, info.stream);
    case kNested:
      return cgr_record_call(recorder, Function, &inner, sizeof inner);
    default:
      return CGR_ERROR_BUSY;
    }
  }
  void ExpectOneWarning(const Words &words) {
    ASSERT_EQ(logs_.size(), 1u);
    for (const std::string &word : words)
      EXPECT_NE(logs_[0].find(word), std::string::npos) << word << " in " << logs_[0];
    logs_.clear();
  }

  cgr_device *dev_ = nullptr;
  cgr_runtime *rt_ = nullptr;
  void *memory_ = nullptr;
  std::vector<Which> calls_;
  std::vector<std::string> logs_;
  int made_ = 0;
};

TEST_P(LostCalls, AreAWarningOnceForEachCall) {
  Make(CGR_MODE_FULL_DECODE_ONLY);
  calls_ = { kKernel, kNothing, kNested };
  cgr_capture capture = Capture();
  CGR_ASSERT_OK(cgr_runtime_capture(rt_, &capture));
  ExpectOneWarning({ "cgr_record_call: call 1 of `record`", "added no node to the graph full 4r 4t q1 v0 and 2 other graphs",
                     "CGR_MODE_PIECEWISE", "CGR_SUPPORT_NEVER" });
  CGR_ASSERT_OK(cgr_runtime_capture(rt_, &capture)); // nothing to capture
  EXPECT_TRUE(logs_.empty());
  CGR_ASSERT_OK(cgr_runtime_release_graphs(rt_, 0, nullptr));
  const cgr_graph_stats stats = GraphStatsOf(rt_, 0);
  capture.keys = &stats.key, capture.num_keys = 1;
  CGR_ASSERT_OK(cgr_runtime_capture(rt_, &capture));
  ExpectOneWarning({ "added no node to the graph full 1r 1t q1 v0, so no replay" });
  calls_ = { kNothing, kNothing, kKernel, kNothing };
  CGR_ASSERT_OK(cgr_runtime_release_graphs(rt_, 0, nullptr));
  CGR_ASSERT_OK(cgr_runtime_capture(rt_, &capture));
  EXPECT_EQ(logs_.size(), 3u);
  logs_.clear();
  cgr_capture_estimate estimate = CGR_CAPTURE_ESTIMATE_INIT;
  calls_ = { kNothing };
  CGR_ASSERT_OK(cgr_runtime_release_graphs(rt_, 0, nullptr));
  CGR_ASSERT_OK(cgr_runtime_estimate_capture(rt_, &capture, &estimate));
  ExpectOneWarning({ "call 0 of `record`" });
}

TEST_P(LostCalls, AreNoneAtBreaksAndInEagerSteps) {
  calls_ = { kNothing, kKernel };
  for (cgr_graph_mode mode : { CGR_MODE_PIECEWISE, CGR_MODE_NONE }) {
    Make(mode);
    const cgr_capture capture = Capture();
    CGR_ASSERT_OK(cgr_runtime_warmup(rt_, &capture));
    CGR_ASSERT_OK(cgr_runtime_capture(rt_, &capture));
    EXPECT_TRUE(logs_.empty());
  }
  Make(CGR_MODE_FULL_DECODE_ONLY);
  calls_ = { kKernel, kNested };
  const cgr_capture capture = Capture();
  CGR_ASSERT_OK(cgr_runtime_capture(rt_, &capture));
  EXPECT_TRUE(logs_.empty());
}

// A call that fails is a capture that failed, and the log says that alone; an audit captures, too, and says nothing.
TEST_P(LostCalls, AreNoneInCapturesThatMakeNoGraph) {
  Make(CGR_MODE_FULL_DECODE_ONLY);
  calls_ = { kFails };
  cgr_capture capture = Capture();
  EXPECT_EQ(cgr_runtime_capture(rt_, &capture), CGR_ERROR_CALLBACK);
  for (const std::string &log : logs_)
    EXPECT_EQ(log.find("added no node"), std::string::npos) << log;
  logs_.clear();
  calls_ = { kNothing };
  CGR_ASSERT_OK(cgr_runtime_capture(rt_, &capture));
  EXPECT_EQ(logs_.size(), 1u);
  logs_.clear();
  int32_t count = 0, region = -1;
  CGR_ASSERT_OK(cgr_region_register(rt_, memory_, 64, &region));
  CGR_ASSERT_OK(cgr_runtime_release_graphs(rt_, 0, nullptr));
  calls_ = { kKernel };
  CGR_ASSERT_OK(cgr_runtime_capture(rt_, &capture));
  calls_ = { kKernel, kNothing };
  CGR_EXPECT_OK(cgr_runtime_audit(rt_, nullptr, nullptr, 0, &count));
  CGR_ASSERT_OK(cgr_runtime_capture(rt_, &capture));
  EXPECT_TRUE(logs_.empty());
}

CGR_INSTANTIATE_OVER_FEW_DEVICES(LostCalls);

} // namespace
} // namespace cgr_test

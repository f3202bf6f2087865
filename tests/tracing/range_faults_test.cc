// A call of the device fails, each in turn, while a tool listens: every range that has begun has ended when the public call
// returns.
#include <memory>

#include "devices/shims/fault.h"
#include "tests/support/devices.h"
#include "tests/support/tiny_engine.h"
#include "tests/tracing/handler.h"

namespace cgr_test {
namespace {

class RangeFaults : public ::testing::TestWithParam<cgr_graph_mode> {
protected:
  void SetUp() override { CGR_SKIP_WITHOUT_TOOL(); }
  void ExpectEnded() {
    ASSERT_EQ(tool_.Depth(), 0) << tool_.Tree();
    ASSERT_TRUE(tool_.wrong.empty()) << tool_.wrong[0];
  }
  // Whatever fails, the next call is made.
  void Everything() {
    cgr_runtime *rt = engine_->rt;
    const cgr_capture capture = engine_->CaptureStruct();
    int32_t count = 0, row = -1;
    const int32_t page = 5, token = 41;
    cgr_batch batch = CGR_BATCH_INIT;
    cgr_step step = CGR_STEP_INIT;
    cgr_capture_estimate estimate = CGR_CAPTURE_ESTIMATE_INIT;
    cgr_key key = CGR_KEY_INIT;
    (void)cgr_runtime_estimate_capture(rt, &capture, &estimate);
    ASSERT_NO_FATAL_FAILURE(ExpectEnded());
    (void)cgr_runtime_warmup(rt, &capture);
    ASSERT_NO_FATAL_FAILURE(ExpectEnded());
    (void)cgr_runtime_capture(rt, &capture);
    ASSERT_NO_FATAL_FAILURE(ExpectEnded());
    (void)cgr_runtime_audit(rt, nullptr, nullptr, 0, &count);
    ASSERT_NO_FATAL_FAILURE(ExpectEnded());
    (void)engine_->SelfTest(&count);
    ASSERT_NO_FATAL_FAILURE(ExpectEnded());
    batch.num_requests = cgr_request_open(rt, 1, &row) == CGR_OK;
    (void)cgr_request_set_pages(rt, row, 0, 0, &page, 1);
    batch.rows = &row;
    batch.tokens = &token;
    (void)cgr_runtime_flush(rt, nullptr, nullptr, engine_->stream);
    ASSERT_NO_FATAL_FAILURE(ExpectEnded());
    for (int eager = 0; eager < 2; eager++) {
      (void)cgr_runtime_enable_graphs(rt, !eager);
      (void)cgr_step_choose(rt, &batch, &key);
      ASSERT_NO_FATAL_FAILURE(ExpectEnded());
      if (cgr_step_prepare(rt, &batch, &step) == CGR_OK && cgr_step_launch(rt, &step, engine_->stream) != CGR_OK)
        (void)cgr_step_cancel(rt, &step); /* if it is still prepared */
      ASSERT_NO_FATAL_FAILURE(ExpectEnded());
      (void)cgr_step_wait(rt, step.mark, -1, nullptr);
      ASSERT_NO_FATAL_FAILURE(ExpectEnded());
    }
    (void)cgr_runtime_release_graphs(rt, 0, nullptr);
    ASSERT_NO_FATAL_FAILURE(ExpectEnded());
  }
  Tool &tool_ = Tool::Get();
  std::unique_ptr<TinyEngine> engine_;
};

TEST_P(RangeFaults, EveryRangeEnds) {
  for (int error : { CGR__DEVICE_FAILED, CGR__DEVICE_DEAD }) {
    uint64_t nth = 0, fired = 1;
    for (; fired > 0 && !HasFatalFailure(); nth++) {
      SCOPED_TRACE("call " + std::to_string(nth + 1) + ", error " + std::to_string(error));
      const cgr__fault_plan plan = { CGR__FAULT_ANY_OP, nth + 1, CGR__FAULT_ONCE, 0, error, 77 };
      tool_.Clear();
      const HostDevice dev(CGR_SCHEDULE_EARLIEST, true);
      engine_ = std::make_unique<TinyEngine>(dev, GetParam(), 1);
      cgr__fault_set(dev, &plan);
      Everything();
      fired = cgr__fault_fired(dev);
      cgr__fault_set(dev, nullptr);
      engine_.reset();
      ASSERT_NO_FATAL_FAILURE(ExpectEnded());
    }
    EXPECT_GT(nth, 200u);
  }
}

// A runtime is created, or fails to be: every call from the n-th on fails, or only the n-th.
TEST(RangeFaultsOfCreation, EveryRangeEnds) {
  CGR_SKIP_WITHOUT_TOOL();
  Tool &tool = Tool::Get();
  for (const int mode : { CGR__FAULT_ONCE, CGR__FAULT_FROM_NTH_ON })
    for (uint64_t nth = 1, fired = 1; fired > 0; nth++) {
      SCOPED_TRACE("call " + std::to_string(nth) + ", mode " + std::to_string(mode));
      const HostDevice dev(CGR_SCHEDULE_EARLIEST, true);
      const cgr__fault_plan plan = { CGR__FAULT_ANY_OP, nth, mode, 0, CGR__DEVICE_FAILED, 77 };
      cgr_group group = CGR_GROUP_INIT;
      group.num_pages = 12;
      cgr_config config = CGR_CONFIG_INIT;
      config.device_handle = dev;
      config.groups = &group;
      config.num_groups = 1;
      config.max_requests = config.max_tokens = 4;
      config.max_seq_len = 32;
      config.nvtx = 1;
      cgr_runtime *rt = nullptr;
      tool.Clear();
      cgr__fault_set(dev, &plan);
      const cgr_status status = cgr_runtime_create(&config, &rt);
      fired = cgr__fault_fired(dev);
      cgr__fault_set(dev, nullptr);
      EXPECT_EQ(status == CGR_OK, fired == 0);
      ASSERT_EQ(tool.Depth(), 0) << tool.Tree();
      CGR_EXPECT_OK(cgr_runtime_destroy(rt));
      ASSERT_EQ(tool.Depth(), 0) << tool.Tree();
      ASSERT_TRUE(tool.wrong.empty()) << tool.wrong[0];
      EXPECT_TRUE(fired > 0 || nth > 10);
    }
}

INSTANTIATE_TEST_SUITE_P(Modes, RangeFaults, ::testing::Values(CGR_MODE_FULL, CGR_MODE_PIECEWISE),
                         [](const auto &made) { return made.param == CGR_MODE_FULL ? "full" : "piecewise"; });

} // namespace
} // namespace cgr_test

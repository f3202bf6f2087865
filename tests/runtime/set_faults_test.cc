// A device call fails while a step of another length set is launched: the rows' sequences stay as they are, whether the step ran
// or not, and the same tokens can be given again.
#include "buffers/ring.h"
#include "devices/shims/fault.h"
#include "runtime/runtime.h"
#include "tests/support/modes.h"
#include "tests/support/sets_case.h"

namespace cgr_test {
namespace {

using namespace sets;

class SetFaults : public ::testing::TestWithParam<DeviceAndMode> {
protected:
  static int32_t HasToken(const SetsEngine &e, int32_t row) {
    cgr_request_info info = CGR_REQUEST_INFO_INIT;
    CGR_EXPECT_OK(cgr_request_get_info(e.rt, row, &info));
    return info.has_token;
  }
};

TEST_P(SetFaults, LeaveTheTokensOfTheSequences) {
  Options options = EncoderAndDecoder();
  ASSERT_EQ(cgr__fault_open(OpenDevice(GetParam().device), &options.handle), CGR__DEVICE_OK);
  Captured<SetsEngine> e(GetParam().device, GetParam().mode, options, 11);
  const int32_t a = e.Open(), b = e.Open();
  e.Encode({ { a, 2 }, { b, 3 } });
  e.Decode({ { a, 3 }, { b, 1 } });
  ASSERT_EQ(HasToken(e, a), 1);
  int failed = 0, ran = 0;
  bool fired = true;
  for (uint64_t nth = 1; fired; nth++) {
    SCOPED_TRACE("call " + std::to_string(nth));
    ASSERT_LT(nth, 200u);
    const std::vector<Count> items = { { a, 1 }, { b, 2 } };
    CGR_ASSERT_OK(e.Prepare(items, 1));
    cgr__fault_plan plan = {};
    plan.op = CGR__FAULT_ANY_OP, plan.nth = nth, plan.take_effect = 1, plan.error = CGR__DEVICE_FAILED;
    cgr__fault_set(e.dev, &plan);
    const cgr_status status = cgr_step_launch(e.rt, &e.step, e.stream);
    fired = cgr__fault_fired(e.dev) > 0;
    cgr__fault_set(e.dev, nullptr);
    EXPECT_EQ(status == CGR_OK, !fired) << cgr_last_message();
    if (e.step.state == CGR_STEP_PREPARED)
      CGR_EXPECT_OK(cgr_step_cancel(e.rt, &e.step));
    else if (status == CGR_OK)
      CGR_EXPECT_OK(cgr_step_wait(e.rt, e.step.mark, -1, nullptr));
    else {
      cgr_step_result result = CGR_STEP_RESULT_INIT;
      CGR_EXPECT_OK(cgr_step_wait(e.rt, e.step.mark, -1, &result));
      EXPECT_EQ(result.num_requests, 0) << "the step was abandoned";
      failed++;
      ran += cgr__ring_result(&e.rt->lane.ring, e.step.mark.seq)->num_requests > 0;
    }
    for (int32_t row : { a, b })
      EXPECT_EQ(HasToken(e, row), 1) << "row " << row;
  }
  EXPECT_GT(failed, 0);
  EXPECT_GT(ran, 0) << "this test needs a step that ran although its launch failed";
  e.Run({ { a, 2 }, { b, 3 } }, 1, nullptr); // all that the rows have of the set
  e.Decode({ { a, 1 }, { b, 1 } });
}

INSTANTIATE_TEST_SUITE_P(Devices, SetFaults, ::testing::ValuesIn(EveryPair(HostDevices(), { CGR_MODE_NONE, CGR_MODE_PIECEWISE })),
                         ModeLabel);

} // namespace
} // namespace cgr_test

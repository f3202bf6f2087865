// The planner runs on its own stream of higher priority; it is enqueued before any work of the engine and joined before the
// first append.
#include "devices/shims/trace.h"
#include "kernels/append.h"
#include "kernels/planner.h"
#include "tests/support/engine_case.h"

namespace cgr_test {
namespace {

class PlannerBranch : public EngineTest {
protected:
  void SetUpOnDevice() override {
    ASSERT_EQ(cgr__trace_open(OpenDevice(GetParam()), &traced_), CGR__DEVICE_OK);
    EngineOptions options = OptionsFor(GetParam(), CGR_MODE_NONE);
    options.handle = traced_;
    engine_ = MakeCaptured(options);
  }
  // Everything that was called since the last reset.
  std::vector<cgr__shim_call> Calls() {
    std::vector<cgr__shim_call> calls;
    struct cgr__trace_entry entry;
    for (uint64_t i = 0; cgr__trace_get(traced_, i, &entry); i++)
      calls.push_back(entry.call);
    return calls;
  }
  cgr_device *traced_ = nullptr;
};

// The index of the first call that matches, or the number of calls.
template <typename Meant> size_t Find(const std::vector<cgr__shim_call> &calls, Meant meant) {
  return size_t(std::find_if(calls.begin(), calls.end(), meant) - calls.begin());
}

TEST_P(PlannerBranch, HasAStreamOfHigherPriorityAndIsJoinedBeforeTheFirstAppend) {
  std::map<cudaStream_t, cgr__stream_priority> made;
  for (const cgr__shim_call &call : Calls())
    if (call.op == CGR__OP_STREAM_CREATE)
      made[call.stream] = call.priority;
  int32_t row = engine_->Open();
  cgr__trace_reset(traced_);
  CGR_ASSERT_OK(engine_->Prepare(engine_->Chunks({ { row, 5 } })));
  CGR_ASSERT_OK(engine_->Launch());
  std::vector<cgr__shim_call> calls = Calls(); // before a wait, whose many queries the trace has no room for
  engine_->CheckAll();
  auto launches = [](const cgr__kernel *kernel) {
    return [=](const cgr__shim_call &call) { return call.op == CGR__OP_LAUNCH && call.object == kernel; };
  };
  size_t planner = Find(calls, launches(&cgr__kernel_planner)), append = Find(calls, launches(&cgr__kernel_append));
  size_t engines = Find(calls, [](const cgr__shim_call &call) { return call.op == CGR__OP_HOST_CALL; });
  ASSERT_LT(planner, append);
  ASSERT_LT(planner, engines) << "what the engine enqueues comes after it";
  ASSERT_LT(append, calls.size());
  cudaStream_t branch = calls[planner].stream, step = calls[append].stream;
  ASSERT_NE(branch, step);
  ASSERT_EQ(made.count(branch), 1u);
  EXPECT_EQ(made[branch], CGR__STREAM_URGENT);
  for (const auto &stream : made)
    EXPECT_EQ(stream.second, stream.first == branch ? CGR__STREAM_URGENT : CGR__STREAM_NORMAL);
  size_t recorded =
      Find(calls, [&](const cgr__shim_call &call) { return call.op == CGR__OP_EVENT_RECORD && call.stream == branch; });
  ASSERT_LT(recorded, append);
  EXPECT_LT(planner, recorded);
  size_t joined = Find(calls, [&](const cgr__shim_call &call) {
    return call.op == CGR__OP_EVENT_WAIT && call.stream == step && call.object == calls[recorded].object;
  });
  EXPECT_LT(recorded, joined);
  EXPECT_LT(joined, append);
}

CGR_INSTANTIATE_OVER_DEVICES(PlannerBranch);

} // namespace
} // namespace cgr_test

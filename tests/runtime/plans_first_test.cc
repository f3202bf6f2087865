// Plans that come first, both an engine's backend's and the library's own: they run before on-demand buffers and staged buffers,
// which they may not ask for. There is no plan without a planner.
#include "devices/shims/trace.h"
#include "kernels/on_demand.h"
#include "kernels/planner.h"
#include "kernels/staged.h"
#include "tests/support/planner.h"
#include "tests/support/refused.h"

namespace cgr_test {
namespace {

PlannerOptions First(const char *name = "first", int32_t layer = 1) {
  PlannerOptions o = OnBoth(name, layer);
  o.on_host = false, o.plan_bytes = 0, o.flags = CGR_BACKEND_PLANS_FIRST;
  return o;
}

class PlansFirst : public PlanningTest {
protected:
  void Make(const std::vector<PlannerOptions> &planners, std::function<void(cgr_config *)> adjust = nullptr) {
    ASSERT_EQ(cgr__trace_open(OpenDevice(GetParam().device), &traced_), CGR__DEVICE_OK);
    PlanningTest::Make(planners, std::move(adjust), traced_);
  }
  // The trace indices of the launches of a kernel since the last reset.
  std::vector<uint64_t> LaunchesOf(const cgr__kernel &kernel) {
    std::vector<uint64_t> launches;
    struct cgr__trace_entry entry;
    for (uint64_t i = 0; cgr__trace_get(traced_, i, &entry); i++)
      if (entry.call.op == CGR__OP_LAUNCH && entry.call.object == &kernel)
        launches.push_back(i);
    return launches;
  }
  cgr_device *traced_ = nullptr;
};

TEST_P(PlansFirst, FindTheBatchAndAreFoundByTheAttention) {
  ASSERT_NO_FATAL_FAILURE(Make({ First(), OnBoth("after", 0) },
                               [](cgr_config *config) { config->on_demand = CGR_ON_DEMAND(CGR_BUFFER_BLOCK_TABLE); }));
  const int32_t a = engine().Open(), b = engine().Open(), c = engine().Open();
  for (int n = 0; n < 6 && !HasFatalFailure(); n++) {
    p_->Run(engine().Chunks({ { a, 5 }, { b, 1 + n % 3 }, { c, 2 } }));
    p_->Run(engine().Decode({ c, a }));
    engine().CheckAll();
    p_->Run({});
    p_->Run(engine().Decode({ c, b }), nullptr, true);
    p_->Run(engine().Decode({ c, b }), nullptr, true);
    engine().CheckAll();
  }
  p_->CheckSeen();
}

// In an eager step, where calls can be traced one by one.
TEST_P(PlansFirst, AreEnqueuedBeforeWhatIsOnDemandAndStaged) {
  PlannerOptions after = OnBoth("after", 0); // its plan of the host is staged
  ASSERT_NO_FATAL_FAILURE(
      Make({ First(), after }, [](cgr_config *config) { config->on_demand = CGR_ON_DEMAND(CGR_BUFFER_BLOCK_TABLE); }));
  const int32_t row = engine().Start(5);
  const cgr_key eager = EagerKey(1, 1);
  uint64_t planned[2] = { 0, 0 };
  for (size_t i : { 0, 1 })
    (*p_)[i].on_plan = [&planned, i, this](cgr_recorder *) {
      planned[i] = cgr__trace_total(traced_);
      return CGR_OK;
    };
  p_->Prepare(engine().Decode({ row }), &eager);
  cgr__trace_reset(traced_);
  p_->Launch();
  const std::vector<uint64_t> on_demand = LaunchesOf(cgr__kernel_on_demand), staged = LaunchesOf(cgr__kernel_staged);
  engine().CheckAll();
  ASSERT_EQ(on_demand.size(), 1u);
  ASSERT_EQ(staged.size(), 1u);
  EXPECT_LT(planned[0], on_demand[0]);
  EXPECT_LT(on_demand[0], staged[0]);
  EXPECT_LT(staged[0], planned[1]);
}

// A plan that asks for a on-demand buffer is on the branch that fills it: the plan waits for nothing, the attention for both.
TEST_P(PlansFirst, ThoseAfterDoNotJoinTheirOwnBranch) {
  ASSERT_NO_FATAL_FAILURE(
      Make({ OnBoth("after", 0) }, [](cgr_config *config) { config->on_demand = CGR_ON_DEMAND(CGR_BUFFER_BLOCK_TABLE); }));
  const int32_t row = engine().Start(5);
  const cgr_key eager = EagerKey(1, 1);
  std::vector<std::pair<int, cudaStream_t>> calls[2];
  for (bool asks : { false, true }) {
    (*p_)[0].on_plan = [asks](cgr_recorder *recorder) {
      cgr_buffer_view view = CGR_BUFFER_VIEW_INIT;
      return asks ? cgr_record_buffer(recorder, CGR_BUFFER_BLOCK_TABLE, 0, &view) : CGR_OK;
    };
    p_->Prepare(engine().Decode({ row }), &eager);
    cgr__trace_reset(traced_);
    p_->Launch();
    struct cgr__trace_entry entry;
    for (uint64_t i = 0; cgr__trace_get(traced_, i, &entry); i++)
      calls[asks].emplace_back(int(entry.call.op), entry.call.stream);
    engine().CheckAll();
  }
  EXPECT_GT(calls[0].size(), 5u);
  EXPECT_EQ(calls[0], calls[1]);
}

TEST_P(PlansFirst, MayNotAskForBuffersOnDemand) {
  ASSERT_NO_FATAL_FAILURE(
      Make({ First() }, [](cgr_config *config) { config->on_demand = CGR_ON_DEMAND(CGR_BUFFER_BLOCK_TABLE); }));
  const int32_t row = engine().Start(4);
  const cgr_key eager = EagerKey(1, 1);
  auto take = [](cgr_recorder *recorder, cgr_buffer buffer) {
    cgr_buffer_view view = CGR_BUFFER_VIEW_INIT;
    return cgr_record_buffer(recorder, buffer, 0, &view);
  };
  (*p_)[0].TakeSeen();
  (*p_)[0].on_plan = [&](cgr_recorder *recorder) { return take(recorder, CGR_BUFFER_BLOCK_TABLE); };
  p_->Prepare(engine().Decode({ row }), &eager);
  ExpectMessage(engine().Launch(), CGR_ERROR_CALLBACK,
                { "cgr_record_buffer", "PLANS_FIRST", "expected one that is not on demand" });
  EXPECT_EQ(engine().step.state, CGR_STEP_ABANDONED);
  engine().WaitForAll();
  (*p_)[0].TakeSeen();
  (*p_)[0].on_plan = [&](cgr_recorder *recorder) { return take(recorder, CGR_BUFFER_SEQ_LENS); };
  p_->Run(engine().Decode({ row }), &eager);
  engine().CheckAll();
  p_->CheckSeen();
}

// A layer of the library's own costs one planner in each step; without one, or without a layer that plans, there is no branch.
TEST_P(PlansFirst, TheLibraryPlansForItsOwnLayersAlone) {
  PlannerOptions copies;
  copies.states = false;
  PlannerOptions layers[2] = { copies, copies };
  layers[0].layer = 0;
  layers[0].name = "other";
  for (size_t num_own : { 1, 0 }) {
    SCOPED_TRACE(num_own);
    std::vector<PlannerOptions> planners(layers, layers + 2 - num_own);
    ASSERT_NO_FATAL_FAILURE(Make(planners));
    const int32_t row = engine().Start(5);
    const cgr_key eager = EagerKey(1, 1);
    p_->Prepare(engine().Decode({ row }), &eager);
    cgr__trace_reset(traced_);
    p_->Launch();
    size_t planned = LaunchesOf(cgr__kernel_planner).size(), waits = 0;
    struct cgr__trace_entry entry;
    for (uint64_t i = 0; cgr__trace_get(traced_, i, &entry); i++)
      waits += entry.call.op == CGR__OP_EVENT_WAIT;
    engine().CheckAll();
    EXPECT_EQ(planned, num_own);
    EXPECT_EQ(waits, 2 * num_own) << "the branch and its end";
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, PlansFirst,
                         ::testing::ValuesIn(EveryPair(AllDevices(), { CGR_MODE_NONE, CGR_MODE_PIECEWISE, CGR_MODE_FULL })),
                         ModeLabel);

} // namespace
} // namespace cgr_test

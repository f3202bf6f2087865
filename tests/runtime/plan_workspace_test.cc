// Workspaces of backends: zeroed at first and after a step is given up, at a fixed address, counted, and where graphs may look.
#include "devices/shims/fault.h"
#include "devices/shims/trace.h"
#include "tests/support/planner.h"
#include "tests/support/refused.h"

namespace cgr_test {
namespace {

enum { kBytes = 5000 };

class PlanWorkspace : public OverDevices {
protected:
  static PlannerOptions Dirty(const char *name = "planner", int32_t layer = 1) {
    PlannerOptions o;
    o.name = name, o.layer = layer, o.workspace_bytes = kBytes, o.dirties = true;
    return o;
  }
  void Make(cgr_graph_mode mode, const std::vector<PlannerOptions> &planners, cgr_device *handle = nullptr) {
    EngineOptions options = PlanningOptions(GetParam(), mode);
    options.handle = handle;
    p_.reset();
    p_ = std::make_unique<Planning>(options, planners);
    CGR_ASSERT_OK(p_->engine->Capture());
  }
  Engine &engine() { return *p_->engine; }
  void SelfTest() {
    std::vector<int32_t> pages;
    for (int32_t page = 40; page < 80; page++)
      pages.push_back(page);
    cgr_self_test test = CGR_SELF_TEST_INIT;
    test.num_pages = int32_t(pages.size()), test.pages = pages.data(), test.max_token = 200, test.seed = 5;
    for (int32_t l = 0; l < engine().state.num_layers; l++)
      for (Tensor which : kTensors)
        CGR_ASSERT_OK(cgr_fill(engine().dev, engine().state.layer[l].in[which].data, 0x3c,
                               engine().state.layer[l].in_bytes[which], engine().stream));
    engine().Sync();
    cgr_finding findings[8];
    int32_t count = -1;
    const size_t planned = (*p_)[0].host.size();
    CGR_EXPECT_OK(cgr_runtime_self_test(engine().rt, &test, findings, 8, &count));
    for (int32_t i = 0; i < std::min(count, 8); i++)
      ADD_FAILURE() << findings[i].text;
    EXPECT_GT((*p_)[0].host.size(), planned) << "its steps are planned as others are";
  }
  void *Workspace(size_t i = 0) { return (*p_)[i].states.at(0)->key.workspace; }
  void ExpectFilled(int byte, size_t i = 0) {
    const std::vector<unsigned char> got = engine().Read<unsigned char>(Workspace(i), kBytes);
    EXPECT_EQ(got, std::vector<unsigned char>(kBytes, (unsigned char)byte)) << "starts with " << int(got[0]);
  }
  std::unique_ptr<Planning> p_;
};

TEST_P(PlanWorkspace, IsZeroAtFirstAndThenTheBackends) {
  for (cgr_graph_mode mode : { CGR_MODE_FULL, CGR_MODE_PIECEWISE, CGR_MODE_NONE }) {
    ASSERT_NO_FATAL_FAILURE(Make(mode, { Dirty("first", 0), Dirty("second", 1) }));
    ExpectFilled(0, 0);
    ExpectFilled(0, 1);
    std::vector<void *> before = { Workspace(0), Workspace(1) };
    EXPECT_GE(size_t(std::abs(static_cast<char *>(before[0]) - static_cast<char *>(before[1]))), size_t(kBytes));
    const int32_t row = engine().Start(5);
    ExpectFilled(0x77, 0);
    ExpectFilled(0x77, 1);
    for (int n = 0; n < 3; n++)
      engine().Step(engine().Decode({ row }));
    engine().Step({});
    CGR_ASSERT_OK(engine().Prepare(engine().Decode({ row })));
    CGR_ASSERT_OK(engine().Cancel());
    CGR_ASSERT_OK(engine().Flush());
    ExpectFilled(0x77, 0);
    CGR_ASSERT_OK(cgr_runtime_release_graphs(engine().rt, 0, nullptr));
    CGR_ASSERT_OK(engine().Capture());
    for (size_t i : { 0, 1 })
      for (auto &state : (*p_)[i].states)
        EXPECT_EQ(state->key.workspace, before[i]);
  }
}

TEST_P(PlanWorkspace, IsZeroAfterARecordThatFails) {
  for (cgr_graph_mode mode : { CGR_MODE_PIECEWISE, CGR_MODE_NONE })
    for (bool other_stream : { false, true }) {
      ASSERT_NO_FATAL_FAILURE(Make(mode, { Dirty("first", 0), Dirty("second", 1) }));
      cudaStream_t other = nullptr;
      CGR_ASSERT_OK(cgr_stream_create(engine().dev, &other));
      engine().side = other;
      const int32_t row = engine().Start(5);
      for (int n = 0; n < 4; n++) {
        engine().Step(engine().Decode({ row }));
        ExpectFilled(0x77, 0);
        CGR_ASSERT_OK(engine().Prepare(engine().Decode({ row })));
        (*p_)[1].on_record = [](cgr_recorder *) { return CGR_ERROR_BUSY; };
        ExpectMessage(engine().Launch(), CGR_ERROR_CALLBACK, { "backend second" });
        (*p_)[1].on_record = nullptr;
        // Once the step is seen to complete, the workspace reads as zeros on any stream.
        CGR_ASSERT_OK(cgr_step_wait(engine().rt, engine().step.mark, -1, nullptr));
        std::vector<unsigned char> got(kBytes, 1);
        for (size_t i : { 0, 1 }) {
          cudaStream_t on = other_stream ? other : engine().stream;
          CGR_ASSERT_OK(cgr_copy(engine().dev, got.data(), Workspace(i), kBytes, on));
          CGR_ASSERT_OK(cgr_stream_synchronize(engine().dev, on));
          EXPECT_EQ(got, std::vector<unsigned char>(kBytes, 0));
        }
      }
      engine().Step(engine().Decode({ row }));
      ExpectFilled(0x77, 1);
    }
}

// The next step may be on another stream; it still runs after the zeroing.
TEST_P(PlanWorkspace, IsNotZeroedUnderTheNextStep) {
  ASSERT_NO_FATAL_FAILURE(Make(CGR_MODE_NONE, { Dirty() }));
  CGR_ASSERT_OK(cgr_stream_create(engine().dev, &engine().side));
  const int32_t row = engine().Start(5);
  engine().upload = engine().check_outputs = false; // it would run before the zeroing
  engine().Forget();
  for (int n = 0; n < 20 && !HasFailure(); n++) {
    CGR_ASSERT_OK(engine().Prepare(engine().Decode({ row })));
    (*p_)[0].on_record = [](cgr_recorder *) { return CGR_ERROR_BUSY; };
    CGR_EXPECT(CGR_ERROR_CALLBACK, engine().Launch());
    (*p_)[0].on_record = nullptr;
    if (n % 2 == 0) {
      CGR_ASSERT_OK(cgr_step_wait(engine().rt, engine().step.mark, -1, nullptr));
    }
    CGR_ASSERT_OK(engine().Prepare(engine().Decode({ row })));
    CGR_ASSERT_OK(engine().LaunchOn(engine().side));
    engine().CheckAll();
    CGR_ASSERT_OK(cgr_stream_synchronize(engine().dev, engine().side));
    ExpectFilled(0x77);
  }
}

// A launch that the device refuses: the step's number is used up by an empty step, which zeroes the workspace, or by the step
// itself, if the device has run it although it says otherwise.
TEST_P(PlanWorkspace, IsZeroAfterALaunchThatFails) {
  for (cgr_graph_mode mode : { CGR_MODE_FULL, CGR_MODE_PIECEWISE, CGR_MODE_NONE })
    for (int takes_effect : { 0, 1 }) {
      SCOPED_TRACE(takes_effect);
      cgr_device *faulty = nullptr;
      ASSERT_EQ(cgr__fault_open(OpenDevice(GetParam()), &faulty), CGR__DEVICE_OK);
      ASSERT_NO_FATAL_FAILURE(Make(mode, { Dirty() }, faulty));
      const int32_t row = engine().Start(5);
      engine().upload = false;
      engine().check_outputs = false;
      int given_up = 0;
      for (uint64_t nth = 1; nth < 60 && !HasFailure(); nth++) {
        SCOPED_TRACE(nth);
        engine().Step(engine().Chunks({ { row, 1 } }));
        ExpectFilled(0x77);
        CGR_ASSERT_OK(engine().Prepare(engine().Chunks({ { row, 1 } })));
        cgr__fault_plan plan = { CGR__FAULT_ANY_OP, nth, CGR__FAULT_ONCE, takes_effect, CGR__DEVICE_FAILED, 777 };
        cgr__fault_set(faulty, &plan);
        const cgr_status status = cgr_step_launch(engine().rt, &engine().step, engine().stream);
        const uint64_t fired = cgr__fault_fired(faulty);
        cgr__fault_set(faulty, nullptr);
        if (status == CGR_OK) {
          EXPECT_EQ(fired, 0u);
          CGR_ASSERT_OK(cgr_step_wait(engine().rt, engine().step.mark, -1, nullptr));
          break;
        }
        if (engine().step.state == CGR_STEP_PREPARED) {
          CGR_ASSERT_OK(engine().Cancel());
          continue;
        }
        given_up++;
        engine().launched = engine().step.mark.seq;
        CGR_ASSERT_OK(cgr_step_wait(engine().rt, engine().step.mark, -1, nullptr));
        ExpectFilled(0);
      }
      EXPECT_GT(given_up, 0);
      engine().Forget();
      engine().leave_in_flight = true;
    }
}

// ---- where it is

TEST_P(PlanWorkspace, IsCountedInTheMemory) {
  ASSERT_NO_FATAL_FAILURE(Make(CGR_MODE_NONE, { OnBoth() }));
  cgr_config config = engine().Config();
  auto sizes = [&](uint64_t workspace, uint64_t plan) {
    cgr_backend backend = (*p_)[0].Backend();
    backend.workspace_bytes = workspace, backend.plan_bytes = plan;
    if (plan == 0)
      backend.plan_host = nullptr;
    config.backends = &backend;
    cgr_memory_sizes s = CGR_MEMORY_SIZES_INIT;
    CGR_EXPECT_OK(cgr_runtime_memory(&config, &s));
    return s;
  };
  const cgr_memory_sizes none = sizes(0, 0), work = sizes(1 << 20, 0), both = sizes(1 << 20, 1 << 16);
  EXPECT_GE(work.device_bytes, none.device_bytes + (1u << 20));
  EXPECT_LE(work.device_bytes, none.device_bytes + (1u << 20) + 512);
  EXPECT_EQ(work.pinned_bytes, none.pinned_bytes);
  EXPECT_EQ(work.host_bytes, none.host_bytes);
  EXPECT_GE(both.device_bytes, work.device_bytes + (1u << 16));
  EXPECT_LE(both.device_bytes, work.device_bytes + (1u << 16) + 512);
  const uint64_t slots = (both.pinned_bytes - work.pinned_bytes) >> 16;
  EXPECT_GE(slots, 4u) << "one for each step in flight";
  EXPECT_LE(both.pinned_bytes - work.pinned_bytes, (slots << 16) + 4096);
  EXPECT_GE(both.host_bytes, work.host_bytes + (1u << 16));
}

// The audit finds the workspace's address and the plan's in the arena; the self-test finds that planning changes nothing.
TEST_P(PlanWorkspace, IsWhereGraphsMayLook) {
  for (cgr_graph_mode mode : { CGR_MODE_FULL, CGR_MODE_PIECEWISE }) {
    PlannerOptions o = OnBoth();
    o.watches = false;
    ASSERT_NO_FATAL_FAILURE(Make(mode, { o }));
    engine().RegisterAll();
    CGR_ASSERT_OK(engine().Capture());
    cgr_finding findings[8];
    cgr_audit counts = CGR_AUDIT_INIT;
    int32_t count = -1;
    const size_t made = (*p_)[0].states.size();
    const int asked = (*p_)[0].asked;
    CGR_EXPECT_OK(cgr_runtime_audit(engine().rt, &counts, findings, 8, &count));
    EXPECT_EQ(count, 0);
    for (int32_t i = 0; i < std::min(count, 8); i++)
      ADD_FAILURE() << findings[i].text;
    EXPECT_EQ((*p_)[0].states.size(), made) << "no state is made for an audit";
    EXPECT_EQ((*p_)[0].asked, asked + 2 * cgr_test::NumKeys(engine().rt)) << "it captures each twice";
    SelfTest();
    engine().Forget();
  }
}

CGR_INSTANTIATE_OVER_FEW_DEVICES(PlanWorkspace);

} // namespace
} // namespace cgr_test

// Plans that backends make on the device: behind the runtime's own first kernels, before the first attention, in graphs and eager
// steps; they find the batch, what the host has planned, and the on-demand buffers.
#include "devices/shims/trace.h"
#include "tests/support/planner.h"
#include "tests/support/refused.h"
#include "tests/support/seed.h"

namespace cgr_test {
namespace {

class PlansOnDevice : public PlanningTest {
protected:
  static void ExpectBegins(const std::string &text) {
    const std::string begin = "cgr_step_launch: " + text;
    EXPECT_EQ(std::string(cgr_last_message()).substr(0, begin.size()), begin);
  }
  // Some of each kind, several in flight.
  void RunSteps(int rounds) {
    std::vector<int32_t> rows;
    for (int i = 0; i < 4; i++)
      rows.push_back(engine().Open());
    for (int n = 0; n < rounds && !HasFatalFailure(); n++) {
      p_->Run(engine().Chunks({ { rows[0], 5 }, { rows[1], 1 + n % 3 }, { rows[2], 0 }, { rows[3], 2 } }));
      p_->Run(engine().Chunks({ { rows[2], 1 } }));
      p_->Run(engine().Decode({ rows[2], rows[0], rows[3] }));
      engine().CheckAll();
      p_->Run({});
      p_->Run(engine().Decode({ rows[3], rows[1] }), nullptr, true);
      p_->Run(engine().Decode({ rows[3], rows[1] }), nullptr, true);
      engine().CheckAll();
    }
    p_->CheckSeen();
  }
};

TEST_P(PlansOnDevice, FindTheBatchAndAreFoundByTheAttention) {
  PlannerOptions alone = OnBoth();
  alone.on_host = false, alone.plan_bytes = 0;
  ASSERT_NO_FATAL_FAILURE(Make({ alone }));
  RunSteps(6);
}

TEST_P(PlansOnDevice, FindWhatTheHostHasPlanned) {
  ASSERT_NO_FATAL_FAILURE(Make({ OnBoth() }));
  RunSteps(6);
}

// One plans on the host, another on the device.
TEST_P(PlansOnDevice, AlongsidePlansOnTheHost) {
  PlannerOptions host = OnBoth("host", 0), device = OnBoth("device", 1);
  host.on_device = false;
  device.on_host = false, device.plan_bytes = 0;
  ASSERT_NO_FATAL_FAILURE(Make({ host, device }));
  RunSteps(4);
  ASSERT_NO_FATAL_FAILURE(Make({ OnBoth("first", 1), OnBoth("second", 0) }));
  RunSteps(4);
}

// The engine's staged data are persistent buffers too.
TEST_P(PlansOnDevice, FindTheEnginesStagedBuffers) {
  cgr_buffer_decl decl = CGR_BUFFER_DECL_INIT;
  decl.name = "staged", decl.dimension = CGR_DIMENSION_REQUESTS, decl.dtype = CGR_DTYPE_I32;
  decl.source = CGR_SOURCE_STAGED, decl.padding = -5;
  PlannerOptions o = OnBoth();
  o.watches = o.on_host = false, o.plan_bytes = 0;
  EngineOptions options = PlanningOptions(GetParam().device, GetParam().mode);
  options.adjust = [&](cgr_config *config) { config->buffers = &decl, config->num_buffers = 1; };
  p_ = std::make_unique<Planning>(options, std::vector<PlannerOptions>{ o });
  const cgr_buffer_view view = BufferOf(engine().rt, CGR_BUFFER_DECLARED);
  void *copy = engine().Alloc(64);
  (*p_)[0].on_plan = [&](cgr_recorder *recorder) {
    const cgr_record_info info = InfoOf(recorder);
    return cgr_copy(engine().dev, copy, view.data, 4 * size_t(info.num_requests), info.stream);
  };
  CGR_ASSERT_OK(engine().Capture());
  const int32_t row = engine().Open();
  engine().Reserve(row, 40);
  for (int32_t n = 1; n < 20; n++) {
    const int32_t data = 100 + n;
    const cgr_staged staged = { 0, 0, &data };
    cgr_batch batch = BatchOf(1, &row, &n);
    cgr_step step = CGR_STEP_INIT;
    batch.staged = &staged, batch.num_staged = 1;
    CGR_ASSERT_OK(cgr_step_prepare(engine().rt, &batch, &step));
    CGR_ASSERT_OK(cgr_step_launch(engine().rt, &step, engine().stream));
    CGR_ASSERT_OK(cgr_step_wait(engine().rt, step.mark, -1, nullptr));
    EXPECT_EQ(engine().Read<int32_t>(copy, 1)[0], data);
    engine().launched = step.mark.seq;
  }
  CGR_EXPECT_OK(cgr_request_set_length(engine().rt, row, 0));
  engine().Forget();
}

// A plan that asks for a on-demand buffer is on the branch that fills it; the attention still waits for the plan.
TEST_P(PlansOnDevice, MayReadBuffersOnDemand) {
  ASSERT_NO_FATAL_FAILURE(
      Make({ OnBoth() }, [](cgr_config *config) { config->on_demand = CGR_ON_DEMAND(CGR_BUFFER_BLOCK_TABLE); }));
  auto take = [&](cgr_recorder *recorder) {
    cgr_buffer_view view = CGR_BUFFER_VIEW_INIT;
    return cgr_record_buffer(recorder, CGR_BUFFER_BLOCK_TABLE, 0, &view);
  };
  (*p_)[0].on_plan = take;
  CGR_ASSERT_OK(cgr_runtime_release_graphs(engine().rt, 0, nullptr));
  CGR_ASSERT_OK(engine().Capture());
  RunSteps(8);
}

TEST_P(PlansOnDevice, AreToldTheStep) {
  ASSERT_NO_FATAL_FAILURE(Make({ OnBoth() }));
  Planner &planner = (*p_)[0];
  EXPECT_EQ(planner.plans.size(), size_t(cgr_test::NumKeys(engine().rt)));
  for (const Planner::Call &call : planner.plans) {
    EXPECT_EQ(call.flags, uint32_t(CGR_PLAN_CAPTURE));
    EXPECT_EQ(call.info.capturing, 1);
    EXPECT_EQ(call.info.num_requests, call.key.num_requests);
    EXPECT_EQ(call.info.num_tokens, call.key.num_tokens);
    EXPECT_EQ(call.info.real_requests, -1);
  }
  const int32_t a = engine().Start(4), b = engine().Start(9);
  const cgr_key eager = EagerKey(3, 4), none = EagerKey(1, 1);
  planner.plans.clear();
  planner.records.clear();
  p_->Run(engine().Decode({ a, b }), &eager);
  ASSERT_EQ(planner.plans.size(), 1u);
  ASSERT_EQ(planner.records.size(), 1u);
  EXPECT_EQ(planner.plans[0].flags, 0u);
  EXPECT_EQ(planner.plans[0].info.capturing, 0);
  EXPECT_EQ(planner.plans[0].info.num_requests, 3);
  EXPECT_EQ(planner.plans[0].info.real_requests, 2);
  EXPECT_EQ(planner.plans[0].info.max_seq_len, 10);
  EXPECT_EQ(planner.plans[0].key.kind, CGR_KIND_NONE);
  EXPECT_EQ(planner.plans[0].state, planner.records[0].state);
  EXPECT_NE(planner.plans[0].info.stream, planner.records[0].info.stream) << "a branch";
  p_->Run({}, &none);
  ASSERT_EQ(planner.plans.size(), 2u);
  EXPECT_EQ(planner.plans[1].flags, uint32_t(CGR_PLAN_FAST));
  engine().CheckAll();
  planner.plans.clear();
  CGR_ASSERT_OK(engine().Warmup());
  EXPECT_EQ(planner.plans.size(), size_t(cgr_test::NumKeys(engine().rt)));
  for (const Planner::Call &call : planner.plans)
    EXPECT_EQ(call.flags, uint32_t(CGR_PLAN_FAST));
}

// On request: the host is told in every step, `plan` in eager steps alone. What other layers compute is the same, bit for bit.
TEST_P(PlansOnDevice, AreToldThatAStepIsFast) {
  std::vector<std::vector<unsigned char>> outputs[2];
  const cgr_key eager = EagerKey(3, 30);
  for (uint32_t flags : { 0u, uint32_t(CGR_PLAN_FAST) }) {
    ASSERT_NO_FATAL_FAILURE(Make({ OnBoth() }));
    Planner &planner = (*p_)[0];
    const std::vector<int32_t> rows = { engine().Start(5), engine().Start(9), engine().Start(40) };
    planner.TakeSeen(); // of those
    engine().plan_flags = flags;
    int of_graphs = 0;
    for (int n = 0; n < 8; n++) {
      const bool is_eager = n % 4 == 3 || GetParam().mode == CGR_MODE_NONE, standing = n % 2 == 1;
      const int32_t length = n < 4 ? 1 : 7;
      planner.plans.clear();
      p_->Run(engine().Chunks({ { rows[0], length }, { rows[1], 1 }, { rows[2], length } }), is_eager ? &eager : nullptr,
              standing);
      ASSERT_FALSE(HasFatalFailure());
      EXPECT_EQ(engine().step.key.kind == CGR_KIND_NONE, is_eager);
      ASSERT_EQ(planner.plans.size(), is_eager ? 1u : 0u);
      for (const Planner::Call &call : planner.plans)
        EXPECT_EQ(call.flags, flags);
      p_->CheckSeen(); // and of the host
      const cgr_view &out = engine().state.call[0].attention.out;
      const size_t bytes = size_t(2 * length + 1) * size_t(out.stride_token) * cgr_dtype_size(cgr_dtype(out.dtype));
      outputs[flags != 0].push_back(engine().Read<unsigned char>(out.data, bytes));
      of_graphs += !is_eager;
    }
    EXPECT_EQ(of_graphs, GetParam().mode == CGR_MODE_NONE ? 0 : 6);
    planner.plans.clear();
    CGR_ASSERT_OK(cgr_runtime_release_graphs(engine().rt, 0, nullptr));
    CGR_ASSERT_OK(engine().Capture());
    for (const Planner::Call &call : planner.plans)
      EXPECT_EQ(call.flags, uint32_t(CGR_PLAN_CAPTURE)) << "whatever the last step was";
    engine().plan_flags = 0;
    p_->Run(engine().Decode(rows), &eager);
    EXPECT_EQ(planner.plans.back().flags, 0u) << "it is for one step";
    p_->CheckSeen();
  }
  EXPECT_EQ(outputs[0], outputs[1]);
}

TEST_P(PlansOnDevice, MayNotCallAttendMergeMeasureOrCheckValues) {
  ASSERT_NO_FATAL_FAILURE(Make({ OnBoth() }));
  const int32_t row = engine().Start(4);
  const cgr_key eager = EagerKey(1, 1);
  int called = 0;
  auto call = [](cgr_recorder *, const void *args) {
    ++**static_cast<int *const *>(args);
    return CGR_OK;
  };
  for (bool returns : { true, false }) {
    for (const std::string what : { "attention", "call", "merge", "measure", "check_values" }) {
      (*p_)[0].on_plan = [&](cgr_recorder *recorder) {
        int *counter = &called;
        const cgr_merge merge = CGR_MERGE_INIT;
        const cgr_measure measure = CGR_MEASURE_INIT;
        const cgr_value_check check = CGR_VALUE_CHECK_INIT;
        cgr_status status = what == "attention" ? cgr_record_attention(recorder, &engine().state.call[0].attention)
                            : what == "call"    ? cgr_record_call(recorder, call, &counter, sizeof counter)
                            : what == "merge"   ? cgr_record_merge(recorder, &merge)
                            : what == "measure" ? cgr_record_measure(recorder, &measure)
                                                : cgr_record_check_values(recorder, &check);
        ExpectMessage(status, CGR_ERROR_STATE, { "cgr_record_" + what });
        return returns ? status : CGR_OK;
      };
      p_->Prepare(engine().Decode({ row }), &eager);
      CGR_EXPECT(CGR_ERROR_CALLBACK, engine().Launch());
      ExpectBegins(std::string("backend planner: plan: a call failed with CGR_ERROR_STATE: cgr_record_") + what +
                   ": called inside");
      EXPECT_EQ(engine().step.state, CGR_STEP_ABANDONED);
      (*p_)[0].on_plan = nullptr;
      engine().WaitForAll();
      (*p_)[0].TakeSeen();
      p_->Run(engine().Decode({ row }), &eager);
      p_->CheckSeen();
    }
  }
  EXPECT_EQ(called, 0);
}

// The failure is named once: whose function it was, what it returned, and the message of the call inside it.
TEST_P(PlansOnDevice, AFailureIsNamedOnce) {
  ASSERT_NO_FATAL_FAILURE(Make({ OnBoth() }));
  const int32_t row = engine().Start(4);
  const cgr_key eager = EagerKey(1, 1);
  auto silent = [](cgr_recorder *) { return CGR_ERROR_BUSY; };
  auto telling = [](cgr_recorder *) { return cgr_copy(nullptr, nullptr, nullptr, 0, nullptr); };
  auto looks_away = [](cgr_recorder *recorder) {
    cgr_buffer_view view = CGR_BUFFER_VIEW_INIT;
    cgr_record_buffer(recorder, CGR_BUFFER_COUNTS, 3, &view);
    return CGR_OK;
  };
  const struct {
    std::function<cgr_status(cgr_recorder *)> act;
    const char *what;
  } cases[] = { { silent, " returned CGR_ERROR_BUSY (13), expected CGR_OK" },
                { telling, " returned CGR_ERROR_NULL_POINTER (2): cgr_copy: " },
                { looks_away, ": a call failed with CGR_ERROR_INVALID_ARGUMENT: cgr_record_buffer: index of counts is 3" } };
  for (const auto &each : cases)
    for (bool plans : { true, false }) {
      (plans ? (*p_)[0].on_plan : (*p_)[0].on_record) = each.act;
      p_->Prepare(engine().Decode({ row }), &eager);
      CGR_EXPECT(CGR_ERROR_CALLBACK, engine().Launch());
      ExpectBegins((plans ? "backend planner: plan" : "backend planner, layer 1: record") + std::string(each.what));
      (*p_)[0].on_plan = (*p_)[0].on_record = nullptr;
      engine().WaitForAll();
      (*p_)[0].TakeSeen();
      p_->Run(engine().Decode({ row }), &eager);
      p_->CheckSeen();
    }
}

// Not what fails for that alone: a call that waits makes the capture invalid, and all that follows it.
TEST_P(PlansOnDevice, ACaptureNamesItsFirstFailure) {
  if (GetParam().mode == CGR_MODE_NONE)
    return;
  CGR_SKIP_WITHOUT_DEVICE(GetParam().device);
  EngineOptions options = PlanningOptions(GetParam().device, GetParam().mode);
  options.validation = false; // it would report what is done here on purpose
  p_ = std::make_unique<Planning>(options, std::vector<PlannerOptions>{ OnBoth() });
  (*p_)[0].on_plan = [&](cgr_recorder *recorder) {
    const cgr_record_info info = InfoOf(recorder);
    return info.capturing ? cgr_stream_synchronize(engine().dev, info.stream) : CGR_OK;
  };
  CGR_EXPECT(CGR_ERROR_CALLBACK, engine().Capture());
  for (const char *words :
       { "cgr_runtime_capture: ", "backend planner: plan returned CGR_ERROR_CAPTURE", "cgr_stream_synchronize" })
    EXPECT_NE(std::string(cgr_last_message()).find(words), std::string::npos) << cgr_last_message();
  (*p_)[0].on_plan = nullptr;
  CGR_ASSERT_OK(engine().Capture());
}

// Eager steps are given up; the next one is right.
TEST_P(PlansOnDevice, AFailureGivesTheStepUp) {
  ASSERT_NO_FATAL_FAILURE(Make({ OnBoth("first", 0), OnBoth("second", 1) }));
  const int32_t a = engine().Start(4), b = engine().Start(9);
  const cgr_key eager = EagerKey(2, 8);
  (*p_)[0].TakeSeen();
  (*p_)[1].TakeSeen();
  for (size_t failing : { 0, 1 })
    for (int n = 0; n < 3; n++) {
      p_->Run(engine().Decode({ b, a }));
      const std::vector<Item> items = engine().Chunks({ { a, 5 }, { b, 3 } });
      p_->Prepare(items, &eager);
      (*p_)[failing].on_plan = [](cgr_recorder *) { return CGR_ERROR_UNSUPPORTED; };
      ExpectMessage(engine().Launch(), CGR_ERROR_CALLBACK,
                    { std::string("backend ") + (failing == 0 ? "first" : "second") + ": plan returned CGR_ERROR_UNSUPPORTED" });
      EXPECT_EQ(engine().step.state, CGR_STEP_ABANDONED);
      (*p_)[failing].on_plan = nullptr;
      p_->Run(items, &eager);
      p_->Run(engine().Decode({ b, a }));
      p_->CheckSeen();
      engine().CheckCaches();
    }
}

// A backend without a plan on the device costs nothing: the calls and nodes are the same as without planning functions.
TEST_P(PlansOnDevice, OthersHaveNoMoreNodesAndCalls) {
  std::vector<int64_t> nodes[2];
  std::vector<uint64_t> calls[2];
  for (int planning : { 0, 1 }) {
    cgr_device *traced = nullptr;
    ASSERT_EQ(cgr__trace_open(OpenDevice(GetParam().device), &traced), CGR__DEVICE_OK);
    EngineOptions options = PlanningOptions(GetParam().device, GetParam().mode);
    options.handle = traced;
    PlannerOptions o;
    o.states = planning == 1; // alone: neither plan nor workspace
    p_ = std::make_unique<Planning>(options, std::vector<PlannerOptions>{ o });
    CGR_ASSERT_OK(engine().Capture());
    for (int32_t i = 0; i < cgr_test::NumKeys(engine().rt); i++)
      nodes[planning].push_back(engine().GraphStats(i).num_nodes);
    const int32_t row = engine().Start(5);
    const cgr_key eager = EagerKey(1, 1);
    for (const cgr_key *key : { static_cast<const cgr_key *>(nullptr), &eager }) {
      CGR_ASSERT_OK(engine().Prepare(engine().Decode({ row }), key));
      cgr__trace_reset(traced);
      CGR_ASSERT_OK(engine().Launch());
      calls[planning].push_back(cgr__trace_total(traced));
      engine().CheckAll();
    }
    p_.reset();
  }
  EXPECT_EQ(nodes[0], nodes[1]);
  EXPECT_EQ(calls[0], calls[1]);
}

INSTANTIATE_TEST_SUITE_P(Devices, PlansOnDevice,
                         ::testing::ValuesIn(EveryPair(AllDevices(), { CGR_MODE_NONE, CGR_MODE_PIECEWISE, CGR_MODE_FULL,
                                                                       CGR_MODE_FULL_AND_PIECEWISE })),
                         ModeLabel);

} // namespace
} // namespace cgr_test

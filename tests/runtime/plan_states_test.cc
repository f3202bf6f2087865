// States of backends: made before each capture of a key and once for eager steps, ended once, with their graph or the runtime.
#include <chrono>
#include <thread>

#include "devices/shims/trace.h"
#include "tests/support/planner.h"
#include "tests/support/refused.h"

namespace cgr_test {
namespace {

PlannerOptions Quiet(const char *name = "planner", int32_t layer = 1) {
  PlannerOptions o = OnBoth(name, layer);
  o.watches = false;
  return o;
}

class PlanStates : public OverDevices {
protected:
  void Make(cgr_graph_mode mode, const std::vector<PlannerOptions> &planners = { Quiet() },
            std::function<void(EngineOptions *)> more = nullptr) {
    EngineOptions options = PlanningOptions(GetParam(), mode);
    if (more)
      more(&options);
    p_.reset();
    p_ = std::make_unique<Planning>(options, planners);
  }
  Engine &engine() { return *p_->engine; }
  Planner &planner(size_t i = 0) { return (*p_)[i]; }
  size_t NumKeys() { return size_t(cgr_test::NumKeys(engine().rt)); }
  // Makes steps long.
  static std::function<cgr_status(cgr_recorder *)> Sleep(cgr_device *dev) {
    return [dev](cgr_recorder *recorder) {
      cgr_record_info info = CGR_RECORD_INFO_INIT;
      cgr_status status = cgr_record_get_info(recorder, &info);
      auto wait = [](const void *) { std::this_thread::sleep_for(std::chrono::milliseconds(2)); };
      return status == CGR_OK ? cgr_launch_host(dev, wait, nullptr, 0, info.stream) : status;
    };
  }
  // Good steps of all kinds.
  void ExpectGoodSteps() {
    const int32_t a = engine().Open(), b = engine().Open();
    p_->Run(engine().Chunks({ { a, 5 }, { b, 1 } }));
    p_->Run(engine().Decode({ a, b }));
    p_->Run(engine().Chunks({ { a, 1 }, { b, 30 } }));
    p_->CheckSeen();
    engine().Close(a);
    engine().Close(b);
  }
  std::unique_ptr<Planning> p_;
};

TEST_P(PlanStates, AreMadeForEachKeyAndOnceForEagerSteps) {
  for (cgr_graph_mode mode : { CGR_MODE_FULL, CGR_MODE_PIECEWISE, CGR_MODE_FULL_AND_PIECEWISE, CGR_MODE_NONE }) {
    SCOPED_TRACE(cgr_graph_mode_name(mode));
    PlannerOptions bare;
    bare.name = "bare", bare.layer = 0;
    ASSERT_NO_FATAL_FAILURE(Make(mode, { Quiet(), bare }));
    EXPECT_EQ(planner().asked, 0) << "at creation nothing is asked";
    for (int n = 0; n < 2; n++) { // the second changes nothing
      CGR_ASSERT_OK(engine().Capture());
      for (size_t i = 0; i < 2; i++) {
        ASSERT_EQ(planner(i).states.size(), NumKeys() + 1);
        EXPECT_EQ(planner(i).AliveOf(true), 1u);
        EXPECT_EQ(planner(i).AliveOf(false), NumKeys());
      }
    }
    const auto &states = planner().states;
    EXPECT_EQ(states[0]->key.kind, CGR_KIND_NONE);
    EXPECT_EQ(states[0]->key.num_requests, engine().o.max_requests);
    EXPECT_EQ(states[0]->key.num_tokens, engine().o.max_tokens);
    EXPECT_EQ(states[0]->key.query_len, 0);
    for (size_t i = 0; i < states.size(); i++) {
      const cgr_plan_key &key = states[i]->key;
      EXPECT_EQ(key.device, engine().dev);
      EXPECT_EQ(key.workspace, states[0]->key.workspace);
      EXPECT_EQ(key.plan, states[0]->key.plan);
      EXPECT_EQ(key.workspace_bytes, planner().o.workspace_bytes);
      EXPECT_EQ(key.plan_bytes, planner().o.plan_bytes);
      EXPECT_NE(key.workspace, nullptr);
      EXPECT_NE(key.plan, nullptr);
      EXPECT_NE(key.plan, key.workspace);
      EXPECT_EQ(reinterpret_cast<uintptr_t>(key.workspace) % 256, 0u);
      EXPECT_EQ(reinterpret_cast<uintptr_t>(key.plan) % 256, 0u);
      EXPECT_EQ(key.draft, 0);
      EXPECT_EQ(planner(1).states[i]->key.workspace, nullptr);
      EXPECT_EQ(planner(1).states[i]->key.plan, nullptr);
      EXPECT_EQ(planner(1).states[i]->key.workspace_bytes, 0u);
      EXPECT_EQ(planner(1).states[i]->key.plan_bytes, 0u);
      if (i > 0) {
        cgr_graph_stats stats = engine().GraphStats(0);
        bool found = false;
        for (size_t k = 0; k < NumKeys() && !found; k++) {
          stats = engine().GraphStats(int32_t(k));
          found = stats.key.kind == key.kind && stats.key.num_requests == key.num_requests &&
                  stats.key.num_tokens == key.num_tokens && stats.key.query_len == key.query_len &&
                  stats.key.variant == key.variant;
        }
        EXPECT_TRUE(found) << "a key of the runtime's";
      }
    }
    for (const Planner::Call &call : planner().plans)
      EXPECT_EQ(call.flags, uint32_t(CGR_PLAN_CAPTURE));
    EXPECT_EQ(planner().plans.size(), NumKeys()) << "one for each capture";
    EXPECT_EQ(planner().host.size(), NumKeys() + 1);
    ExpectGoodSteps();
  }
}

// The plan that follows `create` is for the largest batch that the key serves, with no query longer than its sequence.
TEST_P(PlanStates, AreSizedByTheLargestBatch) {
  for (int32_t max_seq_len : { 160, 20, 3 }) {
    SCOPED_TRACE(max_seq_len);
    ASSERT_NO_FATAL_FAILURE(Make(CGR_MODE_FULL_AND_PIECEWISE, { Quiet() }, [&](EngineOptions *o) {
      o->max_seq_len = max_seq_len;
      o->mixed = { { 8, 1 }, { 24, 7 }, { 64, 3 }, { 64, 8 } };
    }));
    CGR_ASSERT_OK(engine().Capture());
    for (const Planner::Host &host : planner().host) {
      const cgr_plan_key &key = host.state->key;
      SCOPED_TRACE(std::to_string(key.num_tokens) + " tokens, " + std::to_string(key.num_requests) + " requests");
      EXPECT_EQ(host.step.flags, uint32_t(CGR_PLAN_CAPTURE));
      EXPECT_EQ(host.step.num_requests, key.num_requests);
      EXPECT_EQ(host.step.padded_requests, key.num_requests);
      EXPECT_EQ(host.step.padded_tokens, key.num_tokens);
      EXPECT_EQ(host.step.num_tokens, std::min(key.num_tokens, key.num_requests * max_seq_len));
      EXPECT_EQ(host.step.num_tokens, host.starts.back());
      EXPECT_EQ(host.step.max_seq_len, max_seq_len);
      EXPECT_EQ(host.step.max_query_len, std::min(max_seq_len, key.query_len > 0 ? key.query_len : key.num_tokens));
      EXPECT_EQ(host.step.num_decodes, -1);
      for (int32_t longest : { host.step.max_decode_query_len, host.step.max_prefill_query_len, host.step.max_decode_seq_len,
                               host.step.max_prefill_seq_len })
        EXPECT_EQ(longest, -1);
      EXPECT_EQ(host.lens, std::vector<int32_t>(size_t(key.num_requests), max_seq_len));
      for (size_t i = 0; i < size_t(key.num_requests); i++) {
        EXPECT_EQ(host.rows[i], int32_t(i));
        EXPECT_LE(host.starts[i + 1] - host.starts[i], host.step.max_query_len);
        EXPECT_GE(host.starts[i + 1], host.starts[i]);
      }
    }
  }
}

TEST_P(PlanStates, EndWhenTheirGraphsAreReleased) {
  for (cgr_graph_mode mode : { CGR_MODE_FULL, CGR_MODE_PIECEWISE }) {
    ASSERT_NO_FATAL_FAILURE(Make(mode));
    CGR_ASSERT_OK(engine().Capture());
    CGR_ASSERT_OK(cgr_runtime_release_graphs(engine().rt, 0, nullptr));
    EXPECT_EQ(planner().AliveOf(false), 0u);
    EXPECT_EQ(planner().AliveOf(true), 1u);
    ExpectGoodSteps(); // eager
    CGR_ASSERT_OK(engine().Capture());
    EXPECT_EQ(planner().AliveOf(false), NumKeys());
    EXPECT_EQ(planner().AliveOf(true), 1u);
    ExpectGoodSteps();
  }
}

// The kernels of a state's steps may read what the state holds.
TEST_P(PlanStates, EndWhenNoStepOfTheirsIsInFlight) {
  for (cgr_graph_mode mode : { CGR_MODE_FULL, CGR_MODE_PIECEWISE }) {
    ASSERT_NO_FATAL_FAILURE(Make(mode));
    planner().on_record = Sleep(engine().dev);
    CGR_ASSERT_OK(engine().Capture());
    const int32_t row = engine().Start(5);
    for (int n = 0; n < 3; n++)
      p_->Run(engine().Decode({ row }));
    size_t ended = 0;
    planner().on_destroy = [&](const Planner::State &) {
      EXPECT_EQ(cgr_test::Completed(engine().rt), engine().launched);
      ended++;
    };
    CGR_ASSERT_OK(cgr_runtime_release_graphs(engine().rt, 0, nullptr));
    EXPECT_EQ(ended, NumKeys());
    engine().CheckAll();
    CGR_ASSERT_OK(engine().Capture());
    for (int n = 0; n < 3; n++)
      p_->Run(engine().Decode({ row }));
    engine().check_outputs = false;
    const uint64_t launched = engine().launched;
    cgr_runtime *rt = engine().rt;
    planner().on_destroy = [=](const Planner::State &) { EXPECT_EQ(cgr_test::Completed(rt), launched); };
    engine().leave_in_flight = true;
    p_.reset();
  }
}

// Checks for stream queries: destroying a graph of the host device waits, too, which would hide a missing wait.
TEST_P(PlanStates, AreWaitedForBeforeTheFirstGraphGoes) {
  for (bool states : { true, false }) {
    PlannerOptions o = Quiet();
    o.states = states;
    cgr_device *traced = nullptr;
    ASSERT_EQ(cgr__trace_open(OpenDevice(GetParam()), &traced), CGR__DEVICE_OK);
    ASSERT_NO_FATAL_FAILURE(Make(CGR_MODE_FULL, { o }, [=](EngineOptions *e) { e->handle = traced; }));
    planner().on_record = Sleep(engine().dev);
    CGR_ASSERT_OK(engine().Capture());
    const int32_t row = engine().Start(5);
    for (int n = 0; n < 3; n++)
      p_->Run(engine().Decode({ row }));
    cgr__trace_reset(traced);
    CGR_ASSERT_OK(cgr_runtime_release_graphs(engine().rt, 0, nullptr));
    const uint64_t total = cgr__trace_total(traced), asked = cgr__trace_count(traced, CGR__OP_STREAM_QUERY);
    uint64_t first = total; // graph to be destroyed
    struct cgr__trace_entry entry;
    for (uint64_t i = 0; i < total; i++)
      if (cgr__trace_get(traced, i, &entry) && entry.call.op == CGR__OP_EXEC_DESTROY && first == total)
        first = i;
    EXPECT_LT(first, total);
    if (states) {
      EXPECT_GT(asked, 0u);
      EXPECT_GE(first, asked) << "all of it before";
    } else {
      EXPECT_EQ(asked, 0u) << "it is not needed";
    }
    engine().CheckAll();
  }
}

// A graph's kernels read its state, so the graph goes first, also when a stale graph is captured anew.
TEST_P(PlanStates, EndAfterTheirGraphs) {
  for (bool estimates : { false, true }) {
    cgr_device *traced = nullptr;
    ASSERT_EQ(cgr__trace_open(OpenDevice(GetParam()), &traced), CGR__DEVICE_OK);
    ASSERT_NO_FATAL_FAILURE(Make(CGR_MODE_FULL, { Quiet() }, [=](EngineOptions *e) { e->handle = traced; }));
    int32_t region = -1;
    void *memory = engine().Alloc(4096);
    CGR_ASSERT_OK(cgr_region_register(engine().rt, memory, 4096, &region));
    CGR_ASSERT_OK(engine().Capture());
    CGR_ASSERT_OK(cgr_region_move(engine().rt, region, memory, 4096));
    cgr__trace_reset(traced);
    uint64_t ended = 0;
    planner().on_destroy = [&](const Planner::State &) { EXPECT_EQ(cgr__trace_count(traced, CGR__OP_EXEC_DESTROY), ++ended); };
    cgr_capture capture = engine().CaptureStruct();
    cgr_capture_estimate estimate = CGR_CAPTURE_ESTIMATE_INIT;
    if (estimates)
      CGR_ASSERT_OK(cgr_runtime_estimate_capture(engine().rt, &capture, &estimate));
    else
      CGR_ASSERT_OK(cgr_runtime_capture(engine().rt, &capture));
    EXPECT_GT(ended, 0u);
    planner().on_destroy = nullptr;
    p_.reset();
  }
}

// A graph that only becomes stale keeps its state; capturing it again makes a new one and ends the old. That of eager steps
// stays.
TEST_P(PlanStates, FollowTheirGraphs) {
  ASSERT_NO_FATAL_FAILURE(Make(CGR_MODE_FULL));
  CGR_ASSERT_OK(engine().Capture());
  // A moved region makes graphs stale; they are captured anew.
  int32_t region = -1;
  void *memory = engine().Alloc(4096);
  CGR_ASSERT_OK(cgr_region_register(engine().rt, memory, 4096, &region));
  CGR_ASSERT_OK(cgr_runtime_release_graphs(engine().rt, 0, nullptr));
  CGR_ASSERT_OK(engine().Capture());
  const size_t before = planner().states.size();
  CGR_ASSERT_OK(cgr_region_move(engine().rt, region, memory, 4096));
  EXPECT_EQ(planner().AliveOf(false), NumKeys());
  CGR_ASSERT_OK(engine().Capture());
  EXPECT_EQ(planner().states.size(), before + NumKeys());
  EXPECT_EQ(planner().AliveOf(false), NumKeys());
  EXPECT_EQ(planner().AliveOf(true), 1u);
  ExpectGoodSteps();
}

// Graphs beyond the budget have none. (The host reports no memory, so nothing is dropped there.)
TEST_P(PlanStates, AreThoseOfGraphsWithinTheBudget) {
  for (uint64_t bytes : { uint64_t(1), uint64_t(1) << 40 }) {
    ASSERT_NO_FATAL_FAILURE(Make(CGR_MODE_FULL));
    cgr_capture capture = engine().CaptureStruct();
    capture.max_bytes = bytes;
    CGR_ASSERT_OK(cgr_runtime_capture(engine().rt, &capture));
    size_t ready = 0;
    for (size_t i = 0; i < NumKeys(); i++)
      ready += engine().GraphStats(int32_t(i)).state == CGR_GRAPH_READY;
    EXPECT_EQ(planner().AliveOf(false), ready);
    ExpectGoodSteps();
  }
}

TEST_P(PlanStates, AreGoneWhenTheCaptureFails) {
  enum { kCreate, kPlanHost, kPlan, kRecord, kNum };
  static const char *const what[] = { "create", "plan_host", "plan", "record" };
  for (cgr_graph_mode mode : { CGR_MODE_FULL, CGR_MODE_PIECEWISE })
    for (int failing = 0; failing < kNum; failing++)
      for (size_t which : { 0, 1 }) {
        if (failing == kRecord && mode == CGR_MODE_PIECEWISE)
          continue; // it is not called at capture
        SCOPED_TRACE(std::string(what[failing]) + " of " + std::to_string(which));
        ASSERT_NO_FATAL_FAILURE(Make(mode, { Quiet("first", 0), Quiet("second", 1) }));
        CGR_ASSERT_OK(engine().Warmup()); // makes those of eager steps
        EXPECT_EQ(planner(which).AliveOf(true), 1u);
        const int32_t bad = 4; // of this many requests
        bool now = false;
        Planner &p = planner(which);
        auto fail = [&](bool meant) { return now && meant ? CGR_ERROR_BUSY : CGR_OK; };
        p.on_create = [&](const cgr_plan_key &key) { return fail(failing == kCreate && key.num_requests == bad); };
        p.on_plan_host = [&](const cgr_plan_step &step) { return fail(failing == kPlanHost && step.padded_requests == bad); };
        auto recorded = [&](int when) {
          return [&, when](cgr_recorder *recorder) {
            const cgr_record_info info = InfoOf(recorder);
            return fail(failing == when && info.num_requests == bad);
          };
        };
        p.on_plan = recorded(kPlan), p.on_record = recorded(kRecord);
        now = true;
        const std::string name = which == 0 ? "backend first" : "backend second";
        ExpectMessage(engine().Capture(), CGR_ERROR_CALLBACK,
                      { name, std::string(what[failing]) + " returned CGR_ERROR_BUSY", "capture of the", "4 requests" });
        size_t good = 0;
        for (size_t i = 0; i < NumKeys(); i++) {
          const cgr_graph_stats stats = engine().GraphStats(int32_t(i));
          EXPECT_EQ(stats.state, stats.key.num_requests == bad ? CGR_GRAPH_FAILED : CGR_GRAPH_READY);
          good += stats.key.num_requests != bad;
        }
        for (size_t i : { 0, 1 }) {
          EXPECT_EQ(planner(i).AliveOf(false), good);
          EXPECT_EQ(planner(i).AliveOf(true), 1u);
        }
        now = false;
        ExpectGoodSteps();
        CGR_ASSERT_OK(engine().Capture());
        EXPECT_EQ(planner(which).AliveOf(false), NumKeys());
        ExpectGoodSteps();
      }
}

// States of eager steps: without them there is no model, and the call has had no effect.
TEST_P(PlanStates, ThoseOfEagerStepsFailTheCall) {
  for (bool warmup : { false, true })
    for (bool host : { false, true })
      for (size_t which : { 0, 1 }) {
        ASSERT_NO_FATAL_FAILURE(Make(CGR_MODE_FULL, { Quiet("first", 0), Quiet("second", 1) }));
        Planner &p = planner(which);
        if (host)
          p.on_plan_host = [](const cgr_plan_step &) { return CGR_ERROR_BUSY; };
        else
          p.on_create = [](const cgr_plan_key &) { return CGR_ERROR_BUSY; };
        const Words words = { std::string("backend ") + (which == 0 ? "first" : "second"),
                              host ? "plan_host returned CGR_ERROR_BUSY" : "create returned CGR_ERROR_BUSY" };
        cgr_capture capture = engine().CaptureStruct();
        ExpectMessage(warmup ? cgr_runtime_warmup(engine().rt, &capture) : engine().Capture(), CGR_ERROR_CALLBACK, words);
        EXPECT_EQ(planner(0).Alive() + planner(1).Alive(), 0u);
        p.on_plan_host = nullptr, p.on_create = nullptr;
        CGR_ASSERT_OK(warmup ? engine().Warmup() : engine().Capture());
        CGR_ASSERT_OK(engine().Capture());
        EXPECT_EQ(p.AliveOf(true), 1u);
        ExpectGoodSteps();
      }
}

// Before the first record there is no plan to make, and nothing is made in cgr_step_prepare.
TEST_P(PlanStates, AreNotMadeByAStepBeforeTheFirstRecord) {
  ASSERT_NO_FATAL_FAILURE(Make(CGR_MODE_FULL));
  CGR_ASSERT_OK(engine().Prepare({}));
  CGR_ASSERT_OK(engine().Cancel());
  CGR_ASSERT_OK(engine().Prepare({}));
  CGR_ASSERT_OK(engine().Launch());
  engine().check_outputs = false; // nothing has been recorded yet
  engine().CheckAll();
  engine().check_outputs = true;
  EXPECT_EQ(planner().asked, 0);
  CGR_ASSERT_OK(engine().Capture());
  EXPECT_EQ(planner().AliveOf(true), 1u);
  ExpectGoodSteps();
}

// The functions are called from inside the runtime.
TEST_P(PlanStates, TheirFunctionsMayNotCallTheRuntime) {
  ASSERT_NO_FATAL_FAILURE(Make(CGR_MODE_FULL));
  cgr_runtime *rt = engine().rt;
  int refused = 0;
  auto call = [&] {
    ExpectMessage(cgr_runtime_flush(rt, nullptr, nullptr, engine().stream), CGR_ERROR_STATE, { "cgr_runtime_flush" });
    cgr_batch other = CGR_BATCH_INIT;
    cgr_key key = CGR_KEY_INIT;
    ExpectMessage(cgr_step_choose(rt, &other, &key), CGR_ERROR_STATE, { "cgr_step_choose" });
    ExpectMessage(cgr_runtime_release_graphs(rt, 0, nullptr), CGR_ERROR_STATE, { "cgr_runtime_release_graphs" });
    ExpectMessage(cgr_runtime_destroy(rt), CGR_ERROR_STATE, { "cgr_runtime_destroy" });
    refused++;
    return CGR_OK;
  };
  planner().on_create = [&](const cgr_plan_key &) { return call(); };
  planner().on_plan_host = [&](const cgr_plan_step &) { return call(); };
  planner().on_plan = [&](cgr_recorder *) { return call(); };
  planner().on_destroy = [&](const Planner::State &) { call(); };
  CGR_ASSERT_OK(engine().Capture());
  CGR_ASSERT_OK(cgr_runtime_release_graphs(rt, 0, nullptr));
  EXPECT_EQ(size_t(refused), 4 * NumKeys() + 2);
  ExpectGoodSteps();
  planner().on_destroy = nullptr;
}

TEST_P(PlanStates, NoOtherBackendIsAsked) {
  PlannerOptions unused = Quiet("unused");
  unused.layer = -1;
  ASSERT_NO_FATAL_FAILURE(Make(CGR_MODE_FULL, { unused, Quiet() }));
  CGR_ASSERT_OK(engine().Warmup());
  CGR_ASSERT_OK(engine().Capture());
  ExpectGoodSteps();
  EXPECT_EQ(planner(0).asked, 0);
  EXPECT_GT(planner(1).asked, 0);
  cgr_memory_sizes with = CGR_MEMORY_SIZES_INIT, without = CGR_MEMORY_SIZES_INIT;
  cgr_config config = engine().Config();
  CGR_ASSERT_OK(cgr_runtime_memory(&config, &with));
  std::vector<cgr_backend> backends(config.backends, config.backends + config.num_backends);
  backends[0].workspace_bytes = backends[0].plan_bytes = 0;
  backends[0].plan_host = nullptr;
  config.backends = backends.data();
  CGR_ASSERT_OK(cgr_runtime_memory(&config, &without));
  EXPECT_EQ(with.device_bytes, without.device_bytes);
  EXPECT_EQ(with.pinned_bytes, without.pinned_bytes);
  EXPECT_EQ(with.host_bytes, without.host_bytes);
}

// ---- cgr_record_info.plan_key and plan_state

TEST_P(PlanStates, AreToldInsideOfABackendsFunctionsAlone) {
  for (cgr_graph_mode mode : { CGR_MODE_FULL, CGR_MODE_PIECEWISE, CGR_MODE_NONE }) {
    ASSERT_NO_FATAL_FAILURE(Make(mode));
    int outside = 0, called = 0;
    planner().on_record = [&](cgr_recorder *recorder) { // a function that a backend has called is part of it
      auto function = [](cgr_recorder *inner, const void *args) {
        const cgr_record_info info = InfoOf(inner);
        EXPECT_NE(info.plan_key, nullptr);
        EXPECT_NE(info.plan_state, nullptr);
        ++**static_cast<int *const *>(args);
        return CGR_OK;
      };
      int *counter = &called;
      return cgr_record_call(recorder, function, &counter, sizeof counter);
    };
    engine().hook = [&](cgr_recorder *recorder, const cgr_record_info &, int32_t) {
      const cgr_record_info info = InfoOf(recorder);
      EXPECT_EQ(info.plan_key, nullptr);
      EXPECT_EQ(info.plan_state, nullptr);
      outside++;
      return CGR_OK;
    };
    CGR_ASSERT_OK(engine().Capture());
    ExpectGoodSteps();
    engine().hook = nullptr;
    EXPECT_GT(outside, 0);
    EXPECT_GT(called, 0);
  }
}

CGR_INSTANTIATE_OVER_FEW_DEVICES(PlanStates);

} // namespace
} // namespace cgr_test

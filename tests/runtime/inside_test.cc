// Calls of a runtime from inside its own calls: in `record`, in functions of cgr_record_call and in functions of backends. Those
// that the headers mark `Capture no` are refused there, waits among them, and the others work; the steps go on either way.
#include "tests/support/planner.h"
#include "tests/support/refused.h"
#include "tests/support/runtime_calls.h"

namespace cgr_test {
namespace {

class Inside : public ::testing::TestWithParam<DeviceParam> {
protected:
  void SetUp() override {
    CGR_SKIP_WITHOUT_DEVICE(GetParam());
    p_ = std::make_unique<Planning>(PlanningOptions(GetParam(), CGR_MODE_FULL_AND_PIECEWISE),
                                    std::vector<PlannerOptions>{ OnBoth() });
  }
  Engine &engine() { return *p_->engine; }
  // Makes `look` at every place from which the engine may call the runtime while it is inside; keeps which those were.
  void Visit(std::function<void()> look) {
    look_ = std::move(look);
    Planner &planner = (*p_)[0];
    engine().hook = [this](cgr_recorder *recorder, const cgr_record_info &, int32_t at) {
      if (at != 0)
        return CGR_OK;
      LookIn("record", recorder);
      Inside *self = this;
      return cgr_record_call(recorder, Called, &self, sizeof self);
    };
    planner.on_create = [this](const cgr_plan_key &) { return Look("create"); };
    planner.on_destroy = [this](const Planner::State &) { Look("destroy"); };
    planner.on_plan_host = [this](const cgr_plan_step &step) {
      return Look(step.flags & CGR_PLAN_CAPTURE ? "plan_host, captured" : "plan_host");
    };
    planner.on_plan = [this](cgr_recorder *recorder) { return LookIn("plan", recorder); };
    planner.on_record = [this](cgr_recorder *recorder) { return LookIn("backend", recorder); };
  }
  // Captures, then steps of every kind, several in flight, then ends the graphs: every place.
  void MakeSteps() {
    const int32_t a = engine().Open(), b = engine().Open();
    engine().Reserve(a, 5);
    CGR_ASSERT_OK(engine().Capture());
    p_->Run(engine().Chunks({ { a, 5 }, { b, 1 } })); // PIECEWISE
    p_->Run(engine().Decode({ a, b }));               // FULL
    const cgr_key eager = EagerKey(2, 8);
    p_->Run(engine().Chunks({ { a, 7 }, { b, 1 } }), &eager);
    p_->Run(engine().Decode({ a, b }));
    p_->CheckSeen();
    CGR_ASSERT_OK(cgr_runtime_release_graphs(engine().rt, 0, nullptr));
    const std::set<std::string> places = { "record, none",  "record, full, captured",  "record, piecewise, captured",
                                           "call, none",    "call, full, captured",    "call, piecewise",
                                           "plan, none",    "plan, full, captured",    "plan, piecewise, captured",
                                           "backend, none", "backend, full, captured", "backend, piecewise",
                                           "plan_host",     "plan_host, captured",     "create",
                                           "destroy" };
    EXPECT_EQ(places_, places);
    engine().hook = nullptr;
    look_ = nullptr;
    CGR_ASSERT_OK(engine().Capture());
    p_->Run(engine().Decode({ a, b }));
    p_->CheckSeen();
  }
  std::unique_ptr<Planning> p_;

private:
  static cgr_status Called(cgr_recorder *recorder, const void *args) {
    return (*static_cast<Inside *const *>(args))->LookIn("call", recorder);
  }
  cgr_status LookIn(const std::string &function, cgr_recorder *recorder) {
    const cgr_record_info info = InfoOf(recorder);
    const char *kind = cgr_graph_kind_name(cgr_graph_kind(info.key.kind));
    return Look(function + ", " + kind + (info.capturing ? ", captured" : ""));
  }
  cgr_status Look(const std::string &place) {
    if (!look_)
      return CGR_OK;
    SCOPED_TRACE(place);
    places_.insert(place);
    look_();
    return CGR_OK;
  }
  std::function<void()> look_;
  std::set<std::string> places_;
};

Words Refusal(const std::string &function) {
  return { function + ": called from inside record or a call of a step, expected a call outside of it" };
}

TEST_P(Inside, WhatTheHeadersMarkIsRefused) {
  const std::set<std::string> refused = RuntimeFunctions("Capture no");
  Visit([&] {
    for (const RuntimeCall &call : RuntimeCalls()) {
      const cgr_status status = call.make(engine());
      if (refused.count(call.name) > 0)
        ExpectMessage(status, CGR_ERROR_STATE, Refusal(call.name));
      else
        EXPECT_EQ(status, CGR_OK) << call.name << ": " << cgr_last_message();
    }
    BufferOf(engine().rt, CGR_BUFFER_COUNTS);
    EXPECT_EQ(cgr_test::DeviceOf(engine().rt), engine().dev);
    EXPECT_LE(cgr_test::Completed(engine().rt), engine().launched);
    EXPECT_GT(cgr_test::NumKeys(engine().rt), 0);
  });
  MakeSteps();
}

// Whatever it waits for and however long, a poll included; nothing is collected.
TEST_P(Inside, NoWaitIsTaken) {
  const cgr_step_result untouched = CGR_STEP_RESULT_INIT;
  Visit([&] {
    for (uint64_t seq : { uint64_t(0), uint64_t(1), engine().launched, engine().launched + 1 })
      for (int32_t timeout_ms : { -2, -1, 0, 5 }) {
        cgr_step_result result = untouched;
        ExpectMessage(cgr_step_wait(engine().rt, cgr_mark{ 0, 0, seq }, timeout_ms, &result), CGR_ERROR_STATE,
                      Refusal("cgr_step_wait"));
        EXPECT_EQ(std::memcmp(&result, &untouched, sizeof result), 0);
        cgr_batch batch = CGR_BATCH_INIT;
        cgr_step step = CGR_STEP_INIT;
        ExpectMessage(cgr_step_prepare_wait(engine().rt, &batch, &step, timeout_ms, engine().stream), CGR_ERROR_STATE,
                      Refusal("cgr_step_prepare_wait"));
      }
  });
  MakeSteps();
}

CGR_INSTANTIATE_OVER_FEW_DEVICES(Inside);

TEST(InsideCalls, EveryRefusedFunctionIsTried) {
  std::set<std::string> tried;
  for (const RuntimeCall &call : RuntimeCalls())
    tried.insert(call.name);
  for (const std::string &name : RuntimeFunctions("Capture no"))
    EXPECT_EQ(tried.count(name), 1u) << name;
}

} // namespace
} // namespace cgr_test

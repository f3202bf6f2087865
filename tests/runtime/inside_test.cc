// Calls of a runtime from inside its own calls: in `record`, in functions of cgr_record_call and in functions of backends. Those
// that the headers mark `Capture no` are refused there, waits among them, and the others work; the steps go on either way. The
// same of the calls of a device, some of which only the validation layer refuses.
#include "tests/support/planner.h"
#include "tests/support/refused.h"
#include "tests/support/runtime_calls.h"
#include "tests/support/violations.h"

namespace cgr_test {
namespace {

class Inside : public OverDevices {
protected:
  void SetUpOnDevice() override { Make(PlanningOptions(GetParam(), CGR_MODE_FULL_AND_PIECEWISE)); }
  void Make(const EngineOptions &options) {
    p_.reset();
    p_ = std::make_unique<Planning>(options, std::vector<PlannerOptions>{ OnBoth() });
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
  Violations violations_; // if `Make` was called over it, whose device is closed with p_
  size_t seen_ = 0;       // of these
  std::unique_ptr<Planning> p_;
  std::string place_; // that `look` is called from

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
    place_ = place;
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

// What device.h marks, in warm-ups and eager steps as in captures: what would fail only in a capture is found before it.
TEST_P(Inside, TheLayerRefusesCallsOfTheDevice) {
  EngineOptions options = PlanningOptions(GetParam(), CGR_MODE_FULL_AND_PIECEWISE);
  cgr_device *const dev = options.handle = violations_.Open(GetParam()), *other = nullptr, *opened = nullptr;
  Make(options);
  void *memory = nullptr, *pinned = nullptr, *made = nullptr;
  cudaStream_t spare = nullptr, stream = nullptr;
  CGR_ASSERT_OK(cgr_memory_alloc(dev, 64, &memory));
  CGR_ASSERT_OK(cgr_memory_alloc_pinned(dev, 64, &pinned));
  CGR_ASSERT_OK(cgr_stream_create(dev, &spare));
  CGR_ASSERT_OK(cgr_device_open("host", nullptr, &other));
  std::set<std::string> tried;
  const auto refused = [&](const std::string &name, cgr_status status, bool by_layer = true) {
    tried.insert(name);
    ExpectMessage(status, by_layer ? CGR_ERROR_CAPTURE : CGR_ERROR_STATE, { name });
    ASSERT_EQ(violations_.All().size() - seen_, by_layer ? 1u : 0u) << name;
    seen_ += by_layer;
    EXPECT_TRUE(!by_layer || violations_.Last().rfind(name + ": ", 0) == 0) << violations_.Last();
    const bool has_cause = violations_.Last().find("inside `record` or a call of a step") != std::string::npos;
    EXPECT_TRUE(!by_layer || has_cause || place_.find("captured") != std::string::npos) << violations_.Last();
  };
  const auto look = [&] {
    if (place_ == "create" || place_ == "destroy") // in no step
      return;
    refused("cgr_device_open", cgr_device_open("host", nullptr, &opened), false);
    refused("cgr_device_close", cgr_device_close(other), false);
    refused("cgr_memory_alloc", cgr_memory_alloc(dev, 64, &made));
    refused("cgr_memory_free", cgr_memory_free(dev, memory));
    refused("cgr_memory_alloc_pinned", cgr_memory_alloc_pinned(dev, 64, &made));
    refused("cgr_memory_free_pinned", cgr_memory_free_pinned(dev, pinned));
    refused("cgr_stream_create", cgr_stream_create(dev, &stream));
    refused("cgr_stream_destroy", cgr_stream_destroy(dev, spare), false);
    refused("cgr_stream_synchronize", cgr_stream_synchronize(dev, spare));
  };
  Visit(look);
  MakeSteps();
  EXPECT_EQ(tried, FunctionsOf("device.h", "Capture no", ""));
  Visit(look);
  const size_t before = seen_;
  const cgr_capture capture = engine().CaptureStruct();
  CGR_ASSERT_OK(cgr_runtime_warmup(engine().rt, &capture));
  EXPECT_GT(seen_, before) << "in the warm-up";
  engine().launched = cgr_test::Completed(engine().rt);
  Visit(nullptr);
  CGR_EXPECT_OK(cgr_stream_destroy(dev, spare));
  CGR_EXPECT_OK(cgr_memory_free(dev, memory));
  CGR_EXPECT_OK(cgr_memory_free_pinned(dev, pinned));
  CGR_EXPECT_OK(cgr_device_close(other));
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

// Timestamps inside steps: which spans there are, how they nest, and that they affect nothing else.
#include <map>
#include <memory>

#include "cgr/names.h"
#include "devices/shims/fault.h"
#include "devices/shims/shim.h"
#include "tests/support/engine.h"
#include "tests/support/tiny_engine.h"

namespace cgr_test {
namespace {

void ExpectInside(const cgr_span &outer, const cgr_span &inner) {
  EXPECT_LE(outer.begin_ns, inner.begin_ns) << cgr_phase_name(cgr_phase(inner.phase)) << " " << inner.layer;
  EXPECT_GE(outer.end_ns, inner.end_ns) << cgr_phase_name(cgr_phase(inner.phase)) << " " << inner.layer;
}

class Timing : public OverDevices {
protected:
  EngineOptions Options(int32_t timing) {
    EngineOptions options = OptionsFor(GetParam());
    options.mode = CGR_MODE_FULL_AND_PIECEWISE;
    options.mixed = { { 16, 4 }, { 64, 8 } };
    options.adjust = [timing](cgr_config *config) { config->timing = timing; };
    return options;
  }
  void Make(int32_t timing) {
    engine_ = std::make_unique<Engine>(Options(timing));
    engine_->o.adjust = nullptr;
    CGR_ASSERT_OK(engine_->Capture());
  }
  std::vector<cgr_span> Step(const std::vector<Item> &items, int32_t kind) {
    engine_->Step(items);
    EXPECT_EQ(engine_->step.key.kind, kind);
    return SpansOf(engine_->rt, engine_->step.mark.seq);
  }
  // For an engine's step with two layers: no span is missing, none is superfluous, and each is where it belongs.
  static void ExpectWhole(const std::vector<cgr_span> &spans, bool layers, bool fetch) {
    std::map<Place, cgr_span> by = ByPlace(spans);
    std::vector<Place> want = { { CGR_PHASE_STEP, -1 },
                                { CGR_PHASE_PROLOGUE, -1 },
                                { CGR_PHASE_PLAN_FIRST, -1 },
                                { CGR_PHASE_RECORD, -1 },
                                { CGR_PHASE_EPILOGUE, -1 } };
    if (fetch)
      want.push_back({ CGR_PHASE_FETCH, -1 });
    for (int32_t layer = 0; layers && layer < 2; layer++)
      for (int32_t phase : { CGR_PHASE_LAYER, CGR_PHASE_APPEND, CGR_PHASE_ATTENTION })
        want.push_back({ phase, layer });
    for (const Place &place : want)
      ASSERT_EQ(by.count(place), 1u) << cgr_phase_name(cgr_phase(place.first)) << " " << place.second;
    ASSERT_EQ(by.size(), want.size());
    for (size_t i = 1; i < spans.size(); i++)
      EXPECT_LE(spans[i - 1].begin_ns, spans[i].begin_ns);
    EXPECT_EQ(spans[0].phase, CGR_PHASE_STEP);
    for (const cgr_span &span : spans) {
      EXPECT_GT(span.begin_ns, 0u);
      EXPECT_LE(span.begin_ns, span.end_ns);
      ExpectInside(spans[0], span);
    }
    const cgr_span &record = by[Place(CGR_PHASE_RECORD, -1)], &epilogue = by[Place(CGR_PHASE_EPILOGUE, -1)];
    EXPECT_LE(by[Place(CGR_PHASE_PROLOGUE, -1)].end_ns, record.begin_ns);
    EXPECT_LE(by[Place(CGR_PHASE_PROLOGUE, -1)].end_ns, by[Place(CGR_PHASE_PLAN_FIRST, -1)].begin_ns);
    EXPECT_LE(record.end_ns, epilogue.begin_ns);
    EXPECT_EQ(epilogue.end_ns, spans[0].end_ns);
    if (fetch) {
      EXPECT_LE(by[Place(CGR_PHASE_FETCH, -1)].end_ns, epilogue.begin_ns);
    }
    for (int32_t layer = 0; layers && layer < 2; layer++) {
      const cgr_span &all = by[Place(CGR_PHASE_LAYER, layer)], &append = by[Place(CGR_PHASE_APPEND, layer)];
      ExpectInside(record, all);
      ExpectInside(all, append);
      ExpectInside(all, by[Place(CGR_PHASE_ATTENTION, layer)]);
      EXPECT_LE(append.end_ns, by[Place(CGR_PHASE_ATTENTION, layer)].begin_ns);
      EXPECT_LE(by[Place(CGR_PHASE_PLAN_FIRST, -1)].end_ns, append.begin_ns);
      if (layer == 1) {
        EXPECT_EQ(by[Place(CGR_PHASE_LAYER, 0)].end_ns, all.begin_ns);
      }
    }
  }
  std::unique_ptr<Engine> engine_;
};

// A graph, pieces and an eager step have the same spans, except for the fetch, which only whole graphs have.
TEST_P(Timing, EveryKindOfStepHasItsSpans) {
  for (int32_t timing : { 1, 2 }) {
    SCOPED_TRACE(timing);
    Make(timing);
    int32_t a = engine_->Start(5, 1), b = engine_->Start(7, 2);
    ASSERT_NO_FATAL_FAILURE(ExpectWhole(Step(engine_->Decode({ a, b }), CGR_KIND_FULL), timing == 2, true));
    ASSERT_NO_FATAL_FAILURE(ExpectWhole(Step(engine_->Chunks({ { a, 5 }, { b, 2 } }), CGR_KIND_PIECEWISE), timing == 2, false));
    CGR_ASSERT_OK(cgr_runtime_enable_graphs(engine_->rt, 0));
    ASSERT_NO_FATAL_FAILURE(ExpectWhole(Step(engine_->Decode({ a, b }), CGR_KIND_NONE), timing == 2, false));
    ASSERT_NO_FATAL_FAILURE(ExpectWhole(Step(engine_->Chunks({ { a, 5 } }), CGR_KIND_NONE), timing == 2, false));
  }
}

// The clocks are compared, and what has completed is read, while other steps are under way.
TEST_P(Timing, IsReadWhileStepsAreUnderWay) {
  Make(2);
  int32_t a = engine_->Start(5, 1), b = engine_->Start(7, 2);
  for (int i = 0; i < 20; i++) {
    size_t length = 0;
    for (int ahead = 0; ahead < 3; ahead++)
      engine_->PrepareAndLaunch(engine_->Decode({ a, b }));
    CGR_EXPECT_OK(cgr_runtime_trace(engine_->rt, nullptr, 0, &length));
    const uint64_t seq = engine_->step.mark.seq - 2;
    CGR_ASSERT_OK(cgr_step_wait(engine_->rt, cgr_mark{ 0, 0, seq }, -1, nullptr));
    ASSERT_NO_FATAL_FAILURE(ExpectWhole(SpansOf(engine_->rt, seq), true, true));
    engine_->CheckAll();
  }
}

// Each replay has its own stamps: steps follow one another, through all ring slots more than once.
TEST_P(Timing, ReplaysGiveFreshStamps) {
  Make(2);
  int32_t a = engine_->Start(5, 1), b = engine_->Start(7, 2);
  uint64_t last = 0;
  for (int i = 0; i < 30 && !HasFatalFailure(); i++) {
    const std::vector<cgr_span> spans = i % 3 == 2 ? Step(engine_->Chunks({ { a, 2 }, { b, 1 } }), CGR_KIND_PIECEWISE)
                                                   : Step(engine_->Decode({ a, b }), CGR_KIND_FULL);
    ASSERT_NO_FATAL_FAILURE(ExpectWhole(spans, true, i % 3 != 2));
    EXPECT_GE(spans[0].begin_ns, last);
    last = spans[0].end_ns;
  }
}

// The last ring_depth steps can still be read, in any order.
TEST_P(Timing, TheLastStepsOfTheRingCanBeRead) {
  Make(1);
  int32_t a = engine_->Start(5, 1);
  for (int i = 0; i < 6; i++)
    engine_->Step(engine_->Decode({ a }));
  const uint64_t newest = engine_->step.mark.seq;
  std::vector<uint64_t> begins;
  for (uint64_t seq = newest; seq > newest - 4; seq--)
    begins.push_back(SpansOf(engine_->rt, seq).at(0).begin_ns);
  for (size_t i = 1; i < begins.size(); i++)
    EXPECT_LT(begins[i], begins[i - 1]);
  int32_t count = 0;
  ExpectMessage(cgr_runtime_timing(engine_->rt, cgr_mark{ 0, 0, newest - 4 }, nullptr, 0, &count), CGR_ERROR_EXPIRED,
                { "cgr_runtime_timing: mark.seq is " + std::to_string(newest - 4), "ring_depth" });
  ExpectMessage(cgr_runtime_timing(engine_->rt, cgr_mark{ 0, 0, newest + 1 }, nullptr, 0, &count), CGR_ERROR_INVALID_ARGUMENT,
                { "seq is " + std::to_string(newest + 1), "launched" });
  ExpectMessage(cgr_runtime_timing(engine_->rt, cgr_mark{ 0, 0, 0 }, nullptr, 0, &count), CGR_ERROR_INVALID_ARGUMENT,
                { "seq is 0" });
  ExpectMessage(cgr_runtime_timing(engine_->rt, cgr_mark{ 0, 0, newest }, nullptr, -1, &count), CGR_ERROR_INVALID_ARGUMENT,
                { "capacity is -1" });
  cgr_span two[2] = { CGR_SPAN_INIT, CGR_SPAN_INIT };
  CGR_EXPECT_OK(cgr_runtime_timing(engine_->rt, cgr_mark{ 0, 0, newest }, two, 1, &count));
  EXPECT_EQ(two[0].phase, CGR_PHASE_STEP);
  EXPECT_EQ(two[1].end_ns, 0u);
  EXPECT_GT(count, 2);
}

// Nothing is written if an element's size differs from the first's.
TEST_P(Timing, EachElementOfTheSpansHasTheSizeOfTheFirst) {
  Make(1);
  int32_t a = engine_->Start(5, 1), count = -1;
  engine_->Step(engine_->Decode({ a }));
  cgr_span spans[3] = { CGR_SPAN_INIT, CGR_SPAN_INIT, CGR_SPAN_INIT };
  spans[2].size = 8;
  ExpectMessage(cgr_runtime_timing(engine_->rt, engine_->step.mark, spans, 3, &count), CGR_ERROR_INVALID_STRUCT,
                { "cgr_runtime_timing: spans[2]: size is 8", "as in" });
  EXPECT_EQ(count, -1);
  EXPECT_EQ(spans[0].end_ns, 0u);
  EXPECT_EQ(spans[2].size, 8u);
  CGR_EXPECT_OK(cgr_runtime_timing(engine_->rt, engine_->step.mark, spans, 2, &count));
  EXPECT_GT(spans[1].end_ns, 0u);
}

TEST_P(Timing, ARuntimeThatIsNotTimedRefuses) {
  Make(0);
  int32_t a = engine_->Start(5, 1), count = 0;
  engine_->Step(engine_->Decode({ a }));
  ExpectMessage(cgr_runtime_timing(engine_->rt, engine_->step.mark, nullptr, 0, &count), CGR_ERROR_STATE,
                { "cgr_runtime_timing: config.timing is 0", "expected" });
  size_t length = 0;
  ExpectMessage(cgr_runtime_trace_step(engine_->rt, engine_->step.mark, nullptr, 0, &length), CGR_ERROR_STATE,
                { "cgr_runtime_trace_step: config.timing is 0" });
  engine_->Step(engine_->Decode({ a }));
}

// On the host's clock a step is between its launch and the moment when the host saw it complete, within the error of the
// comparison; the host device has only one clock.
TEST_P(Timing, TheDevicesClockIsMovedToTheHosts) {
  auto now = [] {
    timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return uint64_t(t.tv_sec) * 1000000000u + uint64_t(t.tv_nsec);
  };
  Make(1);
  int32_t a = engine_->Start(5, 1);
  const uint64_t slack = GetParam().IsCuda() ? 1000000 : 100000;
  const uint64_t before = now();
  engine_->Step(engine_->Decode({ a }));
  const uint64_t after = now();
  const cgr_span step = SpansOf(engine_->rt, engine_->step.mark.seq).at(0);
  EXPECT_GE(step.host_ns + slack, before);
  EXPECT_LE(step.host_ns + step.end_ns - step.begin_ns, after + slack);
}

// A step that is abandoned, at each place in turn, has the spans that it reached, and the next step has all of its own.
TEST_P(Timing, AnAbandonedStepHasWhatItCameTo) {
  Make(2);
  int32_t a = engine_->Start(5, 1), place = 0, halfway = 0;
  bool fails = true;
  CGR_ASSERT_OK(cgr_runtime_enable_graphs(engine_->rt, 0));
  for (; fails && !HasFatalFailure(); place++) {
    SCOPED_TRACE(place);
    engine_->hook = [place](cgr_recorder *, const cgr_record_info &, int32_t at) {
      return at == place ? CGR_ERROR_STATE : CGR_OK;
    };
    CGR_ASSERT_OK(engine_->Prepare(engine_->Decode({ a })));
    fails = engine_->Launch() != CGR_OK;
    engine_->hook = nullptr;
    if (fails)
      engine_->WaitForAll();
    else
      engine_->CheckAll();
    std::map<Place, cgr_span> by = ByPlace(SpansOf(engine_->rt, engine_->step.mark.seq));
    for (int32_t phase : { CGR_PHASE_STEP, CGR_PHASE_PROLOGUE, CGR_PHASE_PLAN_FIRST, CGR_PHASE_RECORD, CGR_PHASE_EPILOGUE })
      EXPECT_EQ(by.count(Place(phase, -1)), 1u) << cgr_phase_name(cgr_phase(phase));
    for (int32_t layer = 0; layer < 2; layer++)
      EXPECT_EQ(by.count(Place(CGR_PHASE_LAYER, layer)), by.count(Place(CGR_PHASE_ATTENTION, layer)));
    EXPECT_GE(by.count(Place(CGR_PHASE_LAYER, 0)), by.count(Place(CGR_PHASE_LAYER, 1)));
    halfway += by.count(Place(CGR_PHASE_LAYER, 0)) > by.count(Place(CGR_PHASE_LAYER, 1));
    ASSERT_NO_FATAL_FAILURE(ExpectWhole(Step(engine_->Decode({ a }), CGR_KIND_NONE), true, false));
  }
  EXPECT_GT(place, 2);
  EXPECT_GT(halfway, 0);
}

// A step of the runtime's own has a prologue and an epilogue, and nothing in between.
TEST_P(Timing, AFlushHasNoRecord) {
  Make(2);
  int32_t a = engine_->Start(5, 1);
  engine_->Reserve(a, 60);
  CGR_ASSERT_OK(engine_->Flush());
  CGR_ASSERT_OK(cgr_step_wait(engine_->rt, cgr_mark{ 0, 0, engine_->launched }, -1, nullptr));
  std::map<Place, cgr_span> by = ByPlace(SpansOf(engine_->rt, engine_->launched));
  EXPECT_EQ(by.size(), 3u);
  EXPECT_EQ(by.count(Place(CGR_PHASE_RECORD, -1)), 0u);
}

// Timing does not change a bit of what steps return or leave.
TEST_P(Timing, ChangesNothingOfTheResults) {
  std::vector<unsigned char> got[2];
  for (int32_t timing : { 0, 2 }) {
    Make(timing);
    int32_t a = engine_->Start(20, 1), b = engine_->Start(7, 2);
    std::vector<unsigned char> &bytes = got[timing / 2];
    for (int i = 0; i < 12 && !HasFatalFailure(); i++) {
      CGR_ASSERT_OK(cgr_runtime_enable_graphs(engine_->rt, i % 4 != 3));
      engine_->Step(i % 3 == 1 ? engine_->Chunks({ { a, 3 }, { b, 1 } }) : engine_->Decode({ a, b }));
      for (int32_t call = 0; call < 2; call++) {
        const std::vector<unsigned char> out = engine_->Out(call, 2);
        bytes.insert(bytes.end(), out.begin(), out.end());
      }
    }
    const std::vector<unsigned char> caches = engine_->ReadCaches();
    bytes.insert(bytes.end(), caches.begin(), caches.end());
    engine_.reset();
  }
  ASSERT_GT(got[0].size(), 0u);
  EXPECT_EQ(got[0], got[1]);
}

// Timing takes device memory, a row for each step of the ring and one more; what cgr_runtime_memory reports is enough.
TEST_P(Timing, IsCountedInTheMemory) {
  Make(0);
  uint64_t device[3], host[3];
  for (int32_t timing = 0; timing < 3; timing++) {
    cgr_config config = engine_->Config();
    cgr_memory_sizes sizes = CGR_MEMORY_SIZES_INIT;
    config.timing = timing;
    CGR_ASSERT_OK(cgr_runtime_memory(&config, &sizes));
    device[timing] = sizes.device_bytes;
    host[timing] = sizes.host_bytes;
  }
  auto whole = [](uint64_t bytes, uint64_t to) { return (bytes + to - 1) / to * to; };
  EXPECT_EQ(device[1] - device[0], whole((4 + 1) * whole(1 + 2 * CGR_PHASE_LAYER, 16) * 8, 256));
  EXPECT_EQ(device[2] - device[0], whole((4 + 1) * whole(1 + 2 * CGR_PHASE_LAYER + 6 * 2, 16) * 8, 256));
  EXPECT_GT(host[1], host[0]);
}

CGR_INSTANTIATE_OVER_DEVICES(Timing);

// ---- on the host device alone

TEST(TimingHost, AStepThatHasNotCompletedIsNotReady) {
  EngineOptions options = OptionsFor(HostParam(CGR_SCHEDULE_LATEST));
  options.adjust = [](cgr_config *config) { config->timing = 1; };
  Captured<Engine> engine(options);
  int32_t a = engine.Start(5, 1), count = 0;
  engine.PrepareAndLaunch(engine.Decode({ a }));
  ExpectMessage(cgr_runtime_timing(engine.rt, engine.step.mark, nullptr, 0, &count), CGR_NOT_READY,
                { "cgr_runtime_timing: step " + std::to_string(engine.step.mark.seq), "has not completed" });
  engine.CheckAll();
  EXPECT_GT(SpansOf(engine.rt, engine.step.mark.seq).size(), 3u);
}

// Graphs with stamps hold nothing forbidden, and replay as an eager step runs.
TEST(TimingHost, AuditAndSelfTestFindNothing) {
  for (cgr_graph_mode mode : { CGR_MODE_FULL, CGR_MODE_PIECEWISE }) {
    const HostDevice dev;
    TinyEngine engine(dev, mode, 0, 2);
    int32_t count = -1;
    CGR_ASSERT_OK(engine.Capture());
    CGR_EXPECT_OK(engine.SelfTest(&count));
    EXPECT_EQ(count, 0);
    engine.RegisterAll();
    CGR_EXPECT_OK(engine.Capture());
    CGR_EXPECT_OK(cgr_runtime_audit(engine.rt, nullptr, nullptr, 0, &count));
    EXPECT_EQ(count, 0);
  }
}

// Each device call fails in turn: in creation, which then makes nothing, in an eager step, and in calls that read.
class TimingFaults : public ::testing::Test {
protected:
  void TearDown() override { cgr__fault_set(dev_, nullptr); }
  // Returns how many calls the device had.
  template <class Call, class After> uint64_t AtEveryCall(Call call, After after) {
    uint64_t nth = 0, fired = 1;
    while (fired > 0 && !HasFatalFailure()) {
      const cgr__fault_plan plan = { CGR__FAULT_ANY_OP, ++nth, CGR__FAULT_ONCE, 0, CGR__DEVICE_FAILED, 77 };
      SCOPED_TRACE("call " + std::to_string(nth));
      cgr__fault_set(dev_, &plan);
      const cgr_status status = call();
      fired = cgr__fault_fired(dev_);
      cgr__fault_set(dev_, nullptr);
      EXPECT_TRUE(status == (fired > 0 ? CGR_ERROR_DEVICE : CGR_OK)) << cgr_status_name(status) << ": " << cgr_last_message();
      after();
    }
    return nth - 1;
  }
  HostDevice dev_{ CGR_SCHEDULE_EARLIEST, true };
};

// Each launch fails in turn: a timestamp's failure is reported as such, and all others as without timestamps.
TEST_F(TimingFaults, ATimestampThatFailsIsToldAsOne) {
  std::vector<std::string> others[2];
  int stamps[2] = {};
  for (int timed = 0; timed < 2; timed++) {
    TinyEngine engine(dev_, CGR_MODE_FULL, 0, timed ? CGR_TIMING_LAYERS : CGR_TIMING_OFF);
    cgr_capture capture = engine.CaptureStruct();
    const cgr_key key = { CGR_KIND_FULL, 0, 0, 1, 1, 1, 0, 0, {} };
    capture.keys = &key;
    capture.num_keys = 1;
    for (uint64_t nth = 1, fired = 1; fired > 0 && nth < 100; nth++) {
      const cgr__fault_plan plan = { CGR__OP_LAUNCH, nth, CGR__FAULT_ONCE, 0, CGR__DEVICE_FAILED, 77 };
      cgr__fault_set(dev_, &plan);
      const cgr_status status = cgr_runtime_capture(engine.rt, &capture);
      fired = cgr__fault_fired(dev_);
      cgr__fault_set(dev_, nullptr);
      const std::string message = status == CGR_OK ? "" : cgr_last_message();
      if (fired > 0 && message.find("enqueuing a timestamp") != std::string::npos)
        stamps[timed]++;
      else if (fired > 0)
        others[timed].push_back(message);
    }
  }
  EXPECT_EQ(others[0], others[1]);
  EXPECT_GT(others[0].size(), 4u);
  EXPECT_EQ(stamps[0], 0);
  EXPECT_EQ(stamps[1], 11) << "7 of phases, 3 of the layer, and one more when the epilogue has waited";
}

TEST_F(TimingFaults, OfWhatReads) {
  TinyEngine engine(dev_, CGR_MODE_FULL, 0, 2);
  int32_t count = 0;
  size_t length = 0;
  CGR_ASSERT_OK(engine.Capture());
  engine.Step();
  const uint64_t newest = cgr_test::Completed(engine.rt);
  auto nothing = [] {};
  EXPECT_GE(AtEveryCall(
                [&] {
                  return cgr_runtime_timing(engine.rt, cgr_mark{ 0, 0, newest }, nullptr, 0, &count);
                },
                nothing),
            2u);
  std::vector<char> out(1 << 16);
  auto head = [&] { return cgr_runtime_trace_head(engine.rt, out.data(), out.size(), &length); };
  EXPECT_GE(AtEveryCall(head, nothing), 20u);
  EXPECT_GE(AtEveryCall(
                [&] {
                  return cgr_runtime_trace_step(engine.rt, cgr_mark{ 0, 0, newest }, out.data(), out.size(), &length);
                },
                nothing),
            2u);
  EXPECT_GE(AtEveryCall([&] { return cgr_runtime_trace(engine.rt, out.data(), out.size(), &length); }, nothing), 22u);
  engine.Step();
}

} // namespace
} // namespace cgr_test

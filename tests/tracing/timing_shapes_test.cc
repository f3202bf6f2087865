// Which spans a step has, depending on the calls that its layers make, their backends, and what runs before `record`.
#include <memory>
#include <set>

#include "tests/support/tiny_engine.h"

namespace cgr_test {
namespace {

// The LATEST schedule holds back a branch as long as it is not waited for.
class TimingShapes : public ::testing::TestWithParam<cgr_host_schedule> {
protected:
  // Calls `check` with the spans of an eager step, a step of a FULL graph and one of a PIECEWISE graph.
  void ForEveryKind(TinyOptions shapes, const std::function<void(std::map<Place, cgr_span> &)> &check) {
    for (int32_t kind : { CGR_KIND_NONE, CGR_KIND_FULL, CGR_KIND_PIECEWISE }) {
      SCOPED_TRACE(cgr_graph_kind_name(cgr_graph_kind(kind)));
      engine_.reset();
      shapes.timing = 2;
      shapes.mode = kind == CGR_KIND_PIECEWISE ? CGR_MODE_PIECEWISE : CGR_MODE_FULL;
      engine_ = std::make_unique<TinyEngine>(dev_, shapes);
      CGR_ASSERT_OK(engine_->Capture());
      CGR_ASSERT_OK(cgr_runtime_enable_graphs(engine_->rt, kind != CGR_KIND_NONE));
      ASSERT_EQ(engine_->Step(), kind);
      std::map<Place, cgr_span> by = engine_->Spans();
      check(by);
    }
  }
  // The spans of these layers alone; layers of a step come one after the other.
  void ExpectLayers(const TinyOptions &shapes, const std::set<Place> &want) {
    ForEveryKind(shapes, [&](std::map<Place, cgr_span> &by) {
      std::set<Place> got;
      for (const auto &span : by)
        if (span.first.second >= 0)
          got.insert(span.first);
      ASSERT_EQ(got, want);
      for (const auto &span : by) {
        if (span.first.second < 0)
          continue;
        const cgr_span &layer = by.at({ CGR_PHASE_LAYER, span.first.second });
        EXPECT_LE(layer.begin_ns, span.second.begin_ns) << cgr_phase_name(cgr_phase(span.first.first));
        EXPECT_GE(layer.end_ns, span.second.end_ns) << cgr_phase_name(cgr_phase(span.first.first));
      }
    });
  }
  HostDevice dev_{ GetParam() };
  std::unique_ptr<TinyEngine> engine_;
};

const Place kLayer(CGR_PHASE_LAYER, 0), kAppend(CGR_PHASE_APPEND, 0), kAttention(CGR_PHASE_ATTENTION, 0);

TEST_P(TimingShapes, ABackendThatLeavesTheAppendToTheLibrary) {
  TinyOptions shapes;
  shapes.layers = { { 1, 0 } };
  ASSERT_NO_FATAL_FAILURE(ExpectLayers(shapes, { kLayer, kAppend, kAttention }));
}

TEST_P(TimingShapes, ABackendThatAppendsWhileItAttends) {
  TinyOptions shapes;
  shapes.layers = { { 1, 0 } };
  shapes.backend_flags = CGR_BACKEND_APPENDS;
  ASSERT_NO_FATAL_FAILURE(ExpectLayers(shapes, { kLayer, kAttention }));
}

TEST_P(TimingShapes, ALayerThatAppendsNothing) {
  for (int32_t backend : { 0, 1 }) {
    SCOPED_TRACE(backend);
    TinyOptions shapes;
    shapes.layers = { { backend, 0 } };
    shapes.calls = { { 0, CGR_ATTENTION_NO_APPEND } };
    ASSERT_NO_FATAL_FAILURE(ExpectLayers(shapes, { kLayer, kAttention }));
  }
}

TEST_P(TimingShapes, ALayerThatReadsTheCacheOfAnother) {
  TinyOptions shapes;
  shapes.layers = { { 0, 0 }, { 0, 1 } };
  ASSERT_NO_FATAL_FAILURE(
      ExpectLayers(shapes, { kLayer, kAppend, kAttention, { CGR_PHASE_LAYER, 1 }, { CGR_PHASE_ATTENTION, 1 } }));
}

// The engine attends by itself, or not at all.
TEST_P(TimingShapes, ALayerThatAppendsAlone) {
  for (int32_t backend : { 0, 1 })
    for (uint32_t flags : { 0u, uint32_t(CGR_BACKEND_APPENDS) }) {
      SCOPED_TRACE(std::to_string(backend) + " " + std::to_string(flags));
      TinyOptions shapes;
      shapes.layers = { { backend, 0 } };
      shapes.backend_flags = flags;
      shapes.calls = { { 0, CGR_ATTENTION_APPEND_ONLY } };
      ASSERT_NO_FATAL_FAILURE(ExpectLayers(shapes, { kLayer, kAppend }));
    }
}

// A layer begins with its first call, and ends where the next layer begins: its second call is not another layer.
TEST_P(TimingShapes, ALayerOfTwoCallsComesOnce) {
  for (int32_t backend : { 0, 1 }) {
    SCOPED_TRACE(backend);
    TinyOptions shapes;
    shapes.layers = { { backend, 0 }, { backend, 0 } };
    shapes.calls = { { 0, CGR_ATTENTION_APPEND_ONLY },
                     { 1, CGR_ATTENTION_APPEND_ONLY },
                     { 0, CGR_ATTENTION_NO_APPEND },
                     { 1, CGR_ATTENTION_NO_APPEND } };
    ForEveryKind(shapes, [](std::map<Place, cgr_span> &by) {
      EXPECT_EQ(by[kLayer].begin_ns, by[kAppend].begin_ns);
      EXPECT_EQ(by[kLayer].end_ns, (by[{ CGR_PHASE_LAYER, 1 }].begin_ns));
      EXPECT_EQ((by[{ CGR_PHASE_LAYER, 1 }].begin_ns), (by[{ CGR_PHASE_APPEND, 1 }].begin_ns));
      EXPECT_EQ((by[{ CGR_PHASE_LAYER, 1 }].end_ns), (by[{ CGR_PHASE_RECORD, -1 }].end_ns));
      EXPECT_LE(by[kAppend].end_ns, by[kAttention].begin_ns);
    });
    shapes.layers.resize(1);
    shapes.calls = { { 0, CGR_ATTENTION_APPEND_ONLY }, { 0, CGR_ATTENTION_NO_APPEND } };
    ASSERT_NO_FATAL_FAILURE(ExpectLayers(shapes, { kLayer, kAppend, kAttention }));
  }
}

// An append after the attention, which is the engine's responsibility, does not move the attention.
TEST_P(TimingShapes, AnAppendAfterTheAttention) {
  for (int32_t backend : { 0, 1 }) {
    SCOPED_TRACE(backend);
    TinyOptions shapes;
    shapes.layers = { { backend, 0 } };
    shapes.calls = { { 0, CGR_ATTENTION_NO_APPEND }, { 0, CGR_ATTENTION_APPEND_ONLY } };
    ForEveryKind(shapes, [](std::map<Place, cgr_span> &by) {
      ASSERT_EQ(by.count(kAppend) + by.count(kAttention), 2u);
      EXPECT_EQ(by[kLayer].begin_ns, by[kAttention].begin_ns);
      EXPECT_LE(by[kAttention].begin_ns, by[kAttention].end_ns);
      EXPECT_LE(by[kAttention].end_ns, by[kAppend].begin_ns);
    });
  }
}

// All phases in one step: staged buffers of the engine's, on-demand buffers, and a backend that plans after them, next to one
// that plans first.
TEST_P(TimingShapes, EveryPhase) {
  cgr_buffer_decl staged = CGR_BUFFER_DECL_INIT;
  staged.dimension = CGR_DIMENSION_TOKENS;
  staged.dtype = CGR_DTYPE_I32;
  staged.source = CGR_SOURCE_STAGED;
  staged.name = "staged";
  TinyOptions shapes;
  shapes.layers = { { 0, 0 }, { 1, 0 } };
  shapes.backend_plans = true;
  shapes.adjust = [&](cgr_config *config) {
    config->buffers = &staged;
    config->num_buffers = 1;
    config->on_demand = CGR_ON_DEMAND(CGR_BUFFER_KV_INDICES);
  };
  ForEveryKind(shapes, [](std::map<Place, cgr_span> &by) {
    auto of = [&](int32_t phase) -> const cgr_span & {
      EXPECT_EQ(by.count({ phase, -1 }), 1u) << cgr_phase_name(cgr_phase(phase));
      return by[{ phase, -1 }];
    };
    const cgr_span step = of(CGR_PHASE_STEP), prologue = of(CGR_PHASE_PROLOGUE), stage = of(CGR_PHASE_STAGED),
                   first = of(CGR_PHASE_PLAN_FIRST), demand = of(CGR_PHASE_ON_DEMAND), plan = of(CGR_PHASE_PLAN),
                   record = of(CGR_PHASE_RECORD), epilogue = of(CGR_PHASE_EPILOGUE);
    EXPECT_EQ(stage.begin_ns, prologue.end_ns);
    EXPECT_EQ(record.begin_ns, stage.end_ns);
    for (const cgr_span &span : { first, demand, plan }) {
      EXPECT_LE(step.begin_ns, span.begin_ns);
      EXPECT_LE(prologue.end_ns, span.begin_ns) << cgr_phase_name(cgr_phase(span.phase));
      EXPECT_LE(span.end_ns, epilogue.begin_ns) << cgr_phase_name(cgr_phase(span.phase));
      EXPECT_LE(span.end_ns, by[kAttention].begin_ns) << cgr_phase_name(cgr_phase(span.phase));
    }
    EXPECT_LE(first.end_ns, demand.begin_ns);
    EXPECT_LE(demand.end_ns, plan.begin_ns);
    EXPECT_LE(stage.end_ns, plan.begin_ns) << "such a plan may read what is staged";
    EXPECT_EQ(by.size(), 8u + 3 * 2 + by.count({ CGR_PHASE_FETCH, -1 })) << "nothing comes twice, and nothing else is there";
  });
}

// A step of the runtime's own ends when what runs alongside it has.
TEST_P(TimingShapes, TheEpilogueBeginsAfterTheBranches) {
  TinyOptions shapes;
  shapes.adjust = [](cgr_config *config) { config->on_demand = CGR_ON_DEMAND(CGR_BUFFER_KV_INDICES); };
  ForEveryKind(shapes, [this](std::map<Place, cgr_span> &by) {
    if (by.count({ CGR_PHASE_FETCH, -1 })) {
      EXPECT_LE((by[{ CGR_PHASE_FETCH, -1 }].end_ns), (by[{ CGR_PHASE_EPILOGUE, -1 }].begin_ns));
    }
    const int32_t page = 6;
    int32_t row = -1;
    uint64_t seq = 0;
    CGR_ASSERT_OK(cgr_request_open(engine_->rt, 1, &row));
    CGR_ASSERT_OK(cgr_request_set_pages(engine_->rt, row, 0, 0, &page, 1));
    CGR_ASSERT_OK(cgr_test::Flush(engine_->rt, engine_->stream, &seq));
    CGR_ASSERT_OK(cgr_step_wait(engine_->rt, cgr_mark{ 0, 0, seq }, -1, nullptr));
    std::map<Place, cgr_span> flush = engine_->Spans(seq);
    ASSERT_EQ(flush.count({ CGR_PHASE_ON_DEMAND, -1 }), 1u);
    EXPECT_LE((flush[{ CGR_PHASE_ON_DEMAND, -1 }].end_ns), (flush[{ CGR_PHASE_EPILOGUE, -1 }].begin_ns));
  });
}

INSTANTIATE_TEST_SUITE_P(Schedules, TimingShapes,
                         ::testing::Values(CGR_SCHEDULE_EARLIEST, CGR_SCHEDULE_LATEST, CGR_SCHEDULE_ASYNC));

// Room for all spans of a runtime of many layers.
TEST(TimingShapesHost, ThereIsRoomForEverySpan) {
  enum { kLayers = 96 };
  const HostDevice dev;
  TinyOptions shapes;
  shapes.timing = 2;
  shapes.layers.resize(kLayers);
  uint64_t host[2] = {};
  shapes.adjust = [&](cgr_config *config) {
    config->flight_depth = 256; // each takes memory of a timed runtime, too
    for (int32_t timing : { 0, 2 }) {
      cgr_memory_sizes sizes = CGR_MEMORY_SIZES_INIT;
      config->timing = timing;
      CGR_ASSERT_OK(cgr_runtime_memory(config, &sizes));
      host[timing / 2] = sizes.host_bytes;
    }
  };
  Captured<TinyEngine> engine(dev, shapes);
  EXPECT_EQ(engine.Step(), CGR_KIND_FULL);
  const size_t most = CGR_PHASE_LAYER + 3 * kLayers, words = 6 * kLayers;
  EXPECT_GE(engine.Spans().size(), most - 3) << "staged, on demand and other plans are not there";
  EXPECT_GE(host[1] - host[0], most * sizeof(cgr_span) + words * sizeof(int64_t));
}

} // namespace
} // namespace cgr_test

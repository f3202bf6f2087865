// Plans that backends make on the host: backends are given the step as the device will see it, padded to its key, and the step
// finds on the device what they wrote, in graphs and eager steps, with others in flight.
#include "devices/shims/trace.h"
#include "tests/support/planner.h"
#include "tests/support/refused.h"
#include "tests/support/seed.h"

namespace cgr_test {
namespace {

PlannerOptions OnHost(uint64_t plan_bytes = 1003) {
  PlannerOptions o;
  o.on_host = o.watches = true, o.plan_bytes = plan_bytes;
  return o;
}

class PlansOnHost : public PlanningTest {
protected:
  // Batches of all kinds; about as many steps in flight as there can be.
  void RunRandom(Random *random, int steps) {
    std::vector<int32_t> rows;
    for (int i = 0; i < 7; i++)
      rows.push_back(engine().Open());
    std::map<int32_t, int> kinds;
    repeat_ = 0;
    for (int n = 0; n < steps && !::testing::Test::HasFailure(); n++) {
      SCOPED_TRACE(n);
      std::vector<Item> items = Pick(random, rows);
      const bool standing = !items.empty() && random->OneIn(3);
      engine().plan_flags = random->OneIn(3) ? CGR_PLAN_FAST : 0;
      ASSERT_NO_FATAL_FAILURE(p_->Prepare(items, nullptr, standing));
      if (random->OneIn(5)) {
        CGR_ASSERT_OK(engine().Cancel());
        items = Pick(random, rows);
        engine().plan_flags ^= CGR_PLAN_FAST;
        ASSERT_NO_FATAL_FAILURE(p_->Prepare(items));
      }
      kinds[engine().step.key.kind]++;
      ASSERT_NO_FATAL_FAILURE(p_->Launch());
      if (engine().NumInFlight() >= 5 || random->OneIn(6))
        engine().CheckAll();
      if (random->OneIn(12))
        p_->CheckSeen();
      Shorten(rows);
    }
    p_->CheckSeen();
    const cgr_graph_mode mode = GetParam().mode;
    if (mode != CGR_MODE_NONE) {
      EXPECT_GT(kinds[CGR_KIND_FULL] + kinds[CGR_KIND_PIECEWISE], 0);
    }
    if (mode == CGR_MODE_FULL_AND_PIECEWISE) {
      EXPECT_GT(kinds[CGR_KIND_PIECEWISE], 0);
      EXPECT_GT(kinds[CGR_KIND_FULL], 0);
    }
    if (mode == CGR_MODE_NONE || mode == CGR_MODE_FULL_DECODE_ONLY) {
      EXPECT_GT(kinds[CGR_KIND_NONE], 0);
    }
  }
  // No requests, the same tokens for all, or chunks of any length with empty requests between them.
  std::vector<Item> Pick(Random *random, std::vector<int32_t> rows) {
    const int64_t kind = random->Pick(0, 9);
    if (kind == 0)
      return {};
    if (repeat_ > 0 && --repeat_ > 0)
      return engine().Decode(repeated_);
    for (size_t i = rows.size(); i > 1; i--)
      std::swap(rows[i - 1], rows[size_t(random->Pick(0, int64_t(i) - 1))]);
    rows.resize(size_t(random->Pick(1, int64_t(rows.size()))));
    std::vector<Item> items;
    for (int32_t row : rows) {
      const bool has_token = engine().requests[row]->has_token;
      const int32_t length = kind < 5 ? 1 : random->OneIn(4) ? 0 : random->Pick32(1, 9);
      engine().Reserve(row, engine().requests[row]->num_tokens + length);
      if (length == 1 && has_token)
        items.push_back({ row, { CGR_TOKEN_LAST } });
      else
        items.push_back(Engine::Chunk(row, length, 3, length > 1 && random->OneIn(4)));
    }
    if (kind == 1 && std::all_of(rows.begin(), rows.end(), [&](int32_t row) { return engine().requests[row]->has_token; })) {
      repeated_ = rows;
      repeat_ = 6;
    }
    return items;
  }
  void Shorten(const std::vector<int32_t> &rows) {
    for (int32_t row : rows)
      if (engine().requests[row]->num_tokens > 120) {
        p_->CheckSeen();
        engine().SetLength(row, 3);
        repeat_ = 0;
      }
  }
  std::vector<int32_t> repeated_; // rows of a batch that goes on as it is, and how many times more
  int repeat_ = 0;
};

TEST_P(PlansOnHost, AreMadeForEveryStepAndTravelWithIt) {
  SeededRandom random;
  for (uint64_t bytes : { 1, 64, 1003, 70000 }) {
    SCOPED_TRACE(bytes);
    ASSERT_NO_FATAL_FAILURE(Make({ OnHost(bytes) }, [&](cgr_config *config) {
      config->ring_depth = bytes == 64 ? 32 : 8;
      config->max_changes = bytes == 64 ? 3 : 4096; // small: steps of the runtime itself go ahead
    }));
    RunRandom(&random, 60);
  }
}

// Of backends that disagree, the smallest threshold counts, and the split is uniform if one of them wants it.
TEST_P(PlansOnHost, DecodesAreCounted) {
  for (int wants : { 0, 1, 2, 3 }) { // a bit for each of two backends that wants a uniform split
    SCOPED_TRACE(wants);
    PlannerOptions o[2] = { OnHost(), OnHost() };
    o[0].reorder_threshold = 2, o[0].layer = 0;
    o[1].reorder_threshold = 5, o[1].name = "second";
    for (int i : { 0, 1 })
      o[i].flags = wants >> i & 1 ? CGR_BACKEND_UNIFORM_SPLIT : 0;
    ASSERT_NO_FATAL_FAILURE(Make({ o[0], o[1] }));
    const int32_t a = engine().Open(), b = engine().Open(), c = engine().Open();
    for (bool standing : { false, true }) {
      p_->Run(engine().Chunks({ { a, 2 }, { b, 1 }, { c, 5 } }), nullptr, standing);
      p_->Run(engine().Chunks({ { a, 1 }, { b, 0 }, { c, 2 } }), nullptr, standing);
      p_->CheckSeen();
      p_->Run(engine().Chunks({ { a, 2 }, { b, 0 }, { c, 2 } }), nullptr, standing);
      p_->Run(engine().Chunks({ { a, 2 }, { b, 0 }, { c, 3 } }), nullptr, standing);
      p_->Run(engine().Chunks({ { a, 4 } }), nullptr, standing);
      p_->CheckSeen();
    }
    p_->Run({});
    p_->CheckSeen();
  }
}

// Each writes its own, next to the engine's staged buffers.
TEST_P(PlansOnHost, OfSeveralBackendsAndOfTheEngineDoNotMeet) {
  cgr_buffer_decl decl[2] = { CGR_BUFFER_DECL_INIT, CGR_BUFFER_DECL_INIT };
  for (int i = 0; i < 2; i++) {
    decl[i].name = i == 0 ? "requests" : "tokens";
    decl[i].dimension = i == 0 ? CGR_DIMENSION_REQUESTS : CGR_DIMENSION_TOKENS;
    decl[i].dtype = CGR_DTYPE_I32;
    decl[i].source = CGR_SOURCE_STAGED;
    decl[i].padding = -5;
  }
  PlannerOptions first = OnHost(37), second = OnHost(5000), unused = OnHost(99);
  first.layer = 0;
  second.name = "second";
  unused.name = "unused", unused.layer = -1;
  ASSERT_NO_FATAL_FAILURE(
      Make({ first, unused, second }, [&](cgr_config *config) { config->buffers = decl, config->num_buffers = 2; }));
  const int32_t a = engine().Start(3), b = engine().Start(5);
  engine().Reserve(a, 40);
  engine().Reserve(b, 40);
  for (auto &planner : p_->planners) {
    planner->host.clear();
    planner->TakeSeen();
  }
  const int32_t rows[] = { a, b }, data[] = { 11, 12 };
  const cgr_staged staged = { 0, 0, data };
  cgr_batch batch = BatchOf(2, rows);
  batch.staged = &staged, batch.num_staged = 1;
  cgr_step step = CGR_STEP_INIT;
  CGR_ASSERT_OK(cgr_step_prepare(engine().rt, &batch, &step));
  EXPECT_GE(step.bytes_staged, 37u + 5000u + 8u);
  CGR_ASSERT_OK(cgr_step_launch(engine().rt, &step, engine().stream));
  CGR_ASSERT_OK(cgr_step_wait(engine().rt, step.mark, -1, nullptr));
  for (int32_t row : rows) { // which the engine's model does not know
    engine().requests[row]->num_tokens++;
  }
  for (size_t i : { 0, 2 }) {
    const std::vector<Planner::Seen> seen = (*p_)[i].TakeSeen();
    ASSERT_EQ(seen.size(), 1u);
    EXPECT_EQ(seen[0].plan, (*p_)[i].host.at(0).plan);
  }
  EXPECT_EQ((*p_)[1].asked, 0) << "no layer names it";
  for (int i = 0; i < 2; i++) {
    const cgr_buffer_view view = BufferOf(engine().rt, CGR_BUFFER_DECLARED, i);
    const std::vector<int32_t> got = engine().Read<int32_t>(view.data, 2);
    EXPECT_EQ(got, i == 0 ? (std::vector<int32_t>{ 11, 12 }) : (std::vector<int32_t>{ -5, -5 }));
  }
  cgr_buffer_view view = CGR_BUFFER_VIEW_INIT;
  CGR_EXPECT(CGR_ERROR_INVALID_ARGUMENT, cgr_buffer_get(engine().rt, nullptr, CGR_BUFFER_DECLARED, 2, &view));
  const cgr_staged foreign = { 2, 0, data };
  batch.staged = &foreign;
  ExpectMessage(cgr_step_prepare(engine().rt, &batch, &step), CGR_ERROR_INVALID_ARGUMENT,
                { "staged[0].buffer is 2, expected the index of a declared buffer (num_buffers is 2)" });
  engine().launched = step.mark.seq;
  engine().Forget();
}

// Nothing has changed, and the next good step is right.
TEST_P(PlansOnHost, AFailureRefusesTheStep) {
  PlannerOptions first = OnHost(64), second = OnHost(200);
  first.layer = 0;
  second.name = "second";
  ASSERT_NO_FATAL_FAILURE(Make({ first, second }, [](cgr_config *config) { config->max_changes = 3; }));
  std::vector<int32_t> rows = { engine().Start(5, 1), engine().Start(17, 2), engine().Start(31, 3) };
  (*p_)[0].TakeSeen();
  (*p_)[1].TakeSeen();
  for (size_t failing : { 0, 1 })
    for (bool standing : { false, true })
      for (bool told : { false, true }) {
        SCOPED_TRACE(std::to_string(failing) + (standing ? " standing" : "") + (told ? " told" : ""));
        std::vector<Item> items = engine().Decode(rows);
        items[1] = engine().Chunks({ { rows[1], 18 } })[0]; // with changes
        (*p_)[failing].on_plan_host = [&](const cgr_plan_step &step) {
          EXPECT_EQ(step.num_requests, 3);
          return told ? cgr_view_make(nullptr, CGR_DTYPE_BF16, 1, 64, nullptr) : CGR_ERROR_UNSUPPORTED;
        };
        for (int n = 0; n < 2; n++)
          ExpectRefused(
              engine(), CGR_ERROR_CALLBACK,
              { "backend " + std::string((*p_)[failing].o.name) + ": plan_host returned " +
                    (told ? "CGR_ERROR_" : "CGR_ERROR_UNSUPPORTED"),
                told ? "cgr_view_make" : "plan_host" },
              [&] { return standing ? engine().PrepareStanding(items) : engine().Prepare(items); }, 1);
        (*p_)[failing].on_plan_host = nullptr;
        ASSERT_NO_FATAL_FAILURE(p_->Run(items, nullptr, standing));
        p_->CheckSeen();
        engine().CheckCaches();
        for (int32_t row : rows)
          engine().SetLength(row, 3);
        items = engine().Chunks({ { rows[0], 1 }, { rows[1], 1 }, { rows[2], 1 } });
        ASSERT_NO_FATAL_FAILURE(p_->Run(items));
        p_->CheckSeen();
      }
}

// `plan` can reach the step's stream; `create` and `destroy` may have made a stream of their own.
TEST_P(PlansOnHost, PlanningDestroysNoStream) {
  ASSERT_NO_FATAL_FAILURE(Make({ OnHost() }));
  auto &planner = (*p_)[0];
  int refused = 0;
  auto refuse = [&](cudaStream_t stream) {
    ExpectMessage(cgr_stream_destroy(engine().dev, stream), CGR_ERROR_STATE, { "cgr_stream_destroy: stream is 0x" });
    refused++;
    return CGR_OK;
  };
  planner.on_plan_host = [&](const cgr_plan_step &) { return refuse(engine().stream); };
  planner.on_plan = [&](cgr_recorder *recorder) {
    const cgr_record_info info = InfoOf(recorder);
    return refuse(info.stream);
  };
  const int32_t row = engine().Start(5);
  const cgr_key eager = EagerKey(1, 1);
  engine().Step(engine().Decode({ row }), &eager);
  EXPECT_GE(refused, 2);
  planner.on_plan_host = nullptr, planner.on_plan = nullptr;
  int destroyed = 0;
  planner.on_destroy = [&](const auto &) {
    cudaStream_t own;
    CGR_EXPECT_OK(cgr_stream_create(engine().dev, &own));
    CGR_EXPECT_OK(cgr_stream_destroy(engine().dev, own));
    destroyed++;
  };
  CGR_EXPECT_OK(cgr_runtime_destroy(engine().rt));
  engine().rt = nullptr;
  EXPECT_GT(destroyed, 0);
}

// Steps of the runtime itself have no plan: their ring slots say so, whatever is in them.
TEST_P(PlansOnHost, WarmUpFindsZeros) {
  ASSERT_NO_FATAL_FAILURE(Make({ OnHost() }));
  const int32_t row = engine().Start(5);
  for (int n = 0; n < 6; n++) { // every ring slot has held a plan
    p_->Run(engine().Decode({ row }));
    engine().CheckAll();
  }
  (*p_)[0].TakeSeen();
  (*p_)[0].host.clear();
  CGR_ASSERT_OK(engine().Warmup());
  const std::vector<Planner::Seen> seen = (*p_)[0].TakeSeen();
  EXPECT_EQ(seen.size(), size_t(cgr_test::NumKeys(engine().rt)));
  for (const Planner::Seen &each : seen)
    EXPECT_EQ(each.plan, Planner::Bytes(1003, 0));
  EXPECT_TRUE((*p_)[0].host.empty()) << "nothing is asked for them";
}

// No copy either: what the host knows comes from the host.
TEST_P(PlansOnHost, TakeNoCallsOfTheDeviceInPrepare) {
  cgr_device *traced = nullptr;
  ASSERT_EQ(cgr__trace_open(OpenDevice(GetParam().device), &traced), CGR__DEVICE_OK);
  EngineOptions options = PlanningOptions(GetParam().device, GetParam().mode);
  options.handle = traced;
  PlannerOptions o = OnHost();
  o.watches = false;
  p_ = std::make_unique<Planning>(options, std::vector<PlannerOptions>{ o });
  CGR_ASSERT_OK(engine().Capture());
  const std::vector<int32_t> rows = { engine().Start(3), engine().Start(9) };
  for (int n = 0; n < 20 && !HasFailure(); n++) {
    const std::vector<Item> items =
        n % 4 == 3 ? engine().Chunks({ { rows[0], 3 }, { rows[1], 2 } }) : engine().Decode({ rows[0], rows[1] });
    cgr__trace_reset(traced);
    ASSERT_NO_FATAL_FAILURE(p_->Prepare(items));
    EXPECT_EQ(cgr__trace_total(traced), 0u);
    engine().upload = false;
    cgr__trace_reset(traced);
    p_->Launch();
    EXPECT_EQ(cgr__trace_allocs(traced), 0u);
    EXPECT_EQ(cgr__trace_syncs(traced), 0u);
    if (engine().step.key.kind == CGR_KIND_FULL) {
      EXPECT_EQ(cgr__trace_total(traced), 1u + cgr__trace_count(traced, CGR__OP_CAPTURE_STATUS)) << "one launch";
    }
    engine().Sync();
    engine().WaitForAll();
    engine().Forget();
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, PlansOnHost,
                         ::testing::ValuesIn(EveryPair(AllDevices(), { CGR_MODE_NONE, CGR_MODE_PIECEWISE, CGR_MODE_FULL,
                                                                       CGR_MODE_FULL_DECODE_ONLY, CGR_MODE_FULL_AND_PIECEWISE })),
                         ModeLabel);

} // namespace
} // namespace cgr_test

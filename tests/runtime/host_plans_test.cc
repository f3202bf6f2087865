// Backends that plan on the host: what they are told of a step, that their plan is where kernels read it, and what becomes of a
// plan that fails; and workspaces, which are zeros at first and after a step that was given up.
#include <cstring>

#include "devices/shims/trace.h"
#include "tests/support/refused.h"
#include "tests/support/seed.h"

namespace cgr_test {
namespace {

class HostPlans : public ::testing::TestWithParam<DeviceParam> {
protected:
  enum { kLayer = 1, kWorkspaceBytes = 512 };
  struct Told { // a cgr_plan_step with its arrays
    cgr_plan_step step;
    std::vector<int32_t> rows, starts, lens;
  };
  void SetUp() override { CGR_SKIP_WITHOUT_DEVICE(GetParam()); }

  // The plan: the number of the call, and sums of what was told.
  static cgr_status PlanHost(void *context, void *state, const cgr_plan_step *step) {
    auto *self = static_cast<HostPlans *>(context);
    const int32_t b = step->padded_requests;
    EXPECT_NE(state, nullptr);
    self->told_.push_back({ *step,
                            { step->rows, step->rows + b },
                            { step->query_start_loc, step->query_start_loc + b + 1 },
                            { step->seq_lens, step->seq_lens + b } });
    EXPECT_EQ(reinterpret_cast<uintptr_t>(step->plan) % 64, 0u);
    if (self->fail_)
      return CGR_ERROR_BUSY;
    const int32_t plan[2] = { int32_t(self->told_.size()), step->num_tokens };
    EXPECT_EQ(step->plan_bytes, sizeof plan);
    std::memcpy(step->plan, plan, sizeof plan);
    return CGR_OK;
  }
  // Keeps the plan and the workspace as kernels find them, and copies q to out.
  static cgr_status Record(void *context, cgr_recorder *recorder, const cgr_attention *a) {
    auto *self = static_cast<HostPlans *>(context);
    cgr_record_info info = CGR_RECORD_INFO_INIT;
    cgr_plan_key key = CGR_PLAN_KEY_INIT;
    void *state = nullptr;
    CGR_EXPECT_OK(cgr_record_get_info(recorder, &info));
    CGR_EXPECT_OK(cgr_record_get_plan(recorder, &key, &state));
    EXPECT_NE(state, nullptr);
    EXPECT_EQ(key.kind, info.key.kind);
    self->workspace_ = key.workspace;
    CGR_EXPECT_OK(cgr_copy(self->engine_->dev, self->kept_, key.plan, key.plan_bytes, info.stream));
    if (self->fail_record_)
      return CGR_ERROR_BUSY;
    size_t bytes = size_t(info.num_tokens) * size_t(a->q.stride_token) * cgr_dtype_size(cgr_dtype(a->q.dtype));
    return cgr_copy(self->engine_->dev, a->out.data, a->q.data, bytes, info.stream);
  }
  void Make(cgr_graph_mode mode, cgr_device *handle = nullptr) {
    backend_ = CGR_BACKEND_INIT;
    backend_.name = "plans";
    backend_.context = this;
    backend_.support = [](void *, const cgr_device_info *, const cgr_group *) { return CGR_SUPPORT_ALWAYS; };
    backend_.create = [](void *, const cgr_plan_key *key, void **state) {
      *state = new cgr_plan_key(*key);
      return CGR_OK;
    };
    backend_.destroy = [](void *, void *state) { delete static_cast<cgr_plan_key *>(state); };
    backend_.record = Record;
    backend_.plan_host = PlanHost;
    backend_.plan_bytes = 8;
    backend_.workspace_bytes = kWorkspaceBytes;
    backend_.reorder_threshold = 1;
    EngineOptions options = OptionsFor(GetParam());
    options.feed = Feed::kUploads;
    options.mode = mode;
    options.handle = handle;
    options.mixed = { { 8, 4 }, { 24, 8 }, { 64, 8 } };
    options.adjust = [this](cgr_config *config) {
      layers_.assign(config->layers, config->layers + config->num_layers);
      layers_[kLayer].backend = 1;
      config->layers = layers_.data();
      config->backends = &backend_;
      config->num_backends = 1;
    };
    told_.clear();
    engine_ = std::make_unique<Engine>(options);
    engine_->check_call = { true, false };
    kept_ = engine_->Alloc(8);
    CGR_ASSERT_OK(engine_->Capture());
  }
  // What must be told of the items in their key.
  void Expect(const std::vector<int32_t> &rows, const std::vector<int32_t> &before, const std::vector<int32_t> &lens) {
    ASSERT_EQ(told_.size(), 1u) << "one call a step";
    const Told &got = told_[0];
    const cgr_key &key = engine_->step.key;
    std::vector<int32_t> want_rows(rows), starts = { 0 }, seq_lens;
    int32_t longest_query = 1, longest = 1, decodes = 0;
    for (size_t i = 0; i < rows.size(); i++) {
      starts.push_back(starts.back() + lens[i]);
      seq_lens.push_back(before[i] + lens[i]);
      longest_query = std::max(longest_query, lens[i]);
      longest = std::max(longest, seq_lens.back());
      decodes += lens[i] <= 1;
    }
    const int32_t tokens = starts.back();
    want_rows.resize(size_t(key.num_requests), engine_->o.max_rows);
    starts.resize(size_t(key.num_requests) + 1, tokens);
    seq_lens.resize(size_t(key.num_requests), 0);
    EXPECT_EQ(got.rows, want_rows);
    EXPECT_EQ(got.starts, starts);
    EXPECT_EQ(got.lens, seq_lens);
    EXPECT_EQ(got.step.num_requests, int32_t(rows.size()));
    EXPECT_EQ(got.step.num_tokens, tokens);
    EXPECT_EQ(got.step.padded_requests, key.num_requests);
    EXPECT_EQ(got.step.padded_tokens, key.num_tokens);
    EXPECT_EQ(got.step.max_query_len, longest_query);
    EXPECT_EQ(got.step.max_seq_len, longest);
    EXPECT_EQ(got.step.num_decodes, decodes);
    EXPECT_EQ(got.step.flags, rows.empty() ? uint32_t(CGR_PLAN_FAST) : 0u);
    EXPECT_EQ(engine_->Read<int32_t>(kept_, 2), (std::vector<int32_t>{ 1, tokens })) << "the plan of this step";
  }

  std::unique_ptr<Engine> engine_;
  cgr_backend backend_;
  std::vector<cgr_layer> layers_;
  std::vector<Told> told_;
  void *kept_ = nullptr, *workspace_ = nullptr;
  bool fail_ = false, fail_record_ = false;
};

TEST_P(HostPlans, GetTheExactLengthsOfEveryStepPaddedToItsKey) {
  const uint64_t seed = Seed();
  SCOPED_TRACE(Repeat(seed));
  Random random(seed);
  for (cgr_graph_mode mode : { CGR_MODE_FULL, CGR_MODE_PIECEWISE, CGR_MODE_NONE }) {
    SCOPED_TRACE(cgr_graph_mode_name(mode));
    ASSERT_NO_FATAL_FAILURE(Make(mode));
    std::vector<int32_t> rows;
    for (int i = 0; i < 6; i++)
      rows.push_back(engine_->Open());
    for (int n = 0; n < 40 && !HasFailure(); n++) {
      std::vector<std::pair<int32_t, int32_t>> chunks;
      std::vector<int32_t> named, before, lens;
      const int32_t decodes = random.Pick32(0, 6); // those come first; then at most one chunk
      for (int32_t i = 0; i < decodes; i++)
        chunks.push_back({ rows[size_t(i)], 1 });
      if (decodes < 6 && random.OneIn(2))
        chunks.push_back({ rows[size_t(decodes)], random.Pick32(2, 5) });
      for (const auto &[row, length] : chunks) {
        named.push_back(row);
        before.push_back(engine_->requests[row]->num_tokens);
        lens.push_back(length);
      }
      told_.clear();
      engine_->Step(engine_->Chunks(chunks));
      ASSERT_NO_FATAL_FAILURE(Expect(named, before, lens));
    }
  }
}

TEST_P(HostPlans, CapturesPlanForTheLargestThatTheKeyServes) {
  ASSERT_NO_FATAL_FAILURE(Make(CGR_MODE_FULL));
  EXPECT_EQ(told_.size(), size_t(cgr_runtime_num_keys(engine_->rt)) + 1) << "each key, and eager steps";
  for (const Told &told : told_) {
    EXPECT_EQ(told.step.flags, uint32_t(CGR_PLAN_CAPTURE));
    EXPECT_EQ(told.step.max_seq_len, engine_->o.max_seq_len);
    EXPECT_EQ(told.starts.back(), told.step.padded_tokens);
    EXPECT_TRUE(std::is_sorted(told.starts.begin(), told.starts.end()));
  }
}

TEST_P(HostPlans, AFailureRefusesTheStepAndChangesNothing) {
  ASSERT_NO_FATAL_FAILURE(Make(CGR_MODE_FULL));
  int32_t row = engine_->Start(5);
  fail_ = true;
  ExpectMessage(engine_->Prepare(engine_->Decode({ row })), CGR_ERROR_CALLBACK,
                { "backend plans: plan_host returned CGR_ERROR_BUSY" });
  fail_ = false;
  engine_->CheckRows();
  engine_->Step(engine_->Decode({ row }));
}

TEST_P(HostPlans, WorkspacesAreZerosAtFirstAndAfterAStepThatWasGivenUp) {
  ASSERT_NO_FATAL_FAILURE(Make(CGR_MODE_NONE));
  const std::vector<unsigned char> zeros(kWorkspaceBytes, 0), full(kWorkspaceBytes, 0xa5);
  int32_t row = engine_->Start(5);
  ASSERT_NE(workspace_, nullptr);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(workspace_) % 256, 0u);
  EXPECT_EQ(engine_->Read<unsigned char>(workspace_, kWorkspaceBytes), zeros);
  engine_->Write(workspace_, full.data(), full.size());
  engine_->Step(engine_->Decode({ row }));
  EXPECT_EQ(engine_->Read<unsigned char>(workspace_, kWorkspaceBytes), full) << "a good step leaves it alone";
  CGR_ASSERT_OK(engine_->Prepare(engine_->Decode({ row })));
  fail_record_ = true;
  ExpectMessage(engine_->Launch(), CGR_ERROR_CALLBACK, { "backend plans" });
  fail_record_ = false;
  engine_->Step(engine_->Decode({ row }));
  EXPECT_EQ(engine_->Read<unsigned char>(workspace_, kWorkspaceBytes), zeros);
}

// A plan is made of what the host knows: nothing is asked of the device, nor copied back from it, and nothing waited for.
TEST_P(HostPlans, AskNothingOfTheDevice) {
  cgr_device *inner = OpenDevice(GetParam()), *traced = nullptr;
  ASSERT_NE(inner, nullptr);
  ASSERT_EQ(cgr__trace_open(inner, &traced), CGR__DEVICE_OK);
  ASSERT_NO_FATAL_FAILURE(Make(CGR_MODE_FULL, traced));
  const int32_t a = engine_->Start(9), b = engine_->Start(4);
  for (int n = 0; n < 20 && !HasFailure(); n++) {
    const std::vector<Item> items = engine_->Chunks({ { a, 1 }, { b, n % 3 == 0 ? 4 : 1 } });
    told_.clear();
    cgr__trace_reset(traced);
    CGR_ASSERT_OK(engine_->Prepare(items));
    EXPECT_EQ(told_.size(), 1u);
    EXPECT_EQ(cgr__trace_total(traced), 0u);
    engine_->prelaunch = [traced] { cgr__trace_reset(traced); }; // after the engine's own copies
    CGR_ASSERT_OK(engine_->Launch());
    engine_->prelaunch = nullptr;
    EXPECT_EQ(cgr__trace_count(traced, CGR__OP_EXEC_LAUNCH), 1u);
    EXPECT_EQ(cgr__trace_count(traced, CGR__OP_COPY), 0u);
    EXPECT_EQ(cgr__trace_syncs(traced), 0u);
    engine_->CheckAll();
  }
}

CGR_INSTANTIATE_OVER_FEW_DEVICES(HostPlans);

} // namespace
} // namespace cgr_test

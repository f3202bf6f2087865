// Layers of an engine's own backend: cgr_record_attention calls it, at once in FULL captures and eager steps, between pieces at
// every replay; the library appends unless the backend does; decodes come first, and the backend is told the split.
#include <array>
#include <numeric>

#include "cgr/names.h"
#include "tests/support/refused.h"
#include "tests/support/seed.h"
#include "tests/support/split.h"

namespace cgr_test {
namespace {

class Backends : public EngineTest {
protected:
  enum { kLayer = 1 }; // the backend's
  // Copies q to out, so that its layer's output is known without any attention.
  static cgr_status Record(void *context, cgr_recorder *recorder, const cgr_attention *a) {
    auto *self = static_cast<Backends *>(context);
    const cgr_record_info info = InfoOf(recorder);
    EXPECT_EQ(a->layer, int32_t(kLayer));
    self->seen_.push_back(info);
    self->flags_.push_back(a->flags);
    if (self->act_ && self->act_(recorder) != CGR_OK)
      return CGR_ERROR_CALLBACK;
    size_t bytes = size_t(info.num_tokens) * size_t(a->q.stride_token) * cgr_dtype_size(cgr_dtype(a->q.dtype));
    return cgr_copy(self->engine_->dev, a->out.data, a->q.data, bytes, info.stream);
  }
  static cgr_graph_support Support(void *context, const cgr_device_info *, const cgr_group *) {
    return static_cast<Backends *>(context)->support_;
  }
  void Make(cgr_graph_support support, int32_t threshold = 0, cgr_graph_mode mode = CGR_MODE_DEFAULT, bool uniform = false) {
    support_ = support;
    backend_ = CGR_BACKEND_INIT;
    backend_.name = "copies", backend_.context = this, backend_.support = Support, backend_.record = Record;
    backend_.reorder_threshold = threshold;
    backend_.flags = uniform ? CGR_BACKEND_UNIFORM_SPLIT : 0;
    EngineOptions options = OptionsFor(GetParam(), mode, { { 8, 4 }, { 24, 8 }, { 64, 8 } });
    options.feed = Feed::kUploads;
    options.adjust = [this](cgr_config *config) {
      layers_.assign(config->layers, config->layers + config->num_layers);
      layers_[kLayer].backend = 1;
      config->layers = layers_.data(), config->backends = &backend_, config->num_backends = 1;
      config->query_lens = query_lens_.data(), config->num_query_lens = int32_t(query_lens_.size());
    };
    engine_ = std::make_unique<Engine>(options);
    engine_->check_call = { true, false };
    engine_->keep_outputs = true;
    seen_.clear();
    CGR_ASSERT_OK(engine_->Capture());
  }
  // Runs the step and looks at the backend's outputs.
  void Step(const std::vector<Item> &items) {
    engine_->Step(items);
    ASSERT_FALSE(HasFatalFailure());
    const RecordLayer &layer = engine_->state.layer[kLayer];
    size_t bytes = size_t(engine_->step.num_tokens) * size_t(layer.in[0].stride_token) * cgr_dtype_size(cgr_dtype(layer.dtype));
    EXPECT_EQ(engine_->Read<unsigned char>(layer.in[0].data, bytes),
              engine_->Read<unsigned char>(engine_->state.call[kLayer].attention.out.data, bytes));
  }
  // Runs a batch without the engine's model, whose caches would not agree; returns the status of its prepare.
  cgr_status RunUnchecked(const std::vector<int32_t> &rows, const std::vector<int32_t> &lens,
                          const std::vector<int32_t> &tokens) {
    cgr_batch batch = BatchOf(int32_t(lens.size()), rows.data(), tokens.data(), lens.data());
    cgr_step step = CGR_STEP_INIT;
    cgr_status status = cgr_step_prepare(engine_->rt, &batch, &step);
    if (status != CGR_OK)
      return status;
    CGR_EXPECT_OK(cgr_step_launch(engine_->rt, &step, engine_->stream));
    CGR_EXPECT_OK(cgr_step_wait(engine_->rt, step.mark, -1, nullptr));
    engine_->launched = step.mark.seq;
    return CGR_OK;
  }
  cgr_backend backend_;
  cgr_graph_support support_;
  std::vector<int32_t> query_lens_;
  std::vector<cgr_layer> layers_;
  std::vector<cgr_record_info> seen_;
  std::vector<uint32_t> flags_; // of the calls
  std::function<cgr_status(cgr_recorder *)> act_;
};

TEST_P(Backends, IsRecordedOnceForEachFullGraph) {
  ASSERT_NO_FATAL_FAILURE(Make(CGR_SUPPORT_ALWAYS));
  EXPECT_EQ(cgr_test::ModeOf(engine_->rt), CGR_MODE_FULL);
  EXPECT_EQ(seen_.size(), size_t(cgr_test::NumKeys(engine_->rt)));
  for (const cgr_record_info &info : seen_) {
    EXPECT_EQ(info.capturing, 1);
    EXPECT_EQ(info.real_tokens, -1);
    EXPECT_EQ(info.num_decodes, -1);
    EXPECT_EQ(info.max_query_len, info.key.query_len > 0 ? info.key.query_len : info.key.num_tokens);
    EXPECT_EQ(info.max_seq_len, engine_->o.max_seq_len);
  }
  seen_.clear();
  int32_t a = engine_->Open(), b = engine_->Open();
  Step(engine_->Chunks({ { a, 20 }, { b, 3 } }));
  for (int n = 0; n < 20; n++)
    Step(engine_->Decode({ a, b }));
  EXPECT_EQ(engine_->step.key.kind, CGR_KIND_FULL);
  EXPECT_TRUE(seen_.empty()) << "a replay makes no call";
}

TEST_P(Backends, IsCalledBetweenPiecesWhereNoGraphCanHoldIt) {
  ASSERT_NO_FATAL_FAILURE(Make(CGR_SUPPORT_NEVER));
  const char *reason = "";
  EXPECT_EQ(cgr_test::ModeOf(engine_->rt, &reason), CGR_MODE_PIECEWISE);
  EXPECT_NE(std::string(reason).find("backend copies says so for group 0"), std::string::npos) << reason;
  EXPECT_TRUE(seen_.empty()) << "not at capture";
  int32_t a = engine_->Open(), b = engine_->Open();
  for (int n = 0; n < 12 && !HasFailure(); n++) {
    seen_.clear();
    int32_t length = n % 3 == 0 ? 5 : 1;
    Step(engine_->Chunks({ { a, length }, { b, 1 } }));
    EXPECT_EQ(engine_->step.key.kind, CGR_KIND_PIECEWISE);
    ASSERT_EQ(seen_.size(), 1u);
    EXPECT_EQ(seen_[0].capturing, 0);
    EXPECT_EQ(seen_[0].real_tokens, length + 1);
    EXPECT_EQ(seen_[0].real_requests, 2);
    EXPECT_EQ(seen_[0].max_query_len, length);
    EXPECT_EQ(seen_[0].max_seq_len, engine_->requests[a]->num_tokens);
    EXPECT_EQ(seen_[0].num_decodes, -1) << "no threshold";
  }
}

// Steps of a repeating batch are counted, not added to their rows: the bounds include them nevertheless.
TEST_P(Backends, IsToldTheRealBoundsOfStepsThatRepeat) {
  for (cgr_graph_mode mode : { CGR_MODE_NONE, CGR_MODE_PIECEWISE }) {
    SCOPED_TRACE(cgr_graph_mode_name(mode));
    ASSERT_NO_FATAL_FAILURE(Make(CGR_SUPPORT_ALWAYS, 0, mode));
    std::vector<int32_t> rows = { engine_->Start(3), engine_->Start(7) };
    for (int32_t row : rows)
      engine_->Reserve(row, 20); // new pages would have the steps added
    for (int32_t n = 1; n <= 6 && !HasFatalFailure(); n++) {
      seen_.clear();
      Step(engine_->Decode(rows));
      ASSERT_EQ(seen_.size(), 1u);
      EXPECT_EQ(seen_[0].max_seq_len, 7 + n);
      EXPECT_EQ(seen_[0].max_query_len, 1);
    }
  }
}

TEST_P(Backends, IsCapturedInUniformGraphsAlone) {
  ASSERT_NO_FATAL_FAILURE(Make(CGR_SUPPORT_UNIFORM_BATCH));
  EXPECT_EQ(cgr_test::ModeOf(engine_->rt), CGR_MODE_FULL_AND_PIECEWISE);
  int32_t a = engine_->Open(), b = engine_->Open();
  Step(engine_->Chunks({ { a, 4 }, { b, 2 } }));
  EXPECT_EQ(engine_->step.key.kind, CGR_KIND_PIECEWISE);
  Step(engine_->Decode({ a, b }));
  EXPECT_EQ(engine_->step.key.kind, CGR_KIND_FULL);
}

// Uniform graphs of 1 + k tokens: "up to 1 + k" where the backend is ALWAYS, "exactly" where it is UNIFORM_BATCH.
TEST_P(Backends, UniformGraphsServeShorterQueriesOfAlwaysBackendsAlone) {
  static const int32_t query_lens[] = { 1, 3 };
  for (cgr_graph_support support : { CGR_SUPPORT_ALWAYS, CGR_SUPPORT_UNIFORM_BATCH }) {
    SCOPED_TRACE(cgr_graph_support_name(support));
    query_lens_.assign(std::begin(query_lens), std::end(query_lens));
    ASSERT_NO_FATAL_FAILURE(Make(support, 0, CGR_MODE_FULL_AND_PIECEWISE));
    std::vector<int32_t> rows = { engine_->Open(), engine_->Open(), engine_->Open() };
    auto expect = [&](std::vector<int32_t> lens, cgr_graph_kind kind, int32_t query_len, int32_t tokens) {
      std::vector<std::pair<int32_t, int32_t>> chunks;
      for (size_t i = 0; i < rows.size(); i++)
        chunks.push_back({ rows[i], lens[i] });
      Step(engine_->Chunks(chunks));
      EXPECT_EQ(engine_->step.key.kind, kind);
      EXPECT_EQ(engine_->step.key.query_len, query_len);
      EXPECT_EQ(engine_->step.key.num_tokens, tokens);
    };
    const bool always = support == CGR_SUPPORT_ALWAYS;
    expect({ 3, 3, 3 }, CGR_KIND_FULL, 3, 12);
    expect({ 2, 3, 1 }, always ? CGR_KIND_FULL : CGR_KIND_PIECEWISE, always ? 3 : 0, always ? 12 : 8);
    expect({ 2, 2, 2 }, always ? CGR_KIND_FULL : CGR_KIND_PIECEWISE, always ? 3 : 0, always ? 12 : 8);
    expect({ 1, 1, 1 }, CGR_KIND_FULL, 1, 4);
    expect({ 1, 4, 1 }, CGR_KIND_PIECEWISE, 0, 8);
  }
}

TEST_P(Backends, ItsFailureGivesTheStepUp) {
  for (cgr_graph_mode mode : { CGR_MODE_PIECEWISE, CGR_MODE_NONE }) {
    ASSERT_NO_FATAL_FAILURE(Make(CGR_SUPPORT_ALWAYS, 0, mode));
    int32_t row = engine_->Start(5);
    CGR_ASSERT_OK(engine_->Prepare(engine_->Decode({ row })));
    act_ = [](cgr_recorder *) { return CGR_ERROR_BUSY; };
    ExpectMessage(engine_->Launch(), CGR_ERROR_CALLBACK, { "backend copies, layer 1: record returned CGR_ERROR_CALLBACK" });
    EXPECT_EQ(engine_->step.state, CGR_STEP_ABANDONED);
    act_ = [this](cgr_recorder *recorder) { // attention is refused inside
      return cgr_record_attention(recorder, &engine_->state.call[0].attention);
    };
    CGR_ASSERT_OK(engine_->Prepare(engine_->Decode({ row })));
    ExpectMessage(engine_->Launch(), CGR_ERROR_CALLBACK, { "CGR_ERROR_STATE" });
    act_ = nullptr;
    Step(engine_->Decode({ row }));
  }
}

// With CGR_BACKEND_APPENDS none of the layer's k and v reach the cache, as this backend appends nothing.
TEST_P(Backends, AppendsItself) {
  ASSERT_NO_FATAL_FAILURE(Make(CGR_SUPPORT_ALWAYS));
  const EngineOptions options = engine_->o;
  size_t changed[2] = { 0, 0 }; // bytes of the caches
  for (uint32_t flags : { 0u, uint32_t(CGR_BACKEND_APPENDS) }) {
    backend_.flags = flags;
    engine_ = std::make_unique<Engine>(options);
    engine_->check_call = { true, false };
    CGR_ASSERT_OK(engine_->Capture());
    for (int32_t l = 0; l < 2; l++)
      for (int which = 0; which < 3; which++)
        CGR_ASSERT_OK(cgr_fill(engine_->dev, engine_->state.layer[l].in[which].data, 0, engine_->state.layer[l].in_bytes[which],
                               engine_->stream));
    std::vector<unsigned char> before = engine_->ReadCaches();
    int32_t row = engine_->Open();
    engine_->Reserve(row, 5);
    CGR_ASSERT_OK(RunUnchecked({ row }, { 5 }, { 1, 2, 3, 4, 5 }));
    std::vector<unsigned char> after = engine_->ReadCaches();
    for (size_t i = 0; i < before.size(); i++)
      changed[flags ? 1 : 0] += before[i] != after[i];
    CGR_EXPECT_OK(cgr_request_set_length(engine_->rt, row, 0));
    engine_->Forget();
  }
  EXPECT_GT(changed[1], 0u) << "the other layer's";
  EXPECT_EQ(changed[0], 2 * changed[1]);
}

// Append and attention as two calls: a backend that appends itself is called for both, and no piece gets lost.
TEST_P(Backends, IsCalledForAppendAndForAttention) {
  for (cgr_graph_mode mode : { CGR_MODE_FULL, CGR_MODE_PIECEWISE, CGR_MODE_NONE }) {
    SCOPED_TRACE(cgr_graph_mode_name(mode));
    for (uint32_t backend_flags : { 0u, uint32_t(CGR_BACKEND_APPENDS) }) {
      ASSERT_NO_FATAL_FAILURE(Make(CGR_SUPPORT_ALWAYS, 0, mode));
      EngineOptions options = engine_->o;
      backend_.flags = backend_flags;
      options.calls = { { 0, 0 }, { kLayer, CGR_ATTENTION_APPEND_ONLY }, { kLayer, CGR_ATTENTION_NO_APPEND } };
      engine_ = std::make_unique<Engine>(options);
      engine_->check_call = { true, false, false };
      flags_.clear();
      CGR_ASSERT_OK(engine_->Capture());
      int32_t row = engine_->Open();
      engine_->Reserve(row, 20);
      if (mode != CGR_MODE_FULL)
        flags_.clear();
      if (backend_flags) { // the caches lack what it should have appended: nothing is compared
        CGR_ASSERT_OK(RunUnchecked({ row }, { 1 }, { 3 }));
        EXPECT_EQ(engine_->Buffer(CGR_BUFFER_INPUT_IDS)[0], 3) << "the first piece has run";
        CGR_EXPECT_OK(cgr_request_set_length(engine_->rt, row, 0));
        engine_->Forget();
      } else {
        engine_->Step(engine_->Chunks({ { row, 5 } }));
      }
      ASSERT_FALSE(flags_.empty());
      for (size_t i = 0; i < flags_.size(); i++)
        EXPECT_EQ(flags_[i], backend_flags && i % 2 == 0 ? CGR_ATTENTION_APPEND_ONLY : CGR_ATTENTION_NO_APPEND) << i;
    }
  }
}

// The views that it gets have been checked, whoever appends.
TEST_P(Backends, GetsViewsThatHaveBeenChecked) {
  ASSERT_NO_FATAL_FAILURE(Make(CGR_SUPPORT_ALWAYS));
  EngineOptions options = engine_->o;
  backend_.flags = CGR_BACKEND_APPENDS;
  engine_ = std::make_unique<Engine>(options);
  engine_->state.call[kLayer].attention.k.data = nullptr;
  ExpectMessage(engine_->Capture(), CGR_ERROR_CALLBACK, { "k.data is NULL" });
}

// ---- the split

// The rules of other engines' interface: decodes come first, and a request with at most `threshold` new tokens is one; requests
// without new tokens may stand anywhere, and count as decodes before the first prefill. Computed differently from the library.
bool IsOrdered(const std::vector<int32_t> &lens, int32_t threshold) {
  std::vector<int> kinds; // of those with tokens; 1: longer than a decode
  for (int32_t length : lens)
    if (length > 0)
      kinds.push_back(length > threshold);
  return std::is_sorted(kinds.begin(), kinds.end());
}

TEST_P(Backends, DecodesComeFirstAndTheSplitIsTold) {
  SeededRandom random;
  const int batches = GetParam().IsCuda() ? 250 : 1250; // of each
  int refused = 0, mixed = 0;
  for (int32_t each = 0; each < 16; each++) {
    const bool graphs = each % 2 == 0, uniform = each >= 8;
    const int32_t threshold = std::array<int32_t, 4>{ 1, 2, 4, 9 }[size_t(each / 2 % 4)];
    ASSERT_NO_FATAL_FAILURE(Make(CGR_SUPPORT_ALWAYS, threshold, graphs ? CGR_MODE_FULL : CGR_MODE_NONE, uniform));
    std::vector<int32_t> rows;
    for (int i = 0; i < 8; i++) {
      rows.push_back(engine_->Open());
      engine_->Reserve(rows.back(), 16);
    }
    for (int n = 0; n < batches && !HasFailure(); n++) {
      std::vector<int32_t> lens, tokens(64, 1);
      for (int32_t count = random.Pick32(1, 8); count > 0; count--)
        lens.push_back(random.OneIn(3) ? random.Pick32(0, 8) : random.OneIn(2) ? 1 : random.Pick32(0, 2 * threshold) % 9);
      if (random.OneIn(2))
        std::stable_sort(lens.begin(), lens.end());
      if (uniform && random.OneIn(2)) // decodes that are alike, to the end or up to another one
        std::fill_n(lens.begin(), random.Pick(1, int64_t(lens.size())), random.Pick32(0, std::min(threshold, 8)));
      for (int32_t row : rows)
        CGR_EXPECT_OK(cgr_request_set_length(engine_->rt, row, 0));
      const Split want = SplitOf(lens, threshold, uniform);
      seen_.clear();
      cgr_status status = RunUnchecked(rows, lens, tokens);
      if (!IsOrdered(lens, threshold)) {
        ExpectMessage(status, CGR_ERROR_INVALID_ARGUMENT, { "query_lens", "decodes first", std::to_string(threshold) });
        refused++;
        continue;
      }
      CGR_ASSERT_OK(status);
      const std::vector<int64_t> counts = engine_->Buffer(CGR_BUFFER_COUNTS); // what kernels see
      EXPECT_EQ(counts[4], want.decodes);
      EXPECT_EQ(counts[5], want.tokens);
      EXPECT_EQ(counts[6], 0);
      const int32_t longest = std::max(1, *std::max_element(lens.begin(), lens.end()));
      ASSERT_EQ(seen_.size(), graphs ? 0u : 1u) << "a replay makes no call";
      for (const cgr_record_info &info : seen_) {
        EXPECT_EQ(info.num_decodes, want.decodes);
        EXPECT_EQ(info.num_decode_tokens, want.tokens);
        EXPECT_EQ(info.max_query_len, longest);
        EXPECT_EQ(info.max_seq_len, longest);
      }
      mixed += want.decodes > 0 && want.decodes < int32_t(lens.size());
    }
    for (int32_t row : rows)
      CGR_EXPECT_OK(cgr_request_set_length(engine_->rt, row, 0));
    engine_->Forget();
  }
  EXPECT_GT(refused, batches / 4);
  EXPECT_GT(mixed, batches / 4);
}

CGR_INSTANTIATE_OVER_FEW_DEVICES(Backends);

} // namespace
} // namespace cgr_test

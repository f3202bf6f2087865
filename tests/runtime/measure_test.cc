// cgr_record_measure through whole steps: eager steps and replays of every kind leave the same maxima, which hold all steps so
// far and no padding. The call is made in `record`, in a function of cgr_record_call and in a backend's `record`.
#include <cmath>

#include "tests/support/recorded_case.h"

namespace cgr_test {
namespace {

enum class Where { kRecord, kCall, kBackend };

class Measure : public EngineTest {
protected:
  enum { kHeads = 3, kDim = 24, kStride = kHeads * kDim + 8, kMaxTokens = 64, kChannels = kHeads * kDim };

  static cgr_status RecordOfBackend(void *context, cgr_recorder *recorder, const cgr_attention *) {
    return static_cast<Measure *>(context)->Call(recorder);
  }
  cgr_status Call(cgr_recorder *recorder) {
    cgr_measure measure = CGR_MEASURE_INIT;
    measure.num_heads = kHeads, measure.head_dim = kDim, measure.maxima = maxima_;
    measure.view = { values_, CGR_DTYPE_FP32, 0, kStride, kDim };
    measures_++;
    return cgr_record_measure(recorder, &measure);
  }
  cgr_status Record(cgr_recorder *recorder, Where where) {
    auto function = [](cgr_recorder *inner, const void *args) { return (*static_cast<Measure *const *>(args))->Call(inner); };
    Measure *self = this;
    return where == Where::kCall ? cgr_record_call(recorder, function, &self, sizeof self) : Call(recorder);
  }
  void Make(cgr_graph_mode mode, Where where = Where::kRecord, cgr_device *handle = nullptr) {
    const bool in_backend = where == Where::kBackend;
    EngineOptions options = AttentionOptionsFor(GetParam(), std::vector<LayerOptions>(in_backend ? 2 : 1, { 4, 2, 64 }));
    options.max_tokens = kMaxTokens, options.mode = mode, options.handle = handle;
    options.mixed = { { 16, 8 }, { 64, 8 } };
    backend_ = CGR_BACKEND_INIT;
    backend_.name = "measures", backend_.context = this;
    backend_.support = [](void *, const cgr_device_info *, const cgr_group *) { return CGR_SUPPORT_ALWAYS; };
    backend_.record = RecordOfBackend;
    options.adjust = [&](cgr_config *config) {
      layers_.assign(config->layers, config->layers + config->num_layers);
      layers_.back().backend = in_backend ? 1 : 0;
      config->layers = layers_.data();
      config->backends = in_backend ? &backend_ : nullptr;
      config->num_backends = in_backend ? 1 : 0;
    };
    engine_.reset();
    engine_ = std::make_unique<Engine>(options);
    engine_->o.adjust = nullptr;
    if (in_backend) {
      engine_->check_call.assign(size_t(engine_->state.num_calls), true);
      engine_->check_call[1] = false;
    }
    values_ = static_cast<float *>(engine_->Alloc(kMaxTokens * kStride * sizeof(float)));
    maxima_ = static_cast<float *>(engine_->Alloc(kChannels * sizeof(float)));
    want_.assign(kChannels, 0.0f);
    engine_->Write(maxima_, want_.data(), kChannels * sizeof(float));
    Fill(0, 0);
    if (!in_backend)
      engine_->hook = [this, where](cgr_recorder *recorder, const cgr_record_info &, int32_t at) {
        return at == 1 ? Record(recorder, where) : CGR_OK; // after the attention
      };
    CGR_ASSERT_OK(engine_->Capture());
    ExpectMaxima();
  }
  // Values of this step in the rows of its tokens, which raise some channels; all other rows and the gaps are infinite.
  void Fill(int32_t step, int32_t tokens) {
    std::vector<float> all(kMaxTokens * kStride, INFINITY);
    for (int32_t t = 0; t < tokens; t++)
      for (int32_t i = 0; i < kChannels; i++) {
        const int32_t n = (step * 7919 + t * 104729 + i * 31) % 1009;
        const float value = (n % 2 == 0 ? 0.37f : -0.37f) * float(n) * float(1 + step % 5);
        all[size_t(t * kStride + i)] = n == 13 ? NAN : value;
        want_[size_t(i)] = std::fmax(want_[size_t(i)], std::fabs(n == 13 ? 0.0f : value));
      }
    engine_->Write(values_, all.data(), all.size() * sizeof(float));
  }
  void ExpectMaxima() {
    const std::vector<float> got = engine_->Read<float>(maxima_, kChannels);
    for (size_t i = 0; i < kChannels; i++)
      ASSERT_EQ(got[i], want_[i]) << "channel " << i;
  }
  void Step(int32_t n, const std::vector<Item> &items, const cgr_key *forced) {
    int32_t tokens = 0;
    for (const Item &item : items)
      tokens += int32_t(item.tokens.size());
    Fill(n, tokens);
    engine_->Step(items, forced);
    ASSERT_FALSE(HasFatalFailure());
    ExpectMaxima();
  }
  // Prompts, chunks and decodes, padded and not. Returns the maxima after each step.
  std::vector<std::vector<float>> Run(cgr_graph_mode mode) {
    const cgr_key small = KeyOfMode(mode, 16), large = KeyOfMode(mode, 64);
    const std::vector<int32_t> r = { engine_->Open(), engine_->Open(), engine_->Open() };
    std::vector<std::vector<float>> all;
    for (int32_t n = 0; n < 9 && !HasFatalFailure(); n++) {
      if (n % 3 == 0)
        Step(n, engine_->Chunks({ { r[0], 5 }, { r[1], 10 }, { r[2], 1 } }), &large);
      else if (n % 3 == 1)
        Step(n, engine_->Decode(r), &small);
      else
        Step(n, engine_->Chunks({ { r[1], 3 }, { r[2], 13 } }), &small);
      all.push_back(engine_->Read<float>(maxima_, kChannels));
    }
    return all;
  }

  cgr_backend backend_ = CGR_BACKEND_INIT;
  std::vector<cgr_layer> layers_;
  float *values_ = nullptr, *maxima_ = nullptr;
  std::vector<float> want_;
  int measures_ = 0;
};

TEST_P(Measure, HasTheSameMaximaInEveryStep) {
  std::vector<std::vector<float>> first;
  for (Where where : { Where::kRecord, Where::kCall, Where::kBackend })
    for (cgr_graph_mode mode : { CGR_MODE_NONE, CGR_MODE_FULL, CGR_MODE_PIECEWISE }) {
      SCOPED_TRACE("mode " + std::to_string(mode) + ", where " + std::to_string(int(where)));
      ASSERT_NO_FATAL_FAILURE(Make(mode, where));
      const auto maxima = Run(mode);
      ASSERT_FALSE(HasFatalFailure());
      ASSERT_EQ(maxima.size(), 9u);
      EXPECT_NE(maxima[0], maxima[8]) << "later steps raise nothing";
      first = first.empty() ? maxima : first;
      ASSERT_TRUE(maxima == first);
    }
}

// Replays of one graph go on measuring, without `record`, and from what the engine puts into the maxima.
TEST_P(Measure, GoesOnAtEachReplay) {
  for (cgr_graph_mode mode : { CGR_MODE_FULL, CGR_MODE_PIECEWISE }) {
    SCOPED_TRACE(cgr_graph_mode_name(mode));
    ASSERT_NO_FATAL_FAILURE(Make(mode));
    const int captured = measures_;
    const cgr_key key = KeyOfMode(mode, 16);
    const int32_t row = engine_->Open();
    for (int32_t n = 0; n < 5; n++)
      ASSERT_NO_FATAL_FAILURE(Step(n, engine_->Chunks({ { row, 3 } }), &key));
    want_.assign(kChannels, 0.0f);
    engine_->Write(maxima_, want_.data(), kChannels * sizeof(float));
    ASSERT_NO_FATAL_FAILURE(Step(1, engine_->Chunks({ { row, 2 } }), &key));
    EXPECT_EQ(measures_, captured);
    if (mode == CGR_MODE_PIECEWISE) {
      EXPECT_EQ(engine_->GraphStats(0).num_pieces, 2) << "it breaks no graph";
    }
  }
}

// A graph whose `record` names other regions still holds the regions of its measures.
TEST_P(Measure, GraphsHoldWhatItNames) {
  for (cgr_graph_mode mode : { CGR_MODE_FULL, CGR_MODE_PIECEWISE }) {
    SCOPED_TRACE(cgr_graph_mode_name(mode));
    ASSERT_NO_FATAL_FAILURE(Make(mode));
    ASSERT_NO_FATAL_FAILURE(ExpectGraphsHold(*engine_, { values_, maxima_ }));
  }
}

// The device refuses the launch: the step ends with the cause in the message, and the next one is right.
TEST_P(Measure, ALaunchThatFailsIsTold) {
  if (GetParam().IsCuda())
    GTEST_SKIP() << "faults are made on the host";
  cgr_device *faulty = nullptr;
  ASSERT_EQ(cgr__fault_open(OpenDevice(GetParam()), &faulty), CGR__DEVICE_OK);
  ASSERT_NO_FATAL_FAILURE(Make(CGR_MODE_FULL, Where::kRecord, faulty));
  const int32_t row = engine_->Open();
  ASSERT_NO_FATAL_FAILURE(ExpectFailedLaunchTold(*engine_, faulty, row, 1, "cgr_record_measure: enqueuing the measure",
                                                 [this](auto *r) { return Call(r); }));
  const cgr_key key = EagerKey(8, 16);
  ExpectMaxima();
  Step(2, engine_->Chunks({ { row, 4 } }), &key);
}

CGR_INSTANTIATE_OVER_FEW_DEVICES(Measure);

} // namespace
} // namespace cgr_test

// Attention calls that transform q, k and v: their outputs and caches have the bits of an engine that transforms with a kernel of
// its own before plain calls, in eager steps and in replays of every kind. The kernel itself is tests/kernels/transform_test.cc.
#include "cgr/names.h"
#include "kernels/transform.h"
#include "tests/support/recorded_case.h"
#include "tests/support/transform_case.h"

namespace cgr_test {
namespace {

enum class How { kNot, kInCalls, kInTimedCalls, kBefore }; // who transforms

class Transform : public EngineTest {
protected:
  // A plain layer, one that reads its cache, one in two calls, one without a cache.
  static EngineOptions Options(const DeviceParam &device, cgr_graph_mode mode) {
    LayerOptions reader = { 4, 2 }, step = { 4, 2 };
    reader.kv_source = 1;
    step.kind.keys = Keys::kStep;
    EngineOptions options = AttentionOptionsFor(device, { { 4, 2 }, reader, { 4, 2 }, step });
    options.calls = { { 0, 0 }, { 1, 0 }, { 2, CGR_ATTENTION_APPEND_ONLY }, { 2, CGR_ATTENTION_NO_APPEND }, { 3, 0 } };
    options.feed = Feed::kCopies, options.mode = mode;
    options.max_tokens = 64, options.mixed = { { 16, 8 }, { 64, 8 } };
    return options;
  }
  // What it does to a layer in turn.
  cgr_qkv_transform TransformOf(int32_t layer) const {
    cgr_qkv_transform t = arrays_.transform;
    t.flags = layer % 2 == 0 ? 0 : CGR_TRANSFORM_INTERLEAVED | CGR_TRANSFORM_NORM_PLUS_ONE;
    if (layer == 2)
      t.q_norm = t.k_norm = nullptr;
    if (layer == 3)
      t.norm_epsilon = 0.5f;
    return t;
  }
  void Make(How how, EngineOptions options) {
    engine_.reset();
    engine_ = std::make_unique<Engine>(options);
    Engine &e = *engine_;
    e.check_answers = e.check_at_end = false; // the engine's model knows of no transform
    e.keep_outputs = true;
    arrays_ = TransformArrays(e, e.o.layers[0], 32);
    if (how == How::kInCalls || how == How::kInTimedCalls)
      e.adjust_call = [this](size_t, cgr_attention *call) {
        given_ = TransformOf(call->layer);
        call->transform = &given_;
      };
    positions_ = static_cast<const int32_t *>(e.View(CGR_BUFFER_POSITIONS).data);
    counts_ = static_cast<const int32_t *>(e.View(CGR_BUFFER_COUNTS).data);
    e.hook = [this](cgr_recorder *, const cgr_record_info &info, int32_t) {
      info_ = info;
      return CGR_OK;
    };
    if (how == How::kBefore)
      e.adjust_call = [this](size_t, cgr_attention *call) { TransformInPlace(call->layer); };
    CGR_ASSERT_OK(e.Capture());
  }
  // After the layer's inputs have been copied, which is done before each call.
  void TransformInPlace(int32_t layer) {
    const cgr_qkv_transform t = TransformOf(layer);
    cgr__transform_args args = {};
    const void *bias[] = { t.q_bias, t.k_bias, t.v_bias }, *norm[] = { t.q_norm, t.k_norm, nullptr };
    for (int i = 0; i < CGR__NUM_TRANSFORMED; i++) {
      args.tensor[i].from = engine_->state.layer[layer].in[i];
      args.tensor[i].bias = bias[i], args.tensor[i].norm = norm[i];
      args.tensor[i].num_heads = i == 0 ? 4 : 2, args.tensor[i].head_dim = 64;
      args.tensor[i].rotary_dim = i < 2 ? t.rotary_dim : 0;
    }
    args.cos_sin = t.cos_sin, args.num_positions = t.num_positions, args.page_size = 16;
    args.positions = positions_, args.counts = counts_, args.num_tokens = info_.num_tokens;
    args.interleaved = layer % 2, args.norm_offset = layer % 2 == 0 ? 0.0f : 1.0f, args.epsilon = layer == 3 ? 0.5f : 1e-6f;
    EXPECT_EQ(engine_->dev->ops->launch(engine_->dev, &cgr__kernel_transform, &args, info_.stream), CGR__DEVICE_OK);
  }
  // Prompts, chunks and decodes, padded and not.
  void Run(cgr_graph_mode mode) {
    Engine &e = *engine_;
    const cgr_key small = KeyOfMode(mode, 16), large = KeyOfMode(mode, 64);
    const std::vector<int32_t> r = { e.Open(), e.Open(), e.Open() };
    for (int32_t n = 0; n < 7 && !HasFatalFailure(); n++)
      if (n % 3 == 0)
        e.Step(e.Chunks({ { r[0], 5 }, { r[1], 10 }, { r[2], 1 } }), &large);
      else if (n % 3 == 1)
        e.Step(e.Decode(r), &small);
      else
        e.Step(e.Chunks({ { r[1], 3 }, { r[2], 13 } }), &small);
  }

  TransformArrays arrays_;
  cgr_qkv_transform given_ = CGR_QKV_TRANSFORM_INIT;
  cgr_record_info info_ = CGR_RECORD_INFO_INIT; // of the `record` that runs
  const int32_t *positions_ = nullptr, *counts_ = nullptr;
};

TEST_P(Transform, InCallsEqualsAKernelBeforePlainOnes) {
  std::vector<std::vector<Outputs>> outputs;
  std::vector<unsigned char> caches, untouched;
  for (How how : { How::kNot, How::kBefore, How::kInCalls, How::kInTimedCalls })
    for (cgr_graph_mode mode : { CGR_MODE_NONE, CGR_MODE_FULL, CGR_MODE_PIECEWISE }) {
      SCOPED_TRACE(std::string(cgr_graph_mode_name(mode)) + ", " + std::to_string(int(how)));
      if (how != How::kInCalls && mode != CGR_MODE_NONE)
        continue;
      EngineOptions options = Options(GetParam(), mode);
      options.adjust = [how](cgr_config *c) { c->timing = how == How::kInTimedCalls ? CGR_TIMING_LAYERS : CGR_TIMING_OFF; };
      ASSERT_NO_FATAL_FAILURE(Make(how, options));
      Run(mode);
      ASSERT_FALSE(HasFailure());
      ASSERT_EQ(engine_->kept.size(), 7u);
      const auto now = engine_->ReadCaches();
      if (how == How::kNot) {
        untouched = now;
        continue;
      }
      EXPECT_FALSE(now == untouched) << "the caches hold what was given";
      outputs = how == How::kBefore ? engine_->kept : outputs, caches = how == How::kBefore ? now : caches;
      EXPECT_TRUE(now == caches) << "the caches differ";
      for (size_t step = 0; step < outputs.size(); step++)
        for (size_t c = 0; c < outputs[step].size(); c++)
          EXPECT_TRUE(engine_->kept[step][c].out == outputs[step][c].out) << "step " << step << ", call " << c;
    }
}

// q is transformed in place, and then out is q.
TEST_P(Transform, OutMayBeQ) {
  std::vector<std::vector<unsigned char>> outs;
  for (bool in_place : { false, true }) {
    EngineOptions options = Options(GetParam(), CGR_MODE_FULL);
    options.in_place = in_place;
    options.layers.resize(1), options.calls.clear();
    ASSERT_NO_FATAL_FAILURE(Make(How::kInCalls, options));
    for (int n = 0; n < 3; n++) {
      Run(CGR_MODE_FULL);
      ASSERT_FALSE(HasFailure());
      outs.push_back(engine_->Out(0, 16)); // of its last step
    }
  }
  for (size_t n = 0; n < 3; n++)
    EXPECT_TRUE(outs[n] == outs[n + 3]) << n;
  EXPECT_FALSE(outs[0] == outs[1]) << "every step has the same";
}

TEST_P(Transform, PassesSelfTestAndAudit) {
  for (cgr_graph_mode mode : { CGR_MODE_FULL, CGR_MODE_PIECEWISE }) {
    SCOPED_TRACE(cgr_graph_mode_name(mode));
    EngineOptions options = Options(GetParam(), mode);
    options.buckets = { 2 }, options.mixed = { { 16, 4 } }, options.max_requests = 4, options.max_tokens = 16;
    ASSERT_NO_FATAL_FAILURE(Make(How::kInCalls, options));
    engine_->RegisterAll();
    CGR_ASSERT_OK(engine_->Capture());
    cgr_self_test test = CGR_SELF_TEST_INIT;
    cgr_finding findings[8];
    const std::vector<int32_t> pages = engine_->SparePages(30);
    const cgr_view &out = engine_->state.call[0].attention.out;
    const cgr_watch watch = { "out", out.data, 4 * 64 * 2, out.stride_token * 2, CGR_DIMENSION_TOKENS, 0 };
    test.max_token = 100, test.num_pages = int32_t(pages.size()), test.pages = pages.data();
    test.watched = &watch, test.num_watched = 1;
    int32_t count = -1;
    CGR_EXPECT_OK(cgr_runtime_self_test(engine_->rt, &test, findings, 8, &count));
    EXPECT_EQ(count, 0) << findings[0].text;
    CGR_EXPECT_OK(cgr_runtime_audit(engine_->rt, nullptr, findings, 8, &count));
    EXPECT_EQ(count, 0) << findings[0].text;
  }
}

TEST_P(Transform, GraphsHoldWhatItNames) {
  for (cgr_graph_mode mode : { CGR_MODE_FULL, CGR_MODE_PIECEWISE }) {
    SCOPED_TRACE(cgr_graph_mode_name(mode));
    ASSERT_NO_FATAL_FAILURE(Make(How::kInCalls, Options(GetParam(), mode)));
    engine_->hook = [](cgr_recorder *, const cgr_record_info &, int32_t) { return CGR_OK; };
    ASSERT_NO_FATAL_FAILURE(ExpectGraphsHold(*engine_, arrays_.Addresses()));
  }
}

CGR_INSTANTIATE_OVER_FEW_DEVICES(Transform);

} // namespace
} // namespace cgr_test

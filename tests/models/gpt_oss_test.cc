// GPT-OSS: sinks, windows in every other layer, biases, YaRN, experts. Every token uses every expert.
#include "tests/models/model_case.h"
#include "tests/models/rope.h"

namespace cgr_test {
namespace models {
namespace {

constexpr float kAlpha = 1.702f, kLimit = 7.0f; // of the experts' activation

class GptOss : public Model {
public:
  explicit GptOss(Kit &kit)
      : c_(kit.expected), hidden_(c_.Count("hidden_size")), inner_(c_.Count("intermediate_size")),
        experts_(c_.Count("num_local_experts")), q_heads_(c_.Count("num_attention_heads")),
        kv_heads_(c_.Count("num_key_value_heads")), dim_(c_.Count("head_dim")), eps_(c_.Number("rms_norm_eps")) {
    const int32_t window = c_.Count("sliding_window"), vocab = c_.Count("vocab_size");
    const int32_t groups[] = { kit.AddGroup(16, window), kit.AddGroup(16, 0) };
    table_ = kit.Matrix("model.embed_tokens.weight", vocab, hidden_);
    head_ = kit.Matrix("lm_head.weight", vocab, hidden_);
    norm_ = kit.Weight("model.norm.weight", 1, hidden_, kNorm);
    for (int32_t l = 0; l < c_.Count("num_hidden_layers"); l++)
      MakeLayer(kit, "model.layers." + std::to_string(l) + ".", groups[l % 2], l % 2 == 0 ? window : 0);
    const Yarn yarn = { c_.Number("yarn_factor"), c_.Number("yarn_beta_fast"), c_.Number("yarn_beta_slow"),
                        c_.Count("original_max_position_embeddings") };
    angles_ = Angles(kit, dim_, YarnFrequencies(dim_, c_.Number("rope_theta"), yarn), YarnScale(yarn));
    kit.Activations(hidden_, { &x_, &normed_, &branch_ });
    kit.Activations(q_heads_ * dim_, { &q_, &out_ });
    kit.Activations(kv_heads_ * dim_, { &k_, &v_ });
    gate_up_ = kit.Activation(2 * inner_);
    gated_ = kit.Activation(inner_);
    kit.Activations(experts_, { &router_, &shares_ });
    result = kit.Activation(vocab, CGR_DTYPE_FP32);
  }

  void Forward(Pass &pass) const override {
    pass.Embed(x_, table_, 1.0f);
    for (const Layer &l : layers_) {
      pass.RmsNorm(normed_, x_, l.before_attention, 0.0f, eps_);
      pass.Linear(q_, normed_, l.q);
      pass.Linear(k_, normed_, l.k);
      pass.Linear(v_, normed_, l.v);
      pass.Rope(q_, q_heads_, angles_);
      pass.Rope(k_, kv_heads_, angles_);
      pass.Attend(l.attention, q_, k_, v_, out_);
      pass.Linear(x_, out_, l.o, x_);
      pass.RmsNorm(normed_, x_, l.before_mlp, 0.0f, eps_);
      pass.Linear(router_, normed_, l.router);
      pass.Softmax(shares_, router_);
      for (int32_t e = 0; e < experts_; e++) {
        const Expert &expert = l.experts[size_t(e)];
        pass.LinearTransposed(gate_up_, normed_, expert.gate_up);
        pass.ClampedGlu(gated_, gate_up_, kAlpha, kLimit);
        pass.LinearTransposed(branch_, gated_, expert.down);
        pass.Mix(x_, branch_, shares_, e);
      }
    }
    pass.RmsNorm(normed_, x_, norm_, 0.0f, eps_);
    pass.Linear(result, normed_, head_);
  }

private:
  struct Expert {
    Pair gate_up, down;
  };
  struct Layer {
    RowTensor before_attention, before_mlp;
    Pair q, k, v, o, router;
    std::vector<Expert> experts;
    int32_t attention;
  };

  // Rows [first, ...) of a tensor.
  static RowTensor From(RowTensor tensor, int32_t first) {
    tensor.data =
        static_cast<char *>(tensor.data) + size_t(first) * size_t(tensor.width) * cgr_dtype_size(cgr_dtype(tensor.dtype));
    return tensor;
  }

  void MakeExperts(Kit &kit, const std::string &at, Layer *made) const {
    const Range gate_up = { 0.0f, ScaleOf(hidden_) }, down = { 0.0f, ScaleOf(inner_) };
    const Pair gate_ups = { kit.Weight(at + "gate_up_proj", experts_ * hidden_, 2 * inner_, gate_up),
                            kit.Weight(at + "gate_up_proj_bias", experts_, 2 * inner_, kBias) };
    const Pair downs = { kit.Weight(at + "down_proj", experts_ * inner_, hidden_, down),
                         kit.Weight(at + "down_proj_bias", experts_, hidden_, kBias) };
    for (int32_t e = 0; e < experts_; e++)
      made->experts.push_back({ { From(gate_ups.weight, e * hidden_), From(gate_ups.bias, e) },
                                { From(downs.weight, e * inner_), From(downs.bias, e) } });
  }

  void MakeLayer(Kit &kit, const std::string &at, int32_t group, int32_t window) {
    const int32_t q_width = q_heads_ * dim_, kv_width = kv_heads_ * dim_;
    Layer made = {};
    made.before_attention = kit.Weight(at + "input_layernorm.weight", 1, hidden_, kNorm);
    made.before_mlp = kit.Weight(at + "post_attention_layernorm.weight", 1, hidden_, kNorm);
    made.q = kit.Linear(at + "self_attn.q_proj", q_width, hidden_);
    made.k = kit.Linear(at + "self_attn.k_proj", kv_width, hidden_);
    made.v = kit.Linear(at + "self_attn.v_proj", kv_width, hidden_);
    made.o = kit.Linear(at + "self_attn.o_proj", hidden_, q_width);
    made.router = kit.Linear(at + "mlp.router", experts_, hidden_);
    MakeExperts(kit, at + "mlp.experts.", &made);
    std::vector<float> sinks;
    for (int32_t h = 0; h < q_heads_; h++)
      sinks.push_back(Formula(at + "self_attn.sinks").Value(uint64_t(h), 0.5f, 2.0f));
    cgr_layer layer = CGR_LAYER_INIT;
    layer.group = group;
    layer.num_q_heads = q_heads_;
    layer.num_kv_heads = kv_heads_;
    layer.head_dim = dim_;
    layer.window_left = window;
    layer.sinks = kit.Floats(sinks);
    made.attention = kit.AddLayer(layer);
    layers_.push_back(made);
  }

  const Expected &c_;
  const int32_t hidden_, inner_, experts_, q_heads_, kv_heads_, dim_;
  const float eps_;
  std::vector<Layer> layers_;
  RowTensor table_, head_, norm_, x_, normed_, branch_, q_, k_, v_, out_, gate_up_, gated_, router_, shares_;
  const float *angles_;
};

std::unique_ptr<Model> Make(Kit &kit) { return std::make_unique<GptOss>(kit); }

class GptOssTest : public ModelTest {};

TEST_P(GptOssTest, GivesWhatTransformersGives) { ExpectAsTransformers("gpt_oss", Make); }

INSTANTIATE_TEST_SUITE_P(Everywhere, GptOssTest, ::testing::ValuesIn(Everywhere()), WhereLabel);

TEST(GptOssMistakes, MissingSinksAreSeen) {
  ExpectSeen("gpt_oss", Make, [](cgr_layer *layer) { layer->sinks = nullptr; });
}
TEST(GptOssMistakes, SinksOfAnotherLayerAreSeen) {
  const float *first = nullptr;
  ExpectSeen("gpt_oss", Make, [&first](cgr_layer *layer) {
    first = first == nullptr ? layer->sinks : first;
    layer->sinks = first; // every layer gets those of the first
  });
}
TEST(GptOssMistakes, AWindowThatIsOneTooNarrowIsSeen) {
  ExpectSeen("gpt_oss", Make, [](cgr_layer *layer) { layer->window_left -= layer->window_left > 0; });
}

} // namespace
} // namespace models
} // namespace cgr_test

// Gemma 2: soft caps of scores and logits, windows in every other layer, head dim 256, two groups of pages. Pages that the
// windows have passed go to other requests.
#include "tests/models/model_case.h"
#include "tests/models/rope.h"

namespace cgr_test {
namespace models {
namespace {

class Gemma2 : public Model {
public:
  explicit Gemma2(Kit &kit)
      : c_(kit.expected), hidden_(c_.Count("hidden_size")), inner_(c_.Count("intermediate_size")),
        q_width_(c_.Count("num_attention_heads") * c_.Count("head_dim")),
        kv_width_(c_.Count("num_key_value_heads") * c_.Count("head_dim")), eps_(c_.Number("rms_norm_eps")) {
    const int32_t window = c_.Count("sliding_window"), vocab = c_.Count("vocab_size");
    const int32_t groups[] = { kit.AddGroup(16, window), kit.AddGroup(32, 0) };
    table_ = kit.Weight("model.embed_tokens.weight", vocab, hidden_, { 0.0f, 0.25f });
    norm_ = Norm(kit, "model.norm");
    for (int32_t l = 0; l < c_.Count("num_hidden_layers"); l++)
      MakeLayer(kit, l, groups[l % 2], l % 2 == 0 ? window : 0);
    angles_ = Angles(kit, c_.Count("head_dim"), PlainFrequencies(c_.Count("head_dim"), c_.Number("rope_theta")), 1.0f);
    kit.Activations(hidden_, { &x_, &normed_, &branch_ });
    kit.Activations(q_width_, { &q_, &out_ });
    kit.Activations(kv_width_, { &k_, &v_ });
    kit.Activations(inner_, { &gate_, &up_ });
    logits_ = kit.Activation(vocab, CGR_DTYPE_FP32);
    result = kit.Activation(vocab, CGR_DTYPE_FP32);
  }

  void Forward(Pass &pass) const override {
    pass.Embed(x_, table_, std::sqrt(float(hidden_)));
    for (const Layer &l : layers_) {
      pass.RmsNorm(normed_, x_, l.before_attention, 1.0f, eps_);
      pass.Linear(q_, normed_, l.q);
      pass.Linear(k_, normed_, l.k);
      pass.Linear(v_, normed_, l.v);
      pass.Rope(q_, c_.Count("num_attention_heads"), angles_);
      pass.Rope(k_, c_.Count("num_key_value_heads"), angles_);
      pass.Attend(l.attention, q_, k_, v_, out_);
      pass.Linear(branch_, out_, l.o);
      pass.RmsNorm(x_, branch_, l.after_attention, 1.0f, eps_, x_);
      pass.RmsNorm(normed_, x_, l.before_mlp, 1.0f, eps_);
      pass.Linear(gate_, normed_, l.gate);
      pass.Linear(up_, normed_, l.up);
      pass.Activate(Kind::kGeluTanh, gate_, gate_, up_);
      pass.Linear(branch_, gate_, l.down);
      pass.RmsNorm(x_, branch_, l.after_mlp, 1.0f, eps_, x_);
    }
    pass.RmsNorm(normed_, x_, norm_, 1.0f, eps_);
    pass.Linear(logits_, normed_, table_);
    pass.Activate(Kind::kCap, result, logits_, {}, c_.Number("final_logit_softcapping"));
  }

private:
  struct Layer {
    RowTensor before_attention, after_attention, before_mlp, after_mlp, q, k, v, o, gate, up, down;
    int32_t attention;
  };

  RowTensor Norm(Kit &kit, const std::string &name) const { return kit.Weight(name + ".weight", 1, hidden_, { 0.0f, 0.5f }); }

  void MakeLayer(Kit &kit, int32_t l, int32_t group, int32_t window) {
    const std::string at = "model.layers." + std::to_string(l) + ".";
    Layer made = {};
    made.before_attention = Norm(kit, at + "input_layernorm");
    made.after_attention = Norm(kit, at + "post_attention_layernorm");
    made.before_mlp = Norm(kit, at + "pre_feedforward_layernorm");
    made.after_mlp = Norm(kit, at + "post_feedforward_layernorm");
    made.q = kit.Matrix(at + "self_attn.q_proj.weight", q_width_, hidden_);
    made.k = kit.Matrix(at + "self_attn.k_proj.weight", kv_width_, hidden_);
    made.v = kit.Matrix(at + "self_attn.v_proj.weight", kv_width_, hidden_);
    made.o = kit.Matrix(at + "self_attn.o_proj.weight", hidden_, q_width_);
    made.gate = kit.Matrix(at + "mlp.gate_proj.weight", inner_, hidden_);
    made.up = kit.Matrix(at + "mlp.up_proj.weight", inner_, hidden_);
    made.down = kit.Matrix(at + "mlp.down_proj.weight", hidden_, inner_);
    cgr_layer layer = CGR_LAYER_INIT;
    layer.group = group;
    layer.num_q_heads = c_.Count("num_attention_heads");
    layer.num_kv_heads = c_.Count("num_key_value_heads");
    layer.head_dim = c_.Count("head_dim");
    layer.scale = 1.0f / std::sqrt(c_.Number("query_pre_attn_scalar"));
    layer.softcap = c_.Number("attn_logit_softcapping");
    layer.window_left = window;
    made.attention = kit.AddLayer(layer);
    layers_.push_back(made);
  }

  const Expected &c_;
  const int32_t hidden_, inner_, q_width_, kv_width_;
  const float eps_;
  std::vector<Layer> layers_;
  RowTensor table_, norm_, x_, normed_, branch_, q_, k_, v_, out_, gate_, up_, logits_;
  const float *angles_;
};

std::unique_ptr<Model> Make(Kit &kit) { return std::make_unique<Gemma2>(kit); }

class Gemma2Test : public ModelTest {};

TEST_P(Gemma2Test, GivesWhatTransformersGives) { ExpectAsTransformers("gemma2", Make); }

INSTANTIATE_TEST_SUITE_P(Everywhere, Gemma2Test, ::testing::ValuesIn(Everywhere()), WhereLabel);

TEST(Gemma2Mistakes, AWindowThatIsOneTooNarrowIsSeen) {
  ExpectSeen("gemma2", Make, [](cgr_layer *layer) { layer->window_left -= layer->window_left > 0; });
}
TEST(Gemma2Mistakes, AMissingCapIsSeen) {
  ExpectSeen("gemma2", Make, [](cgr_layer *layer) { layer->softcap = 0.0f; });
}
TEST(Gemma2Mistakes, AScaleOfTheHeadDimIsSeen) {
  ExpectSeen("gemma2", Make, [](cgr_layer *layer) { layer->scale = 0.0f; });
}

} // namespace
} // namespace models
} // namespace cgr_test

// BERT: only an encoder. Its layers have no cache, and each token sees every token of the request, before and after it. The
// runtime has no pages. A step holds whole requests.
#include "tests/models/model_case.h"

namespace cgr_test {
namespace models {
namespace {

class Bert : public Model {
public:
  explicit Bert(Kit &kit)
      : c_(kit.expected), hidden_(c_.Count("hidden_size")), inner_(c_.Count("intermediate_size")),
        eps_(c_.Number("layer_norm_eps")) {
    words_ = kit.Matrix("embeddings.word_embeddings.weight", c_.Count("vocab_size"), hidden_);
    positions_ = kit.Matrix("embeddings.position_embeddings.weight", c_.Count("max_position_embeddings"), hidden_);
    types_ = kit.Matrix("embeddings.token_type_embeddings.weight", c_.Count("type_vocab_size"), hidden_);
    norm_ = kit.Norm("embeddings.LayerNorm", hidden_);
    for (int32_t l = 0; l < c_.Count("num_hidden_layers"); l++)
      MakeLayer(kit, "encoder.layer." + std::to_string(l) + ".");
    kit.Activations(hidden_, { &x_, &sum_, &q_, &k_, &v_, &out_ });
    gelu_ = kit.Activation(inner_);
    result = kit.Activation(hidden_, CGR_DTYPE_FP32);
  }

  void Forward(Pass &pass) const override {
    pass.Embed(sum_, words_, 1.0f, positions_, 0, types_);
    pass.LayerNorm(x_, sum_, norm_, eps_);
    for (const Layer &l : layers_) {
      pass.Linear(q_, x_, l.q);
      pass.Linear(k_, x_, l.k);
      pass.Linear(v_, x_, l.v);
      pass.Attend(l.attention, q_, k_, v_, out_);
      pass.Linear(sum_, out_, l.o, x_);
      pass.LayerNorm(x_, sum_, l.after_attention, eps_);
      pass.Linear(gelu_, x_, l.up);
      pass.Activate(Kind::kGeluErf, gelu_, gelu_);
      pass.Linear(sum_, gelu_, l.down, x_);
      pass.LayerNorm(&l == &layers_.back() ? result : x_, sum_, l.after_mlp, eps_);
    }
  }

private:
  struct Layer {
    Pair q, k, v, o, after_attention, up, down, after_mlp;
    int32_t attention;
  };

  void MakeLayer(Kit &kit, const std::string &at) {
    Layer made = {};
    made.q = kit.Linear(at + "attention.self.query", hidden_, hidden_);
    made.k = kit.Linear(at + "attention.self.key", hidden_, hidden_);
    made.v = kit.Linear(at + "attention.self.value", hidden_, hidden_);
    made.o = kit.Linear(at + "attention.output.dense", hidden_, hidden_);
    made.after_attention = kit.Norm(at + "attention.output.LayerNorm", hidden_);
    made.up = kit.Linear(at + "intermediate.dense", inner_, hidden_);
    made.down = kit.Linear(at + "output.dense", hidden_, inner_);
    made.after_mlp = kit.Norm(at + "output.LayerNorm", hidden_);
    cgr_layer layer = CGR_LAYER_INIT;
    layer.flags = CGR_LAYER_NO_CACHE | CGR_LAYER_BIDIRECTIONAL;
    layer.num_q_heads = layer.num_kv_heads = c_.Count("num_attention_heads");
    layer.head_dim = hidden_ / layer.num_q_heads;
    made.attention = kit.AddLayer(layer);
    layers_.push_back(made);
  }

  const Expected &c_;
  const int32_t hidden_, inner_;
  const float eps_;
  std::vector<Layer> layers_;
  Pair norm_;
  RowTensor words_, positions_, types_, x_, sum_, q_, k_, v_, out_, gelu_;
};

std::unique_ptr<Model> Make(Kit &kit) { return std::make_unique<Bert>(kit); }

class BertTest : public ModelTest {};

TEST_P(BertTest, GivesWhatTransformersGives) { ExpectAsTransformers("bert", Make); }

INSTANTIATE_TEST_SUITE_P(Everywhere, BertTest, ::testing::ValuesIn(Everywhere()), WhereLabel);

TEST(BertMistakes, CausalLayersAreSeen) {
  ExpectSeen("bert", Make, [](cgr_layer *layer) { layer->flags &= ~uint32_t{ CGR_LAYER_BIDIRECTIONAL }; });
}
TEST(BertMistakes, AWindowIsSeen) {
  ExpectSeen("bert", Make, [](cgr_layer *layer) { layer->window_right = 60; });
}

} // namespace
} // namespace models
} // namespace cgr_test

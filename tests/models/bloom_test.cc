// BLOOM: ALiBi, with a number of heads that is not a power of two. Its bias is slope * position of the key, cgr's is -slope *
// distance: they differ by a constant for all keys of a query, which the softmax does not see.
#include <cmath>

#include "tests/models/model_case.h"

namespace cgr_test {
namespace models {
namespace {

// A geometric sequence for the largest power of two of heads, and every other term of the next sequence for the rest.
std::vector<float> Slopes(int32_t heads) {
  int32_t power = 1;
  while (2 * power <= heads)
    power *= 2;
  std::vector<float> slopes;
  for (int32_t h = 0; h < heads; h++) {
    const double step = h < power ? 8.0 / power * (h + 1) : 4.0 / power * (2 * (h - power) + 1);
    slopes.push_back(static_cast<float>(std::pow(2.0, -step)));
  }
  return slopes;
}

class Bloom : public Model {
public:
  explicit Bloom(Kit &kit)
      : c_(kit.expected), hidden_(c_.Count("hidden_size")), heads_(c_.Count("n_head")), dim_(hidden_ / heads_),
        eps_(c_.Number("layer_norm_epsilon")) {
    const int32_t vocab = c_.Count("vocab_size"), group = kit.AddGroup(16, 0);
    const float *slopes = kit.Floats(Slopes(heads_));
    table_ = kit.Weight("transformer.word_embeddings.weight", vocab, hidden_, { 0.0f, 0.25f });
    first_ = kit.Norm("transformer.word_embeddings_layernorm", hidden_);
    last_ = kit.Norm("transformer.ln_f", hidden_);
    for (int32_t l = 0; l < c_.Count("n_layer"); l++)
      MakeLayer(kit, "transformer.h." + std::to_string(l) + ".", group, slopes);
    kit.Activations(hidden_, { &x_, &normed_, &out_ });
    qkv_ = kit.Activation(3 * hidden_);
    inner_ = kit.Activation(4 * hidden_);
    result = kit.Activation(vocab, CGR_DTYPE_FP32);
  }

  void Forward(Pass &pass) const override {
    pass.Embed(normed_, table_, 1.0f);
    pass.LayerNorm(x_, normed_, first_, eps_);
    for (const Layer &l : layers_) {
      pass.LayerNorm(normed_, x_, l.before_attention, eps_);
      pass.Linear(qkv_, normed_, l.qkv);
      pass.AttendPacked(l.attention, qkv_, out_);
      pass.Linear(x_, out_, l.dense, x_);
      pass.LayerNorm(normed_, x_, l.before_mlp, eps_);
      pass.Linear(inner_, normed_, l.up);
      pass.Activate(Kind::kGeluTanh, inner_, inner_);
      pass.Linear(x_, inner_, l.down, x_);
    }
    pass.LayerNorm(normed_, x_, last_, eps_);
    pass.Linear(result, normed_, table_);
  }

private:
  struct Layer {
    Pair before_attention, before_mlp, qkv, dense, up, down;
    int32_t attention;
  };

  void MakeLayer(Kit &kit, const std::string &at, int32_t group, const float *slopes) {
    Layer made = {};
    made.before_attention = kit.Norm(at + "input_layernorm", hidden_);
    made.before_mlp = kit.Norm(at + "post_attention_layernorm", hidden_);
    made.qkv = kit.Linear(at + "self_attention.query_key_value", 3 * hidden_, hidden_);
    made.dense = kit.Linear(at + "self_attention.dense", hidden_, hidden_);
    made.up = kit.Linear(at + "mlp.dense_h_to_4h", 4 * hidden_, hidden_);
    made.down = kit.Linear(at + "mlp.dense_4h_to_h", hidden_, 4 * hidden_);
    cgr_layer layer = CGR_LAYER_INIT;
    layer.group = group;
    layer.num_q_heads = layer.num_kv_heads = heads_;
    layer.head_dim = dim_;
    layer.alibi_slopes = slopes;
    made.attention = kit.AddLayer(layer);
    layers_.push_back(made);
  }

  const Expected &c_;
  const int32_t hidden_, heads_, dim_;
  const float eps_;
  std::vector<Layer> layers_;
  Pair first_, last_;
  RowTensor table_, x_, normed_, out_, qkv_, inner_;
};

std::unique_ptr<Model> Make(Kit &kit) { return std::make_unique<Bloom>(kit); }

class BloomTest : public ModelTest {};

TEST_P(BloomTest, GivesWhatTransformersGives) { ExpectAsTransformers("bloom", Make); }

INSTANTIATE_TEST_SUITE_P(Everywhere, BloomTest, ::testing::ValuesIn(Everywhere()), WhereLabel);

TEST(BloomMistakes, MissingSlopesAreSeen) {
  ExpectSeen("bloom", Make, [](cgr_layer *layer) { layer->alibi_slopes = nullptr; });
}
TEST(BloomMistakes, TheSquareRootOfTheDistanceIsSeen) {
  ExpectSeen("bloom", Make, [](cgr_layer *layer) { layer->flags |= CGR_LAYER_ALIBI_SQRT; });
}

} // namespace
} // namespace models
} // namespace cgr_test

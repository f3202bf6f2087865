// BART: an encoder without a cache, whose steps have the tokens of their own length set and write the keys of the decoder's cross
// attention once; and a decoder that attends to its own sequence and to those keys in every step.
#include "tests/models/model_case.h"

namespace cgr_test {
namespace models {
namespace {

constexpr float kEps = 1e-5f;
constexpr int32_t kOffset = 2; // of positions in their table

class Bart : public Model {
public:
  explicit Bart(Kit &kit)
      : c_(kit.expected), hidden_(c_.Count("d_model")), own_(kit.AddGroup(16, 0)), other_(kit.AddGroup(32, 0, 1)) {
    const int32_t vocab = c_.Count("vocab_size");
    table_ = kit.Weight("model.shared.weight", vocab, hidden_, { 0.0f, 0.25f });
    encoder_ = MakeStack(kit, "model.encoder.", c_.Count("encoder_ffn_dim"));
    decoder_ = MakeStack(kit, "model.decoder.", c_.Count("decoder_ffn_dim"));
    for (int32_t l = 0; l < c_.Count("encoder_layers"); l++)
      MakeEncoderLayer(kit, "model.encoder.layers." + std::to_string(l) + ".");
    for (int32_t l = 0; l < c_.Count("decoder_layers"); l++)
      MakeDecoderLayer(kit, "model.decoder.layers." + std::to_string(l) + ".");
    kit.Activations(hidden_, { &x_, &sum_, &q_, &k_, &v_, &out_ });
    result = kit.Activation(vocab, CGR_DTYPE_FP32);
  }

  void Forward(Pass &pass) const override {
    const Stack &stack = pass.Encodes() ? encoder_ : decoder_;
    pass.Embed(sum_, table_, 1.0f, stack.positions, kOffset);
    pass.LayerNorm(x_, sum_, stack.norm, kEps);
    for (const Layer &l : stack.layers) {
      Attend(pass, l.self, true);
      if (!pass.Encodes())
        Attend(pass, l.cross, false);
      pass.Linear(stack.inner, x_, l.up);
      pass.Activate(Kind::kGeluErf, stack.inner, stack.inner);
      pass.Linear(sum_, stack.inner, l.down, x_);
      pass.LayerNorm(x_, sum_, l.after_mlp, kEps);
    }
    if (pass.Encodes())
      return WriteKeys(pass);
    pass.Linear(result, x_, table_);
  }

private:
  struct Attention {
    Pair q, k, v, o, after;
    int32_t layer;
  };
  struct Layer {
    Attention self, cross;
    Pair up, down, after_mlp;
  };
  struct Stack {
    RowTensor positions, inner;
    Pair norm;
    std::vector<Layer> layers;
  };

  // `own_keys`: of the step's tokens.
  void Attend(Pass &pass, const Attention &a, bool own_keys) const {
    pass.Linear(q_, x_, a.q);
    if (own_keys) {
      pass.Linear(k_, x_, a.k);
      pass.Linear(v_, x_, a.v);
      pass.Attend(a.layer, q_, k_, v_, out_);
    } else {
      pass.Attend(a.layer, q_, {}, {}, out_);
    }
    pass.Linear(sum_, out_, a.o, x_);
    pass.LayerNorm(x_, sum_, a.after, kEps);
  }

  // What every layer of the decoder attends to.
  void WriteKeys(Pass &pass) const {
    for (const Layer &l : decoder_.layers) {
      pass.Linear(k_, x_, l.cross.k);
      pass.Linear(v_, x_, l.cross.v);
      pass.Attend(l.cross.layer, {}, k_, v_, {}, CGR_ATTENTION_APPEND_ONLY);
    }
  }

  Stack MakeStack(Kit &kit, const std::string &at, int32_t inner) const {
    const int32_t positions = c_.Count("max_position_embeddings") + kOffset;
    return { kit.Matrix(at + "embed_positions.weight", positions, hidden_),
             kit.Activation(inner),
             kit.Norm(at + "layernorm_embedding", hidden_),
             {} };
  }

  Attention MakeAttention(Kit &kit, const std::string &at, cgr_layer layer, int32_t heads) const {
    Attention made = {};
    made.q = kit.Linear(at + ".q_proj", hidden_, hidden_);
    made.k = kit.Linear(at + ".k_proj", hidden_, hidden_);
    made.v = kit.Linear(at + ".v_proj", hidden_, hidden_);
    made.o = kit.Linear(at + ".out_proj", hidden_, hidden_);
    made.after = kit.Norm(at + "_layer_norm", hidden_);
    layer.num_q_heads = layer.num_kv_heads = heads;
    layer.head_dim = hidden_ / heads;
    made.layer = kit.AddLayer(layer);
    return made;
  }

  Layer MakeMlp(Kit &kit, const std::string &at, int32_t inner) const {
    Layer made = {};
    made.up = kit.Linear(at + "fc1", inner, hidden_);
    made.down = kit.Linear(at + "fc2", hidden_, inner);
    made.after_mlp = kit.Norm(at + "final_layer_norm", hidden_);
    return made;
  }

  void MakeEncoderLayer(Kit &kit, const std::string &at) {
    Layer made = MakeMlp(kit, at, c_.Count("encoder_ffn_dim"));
    cgr_layer layer = CGR_LAYER_INIT;
    layer.length_set = 1;
    layer.flags = CGR_LAYER_NO_CACHE | CGR_LAYER_BIDIRECTIONAL;
    made.self = MakeAttention(kit, at + "self_attn", layer, c_.Count("encoder_attention_heads"));
    encoder_.layers.push_back(made);
  }

  void MakeDecoderLayer(Kit &kit, const std::string &at) {
    Layer made = MakeMlp(kit, at, c_.Count("decoder_ffn_dim"));
    cgr_layer self = CGR_LAYER_INIT, cross = CGR_LAYER_INIT;
    self.group = own_;
    cross.group = other_;
    cross.length_set = 1;
    cross.flags = CGR_LAYER_BIDIRECTIONAL;
    made.self = MakeAttention(kit, at + "self_attn", self, c_.Count("decoder_attention_heads"));
    made.cross = MakeAttention(kit, at + "encoder_attn", cross, c_.Count("decoder_attention_heads"));
    decoder_.layers.push_back(made);
  }

  const Expected &c_;
  const int32_t hidden_, own_, other_;
  Stack encoder_, decoder_;
  RowTensor table_, x_, sum_, q_, k_, v_, out_;
};

std::unique_ptr<Model> Make(Kit &kit) { return std::make_unique<Bart>(kit); }

class BartTest : public ModelTest {};

TEST_P(BartTest, GivesWhatTransformersGives) { ExpectAsTransformers("bart", Make); }

INSTANTIATE_TEST_SUITE_P(Everywhere, BartTest, ::testing::ValuesIn(Everywhere()), WhereLabel);

TEST(BartMistakes, ACausalEncoderIsSeen) {
  ExpectSeen("bart", Make, [](cgr_layer *layer) {
    if (layer->flags & CGR_LAYER_NO_CACHE)
      layer->flags = CGR_LAYER_NO_CACHE;
  });
}
TEST(BartMistakes, AScaleOfCrossAttentionIsSeen) {
  ExpectSeen("bart", Make, [](cgr_layer *layer) { layer->scale = layer->length_set != 0 ? 0.5f : 0.0f; });
}

} // namespace
} // namespace models
} // namespace cgr_test

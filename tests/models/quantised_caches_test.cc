// Llama and Qwen 3 with caches of 8 bits of each kind, against transformers whose cache holds only what the codes and factors can
// express (caches.py has the same kinds and factors).
#include <tuple>
#include <utility>

#include "tests/models/model_case.h"
#include "tests/models/rope.h"

namespace cgr_test {
namespace models {
namespace {

enum class Factors { kNone, kTensor, kHeads, kTokens, kChannels };

struct CacheCase {
  const char *name;
  cgr_dtype k;
  Factors k_factors;
  cgr_dtype v; // 0: that of the call
  Factors v_factors;
};

constexpr CacheCase kCaches[] = {
  { "e4m3", CGR_DTYPE_FP8_E4M3, Factors::kTensor, CGR_DTYPE_FP8_E4M3, Factors::kTensor },
  { "e4m3_heads", CGR_DTYPE_FP8_E4M3, Factors::kHeads, CGR_DTYPE_FP8_E4M3, Factors::kHeads },
  { "e5m2", CGR_DTYPE_FP8_E5M2, Factors::kTensor, CGR_DTYPE_FP8_E5M2, Factors::kTensor },
  { "e5m2_heads", CGR_DTYPE_FP8_E5M2, Factors::kHeads, CGR_DTYPE_FP8_E5M2, Factors::kHeads },
  { "i8_tokens", CGR_DTYPE_I8, Factors::kTokens, CGR_DTYPE_I8, Factors::kChannels },
  { "i8_static", CGR_DTYPE_I8, Factors::kHeads, CGR_DTYPE_I8, Factors::kHeads },
  { "i8_k", CGR_DTYPE_I8, Factors::kTokens, cgr_dtype(0), Factors::kNone },
  { "e4m3_i8", CGR_DTYPE_FP8_E4M3, Factors::kHeads, CGR_DTYPE_I8, Factors::kChannels },
};

const CacheCase &CacheOf(const Expected &expected) {
  for (const CacheCase &one : kCaches)
    if (expected.cache == one.name)
      return one;
  ADD_FAILURE() << "no cache " << expected.cache;
  return kCaches[0];
}

// Of the factors of a KV head.
int ExponentOf(cgr_dtype dtype, int32_t head) {
  if (dtype == CGR_DTYPE_FP8_E4M3)
    return head % 2 == 0 ? -7 : 0;
  if (dtype == CGR_DTYPE_FP8_E5M2)
    return head % 2 == 0 ? -14 : 11;
  return head % 2 == 0 ? -4 : -6;
}

class Decoder : public Model {
public:
  explicit Decoder(Kit &kit)
      : c_(kit.expected), hidden_(c_.Count("hidden_size")), inner_(c_.Count("intermediate_size")), dim_(c_.Count("head_dim")),
        q_heads_(c_.Count("num_attention_heads")), kv_heads_(c_.Count("num_key_value_heads")), eps_(c_.Number("rms_norm_eps")),
        norms_heads_(c_.kind == "qwen3") {
    const int32_t group = kit.AddGroup(16, 0), vocab = c_.Count("vocab_size");
    table_ = kit.Matrix("model.embed_tokens.weight", vocab, hidden_);
    head_ = kit.Matrix("lm_head.weight", vocab, hidden_);
    norm_ = kit.Weight("model.norm.weight", 1, hidden_, kNorm);
    for (int32_t l = 0; l < c_.Count("num_hidden_layers"); l++)
      MakeLayer(kit, l, group);
    angles_ = Angles(kit, dim_, PlainFrequencies(dim_, c_.Number("rope_theta")), 1.0f);
    kit.Activations(hidden_, { &x_, &normed_ });
    kit.Activations(q_heads_ * dim_, { &q_, &normed_q_, &out_ });
    kit.Activations(kv_heads_ * dim_, { &k_, &normed_k_, &v_ });
    kit.Activations(inner_, { &gate_, &up_ });
    result = kit.Activation(vocab, CGR_DTYPE_FP32);
  }

  void Forward(Pass &pass) const override {
    pass.Embed(x_, table_, 1.0f);
    for (const Layer &l : layers_) {
      pass.RmsNorm(normed_, x_, l.before_attention, 0.0f, eps_);
      Attend(pass, l);
      pass.RmsNorm(normed_, x_, l.before_mlp, 0.0f, eps_);
      pass.Linear(gate_, normed_, l.gate);
      pass.Linear(up_, normed_, l.up);
      pass.Activate(Kind::kSilu, gate_, gate_, up_);
      pass.Linear(x_, gate_, { l.down, {} }, x_);
    }
    pass.RmsNorm(normed_, x_, norm_, 0.0f, eps_);
    pass.Linear(result, normed_, head_);
  }

private:
  struct Layer {
    RowTensor before_attention, before_mlp, q, k, v, o, q_norm, k_norm, gate, up, down;
    int32_t attention;
  };

  void Attend(Pass &pass, const Layer &l) const {
    const RowTensor &q = norms_heads_ ? normed_q_ : q_, &k = norms_heads_ ? normed_k_ : k_;
    pass.Linear(q_, normed_, l.q);
    pass.Linear(k_, normed_, l.k);
    pass.Linear(v_, normed_, l.v);
    if (norms_heads_) {
      pass.RmsNormOfHeads(q, q_, q_heads_, l.q_norm, eps_);
      pass.RmsNormOfHeads(k, k_, kv_heads_, l.k_norm, eps_);
    }
    pass.Rope(q, q_heads_, angles_);
    pass.Rope(k, kv_heads_, angles_);
    pass.Attend(l.attention, q, k, v_, out_);
    pass.Linear(x_, out_, { l.o, {} }, x_);
  }

  void MakeLayer(Kit &kit, int32_t l, int32_t group) {
    const std::string at = "model.layers." + std::to_string(l) + ".";
    Layer made = {};
    made.before_attention = kit.Weight(at + "input_layernorm.weight", 1, hidden_, kNorm);
    made.before_mlp = kit.Weight(at + "post_attention_layernorm.weight", 1, hidden_, kNorm);
    made.q = kit.Matrix(at + "self_attn.q_proj.weight", q_heads_ * dim_, hidden_);
    made.k = kit.Matrix(at + "self_attn.k_proj.weight", kv_heads_ * dim_, hidden_);
    made.v = kit.Matrix(at + "self_attn.v_proj.weight", kv_heads_ * dim_, hidden_);
    made.o = kit.Matrix(at + "self_attn.o_proj.weight", hidden_, q_heads_ * dim_);
    if (norms_heads_) {
      made.q_norm = kit.Weight(at + "self_attn.q_norm.weight", 1, dim_, kNorm);
      made.k_norm = kit.Weight(at + "self_attn.k_norm.weight", 1, dim_, kNorm);
    }
    made.gate = kit.Matrix(at + "mlp.gate_proj.weight", inner_, hidden_);
    made.up = kit.Matrix(at + "mlp.up_proj.weight", inner_, hidden_);
    made.down = kit.Matrix(at + "mlp.down_proj.weight", hidden_, inner_);
    cgr_layer layer = CGR_LAYER_INIT;
    layer.group = group;
    layer.num_q_heads = q_heads_;
    layer.num_kv_heads = kv_heads_;
    layer.head_dim = dim_;
    const CacheCase &cache = CacheOf(c_);
    const std::string name = std::string(cache.name) + "." + std::to_string(l);
    DescribeCache(kit, name + ".k", cache.k, cache.k_factors, &layer.k);
    DescribeCache(kit, name + ".v", cache.v, cache.v_factors, &layer.v);
    made.attention = kit.AddLayer(layer);
    layers_.push_back(made);
  }

  // Factors that the engine gives are there twice, one after the other, so that a mistake may begin a head later.
  void DescribeCache(Kit &kit, const std::string &name, cgr_dtype dtype, Factors factors, cgr_kv_view *view) const {
    const int32_t channels = factors == Factors::kChannels ? dim_ : 1, heads = factors == Factors::kTensor ? 1 : kv_heads_;
    view->dtype = dtype;
    view->scale_stride_token = factors == Factors::kTokens;
    if (factors == Factors::kNone || factors == Factors::kTokens)
      return;
    std::vector<float> values;
    for (int32_t i = 0; i < 2 * heads * channels; i++) {
      const int32_t at = i % (heads * channels);
      values.push_back(std::ldexp(Formula(name).Value(uint64_t(at), 1.0f, 0.5f), ExponentOf(dtype, at / channels)));
    }
    view->scale = kit.Floats(values);
    view->scale_stride_head = factors == Factors::kTensor ? 0 : channels;
    view->scale_stride_d = factors == Factors::kChannels;
  }

  const Expected &c_;
  const int32_t hidden_, inner_, dim_, q_heads_, kv_heads_;
  const float eps_;
  const bool norms_heads_;
  std::vector<Layer> layers_;
  RowTensor table_, head_, norm_, x_, normed_, q_, normed_q_, out_, k_, normed_k_, v_, gate_, up_;
  const float *angles_;
};

std::unique_ptr<Model> Make(Kit &kit) { return std::make_unique<Decoder>(kit); }

using QuantisedParam = std::tuple<const char *, CacheCase, WhereCase>;

class QuantisedCachesTest : public ::testing::TestWithParam<QuantisedParam> {
protected:
  void SetUp() override { CGR_SKIP_WITHOUT_DEVICE(std::get<2>(GetParam()).device); }
};

TEST_P(QuantisedCachesTest, GiveWhatTransformersGives) {
  const auto &[model, cache, where] = GetParam();
  ExpectAsTransformers(Expected(model, cache.name), where, Make);
}

std::string QuantisedLabel(const ::testing::TestParamInfo<QuantisedParam> &info) {
  const auto &[model, cache, where] = info.param;
  return std::string(model) + "_" + cache.name + "_" + where.Label();
}

INSTANTIATE_TEST_SUITE_P(Everywhere, QuantisedCachesTest,
                         ::testing::Combine(::testing::Values("llama", "qwen3"), ::testing::ValuesIn(kCaches),
                                            ::testing::ValuesIn(Everywhere())),
                         QuantisedLabel);

void ExpectSeenInBoth(const char *cache, const std::function<void(cgr_layer *)> &plant) {
  for (const char *model : { "llama", "qwen3" }) {
    SCOPED_TRACE(model);
    ExpectSeen(Expected(model, cache), Make, plant);
  }
}

TEST(QuantisedCachesMistakes, FactorsOfAnotherHeadAreSeen) {
  ExpectSeenInBoth("e4m3_heads", [](cgr_layer *layer) { layer->k.scale += layer->k.scale_stride_head; });
  ExpectSeenInBoth("e5m2_heads", [](cgr_layer *layer) { layer->v.scale += layer->v.scale_stride_head; });
  ExpectSeenInBoth("i8_static", [](cgr_layer *layer) { layer->k.scale += layer->k.scale_stride_head; });
}
TEST(QuantisedCachesMistakes, OneFactorForAllHeadsIsSeen) {
  ExpectSeenInBoth("i8_static", [](cgr_layer *layer) { layer->v.scale_stride_head = 0; });
}
TEST(QuantisedCachesMistakes, FactorsOfTransposedChannelsAreSeen) {
  for (const char *cache : { "i8_tokens", "e4m3_i8" })
    ExpectSeenInBoth(cache, [](cgr_layer *layer) {
      layer->v.scale_stride_head = 1;
      layer->v.scale_stride_d = layer->num_kv_heads;
    });
}
TEST(QuantisedCachesMistakes, ExchangedFactorsOfKAndVAreSeen) {
  for (const char *cache : { "e4m3", "e5m2", "e4m3_heads" })
    ExpectSeenInBoth(cache, [](cgr_layer *layer) { std::swap(layer->k.scale, layer->v.scale); });
}
TEST(QuantisedCachesMistakes, AMissingFactorIsSeen) {
  for (const char *cache : { "e4m3", "e5m2" })
    ExpectSeenInBoth(cache, [](cgr_layer *layer) { layer->k.scale = nullptr; });
}
TEST(QuantisedCachesMistakes, FactorsOfAnotherLayerAreSeen) {
  float *first = nullptr;
  ExpectSeen(Expected("llama", "i8_tokens"), Make, [&first](cgr_layer *layer) {
    first = first == nullptr ? layer->v.scale : first;
    layer->v.scale = first; // every layer gets those of the first
  });
}

} // namespace
} // namespace models
} // namespace cgr_test

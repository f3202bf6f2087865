// The attention of each kind of model, tested with models whose answers are known without computing them. The program runs them
// in every graph mode and both dtypes.
#include <string>
#include <vector>

#include "tests/examples/counting_model.h"

namespace {

constexpr int kSought = 1;  // the token that attention looks for
constexpr int kFound = 9;   // what follows while it is in sight; otherwise t + 1 follows t
constexpr int kBiased = 13; // what follows when a bias reaches the residual stream

// ----------------------------------------------------------------------------------------------------- a model that looks

std::string Layer(const std::string &part) { return "model.layers.0." + part; }

// Hidden size 16, one layer with 2 heads of q and 1 of k and v, 8 wide each.
class Model {
public:
  // A token's vector is its own axis, which the norm scales to 4. Attention gives dimension 0 of the first head for the sought
  // token alone; attending to nothing else, it adds 2 along axis 8: more than the token's own 1 when it sees little else, less
  // when the sought token is one key of three.
  Model() {
    for (const char *norm : { "input_layernorm", "post_attention_layernorm" })
      tensors_.push_back(Filled(Layer(norm) + ".weight", kVocab, 1.0f));
    tensors_.push_back(Filled("model.norm.weight", kVocab, 1.0f));
    for (const char *name : { "model.embed_tokens.weight", "lm_head.weight" })
      tensors_.push_back(Zeros(name, { kVocab, kVocab }));
    for (const char *part : { "q", "k", "v", "o" })
      tensors_.push_back(Zeros(Projection(part), { part[0] == 'k' || part[0] == 'v' ? 8 : 16, kVocab }));
    for (const char *part : { "gate", "up" })
      tensors_.push_back(Zeros(Layer("mlp.") + part + "_proj.weight", { 24, kVocab }));
    tensors_.push_back(Zeros(Layer("mlp.down_proj.weight"), { kVocab, 24 }));
    for (int t = 0; t < kVocab; t++) {
      Set("model.embed_tokens.weight", t, t, 1.0f);
      Set("lm_head.weight", (t + 1) % kVocab, t, 1.0f);
    }
    Set(Projection("v"), 0, kSought, 0.25f);
    Set(Projection("o"), kFound - 1, 0, 2.0f);
  }

  static std::string Projection(const std::string &part) { return Layer("self_attn." + part + "_proj.weight"); }

  Model &Set(const std::string &name, int row, int column, float value) {
    for (Tensor &tensor : tensors_)
      if (tensor.name == name)
        ::Set(&tensor, row, column, value);
    return *this;
  }

  // Each query asks along dimension 3 of its head, which positions turn by a thousandth; only the sought token answers.
  Model &Seek(float q, float k) {
    for (int t = 0; t < kVocab; t++)
      Set(Projection("q"), 3, t, q);
    return Set(Projection("k"), 3, kSought, k);
  }

  Model &Add(const Tensor &tensor) {
    tensors_.push_back(tensor);
    return *this;
  }

  // A bias of a projection, all zero but one element.
  Model &Bias(const std::string &part, int64_t size, int index, float value) {
    const std::string name = Layer("self_attn." + part + "_proj.bias");
    return Add(Zeros(name, { size })).Set(name, 0, index, value);
  }

  Model &Norms(float q, float k) {
    Add(Filled(Layer("self_attn.q_norm.weight"), 8, q));
    return Add(Filled(Layer("self_attn.k_norm.weight"), 8, k));
  }

  // What the program generates after the prompt in each graph mode and dtype: one answer if all agree, or all of them.
  std::string Generates(const std::string &members, const std::string &prompt, int tokens) const {
    const CountingFolder folder(tensors_, members);
    std::string all;
    for (const char *mode : { "none", "piecewise", "full", "full-and-piecewise" })
      for (const char *dtype : { "fp32", "bf16" }) {
        const std::string text = Run("--model " + std::string(folder.path()) + " --prompt-ids " + prompt + " --tokens " +
                                     std::to_string(tokens) + " --chunk 7 --mode " + mode + " --dtype " + dtype);
        const size_t bar = text.find("\n" + prompt + ","), begin = bar + prompt.size() + 2;
        const std::string got = bar == std::string::npos ? text : text.substr(begin, text.find('\n', begin) - begin);
        if (all != got)
          all += (all.empty() ? "" : std::string(" but in ") + mode + " and " + dtype + " ") + got;
      }
    return all;
  }

private:
  static std::string Run(const std::string &arguments) {
    const cgr_test::Outcome outcome = RunOnHost("--temperature 0 " + arguments);
    return outcome.status == 0 ? outcome.text : "failed: " + outcome.text;
  }

  std::vector<Tensor> tensors_;
};

std::string Kind(const std::string &type, const std::string &members = "") {
  return ", \"model_type\": \"" + type + "\", \"head_dim\": 8" + members;
}

// The same token n times: "9,9,9".
std::string Repeated(int token, int n) {
  std::string text;
  for (int i = 0; i < n; i++)
    text += (i ? "," : "") + std::to_string(token);
  return text;
}

// --------------------------------------------------------------------------------------------------------------- seeking

TEST(LlamaAttention, FindsATokenInItsPast) {
  const Model blind, seeking = Model().Seek(2.0f, 2.0f);
  for (const char *type : { "llama", "mistral" }) {
    EXPECT_EQ(seeking.Generates(Kind(type), "1,5,6", 4), "9,9,9,9");
    EXPECT_EQ(seeking.Generates(Kind(type), "2,5,6", 4), "7,8,9,10");
    EXPECT_EQ(blind.Generates(Kind(type), "1,5,6", 4), "7,8,9,10");
  }
}

// --------------------------------------------------------------------------------------------------------------- biases

// Constant q and k along dimension 0, which each position turns by one radian: a query sees its own token and hardly any other.
TEST(LlamaAttention, BiasesOfQAndKChooseWhatIsSeen) {
  for (const std::string &kind : { Kind("qwen2"), Kind("llama", ", \"attention_bias\": true") })
    for (int q = 0; q < 2; q++)
      for (int k = 0; k < 2; k++) {
        Model model;
        model.Bias("q", 16, 0, q * 12.0f).Bias("k", 8, 0, k * 12.0f).Bias("v", 8, 0, 0.0f).Bias("o", 16, 0, 0.0f);
        EXPECT_EQ(model.Generates(kind, "5,6,1", 3), q && k ? "9,10,11" : "2,3,4") << kind << q << k;
      }
}

TEST(LlamaAttention, TheBiasOfVReachesTheOutput) {
  for (const std::string &kind : { Kind("qwen2"), Kind("llama", ", \"attention_bias\": true") }) {
    Model model;
    model.Bias("q", 16, 0, 0.0f).Bias("k", 8, 0, 0.0f).Bias("v", 8, 5, 1.0f).Bias("o", 16, 0, 0.0f);
    model.Set(Model::Projection("o"), kBiased - 1, 5, 4.0f);
    EXPECT_EQ(model.Generates(kind, "5,6,7", 3), Repeated(kBiased, 3)) << kind;
  }
}

TEST(LlamaAttention, TheBiasOfOReachesTheOutputWhereThereIsOne) {
  Model model;
  model.Bias("q", 16, 0, 0.0f).Bias("k", 8, 0, 0.0f).Bias("v", 8, 0, 0.0f).Bias("o", 16, kBiased - 1, 4.0f).Norms(1.0f, 1.0f);
  for (const char *type : { "llama", "qwen3" })
    EXPECT_EQ(model.Generates(Kind(type, ", \"attention_bias\": true"), "5,6,7", 3), Repeated(kBiased, 3)) << type;
  for (const char *type : { "llama", "qwen2", "qwen3" })
    EXPECT_EQ(model.Generates(Kind(type), "5,6,7", 3), "8,9,10") << type; // the file has more than the model
}

// ---------------------------------------------------------------------------------------------------------------- norms

// Queries and keys of a hundredth find nothing, but do once normed with large enough weights on both sides.
TEST(LlamaAttention, NormsOfQAndKAreOfEachHead) {
  Model small;
  small.Seek(0.01f, 0.01f);
  EXPECT_EQ(small.Generates(Kind("llama"), "1,5,6", 3), "7,8,9");
  EXPECT_EQ(Model(small).Norms(3.0f, 3.0f).Generates(Kind("qwen3"), "1,5,6", 3), "9,9,9");
  EXPECT_EQ(Model(small).Norms(0.01f, 3.0f).Generates(Kind("qwen3"), "1,5,6", 3), "7,8,9");
  EXPECT_EQ(Model(small).Norms(3.0f, 0.01f).Generates(Kind("qwen3"), "1,5,6", 3), "7,8,9");
  // The other head of q does not affect the first.
  Model loud = small;
  for (int t = 0; t < kVocab; t++)
    loud.Set(Model::Projection("q"), 8, t, 100.0f);
  EXPECT_EQ(loud.Norms(3.0f, 3.0f).Generates(Kind("qwen3"), "1,5,6", 3), "9,9,9");
}

// -------------------------------------------------------------------------------------------------------------- windows

// The program's sequences have room for 64 tokens or a multiple.
TEST(LlamaAttention, AWindowThatNoSequenceOutgrowsHidesNothing) {
  const Model model = Model().Seek(2.0f, 2.0f);
  EXPECT_EQ(model.Generates(Kind("mistral", ", \"sliding_window\": 64"), "1", 64), Repeated(kFound, 64));
  EXPECT_EQ(model.Generates(Kind("mistral", ", \"sliding_window\": 63"), "1", 64), Repeated(kFound, 63) + ",10");
  EXPECT_EQ(model.Generates(Kind("mistral", ", \"sliding_window\": null"), "1", 70), Repeated(kFound, 70));
}

// The sought token is in sight of the query at its own position and of the window - 1 after it: these show it as found,
// then the model counts on from there, within a page and across pages.
TEST(LlamaAttention, AWindowEndsWhereItShould) {
  const Model model = Model().Seek(2.0f, 2.0f);
  for (int window : { 1, 6, 16, 17, 40 }) {
    const std::string size = ", \"sliding_window\": " + std::to_string(window), found = Repeated(kFound, window) + ",10,11,12";
    EXPECT_EQ(model.Generates(Kind("mistral", size), "1", window + 3), found) << window;
    for (const char *type : { "qwen2", "qwen3" }) {
      Model biased = model;
      biased.Bias("q", 16, 0, 0.0f).Bias("k", 8, 0, 0.0f).Bias("v", 8, 0, 0.0f).Norms(3.0f, 3.0f);
      const std::string on = size + ", \"use_sliding_window\": true, \"max_window_layers\": ";
      EXPECT_EQ(biased.Generates(Kind(type, on + "0"), "1", window + 3), found) << type << window;
      EXPECT_EQ(biased.Generates(Kind(type, on + "1"), "1", window + 3), Repeated(kFound, window + 3)) << type << window;
    }
  }
}

// Within a prompt computed in chunks: the last query sees the token window - 1 positions before it, and not the one before that.
TEST(LlamaAttention, AWindowEndsWhereItShouldInAPrompt) {
  const Model model = Model().Seek(2.0f, 2.0f);
  const std::string kind = Kind("mistral", ", \"sliding_window\": 20");
  EXPECT_EQ(model.Generates(kind, Repeated(5, 10) + ",1," + Repeated(5, 19), 3), "9,10,11");
  EXPECT_EQ(model.Generates(kind, Repeated(5, 10) + ",1," + Repeated(5, 20), 3), "6,7,8");
}

} // namespace

// The kinds of models that the example reads: what each config.json says of biases, norms and windows, the default for an absent
// field, which is transformers' own for that kind, and what is refused.
#include <cstdint>
#include <string>
#include <vector>

#include "examples/llama/config.h"
#include "examples/llama/error.h"
#include "tests/examples/model_folder.h"

namespace {

std::string OfKind(const std::string &type, const std::string &members = "") {
  return TinyConfig(", \"model_type\": \"" + type + "\"" + members);
}

llama_config Read(const std::string &type, const std::string &members = "") {
  llama_config config;
  const std::string text = OfKind(type, members);
  EXPECT_EQ(llama_config_parse(text.data(), text.size(), &config), 0) << llama_message();
  return config;
}

std::string Error(const std::string &type, const std::string &members) {
  llama_config config;
  const std::string text = OfKind(type, members);
  return llama_config_parse(text.data(), text.size(), &config) == 0 ? "" : llama_message();
}

// What each layer sees: "0,6" is a full layer and then one with a window of 6.
std::string Windows(const llama_config &config) {
  std::string text;
  for (int l = 0; l < config.num_layers; l++)
    text += (l ? "," : "") + std::to_string(config.windowed[l] ? config.window : 0);
  return text;
}

std::string Windows(const std::string &type, const std::string &members) {
  return Windows(Read(type, ", \"num_hidden_layers\": 4" + members));
}

// ------------------------------------------------------------------------------------------------------- architectures

TEST(LlamaKind, EachHasItsArchitecture) {
  const std::vector<std::string> types = { "llama", "mistral", "qwen2", "qwen3" },
                                 names = { "LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM" };
  for (size_t i = 0; i < types.size(); i++)
    for (size_t k = 0; k < names.size(); k++) {
      const std::string error = Error(types[i], ", \"architectures\": [\"" + names[k] + "\"]");
      if (i == k)
        EXPECT_EQ(error, "");
      else
        EXPECT_SAYS(error, "architectures is [\"" + names[k] + "\"], expected a list with \"" + names[i] + "\"");
    }
  EXPECT_SAYS(Error("qwen2", ", \"hidden_act\": \"gelu\""), "hidden_act is \"gelu\", expected \"silu\"");
  EXPECT_SAYS(Error("qwen3", ", \"rope_scaling\": {\"rope_type\": \"yarn\", \"factor\": 4.0}"),
              "rope_type is \"yarn\", expected");
  EXPECT_SAYS(Error("mistral", ", \"mlp_bias\": true"), "mlp_bias is true, expected false");
}

// -------------------------------------------------------------------------------------------------------- absent fields

TEST(LlamaKind, AbsentFieldsAreThoseOfTransformers) {
  const std::string head = "{\"hidden_size\": 512, \"intermediate_size\": 24, \"num_hidden_layers\": 1, \"vocab_size\": 32, "
                           "\"num_attention_heads\": 32, \"model_type\": ";
  struct {
    const char *type;
    int32_t kv_heads, head_dim, max_positions;
    const char *windows;
  } const kinds[] = { { "llama", 32, 16, 2048, "0" },
                      { "mistral", 8, 16, 131072, "4096" },
                      { "qwen2", 32, 16, 32768, "0" },
                      { "qwen3", 32, 128, 32768, "0" } };
  for (const auto &kind : kinds) {
    llama_config config;
    const std::string text = head + "\"" + kind.type + "\"}",
                      null_heads = head + "\"" + kind.type + "\", \"num_key_value_heads\": null}";
    ASSERT_EQ(llama_config_parse(text.data(), text.size(), &config), 0) << llama_message();
    EXPECT_EQ(config.num_kv_heads, kind.kv_heads) << kind.type;
    EXPECT_EQ(config.head_dim, kind.head_dim) << kind.type;
    EXPECT_EQ(config.max_positions, kind.max_positions) << kind.type;
    EXPECT_EQ(Windows(config), kind.windows) << kind.type;
    ASSERT_EQ(llama_config_parse(null_heads.data(), null_heads.size(), &config), 0) << llama_message();
    EXPECT_EQ(config.num_kv_heads, 32) << kind.type;
  }
}

TEST(LlamaKind, HeadDimsThatDoNotDivideTheHiddenSize) {
  const std::string heads = ", \"num_attention_heads\": 3, \"num_key_value_heads\": 1", given = heads + ", \"head_dim\": 8";
  for (const char *type : { "mistral", "qwen2", "qwen3" })
    EXPECT_EQ(Read(type, given).head_dim, 8) << type;
  EXPECT_SAYS(Error("llama", given), "num_attention_heads is 3, expected a divisor of hidden_size 16");
  for (const char *type : { "mistral", "qwen2" })
    EXPECT_SAYS(Error(type, heads), "num_attention_heads is 3, expected a divisor of hidden_size 16");
  EXPECT_EQ(Read("qwen3", heads).head_dim, 128);
  EXPECT_EQ(Error("mistral", ", \"head_dim\": null"), "");
  EXPECT_SAYS(Error("qwen3", ", \"head_dim\": null"), "head_dim is null, expected a whole number from 1 to 256");
}

// ----------------------------------------------------------------------------------------------------- biases and norms

// "qkv", "o" and "norms", for those present.
std::string Parts(const std::string &type, const std::string &members = "") {
  const llama_config config = Read(type, members);
  return std::string(config.qkv_bias ? "qkv " : "") + (config.o_bias ? "o " : "") + (config.qk_norm ? "norms " : "");
}

TEST(LlamaKind, BiasesAndNorms) {
  const std::string on = ", \"attention_bias\": true", off = ", \"attention_bias\": false";
  EXPECT_EQ(Parts("llama"), "");
  EXPECT_EQ(Parts("llama", off), "");
  EXPECT_EQ(Parts("llama", on), "qkv o ");
  EXPECT_EQ(Parts("mistral", off), "");
  EXPECT_EQ(Parts("qwen2", off), "qkv ");
  EXPECT_EQ(Parts("qwen3"), "norms ");
  EXPECT_EQ(Parts("qwen3", on), "qkv o norms ");
  for (const char *type : { "mistral", "qwen2" })
    EXPECT_SAYS(Error(type, on), "config.json: attention_bias is true, expected false");
  for (const char *type : { "llama", "mistral", "qwen2", "qwen3" })
    EXPECT_SAYS(Error(type, ", \"attention_bias\": null"), "attention_bias is null, expected true or false");
}

// --------------------------------------------------------------------------------------------------------------- windows

TEST(LlamaKind, AMistralHasOneWindowForAllLayers) {
  EXPECT_EQ(Windows("mistral", ", \"sliding_window\": 6"), "6,6,6,6");
  EXPECT_EQ(Windows("mistral", ", \"sliding_window\": null"), "0,0,0,0");
  EXPECT_EQ(Windows("mistral", ", \"sliding_window\": 1"), "1,1,1,1");
  EXPECT_EQ(Windows("mistral", ", \"layer_types\": null"), "4096,4096,4096,4096");
  for (const char *bad : { "0", "-1", "2.5", "\"6\"", "1e10", "true" })
    EXPECT_SAYS(Error("mistral", std::string(", \"sliding_window\": ") + bad), "expected a whole number from 1 to 2147483647");
  for (const char *type : { "llama", "mistral" })
    EXPECT_SAYS(Error(type, ", \"layer_types\": [\"full_attention\"]"),
                "layer_types is [\"full_attention\"], expected none: all layers of this model_type are alike");
}

TEST(LlamaKind, AQwenHasWindowsInItsUpperLayers) {
  for (const char *type : { "qwen2", "qwen3" }) {
    const std::string on = ", \"use_sliding_window\": true, \"sliding_window\": 6";
    EXPECT_EQ(Windows(type, ", \"sliding_window\": 6, \"max_window_layers\": 0"), "0,0,0,0");
    EXPECT_EQ(Windows(type, ", \"use_sliding_window\": false, \"sliding_window\": 6, \"max_window_layers\": 0"), "0,0,0,0");
    EXPECT_EQ(Windows(type, ", \"use_sliding_window\": true, \"sliding_window\": null, \"max_window_layers\": 0"), "0,0,0,0");
    EXPECT_EQ(Windows(type, ", \"use_sliding_window\": true, \"max_window_layers\": 3"), "0,0,0,4096");
    EXPECT_EQ(Windows(type, on + ", \"max_window_layers\": 0"), "6,6,6,6");
    EXPECT_EQ(Windows(type, on + ", \"max_window_layers\": 2"), "0,0,6,6");
    EXPECT_EQ(Windows(type, on + ", \"max_window_layers\": 5"), "0,0,0,0");
    EXPECT_EQ(Windows(type, on + ", \"num_hidden_layers\": 29"), "0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,6");
    EXPECT_SAYS(Error(type, on + ", \"max_window_layers\": -1"), "max_window_layers is -1, expected a whole number from 0");
    EXPECT_SAYS(Error(type, ", \"use_sliding_window\": true, \"sliding_window\": 0"), "sliding_window is 0, expected");
    EXPECT_SAYS(Error(type, ", \"use_sliding_window\": null"), "use_sliding_window is null, expected true or false");
  }
}

TEST(LlamaKind, LayerTypesSayWhichLayersHaveAWindow) {
  for (const char *type : { "qwen2", "qwen3" }) {
    const std::string on = ", \"use_sliding_window\": true, \"sliding_window\": 6, \"max_window_layers\": 0",
                      full = "\"full_attention\"", window = "\"sliding_attention\"";
    auto types = [](const std::string &list) { return ", \"num_hidden_layers\": 2, \"layer_types\": " + list; };
    EXPECT_EQ(Windows(Read(type, on + types("[" + window + ", " + full + "]"))), "6,0");
    EXPECT_EQ(Windows(Read(type, on + types("[" + full + ", " + full + "]"))), "0,0");
    EXPECT_EQ(Windows(Read(type, on + types("null"))), "6,6");
    EXPECT_EQ(Windows(Read(type, types("[" + full + ", " + full + "]"))), "0,0");
    EXPECT_SAYS(Error(type, types("[" + full + ", " + window + "]")),
                "layer_types[1] is \"sliding_attention\", expected \"full_attention\" in a model without a window");
    EXPECT_SAYS(Error(type, on + types("[" + full + ", \"chunked_attention\"]")),
                "layer_types[1] is \"chunked_attention\", expected \"full_attention\" or \"sliding_attention\"");
    EXPECT_SAYS(Error(type, on + types("[" + full + "]")), "layer_types is [\"full_attention\"], expected a list of 2");
    EXPECT_SAYS(Error(type, on + types("[" + full + ", " + full + ", " + full + "]")), "expected a list of 2, one per layer");
    EXPECT_SAYS(Error(type, on + types(full)), "layer_types is \"full_attention\", expected a list of 2, one per layer");
    EXPECT_SAYS(Error(type, on + types("[" + full + ", null]")), "layer_types[1] is null, expected");
  }
}

} // namespace

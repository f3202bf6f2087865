// How the example reads config.json and generation_config.json: it refuses what transformers 5 refuses, with a message that
// names the file, the field, the value and what was expected.
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "examples/llama/config.h"
#include "examples/llama/error.h"
#include "tests/examples/model_folder.h"

namespace {

std::string ConfigError(const std::string &text) {
  llama_config config;
  return llama_config_parse(text.data(), text.size(), &config) == 0 ? "" : llama_message();
}

// -------------------------------------------------------------------------------------------------------------- config

// What it says of a good config with one member added or overridden: of equal names, the last counts.
std::string With(const std::string &member) { return ConfigError(TinyConfig(", " + member)); }

// ----------------------------------------------------------------------------------------------------------- refusals

TEST(LlamaConfig, RefusesWhatIsNotAConfig) {
  EXPECT_EQ(ConfigError(TinyConfig()), "");
  EXPECT_SAYS(ConfigError("{"), "config.json: not JSON");
  EXPECT_SAYS(ConfigError(""), "not JSON");
  EXPECT_SAYS(ConfigError("null"), "not a JSON object");
  EXPECT_SAYS(ConfigError("{\"model_type\": \"llama\"}"), "config.json: hidden_size is missing, expected a whole number");
  EXPECT_SAYS(ConfigError("\xef\xbb\xbf" + TinyConfig()),
              "config.json: the first bytes are a byte order mark (EF BB BF), expected JSON without one");
}

TEST(LlamaConfig, RefusesOtherModels) {
  EXPECT_SAYS(ConfigError("{}"), "config.json: model_type is missing, expected \"llama\", \"mistral\", \"qwen2\" or \"qwen3\"");
  EXPECT_SAYS(With("\"model_type\": null"), "config.json: model_type is null, expected \"llama\", ");
  EXPECT_SAYS(With("\"model_type\": \"gpt2\""), "model_type is \"gpt2\", expected \"llama\", ");
  EXPECT_SAYS(With("\"architectures\": [\"LlamaForSequenceClassification\"]"),
              "config.json: architectures is [\"LlamaForSequenceClassification\"], expected a list with \"LlamaForCausalLM\"");
  EXPECT_SAYS(With("\"architectures\": [\"LlamaModel\"]"), "[\"LlamaModel\"]");
  EXPECT_SAYS(With("\"architectures\": \"LlamaForCausalLM\""), "expected a list");
  EXPECT_EQ(With("\"architectures\": [\"LlamaForCausalLM\"]"), "");
  EXPECT_EQ(With("\"architectures\": null"), ""); // as transformers
  EXPECT_EQ(With("\"architectures\": []"), "");
  EXPECT_SAYS(With("\"hidden_act\": \"gelu\""), "hidden_act is \"gelu\", expected \"silu\"");
  EXPECT_SAYS(With("\"hidden_act\": null"), "hidden_act is null, expected \"silu\"");
  EXPECT_SAYS(With("\"mlp_bias\": true"), "mlp_bias is true, expected false");
  EXPECT_SAYS(With("\"quantization_config\": {\"bits\": 4}"), "quantization_config is {\"bits\":4}, expected none");
  EXPECT_SAYS(With("\"quantization_config\": {\"a\": \"" + std::string(100, 'x') + "\"}"), "xxx..., expected none");
}

TEST(LlamaConfig, RefusesWrongShapes) {
  EXPECT_SAYS(With("\"vocab_size\": 1e15"), "vocab_size is 1e+15, expected a whole number from 1 to 16777216");
  EXPECT_SAYS(With("\"vocab_size\": -1"), "vocab_size is -1, expected");
  EXPECT_SAYS(With("\"vocab_size\": 2.5"), "vocab_size is 2.5, expected a whole number");
  EXPECT_SAYS(With("\"vocab_size\": \"32\""), "vocab_size is \"32\", expected a whole number");
  EXPECT_SAYS(With("\"hidden_size\": null"), "hidden_size is null, expected a whole number");
  EXPECT_SAYS(With("\"hidden_size\": 20"), "hidden_size is 20, expected a multiple of 8");
  EXPECT_SAYS(With("\"intermediate_size\": 20"), "intermediate_size is 20, expected a multiple of 8");
  EXPECT_SAYS(With("\"head_dim\": 12"), "head_dim is 12, expected a multiple of 8 up to 256");
  EXPECT_SAYS(With("\"head_dim\": 1e9"), "head_dim is 1000000000, expected a whole number from 1 to 256");
  EXPECT_EQ(With("\"head_dim\": null"), "");
  EXPECT_SAYS(With("\"num_key_value_heads\": 0"), "num_key_value_heads is 0, expected");
  EXPECT_SAYS(With("\"num_attention_heads\": 4, \"num_key_value_heads\": 3"),
              "num_key_value_heads is 3, expected a divisor of num_attention_heads 4");
  // transformers refuses this with head_dim too.
  EXPECT_SAYS(With("\"num_attention_heads\": 3, \"num_key_value_heads\": 1, \"head_dim\": 8"),
              "num_attention_heads is 3, expected a divisor of hidden_size 16");
}

TEST(LlamaConfig, RefusesNormsWithoutEpsilon) {
  EXPECT_SAYS(With("\"rms_norm_eps\": 0"), "config.json: rms_norm_eps is 0, expected a number from 1e-30 to 1");
  EXPECT_SAYS(With("\"rms_norm_eps\": null"), "config.json: rms_norm_eps is null, expected a number from 1e-30 to 1");
  EXPECT_SAYS(With("\"rms_norm_eps\": -1e-5"), "rms_norm_eps is -1e-05, expected");
  EXPECT_SAYS(With("\"rms_norm_eps\": NaN"), "not JSON");
  EXPECT_SAYS(With("\"tie_word_embeddings\": null"), "tie_word_embeddings is null, expected true or false");
}

TEST(LlamaConfig, RefusesRotaryEmbeddingsThatItDoesNotCompute) {
  EXPECT_SAYS(With("\"rope_scaling\": {\"type\": \"yarn\", \"factor\": 2}"),
              "rope_type is \"yarn\", expected \"default\", \"linear\" or \"llama3\"");
  EXPECT_SAYS(With("\"rope_scaling\": {\"type\": \"linear\"}"), "factor is missing, expected a number");
  EXPECT_SAYS(With("\"rope_scaling\": 4"), "rope_scaling is 4, expected an object or null");
  EXPECT_SAYS(With("\"rope_theta\": \"big\""), "rope_theta is \"big\", expected a number");
  EXPECT_SAYS(With("\"rope_theta\": null"), "rope_theta is null, expected a number");
  EXPECT_EQ(With("\"rope_theta\": null, \"rope_parameters\": {\"rope_theta\": 500.0}"), "");
  for (const char *where : { "rope_scaling", "rope_parameters" }) {
    std::string begin = std::string("\"") + where + "\": {\"rope_theta\": 1e4, \"rope_type\": ";
    EXPECT_SAYS(With(begin + "\"default\", \"partial_rotary_factor\": 0.5}"),
                "config.json: partial_rotary_factor is 0.5, expected 1 or none");
    EXPECT_EQ(With(begin + "\"default\", \"partial_rotary_factor\": 1.0}"), "");
  }
  EXPECT_SAYS(With("\"partial_rotary_factor\": 0.5"), "partial_rotary_factor is 0.5, expected 1 or none");
}

TEST(LlamaConfig, RefusesHalfALlama3Scaling) {
  const std::string begin = "\"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": 8.0";
  const std::string low = ", \"low_freq_factor\": 1.0", high = ", \"high_freq_factor\": 4.0",
                    original = ", \"original_max_position_embeddings\": 32";
  EXPECT_EQ(With(begin + low + high + original + "}"), "");
  EXPECT_SAYS(With(begin + "}"), "config.json: low_freq_factor is missing, expected a number in the llama3 scaling");
  EXPECT_SAYS(With(begin + high + original + "}"), "low_freq_factor is missing");
  EXPECT_SAYS(With(begin + low + original + "}"), "high_freq_factor is missing");
  EXPECT_SAYS(With(begin + low + high + "}"), "original_max_position_embeddings is missing");
  EXPECT_SAYS(With(begin + low + ", \"high_freq_factor\": 1.0" + original + "}"),
              "high_freq_factor is 1, expected more than low_freq_factor 1");
  EXPECT_SAYS(With(begin + low + high + original + "}, \"original_max_position_embeddings\": 16"),
              "original_max_position_embeddings is 16, expected 32 as in the llama3 scaling");
}

TEST(LlamaConfig, RopeScalingTakesThePlaceOfRopeParameters) {
  llama_config config;
  std::string text = TinyConfig(", \"rope_theta\": 777.0, \"rope_scaling\": {\"type\": \"linear\", \"factor\": 2.0}, "
                                "\"rope_parameters\": {\"rope_theta\": 500.0, \"rope_type\": \"default\"}");
  ASSERT_EQ(llama_config_parse(text.data(), text.size(), &config), 0) << llama_message();
  EXPECT_EQ(config.rope.type, LLAMA_ROPE_LINEAR);
  EXPECT_EQ(config.rope.theta, 777.0);
}

// ------------------------------------------------------------------------------------------------------------- tokens

std::vector<int32_t> EndTokens(const llama_config &config) {
  return std::vector<int32_t>(config.eos_tokens, config.eos_tokens + config.num_eos);
}

TEST(LlamaConfig, ReadsTokens) {
  llama_config config;
  std::string text = TinyConfig(",\"bos_token_id\": 3, \"eos_token_id\": [1, 2, 999, 1]");
  ASSERT_EQ(llama_config_parse(text.data(), text.size(), &config), 0);
  EXPECT_EQ(config.bos_token, 3);
  EXPECT_EQ(EndTokens(config), (std::vector<int32_t>{ 1, 2 })); // 999 is outside the vocabulary
  text = TinyConfig(",\"bos_token_id\": null, \"eos_token_id\": null");
  ASSERT_EQ(llama_config_parse(text.data(), text.size(), &config), 0);
  EXPECT_EQ(config.bos_token, -1);
  EXPECT_EQ(config.num_eos, 0);
  EXPECT_SAYS(With("\"eos_token_id\": [1, \"x\"]"), "eos_token_id is \"x\", expected a whole number");
}

// The end tokens of a folder whose config.json and generation_config.json have these members; {-1}: refused.
std::vector<int32_t> EndTokensOf(const std::string &members, const std::string &generation) {
  Folder folder;
  llama_config config;
  folder.Write("config.json", TinyConfig(members));
  if (!generation.empty())
    folder.Write("generation_config.json", generation);
  return llama_config_read(folder.path(), &config) == 0 ? EndTokens(config) : std::vector<int32_t>{ -1 };
}

TEST(LlamaConfig, JoinsTheEndTokensOfGenerationConfig) {
  using Tokens = std::vector<int32_t>;
  EXPECT_EQ(EndTokensOf("", ""), Tokens());
  EXPECT_EQ(EndTokensOf("", "{\"eos_token_id\": 5}"), Tokens{ 5 });
  EXPECT_EQ(EndTokensOf("", "{\"eos_token_id\": [5, 6]}"), (Tokens{ 5, 6 }));
  EXPECT_EQ(EndTokensOf(", \"eos_token_id\": 7", "{\"eos_token_id\": [5, 7]}"), (Tokens{ 7, 5 }));
  EXPECT_EQ(EndTokensOf(", \"eos_token_id\": [7, 8]", "{\"eos_token_id\": 9, \"temperature\": 0.6}"), (Tokens{ 7, 8, 9 }));
  EXPECT_EQ(EndTokensOf(", \"eos_token_id\": 7", "{\"eos_token_id\": null}"), Tokens{ 7 });
  EXPECT_EQ(EndTokensOf(", \"eos_token_id\": 7", "{}"), Tokens{ 7 });
}

TEST(LlamaConfig, RefusesABrokenGenerationConfig) {
  EXPECT_EQ(EndTokensOf("", "{\"eos_token_id\": \"x\"}"), std::vector<int32_t>{ -1 });
  EXPECT_SAYS(std::string(llama_message()), "/generation_config.json: eos_token_id is \"x\", expected a whole number");
  EXPECT_EQ(EndTokensOf("", "{"), std::vector<int32_t>{ -1 });
  EXPECT_SAYS(std::string(llama_message()), "/generation_config.json: not JSON");
  EXPECT_EQ(EndTokensOf("", "\xef\xbb\xbf{}"), std::vector<int32_t>{ -1 });
  EXPECT_SAYS(std::string(llama_message()), "/generation_config.json: the first bytes are a byte order mark");
}

// ------------------------------------------------------------------------------------------------- rotary embeddings

// The formulas of transformers' modeling_rope_utils, in their own form.
TEST(LlamaConfig, RopeFrequenciesAreThoseOfTransformers) {
  const double pi = std::acos(-1.0), theta = 500000.0, factor = 8, low = 1, high = 4, original = 32;
  for (const char *where : { "rope_scaling", "rope_parameters" }) {
    llama_config config;
    float got[4];
    std::string begin = std::string(",\"head_dim\": 8, \"rope_theta\": 500000.0, \"") + where + "\": {\"rope_theta\": 500000.0, ";
    std::string text = TinyConfig(begin + "\"rope_type\": \"linear\", \"factor\": 8}");
    ASSERT_EQ(llama_config_parse(text.data(), text.size(), &config), 0) << llama_message();
    llama_rope_frequencies(&config, got);
    for (int i = 0; i < 4; i++)
      EXPECT_FLOAT_EQ(got[i], static_cast<float>(std::pow(theta, -i / 4.0) / factor));

    text = TinyConfig(begin + "\"rope_type\": \"llama3\", \"factor\": 8, \"low_freq_factor\": 1, \"high_freq_factor\": 4, "
                              "\"original_max_position_embeddings\": 32}");
    ASSERT_EQ(llama_config_parse(text.data(), text.size(), &config), 0) << llama_message();
    llama_rope_frequencies(&config, got);
    for (int i = 0; i < 4; i++) {
      double frequency = std::pow(theta, -i / 4.0), wavelength = 2 * pi / frequency, expected = frequency;
      if (wavelength > original / low) {
        expected = frequency / factor;
      } else if (wavelength >= original / high) {
        double smooth = (original / wavelength - low) / (high - low);
        expected = (1 - smooth) * frequency / factor + smooth * frequency;
      }
      EXPECT_FLOAT_EQ(got[i], static_cast<float>(expected)) << i;
    }
  }
}

} // namespace

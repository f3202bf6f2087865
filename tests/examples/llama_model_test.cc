// The example's reading of models: what is well formed is read right, and nothing else gets further than a message.
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "cgr/cgr.h"
#include "examples/llama/error.h"
#include "examples/llama/model.h"

namespace {

// ------------------------------------------------------------------------------------------------------------- files

class Folder {
public:
  Folder() {
    std::string pattern = ::testing::TempDir() + "/llama_model_XXXXXX";
    path_ = mkdtemp(&pattern[0]) ? pattern : "";
  }
  ~Folder() {
    for (const std::string &name : names_)
      unlink(File(name).c_str());
    rmdir(path_.c_str());
  }
  std::string File(const std::string &name) const { return path_ + "/" + name; }
  const char *path() const { return path_.c_str(); }
  void Write(const std::string &name, const std::string &bytes) {
    std::ofstream(File(name), std::ios::binary | std::ios::trunc) << bytes;
    names_.push_back(name);
  }

private:
  std::string path_;
  std::vector<std::string> names_;
};

struct Tensor {
  std::string name, dtype;
  std::vector<int64_t> shape;
  std::string bytes;
};

std::string Bits16(uint16_t bits) { return std::string(reinterpret_cast<const char *>(&bits), 2); }
std::string Bits32(float value) { return std::string(reinterpret_cast<const char *>(&value), 4); }

Tensor MakeTensor(const std::string &name, const std::string &dtype, const std::vector<int64_t> &shape) {
  Tensor tensor{ name, dtype, shape, "" };
  int64_t count = 1;
  for (int64_t side : shape)
    count *= side;
  for (int64_t i = 0; i < count; i++) {
    if (dtype == "F32")
      tensor.bytes += Bits32(static_cast<float>(i % 7) - 3.0f);
    if (dtype == "BF16")
      tensor.bytes += Bits16(static_cast<uint16_t>(0x3f80 + i % 5));
    if (dtype == "F16")
      tensor.bytes += Bits16(static_cast<uint16_t>(0x3c00 + i % 5));
  }
  return tensor;
}

std::string Header(const std::vector<Tensor> &tensors) {
  std::string header = "{\"__metadata__\":{\"format\":\"pt\"}";
  size_t offset = 0;
  for (const Tensor &tensor : tensors) {
    header += ",\"" + tensor.name + "\":{\"dtype\":\"" + tensor.dtype + "\",\"shape\":[";
    for (size_t i = 0; i < tensor.shape.size(); i++)
      header += (i ? "," : "") + std::to_string(tensor.shape[i]);
    header += "],\"data_offsets\":[" + std::to_string(offset) + "," + std::to_string(offset + tensor.bytes.size()) + "]}";
    offset += tensor.bytes.size();
  }
  return header + "}";
}

std::string Length(uint64_t length) { return std::string(reinterpret_cast<const char *>(&length), 8); }

std::string WithHeader(const std::string &header, const std::string &data) { return Length(header.size()) + header + data; }

std::string SafeTensors(const std::vector<Tensor> &tensors) {
  std::string data;
  for (const Tensor &tensor : tensors)
    data += tensor.bytes;
  return WithHeader(Header(tensors), data);
}

// A Llama of one layer, hidden size 16, 2 query heads and 1 KV head of 8, intermediate size 24, 32 tokens.
std::vector<Tensor> TinyTensors(const std::string &dtype = "BF16") {
  const std::string layer = "model.layers.0.";
  return { MakeTensor("model.embed_tokens.weight", dtype, { 32, 16 }),
           MakeTensor(layer + "input_layernorm.weight", dtype, { 16 }),
           MakeTensor(layer + "self_attn.q_proj.weight", dtype, { 16, 16 }),
           MakeTensor(layer + "self_attn.k_proj.weight", dtype, { 8, 16 }),
           MakeTensor(layer + "self_attn.v_proj.weight", dtype, { 8, 16 }),
           MakeTensor(layer + "self_attn.o_proj.weight", dtype, { 16, 16 }),
           MakeTensor(layer + "post_attention_layernorm.weight", dtype, { 16 }),
           MakeTensor(layer + "mlp.gate_proj.weight", dtype, { 24, 16 }),
           MakeTensor(layer + "mlp.up_proj.weight", dtype, { 24, 16 }),
           MakeTensor(layer + "mlp.down_proj.weight", dtype, { 16, 24 }),
           MakeTensor("model.norm.weight", dtype, { 16 }) };
}

std::string TinyConfig(const std::string &more = "") {
  return "{\"model_type\": \"llama\", \"hidden_act\": \"silu\", \"hidden_size\": 16, \"intermediate_size\": 24, "
         "\"num_hidden_layers\": 1, \"num_attention_heads\": 2, \"num_key_value_heads\": 1, \"vocab_size\": 32, "
         "\"max_position_embeddings\": 64, \"rms_norm_eps\": 1e-5, \"tie_word_embeddings\": true" +
         more + "}";
}

std::string OpenError(const Folder &folder) {
  llama_model *model = nullptr;
  if (llama_model_open(folder.path(), &model) == 0) {
    llama_model_close(model);
    return "";
  }
  EXPECT_EQ(model, nullptr);
  EXPECT_STRNE(llama_message(), "");
  return llama_message();
}

std::string ConfigError(const std::string &text) {
  llama_config config;
  return llama_config_parse(text.data(), text.size(), &config) == 0 ? "" : llama_message();
}

#define EXPECT_SAYS(text, part) \
  EXPECT_NE((text).find(part), std::string::npos) << "it says: \"" << (text) << "\", not: \"" << (part) << "\""

// What the reader says of a model.safetensors beside a good config.
std::string FileError(const std::string &bytes) {
  Folder folder;
  folder.Write("config.json", TinyConfig());
  folder.Write("model.safetensors", bytes);
  return OpenError(folder);
}

// ------------------------------------------------------------------------------------------------------------- models

TEST(LlamaModel, ReadsAWholeModelOfEachType) {
  for (const char *dtype : { "F32", "F16", "BF16" }) {
    Folder folder;
    folder.Write("config.json", TinyConfig());
    folder.Write("model.safetensors", SafeTensors(TinyTensors(dtype)));
    llama_model *model = nullptr;
    ASSERT_EQ(llama_model_open(folder.path(), &model), 0) << llama_message();
    EXPECT_EQ(model->config.head_dim, 8);
    EXPECT_EQ(model->head, model->embedding);
    EXPECT_EQ(model->layers[0].down->shape[1], 24);
    EXPECT_EQ(model->has_tokenizer, 0);
    float values[8];
    uint16_t halves[8];
    llama_tensor_read(model->layers[0].q, 1, 8, CGR_DTYPE_FP32, values);
    llama_tensor_read(model->layers[0].q, 1, 8, CGR_DTYPE_BF16, halves);
    for (int i = 0; i < 8; i++) {
      float step = std::string(dtype) == "F16" ? 1.0f / 1024 : 1.0f / 128;
      float expected =
          std::string(dtype) == "F32" ? static_cast<float>((i + 1) % 7) - 3.0f : 1.0f + step * static_cast<float>((i + 1) % 5);
      uint32_t widened = static_cast<uint32_t>(halves[i]) << 16;
      float rounded;
      std::memcpy(&rounded, &widened, 4);
      EXPECT_EQ(values[i], expected) << dtype << " " << i;
      EXPECT_NEAR(rounded, expected, std::fabs(expected) / 256) << dtype << " " << i;
    }
    llama_model_close(model);
  }
}

TEST(LlamaModel, ReadsShards) {
  std::vector<Tensor> tensors = TinyTensors(), first(tensors.begin(), tensors.begin() + 4),
                      second(tensors.begin() + 4, tensors.end());
  std::string map;
  for (const Tensor &tensor : first)
    map += "\"" + tensor.name + "\":\"a.safetensors\",";
  for (const Tensor &tensor : second)
    map += "\"" + tensor.name + "\":\"b.safetensors\",";
  map.pop_back();
  Folder folder;
  folder.Write("config.json", TinyConfig());
  folder.Write("a.safetensors", SafeTensors(first));
  folder.Write("b.safetensors", SafeTensors(second));
  folder.Write("model.safetensors.index.json", "{\"metadata\":{},\"weight_map\":{" + map + "}}");
  EXPECT_EQ(OpenError(folder), "");
  folder.Write("model.safetensors.index.json", "{\"weight_map\":{" + map + ",\"extra\":\"a.safetensors\"}}");
  EXPECT_SAYS(OpenError(folder), "no file has the tensor extra");
  folder.Write("model.safetensors.index.json", "{\"weight_map\":{\"x\":\"../a.safetensors\"}}");
  EXPECT_SAYS(OpenError(folder), "does not name a file of the folder");
  folder.Write("model.safetensors.index.json", "{\"weight_map\":{\"x\":\"missing.safetensors\"}}");
  EXPECT_SAYS(OpenError(folder), "missing.safetensors");
  folder.Write("b.safetensors", SafeTensors(tensors));
  folder.Write("model.safetensors.index.json", "{\"weight_map\":{" + map + "}}");
  EXPECT_SAYS(OpenError(folder), "twice");
}

TEST(LlamaModel, RefusesMissingAndMisshapenTensors) {
  std::vector<Tensor> tensors = TinyTensors();
  tensors.pop_back();
  EXPECT_SAYS(FileError(SafeTensors(tensors)), "model.norm.weight: missing");
  tensors = TinyTensors();
  tensors[3] = MakeTensor(tensors[3].name, "BF16", { 16, 16 });
  EXPECT_SAYS(FileError(SafeTensors(tensors)), "k_proj.weight: expected shape [8, 16]");
  tensors = TinyTensors();
  tensors[1] = MakeTensor(tensors[1].name, "BF16", { 16, 1 });
  EXPECT_SAYS(FileError(SafeTensors(tensors)), "input_layernorm.weight: expected shape [16]");
  tensors = TinyTensors();
  tensors[2].dtype = "I16";
  EXPECT_SAYS(FileError(SafeTensors(tensors)), "q_proj.weight: expected a dtype");
  tensors = TinyTensors();
  tensors[2].dtype = "F7";
  EXPECT_SAYS(FileError(SafeTensors(tensors)), "unknown dtype F7");
  tensors = TinyTensors();
  tensors[2].dtype = "F32";
  EXPECT_SAYS(FileError(SafeTensors(tensors)), "bytes for");
}

TEST(LlamaModel, UntiedModelsNeedAHead) {
  Folder folder;
  std::string config = TinyConfig();
  config.replace(config.find("true"), 4, "false");
  folder.Write("config.json", config);
  std::vector<Tensor> tensors = TinyTensors();
  folder.Write("model.safetensors", SafeTensors(tensors));
  EXPECT_SAYS(OpenError(folder), "lm_head.weight: missing");
  tensors.push_back(MakeTensor("lm_head.weight", "F32", { 32, 16 }));
  folder.Write("model.safetensors", SafeTensors(tensors));
  EXPECT_EQ(OpenError(folder), "");
}

// ------------------------------------------------------------------------------------------------------- malformed files

TEST(LlamaModel, RefusesMalformedHeaders) {
  std::string good = SafeTensors(TinyTensors()), data(64, '\0');
  EXPECT_SAYS(FileError(""), "too few");
  EXPECT_SAYS(FileError(good.substr(0, 9)), "too few");
  EXPECT_SAYS(FileError(Length(1u << 20) + good.substr(8)), "a header of");
  EXPECT_SAYS(FileError(Length(~uint64_t{ 0 }) + good.substr(8)), "a header of");
  EXPECT_SAYS(FileError(Length(0) + good.substr(8)), "not JSON");
  EXPECT_SAYS(FileError(WithHeader("[1]", data)), "not a JSON object");
  EXPECT_SAYS(FileError(WithHeader("{}x", data)), "something follows");
  EXPECT_SAYS(FileError(WithHeader("{}", data)), "no tensors");
  EXPECT_SAYS(FileError(WithHeader("{\"t\":5}", data)), "expected an object");
  EXPECT_SAYS(FileError(WithHeader(std::string(200000, '['), data)), "not JSON");
  std::string deep;
  for (int i = 0; i < 100000; i++)
    deep += "{\"a\":";
  EXPECT_SAYS(FileError(WithHeader(deep, data)), "not JSON");
}

TEST(LlamaModel, RefusesMalformedTensors) {
  std::string data(64, '\0');
  auto one = [&](const std::string &shape, const std::string &offsets) {
    return FileError(WithHeader("{\"t\":{\"dtype\":\"F32\",\"shape\":" + shape + ",\"data_offsets\":" + offsets + "}}", data));
  };
  EXPECT_SAYS(one("[16]", "[0,64]"), "model.embed_tokens.weight: missing"); // well formed
  EXPECT_SAYS(one("[16]", "[0,65]"), "not inside");
  EXPECT_SAYS(one("[16]", "[64,0]"), "not inside");
  EXPECT_SAYS(one("[16]", "[-64,0]"), "whole number");
  EXPECT_SAYS(one("[16]", "[0,64.5]"), "whole number");
  EXPECT_SAYS(one("[16]", "[0,1e300]"), "whole number");
  EXPECT_SAYS(one("[16]", "[0]"), "two numbers");
  EXPECT_SAYS(one("[16]", "\"all\""), "two numbers");
  EXPECT_SAYS(one("[15]", "[0,64]"), "64 bytes for 15 elements");
  EXPECT_SAYS(one("[8]", "[0,32]"), "no tensor owns the last 32");
  EXPECT_SAYS(one("[8]", "[32,64]"), "leaves a hole");
  EXPECT_SAYS(one("[4294967296,4294967296]", "[0,64]"), "more than 2^46");
  EXPECT_SAYS(one("[9007199254740993]", "[0,64]"), "2^46");
  EXPECT_SAYS(one("[1,1,1,1,1,1,1,1,16]", "[0,64]"), "dimensions");
  EXPECT_SAYS(one("[-16]", "[0,64]"), "whole number");
  EXPECT_SAYS(one("16", "[0,64]"), "expected a list");
  EXPECT_SAYS(FileError(WithHeader("{\"a\":{\"dtype\":\"F32\",\"shape\":[8],\"data_offsets\":[0,32]},"
                                   "\"b\":{\"dtype\":\"F32\",\"shape\":[9],\"data_offsets\":[28,64]}}",
                                   data)),
              "overlaps");
  EXPECT_SAYS(FileError(WithHeader("{\"a\":{\"dtype\":\"F32\",\"shape\":[8],\"data_offsets\":[0,32]},"
                                   "\"a\":{\"dtype\":\"F32\",\"shape\":[8],\"data_offsets\":[32,64]}}",
                                   data)),
              "twice");
}

TEST(LlamaModel, RefusesEveryTruncation) {
  std::string good = SafeTensors(TinyTensors());
  for (size_t size = 0; size < good.size(); size += size < 2048 ? 41 : 509)
    EXPECT_NE(FileError(good.substr(0, size)), "") << size;
  EXPECT_NE(FileError(good + "x"), "");
  EXPECT_EQ(FileError(good), "");
}

TEST(LlamaModel, SurvivesMutations) {
  std::string good = SafeTensors(TinyTensors()),
              config = TinyConfig(",\"rope_parameters\":{\"rope_type\":\"llama3\",\"factor\":8}");
  std::mt19937 random(1);
  auto mutate = [&](std::string text, size_t range) {
    for (int n = 1 + static_cast<int>(random() % 3); n > 0; n--) {
      static const char kLikely[] = "0123456789-.eE,:[]{}\"\\ tfn\0\xff";
      size_t at = random() % std::min(range, text.size());
      switch (random() % 4) {
      case 0:
        text[at] = static_cast<char>(random());
        break;
      case 1:
        text[at] = kLikely[random() % (sizeof(kLikely) - 1)];
        break;
      case 2:
        text.erase(at, 1 + random() % 8);
        break;
      default:
        text.insert(at, text.substr(random() % std::min(range, text.size()), 1 + random() % 8));
        break;
      }
    }
    return text;
  };
  int refused = 0;
  for (int i = 0; i < 1500; i++) {
    Folder folder;
    folder.Write("config.json", i % 2 ? config : mutate(config, config.size()));
    folder.Write("model.safetensors", i % 2 ? mutate(good, 1500) : good);
    refused += OpenError(folder) != "";
  }
  EXPECT_GT(refused, 500); // most hit something that matters
}

TEST(LlamaModel, RefusesMissingFiles) {
  Folder folder;
  EXPECT_SAYS(OpenError(folder), "config.json");
  folder.Write("config.json", TinyConfig());
  EXPECT_SAYS(OpenError(folder), "neither model.safetensors nor");
}

// -------------------------------------------------------------------------------------------------------------- config

TEST(LlamaConfig, RefusesWhatItCannotRun) {
  EXPECT_EQ(ConfigError(TinyConfig()), "");
  EXPECT_SAYS(ConfigError("{}"), "hidden_size: missing");
  EXPECT_SAYS(ConfigError("{"), "not JSON");
  EXPECT_SAYS(ConfigError(""), "not JSON");
  EXPECT_SAYS(ConfigError("null"), "not a JSON object");
  EXPECT_SAYS(ConfigError(TinyConfig(",\"attention_bias\": true")), "attention_bias");
  EXPECT_SAYS(ConfigError(TinyConfig(",\"mlp_bias\": true")), "mlp_bias");
  EXPECT_SAYS(ConfigError(TinyConfig(",\"quantization_config\": {}")), "quantization_config");
  EXPECT_SAYS(ConfigError(TinyConfig(",\"head_dim\": 12")), "head_dim");
  EXPECT_SAYS(ConfigError(TinyConfig(",\"head_dim\": 1e9")), "head_dim");
  EXPECT_SAYS(ConfigError(TinyConfig(",\"rope_scaling\": {\"type\": \"yarn\", \"factor\": 2}")), "yarn");
  EXPECT_SAYS(ConfigError(TinyConfig(",\"rope_scaling\": {\"type\": \"linear\"}")), "factor: missing");
  EXPECT_SAYS(ConfigError(TinyConfig(",\"rope_scaling\": 4")), "expected an object");
  EXPECT_SAYS(ConfigError(TinyConfig(",\"rope_theta\": \"big\"")), "rope_theta");
  EXPECT_SAYS(ConfigError(TinyConfig(",\"eos_token_id\": [1,\"x\"]")), "eos_token_id");
  auto replaced = [](const std::string &from, const std::string &to) {
    std::string config = TinyConfig();
    return ConfigError(config.replace(config.find(from), from.size(), to));
  };
  EXPECT_SAYS(replaced("\"llama\"", "\"gpt2\""), "gpt2");
  EXPECT_SAYS(replaced("silu", "gelu"), "gelu");
  EXPECT_SAYS(replaced("\"vocab_size\": 32", "\"vocab_size\": 1e15"), "vocab_size");
  EXPECT_SAYS(replaced("\"vocab_size\": 32", "\"vocab_size\": -1"), "vocab_size");
  EXPECT_SAYS(replaced("\"vocab_size\": 32", "\"vocab_size\": 2.5"), "whole number");
  EXPECT_SAYS(replaced("heads\": 2", "heads\": 3"), "does not divide");
  EXPECT_SAYS(replaced("_value_heads\": 1", "_value_heads\": 0"), "num_key_value_heads");
}

TEST(LlamaConfig, ReadsTokens) {
  llama_config config;
  std::string text = TinyConfig(",\"bos_token_id\": 3, \"eos_token_id\": [1, 2, 999]");
  ASSERT_EQ(llama_config_parse(text.data(), text.size(), &config), 0);
  EXPECT_EQ(config.bos_token, 3);
  EXPECT_EQ(config.num_eos, 2); // 999 is outside the vocabulary
  text = TinyConfig(",\"bos_token_id\": null, \"eos_token_id\": null");
  ASSERT_EQ(llama_config_parse(text.data(), text.size(), &config), 0);
  EXPECT_EQ(config.bos_token, -1);
  EXPECT_EQ(config.num_eos, 0);
}

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

// How the example reads models: well-formed ones are read correctly, and all others end in a message.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "cgr/cgr.h"
#include "examples/llama/error.h"
#include "examples/llama/model.h"
#include "tests/examples/model_folder.h"

namespace {

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

// What the reader says of a model.safetensors next to a good config.
std::string FileError(const std::string &bytes) {
  Folder folder;
  folder.Write("config.json", TinyConfig());
  folder.Write("model.safetensors", bytes);
  return OpenError(folder);
}

// ------------------------------------------------------------------------------------------------------------- models

TEST(LlamaModel, ReadsAWholeModelOfEachType) {
  for (const char *dtype : { "F32", "F16", "BF16" }) {
    const Folder folder(TinyTensors(dtype));
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
  EXPECT_SAYS(FileError(SafeTensors(tensors)), "tensor model.norm.weight is missing");
  tensors = TinyTensors();
  tensors[3] = MakeTensor(tensors[3].name, "BF16", { 16, 16 });
  EXPECT_SAYS(FileError(SafeTensors(tensors)), "k_proj.weight has shape [16, 16], expected [8, 16]");
  tensors = TinyTensors();
  tensors[1] = MakeTensor(tensors[1].name, "BF16", { 16, 1 });
  EXPECT_SAYS(FileError(SafeTensors(tensors)), "input_layernorm.weight has shape [16, 1], expected [16]");
  tensors = TinyTensors();
  tensors[2].dtype = "I16";
  EXPECT_SAYS(FileError(SafeTensors(tensors)), "q_proj.weight has dtype I16, expected F32, F16 or BF16");
  tensors = TinyTensors();
  tensors[2].dtype = "F7";
  EXPECT_SAYS(FileError(SafeTensors(tensors)), "dtype is \"F7\", expected");
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
  EXPECT_SAYS(OpenError(folder), "tensor lm_head.weight is missing");
  EXPECT_SAYS(OpenError(folder), folder.path());
  tensors.push_back(MakeTensor("lm_head.weight", "F32", { 32, 16 }));
  folder.Write("model.safetensors", SafeTensors(tensors));
  EXPECT_EQ(OpenError(folder), "");
}

// ------------------------------------------------------------------------------------------------- biases and head norms

// What the reader says of a folder of this kind with these tensors.
std::string KindError(const std::string &members, const std::vector<Tensor> &tensors) {
  return OpenError(Folder(tensors, members));
}

// Each tensor that a kind has beyond a Llama's is required by name and shape.
void ExpectAllNeeded(const std::string &members, const std::vector<Tensor> &extras) {
  for (size_t i = 0; i <= extras.size(); i++) {
    std::vector<Tensor> tensors = TinyTensors();
    for (size_t k = 0; k < extras.size(); k++)
      if (k != i)
        tensors.push_back(extras[k]);
    if (i == extras.size()) {
      EXPECT_EQ(KindError(members, tensors), "") << members;
      continue;
    }
    EXPECT_SAYS(KindError(members, tensors), "tensor " + extras[i].name + " is missing, expected it for this config.json");
    tensors.push_back(MakeTensor(extras[i].name, "BF16", { 24 }));
    const std::string size = std::to_string(extras[i].shape[0]);
    EXPECT_SAYS(KindError(members, tensors), "tensor " + extras[i].name + " has shape [24], expected [" + size + "]");
  }
}

TEST(LlamaModel, NeedsWhatItsKindHas) {
  const std::string self = "model.layers.0.self_attn.";
  const std::vector<Tensor> qkv = { MakeTensor(self + "q_proj.bias", "BF16", { 16 }),
                                    MakeTensor(self + "k_proj.bias", "BF16", { 8 }),
                                    MakeTensor(self + "v_proj.bias", "BF16", { 8 }) };
  const std::vector<Tensor> norms = { MakeTensor(self + "q_norm.weight", "BF16", { 8 }),
                                      MakeTensor(self + "k_norm.weight", "BF16", { 8 }) };
  std::vector<Tensor> biases = qkv, all = norms;
  biases.push_back(MakeTensor(self + "o_proj.bias", "BF16", { 16 }));
  all.insert(all.end(), biases.begin(), biases.end());
  ExpectAllNeeded("", {});
  ExpectAllNeeded(", \"attention_bias\": true", biases);
  ExpectAllNeeded(", \"model_type\": \"mistral\"", {});
  ExpectAllNeeded(", \"model_type\": \"qwen2\"", qkv);
  ExpectAllNeeded(", \"model_type\": \"qwen3\", \"head_dim\": 8", norms);
  ExpectAllNeeded(", \"model_type\": \"qwen3\", \"head_dim\": 8, \"attention_bias\": true", all);
}

// -------------------------------------------------------------------------------------------------------------------- ties

// How a tied model with these tensors is read: "tied", "two", or the message.
std::string Tie(const std::vector<Tensor> &tensors) {
  const Folder folder(tensors);
  llama_model *model = nullptr;
  if (llama_model_open(folder.path(), &model) != 0)
    return llama_message();
  bool tied = model->head == model->embedding;
  EXPECT_EQ(model->tie_broken, !tied);
  EXPECT_NE(model->embedding, nullptr);
  llama_model_close(model);
  return tied ? "tied" : "two";
}

// As in transformers 5: a tie says what the file may leave out, and two tensors that differ stay two.
TEST(LlamaModel, TiesOnlyWhatIsEqual) {
  std::vector<Tensor> tensors = TinyTensors();
  EXPECT_EQ(Tie(tensors), "tied");
  Tensor head = tensors[0];
  head.name = "lm_head.weight";
  tensors.push_back(head);
  EXPECT_EQ(Tie(tensors), "tied");
  tensors.back().bytes[64] ^= 1;
  EXPECT_EQ(Tie(tensors), "two");
  tensors.back() = MakeTensor("lm_head.weight", "BF16", { 32, 8 });
  EXPECT_SAYS(Tie(tensors), "lm_head.weight has shape [32, 8], expected [32, 16]");
  tensors.back() = head;
  tensors.erase(tensors.begin());
  EXPECT_EQ(Tie(tensors), "tied"); // the head stands for both
  tensors.pop_back();
  EXPECT_SAYS(Tie(tensors), "model.embed_tokens.weight is missing");
}

TEST(LlamaModel, TiesEqualValuesOfDifferentTypes) {
  std::vector<Tensor> tensors = TinyTensors("F32"); // small whole numbers, exact in every type
  Tensor head{ "lm_head.weight", "BF16", { 32, 16 }, "" };
  for (size_t i = 0; i < tensors[0].bytes.size(); i += 4)
    head.bytes += tensors[0].bytes.substr(i + 2, 2);
  tensors.push_back(head);
  EXPECT_EQ(Tie(tensors), "tied");
  tensors.back().bytes[1] ^= 1;
  EXPECT_EQ(Tie(tensors), "two");
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
  EXPECT_SAYS(FileError(WithHeader("\xef\xbb\xbf{}", data)), "byte order mark");
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
  EXPECT_SAYS(one("[16]", "[0,64]"), "model.embed_tokens.weight is missing"); // well formed
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
              config = TinyConfig(",\"rope_parameters\":{\"rope_type\":\"llama3\",\"factor\":8,\"low_freq_factor\":1,"
                                  "\"high_freq_factor\":4,\"original_max_position_embeddings\":32}");
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

} // namespace

// Model folders that tests write themselves, and the smallest Llama.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "tests/support/commands.h"

struct Tensor {
  std::string name, dtype;
  std::vector<int64_t> shape;
  std::string bytes;
};

inline std::string Bits16(uint16_t bits) { return std::string(reinterpret_cast<const char *>(&bits), 2); }
inline std::string Bits32(float value) { return std::string(reinterpret_cast<const char *>(&value), 4); }

inline Tensor MakeTensor(const std::string &name, const std::string &dtype, const std::vector<int64_t> &shape) {
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

inline Tensor Zeros(const std::string &name, const std::vector<int64_t> &shape) {
  Tensor tensor = MakeTensor(name, "F32", shape);
  tensor.bytes.assign(tensor.bytes.size(), '\0');
  return tensor;
}

inline std::string Header(const std::vector<Tensor> &tensors) {
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

inline std::string Length(uint64_t length) { return std::string(reinterpret_cast<const char *>(&length), 8); }

inline std::string WithHeader(const std::string &header, const std::string &data) {
  return Length(header.size()) + header + data;
}

inline std::string SafeTensors(const std::vector<Tensor> &tensors) {
  std::string data;
  for (const Tensor &tensor : tensors)
    data += tensor.bytes;
  return WithHeader(Header(tensors), data);
}

// A Llama with one layer, hidden size 16, 2 query heads and 1 KV head of 8, intermediate size 24, 32 tokens.
inline std::vector<Tensor> TinyTensors(const std::string &dtype = "BF16") {
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

inline std::string TinyConfig(const std::string &more = "") {
  return "{\"model_type\": \"llama\", \"hidden_act\": \"silu\", \"hidden_size\": 16, \"intermediate_size\": 24, "
         "\"num_hidden_layers\": 1, \"num_attention_heads\": 2, \"num_key_value_heads\": 1, \"vocab_size\": 32, "
         "\"max_position_embeddings\": 64, \"rms_norm_eps\": 1e-5, \"tie_word_embeddings\": true" +
         more + "}";
}

// What a test reads and writes; with tensors, a model of them.
class Folder : public cgr_test::Folder {
public:
  Folder() = default;
  explicit Folder(const std::vector<Tensor> &tensors, const std::string &members = "") {
    Write("config.json", TinyConfig(members));
    Write("model.safetensors", SafeTensors(tensors));
  }
  std::string File(const std::string &name) const { return std::string(path()) + "/" + name; }
  const char *path() const { return cgr_test::Folder::path().c_str(); }
};

// The program; Bazel builds it for the host alone as well, without cuBLAS, CMake does not.
inline cgr_test::Outcome RunOnHost(const std::string &arguments, const std::string &environment = "") {
  const std::string host = "examples/llama/llama_host", program = cgr_test::fs::exists(host) ? host : "examples/llama/llama";
  return cgr_test::RunCommand(environment + program + " --device host " + arguments);
}

#define EXPECT_SAYS(text, part) \
  EXPECT_NE((text).find(part), std::string::npos) << "it says: \"" << (text) << "\", not: \"" << (part) << "\""

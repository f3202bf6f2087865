// A model that counts, and the example as a program that runs it.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/examples/model_folder.h"

constexpr int kVocab = 16;

inline void Set(Tensor *tensor, int row, int column, float value) {
  std::memcpy(&tensor->bytes[4 * static_cast<size_t>(row * tensor->shape.back() + column)], &value, 4);
}

inline Tensor Filled(const std::string &name, int size, float value) {
  Tensor tensor = Zeros(name, { size });
  for (int i = 0; i < size; i++)
    Set(&tensor, 0, i, value);
  return tensor;
}
inline Tensor Ones(const std::string &name) { return Filled(name, kVocab, 1.0f); }

// Attention and MLP add nothing, and a token's vector is its own axis: only the head says what follows. After t comes t + 1.
inline std::vector<Tensor> CountingTensors() {
  const std::string layer = "model.layers.0.";
  Tensor embedding = Zeros("model.embed_tokens.weight", { kVocab, kVocab });
  Tensor head = Zeros("lm_head.weight", { kVocab, kVocab });
  for (int t = 0; t < kVocab; t++) {
    Set(&embedding, t, t, 1.0f);
    Set(&head, (t + 1) % kVocab, t, 1.0f);
  }
  return { embedding,
           head,
           Ones(layer + "input_layernorm.weight"),
           Zeros(layer + "self_attn.q_proj.weight", { 16, kVocab }),
           Zeros(layer + "self_attn.k_proj.weight", { 8, kVocab }),
           Zeros(layer + "self_attn.v_proj.weight", { 8, kVocab }),
           Zeros(layer + "self_attn.o_proj.weight", { kVocab, 16 }),
           Ones(layer + "post_attention_layernorm.weight"),
           Zeros(layer + "mlp.gate_proj.weight", { 24, kVocab }),
           Zeros(layer + "mlp.up_proj.weight", { 24, kVocab }),
           Zeros(layer + "mlp.down_proj.weight", { kVocab, 24 }),
           Ones("model.norm.weight") };
}

struct CountingFolder : Folder {
  explicit CountingFolder(const std::vector<Tensor> &tensors = CountingTensors(), const std::string &members = "")
      : Folder(tensors, ", \"vocab_size\": 16, \"tie_word_embeddings\": false, \"max_position_embeddings\": 512" + members) {}
};

// The n tokens that follow `last`, "4,5,6".
inline std::string Counted(int last, int n) {
  std::string text;
  for (int i = 1; i <= n; i++)
    text += (i > 1 ? "," : "") + std::to_string((last + i) % kVocab);
  return text;
}

using cgr_test::Outcome;

inline Outcome RunProgram(const std::string &arguments) {
  return cgr_test::RunCommand("examples/llama/llama --device host " + arguments);
}

inline Outcome RunModel(const Folder &folder, const std::string &arguments) {
  return RunProgram("--model " + std::string(folder.path()) + " --temperature 0 " + arguments);
}

// How busy memory and tensor cores were, as reckoned from bytes and operations.
#include <gtest/gtest.h>

#include "examples/llama/overlap.h"

namespace {

// 3 layers, 4 query and 2 KV heads of 8, hidden 16, inner 32, 100 words.
llama_model Model(bool tied) {
  llama_model model = {};
  model.config.num_layers = 3;
  model.config.num_q_heads = 4, model.config.num_kv_heads = 2, model.config.head_dim = 8;
  model.config.hidden_size = 16, model.config.intermediate_size = 32, model.config.vocab_size = 100;
  model.config.tied = tied;
  return model;
}

TEST(LlamaOverlap, CountsWhatARequestReadsAndMultiplies) {
  llama_demand load = {};
  llama_demand_add_request(&load, 10, 1); // one query sees 11 keys
  EXPECT_EQ(load.tokens, 1);
  EXPECT_EQ(load.keys, 11);
  EXPECT_EQ(load.pairs, 11);
  llama_demand_add_request(&load, 5, 3); // three see 6, 7 and 8
  EXPECT_EQ(load.tokens, 4);
  EXPECT_EQ(load.keys, 19);
  EXPECT_EQ(load.pairs, 32);
}

TEST(LlamaOverlap, DoesNotOverflow) {
  llama_demand load = {};
  llama_demand_add_request(&load, 1 << 30, 1 << 29);
  EXPECT_EQ(load.pairs, (int64_t{ 1 } << 59) + (int64_t{ 1 } << 57) + (int64_t{ 1 } << 28));
}

TEST(LlamaOverlap, AddsSteps) {
  llama_demand sum = { 1, 2, 3, 4, 0.5 };
  const llama_demand step = { 1, 10, 20, 30, 0.25 };
  llama_demand_add(&sum, &step);
  EXPECT_EQ(sum.steps, 2);
  EXPECT_EQ(sum.tokens, 12);
  EXPECT_EQ(sum.keys, 23);
  EXPECT_EQ(sum.pairs, 34);
  EXPECT_DOUBLE_EQ(sum.seconds, 0.75);
}

// An embedding of its own is not read as a whole: tied or not, a step reads the same.
TEST(LlamaOverlap, TakesTheWeightsThatAStepReads) {
  const llama_demand load = { 2, 7, 50, 90, 1.0 };
  const int64_t layer = 2 * 16 + 2 * 32 * 16 + 2 * 16 * 16 + 3 * 16 * 32, weights = 100 * 16 + 3 * layer + 16;
  for (bool tied : { false, true }) {
    const llama_model model = Model(tied);
    EXPECT_DOUBLE_EQ(llama_demand_bytes(&load, &model, { 2, 2 }), 2.0 * double(2 * weights + 2 * 3 * 2 * 8 * 50));
    EXPECT_DOUBLE_EQ(llama_demand_bytes(&load, &model, { 4, 1 }), double(4 * 2 * weights + 2 * 3 * 2 * 8 * 50));
    EXPECT_DOUBLE_EQ(llama_demand_operations(&load, &model), double(2 * weights * 7 + 4 * 3 * 4 * 8 * 90));
  }
}

TEST(LlamaOverlap, IsAShareOfTheTime) {
  const llama_model model = Model(true);
  const llama_demand load = { 1, 7, 50, 90, 2.0 };
  const double bytes = llama_demand_bytes(&load, &model, { 2, 2 }), operations = llama_demand_operations(&load, &model);
  llama_overlap o = llama_overlap_of(&load, &model, { 2, 2 }, bytes, operations); // each takes 1 of 2 seconds
  EXPECT_DOUBLE_EQ(o.memory, 0.5);
  EXPECT_DOUBLE_EQ(o.tensor_cores, 0.5);
  EXPECT_DOUBLE_EQ(o.both, 0.0);
  o = llama_overlap_of(&load, &model, { 2, 2 }, bytes / 1.5, operations / 1.5);
  EXPECT_DOUBLE_EQ(o.memory, 0.75);
  EXPECT_DOUBLE_EQ(o.both, 0.5);
  o = llama_overlap_of(&load, &model, { 2, 2 }, bytes / 4.0, operations); // more than the time: the rates were too low
  EXPECT_DOUBLE_EQ(o.memory, 1.0);
  EXPECT_DOUBLE_EQ(o.both, 0.5);
  o = llama_overlap_of(&load, &model, { 2, 2 }, bytes, 0.0); // not known
  EXPECT_DOUBLE_EQ(o.tensor_cores, 0.0);
  const llama_demand none = {};
  o = llama_overlap_of(&none, &model, { 2, 2 }, 1.0, 1.0);
  EXPECT_DOUBLE_EQ(o.memory + o.tensor_cores + o.both, 0.0);
}

} // namespace

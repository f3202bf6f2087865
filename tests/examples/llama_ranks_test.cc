// The example on several ranks, processes on the host device: each rank's logits are those of one rank, and tokens are equal
// wherever that decides them; graphs of every kind do what eager steps do; who ends or does not come is named.
#include <signal.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <random>

#include "examples/llama/error.h"
#include "examples/llama/split.h"
#include "tests/examples/model_folder.h"
#include "tests/support/seed.h"

namespace {

using cgr_test::Outcome;

// ------------------------------------------------------------------------------------------------------------------- models

struct Shape {
  const char *name;
  int q_heads, kv_heads, vocab;
  std::string members; // of config.json
  bool tied = true;
};

constexpr int kHidden = 64, kHead = 16, kInner = 64, kLayers = 2;

void PrintTo(const Shape &shape, std::ostream *out) { *out << shape.name; }

std::string ConfigOf(const Shape &shape) {
  const auto number = [](const char *name, int value) { return std::string(", \"") + name + "\": " + std::to_string(value); };
  return TinyConfig(number("hidden_size", kHidden) + number("intermediate_size", kInner) + number("num_hidden_layers", kLayers) +
                    number("num_attention_heads", shape.q_heads) + number("num_key_value_heads", shape.kv_heads) +
                    number("head_dim", kHead) + number("vocab_size", shape.vocab) + number("max_position_embeddings", 512) +
                    ", \"tie_word_embeddings\": " + (shape.tied ? "true" : "false") + shape.members);
}

class RandomModel : public Folder {
public:
  explicit RandomModel(const Shape &shape) : engine_(1) {
    const int q = shape.q_heads * kHead, kv = shape.kv_heads * kHead;
    Add("model.embed_tokens.weight", { shape.vocab, kHidden }, 1.0f);
    if (!shape.tied)
      Add("lm_head.weight", { shape.vocab, kHidden }, 0.3f);
    for (int l = 0; l < kLayers; l++)
      AddLayer("model.layers." + std::to_string(l) + ".", shape, q, kv);
    Add("model.norm.weight", { kHidden }, 0.2f);
    Write("config.json", ConfigOf(shape));
    Write("model.safetensors", SafeTensors(tensors_));
  }

private:
  void AddLayer(const std::string &layer, const Shape &shape, int q, int kv) {
    const bool norms = shape.members.find("qwen3") != std::string::npos;
    Add(layer + "input_layernorm.weight", { kHidden }, 0.2f);
    Add(layer + "post_attention_layernorm.weight", { kHidden }, 0.2f);
    const std::vector<std::pair<std::string, int>> projections = { { "q_proj", q }, { "k_proj", kv }, { "v_proj", kv } };
    for (const auto &[name, rows] : projections) {
      Add(layer + "self_attn." + name + ".weight", { rows, kHidden }, 0.2f);
      if (HasBias(shape))
        Add(layer + "self_attn." + name + ".bias", { rows }, 0.5f);
    }
    Add(layer + "self_attn.o_proj.weight", { kHidden, q }, 0.2f);
    if (HasBias(shape))
      Add(layer + "self_attn.o_proj.bias", { kHidden }, 0.5f);
    for (const char *name : { "q_norm", "k_norm" })
      if (norms)
        Add(layer + "self_attn." + name + ".weight", { kHead }, 0.3f);
    Add(layer + "mlp.gate_proj.weight", { kInner, kHidden }, 0.2f);
    Add(layer + "mlp.up_proj.weight", { kInner, kHidden }, 0.2f);
    Add(layer + "mlp.down_proj.weight", { kHidden, kInner }, 0.2f);
  }
  static bool HasBias(const Shape &shape) { return shape.members.find("attention_bias") != std::string::npos; }

  // Normal numbers; norms have a mean of 1.
  void Add(const std::string &name, const std::vector<int64_t> &shape, float deviation) {
    const bool norm = name.find("norm") != std::string::npos;
    std::normal_distribution<float> normal(norm ? 1.0f : 0.0f, deviation);
    Tensor tensor{ name, "F32", shape, "" };
    for (int64_t i = 0; i < shape[0] * (shape.size() > 1 ? shape[1] : 1); i++)
      tensor.bytes += Bits32(normal(engine_));
    tensors_.push_back(tensor);
  }

  std::mt19937 engine_;
  std::vector<Tensor> tensors_;
};

// Four ranks have a KV head each, share two, or have two of eight; biases and norms of heads; a vocabulary that is not split.
const Shape kShapes[] = {
  { "AKVHeadEach", 8, 4, 96, "" },
  { "SharedKVHeads", 4, 2, 96, ", \"attention_bias\": true" },
  { "OneKVHead", 4, 1, 128, "", false },
  { "TwoKVHeadsEach", 8, 8, 128, ", \"model_type\": \"qwen3\", \"attention_bias\": true", false },
  { "WholeVocabulary", 8, 4, 100, ", \"model_type\": \"qwen3\"", false },
};

// ------------------------------------------------------------------------------------------------------------------- logits

// Of requests at positions.
using Logits = std::map<std::pair<int32_t, int32_t>, std::vector<float>>;
struct Sampled {
  Logits logits;
  std::map<std::pair<int32_t, int32_t>, int32_t> tokens;
};

// Adds what a rank has written, which may be a part of the vocabulary, after what is there already.
void Read(const std::string &bytes, Sampled *sampled) {
  int32_t head[4], record[4];
  ASSERT_GT(bytes.size(), sizeof head);
  std::memcpy(head, bytes.data(), sizeof head);
  const size_t row = static_cast<size_t>(head[1]) * sizeof(float);
  for (size_t at = sizeof head; at + sizeof record + row <= bytes.size(); at += sizeof record + row) {
    std::memcpy(record, &bytes[at], sizeof record);
    std::vector<float> values(static_cast<size_t>(head[1]));
    std::memcpy(values.data(), &bytes[at + sizeof record], row);
    std::vector<float> &all = sampled->logits[{ record[0], record[1] }];
    all.insert(all.end(), values.begin(), values.end());
    const auto [place, added] = sampled->tokens.insert({ { record[0], record[1] }, record[2] });
    EXPECT_TRUE(added || place->second == record[2]) << "ranks have sampled different tokens";
  }
}

std::string ForcedIds(const Sampled &one, int request) {
  std::string ids;
  for (const auto &[where, token] : one.tokens)
    if (where.first == request)
      ids += (ids.empty() ? "" : ",") + std::to_string(token);
  return ids.substr(0, ids.rfind(','));
}

constexpr const char *kPrompts =
    " --prompt-ids 1,2,3,4,5,6,7 --prompt-ids 9 --prompt-ids 11,3,8,2,50,3,7,9,21,5,1,6,17,2,40,3,4 ";

// Every rank feeds the tokens of `one`, if it has any. The ranks' parts are put together if they are parts.
Sampled RunRanks(const Folder &folder, int ranks, size_t vocab, const std::string &arguments, const Sampled *one = nullptr) {
  std::string command =
      "--temperature 0 --quiet --concurrent 2 --chunk 5 --tokens 24 --logits " + folder.File("logits") + kPrompts;
  for (int i = 0; one != nullptr && i < 3; i++)
    command += " --force-ids " + ForcedIds(*one, i);
  const Outcome outcome = RunOnHost(command + " " + arguments + (ranks > 1 ? " --tp " + std::to_string(ranks) : ""));
  EXPECT_EQ(outcome.status, 0) << outcome.text;
  Sampled sampled;
  for (int r = 0; r < ranks; r++) {
    Sampled own;
    Read(folder.Read(r == 0 ? "logits" : "logits." + std::to_string(r)), &own);
    if (own.logits.begin()->second.size() == vocab && r > 0) { // not split: the same on each rank
      EXPECT_EQ(own.logits, sampled.logits) << "rank " << r;
      EXPECT_EQ(own.tokens, sampled.tokens) << "rank " << r;
      continue;
    }
    Read(folder.Read(r == 0 ? "logits" : "logits." + std::to_string(r)), &sampled);
  }
  return sampled;
}

// Logits within a share of the row's largest one, and equal tokens wherever the best is ahead by more than twice that.
void ExpectClose(const Sampled &one, const Sampled &many, float share) {
  int decided = 0;
  ASSERT_EQ(one.logits.size(), many.logits.size());
  for (const auto &[where, expected] : one.logits) {
    const std::vector<float> &got = many.logits.at(where);
    ASSERT_EQ(got.size(), expected.size());
    std::vector<float> sorted = expected;
    std::sort(sorted.rbegin(), sorted.rend());
    const float bound = share * std::max(sorted.front(), -sorted.back());
    for (size_t i = 0; i < got.size(); i++)
      ASSERT_NEAR(got[i], expected[i], bound) << "request " << where.first << ", position " << where.second << ", token " << i;
    if (sorted[0] - sorted[1] <= 2 * bound)
      continue;
    decided++;
    EXPECT_EQ(many.tokens.at(where), one.tokens.at(where)) << "request " << where.first << ", position " << where.second;
  }
  EXPECT_GT(decided, static_cast<int>(one.logits.size()) / 3);
}

class LlamaRanks : public ::testing::TestWithParam<Shape> {};

TEST_P(LlamaRanks, ComputeWhatOneComputes) {
  const RandomModel model(GetParam());
  const size_t vocab = static_cast<size_t>(GetParam().vocab);
  for (const auto &[dtype, share] : { std::pair("fp32", 2e-5f), std::pair("bf16", 0.04f) }) {
    const std::string arguments = std::string("--model ") + model.path() + " --dtype " + dtype;
    const Sampled one = RunRanks(model, 1, vocab, arguments);
    ASSERT_EQ(one.logits.size(), 3u * 24u);
    for (const int ranks : { 2, 4 })
      ExpectClose(one, RunRanks(model, ranks, vocab, arguments, &one), share);
  }
}

// Each rank compares its own steps, replayed and eager, in every mode.
TEST_P(LlamaRanks, ReplayWhatEagerStepsDo) {
  const RandomModel model(GetParam());
  const Outcome outcome = RunOnHost("--check --steps 100 --concurrent 5 --tp 2 --model " + std::string(model.path()));
  EXPECT_EQ(outcome.status, 0) << outcome.text;
  for (const char *mode : { "full", "piecewise", "full and piecewise", "full decode only" })
    EXPECT_SAYS(outcome.text, std::string("Graph mode ") + mode + ": 100 steps compared with eager ones, ");
}
INSTANTIATE_TEST_SUITE_P(Of, LlamaRanks, ::testing::ValuesIn(kShapes),
                         [](const auto &shape) { return std::string(shape.param.name); });

TEST(LlamaRanksProgram, ChecksFourRanks) {
  const RandomModel model(kShapes[1]);
  const Outcome outcome =
      RunOnHost("--check --steps 60 --concurrent 3 --tp 4 --mode full-and-piecewise --model " + std::string(model.path()));
  EXPECT_EQ(outcome.status, 0) << outcome.text;
  EXPECT_SAYS(outcome.text, "Graph mode full and piecewise: 60 steps compared with eager ones, ");
}

// Random weights are parts of the same matrices.
TEST(LlamaRanksProgram, ShareRandomWeights) {
  const Folder folder;
  const Sampled one = RunRanks(folder, 1, 512, "--random-weights tiny");
  ExpectClose(one, RunRanks(folder, 2, 512, "--random-weights tiny", &one), 2e-5f);
}

// A model without an opinion: its tokens are the noise, of which each rank draws that of its own part of the vocabulary.
TEST(LlamaRanksProgram, DrawTheTokensOfOne) {
  const Shape shape = { "", 4, 2, 96, "", false };
  const Folder folder;
  RandomModel model(shape);
  std::string bytes = model.Read("model.safetensors");
  const size_t header = 8 + static_cast<size_t>(static_cast<unsigned char>(bytes[0])) +
                        256 * static_cast<size_t>(static_cast<unsigned char>(bytes[1])),
               matrix = 96 * kHidden * sizeof(float);
  std::fill_n(bytes.begin() + static_cast<std::ptrdiff_t>(header + matrix), matrix, '\0'); // lm_head, after the embedding
  model.Write("model.safetensors", bytes);
  const auto tokens = [&](const std::string &arguments, const std::string &file) {
    const Outcome outcome = RunOnHost("--temperature 1 --quiet --tokens 40 --requests 5 --json " + folder.File("out.json") +
                                      kPrompts + "--model " + model.path() + arguments);
    EXPECT_EQ(outcome.status, 0) << outcome.text;
    const std::string text = folder.Read(file);
    return text.substr(text.find("\"requests\": ["));
  };
  const std::string one = tokens("", "out.json");
  for (const char *ranks : { " --tp 2", " --tp 4" }) {
    EXPECT_EQ(tokens(ranks, "out.json"), one) << ranks;
    EXPECT_EQ(tokens(ranks, "out.json.1"), one) << ranks;
  }
}

// Guesses are verified on each rank, from the tokens that all have picked.
TEST(LlamaRanksProgram, VerifyGuesses) {
  const Outcome outcome =
      RunOnHost("--check --steps 20 --concurrent 4 --tp 2 --mode full --draft lookup --random-weights tiny --dtype fp32");
  EXPECT_EQ(outcome.status, 0) << outcome.text;
  EXPECT_SAYS(outcome.text, " guesses accepted.\n");
}

TEST(LlamaRanksProgram, MeasureTogether) {
  const Folder folder;
  const Outcome outcome = RunOnHost("--bench --bench-requests 2 --bench-contexts 20 --bench-repetitions 1 --random-weights tiny "
                                    "--tp 2 --json " +
                                    folder.File("out.json"));
  EXPECT_EQ(outcome.status, 0) << outcome.text;
  EXPECT_SAYS(outcome.text, "| tg128 @ 20 | 2 | ");
  for (const char *file : { "out.json", "out.json.1" })
    EXPECT_SAYS(folder.Read(file), "\"ranks\":\t2,");
}

TEST(LlamaRanksProgram, TellOfEachRank) {
  const RandomModel model(kShapes[0]);
  const Outcome outcome = RunOnHost(std::string("--tokens 9 --quiet --stats --tp 2 --metrics ") + model.File("metrics") +
                                    kPrompts + "--model " + model.path());
  ASSERT_EQ(outcome.status, 0) << outcome.text;
  const size_t first = outcome.text.find("\nrank 0 of 2\n"), second = outcome.text.find("\nrank 1 of 2\n");
  ASSERT_TRUE(first < second && second != std::string::npos) << outcome.text;
  for (const size_t at : { first, second }) {
    EXPECT_NE(outcome.text.find("\ndecode   full ", at), std::string::npos) << outcome.text;
    EXPECT_NE(outcome.text.find("\nranks agree in ", at), std::string::npos) << outcome.text;
    EXPECT_NE(outcome.text.find("\n  full      forced ", at), std::string::npos) << "not the agreed key: " << outcome.text;
  }
  EXPECT_SAYS(model.Read("metrics"), "# TYPE cgr_steps_total counter\n");
  EXPECT_EQ(model.Read("metrics.1").substr(0, 80), model.Read("metrics").substr(0, 80));
}

// ----------------------------------------------------------------------------------------------------------- who is missing

// A process of its own for each rank, as a launcher makes them.
struct Launched {
  std::vector<pid_t> processes;
  std::vector<Outcome> ends;
};

std::string NameOfRun() {
  static int number = 0;
  return "llama_ranks_test." + std::to_string(getpid()) + "." + std::to_string(number++);
}

// '@' in the arguments stands for the rank.
void Launch(Launched *run, int ranks, const Folder &folder, const std::string &arguments) {
  const std::string name = NameOfRun(), host = "examples/llama/llama_host",
                    program = cgr_test::fs::exists(host) ? host : "examples/llama/llama";
  for (int r = 0; r < ranks; r++) {
    std::string command =
        "exec " + program + " --device host --join " + name + " --rank @ " + arguments + " >" + folder.File("end.@") + " 2>&1";
    for (size_t at; (at = command.find('@')) != std::string::npos;)
      command.replace(at, 1, std::to_string(r));
    run->processes.push_back(fork());
    if (run->processes.back() == 0) {
      execl("/bin/sh", "sh", "-c", command.c_str(), nullptr);
      _exit(127);
    }
  }
}

void WaitForAll(Launched *run, const Folder &folder) {
  for (size_t r = 0; r < run->processes.size(); r++) {
    int how = 0;
    waitpid(run->processes[r], &how, 0);
    run->ends.push_back({ WIFEXITED(how) ? WEXITSTATUS(how) : -WTERMSIG(how), folder.Read("end." + std::to_string(r)) });
  }
}

// Rank 0 has said so much: it is printed after all have met, or after all have captured.
void WaitUntilItSays(const Folder &folder, const std::string &text) {
  for (int i = 0; i < 2000 && folder.Read("end.0").find(text) == std::string::npos; i++)
    usleep(5000);
  EXPECT_SAYS(folder.Read("end.0"), text);
}

// At any moment of loading, capturing and serving.
TEST(LlamaRanksFaults, AnEndedRankIsNamed) {
  const RandomModel model(kShapes[1]);
  cgr_test::SeededRandom random;
  int served = 0;
  for (int time = 0; time < 8 && !HasFailure(); time++) {
    const Folder folder;
    const int ranks = 4, victim = random.Pick32(0, ranks - 1);
    const useconds_t after = static_cast<useconds_t>(random.Pick(0, 200000));
    Launched run;
    Launch(&run, ranks, folder,
           "--tp 4 --quiet --tokens 400 --requests 500 --prompt-ids 1,2,3 --temperature 0 --model " + std::string(model.path()));
    WaitUntilItSays(folder, time % 2 == 0 ? "cgr " : "ready after");
    usleep(after);
    kill(run.processes[static_cast<size_t>(victim)], SIGKILL);
    const auto begin = std::chrono::steady_clock::now();
    WaitForAll(&run, folder);
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20));
    const std::string named = "rank " + std::to_string(victim);
    for (int r = 0; r < ranks; r++) {
      const Outcome &end = run.ends[static_cast<size_t>(r)];
      EXPECT_EQ(end.status, r == victim ? -SIGKILL : 1) << "rank " << r << " after " << after << " us: " << end.text;
      served += end.text.find("ready after") != std::string::npos;
      if (r != victim) {
        EXPECT_SAYS(end.text.substr(end.text.rfind("llama: rank ") + 14), named) << "rank " << r << " after " << after << " us";
      }
    }
  }
  EXPECT_GT(served, 0) << "no rank was killed in a step";
}

// It is there, but does not come: the others say which step hangs, and end. With logits they wait for each step, without for each
// agreement.
TEST(LlamaRanksFaults, AStoppedRankIsWaitedForUntilTheTimeIsOver) {
  const RandomModel model(kShapes[1]);
  for (const bool logits : { false, true })
    for (int time = 0; time < 2; time++) {
      const Folder folder;
      Launched run;
      Launch(&run, 2, folder,
             std::string("--tp 2 --rank-timeout 500 --quiet --tokens 400 --requests 500 --prompt-ids 1,2,3 --temperature 0 ") +
                 (logits ? "--logits " + folder.File("logits") + " " : "") + "--model " + model.path());
      WaitUntilItSays(folder, "ready after");
      usleep(50000);
      kill(run.processes[1], SIGSTOP);
      int how = 0;
      waitpid(run.processes[0], &how, 0);
      kill(run.processes[1], SIGKILL);
      waitpid(run.processes[1], nullptr, 0);
      const std::string text = folder.Read("end.0");
      EXPECT_TRUE(WIFEXITED(how) && WEXITSTATUS(how) == 1) << text;
      EXPECT_SAYS(text, "\nrank 0 (this one): in "); // the report, after a line that says who hangs or waits
      EXPECT_SAYS(text, "\nrank 1: in ");            // what each is at
      EXPECT_TRUE(text.find("a rank does not come") != std::string::npos ||
                  text.find("not here within 500 ms: rank 1") != std::string::npos)
          << text;
    }
}

// The program's own processes: it ends with them.
TEST(LlamaRanksFaults, AFailureOfAllIsTold) {
  const Folder folder;
  const RandomModel model(kShapes[0]);
  std::string bytes = model.Read("model.safetensors");
  const float broken = std::nanf("");
  std::memcpy(&bytes[bytes.size() - sizeof broken], &broken, sizeof broken); // of the last norm
  model.Write("model.safetensors", bytes);
  const Outcome outcome = RunOnHost(std::string("--quiet --tokens 9 --prompt-ids 1,2,3 --tp 2 --model ") + model.path());
  EXPECT_EQ(outcome.status, 1);
  EXPECT_SAYS(outcome.text, "llama: rank 0: request 0: a logit at position 2 is NaN or Inf");
  EXPECT_SAYS(outcome.text, " has failed\n");
}

// ---------------------------------------------------------------------------------------------------------------- refusals

void ExpectRefused(const std::string &environment, const std::string &arguments, const std::string &message) {
  const Outcome outcome = RunOnHost(arguments, environment);
  EXPECT_EQ(outcome.status, 1) << arguments;
  EXPECT_EQ(outcome.text, "llama: " + message + "\n");
}

TEST(LlamaRanksRefused, WhatCannotBeSplit) {
  ExpectRefused("", "--tp 3", "--tp is 3, and the model's num_attention_heads is 4, expected a multiple of 3");
  const Shape shape = { "", 6, 3, 96, ", \"model_type\": \"qwen3\"" };
  const RandomModel model(shape);
  const std::string folder = std::string(" --prompt-ids 1 --model ") + model.path();
  ExpectRefused("", "--tp 2" + folder,
                "--tp is 2, and the model's num_key_value_heads is 3, expected a multiple or a divisor of it");
  ExpectRefused("", "--tp 3" + folder, "--tp is 3, and the model's intermediate_size is 64, expected a multiple of 24");
  ExpectRefused("WORLD_SIZE=3 RANK=0 ", "--join " + NameOfRun() + folder,
                "rank 0: --tp is 3, and the model's intermediate_size is 64, expected a multiple of 24");
}

TEST(LlamaRanksRefused, PlacesThatARankCannotHave) {
  ExpectRefused("", "--rank 1", "--rank is 1, expected --join with it");
  ExpectRefused("", "--join a", "--join is a, expected --tp with it, or WORLD_SIZE in the environment");
  ExpectRefused("", "--join a --tp 2", "--join is a, expected --rank with it, or RANK in the environment");
  ExpectRefused("", "--join a --tp 2 --rank 2", "--rank is 2, expected 0 to 1");
  ExpectRefused("RANK=2 ", "--join a --tp 2", "RANK is 2 in the environment, expected a whole number from 0 to 1");
  ExpectRefused("WORLD_SIZE=x ", "--join a", "WORLD_SIZE is x in the environment, expected a whole number from 1 to 64");
  ExpectRefused("", "--tp 2 --device cuda:1",
                "--device is cuda:1, expected host or cuda with --tp: each rank has a GPU of its own");
}

TEST(LlamaRanksRefused, OtherOptionsThanTheOthers) {
  const Folder folder;
  Launched run;
  Launch(&run, 2, folder, "--tp 2 --tokens 3@");
  WaitForAll(&run, folder);
  for (const Outcome &end : run.ends) {
    EXPECT_EQ(end.status, 1);
    EXPECT_SAYS(end.text, "rank 1 has other options than rank 0, expected the same but for --rank");
  }
}

// ------------------------------------------------------------------------------------------------------------------- spans

// All ranks together have everything, once; but KV heads that are fewer than they, which query heads choose.
TEST(LlamaSplit, CoversTheModel) {
  for (const int ranks : { 1, 2, 4, 8 })
    for (const int kv_heads : { 1, 2, 4, 8 }) {
      llama_config whole = {};
      whole.num_q_heads = 16, whole.num_kv_heads = kv_heads, whole.intermediate_size = 128, whole.vocab_size = 640;
      ASSERT_EQ(llama_split_check(&whole, ranks), 0) << llama_message();
      int64_t q = 0, inner = 0, vocab = 0;
      for (int r = 0; r < ranks; r++) {
        const llama_split split = { r, ranks };
        const llama_span kv = llama_split_kv_heads(&whole, split), heads = llama_split_q_heads(&whole, split);
        const llama_config part = llama_split_config(&whole, split);
        EXPECT_EQ(heads.first, q);
        EXPECT_EQ(llama_split_inner(&whole, split).first, inner);
        EXPECT_EQ(llama_split_vocab(&whole, split).first, vocab);
        for (int64_t h = 0; h < heads.count; h++) // the part's own grouping finds the head that the model's does
          EXPECT_EQ(kv.first + h / (part.num_q_heads / part.num_kv_heads), (heads.first + h) / (16 / kv_heads));
        q += part.num_q_heads, inner += part.intermediate_size, vocab += llama_split_vocab(&whole, split).count;
        EXPECT_EQ(kv.count, part.num_kv_heads);
      }
      EXPECT_EQ(q, 16);
      EXPECT_EQ(inner, 128);
      EXPECT_EQ(vocab, 640);
    }
}

} // namespace

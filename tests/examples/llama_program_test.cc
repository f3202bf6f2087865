// The example as a program: what it prints, writes and refuses, for models whose answers are known without computing them.
#include <cmath>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "tests/examples/counting_model.h"
#include "tests/tracing/json_reader.h"

namespace {

void ExpectRefused(const std::string &arguments, const std::string &message) {
  Outcome outcome = RunProgram(arguments);
  EXPECT_EQ(outcome.status, 1) << arguments;
  EXPECT_EQ(outcome.text, "llama: " + message + "\n");
}

// ------------------------------------------------------------------------------------------------------------------ tokens

TEST(LlamaProgram, Counts) {
  const CountingFolder folder;
  Outcome outcome = RunModel(folder, "--prompt-ids 1,2,3 --tokens 5");
  EXPECT_EQ(outcome.status, 0) << outcome.text;
  EXPECT_SAYS(outcome.text, "\n1,2,3,4,5,6,7,8\n");
}

// What cgr counted of the requests' steps, and not of those that are only measured.
TEST(LlamaProgram, WritesWhatTheRuntimeCounts) {
  const CountingFolder folder;
  const Outcome outcome = RunModel(folder, "--prompt-ids 9 --tokens 20 --quiet --metrics " + folder.File("metrics.txt"));
  ASSERT_EQ(outcome.status, 0) << outcome.text;
  const std::string metrics = folder.Read("metrics.txt");
  EXPECT_SAYS(metrics, "# TYPE cgr_steps_total counter\n");
  EXPECT_SAYS(metrics, "cgr_key_steps_total{engine=\"llama\",key=\"full 1r 1t q1 v0\",kind=\"full\"} 20\n");
  EXPECT_SAYS(metrics, "cgr_launch_seconds_bucket{engine=\"llama\",kind=\"full\",le=\"+Inf\"} ");
}

// A trace for Perfetto: every step of the run, on the host and on the device, with its layers.
TEST(LlamaProgram, TracesEveryStep) {
  const CountingFolder folder;
  const Outcome outcome = RunModel(folder, "--prompt-ids 9 --tokens 20 --quiet --trace " + folder.File("trace.json"));
  ASSERT_EQ(outcome.status, 0) << outcome.text;
  const cgr_test::Json page = cgr_test::JsonReader::Read(folder.Read("trace.json"));
  std::map<std::string, int> slices;
  for (const cgr_test::Json &event : page["traceEvents"].items)
    slices[event["ph"].text + " " + event["name"].text]++;
  EXPECT_EQ(slices["X prepare"], 20);
  EXPECT_EQ(slices["X launch"], 20);
  EXPECT_EQ(slices["X step"], 20);
  EXPECT_EQ(slices["X attention 0"], 20);
  EXPECT_EQ(slices["s step"], 20);
  EXPECT_EQ(slices["f step"], 20);
}

// Requests of different lengths come and go in steps of a few: each must get the tokens that follow its own prompt.
TEST(LlamaProgram, GivesEachRequestItsOwnTokens) {
  const CountingFolder folder;
  for (const char *mode : { "default", "none", "piecewise" }) {
    std::string prompts, expected;
    for (int i = 0; i < 13; i++) {
      prompts += " --prompt-ids 9";
      for (int k = 0; k < 2 * i; k++)
        prompts += ",7";
      prompts += "," + std::to_string(i);
    }
    const std::string json = folder.File("out.json");
    Outcome outcome =
        RunModel(folder, prompts + " --concurrent 5 --chunk 6 --quiet --requests 40 --mode " + mode + " --json " + json);
    ASSERT_EQ(outcome.status, 0) << outcome.text;
    const std::string text = folder.Read("out.json");
    size_t at = text.find("\"requests\"");
    for (int i = 0; i < 40; i++) {
      const int tokens = 200 - 24 * (5 * i % 6); // what the program gives without --tokens
      const std::string generated = "\"generated\": [" + Counted(i % 13, tokens) + "], \"ended\": \"limit\"";
      at = text.find("\"generated\"", at);
      ASSERT_NE(at, std::string::npos) << i;
      EXPECT_EQ(text.substr(at, generated.size()), generated) << i;
      at++;
    }
  }
}

// A model without an opinion: its tokens are the noise. That of a request depends on nothing but the seed, its number and the
// position, whatever rows, batches, chunks and graphs it meets.
TEST(LlamaProgram, DrawsTheSameTokensInEverySetting) {
  std::vector<Tensor> tensors = CountingTensors();
  tensors[1] = Zeros("lm_head.weight", { kVocab, kVocab });
  const CountingFolder folder(tensors);
  const std::string json = folder.File("out.json");
  const auto tokens = [&](const std::string &arguments) {
    const Outcome outcome = RunModel(folder, "--prompt-ids 1,2,3 --prompt-ids 4 --prompt-ids 5,6,7,8,9,10,11 --requests 9 -n 40 "
                                             "--quiet --json " +
                                                 json + " --temperature 1 " + arguments);
    EXPECT_EQ(outcome.status, 0) << outcome.text;
    const std::string text = folder.Read("out.json");
    return text.substr(text.find("\"requests\": ["));
  };
  const std::string first = tokens("");
  for (const char *setting : { "--concurrent 2", "--concurrent 5 --chunk 2", "--mode none", "--mode piecewise --concurrent 3",
                               "--mode full-decode-only", "--max-changes 2 --page-size 32", "--dtype bf16 --seed 1" })
    EXPECT_EQ(tokens(setting), first) << setting;
  EXPECT_NE(tokens("--seed 2"), first);
}

// More changes than the ring carries at once: they are sent ahead, and the step numbers that this takes lose no result.
TEST(LlamaProgram, SendsManyChangesAhead) {
  const CountingFolder folder;
  std::string prompts;
  for (int i = 0; i < 6; i++)
    prompts += " --prompt-ids 7,7,7,7,7,7,7,7,7,7,7,7,7,7,7,7,7,7,7,7,7,7,7,7,7,7,7,7,7,7,7,7,7," + std::to_string(i);
  for (const char *max_changes : { "1", "2", "7" }) {
    Outcome outcome =
        RunModel(folder, prompts + " --requests 30 --chunk 100 --tokens 20 --texts --max-changes " + std::string(max_changes));
    EXPECT_EQ(outcome.status, 0) << outcome.text;
    for (int i = 0; i < 6; i++)
      EXPECT_SAYS(outcome.text, "7," + std::to_string(i) + "," + Counted(i, 20) + "\n");
    EXPECT_SAYS(outcome.text, "\ngenerated      600 tokens ");
  }
}

TEST(LlamaProgram, EndsAtTheTokensOfBothConfigurations) {
  const CountingFolder folder(CountingTensors(), ", \"eos_token_id\": 12");
  folder.Write("generation_config.json", "{\"eos_token_id\": [7, 10]}");
  Outcome outcome = RunModel(folder, "--prompt-ids 3 --prompt-ids 8 --prompt-ids 10 --prompt-ids 12 --tokens 30 --texts");
  EXPECT_EQ(outcome.status, 0) << outcome.text;
  EXPECT_SAYS(outcome.text, "\n3,4,5,6,7\n");
  EXPECT_SAYS(outcome.text, "\n--- request 1: 1 token of prompt, 2 generated, ended by an end token\n8,9,10\n");
  EXPECT_SAYS(outcome.text, "\n10,11,12\n");
  EXPECT_SAYS(outcome.text, "\n12,13,14,15,0,1,2,3,4,5,6,7\n");
  outcome = RunModel(folder, "--prompt-ids 3 --tokens 30 --ignore-eos");
  EXPECT_SAYS(outcome.text, "\n3," + Counted(3, 30) + "\n");
}

TEST(LlamaProgram, ABrokenTieIsUsedAndTold) {
  const CountingFolder folder(CountingTensors(), ", \"tie_word_embeddings\": true");
  Outcome outcome = RunModel(folder, "--prompt-ids 3 --tokens 3");
  EXPECT_EQ(outcome.status, 0);
  EXPECT_SAYS(outcome.text, "\n3,4,5,6\n"); // with the embedding for its head it would repeat itself
  EXPECT_SAYS(outcome.text, "lm_head.weight differs from the embedding: not tied");
  std::vector<Tensor> tensors = CountingTensors();
  tensors.erase(tensors.begin() + 1);
  folder.Write("model.safetensors", SafeTensors(tensors));
  EXPECT_SAYS(RunModel(folder, "--prompt-ids 3 --tokens 3").text, "\n3,3,3,3\n");
}

TEST(LlamaProgram, NanAndInfEndTheRun) {
  for (float bad : { std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
                     -std::numeric_limits<float>::infinity() })
    for (const char *dtype : { "fp32", "bf16" })
      for (const char *mode : { "default", "none", "piecewise" }) {
        std::vector<Tensor> tensors = CountingTensors();
        Set(&tensors[0], 5, 5, bad); // the vector of token 5, which the third step meets
        const CountingFolder folder(tensors);
        Outcome outcome =
            RunModel(folder, std::string("--prompt-ids 9 --prompt-ids 3 --tokens 8 --dtype ") + dtype + " --mode " + mode);
        EXPECT_EQ(outcome.status, 1);
        EXPECT_SAYS(outcome.text,
                    "\n9,10,11\nllama: request 1: a logit at position 2 is NaN or Inf, expected finite numbers: are "
                    "the model's weights sound?\n");
      }
}

TEST(LlamaProgram, CheckComparesEveryModeWithEagerSteps) {
  Outcome outcome = RunProgram("--check --steps 24 --concurrent 3 --device host");
  EXPECT_EQ(outcome.status, 0) << outcome.text;
  for (const char *mode : { "full", "piecewise", "full and piecewise", "full decode only" })
    EXPECT_SAYS(outcome.text, std::string("Graph mode ") + mode + ": 24 steps compared with eager ones, ");
  const std::string proof = "all in regions; 0 opaque nodes\n  self-test: each does ";
  int proofs = 0;
  for (size_t at = outcome.text.find(proof); at != std::string::npos; at = outcome.text.find(proof, at + 1))
    proofs++;
  EXPECT_EQ(proofs, 4) << outcome.text;
  outcome = RunProgram("--check --steps 24 --concurrent 20 --device host --mode piecewise");
  EXPECT_EQ(outcome.status, 0) << outcome.text;
  EXPECT_SAYS(outcome.text,
              "\nChecking graph mode piecewise: 24 steps, each replayed and eager ...\nGraph mode piecewise: 24 steps ");
  EXPECT_EQ(outcome.text.find("Graph mode full"), std::string::npos) << outcome.text;
  EXPECT_SAYS(outcome.text, "\n  0 full, 24 piecewise and 0 eager steps; ");
  outcome =
      RunProgram("--check --steps 8 --concurrent 3 --device host --mode full --kv int8"); // whose factors are measured before
  EXPECT_EQ(outcome.status, 0) << outcome.text;
}

// ----------------------------------------------------------------------------------------------------------- what it refuses

TEST(LlamaProgram, SaysWhatANumberWas) {
  ExpectRefused("--tokens x", "--tokens is x, expected a whole number from 1 to 1048576");
  ExpectRefused("--tokens 0", "--tokens is 0, expected a whole number from 1 to 1048576");
  ExpectRefused("--tokens=", "--tokens is empty, expected a whole number from 1 to 1048576");
  ExpectRefused("--concurrent 1.5", "--concurrent is 1.5, expected a whole number from 1 to 4096");
  for (const char *value : { "-0.1", "101", "nan", "inf", "warm", "0.5x" })
    ExpectRefused(std::string("--temperature ") + value,
                  std::string("--temperature is ") + value + ", expected a number from 0 to 100");
  ExpectRefused("--temperature=", "--temperature is empty, expected a number from 0 to 100");
  ExpectRefused("--seed -1", "--seed is -1, expected a whole number from 0 to 2147483647");
  ExpectRefused("--chunk 99999999999999999999", "--chunk is 99999999999999999999, expected a whole number from 1 to 65536");
  ExpectRefused("--page-size 20", "--page-size is 20, expected 16, 32 or 64");
  ExpectRefused("--mode maybe",
                "--mode is maybe, expected default, none, piecewise, full, full-decode-only or full-and-piecewise");
  ExpectRefused("--dtype fp8", "--dtype is fp8, expected bf16 or fp32");
  ExpectRefused("--quiet=1", "--quiet=1: --quiet takes no value");
  ExpectRefused("-n", "--tokens: expected a value after it, N (see --help)");
  ExpectRefused("--colour", "--colour is no option: --help lists them");
  ExpectRefused("--colour=3", "--colour=3 is no option: --help lists them");
  ExpectRefused("''", "an empty argument is no option: --help lists them");
  ExpectRefused("'Model and prompts'", "Model and prompts is no option: --help lists them");
  ExpectRefused("--prompt-ids 1,a,b",
                "--prompt-ids is 1,a,b, expected token ids from 0 to 255 with commas between them, not \"a,b\"");
  ExpectRefused("--prompt-ids 256",
                "--prompt-ids is 256, expected token ids from 0 to 255 with commas between them, not \"256\"");
  ExpectRefused("-p a --force-ids ''",
                "--force-ids is empty, expected token ids from 0 to 255 with commas between them, not \"\"");
  ExpectRefused("-p a --force-ids 1 --force-ids 2", "--force-ids is given 2 times for 1 prompt, expected at most once for each");
  ExpectRefused("-p '' --no-bos", "--prompt is empty, expected a text: this model has no token that begins one");
}

TEST(LlamaProgram, FindsABadOutputPathBeforeTheRun) {
  Folder folder; // without a model: outputs come first
  const std::string model = "--model " + std::string(folder.path()) + " ", bad = folder.File("none/out");
  for (const char *option : { "--json", "--logits", "--metrics", "--trace" })
    ExpectRefused(model + option + " " + bad,
                  std::string(option) + " is " + bad + ", expected a file that can be written: No such file or directory");
  ExpectRefused(model + "--json a --logits a", "--json and --logits are both a, expected two files");
  ExpectRefused(model + "--json b --logits a --metrics a", "--logits and --metrics are both a, expected two files");
  ExpectRefused(model + "--json b --metrics a --trace ./a", "--metrics and --trace are both ./a, expected two files");
  ExpectRefused("--check --trace a", "--trace: expected without --check, which writes no file");
  ExpectRefused("--check --json a", "--json: expected without --check, which writes no file");
  ExpectRefused("--check --metrics a", "--metrics: expected without --check, which writes no file");
}

// `bazel run` starts the program in a folder of its own, and tells where the user is.
TEST(LlamaProgram, FindsRelativePathsFromTheUsersFolder) {
  const CountingFolder folder;
  const std::string program = "BUILD_WORKING_DIRECTORY=" + std::string(folder.path()) + " examples/llama/llama --device host ";
  const Outcome outcome = cgr_test::RunCommand(program + "-m . --prompt-ids 9 -n 1 --json out.json");
  EXPECT_EQ(outcome.status, 0) << outcome.text;
  EXPECT_SAYS(folder.Read("out.json"), "\"generated\": [10]");
  const Outcome absolute =
      cgr_test::RunCommand(program + "-m none -m " + folder.path() + " --prompt-ids 8 -n 1 --json " + folder.File("out.json"));
  EXPECT_EQ(absolute.status, 0) << absolute.text;
  EXPECT_SAYS(folder.Read("out.json"), "\"generated\": [9]");
}

TEST(LlamaProgram, AFailedRunLeavesAnOlderFile) {
  const CountingFolder folder;
  folder.Write("out.json", "older");
  EXPECT_EQ(RunModel(folder, "--prompt-ids 99 --json " + folder.File("out.json")).status, 1);
  EXPECT_EQ(folder.Read("out.json"), "older");
  EXPECT_EQ(RunModel(folder, "--prompt-ids 9 --tokens 1 --json " + folder.File("out.json")).status, 0);
  EXPECT_SAYS(folder.Read("out.json"), "{\"prompt\": [9], \"generated\": [10], \"ended\": \"limit\"}");
  EXPECT_EQ(folder.Read("out.json").find("older"), std::string::npos);
}

} // namespace

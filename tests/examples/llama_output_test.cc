// What the example prints: what runs, the text as it comes, rates and host times, tables, help.
#include <algorithm>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "cgr/cgr.h"
#include "tests/examples/counting_model.h"
#include "tests/examples/page.h"

namespace {

using cgr_test::Lines;

Lines LinesOf(const std::string &text) { return cgr_test::LinesOf(std::istringstream(text)); }

bool Matches(const std::string &text, const std::string &pattern) { return std::regex_search(text, std::regex(pattern)); }

#define EXPECT_MATCHES(text, pattern) EXPECT_TRUE(Matches(text, pattern)) << (pattern) << "\n" << (text)

// ------------------------------------------------------------------------------------------------------- what runs, and how fast

TEST(LlamaOutput, BeginsWithWhatRuns) {
  const CountingFolder folder;
  const std::string text = RunModel(folder, "--prompt-ids 1,2,3 -n 20").text;
  const std::string name = std::string(folder.path()).substr(std::string(folder.path()).rfind('/') + 1);
  const std::string version =
      std::to_string(CGR_VERSION_MAJOR) + "." + std::to_string(CGR_VERSION_MINOR) + "." + std::to_string(CGR_VERSION_PATCH);
  EXPECT_EQ(text.rfind("cgr " + version + " on the host device, ", 0), 0u) << text;
  // 2 * 16 * 16 in both ends, 16 + 16 in norms of the layer, (16 + 8 + 8 + 16) * 16 and 3 * 24 * 16 in its matrices, 16 in the
  // last norm.
  EXPECT_SAYS(text, "\nmodel      " + name + ": 2.5K parameters, 1 layer, 2 query and 1 KV head of 8, fp32\n");
  EXPECT_MATCHES(text, "\nKV cache   34 pages of 16 tokens, 34\\.8 KB\n");
  EXPECT_MATCHES(text, "\ngraphs     [0-9]+ full \\(mode full\\), captured in [0-9.]+ ms; ready after [0-9.]+ s\n");
  EXPECT_SAYS(text, "\nrequests   1, at most 8 in a step; its text:\n\n1,2,3," + Counted(3, 20) + "\n\nprompt ");
  EXPECT_SAYS(RunModel(folder, "--prompt-ids 1 -n 2 --dtype bf16").text, " KV head of 8, bf16\n");
}

TEST(LlamaOutput, NamesTheGraphsOfEachMode) {
  const CountingFolder folder;
  const auto graphs = [&](const std::string &mode) {
    const std::string text = RunModel(folder, "--prompt-ids 1,2,3 -n 2 --quiet --mode " + mode).text;
    const size_t begin = text.find("\ngraphs     ");
    return text.substr(begin + 1, text.find(';', begin) - begin - 1);
  };
  EXPECT_EQ(graphs("none"), "graphs     none (mode none)");
  EXPECT_MATCHES(graphs("piecewise"), "^graphs     [0-9]+ piecewise \\(mode piecewise\\), captured in [0-9.]+ ms$");
  EXPECT_MATCHES(graphs("full-and-piecewise"), "^graphs     4 full, [0-9]+ piecewise \\(mode full and piecewise\\), captured");
  EXPECT_MATCHES(graphs("full-decode-only"), "^graphs     4 full \\(mode full decode only\\), captured");
}

TEST(LlamaOutput, EndsWithRatesAndHostTimes) {
  const CountingFolder folder;
  std::string text = RunModel(folder, "--prompt-ids 1,2,3 --requests 3 -n 400 --quiet").text;
  EXPECT_MATCHES(text, "\n\nprompt           9 tokens +[0-9,]+/s   first token after [0-9.]+ ms\n"
                       "generated    1,200 tokens +[0-9,]+/s   between tokens [0-9.]+ ms \\(p99 [0-9.]+ ms\\)\n"
                       "host time per step: replayed [0-9.]+ us, eager [0-9.]+ us \\([0-9.]+ times\\)\n"
                       "The host device computes on this processor: its times say nothing about a GPU\\.\n$");
  text = RunModel(folder, "--prompt-ids 1 -n 1 --mode none --quiet").text;
  EXPECT_MATCHES(text, "\nprompt           1 token  +[0-9,]+/s   first token after [0-9.]+ ms\n"
                       "generated        1 token  +[0-9,]+/s\n"
                       "host time per step: eager [0-9.]+ us; this graph mode replays no decode step\nThe host ");
  EXPECT_MATCHES(RunModel(folder, "--prompt-ids 1 -n 2 --mode piecewise --quiet").text,
                 "step: replayed [0-9.]+ us, eager [0-9.]+ us ");
}

// What is compared needs positions and pages of its own: it takes fewer requests and steps, or is left out.
TEST(LlamaOutput, ComparesHostTimesInTheRoomThatItHas) {
  const CountingFolder folder;
  for (const char *room : { "--max-seq-len 3", "--max-seq-len 16 --pages 3", "--max-seq-len 48 --pages 5 --requests 9",
                            "--max-seq-len 17 --pages 4 --max-changes 1" })
    EXPECT_MATCHES(RunModel(folder, std::string("--prompt-ids 1 -n 3 --quiet ") + room).text,
                   "host time per step: replayed [0-9.]+ us, eager ")
        << room;
  const Outcome none = RunModel(folder, "--prompt-ids 1 -n 2 --quiet --max-seq-len 2");
  EXPECT_EQ(none.status, 0) << none.text;
  EXPECT_EQ(none.text.find("host time"), std::string::npos) << none.text;
}

TEST(LlamaOutput, WritesTheSameAsJson) {
  const CountingFolder folder;
  ASSERT_EQ(RunModel(folder, "--prompt-ids 1,2 --requests 3 -n 20 --quiet --json " + folder.File("out.json")).status, 0);
  const std::string json = folder.Read("out.json");
  for (const char *pattern :
       { "\"generated\": 60,", "\"prompt\": 6,", "\"first_token_us\": \\{\"median\": [0-9.]+, \"p99\": [0-9.]+\\}",
         "\"between_tokens_us\": \\{\"median\": ", "\"reasons\": \\{\"eager internal\": [0-9]+, \"full ",
         "\"host_us\": \\{\"requests\": 3, \"replayed\": [0-9.]+, \"eager\": [0-9.]+, \"bare_launch\": 0.000, \"nodes\": [1-9]" })
    EXPECT_MATCHES(json, pattern);
  EXPECT_SAYS(json, "\"mixed\": {\"steps\": 0, \"tokens\": 0, ");
  EXPECT_EQ(json.find("disabled"), std::string::npos) << "it counts steps that no request asked for";
}

TEST(LlamaOutput, TellsWhatTheCacheHolds) {
  const std::string prompt = "-p 'In the beginning ' -n 20 --temperature 0 --device host --quiet ";
  EXPECT_MATCHES(RunProgram(prompt).text, "\nKV cache   [0-9,]+ pages of 16 tokens, [0-9.]+ [KM]B\n");
  for (const auto &[name, dtype] :
       { std::pair<const char *, const char *>{ "fp8", "fp8_e4m3" }, { "fp8-e5m2", "fp8_e5m2" }, { "int8", "i8" } })
    EXPECT_MATCHES(RunProgram(prompt + "--kv " + name).text,
                   std::string("\nKV cache   [0-9,]+ pages of 16 tokens, [0-9.]+ [KM]B, ") + dtype + "\n");
  EXPECT_SAYS(RunProgram(prompt + "--kv int4").text, "--kv is int4, expected same, fp8, fp8-e5m2 or int8");
}

// With chunks of 4, the first request's second token goes with tokens 4 to 7 of the other's prompt, and its third with the
// last 2.
TEST(LlamaOutput, CountsWhatMixedStepsDo) {
  const CountingFolder folder;
  ASSERT_EQ(
      RunModel(folder, "--prompt-ids 1 --prompt-ids 1,2,3,4,5,6,7,8,9 -n 4 --chunk 4 --quiet --json " + folder.File("out.json"))
          .status,
      0);
  EXPECT_SAYS(folder.Read("out.json"), "\"mixed\": {\"steps\": 2, \"tokens\": 8, \"keys\": 21, \"pairs\": 44, \"seconds\": ");
}

// -------------------------------------------------------------------------------------------------------------------- the text

TEST(LlamaOutput, ShowsTheTextOfOneRequestUnlessAsked) {
  const CountingFolder folder;
  const std::string prompts = "--prompt-ids 1 --prompt-ids 5 -n 3 ";
  std::string text = RunModel(folder, prompts).text;
  EXPECT_SAYS(text, "\nrequests   2, at most 8 in a step; the text of request 0:\n\n1,2,3,4\n\nprompt ");
  EXPECT_EQ(text.find("5,6,7"), std::string::npos);
  EXPECT_EQ(text.find('\033'), std::string::npos) << "escape codes are for terminals";
  text = RunModel(folder, prompts + "--texts").text;
  EXPECT_SAYS(text, "\n1,2,3,4\n\n--- request 1: 1 token of prompt, 3 generated, ended by its limit\n5,6,7,8\n\nprompt ");
  for (const char *quiet : { "--quiet", "--quiet --texts" }) {
    text = RunModel(folder, prompts + quiet).text;
    EXPECT_SAYS(text, "\nrequests   2, at most 8 in a step\n\nprompt ");
    EXPECT_EQ(text.find("1,2,3"), std::string::npos);
  }
}

TEST(LlamaOutput, DimsThePromptAtATerminal) {
  const CountingFolder folder;
  const std::string command =
      "examples/llama/llama --device host --temperature 0 --prompt-ids 1,2 -n 3 --model " + std::string(folder.path());
  Outcome outcome = cgr_test::RunAtTerminal(command);
  if (outcome.status == -1)
    GTEST_SKIP() << "no terminal is available";
  EXPECT_SAYS(outcome.text, "\r\n\033[2m1,2\033[0m,3,4,5\r\n");
  outcome = cgr_test::RunAtTerminal("NO_COLOR=1 " + command);
  EXPECT_SAYS(outcome.text, "\r\n1,2,3,4,5\r\n");
}

// Text of bytes is text, without marks of its own.
TEST(LlamaOutput, ShowsBytesAsText) {
  const Outcome outcome = RunProgram("-p 'In the beginning ' -n 30 --temperature 0");
  EXPECT_MATCHES(outcome.text, "\n\nIn the beginning [a-z ]+");
  EXPECT_EQ(outcome.text.find('|'), std::string::npos) << outcome.text;
}

// ------------------------------------------------------------------------------------------------------------------- the tables

TEST(LlamaOutput, HasTablesWhoseRowsDiffer) {
  const CountingFolder folder;
  const std::string arguments = "--prompt-ids 1,2,3 --requests 9 -n 20 --quiet";
  EXPECT_EQ(RunModel(folder, arguments).text.find("capture ms"), std::string::npos);
  const std::string text = RunModel(folder, arguments + " --stats").text;
  EXPECT_MATCHES(text, "\nstep     graph        steps   tokens   padded prepare us      p99 launch us      p99  staged\n"
                       "decode   full  ( +[0-9]+){3}( +[0-9]+\\.[0-9]{2}){4} +[0-9]+\n");
  EXPECT_MATCHES(text, "\nreasons, of [0-9]+ steps:\n  full      exact [0-9]+");
  EXPECT_SAYS(text, "\ngraph      requests  tokens  queries  nodes capture ms  replays mean requests  state\n");
  std::set<std::string> keys;
  const std::regex key("^full( +[0-9]+){2} +([0-9]+|mixed)(?= )");
  std::smatch row;
  for (const std::string &line : LinesOf(text))
    EXPECT_TRUE(!std::regex_search(line, row, key) || keys.insert(row.str()).second) << line;
  EXPECT_GT(keys.size(), 5u) << text;
  EXPECT_SAYS(RunModel(folder, "--prompt-ids 1 -n 1 --stats --mode none").text, "reasons, of 1 step:\n");
}

TEST(LlamaOutput, HelpFitsATerminal) {
  const Outcome outcome = RunProgram("--help");
  EXPECT_EQ(outcome.status, 0);
  EXPECT_EQ(outcome.text.rfind("Usage: llama [OPTIONS]\n", 0), 0u);
  for (const char *text : { "\nModel and prompts:\n  -m, --model DIR  ", "\n  -p, --prompt TEXT ", "\n  -n, --tokens N ",
                            "\nExamples:\n  llama ", "the bundled 1.8M-parameter model", "same bits whether a graph replays it" })
    EXPECT_SAYS(outcome.text, text);
  for (const std::string &line : LinesOf(outcome.text))
    EXPECT_LE(line.size(), 100u) << line;
  EXPECT_EQ(RunProgram("-h").text, outcome.text);
  EXPECT_EQ(RunProgram("--version").text, std::string(cgr_build_info()) + "\n");
}

// ------------------------------------------------------------------------------------------------------------------- the README

// What differs from run to run: numbers, the device, the model's text; and what only a GPU or only the host has.
Lines Form(const Lines &lines) {
  Lines form;
  bool text = false;
  for (std::string line : lines) {
    if (line.empty() || line.rfind("The host device computes", 0) == 0)
      continue;
    text = text && line.rfind("prompt ", 0) != 0;
    if (text)
      continue;
    text = line.rfind("requests ", 0) == 0;
    line = std::regex_replace(line, std::regex("^(cgr [0-9.]+ on ).*$"), "$1DEVICE");
    line = std::regex_replace(line, std::regex(", (fp32|bf16)$"), ", DTYPE");
    line = std::regex_replace(line, std::regex("(captured in [0-9.]+ ms), [0-9.]+ [KMG]B"), "$1");
    line = std::regex_replace(line, std::regex(", bare launch .*$"), "");
    line = std::regex_replace(line, std::regex("[0-9][0-9.,]*([KMBT](?= parameters)| [KMGT]B$)?"), "N");
    form.push_back(std::regex_replace(line, std::regex(" +"), " "));
  }
  return form;
}

// The code block after the mark: lines that are indented by four, or empty.
Lines BlockAfter(const std::string &mark, const Lines &page) {
  Lines block;
  auto line = std::find(page.begin(), page.end(), mark);
  for (line = line == page.end() ? line : line + 1; line != page.end() && (line->empty() || line->rfind("    ", 0) == 0); ++line)
    block.push_back(line->empty() ? "" : line->substr(4));
  return block;
}

TEST(LlamaOutput, IsAsTheReadmeShowsIt) {
  const Lines shown = BlockAfter("<!-- output: llama -->", cgr_test::ReadLines("README.md"));
  ASSERT_GT(shown.size(), 8u) << "the README shows no output";
  const Outcome outcome = RunProgram("");
  ASSERT_EQ(outcome.status, 0) << outcome.text;
  EXPECT_EQ(Form(shown), Form(LinesOf(outcome.text)));
  const std::string version = "cgr " + std::to_string(CGR_VERSION_MAJOR) + "." + std::to_string(CGR_VERSION_MINOR) + ".";
  EXPECT_EQ(shown[0].rfind(version, 0) == 0 || shown[1].rfind(version, 0) == 0, true) << shown[0];
}

TEST(Form, KeepsWhatIsSaid) {
  const Lines host = { "cgr 0.11.0 on the host device, 2 processors",
                       "model      x: 1.8M parameters, fp32",
                       "requests   12; text:",
                       "",
                       "In 3 days",
                       "prompt    1,695 tokens   2,081/s",
                       "host time per step: replayed 8.7 us",
                       "The host device computes on this." };
  const Lines gpu = { "cgr 0.12.0 on NVIDIA X, driver for CUDA 13.0",
                      "model      x: 8.0B parameters, bf16",
                      "requests   3; text:",
                      "",
                      "other",
                      "text",
                      "prompt    9 tokens   81/s",
                      "host time per step: replayed 1.7 us, bare launch 1.2 us" };
  EXPECT_EQ(Form(host), Form(gpu));
  Lines other = gpu;
  other[6] = "prompt    9 tokens   81 per second";
  EXPECT_NE(Form(host), Form(other));
  other = gpu;
  other.erase(other.begin() + 1);
  EXPECT_NE(Form(host), Form(other));
}

} // namespace

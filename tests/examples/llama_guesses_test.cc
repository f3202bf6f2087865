// The example with guesses: the tokens of plain decode, whatever is guessed and however few pages there are; what it prints; what
// it refuses.
#include <fstream>
#include <regex>
#include <string>
#include <utility>
#include <vector>

#include "tests/examples/counting_model.h"
#include "tests/tracing/json_reader.h"

namespace {

void ExpectRefused(const std::string &arguments, const std::string &message) {
  const Outcome outcome = RunProgram(arguments);
  EXPECT_EQ(outcome.status, 1) << arguments;
  EXPECT_EQ(outcome.text, "llama: " + message + "\n");
}

// The numbers that a pattern finds in the text.
std::vector<double> Numbers(const std::string &text, const std::string &pattern) {
  std::smatch match;
  std::vector<double> numbers;
  EXPECT_TRUE(std::regex_search(text, match, std::regex(pattern))) << pattern << "\n" << text;
  for (size_t i = 1; i < match.size(); i++)
    numbers.push_back(std::stod(std::regex_replace(match[i].str(), std::regex(","), "")));
  return numbers;
}

double Real(const cgr_test::Json &number) { return std::stod(number.text); }
int Whole(const cgr_test::Json &number) { return std::stoi(number.text); }

// After each prompt the model counts: a lookup knows what follows once all tokens have been seen.
void ExpectCounted(const CountingFolder &folder, const std::string &json) {
  const cgr_test::Json page = cgr_test::JsonReader::Read(folder.Read(json));
  int i = 0;
  for (const cgr_test::Json &request : page["requests"].items) {
    int last = Whole(request["prompt"].items.back()), at = 0;
    EXPECT_EQ(request["generated"].items.size(), static_cast<size_t>(200 - 24 * (5 * i % 6)));
    for (const cgr_test::Json &token : request["generated"].items)
      ASSERT_EQ(Whole(token), (last + ++at) % kVocab) << i << ", token " << at;
    i++;
  }
  EXPECT_EQ(i, 30);
}

class LlamaGuesses : public testing::TestWithParam<const char *> {};

TEST_P(LlamaGuesses, AreAcceptedIfPlainDecodeWouldSampleThem) {
  const CountingFolder folder;
  std::string prompts;
  for (int i = 0; i < 7; i++)
    prompts += " --prompt-ids 4,5,9,9," + std::to_string(i); // what follows 4, 5 misleads once
  const Outcome outcome = RunModel(folder, prompts + " --requests 30 --concurrent 5 --chunk 6 --quiet --stats --json " +
                                               folder.File("out.json") + " " + GetParam());
  ASSERT_EQ(outcome.status, 0) << outcome.text;
  ExpectCounted(folder, "out.json");
  const std::vector<double> seen = Numbers(outcome.text, "guesses +([0-9,]+), ([0-9,]+) accepted");
  EXPECT_GT(seen[0], seen[1]) << "after 4, 5 the guess is wrong";
  EXPECT_GT(seen[1], seen[0] / 2);
}

INSTANTIATE_TEST_SUITE_P(Settings, LlamaGuesses,
                         testing::Values("--draft lookup", "--draft lookup:wait", "--draft lookup --draft-tokens 1",
                                         "--draft lookup --draft-tokens 16 --mode piecewise",
                                         "--draft lookup --draft-tokens 5 --mode none",
                                         "--draft lookup --mode full-decode-only --max-changes 2",
                                         "--draft lookup --overcommit --pages 20",
                                         "--draft lookup:wait --overcommit --pages 17 --draft-tokens 16"));

// Tokens that are drawn come from noise that depends on the position alone: a guess is compared with what is drawn.
TEST(LlamaGuessing, DrawsTheTokensOfPlainDecode) {
  const Outcome outcome =
      RunProgram("--requests 8 --tokens 60 --temperature 0.7 --quiet --draft lookup --draft-compare --batch-invariant");
  ASSERT_EQ(outcome.status, 0) << outcome.text;
  EXPECT_SAYS(outcome.text, "\ntokens     those of 8 of 8 requests are the same without guesses\n");
  const std::vector<double> speeds =
      Numbers(outcome.text, "plain +([0-9,]+) tokens/s, with guesses ([0-9,]+): ([0-9.]+) times as fast; the steps' times "
                            "predict ([0-9.]+)\n");
  EXPECT_NEAR(speeds[1] / speeds[0], speeds[2], 0.02);
  EXPECT_GT(speeds[3], 0.0);
}

// Requests give way to others and begin again: with few pages some must, and with enough none does.
TEST(LlamaGuessing, RequestsThatFindNoPageBeginAgain) {
  const CountingFolder folder;
  const std::string load = "--prompt-ids 9,7,7,1 --requests 12 --concurrent 6 --tokens 120 --quiet --overcommit ";
  for (const char *draft : { "", "--draft lookup", "--draft lookup:wait" }) {
    Outcome outcome = RunModel(folder, load + "--pages 24 " + draft);
    ASSERT_EQ(outcome.status, 0) << outcome.text;
    const std::vector<double> seen = Numbers(outcome.text, "pages +([0-9]+) times? too few for a request or its guesses; "
                                                           "([0-9]+) requests? began again\n");
    EXPECT_GT(seen[0], 0.0);
    EXPECT_GT(seen[1], 0.0);
    outcome = RunModel(folder, load + draft);
    EXPECT_EQ(outcome.status, 0) << outcome.text;
    EXPECT_EQ(outcome.text.find(" began again"), std::string::npos) << outcome.text;
  }
}

TEST(LlamaGuessing, EndsAtAnEndTokenAmongAcceptedGuesses) {
  const CountingFolder folder(CountingTensors(), ", \"eos_token_id\": 12");
  const Outcome outcome =
      RunModel(folder, "--prompt-ids 7,8,9,10,11,12,13,14,15,0,1,2,3,4,5,6,7,8 --tokens 30 --draft lookup:wait --draft-tokens 8");
  EXPECT_EQ(outcome.status, 0) << outcome.text;
  EXPECT_SAYS(outcome.text, ",7,8,9,10,11,12\n");
}

// A coin's share of the guesses, up to chance: its tokens are rubbish, its requests as long as they should be.
TEST(LlamaGuessing, ACoinAcceptsItsShare) {
  const CountingFolder folder;
  for (const double rate : { 0.0, 0.5, 1.0 }) {
    const Outcome outcome =
        RunModel(folder, "--prompt-ids 1 --requests 40 --tokens 100 --quiet --draft coin:" + std::to_string(rate) +
                             " --draft-tokens 1 --json " + folder.File("out.json"));
    ASSERT_EQ(outcome.status, 0) << outcome.text;
    const std::vector<double> seen = Numbers(outcome.text, "guesses +([0-9,]+), ([0-9,]+) accepted");
    EXPECT_NEAR(seen[1] / seen[0], rate, 0.06) << outcome.text;
    EXPECT_SAYS(outcome.text, "\ngenerated    4,000 tokens ");
  }
}

// 500 requests that come, leave, are preempted and find no page, against plain decode; attention that no batch changes.
TEST(LlamaGuessing, CheckComparesWithPlainDecode) {
  const std::pair<const char *, std::string> settings[] = {
    { "--draft lookup --dtype bf16 --batch-invariant --mode full", "500" },
    { "--draft lookup:wait --draft-tokens 5 --mode full-and-piecewise", "150" },
  };
  for (const auto &[setting, count] : settings) {
    const Outcome outcome = RunProgram("--check --random-weights tiny --concurrent 8 --steps " + count + " " + setting);
    EXPECT_EQ(outcome.status, 0) << outcome.text;
    EXPECT_SAYS(outcome.text, ": " + count + " steps compared with eager ones, ");
    EXPECT_SAYS(outcome.text, "  " + count + " requests with every token of plain decode, 0 that part from it ");
    EXPECT_SAYS(outcome.text, " steps, 100.00% replayed\n");
    const std::vector<double> seen =
        Numbers(outcome.text, "Guesses: " + count +
                                  " requests \\(([0-9]+) left early, ([0-9]+) preempted, ([0-9]+) times without a page\\): "
                                  "[0-9]+ tokens, ([0-9]+) of [0-9]+ guesses accepted");
    for (const double number : seen)
      EXPECT_GT(number, 0.0) << outcome.text;
  }
}

TEST(LlamaGuessing, CheckFailsIfItShowsNothing) {
  const std::string check = "--check --random-weights tiny --mode full --concurrent 4 --draft lookup ";
  Outcome outcome = RunProgram(check + "--steps 1 --seed 16");
  EXPECT_EQ(outcome.status, 1);
  EXPECT_SAYS(outcome.text, "\nllama: check: no guess was accepted: nothing was compared\n");
  outcome = RunProgram(check + "--steps 30 --max-changes 1"); // each change travels in a step of its own
  EXPECT_EQ(outcome.status, 1);
  EXPECT_TRUE(std::regex_search(outcome.text,
                                std::regex("steps, internal [0-9]+; [0-9.]+% replayed\nllama: check: [0-9]+ of [0-9]+ steps "
                                           "ran eagerly, expected at most 0.5%\n")))
      << outcome.text;
}

// Who waits for results knows more tokens, and guesses better.
TEST(LlamaGuessing, WaitingGuessesBetter) {
  double rates[2];
  for (const bool waits : { false, true }) {
    const CountingFolder folder; // for its file alone: the bundled model's texts change
    const Outcome outcome = RunProgram(std::string("--requests 8 --tokens 80 --temperature 0 --quiet --json ") +
                                       folder.File("out.json") + " --draft lookup" + (waits ? ":wait" : ""));
    ASSERT_EQ(outcome.status, 0) << outcome.text;
    const std::vector<double> seen = Numbers(outcome.text, "guesses +([0-9,]+), ([0-9,]+) accepted");
    const cgr_test::Json page = cgr_test::JsonReader::Read(folder.Read("out.json")), &drafts = page["drafts"];
    EXPECT_EQ(Real(drafts["guesses"]), seen[0]);
    EXPECT_EQ(Real(drafts["accepted"]), seen[1]);
    EXPECT_EQ(Whole(drafts["tokens"]), 8 * 80);
    EXPECT_EQ(Whole(drafts["tokens"]) - Whole(drafts["samples"]), seen[1]);
    rates[waits] = seen[1] / seen[0];
  }
  EXPECT_GT(rates[1], 1.2 * rates[0]);
}

TEST(LlamaGuessing, CheckReplaysACoin) {
  const Outcome outcome = RunProgram("--check --random-weights tiny --steps 100 --concurrent 5 --draft coin:0.6");
  EXPECT_EQ(outcome.status, 0) << outcome.text;
  for (const char *mode : { "full", "piecewise", "full and piecewise", "full decode only" })
    EXPECT_SAYS(outcome.text, std::string("Graph mode ") + mode + ": 100 steps compared with eager ones, ");
}

TEST(LlamaGuessing, BenchMeasuresTheGain) {
  const CountingFolder folder;
  const Outcome outcome = RunProgram("--bench --random-weights tiny --draft coin:1 --draft-tokens 2 --bench-contexts 16 "
                                     "--bench-requests 1,3 --bench-repetitions 1 --json " +
                                     folder.File("bench.json"));
  ASSERT_EQ(outcome.status, 0) << outcome.text;
  EXPECT_SAYS(outcome.text, "| tg128 @ 16, K = 2 | 3 | ");
  EXPECT_SAYS(outcome.text,
              "# guesses: tg128 @ 16, 3 requests: coin 1.00, 3.000 tokens of a request in a step (3.000 expected); a ");
  const cgr_test::Json page = cgr_test::JsonReader::Read(folder.Read("bench.json"));
  ASSERT_EQ(page["cases"].items.size(), 3u);
  for (int i = 1; i <= 2; i++) {
    const cgr_test::Json &plain = page["cases"].items[i], &guesses = plain["guesses"];
    EXPECT_EQ(Real(guesses["tokens_per_step"]), 3.0);
    EXPECT_EQ(Real(guesses["replayed"]), 1.0);
    EXPECT_NEAR(Real(guesses["gain"]), Real(guesses["tokens_per_second"]) / Real(plain["tokens_per_second"]), 1e-6);
    EXPECT_NEAR(Real(guesses["predicted_gain"]), 3.0 * Real(plain["ms_per_step"]) / Real(guesses["verify_ms"]), 1e-6);
  }
}

// The commands in the guide's page on tuning, of a smaller shape and fewer cases.
TEST(LlamaGuessing, TheGuidesCommandsRun) {
  const std::string program = "    bazel-bin/examples/llama/llama ";
  std::ifstream page("docs/tuning.md");
  int commands = 0;
  for (std::string line; std::getline(page, line);) {
    if (line.compare(0, program.size(), program) != 0)
      continue;
    commands++;
    std::string arguments =
        std::regex_replace(line.substr(program.size()), std::regex("--random-weights 8b"), "--random-weights tiny");
    if (arguments.find("--bench") != std::string::npos)
      arguments += " --bench-contexts 16 --bench-requests 1 --bench-repetitions 1";
    const Outcome outcome = RunProgram(arguments);
    EXPECT_EQ(outcome.status, 0) << line << "\n" << outcome.text;
    EXPECT_TRUE(std::regex_search(outcome.text, std::regex("steps' times predict [0-9.]+|gain [0-9.]+, predicted [0-9.]+")));
  }
  EXPECT_EQ(commands, 2);
}

TEST(LlamaGuessing, SaysWhatCannotGoWithGuesses) {
  ExpectRefused("--draft maybe", "--draft is maybe, expected lookup, lookup:wait, coin or coin:RATE with a rate from 0 to 1");
  ExpectRefused("--draft lookup --draft-tokens 17", "--draft-tokens is 17, expected a whole number from 1 to 16");
  ExpectRefused("--draft-compare", "--draft-compare: expected with --draft");
  ExpectRefused("--draft coin --check --draft-compare", "--draft-compare: expected without --check, which compares by itself");
  ExpectRefused("--draft lookup --bench", "--draft is lookup, expected coin with --bench, whose prompts are random");
  ExpectRefused("--draft lookup -p a --force-ids 1",
                "--force-ids: expected without --draft, whose guesses follow what is sampled");
  ExpectRefused("--overcommit -p a --force-ids 1",
                "--force-ids: expected without --overcommit, with which requests begin again with the tokens that they sampled");
  ExpectRefused("--overcommit --bench",
                "--overcommit: expected without --bench, which runs its own cases and writes its table alone");
  ExpectRefused("--draft lookup --logits a", "--logits: expected without --draft, with which a step has several for a request");
}

} // namespace

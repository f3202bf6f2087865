// The small examples as programs: their answers, compared with the rule that their model follows, and what they refuse.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <map>
#include <string>

#include "cgr/cgr.h"
#include "tests/support/commands.h"

namespace {

constexpr size_t kMaxSeqLen = 64, kMaxPrompt = 32;

using cgr_test::Outcome;

Outcome RunExample(const std::string &arguments) { return cgr_test::RunCommand("examples/" + arguments); }

// ---------------------------------------------------------------------------------------------------------------- the rule

// What the model of the examples says next: the letter that most often followed the last one. These tests avoid texts in which
// two letters tie for first place: rounding would decide.
char Next(const std::string &text) {
  std::map<char, int> votes;
  for (size_t i = 1; i < text.size(); i++)
    if (text[i - 1] == text.back())
      votes[text[i]]++;
  char best = '?';
  int most = 0, rivals = 0;
  for (const auto &[letter, count] : votes) {
    rivals = count > most ? 0 : rivals + (count == most);
    best = count > most ? letter : best;
    most = std::max(most, count);
  }
  EXPECT_TRUE(most > 0 && rivals == 0) << "\"" << text << "\" has no clear next letter";
  return best;
}

// `letters` of them, each from all that came before.
std::string Continued(std::string text, size_t letters) {
  const size_t begin = text.size();
  while (text.size() < begin + letters)
    text += Next(text);
  return text.substr(begin);
}

// The prompt's step and those of the letters that still fit; the last letter is shown but not fed back.
std::string WhatMinimalPrints(const std::string &text) {
  const size_t steps = kMaxSeqLen - text.size() + 1;
  const std::string n = std::to_string(steps);
  return text + Continued(text, steps) + "\n" + n + " steps, " + n + " of them graph replays\n";
}

TEST(Rule, FollowsWhatCameBefore) {
  EXPECT_EQ(Continued("graphs g", 10), "raphs grap");
  EXPECT_EQ(Continued("xyxyxz x", 4), "yxyx");
}

// ------------------------------------------------------------------------------------------------------------ the programs

class Examples : public ::testing::TestWithParam<const char *> {
protected:
  void SetUp() override {
    cgr_device *device = nullptr;
    const cgr_status status = cgr_device_open(GetParam(), nullptr, &device);
    const char *require = std::getenv("CGR_REQUIRE_GPU");
    if (status != CGR_OK) {
      ASSERT_FALSE(require != nullptr && std::string(require) == "1") << cgr_last_message();
      GTEST_SKIP() << cgr_last_message();
    }
    ASSERT_EQ(cgr_device_close(device), CGR_OK);
  }
};

TEST_P(Examples, MinimalGoesOnInCAndInCxx) {
  for (const char *program : { "minimal ", "minimal_cc " }) {
    const Outcome outcome = RunExample(std::string(program) + GetParam());
    EXPECT_EQ(outcome.status, 0) << program;
    EXPECT_EQ(outcome.text, WhatMinimalPrints("graphs g")) << program;
  }
}

// Lengths on both sides of a page boundary, the longest and the shortest that goes on, and letters that were followed by
// different ones.
TEST_P(Examples, MinimalGoesOnWithAnyText) {
  const std::string longest = "abcdefghijklmnopqrstuvwxyzabcdef";
  ASSERT_EQ(longest.size(), kMaxPrompt);
  for (const std::string &text : { std::string("aa"), std::string("buzz"), std::string("aba"), std::string("xyxyxz x"), longest,
                                   longest.substr(1), std::string("aaab aa"), std::string("one twone twone"),
                                   std::string("abcdefghijklmnoa"), std::string("abcdefghijklmnopa") })
    for (const char *program : { "minimal ", "minimal_cc " }) {
      const Outcome outcome = RunExample(program + std::string(GetParam()) + " '" + text + "'");
      EXPECT_EQ(outcome.status, 0) << program << text;
      EXPECT_EQ(outcome.text, WhatMinimalPrints(text)) << program << text;
    }
}

// A text is cut off where the step's tokens end.
TEST_P(Examples, MinimalTakesTheBeginningOfALongText) {
  const std::string begin = "abcdefghijklmnopqrstuvwxyzabcdef";
  for (const char *program : { "minimal ", "minimal_cc " })
    EXPECT_EQ(RunExample(program + std::string(GetParam()) + " '" + begin + "zzzzzz'").text, WhatMinimalPrints(begin)) << program;
}

TEST(ExamplesHelp, GivesTheRuleOfTheModel) {
  for (const std::string program : { "minimal", "minimal_cc" }) {
    const Outcome outcome = RunExample(program + " --help");
    EXPECT_EQ(outcome.status, 0);
    EXPECT_EQ(outcome.text.rfind("Usage: " + program + " [DEVICE [TEXT]]\n\n", 0), 0u) << outcome.text;
    EXPECT_NE(outcome.text.find("comes the one that followed it most often so far."), std::string::npos) << outcome.text;
    EXPECT_EQ(RunExample(program + " -h").text, outcome.text);
  }
}

// An empty text is a space, after which the model knows spaces alone.
TEST_P(Examples, MinimalTakesAnEmptyText) {
  const std::string spaces(1 + kMaxSeqLen, ' ');
  for (const char *program : { "minimal ", "minimal_cc " })
    EXPECT_EQ(RunExample(program + std::string(GetParam()) + " ''").text, spaces + "\n64 steps, 64 of them graph replays\n")
        << program;
}

TEST_P(Examples, OwnKernelsGiveTheSameLetters) {
  const Outcome outcome = RunExample(std::string("own_kernels ") + GetParam());
  EXPECT_EQ(outcome.status, 0);
  EXPECT_EQ(outcome.text, Continued("graphs g", 50) + "\n" + Continued("buzz", 50) +
                              "\n50 steps, 50 of them graph replays\n"
                              "cgr's kernels and page table give the same letters, in 50 replays\n");
}

INSTANTIATE_TEST_SUITE_P(Devices, Examples, ::testing::Values("host", "cuda:0"),
                         [](const auto &device) { return std::string(device.param) == "host" ? "host" : "cuda"; });

TEST(ExamplesRefuse, ADeviceThatIsNone) {
  for (const std::string program : { "minimal", "minimal_cc", "own_kernels" }) {
    const Outcome outcome = RunExample(program + " nonsense");
    EXPECT_EQ(outcome.status, 1) << program;
    EXPECT_EQ(outcome.text, program + ": cgr_device_open: name is \"nonsense\", expected \"host\", \"cuda\" or \"cuda:N\"\n");
    const Outcome far_away = RunExample(program + " cuda:4711");
    EXPECT_EQ(far_away.status, 1) << program;
    EXPECT_EQ(far_away.text.rfind(program + ": cgr_device_open: name is cuda:4711", 0), 0u) << far_away.text;
  }
}

TEST(ExamplesRefuse, ATextThatIsNotExpected) {
  const Outcome outcome = RunExample("own_kernels host text");
  EXPECT_EQ(outcome.status, 1);
  EXPECT_EQ(outcome.text, "own_kernels: expected one argument at most, the device\n");
}

// ------------------------------------------------------------------------------------------------------------- the sources

TEST(ExamplesAreShort, InLines) {
  const std::map<std::string, int> limits = { { "minimal.c", 110 }, { "minimal.cc", 120 }, { "own_kernels.c", 200 } };
  for (const auto &[name, limit] : limits) {
    std::ifstream in("examples/" + name);
    int lines = 0;
    for (std::string line; std::getline(in, line); lines++)
      EXPECT_LE(line.size(), 140u) << name << ": " << line;
    EXPECT_GT(lines, 50) << name << " is not there";
    EXPECT_LT(lines, limit) << name;
  }
}

// An engine has only the public headers.
TEST(ExamplesAreEngines, TheyIncludeThePublicHeaderAlone) {
  for (const char *name : { "minimal.c", "minimal.cc", "own_kernels.c" }) {
    std::ifstream in(std::string("examples/") + name);
    int includes = 0;
    for (std::string line; std::getline(in, line);)
      if (line.rfind("#include", 0) == 0 && line.find('/') != std::string::npos) {
        EXPECT_EQ(line, "#include <cgr/cgr.h>") << name;
        includes++;
      }
    EXPECT_EQ(includes, 1) << name;
  }
}

} // namespace

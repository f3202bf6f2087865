// The small examples as programs: their answers, compared with the rule that their model follows, and what they refuse.
#include <fstream>
#include <map>
#include <set>
#include <string>

#include "tests/examples/programs.h"

namespace {

constexpr size_t kMaxSeqLen = 64, kMaxPrompt = 32;

using cgr_test::Continued;
using cgr_test::Outcome;
using cgr_test::RunExample;

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

using Examples = cgr_test::OnDevice;

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

INSTANTIATE_TEST_SUITE_P(Devices, Examples, ::testing::Values("host", "cuda:0"), cgr_test::DeviceName);

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
  const std::map<std::string, int> limits = {
    { "minimal.c", 110 }, { "minimal.cc", 120 }, { "own_kernels.c", 200 }, { "tutorial.c", 400 }
  };
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
TEST(ExamplesAreEngines, TheyIncludeThePublicHeadersAlone) {
  const std::set<std::string> tutorial = { "<cgr/cgr.h>", "<cgr/names.h>", "<cgr/tracing.h>", "<sys/wait.h>" };
  for (const char *name : { "minimal.c", "minimal.cc", "own_kernels.c", "tutorial.c" }) {
    std::ifstream in(std::string("examples/") + name);
    std::set<std::string> included;
    for (std::string line; std::getline(in, line);)
      if (line.rfind("#include ", 0) == 0 && line.find('/') != std::string::npos)
        included.insert(line.substr(9));
    EXPECT_EQ(included, name == std::string("tutorial.c") ? tutorial : std::set<std::string>{ "<cgr/cgr.h>" }) << name;
  }
}

} // namespace

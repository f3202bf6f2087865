// The tutorial's program, step by step, compared with the rule of its model, and what docs/tutorial.md says that it prints.
#include <regex>
#include <sstream>
#include <string>
#include <vector>

#include "tests/examples/page.h"
#include "tests/examples/programs.h"

namespace {

using cgr_test::Continued;
using cgr_test::Holds;
using cgr_test::Lines;
using cgr_test::Outcome;
using cgr_test::RunExample;

// What the steps print, a line each; addresses differ from run to run.
Lines RunTutorial(const std::string &arguments) {
  const Outcome outcome = RunExample("tutorial " + arguments);
  EXPECT_EQ(outcome.status, 0) << outcome.text;
  return cgr_test::LinesOf(std::istringstream(std::regex_replace(outcome.text, std::regex("0x[0-9a-f]+"), "0x..")));
}

const struct Served {
  const char *prompt;
  size_t letters;
} kServed[] = { { "graphs g", 30 }, { "buzz", 5 }, { "one twone twone", 40 }, { "abcdefghijklmnopqrstuvwxyzabc", 32 } };

Lines Answers(size_t count) {
  Lines lines;
  for (size_t i = 0; i < count; i++)
    lines.push_back(kServed[i].prompt + Continued(kServed[i].prompt, kServed[i].letters));
  return lines;
}

class Tutorial : public cgr_test::OnDevice {
protected:
  Lines Run(int step) const { return RunTutorial(GetParam() + std::string(" ") + std::to_string(step)); }
  // The answers, and after them the counts, which follow from the engine's rules.
  void ExpectServed(int step, size_t requests, const std::string &counts) const {
    Lines want = Answers(requests);
    want.push_back(counts);
    EXPECT_TRUE(Holds(Run(step), want)) << cgr_test::Joined(Run(step)) << "\nhas not:\n" << cgr_test::Joined(want);
  }
};

// One step for the prompts and one for each further letter of the request that wants most.
TEST_P(Tutorial, ServesManyRequestsFromAPool) { ExpectServed(1, 3, "40 steps, 40 replays, 0 preempted, 0 swapped"); }

TEST_P(Tutorial, CutsPromptsIntoChunks) { ExpectServed(2, 4, "44 steps, 44 replays, 0 preempted, 0 swapped"); }

TEST_P(Tutorial, EditsTheStandingBatch) { ExpectServed(3, 4, "44 steps, 44 replays, 0 preempted, 1 swapped"); }

TEST_P(Tutorial, PreemptsWhenThePoolIsEmpty) { ExpectServed(4, 4, "73 steps, 73 replays, 2 preempted, 1 swapped"); }

// How many steps wait for the one before depends on how fast the device is: only those before which no page is free.
TEST_P(Tutorial, RunsAStepAhead) {
  ExpectServed(5, 4, "73 steps, 73 replays, 2 preempted, 1 swapped");
  EXPECT_GT(std::stoi(Run(5).back()), 50) << Run(5).back();
}

TEST_P(Tutorial, RecoversFromErrors) {
  const Lines lines = Run(6);
  ASSERT_EQ(lines.size(), 9u) << cgr_test::Joined(lines);
  const char *const begins[] = { "no page: cgr_step_prepare: ",
                                 "no stream: cgr_step_launch: stream is NULL",
                                 "both: CGR_OK",
                                 "one step too many: cgr_step_prepare: ",
                                 "it waits: CGR_OK",
                                 "in a fork: cgr_step_launch: ",
                                 "stopped: CGR_OK",
                                 "2 steps, 2 replays, " };
  for (size_t i = 0; i < 8; i++)
    EXPECT_EQ(lines[i + 1].rfind(begins[i], 0), 0u) << lines[i + 1];
}

TEST_P(Tutorial, CountsReasonsAndWritesATrace) {
  const cgr_test::Folder folder;
  const std::string path = folder.path() / "trace.json";
  const Lines lines = RunTutorial(GetParam() + (" 7 '" + path + "'"));
  EXPECT_TRUE(Holds(lines, { "none, not uniform: 9 steps", "none, internal: 3 steps", "full, exact: 13 steps",
                             "full, padded: 22 steps", "159 tokens, 181 with padding" }))
      << cgr_test::Joined(lines);
  EXPECT_TRUE(Holds(lines, Answers(4))) << cgr_test::Joined(lines);
  const std::string trace = folder.Read("trace.json");
  EXPECT_EQ(trace.substr(0, 1), "{");
  EXPECT_EQ(trace.substr(trace.size() - 4), "\n]}\n");
  EXPECT_NE(trace.find("\"prepare\""), std::string::npos);
}

TEST_P(Tutorial, StopsInTheMiddle) {
  const Lines lines = Run(8);
  ASSERT_EQ(lines.size(), 9u) << cgr_test::Joined(lines);
  EXPECT_EQ(lines[1].rfind("a pool of 2 pages: cgr_runtime_create: ", 0), 0u) << lines[1];
  EXPECT_EQ(lines[2], "stopped: CGR_OK");
  EXPECT_EQ(lines[3].rfind("the cache first: cgr_memory_free: ", 0), 0u) << lines[3];
  EXPECT_EQ(lines[8], "1 steps, 1 replays, 0 preempted, 0 swapped");
}

INSTANTIATE_TEST_SUITE_P(Devices, Tutorial, ::testing::Values("host", "cuda:0"), cgr_test::DeviceName);

TEST(TutorialRefuses, WhatItDoesNotExpect) {
  const std::string usage = "tutorial: expected [DEVICE [STEP [TRACE]]], with a STEP of 1 to 8\n";
  for (const char *arguments : { "host 9", "host 0", "host x", "host 1 a b" }) {
    const Outcome outcome = RunExample(std::string("tutorial ") + arguments);
    EXPECT_EQ(outcome.status, 1) << arguments;
    EXPECT_EQ(outcome.text, usage) << arguments;
  }
  const Outcome outcome = RunExample("tutorial host 7 /nowhere/trace.json");
  EXPECT_EQ(outcome.status, 1);
  EXPECT_EQ(outcome.text.rfind("/nowhere/trace.json: ", 0), 0u) << outcome.text;
  EXPECT_NE(RunExample("tutorial nonsense 1").text.find("tutorial: cgr_device_open: name is \"nonsense\""), std::string::npos);
}

// A block of text in the page is what the program prints on the host; tests/docs compares its code.
TEST(TutorialPage, ShowsWhatIsPrinted) {
  const Lines printed = RunTutorial("host");
  const std::vector<Lines> blocks = cgr_test::Blocks(cgr_test::ReadLines("docs/tutorial.md"), "text");
  EXPECT_GE(blocks.size(), 7u);
  for (const Lines &block : blocks)
    EXPECT_TRUE(Holds(printed, block)) << "the program does not print:\n" << cgr_test::Joined(block);
}

} // namespace

// The report over the kept results, the scripts around Nsight, and profiles/README.md, by tests in Python: a test here for each
// class of tests there.
#include <gtest/gtest.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#include <string>

namespace {

struct Outcome {
  int status;
  std::string text;
};

Outcome RunCommand(const std::string &command) {
  Outcome outcome{ -1, "" };
  char buffer[4096];
  FILE *pipe = popen((command + " 2>&1").c_str(), "r");
  if (!pipe)
    return outcome;
  for (size_t n; (n = fread(buffer, 1, sizeof buffer, pipe)) > 0;)
    outcome.text.append(buffer, n);
  int status = pclose(pipe);
  outcome.status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return outcome;
}

class Scripts : public testing::TestWithParam<const char *> {};

TEST_P(Scripts, DoWhatIsSaidOfThem) {
  if (RunCommand("python3 -c 'import sys; sys.exit(sys.version_info < (3, 10))'").status != 0)
    GTEST_SKIP() << "no python3 of version 3.10 or later";
  Outcome outcome = RunCommand(std::string("python3 -B tests/profiles/") + GetParam());
  EXPECT_EQ(outcome.status, 0) << outcome.text;
  EXPECT_NE(outcome.text.find("\nRan "), std::string::npos) << outcome.text;
  size_t skipped = outcome.text.find("skipped '");
  if (outcome.status == 0 && skipped != std::string::npos)
    GTEST_SKIP() << outcome.text.substr(skipped, outcome.text.find('\n', skipped) - skipped);
}

INSTANTIATE_TEST_SUITE_P(Profiles, Scripts,
                         testing::Values("report_test.py -v Parser", "report_test.py -v Comparison", "report_test.py -v Page",
                                         "report_test.py -v Plots", "scripts_test.py -v Scripts", "scripts_test.py -v Readme"),
                         [](const auto &of) { return std::string(strrchr(of.param, ' ') + 1); });

} // namespace

// The tables of the kept results, how two sets of them compare, the scripts around Nsight, and profiles/README.md. The tests are
// in Python: each test here runs a class of tests there.
#include "tests/support/commands.h"

namespace cgr_test {
namespace {

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
                         testing::Values("parser_test.py -v Parser", "peers_test.py -v Gguf", "peers_test.py -v LlamaCpp",
                                         "report_test.py -v Comparison", "results_test.py -v Tables",
                                         "results_test.py -v Numbers", "scripts_test.py -v Scripts",
                                         "scripts_test.py -v Measuring", "scripts_test.py -v Readme"),
                         [](const auto &of) { return std::string(strrchr(of.param, ' ') + 1); });

} // namespace
} // namespace cgr_test

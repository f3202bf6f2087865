// The rules of the comparison with transformers, by their own self-test: it plants errors in answers and expects each to be
// caught. Needs only Python.
#include "tests/support/commands.h"

namespace {

using cgr_test::RunCommand;

TEST(CompareRules, CatchPlantedErrors) {
  if (RunCommand("python3 -c 'import sys; sys.exit(sys.version_info < (3, 10))'").status != 0)
    GTEST_SKIP() << "no python3 of version 3.10 or later";
  const cgr_test::Outcome outcome = RunCommand("python3 -B examples/llama/compare_rules.py");
  EXPECT_EQ(outcome.status, 0) << outcome.text;
}

} // namespace

// The script that makes mutants of the library and runs the tests with them. The tests are in Python.
#include "tests/support/commands.h"

namespace cgr_test {
namespace {

TEST(Mutants, AreMadeAndRun) {
  if (RunCommand("python3 -c 'import sys; sys.exit(sys.version_info < (3, 9))'").status != 0)
    GTEST_SKIP() << "no python3 of version 3.9 or later";
  const Outcome outcome = RunCommand("python3 -B tests/tools/mutants_test.py");
  EXPECT_EQ(outcome.status, 0) << outcome.text;
}

} // namespace
} // namespace cgr_test

// The rules of the comparison with transformers, by their own self-test: it plants errors into answers and expects each to be
// caught. Needs Python alone.
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/wait.h>

namespace {

int ExitStatus(const char *command) {
  int status = system(command);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(CompareRules, CatchPlantedErrors) {
  if (ExitStatus("python3 -c 'import sys; sys.exit(sys.version_info < (3, 10))'") != 0)
    GTEST_SKIP() << "no python3 of version 3.10 or later";
  EXPECT_EQ(ExitStatus("python3 -B examples/llama/compare_rules.py"), 0);
}

} // namespace

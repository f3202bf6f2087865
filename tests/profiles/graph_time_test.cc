// The script for exports of Nsight Systems, by a test in its own language: exports with known times, made up. Needs Python alone.
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/wait.h>

namespace {

int ExitStatus(const char *command) {
  int status = system(command);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(GraphTime, OfExportsThatAreMadeUp) {
  if (ExitStatus("python3 -c 'import sqlite3, sys; sys.exit(sys.version_info < (3, 9))'") != 0)
    GTEST_SKIP() << "no python3 of version 3.9 or later with sqlite3";
  EXPECT_EQ(ExitStatus("python3 -B tests/profiles/graph_time_test.py profiles/graph_time.py"), 0);
}

} // namespace

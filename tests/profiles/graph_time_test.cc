// The script for exports of Nsight Systems, tested in its own language with made-up exports of known times. Needs only Python.
#include "tests/support/commands.h"

namespace cgr_test {
namespace {

TEST(GraphTime, OfExportsThatAreMadeUp) {
  if (RunCommand("python3 -c 'import sqlite3, sys; sys.exit(sys.version_info < (3, 9))'").status != 0)
    GTEST_SKIP() << "no python3 of version 3.9 or later with sqlite3";
  const Outcome outcome = RunCommand("python3 -B tests/profiles/graph_time_test.py profiles/graph_time.py");
  EXPECT_EQ(outcome.status, 0) << outcome.text;
}

} // namespace
} // namespace cgr_test

// The proof of buffers/PROTOCOL.md by the model checker spin. What is proved is in protocol_test.py.
#include "tests/support/commands.h"

namespace cgr_test {
namespace {

TEST(Protocol, HoldsAsAModelAndNeedsEachGuard) {
  if (RunCommand("python3 -c 'import sys; sys.exit(sys.version_info < (3, 9))'").status != 0)
    GTEST_SKIP() << "no python3 of version 3.9 or later";
  if (RunCommand("spin -V").status != 0)
    GTEST_SKIP() << "no spin (Debian's package of that name)";
  if (RunCommand("${CC:-gcc} --version").status != 0)
    GTEST_SKIP() << "no C compiler: neither $CC nor gcc";
  const Outcome outcome = RunCommand("python3 -B tests/protocol/protocol_test.py");
  EXPECT_EQ(outcome.status, 0) << outcome.text;
  printf("%s", outcome.text.c_str()); // states and time of each configuration
}

} // namespace
} // namespace cgr_test

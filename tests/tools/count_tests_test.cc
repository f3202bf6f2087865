// The summary of a test run: how many cases passed, failed and were skipped, and why they were skipped.
#include "tests/support/commands.h"

namespace cgr_test {
namespace {

std::string Case(const std::string &name, const std::string &inside, const std::string &attributes = "") {
  return "    <testcase name=\"" + name + "\" " + attributes + (inside.empty() ? "/>\n" : ">\n" + inside + "    </testcase>\n");
}
std::string Skipped(const std::string &why) {
  return "      <skipped message=\"some/test.cc:12&#x0A;" + why + "&#x0A;\"><![CDATA[]]></skipped>\n";
}
const std::string kFailure = "      <failure message=\"it is not\" type=\"\"></failure>\n";

class CountTests : public testing::Test {
protected:
  Outcome Count(const std::string &names) {
    return RunCommand("cd " + folder_.path().string() + " && printf '" + names + "' | bash \"$OLDPWD\"/tools/count_tests.sh");
  }
  Folder folder_;
};

TEST_F(CountTests, AddsUpFilesAndGivesReasons) {
  folder_.Write("a.xml", "<testsuites>\n" + Case("one", "") + Case("two", Skipped("no GPU")) + Case("three", "") +
                             Case("four", Skipped("no GPU")) + "</testsuites>\n");
  folder_.Write("b.xml",
                "<testsuites>\n" + Case("one", Skipped("needs two GPUs, there are 0")) + Case("two", "") + "</testsuites>\n");
  const Outcome outcome = Count("a.xml\\nb.xml\\n");
  EXPECT_EQ(outcome.status, 0);
  EXPECT_EQ(outcome.text, "skipped 2: no GPU\nskipped 1: needs two GPUs, there are 0\n3 passed, 0 failed, 3 skipped\n");
}

// As they were written, not as XML escapes them.
TEST_F(CountTests, GivesReasonsInPlainText) {
  folder_.Write("a.xml", "<testsuites>\n" + Case("one", Skipped("Debian&apos;s &quot;x&quot; &lt; 3 &amp;&amp; no &amp;lt;")) +
                             "</testsuites>\n");
  EXPECT_EQ(Count("a.xml\\n").text, "skipped 1: Debian's \"x\" < 3 && no &lt;\n0 passed, 0 failed, 1 skipped\n");
}

// The most frequent first.
TEST_F(CountTests, SortsReasons) {
  std::string cases;
  for (const char *why : { "a", "c", "b", "c", "b", "c" })
    cases += Case("one", Skipped(why));
  for (int i = 0; i < 10; i++)
    cases += Case("one", Skipped("d"));
  folder_.Write("a.xml", "<testsuites>\n" + cases + "</testsuites>\n");
  EXPECT_EQ(Count("a.xml\\n").text, "skipped 10: d\nskipped 3: c\nskipped 2: b\nskipped 1: a\n0 passed, 0 failed, 16 skipped\n");
}

TEST_F(CountTests, FailsWhenACaseDoes) {
  folder_.Write("a.xml", "<testsuites>\n" + Case("one", kFailure) + Case("two", "") + "</testsuites>\n");
  const Outcome outcome = Count("a.xml\\n");
  EXPECT_EQ(outcome.status, 1);
  EXPECT_EQ(outcome.text, "1 passed, 1 failed, 0 skipped\n");
}

// A case that both failed and was skipped counts as failed.
TEST_F(CountTests, AFailureIsNoSkip) {
  folder_.Write("a.xml", "<testsuites>\n" + Case("one", kFailure + Skipped("no GPU")) + "</testsuites>\n");
  EXPECT_EQ(Count("a.xml\\n").text, "0 passed, 1 failed, 0 skipped\n");
}

TEST_F(CountTests, AFileThatIsMissingIsAFailure) {
  const Outcome outcome = Count("nowhere.xml\\n");
  EXPECT_EQ(outcome.status, 1);
  EXPECT_NE(outcome.text.find("nowhere.xml: not there\n0 passed, 1 failed, 0 skipped\n"), std::string::npos) << outcome.text;
}

TEST_F(CountTests, AProgramWithoutCasesCountsAsOne) {
  folder_.Write("a.xml", "<testsuites>\n</testsuites>\n");
  EXPECT_EQ(Count("a.xml\\n").text, "1 passed, 0 failed, 0 skipped\n");
}

} // namespace
} // namespace cgr_test

// The project's pages: their links, names and code, and the reference made from the headers. The tests are in Python.
#include "tests/support/commands.h"

namespace cgr_test {
namespace {

class Docs : public testing::Test {
protected:
  void SetUp() override {
    if (RunCommand("python3 -c 'import sys; sys.exit(sys.version_info < (3, 9))'").status != 0)
      GTEST_SKIP() << "no python3 of version 3.9 or later";
  }
  static void Pass(const std::string &tests, const std::string &script = "docs_test.py") {
    const Outcome outcome = RunCommand("python3 -B tests/docs/" + script + " " + tests);
    EXPECT_EQ(outcome.status, 0) << outcome.text;
  }
};

TEST_F(Docs, LinksLeadSomewhere) { Pass("Links"); }

TEST_F(Docs, NamesAreThoseOfTheHeaders) { Pass("Names"); }

TEST_F(Docs, CodeCompiles) {
  if (RunCommand("${CC:-gcc} --version >/dev/null 2>&1").status != 0)
    GTEST_SKIP() << "no C compiler: neither $CC nor gcc";
  Pass("Code");
}

TEST_F(Docs, TheReferenceHasEverything) { Pass("Reference"); }

TEST_F(Docs, TheReferenceIsLinkedInItself) { Pass("Html", "guide_test.py"); }

TEST_F(Docs, ATraceBecomesAPicture) { Pass("Trace", "guide_test.py"); }

TEST_F(Docs, ThePagesBecomeHtml) {
  if (RunCommand("cmark-gfm --version >/dev/null 2>&1").status != 0)
    GTEST_SKIP() << "no cmark-gfm (Debian's package of that name): the guide has the reference alone";
  Pass("Pages", "guide_test.py");
}

} // namespace
} // namespace cgr_test

// The pages of the project: their links, names and code, and the reference that is made from the headers. Tests in Python.
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/wait.h>

#include <string>

namespace {

int ExitStatus(const std::string &command) {
  int status = system(command.c_str());
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

class Docs : public testing::Test {
protected:
  void SetUp() override {
    if (ExitStatus("python3 -c 'import sys; sys.exit(sys.version_info < (3, 9))'") != 0)
      GTEST_SKIP() << "no python3 of version 3.9 or later";
  }
  int Run(const std::string &tests) const { return ExitStatus("python3 -B tests/docs/docs_test.py " + tests); }
};

TEST_F(Docs, LinksLeadSomewhere) { EXPECT_EQ(Run("Links"), 0); }

TEST_F(Docs, NamesAreThoseOfTheHeaders) { EXPECT_EQ(Run("Names"), 0); }

TEST_F(Docs, CodeCompiles) {
  if (ExitStatus("${CC:-gcc} --version >/dev/null 2>&1") != 0)
    GTEST_SKIP() << "no C compiler: neither $CC nor gcc";
  EXPECT_EQ(Run("Code"), 0);
}

TEST_F(Docs, TheReferenceHasEverything) { EXPECT_EQ(Run("Reference"), 0); }

TEST_F(Docs, TheReferenceIsLinkedInItself) { EXPECT_EQ(Run("Html"), 0); }

TEST_F(Docs, ThePagesBecomeHtml) {
  if (ExitStatus("cmark-gfm --version >/dev/null 2>&1") != 0)
    GTEST_SKIP() << "no cmark-gfm (Debian's package of that name): the guide has the reference alone";
  EXPECT_EQ(Run("Pages"), 0);
}

} // namespace

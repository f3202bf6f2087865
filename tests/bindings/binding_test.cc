// A Python binding that cffi makes from the headers. The tests are in Python and run an engine with it on the host device.
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/wait.h>

#include <string>

namespace {

bool Succeeds(const std::string &command) {
  int status = system(command.c_str());
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

// The first one on PATH may not see the system's packages.
std::string Python() {
  for (const std::string python : { "python3", "/usr/bin/python3" })
    if (Succeeds(python + " -c 'import cffi, pycparser, sys; sys.exit(sys.version_info < (3, 9))' 2>/dev/null"))
      return python;
  return "";
}

// Runs a class of the tests in Python.
class Cffi : public testing::Test {
protected:
  void SetUp() override {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    GTEST_SKIP() << "a library with this sanitizer does not load into Python";
#endif
    python_ = Python();
    if (python_.empty())
      GTEST_SKIP() << "no python3 of version 3.9 or later with cffi (Debian's python3-cffi)";
    if (!Succeeds("${CC:-gcc} --version >/dev/null 2>&1"))
      GTEST_SKIP() << "no C preprocessor: neither $CC nor gcc";
  }
  bool Pass(const std::string &tests) const { return Succeeds(python_ + " -B tests/bindings/binding_test.py " + tests); }

private:
  std::string python_;
};

TEST_F(Cffi, SeesWhatTheCompilerSees) { EXPECT_TRUE(Pass("Declarations")); }

TEST_F(Cffi, RunsAnEngine) {
  EXPECT_TRUE(Pass("Reference"));
  EXPECT_TRUE(Pass("Engines"));
}

TEST_F(Cffi, TellsWhatFailed) { EXPECT_TRUE(Pass("Errors")); }

} // namespace

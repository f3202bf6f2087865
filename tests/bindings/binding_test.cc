// A Python binding that cffi makes from the headers. The tests are in Python and run an engine with it on the host device.
#include "tests/support/python_case.h"

namespace cgr_test {
namespace {

// Runs a class of the tests in Python.
class Cffi : public PythonCase {
protected:
  void SetUp() override {
    FindPython("import cffi, pycparser, sys; sys.exit(sys.version_info < (3, 9))",
               "of version 3.9 or later with cffi (Debian's python3-cffi)");
  }
  void ExpectPass(const std::string &tests) const {
    const Outcome outcome = RunCommand(python_ + " -B tests/bindings/binding_test.py " + tests);
    EXPECT_EQ(outcome.status, 0) << outcome.text;
  }
};

TEST_F(Cffi, SeesWhatTheCompilerSees) { ExpectPass("Declarations"); }

TEST_F(Cffi, RunsAnEngine) {
  ExpectPass("Reference");
  ExpectPass("Engines");
}

TEST_F(Cffi, TellsWhatFailed) { ExpectPass("Errors"); }

} // namespace
} // namespace cgr_test

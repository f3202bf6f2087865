// The Python package, made from the tree and tried on the host device. Its tests are in Python.
#include "tests/support/python_case.h"

namespace cgr_test {
namespace {

class Wheel : public PythonCase {
protected:
  void SetUp() override {
    FindPython("import numpy, os, sys, sysconfig; path = sysconfig.get_path(\"include\"); "
               "sys.exit(sys.version_info < (3, 11) or not os.path.exists(path + \"/Python.h\"))",
               "of version 3.11 or later with numpy and Python.h (Debian's python3-numpy and python3-dev)");
  }
};

TEST_F(Wheel, IsMadeAndPassesItsTests) {
  const Folder folder("cgr_wheel_");
  const std::string package = folder.path().string();
  const Outcome made = RunCommand(python_ +
                                  " -B bindings/python/wheel.py --include include --library libcgr.so --validation "
                                  "libcgr_validation.a --unpacked --out " +
                                  package);
  ASSERT_EQ(made.status, 0) << made.text;
  EXPECT_EQ(made.text, "") << "a warning";
  const Outcome tests = RunCommand("CGR_ROOT=$PWD PYTHONPATH=" + package + ":bindings/python/tests " + python_ +
                                   " -B -X faulthandler -m unittest discover -s bindings/python/tests");
  EXPECT_EQ(tests.status, 0) << tests.text;
}

} // namespace
} // namespace cgr_test

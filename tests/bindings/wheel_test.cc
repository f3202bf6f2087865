// The Python package, made from the tree and tried on the host device. Its tests are in Python.
#include "tests/support/commands.h"

namespace cgr_test {
namespace {

// The first one on PATH may have neither numpy nor headers.
std::string Python() {
  for (const std::string python : { "python3", "/usr/bin/python3" })
    if (RunCommand(python + " -c 'import numpy, os, sys, sysconfig; path = sysconfig.get_path(\"include\"); "
                            "sys.exit(sys.version_info < (3, 11) or not os.path.exists(path + \"/Python.h\"))'")
            .status == 0)
      return python;
  return "";
}

class Wheel : public testing::Test {
protected:
  void SetUp() override {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    GTEST_SKIP() << "a library with this sanitizer does not load into Python";
#endif
    python_ = Python();
    if (python_.empty())
      GTEST_SKIP() << "no python3 of version 3.11 or later with numpy and Python.h (Debian's python3-numpy and python3-dev)";
    if (RunCommand("${CC:-gcc} --version").status != 0)
      GTEST_SKIP() << "no C compiler: neither $CC nor gcc";
  }
  std::string python_;
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

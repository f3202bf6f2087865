// Tests in Python, by the first interpreter that has what they need: $CGR_PYTHON, if it is set, comes first.
#pragma once

#include "tests/support/commands.h"

namespace cgr_test {

class PythonCase : public testing::Test {
protected:
  // Skips the test unless an interpreter succeeds with `program`; the first one on PATH may not see the system's packages.
  void FindPython(const std::string &program, const std::string &what) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    GTEST_SKIP() << "a library with this sanitizer does not load into Python";
#endif
    for (const std::string python : { "${CGR_PYTHON:-python3}", "python3", "/usr/bin/python3" })
      if (python_.empty() && RunCommand(python + " -c '" + program + "'").status == 0)
        python_ = python;
    if (python_.empty())
      GTEST_SKIP() << "no python3 " << what;
    if (RunCommand("${CC:-gcc} --version").status != 0)
      GTEST_SKIP() << "no C compiler: neither $CC nor gcc";
  }

  std::string python_;
};

} // namespace cgr_test

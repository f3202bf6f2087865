// What the compiler makes of declarations: sizes, offsets, values.
#ifndef CGR_TESTS_ABI_LAYOUT_H
#define CGR_TESTS_ABI_LAYOUT_H

#include <map>
#include <stdexcept>
#include <string>

#include "tests/abi/interface.h"
#include "tests/abi/symbols.h"

namespace cgr_test {

// Whether there is a C compiler: $CC, or gcc.
bool HasCompiler();

// A folder that goes with the object.
class TemporaryFolder {
public:
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder &) = delete;
  TemporaryFolder &operator=(const TemporaryFolder &) = delete;
  const std::string &path() const { return path_; }

private:
  std::string path_;
};

// The text of <cgr/cgr.h> in `include`, with all that it includes, after the preprocessor with further `options`.
std::string Preprocessed(const std::string &include, const std::string &options = "");

// Declares what the headers below `include` do; sizes, offsets and values are those that a program prints which is compiled with
// these headers. Throws std::runtime_error for headers that do not compile or hold more than plain declarations.
Interface Describe(const std::string &include, const Symbols &symbols);

} // namespace cgr_test

#endif // CGR_TESTS_ABI_LAYOUT_H

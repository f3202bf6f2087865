// Sizes, offsets and values of declarations, as the compiler computes them.
#pragma once

#include <map>
#include <string>

#include "tests/abi/interface.h"
#include "tests/abi/symbols.h"

namespace cgr_test {

// Whether there is a C compiler: $CC, or gcc.
bool HasCompiler();

// A folder that is removed with the object.
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

// The text of <cgr/bindings.h> in `include`, with all that it includes, preprocessed with additional `options`.
std::string Preprocessed(const std::string &include, const std::string &options = "");

// Declares what the headers below `include` declare; a program compiled with these headers prints the sizes, offsets and values.
// Throws std::runtime_error for headers that do not compile or hold more than plain declarations.
Interface Describe(const std::string &include, const Symbols &symbols);

} // namespace cgr_test

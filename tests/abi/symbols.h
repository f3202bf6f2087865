// The dynamic symbols of a shared library.
#ifndef CGR_TESTS_ABI_SYMBOLS_H
#define CGR_TESTS_ABI_SYMBOLS_H

#include <map>
#include <stdexcept>
#include <string>

namespace cgr_test {

struct Symbols {
  std::string soname;
  std::map<std::string, std::string> nodes; // of every exported symbol its version node; "" without one
};

// Throws std::runtime_error for what is no shared library of 64 bits.
Symbols ReadSymbols(const std::string &path);

} // namespace cgr_test

#endif // CGR_TESTS_ABI_SYMBOLS_H

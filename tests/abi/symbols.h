// The dynamic symbols of a shared library.
#pragma once

#include <map>
#include <string>

namespace cgr_test {

struct Symbols {
  std::string soname;
  std::map<std::string, std::string> nodes; // each exported symbol's version node; "" if it has none
};

// Throws std::runtime_error for anything but a 64-bit shared library.
Symbols ReadSymbols(const std::string &path);

} // namespace cgr_test

// Declares a change of the binary interface: ./bazelw run //tests/abi:update
#include <cstdlib>
#include <exception>
#include <iostream>
#include <string>

#include "tests/abi/layout.h"
#include "tests/abi/symbols.h"
#include "tests/abi/update.h"

int main() {
  const char *workspace = std::getenv("BUILD_WORKSPACE_DIRECTORY");
  if (workspace == nullptr) {
    std::cerr << "Run it by ./bazelw run //tests/abi:update\n";
    return 2;
  }
  try {
    const cgr_test::Interface now = cgr_test::Describe("include", cgr_test::ReadSymbols("libcgr.so"));
    return cgr_test::Update(now, std::string(workspace) + "/tests/abi/abi.txt", std::cout) ? 0 : 1;
  } catch (const std::exception &error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
}

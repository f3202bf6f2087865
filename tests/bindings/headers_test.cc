// What a generator of bindings cannot take from the headers: macros. Checks which there are, and that cgr_init replaces the _INIT
// macros.
#include <gtest/gtest.h>

#include <cstring>
#include <regex>
#include <set>
#include <sstream>
#include <string>

#include "cgr/bindings.h"
#include "tests/abi/layout.h"

namespace {

// The macros that the headers of cgr define: "NAME", or "NAME(" for one with arguments.
std::set<std::string> Macros() {
  std::set<std::string> macros;
  std::istringstream lines(cgr_test::Preprocessed("include", "-dD"));
  bool own = false;
  for (std::string line; std::getline(lines, line);)
    if (line.rfind("# ", 0) == 0)
      own = line.find("\"include/cgr/") != std::string::npos;
    else if (own && line.rfind("#define ", 0) == 0)
      macros.insert(line.substr(8, line.find_first_of(" (", 8) - 8 + (line[line.find_first_of(" (", 8)] == '(')));
  return macros;
}

TEST(Headers, ConstantsAreEnumerators) {
  if (!cgr_test::HasCompiler())
    GTEST_SKIP() << "no C compiler: neither $CC nor gcc";
  std::set<std::string> others;
  for (const std::string &macro : Macros())
    if (!std::regex_match(macro, std::regex("CGR_[A-Z0-9_]+_(INIT|H)")))
      others.insert(macro);
  const std::set<std::string> expected = {
    "CGR_API",
    // For #if, where enumerators cannot be seen. CGR_HEADER_VERSION is the enumerator.
    "CGR_VERSION",
    "CGR_VERSION_MAJOR",
    "CGR_VERSION_MINOR",
    "CGR_VERSION_PATCH",
    // Expands to enumerators within the headers, and to what C likes elsewhere; the preprocessor leaves the enumerators.
    "CGR_STATUS_LIST(",
    "CGR_STATUS_ENUM(",
    "CGR_STRUCT_LIST(",
    "CGR_STRUCT_ENUM(",
    // Numbers for an argument of any value: 1 << (buffer - CGR_BUFFER_KV_INDICES).
    "CGR_ON_DEMAND(",
    // Of a request's flags, and of its tokens.
    "CGR_REQUEST_DRAFTS(",
    "CGR_TOKEN_DRAFT(",
    // Text.
    "CGR_TRACE_TAIL",
  };
  EXPECT_EQ(others, expected);
}

// base.h: `size`, and zero for the rest; cgr_config also has a magic number and a version.
template <typename T> void ExpectTheRule(const char *name, const T &init) {
  static T zero;
  zero.size = sizeof zero;
  if constexpr (std::is_same_v<T, cgr_config>) {
    zero.magic = CGR_CONFIG_MAGIC;
    zero.version = CGR_HEADER_VERSION;
  }
  EXPECT_EQ(std::memcmp(&init, &zero, sizeof zero), 0) << name;
}

TEST(Headers, InitMacrosAreSizeAndZeros) {
#define EXPECT_THE_RULE(kind, number, type, macro) \
  {                                                \
    static const type init = macro;                \
    ExpectTheRule<type>(#macro, init);             \
  }
  CGR_STRUCT_LIST(EXPECT_THE_RULE)
  static const cgr_key init = CGR_KEY_INIT, zero{};
  EXPECT_EQ(std::memcmp(&init, &zero, sizeof zero), 0);
  EXPECT_EQ(static_cast<int>(CGR_HEADER_VERSION), CGR_VERSION);
}

} // namespace

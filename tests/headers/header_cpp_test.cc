// What header_cpp11.cc checks, each part as a test.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "tests/headers/check.h"
#include "tests/headers/headers.h"

#define PART(name, what) \
  int name##_in_cpp11(); \
  TEST(HeadersInCpp11, name) { EXPECT_EQ(name##_in_cpp11(), 0) << what; }
CGR_TEST_PARTS(PART)
PART(first, "each header first in a translation unit")
PART(braced, "_INIT macros as braced initialisers")

namespace {

// The public headers' lines, by their names below include/.
std::map<std::string, std::vector<std::string>> Headers() {
  std::map<std::string, std::vector<std::string>> headers;
  for (const auto &entry : std::filesystem::recursive_directory_iterator("include/cgr")) {
    if (entry.path().extension() != ".h")
      continue;
    std::ifstream file(entry.path());
    for (std::string line; std::getline(file, line);)
      headers[entry.path().lexically_relative("include").generic_string()].push_back(line);
  }
  return headers;
}

// The functions that `header` brings, whatever it includes.
int Functions(const std::map<std::string, std::vector<std::string>> &headers, const std::string &header,
              std::set<std::string> *seen) {
  int count = 0;
  if (!seen->insert(header).second)
    return 0;
  for (const std::string &line : headers.at(header)) {
    std::smatch included;
    count += line.rfind("CGR_API ", 0) == 0;
    if (std::regex_search(line, included, std::regex("^#include \"(cgr/[^\"]+)\"")))
      count += Functions(headers, included[1], seen);
  }
  return count;
}

TEST(Headers, EachIsFirstInATranslationUnit) {
  std::set<std::string> listed, there;
#define ADD(header) listed.insert(#header);
  PUBLIC_HEADERS(ADD)
#undef ADD
  for (const auto &[name, lines] : Headers())
    there.insert(std::regex_replace(name.substr(4, name.size() - 6), std::regex("/"), "_"));
  EXPECT_EQ(listed, there);
}

TEST(Headers, AreShortAndAnEngineNeedsFew) {
  const auto headers = Headers();
  std::set<std::string> seen, all;
  for (const auto &[name, lines] : headers)
    EXPECT_LE(lines.size(), 500u) << name;
  EXPECT_LE(Functions(headers, "cgr/cgr.h", &seen), 75);
  EXPECT_GT(Functions(headers, "cgr/bindings.h", &all), 130) << "the test does not see the functions";
  EXPECT_EQ(all.size(), headers.size()) << "cgr/bindings.h has to include every header";
  for (const char *apart : { "inspect", "tracing", "names", "planners", "bindings" })
    EXPECT_EQ(seen.count(std::string("cgr/") + apart + ".h"), 0u) << apart;
}

} // namespace

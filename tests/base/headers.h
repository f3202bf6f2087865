// The public headers as text, for tests that must know everything declared there.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string>

namespace cgr_test {

inline std::string HeaderText() {
  std::stringstream text;
  int count = 0;
  for (const auto &entry : std::filesystem::recursive_directory_iterator("include/cgr")) {
    if (entry.path().extension() != ".h")
      continue;
    std::ifstream file(entry.path());
    EXPECT_TRUE(file.good()) << entry.path() << " cannot be read";
    text << file.rdbuf();
    count++;
  }
  EXPECT_GT(count, 15) << "the headers are not all there";
  return text.str();
}

// The names that follow `keyword` at the start of a line and whose definition begins with `member` (anything: "").
inline std::set<std::string> Declared(const std::string &text, const std::string &keyword, const std::string &member) {
  std::set<std::string> names;
  for (size_t at = text.find("\n" + keyword); at != std::string::npos; at = text.find("\n" + keyword, at + 1)) {
    std::string name;
    size_t begin = at + 1 + keyword.size(), brace = text.find('{', begin);
    std::stringstream(text.substr(begin, 200)) >> name;
    if (brace != begin + name.size() + 1) // a pointer or a name for what is defined elsewhere
      continue;
    size_t first = text.find_first_not_of(" \n", text.find('\n', brace));
    if (text.compare(first, member.size(), member) == 0)
      names.insert(name);
  }
  return names;
}

} // namespace cgr_test

// The public headers as text, for tests that must know everything declared there.
#ifndef CGR_TESTS_BASE_HEADERS_H
#define CGR_TESTS_BASE_HEADERS_H

#include <gtest/gtest.h>

#include <fstream>
#include <set>
#include <sstream>
#include <string>

namespace cgr_test {

inline std::string HeaderText() {
  std::stringstream text;
  for (const char *name : { "base", "device", "attention", "graphs", "planners", "tracing", "cgr" }) {
    std::ifstream file(std::string("include/cgr/") + name + ".h");
    EXPECT_TRUE(file.good()) << name << ".h cannot be read";
    text << file.rdbuf();
  }
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

#endif // CGR_TESTS_BASE_HEADERS_H

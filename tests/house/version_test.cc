// The version is defined in include/cgr/base.h; every repetition of it agrees.
#include <gtest/gtest.h>

#include <fstream>
#include <regex>
#include <sstream>
#include <string>

namespace {

std::string ReadFile(const std::string &path) {
  std::ifstream in(path);
  EXPECT_TRUE(in.good()) << path;
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

// The pattern's first group at its first match in the file.
std::string Find(const std::string &path, const std::string &pattern) {
  const std::string text = ReadFile(path);
  std::smatch match;
  EXPECT_TRUE(std::regex_search(text, match, std::regex(pattern))) << path << " has no " << pattern;
  return match.empty() ? "" : match[1].str();
}

std::string Version() {
  const std::string path = "include/cgr/base.h", number = " ([0-9]+)\n";
  return Find(path, "#define CGR_VERSION_MAJOR" + number) + "." + Find(path, "#define CGR_VERSION_MINOR" + number) + "." +
         Find(path, "#define CGR_VERSION_PATCH" + number);
}

TEST(Version, IsTheSameEverywhere) {
  const std::string version = Version(), numbers = "([0-9]+\\.[0-9]+\\.[0-9]+)";
  EXPECT_EQ(Find("MODULE.bazel", "version = \"" + numbers + "\""), version);
  EXPECT_EQ(Find("README.md", "This is version " + numbers), version);
  EXPECT_EQ(Find("CHANGELOG.md", "\n## " + numbers + " \\([0-9]{4}-[0-9]{2}-[0-9]{2}\\)\n"), version); // the first with a date
  EXPECT_EQ(Find("include/cgr/base.h", "\\(\"cgr " + numbers), version);                               // an example in a comment
}

// A program's loader asks for the SONAME, its linker for the node: tests/abi compares these in what Bazel has built.
TEST(Version, IsInTheNodeOfTheSymbols) {
  const std::string version = Version(), until = version[0] == '0' ? version.substr(0, version.rfind('.')) : version.substr(0, 1);
  EXPECT_EQ(Find("libcgr.map", "CGR_([0-9.]+) \\{"), until);
}

// A consumer asks for the minor version, and loads the library of that name.
TEST(Version, IsWhatThePageOnInstallingTellsToAskFor) {
  const std::string version = Version(), minor = version.substr(0, version.rfind('.'));
  EXPECT_EQ(Find("docs/install.md", "find_package\\(cgr ([0-9]+\\.[0-9]+) "), minor);
  EXPECT_EQ(Find("docs/install.md", "libcgr\\.so\\.([0-9.]+[0-9])"), version[0] == '0' ? minor : version.substr(0, 1));
}

TEST(Modules, GoogleTestIsADevDependency) {
  EXPECT_EQ(Find("MODULE.bazel", "name = \"googletest\",\\s+version = \"[0-9.]+\",\\s+dev_dependency = (\\w+)"), "True");
}

} // namespace

// The archive of //:dist, unpacked where a test wants it, and commands run next to it.
#pragma once

#include <set>

#include "tests/support/commands.h"

namespace cgr_test {

inline bool IsThere(const std::string &tool) { return RunCommand("command -v " + tool).status == 0; }

#define CGR_SKIP_WITHOUT_TOOL(tool) \
  if (!IsThere(tool))               \
  GTEST_SKIP() << "no " << tool

inline std::string Quoted(const fs::path &path) { return "'" + path.string() + "'"; }

inline std::string ReadFile(const fs::path &path) {
  std::ifstream in(path);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

// With a space and a non-ASCII letter in its name: nothing may trip over them.
class Scratch : public Folder {
public:
  Scratch() : Folder("cgr install \xc3\xa9 ") {}
};

// The archive's single top folder, below `folder`.
inline fs::path Unpack(const fs::path &folder) {
  fs::create_directories(folder);
  const Outcome outcome = RunCommand("tar -C " + Quoted(folder) + " -xzf cgr.tar.gz");
  EXPECT_EQ(outcome.status, 0) << outcome.text;
  fs::path top;
  for (const auto &entry : fs::directory_iterator(folder))
    top = entry.path();
  EXPECT_EQ(top.filename().string().rfind("cgr-", 0), 0u) << top;
  return top;
}

// What follows libcgr.so in the SONAME, of a tree called cgr-X.Y.Z: X.Y until 1.0, X from then on.
inline std::string SoVersion(const fs::path &tree) {
  const std::string version = tree.filename().string().substr(4);
  const size_t dot = version.find('.');
  return version.substr(0, version[0] == '0' ? version.find('.', dot + 1) : dot);
}

// Files and links of a tree, relative to its top; a link with its target.
inline std::set<std::string> Listing(const fs::path &top) {
  std::set<std::string> names;
  for (const auto &entry : fs::recursive_directory_iterator(top)) {
    std::string name = fs::relative(entry.path().parent_path(), top) / entry.path().filename();
    if (entry.is_symlink())
      name += " -> " + fs::read_symlink(entry.path()).string();
    if (!entry.is_directory())
      names.insert(name);
  }
  return names;
}

// The project's root, found through the files that Bazel links into a test's folder. Empty if they are copies.
inline fs::path Root() {
  const fs::path header = fs::canonical("include/cgr/base.h");
  const fs::path root = header.parent_path().parent_path().parent_path();
  return fs::exists(root / "CMakeLists.txt") && fs::exists(root / "base/version.c") ? root : fs::path();
}

} // namespace cgr_test

// The archive of //:dist, unpacked where a test wants it, and commands run beside it.
#ifndef CGR_TESTS_INSTALL_TREE_H
#define CGR_TESTS_INSTALL_TREE_H

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/wait.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string>

namespace cgr_test {

namespace fs = std::filesystem;

struct Outcome {
  int status = -1; // what it exited with
  std::string text;
};

inline Outcome RunCommand(const std::string &command) {
  Outcome outcome;
  char buffer[4096];
  FILE *pipe = popen(("(" + command + ") 2>&1").c_str(), "r");
  if (pipe == nullptr)
    return outcome;
  for (size_t n; (n = fread(buffer, 1, sizeof buffer, pipe)) > 0;)
    outcome.text.append(buffer, n);
  const int status = pclose(pipe);
  outcome.status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return outcome;
}

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

// A folder of this test's own, with a space and a letter outside ASCII in its name: nobody may trip over that.
class Scratch {
public:
  Scratch() {
    static int made = 0;
    const char *base = getenv("TEST_TMPDIR");
    path_ = fs::path(base != nullptr ? base : "/tmp") / ("cgr install \xc3\xa9 " + std::to_string(made++));
    fs::remove_all(path_);
    fs::create_directories(path_);
  }
  ~Scratch() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  const fs::path &path() const { return path_; }

private:
  fs::path path_;
};

// The archive's one top folder, below `folder`.
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

// Files and links of a tree, from its top on; a link with where it leads.
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

// The project's root: of files that Bazel links into the folder of a test. Empty where they are copies.
inline fs::path Root() {
  const fs::path header = fs::canonical("include/cgr/base.h");
  const fs::path root = header.parent_path().parent_path().parent_path();
  return fs::exists(root / "CMakeLists.txt") && fs::exists(root / "base/version.c") ? root : fs::path();
}

} // namespace cgr_test

#endif // CGR_TESTS_INSTALL_TREE_H

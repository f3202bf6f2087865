// How much the project may hold: lines of the library and of its tests, the shared library's bytes, the lines of a source.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <string>

namespace {

namespace fs = std::filesystem;

// Where the sources are: the tests see links to them.
fs::path Root() { return fs::canonical("include/cgr/base.h").parent_path().parent_path().parent_path(); }

bool IsSource(const fs::path &path) {
  static const std::set<std::string> kinds = { ".c", ".h", ".cc", ".cu", ".cuh" };
  return kinds.count(path.extension().string()) > 0;
}

size_t Lines(const fs::path &path) {
  std::ifstream in(path);
  size_t lines = 0;
  for (std::string line; std::getline(in, line);)
    lines++;
  return lines;
}

// Of all sources below the folders; with the name of each that has more than `most` lines.
size_t LinesOf(const std::set<std::string> &folders, size_t most) {
  size_t sum = 0;
  for (const std::string &folder : folders)
    for (const auto &entry : fs::recursive_directory_iterator(Root() / folder)) {
      if (!entry.is_regular_file() || !IsSource(entry.path()))
        continue;
      const size_t lines = Lines(entry.path());
      EXPECT_LE(lines, most) << fs::relative(entry.path(), Root());
      sum += lines;
    }
  return sum;
}

TEST(Budget, OfTheLibrarysLines) {
  const size_t lines = LinesOf({ "base", "buffers", "devices", "graphs", "interop", "kernels", "planners", "ranks", "requests",
                                 "runtime", "tracing" },
                               600) +
                       LinesOf({ "include" }, 500);
  EXPECT_GT(lines, 20000u) << "the test does not see the library";
  EXPECT_LE(lines, 57000u);
}

TEST(Budget, OfTheTestsLines) {
  const size_t lines = LinesOf({ "tests" }, 600);
  EXPECT_GT(lines, 20000u) << "the test does not see the tests";
  EXPECT_LE(lines, 107000u);
}

TEST(Budget, OfTheBindingsLines) {
  const size_t lines = LinesOf({ "bindings" }, 600);
  EXPECT_GT(lines, 3000u) << "the test does not see the bindings";
  EXPECT_LE(lines, 6000u);
}

TEST(Budget, OfLinesOfAProgramThatMeasuresOrShows) { EXPECT_GT(LinesOf({ "examples", "profiles" }, 600), 5000u); }

TEST(Budget, OfTheSharedLibrarysBytes) {
  const uintmax_t bytes = fs::file_size("libcgr.so");
  EXPECT_GT(bytes, 100000u);
  EXPECT_LE(bytes, uintmax_t(25) << 20);
}

} // namespace

// CMake builds from the project's root what Bazel builds: the same sources, the same tests except those named here, and the same
// installed tree.
#include <algorithm>
#include <fstream>
#include <regex>
#include <vector>

#include "tests/install/tree.h"

namespace cgr_test {
namespace {

#define CGR_SKIP_WITHOUT_ROOT() \
  const fs::path root = Root(); \
  if (root.empty())             \
  GTEST_SKIP() << "the files of this test do not lead to the project's root"

std::set<std::string> Lines(const std::string &text) {
  std::istringstream in(text);
  std::set<std::string> lines;
  for (std::string line; std::getline(in, line);)
    lines.insert(line);
  return lines;
}

// Next to this test are the files of //:cgr and //:cgr_validation, and no others with such names.
std::set<std::string> SourcesOfBazel() {
  std::set<std::string> found;
  for (const char *folder :
       { "base", "devices", "buffers", "requests", "planners", "kernels", "interop", "tracing", "graphs", "runtime", "ranks" })
    for (const auto &entry : fs::recursive_directory_iterator(folder)) {
      const std::string extension = entry.path().extension();
      if (extension == ".c" || extension == ".cu")
        found.insert(entry.path().lexically_normal().string());
    }
  return found;
}

std::vector<std::string> Difference(const std::set<std::string> &a, const std::set<std::string> &b) {
  std::vector<std::string> only;
  std::set_difference(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(only));
  return only;
}

TEST(CMakeBuild, HasTheSourcesOfBazel) {
  CGR_SKIP_WITHOUT_TOOL("cmake");
  CGR_SKIP_WITHOUT_ROOT();
  const std::set<std::string> bazel = SourcesOfBazel();
  const bool cuda = bazel.count("devices/cuda/absent.c") == 0;
  const std::string script = Quoted(root / "tools/cmake/sources.cmake");
  const Outcome outcome = RunCommand("cmake -DROOT=" + Quoted(root) + (cuda ? " -DCUDA=ON" : " -DCUDA=OFF") + " -P " + script);
  ASSERT_EQ(outcome.status, 0) << outcome.text;
  const std::set<std::string> cmake = Lines(outcome.text);
  EXPECT_GT(bazel.size(), 80u);
  EXPECT_EQ(Difference(bazel, cmake), std::vector<std::string>()) << "Bazel alone has these";
  EXPECT_EQ(Difference(cmake, bazel), std::vector<std::string>()) << "CMake alone has these";
}

// The name of a test file's program in ctest. tools/bazel/programs.bzl has lines "PATTERN: PROGRAM" for files that share one; a
// pattern has one *, for a part of a file's name.
std::string ProgramOf(const fs::path &root, const fs::path &file) {
  static const std::regex line_of("    \"tests/([a-z/]+/)([^*\"]*)\\*([^:\"]*): ([a-z_]+)\",");
  std::string name = fs::path(file).replace_extension();
  std::ifstream in(root / "tools/bazel/programs.bzl");
  for (std::string line; std::getline(in, line);) {
    std::smatch match;
    if (!std::regex_match(line, match, line_of) || (file.parent_path() / "").string() != match[1].str())
      continue;
    const std::string is = file.filename(), start = match[2], end = match[3];
    if (is.size() >= start.size() + end.size() && is.compare(0, start.size(), start) == 0 &&
        is.compare(is.size() - end.size(), end.size(), end) == 0)
      name = match[1].str() + match[4].str();
  }
  std::replace(name.begin(), name.end(), '/', '_');
  return name;
}

// A build folder configured with everything but CUDA, once for the tests that only read it.
class WholeBuild {
public:
  static const WholeBuild &The(const fs::path &root) {
    static const WholeBuild build(root);
    return build;
  }
  fs::path path() const { return scratch_.path() / "build-debug"; }
  const Outcome &configured() const { return configured_; }

private:
  explicit WholeBuild(const fs::path &root)
      : configured_(RunCommand("cmake -S " + Quoted(root) + " -B " + Quoted(path()) +
                               " -DCGR_CUDA=OFF -DCGR_TESTS=ON -DCGR_EXAMPLES=ON")) {}
  Scratch scratch_;
  Outcome configured_;
};

// What ctest says it runs: every test except those of Bazel's outputs, of tools, and of the project's documentation.
TEST(CMakeBuild, HasEveryTest) {
  CGR_SKIP_WITHOUT_TOOL("cmake");
  CGR_SKIP_WITHOUT_ROOT();
  const std::set<std::string> of_bazel = { "abi", "bindings", "docs", "house", "install", "tools" };
  std::set<std::string> all;
  for (const auto &entry : fs::recursive_directory_iterator(root / "tests")) {
    const fs::path file = fs::relative(entry.path(), root / "tests");
    const std::string extension = file.extension(), stem = file.stem();
    const bool is_test = stem.size() > 5 && stem.compare(stem.size() - 5, 5, "_test") == 0;
    if (is_test && (extension == ".cc" || extension == ".c") && of_bazel.count(file.begin()->string()) == 0)
      all.insert(ProgramOf(root, file));
  }
  const WholeBuild &build = WholeBuild::The(root);
  ASSERT_EQ(build.configured().status, 0) << build.configured().text;
  const Outcome listed = RunCommand("ctest --test-dir " + Quoted(build.path()) + " -N | sed -n 's/^ *Test *#[0-9]*: //p'");
  ASSERT_EQ(listed.status, 0) << listed.text;
  EXPECT_GT(all.size(), 150u);
  EXPECT_EQ(Difference(all, Lines(listed.text)), std::vector<std::string>()) << "no test of ctest";
  EXPECT_EQ(Difference(Lines(listed.text), all), std::vector<std::string>()) << "there is no such test";
}

// Configures without tests and examples into one folder, with nothing of the options of the last time: what stays is what CMake
// has found out about the compiler.
class Library {
public:
  explicit Library(const fs::path &root) : root_(root) {}
  fs::path path() const { return scratch_.path() / "build"; }
  Outcome Configure(const std::string &options) const {
    return RunCommand("cmake -G 'Unix Makefiles' -S " + Quoted(root_) + " -B " + Quoted(path()) +
                      " -U 'CGR_*' -U 'CMAKE_INSTALL_*' -DCGR_TESTS=OFF -DCGR_EXAMPLES=OFF " + options);
  }
  std::set<std::string> Targets(const std::string &options) const {
    const Outcome configured = Configure("-DCGR_CUDA=OFF " + options);
    EXPECT_EQ(configured.status, 0) << configured.text;
    return Lines(RunCommand("make -C " + Quoted(path()) + " help | sed -n 's/^\\.\\.\\. //p'").text);
  }

private:
  Scratch scratch_;
  fs::path root_;
};

TEST(CMakeBuild, HasTheProgramsOfProfilesWhenAskedTo) {
  CGR_SKIP_WITHOUT_TOOL("cmake");
  CGR_SKIP_WITHOUT_ROOT();
  const Library library(root);
  const std::set<std::string> with = library.Targets("-DCGR_PROFILES=ON"), without = library.Targets("");
  std::set<std::string> programs;
  for (const std::string &target : Difference(with, without))
    if (target.find('.') == std::string::npos && target != "profiles" && target.rfind("cgr_profile_", 0) != 0)
      programs.insert(target); // the others are files, all programs together, and what they share
  const std::set<std::string> bazel = Lines(ReadFile("profiles/program_names.txt"));
  EXPECT_GT(bazel.size(), 15u);
  EXPECT_EQ(Difference(bazel, programs), std::vector<std::string>()) << "Bazel alone has these";
  EXPECT_EQ(Difference(programs, bazel), std::vector<std::string>()) << "CMake alone has these";
}

// Bazel's //... includes a build folder inside the tree unless its name is in .bazelignore.
TEST(CMakeBuild, HasNoPackagesOfBazelInItsFolder) {
  CGR_SKIP_WITHOUT_TOOL("cmake");
  CGR_SKIP_WITHOUT_ROOT();
  const WholeBuild &build = WholeBuild::The(root);
  ASSERT_EQ(build.configured().status, 0) << build.configured().text;
  const char *stop = "DONT_FOLLOW_SYMLINKS_WHEN_TRAVERSING_THIS_DIRECTORY_VIA_A_RECURSIVE_TARGET_PATTERN";
  int links = 0;
  for (const auto &entry : fs::recursive_directory_iterator(build.path())) {
    const std::string name = entry.path().filename();
    EXPECT_TRUE(name != "BUILD" && name != "BUILD.bazel") << entry.path();
    if (entry.is_symlink() && entry.is_directory()) {
      links++;
      EXPECT_TRUE(fs::exists(entry.path().parent_path() / stop)) << entry.path();
    }
  }
  EXPECT_GT(links, 0);
}

TEST(CMakeBuild, TakesEveryNoToCuda) {
  CGR_SKIP_WITHOUT_TOOL("cmake");
  CGR_SKIP_WITHOUT_ROOT();
  const Library library(root);
  for (const char *no : { "OFF", "off", "NO", "FALSE", "0" }) {
    const Outcome outcome = library.Configure(std::string("-DCGR_CUDA=") + no);
    EXPECT_EQ(outcome.status, 0) << outcome.text;
    EXPECT_NE(outcome.text.find("the host device alone"), std::string::npos) << no << ": " << outcome.text;
  }
}

TEST(CMakeBuild, RefusesWhatItDoesNotUnderstand) {
  CGR_SKIP_WITHOUT_TOOL("cmake");
  CGR_SKIP_WITHOUT_ROOT();
  const Library library(root);
  for (const char *value : { "maybe", "" }) {
    const Outcome outcome = library.Configure(std::string("-DCGR_CUDA=") + value);
    EXPECT_NE(outcome.status, 0) << value;
    EXPECT_NE(outcome.text.find("expected AUTO, ON or OFF"), std::string::npos) << outcome.text;
  }
  for (const char *value : { "", "/usr/lib" }) { // an empty one would install into the root of the file system
    const Outcome outcome = library.Configure(std::string("-DCGR_CUDA=OFF -DCMAKE_INSTALL_LIBDIR=") + value);
    EXPECT_NE(outcome.status, 0) << value;
    EXPECT_NE(outcome.text.find("CMAKE_INSTALL_LIBDIR have to be folders below"), std::string::npos) << outcome.text;
  }
}

void Write(const fs::path &path, const std::string &text) { std::ofstream(path) << text; }

// Through ordinary variables: without policy CMP0126, an option of this project would replace them.
TEST(CMakeBuild, HeedsWhatAProjectAroundItSets) {
  CGR_SKIP_WITHOUT_TOOL("cmake");
  CGR_SKIP_WITHOUT_ROOT();
  for (const char *set : { "CGR_CUDA maybe", "CGR_CUDA OFF" }) {
    const Scratch scratch;
    Write(scratch.path() / "CMakeLists.txt", "cmake_minimum_required(VERSION 3.20)\nproject(around C)\nset(" + std::string(set) +
                                                 ")\nadd_subdirectory(\"" + root.string() + "\" cgr)\n");
    const Outcome outcome = RunCommand("cmake -S " + Quoted(scratch.path()) + " -B " + Quoted(scratch.path() / "build"));
    const bool good = std::string(set) == "CGR_CUDA OFF";
    EXPECT_EQ(outcome.status == 0, good) << outcome.text;
    EXPECT_NE(outcome.text.find(good ? "the host device alone" : "\"maybe\", expected AUTO"), std::string::npos) << outcome.text;
  }
}

TEST(CMakeBuild, RefusesArchitecturesThatItHasNoKernelsFor) {
  CGR_SKIP_WITHOUT_TOOL("cmake");
  CGR_SKIP_WITHOUT_ROOT();
  const std::pair<const char *, const char *> cases[] = { { "75;80", "75 is too old, expected 80 or later" },
                                                          { "90a;9x", "9x is no architecture" },
                                                          { "", "is empty" } };
  for (const auto &given : cases) {
    const Scratch scratch;
    Write(scratch.path() / "read.cmake", "set(CGR_CUDA OFF)\nset(CGR_CUDA_ARCHS \"" + std::string(given.first) +
                                             "\")\ninclude(\"" + (root / "tools/cmake/cuda.cmake").string() +
                                             "\")\ncgr_read_archs()\n");
    const Outcome outcome = RunCommand("cmake -P " + Quoted(scratch.path() / "read.cmake"));
    EXPECT_NE(outcome.status, 0);
    EXPECT_NE(outcome.text.find(given.second), std::string::npos) << outcome.text;
  }
}

TEST(CMakeBuild, PkgConfigEscapesSpacesInItsFolders) {
  CGR_SKIP_WITHOUT_TOOL("cmake");
  CGR_SKIP_WITHOUT_TOOL("pkg-config");
  CGR_SKIP_WITHOUT_ROOT();
  const Library library(root);
  const Outcome configured =
      library.Configure("-DCGR_CUDA=OFF -DCMAKE_INSTALL_LIBDIR='my lib' -DCMAKE_INSTALL_INCLUDEDIR='my include'");
  ASSERT_EQ(configured.status, 0) << configured.text;
  const Outcome flags = RunCommand("export PKG_CONFIG_PATH=" + Quoted(library.path() / "generated") +
                                   "; eval set -- \"$(pkg-config --cflags --libs cgr)\"; for f; do echo \"${f##*/}\"; done");
  EXPECT_EQ(flags.text, "my include\nmy lib\n-lcgr\n");
}

TEST(CMakeBuild, ItsOptionsAreOnThePageOnInstalling) {
  CGR_SKIP_WITHOUT_ROOT();
  const std::string lists = ReadFile(root / "CMakeLists.txt"), page = ReadFile(root / "docs/install.md");
  const std::regex option("\n(?:option\\((CGR_\\w+)|set\\((CGR_\\w+) [^\n]*CACHE)");
  int count = 0;
  for (std::sregex_iterator it(lists.begin(), lists.end(), option), end; it != end; ++it, count++) {
    const std::string name = (*it)[1].str() + (*it)[2].str();
    EXPECT_NE(page.find("`" + name + "`"), std::string::npos) << "docs/install.md lacks " << name;
  }
  EXPECT_GT(count, 8);
}

TEST(CMakeBuild, IsNotDoneAmongTheSources) {
  CGR_SKIP_WITHOUT_TOOL("cmake");
  CGR_SKIP_WITHOUT_ROOT();
  const Scratch scratch;
  fs::copy_file(root / "CMakeLists.txt", scratch.path() / "CMakeLists.txt");
  const std::string here = Quoted(scratch.path());
  const Outcome outcome = RunCommand("cmake -S " + here + " -B " + here);
  EXPECT_NE(outcome.status, 0);
  EXPECT_NE(outcome.text.find("not built among its sources"), std::string::npos) << outcome.text;
}

TEST(CMakeBuild, NeedsNoCompilerOfCppForLibraryAndExamples) {
  CGR_SKIP_WITHOUT_TOOL("cmake");
  CGR_SKIP_WITHOUT_ROOT();
  const Scratch scratch;
  const Outcome outcome = RunCommand("env CXX=/no/such/compiler cmake -S " + Quoted(root) + " -B " +
                                     Quoted(scratch.path() / "build") + " -DCGR_CUDA=OFF -DCGR_TESTS=OFF -DCGR_EXAMPLES=ON");
  EXPECT_EQ(outcome.status, 0) << outcome.text;
}

// One file of each kind: host code, the same with a call before each memory access, kernels as C++.
TEST(CMakeBuild, GivesClangNoOptionThatItDoesNotKnow) {
  CGR_SKIP_WITHOUT_TOOL("cmake");
  CGR_SKIP_WITHOUT_TOOL("clang");
  CGR_SKIP_WITHOUT_TOOL("clang++");
  CGR_SKIP_WITHOUT_ROOT();
  const Scratch scratch;
  const std::string build = Quoted(scratch.path() / "build");
  const Outcome configured = RunCommand("cmake -S " + Quoted(root) + " -B " + build +
                                        " -G 'Unix Makefiles' -DCMAKE_C_COMPILER=clang -DCMAKE_CXX_COMPILER=clang++"
                                        " -DCGR_CUDA=OFF -DCGR_TESTS=ON -DCGR_EXAMPLES=OFF -DCGR_WERROR=ON");
  ASSERT_EQ(configured.status, 0) << configured.text;
  const Outcome built = RunCommand("make -C " + build + " runtime/step/step.o emulated/step/prologue.cu.o");
  EXPECT_EQ(built.status, 0) << built.text;
}

TEST(CMakeBuild, InstallsTheTreeOfTheArchive) {
  CGR_SKIP_WITHOUT_TOOL("cmake");
  CGR_SKIP_WITHOUT_ROOT();
  const Scratch scratch;
  const fs::path build = scratch.path() / "build", prefix = scratch.path() / "prefix";
  const Outcome configured = RunCommand(
      "cmake -S " + Quoted(root) + " -B " + Quoted(build) +
      " -DCGR_CUDA=OFF -DCGR_TESTS=OFF -DCGR_EXAMPLES=OFF -DCGR_WERROR=ON -DCMAKE_INSTALL_LIBDIR=lib"
      " -DCGR_PROFILES=ON -DCMAKE_UNITY_BUILD=ON -DCMAKE_C_FLAGS=-D_GNU_SOURCE=1" // as a project around it may set them
      " -DCMAKE_BUILD_TYPE=Debug"); // what is installed is the same, and it is compiled in a fourth of the time
  ASSERT_EQ(configured.status, 0) << configured.text;
  const Outcome built =
      RunCommand("cmake --build " + Quoted(build) + " -j2 && cmake --install " + Quoted(build) + " --prefix " + Quoted(prefix));
  ASSERT_EQ(built.status, 0) << built.text;
  // Programs of profiles/ are built, run on the host device, and are not installed.
  const Outcome measured = RunCommand(Quoted(build / "profiles/nvtx_cost") + " host");
  EXPECT_EQ(measured.status, 0) << measured.text;
  const fs::path tree = Unpack(scratch.path() / "archive");
  EXPECT_EQ(Listing(prefix), Listing(tree));
  for (const char *file : { "lib/cmake/cgr/cgrConfigVersion.cmake", "include/cgr/cgr.h", "share/doc/cgr/examples/README.md" })
    EXPECT_EQ(ReadFile(prefix / file), ReadFile(tree / file)) << file;
  // The archive may come from a build with CUDA, which these tell.
  const bool cuda = ReadFile(tree / "lib/pkgconfig/cgr.pc").find("cudart_static") != std::string::npos;
  for (const char *file : { "lib/pkgconfig/cgr.pc", "lib/cmake/cgr/cgrConfig.cmake" })
    EXPECT_EQ(ReadFile(prefix / file) == ReadFile(tree / file), !cuda) << file;
  // Then the archive's says of it what CMake would have said.
  const std::string pc = ReadFile(tree / "lib/pkgconfig/cgr.pc"), said = pc.substr(pc.find("Libs.private: ") + 14);
  EXPECT_NE(ReadFile(root / "tools/cmake/library.cmake").find("\"" + said.substr(0, said.find('\n')) + "\""), std::string::npos)
      << said;
  // Only the public names, with their version, are exported, and only the C library is needed.
  const std::string soversion = SoVersion(tree);
  for (const fs::path &place : { prefix, tree }) {
    const std::string library = Quoted(place / "lib/libcgr.so");
    // A shared library that libcgr.a is linked into exports no internals either: two with different versions would mix them up.
    const Outcome internal = RunCommand("readelf -Ws " + Quoted(place / "lib/libcgr.a") +
                                        " | awk '$5 == \"GLOBAL\" && $7 != \"UND\" && $8 ~ /^cgr__/ { n[$6]++ }"
                                        " END { print (n[\"HIDDEN\"] > 100), n[\"DEFAULT\"] + 0 }'");
    EXPECT_EQ(internal.text, "1 0\n") << place;
    const Outcome names = RunCommand("readelf -W --dyn-syms " + library + " | grep -v UND | grep GLOBAL | awk '{ print $8 }'");
    EXPECT_GT(Lines(names.text).size(), 100u) << place;
    for (const std::string &name : Lines(names.text))
      EXPECT_TRUE(name.rfind("cgr_", 0) == 0 || name == "CGR_" + soversion) << place << " exports " << name;
    EXPECT_NE(names.text.find("cgr_step_launch@@CGR_" + soversion + "\n"), std::string::npos) << names.text;
    const Outcome dynamic = RunCommand("readelf -dW " + library);
    EXPECT_NE(dynamic.text.find("[libcgr.so." + soversion + "]"), std::string::npos) << dynamic.text;
    EXPECT_TRUE(fs::is_symlink(place / "lib" / ("libcgr.so." + soversion))) << place;
    EXPECT_EQ(dynamic.text.find("libstdc++"), std::string::npos) << dynamic.text;
  }
}

} // namespace
} // namespace cgr_test

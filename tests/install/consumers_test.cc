// Programs outside the tree find the installed library by pkg-config and by CMake, wherever it was put, and run.
#include "tests/install/tree.h"

namespace cgr_test {
namespace {

// What pkg-config says, quoted for a shell.
std::string PkgConfig(const std::string &options) {
  std::string text = RunCommand("pkg-config " + options + " cgr").text;
  return text.substr(0, text.find('\n'));
}

// Compiles the consumer with that, and runs it.
void CompileAndRun(const std::string &compiler, const std::string &language, const fs::path &tree, bool is_static) {
  SCOPED_TRACE(compiler + (is_static ? " static" : " shared"));
  const Scratch scratch;
  const fs::path program = scratch.path() / "consumer";
  std::string libs = PkgConfig(is_static ? "--static --libs" : "--libs");
  if (is_static) // both libraries are there: the linker is told which
    libs.replace(libs.find("-lcgr"), 5, "-l:libcgr.a");
  const Outcome compiled =
      RunCommand(compiler + " -Wall -Wextra -Werror " + PkgConfig("--cflags") + " -x " + language +
                 " tests/install/consumer/consumer.c -x none -o " + Quoted(program) + " " + libs + " ${CUDA_LIB:+-L$CUDA_LIB}");
  ASSERT_EQ(compiled.status, 0) << compiled.text;
  const Outcome ran = RunCommand((is_static ? "" : "LD_LIBRARY_PATH=" + Quoted(tree / "lib") + " ") + Quoted(program));
  EXPECT_EQ(ran.status, 0) << ran.text;
  EXPECT_NE(ran.text.find("replays"), std::string::npos) << ran.text;
}

// Where the linker finds the CUDA runtime, for static linking.
void TellCudaLib() {
  for (const char *folder : { "/usr/local/cuda/lib64", "/usr/lib/x86_64-linux-gnu" })
    if (fs::exists(fs::path(folder) / "libcudart_static.a"))
      setenv("CUDA_LIB", folder, 1);
}

class Consumers : public testing::Test {
protected:
  void SetUp() override {
    TellCudaLib();
    tree_ = Unpack(scratch_.path());
    setenv("PKG_CONFIG_PATH", (tree_ / "lib/pkgconfig").c_str(), 1);
  }
  Scratch scratch_;
  fs::path tree_;
};

TEST_F(Consumers, PkgConfigTellsCompilersOfBothLanguages) {
  CGR_SKIP_WITHOUT_TOOL("pkg-config");
  for (bool is_static : { false, true }) {
    CompileAndRun("gcc -std=c11", "c", tree_, is_static);
    CompileAndRun("g++ -std=c++11", "c++", tree_, is_static);
  }
}

// The page's command lines that compile engine.c, as they stand, against this tree.
TEST_F(Consumers, ThePageOnInstallingTellsCompilers) {
  CGR_SKIP_WITHOUT_TOOL("pkg-config");
  CGR_SKIP_WITHOUT_TOOL("cc");
  const Folder plain; // whose name needs no quotes, as the lines have none
  const fs::path tree = Unpack(plain.path());
  fs::copy_file("tests/install/consumer/consumer.c", plain.path() / "engine.c");
  const bool cuda = ReadFile(tree / "lib/pkgconfig/cgr.pc").find("cudart_static") != std::string::npos;
  std::istringstream page(ReadFile("docs/install.md"));
  int ran = 0;
  for (std::string line; std::getline(page, line);) {
    const bool is_static = line.find("-l:libcgr.a") != std::string::npos;
    if (line.rfind("    cc engine.c ", 0) != 0 || line.find("CGR/") != std::string::npos ||
        (is_static && cuda != (line.find("cudart") != std::string::npos)))
      continue;
    for (size_t place; (place = line.find("DIR/")) != std::string::npos;)
      line.replace(place, 3, tree.string());
    const std::string lib = (tree / "lib").string();
    const Outcome ran_line = RunCommand("cd " + plain.path().string() + "; export PKG_CONFIG_PATH=" + lib + "/pkgconfig; " +
                                        line.substr(0, line.find(" #")) + " && LD_LIBRARY_PATH=" + lib + " ./a.out");
    EXPECT_EQ(ran_line.status, 0) << line << "\n" << ran_line.text;
    EXPECT_NE(ran_line.text.find("replays"), std::string::npos) << line << "\n" << ran_line.text;
    ran++;
  }
  EXPECT_EQ(ran, cuda ? 3 : 4);
}

TEST_F(Consumers, PkgConfigTellsTheVersionOfTheHeaders) {
  CGR_SKIP_WITHOUT_TOOL("pkg-config");
  EXPECT_EQ("cgr-" + PkgConfig("--modversion"), tree_.filename().string());
}

TEST_F(Consumers, CMakeFindsBothLibraries) {
  CGR_SKIP_WITHOUT_TOOL("cmake");
  // The tree may have been moved since it was installed.
  const fs::path moved = scratch_.path() / "moved";
  fs::rename(tree_, moved);
  const fs::path build = scratch_.path() / "build";
  const std::string configure =
      "cmake -S tests/install/consumer -B " + Quoted(build) + " -DCMAKE_PREFIX_PATH=" + Quoted(moved) + " ";
  const Outcome configured = RunCommand(configure + "-DCMAKE_BUILD_TYPE=Release");
  ASSERT_EQ(configured.status, 0) << configured.text;
  const Outcome built = RunCommand("cmake --build " + Quoted(build));
  ASSERT_EQ(built.status, 0) << built.text;
  int ran = 0;
  for (const char *program : { "c_cgr", "cc_cgr", "c_cgr_static", "cc_cgr_static" }) {
    if (!fs::exists(build / program))
      continue;
    const Outcome outcome = RunCommand(Quoted(build / program));
    EXPECT_EQ(outcome.status, 0) << program << ": " << outcome.text;
    ran++;
  }
  EXPECT_TRUE(ran == 4 || configured.text.find("there is no cgr::cgr_static") != std::string::npos) << configured.text;
}

TEST_F(Consumers, CMakeRefusesAnotherMinorVersionUntilOne) {
  CGR_SKIP_WITHOUT_TOOL("cmake");
  const std::string version = tree_.filename().string().substr(4); // cgr-X.Y.Z
  const size_t dot = version.find('.'), second = version.find('.', dot + 1);
  const int minor = std::stoi(version.substr(dot + 1, second - dot - 1));
  auto found = [&](const std::string &asked) {
    const Outcome outcome = RunCommand("cmake -S tests/install/consumer -B " + Quoted(scratch_.path() / ("asks " + asked)) +
                                       " -DASKED=" + asked + " -DCMAKE_PREFIX_PATH=" + Quoted(tree_));
    return outcome.status == 0;
  };
  EXPECT_TRUE(found(version));
  EXPECT_TRUE(found(version.substr(0, second)));
  EXPECT_FALSE(found(version.substr(0, dot) + "." + std::to_string(minor + 1)));
  EXPECT_EQ(found(version.substr(0, dot) + "." + std::to_string(minor - 1)), version[0] != '0');
  EXPECT_FALSE(found(version.substr(0, second) + ".99"));
  EXPECT_FALSE(found(std::to_string(std::stoi(version) + 1) + ".0"));
  EXPECT_TRUE(found(version.substr(0, dot)));
  EXPECT_FALSE(found(std::to_string(std::stoi(version) + 1)));
  EXPECT_TRUE(found("0.1..." + version));
  EXPECT_FALSE(found("'0.1...<" + version + "'"));
  EXPECT_FALSE(found(version.substr(0, second) + ".99...99"));
}

} // namespace
} // namespace cgr_test

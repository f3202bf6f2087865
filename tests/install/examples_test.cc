// The examples are installed too, with a page that tells how to build them: its lines are run as they stand.
#include "tests/install/tree.h"

namespace cgr_test {
namespace {

// A tree in a folder whose name needs no quotes, as $(pkg-config ...) in the page has none, and a copy of its examples.
class InstalledExamples : public testing::Test {
protected:
  void SetUp() override {
    tree_ = Unpack(folder_.path() / "archive");
    const fs::path installed = tree_ / "share/doc/cgr/examples";
    ASSERT_TRUE(fs::exists(installed / "README.md"));
    copy_ = folder_.path() / "copy";
    fs::copy(installed, copy_, fs::copy_options::recursive);
  }
  // The page's block that begins this way, for this tree.
  std::string Block(const std::string &begin) const {
    const std::string page = ReadFile(copy_ / "README.md");
    const size_t first = page.find("\n    " + begin);
    EXPECT_NE(first, std::string::npos) << "no block begins with " << begin;
    if (first == std::string::npos)
      return "false";
    std::string block = page.substr(first, page.find("\n\n", first) - first);
    for (size_t place; (place = block.find("=PREFIX")) != std::string::npos;)
      block.replace(place + 1, 6, tree_.string());
    return block;
  }
  void RunBlock(const std::string &begin) const {
    const Outcome outcome = RunCommand("set -e; cd " + Quoted(copy_) + Block(begin));
    EXPECT_EQ(outcome.status, 0) << outcome.text;
    for (const char *said : { "raphs graphs graphs", "57 steps, 57 of them graph replays",
                              "cgr's kernels and page table give the same letters, in 50 replays" })
      EXPECT_NE(outcome.text.find(said), std::string::npos) << said << " is not in:\n" << outcome.text;
    EXPECT_EQ(outcome.text.find("warning"), std::string::npos) << outcome.text;
    EXPECT_NE(outcome.text.find("57 steps"), outcome.text.rfind("57 steps")) << outcome.text; // in C and in C++
  }
  const Folder folder_;
  fs::path tree_, copy_;
};

TEST_F(InstalledExamples, AreBuiltByCMakeAndRun) {
  CGR_SKIP_WITHOUT_TOOL("cmake");
  RunBlock("cmake -B build");
}

TEST_F(InstalledExamples, AreBuiltByPkgConfigAndRun) {
  CGR_SKIP_WITHOUT_TOOL("pkg-config");
  CGR_SKIP_WITHOUT_TOOL("cc");
  RunBlock("export PKG_CONFIG_PATH");
}

TEST_F(InstalledExamples, TellWhenTheLibraryHasNoCuda) {
  CGR_SKIP_WITHOUT_TOOL("cmake");
  if (ReadFile(tree_ / "lib/pkgconfig/cgr.pc").find("cudart_static") != std::string::npos)
    GTEST_SKIP() << "this library has it";
  const Outcome outcome = RunCommand("cmake -S " + Quoted(copy_) + " -B " + Quoted(copy_ / "build") +
                                     " -DCMAKE_PREFIX_PATH=" + Quoted(tree_) + " -DMINIMAL_CUDA=ON");
  EXPECT_NE(outcome.status, 0);
  EXPECT_NE(outcome.text.find("MINIMAL_CUDA is ON, but the cgr that was found is built without CUDA"), std::string::npos)
      << outcome.text;
}

} // namespace
} // namespace cgr_test

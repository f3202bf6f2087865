// The binary interface matches the kept list: tests/abi/abi.txt has every symbol, prototype, struct, field and enumerator.
//
// Declare a change that only adds with ./bazelw run //tests/abi:update, and commit the list with it. A change that breaks
// programs compiled earlier (compare.h has the rules) is refused there too: the list is not written, and this test keeps failing.
// An addition that was never released may be taken back: restore the list of the last release, then update.
//
// An unavoidable break takes a new SONAME, which carries the minor version until 1.0 and the major one alone from then on: raise
// CGR_VERSION_MINOR in base.h, -soname in BUILD and the node in libcgr.map. Under a new SONAME, update accepts every change.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "cgr/cgr.h"
#include "cgr/planners.h"
#include "tests/abi/compare.h"
#include "tests/abi/layout.h"
#include "tests/abi/list.h"
#include "tests/abi/symbols.h"

namespace {

using namespace cgr_test;

class Abi : public testing::Test {
protected:
  void SetUp() override {
    if (!HasCompiler())
      GTEST_SKIP() << "no C compiler: neither $CC nor gcc";
    now = Describe("include", ReadSymbols("libcgr.so"));
  }
  Interface now;
};

std::string KeptText() {
  std::ifstream in("tests/abi/abi.txt");
  return { std::istreambuf_iterator<char>(in), {} };
}

TEST_F(Abi, IsTheKeptOne) {
  const std::string text = KeptText();
  std::string added, broken;
  for (const Change &change : Compare(ReadList(text), now))
    (change.breaks ? broken : added) += "  " + change.text + "\n";
  EXPECT_EQ(broken, "")
      << "Programs that were compiled before break. Undo this, or give the library a new SONAME: this file says how.";
  EXPECT_EQ(added, "") << "Declare it, if it is meant: ./bazelw run //tests/abi:update, and a line in CHANGELOG.md.";
  if (broken.empty() && added.empty()) {
    EXPECT_EQ(text, WriteList(now)) << "The list was edited by hand: ./bazelw run //tests/abi:update";
  }
}

TEST_F(Abi, TheLibraryExportsWhatTheHeadersDeclare) {
  EXPECT_EQ(now.undeclared, std::vector<std::string>());
  std::vector<std::string> elsewhere;
  for (const auto &[name, item] : now.items)
    if (item.kind == Kind::kFunction && item.node == "-")
      elsewhere.push_back(name);
  // libcgr_validation is a library of its own.
  EXPECT_EQ(elsewhere, std::vector<std::string>{ "cgr_validation_layer" });
}

// Two libraries with different SONAMEs may be in one process, whose symbols only the nodes tell apart.
TEST_F(Abi, SonameAndNodesHaveTheMinorVersionUntilOne) {
  std::string version = std::to_string(CGR_VERSION_MAJOR);
  if (CGR_VERSION_MAJOR == 0)
    version += "." + std::to_string(CGR_VERSION_MINOR);
  EXPECT_EQ(now.soname, "libcgr.so." + version);
  for (const auto &[name, item] : now.items)
    if (item.kind == Kind::kFunction && item.node != "-") {
      EXPECT_EQ(item.node, "CGR_" + version) << name;
    }
}

// The bytes of a hole are undefined: they cannot be used later, and a bytewise comparison of structs would see them.
TEST_F(Abi, StructsHaveNoHoles) {
  int structs = 0;
  for (const auto &[name, item] : now.items) {
    if (item.kind != Kind::kStruct)
      continue;
    structs++;
    int64_t end = 0;
    for (const Member &field : item.members) {
      EXPECT_EQ(field.at, end) << name << " has a hole before " << field.name;
      end = field.at + field.size;
    }
    // The one that has some at its end; its next field comes after them.
    EXPECT_EQ(item.size - end, name == "cgr_plan_input" ? 4 : 0) << name << " has a hole at its end";
    if (item.IsSized()) {
      EXPECT_LE(item.size, 4096) << name << " is longer than readers accept";
    }
  }
  EXPECT_GT(structs, 40) << "the test does not see the structs";
}

TEST_F(Abi, NoHeaderIsLeftOut) {
  const std::string text = Preprocessed("include");
  int headers = 0;
  for (const auto &entry : std::filesystem::recursive_directory_iterator("include/cgr")) {
    if (entry.is_directory())
      continue;
    headers++;
    const std::string name = entry.path().generic_string();
    EXPECT_NE(text.find("\"" + name + "\""), std::string::npos) << "bindings.h does not include " << name;
  }
  EXPECT_GE(headers, 18) << "the test does not see the headers";
}

} // namespace

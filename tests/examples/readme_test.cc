// The README's code matches the examples line by line: whoever changes one has to change the other.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tests/examples/page.h"

namespace {

using cgr_test::Blocks;
using cgr_test::Holds;
using cgr_test::Joined;
using cgr_test::Lines;
using cgr_test::ReadLines;

TEST(Readme, ItsCodeIsThatOfTheExamples) {
  const Lines page = ReadLines("README.md");
  std::vector<Lines> sources;
  for (const char *name : { "minimal.c", "minimal.cc", "own_kernels.c" }) {
    sources.push_back(ReadLines(std::string("examples/") + name));
    ASSERT_GT(sources.back().size(), 50u) << name << " is not there";
  }
  const std::vector<Lines> blocks = Blocks(page, "c");
  ASSERT_GE(blocks.size(), 3u) << "the test does not see the README's code";
  for (const Lines &block : blocks) {
    EXPECT_GT(block.size(), 3u) << Joined(block);
    EXPECT_TRUE(std::any_of(sources.begin(), sources.end(), [&](const Lines &source) { return Holds(source, block); }))
        << "the README has this, and no example does:\n"
        << Joined(block);
  }
}

// The introduction to cgr that a newcomer reads: the model, the configuration, the loop.
TEST(Readme, ShowsTheWholeWay) {
  std::string code;
  for (const Lines &block : Blocks(ReadLines("README.md"), "c"))
    code += Joined(block);
  for (const char *call : { "cgr_record_attention(", "cgr_runtime_create(", "cgr_runtime_capture(", "cgr_request_open(",
                            "cgr_request_set_pages(", "cgr_step_prepare(", "cgr_step_launch(" })
    EXPECT_NE(code.find(call), std::string::npos) << call;
}

// Every opening fence is one of C, so no code of the README escapes the comparison.
TEST(Readme, HasNoOtherCodeBlocks) {
  int fences = 0, of_c = 0;
  for (const std::string &line : ReadLines("README.md")) {
    fences += line.find("```") != std::string::npos;
    of_c += line == "```c";
  }
  EXPECT_EQ(fences, 2 * of_c);
}

TEST(Comparison, SeesWhatDiffers) {
  const Lines whole = { "int f(void) {", "  if (x)", "    y();", "", "  z();", "}" };
  EXPECT_TRUE(Holds(whole, { "if (x)", "  y();", "", "z();" }));
  EXPECT_FALSE(Holds(whole, { "if (x)", "y();" }));
  EXPECT_FALSE(Holds(whole, { "if (x)", "  y();", "z();" }));
  EXPECT_FALSE(Holds(whole, { "  if (x)", "    y();" }));
  EXPECT_FALSE(Holds(whole, { "}", "int f(void) {" }));
}

} // namespace

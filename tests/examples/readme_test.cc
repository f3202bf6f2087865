// The README's code matches the examples line by line: whoever changes one has to change the other.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <string>
#include <vector>

namespace {

using Lines = std::vector<std::string>;

Lines ReadLines(const std::string &path) {
  std::ifstream in(path);
  Lines lines;
  for (std::string line; std::getline(in, line);)
    lines.push_back(line);
  return lines;
}

size_t Indentation(const std::string &line) { return std::min(line.find_first_not_of(' '), line.size()); }

// The lines without their common indentation; empty lines do not count for it.
Lines Dedented(Lines lines) {
  size_t common = std::string::npos;
  for (const std::string &line : lines)
    common = line.empty() ? common : std::min(common, Indentation(line));
  for (std::string &line : lines)
    line.erase(0, common);
  return lines;
}

// Whether `part` stands in `whole`, at any indentation.
bool Holds(const Lines &whole, const Lines &part) {
  for (size_t first = 0; first + part.size() <= whole.size(); first++) {
    const auto begin = whole.begin() + static_cast<long>(first);
    if (Dedented(Lines(begin, begin + static_cast<long>(part.size()))) == part)
      return true;
  }
  return false;
}

// The text between ``` of a language and the next ```.
std::vector<Lines> Blocks(const Lines &page, const std::string &language) {
  std::vector<Lines> blocks;
  bool inside = false;
  for (const std::string &line : page) {
    if (!inside && line == "```" + language) {
      blocks.emplace_back();
      inside = true;
    } else if (line.rfind("```", 0) == 0) {
      inside = false;
    } else if (inside) {
      blocks.back().push_back(line);
    }
  }
  return blocks;
}

std::string Joined(const Lines &lines) {
  std::string text;
  for (const std::string &line : lines)
    text += line + "\n";
  return text;
}

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

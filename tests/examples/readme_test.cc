// The README is short, begins with the gain, and its code matches the examples line by line: whoever changes one has to change
// the other.
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <sstream>
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
  ASSERT_GE(blocks.size(), 1u) << "the test does not see the README's code";
  for (const Lines &block : blocks) {
    EXPECT_GT(block.size(), 3u) << Joined(block);
    EXPECT_TRUE(std::any_of(sources.begin(), sources.end(), [&](const Lines &source) { return Holds(source, block); }))
        << "the README has this, and no example does:\n"
        << Joined(block);
  }
}

// One loop is shown, and what it calls; the rest is in the example.
TEST(Readme, ShowsTheLoop) {
  std::string code;
  for (const Lines &block : Blocks(ReadLines("README.md"), "c"))
    code += Joined(block);
  for (const char *call : { "cgr_request_open(", "cgr_request_set_pages(", "cgr_step_prepare(", "cgr_step_launch(" })
    EXPECT_NE(code.find(call), std::string::npos) << call;
}

size_t Words(const std::string &text) { // with a letter or a digit in them: no rules of tables
  std::istringstream in(text);
  size_t count = 0;
  for (std::string word; in >> word;)
    count += std::any_of(word.begin(), word.end(), [](unsigned char c) { return std::isalnum(c) != 0; });
  return count;
}

// Paragraphs, items and cells as one line each, without code and indented blocks.
Lines Texts(const Lines &page) {
  Lines texts(1);
  bool code = false;
  for (const std::string &line : page) {
    code ^= line.rfind("```", 0) == 0;
    if (code || line.empty() || line.rfind("    ", 0) == 0 || line.rfind("#", 0) == 0 || line.rfind("<!--", 0) == 0)
      texts.emplace_back();
    else if (line[0] == '|')
      for (std::istringstream cells(line); std::getline(cells, texts.emplace_back(), '|');) {
      }
    else
      texts.back() += line + " ";
  }
  return texts;
}

std::string LongestSentence(const std::string &text) {
  std::string longest;
  for (size_t at = 0, end; at < text.size(); at = end + 1) {
    end = text.find_first_of(".:;?", at);
    while (end != std::string::npos && end + 1 < text.size() && text[end + 1] != ' ' && text[end + 1] != ')')
      end = text.find_first_of(".:;?", end + 1);
    end = std::min(end, text.size());
    if (const std::string sentence = text.substr(at, end - at); Words(sentence) > Words(longest))
      longest = sentence;
  }
  return longest;
}

TEST(Readme, IsShort) {
  const Lines page = ReadLines("README.md");
  ASSERT_GT(page.size(), 50u);
  EXPECT_LE(page.size(), 220u);
  EXPECT_LE(Words(Joined(page)), 1900u);
  for (const std::string &text : Texts(page))
    EXPECT_LE(Words(LongestSentence(text)), 40u) << LongestSentence(text);
}

// Within the first screen: what it is, and what one gains, in numbers.
TEST(Readme, BeginsWithTheGain) {
  Lines page = ReadLines("README.md");
  ASSERT_GT(page.size(), 15u);
  page.resize(15);
  const std::string top = Joined(page);
  for (const char *words : { "C library", "CUDA graph", "one graph, by cgr", " us |" })
    EXPECT_NE(top.find(words), std::string::npos) << words;
}

TEST(Readme, LongSentencesAreSeen) {
  std::string words = "One";
  for (int i = 0; i < 44; i++)
    words += " more";
  const Lines texts = Texts({ "Short. " + words, "with 3.5 us and others. Short.", "", "    " + words, "| a | " + words + " |" });
  size_t seen = 0;
  for (const std::string &text : texts)
    seen += Words(LongestSentence(text)) > 40;
  EXPECT_EQ(seen, 2u);
  EXPECT_EQ(Words(LongestSentence(texts[0])), 50u);
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

// Pages of Markdown, line by line: their blocks of code, compared with the files that they show.
#pragma once

#include <algorithm>
#include <fstream>
#include <istream>
#include <string>
#include <vector>

namespace cgr_test {

using Lines = std::vector<std::string>;

inline Lines LinesOf(std::istream &&in) {
  Lines lines;
  for (std::string line; std::getline(in, line);)
    lines.push_back(line);
  return lines;
}

inline Lines ReadLines(const std::string &path) { return LinesOf(std::ifstream(path)); }

inline size_t Indentation(const std::string &line) { return std::min(line.find_first_not_of(' '), line.size()); }

// The lines without their common indentation; empty lines do not count for it.
inline Lines Dedented(Lines lines) {
  size_t common = std::string::npos;
  for (const std::string &line : lines)
    common = line.empty() ? common : std::min(common, Indentation(line));
  for (std::string &line : lines)
    line.erase(0, common);
  return lines;
}

// Whether `part` stands in `whole`, at any indentation.
inline bool Holds(const Lines &whole, const Lines &part) {
  for (size_t first = 0; first + part.size() <= whole.size(); first++) {
    const auto begin = whole.begin() + static_cast<long>(first);
    if (Dedented(Lines(begin, begin + static_cast<long>(part.size()))) == part)
      return true;
  }
  return false;
}

// The text between ``` of a language and the next ```.
inline std::vector<Lines> Blocks(const Lines &page, const std::string &language) {
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

inline std::string Joined(const Lines &lines) {
  std::string text;
  for (const std::string &line : lines)
    text += line + "\n";
  return text;
}

} // namespace cgr_test

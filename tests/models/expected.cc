#include "tests/models/expected.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <sstream>

#include "tests/models/weights.h"

namespace cgr_test {
namespace models {

Expected::Expected(const std::string &of, const std::string &with) : kind(of), cache(with) {
  std::ifstream file("tests/data/models/" + kind + ".txt");
  for (std::string line; std::getline(file, line);)
    ReadLine(line);
  EXPECT_FALSE(rows_.empty()) << "the file of " << kind << " has no rows" << (cache.empty() ? "" : " of cache ") << cache;
}

void Expected::ReadLine(const std::string &line) {
  std::istringstream words(line);
  std::string what, name;
  words >> what;
  if (what == "config" && words >> name) {
    words >> config_[name];
  } else if (what == "cache") {
    words >> section_;
  } else if (section_ != cache && !section_.empty()) {
    return; // of another cache
  } else if (what == "fp32") {
    words >> fp32.largest >> fp32.mean;
  } else if (what == "bf16") {
    words >> bf16.largest >> bf16.mean;
  } else if (what == "columns") {
    for (size_t column; words >> column;)
      columns_.push_back(column);
  } else if (what == "request") {
    Lengths lengths;
    words >> lengths.prompt >> lengths.given >> lengths.source;
    requests.push_back(lengths);
  } else if (what == "row") {
    Place place;
    words >> place.first >> place.second;
    for (float value; words >> value;)
      rows_[place].push_back(value);
    EXPECT_EQ(rows_[place].size(), columns_.size()) << line;
  } else {
    EXPECT_EQ(what, "#") << line;
  }
}

float Expected::Number(const std::string &name) const {
  const auto found = config_.find(name);
  EXPECT_NE(found, config_.end()) << "the file of " << kind << " lacks config " << name;
  return found == config_.end() ? 1.0f : found->second;
}

std::vector<int32_t> Expected::Tokens(size_t request, const std::string &what, int32_t count) const {
  const Formula formula(kind + what + "." + std::to_string(request));
  const uint64_t vocab = static_cast<uint64_t>(Count("vocab_size"));
  std::vector<int32_t> tokens;
  for (int32_t i = 0; i < count; i++)
    tokens.push_back(static_cast<int32_t>(formula.Word(static_cast<uint64_t>(i)) % vocab));
  return tokens;
}

Error Expected::ErrorOf(const Rows &rows) const {
  Error error;
  size_t missing = 0, wrong = 0;
  double sum = 0.0;
  for (const auto &[place, expected] : rows_) {
    const auto found = rows.find(place);
    missing += found == rows.end();
    for (size_t i = 0; i < expected.size() && found != rows.end(); i++) {
      const double apart = std::fabs(double{ found->second.at(columns_[i]) } - double{ expected[i] });
      wrong += !std::isfinite(apart);
      error.largest = std::max(error.largest, apart);
      sum += apart;
    }
  }
  EXPECT_EQ(rows.size() + missing, rows_.size());
  EXPECT_EQ(missing, 0u) << "rows of " << kind;
  EXPECT_EQ(wrong, 0u) << "numbers of " << kind << " are not finite";
  error.mean = sum / static_cast<double>(rows_.size() * columns_.size());
  return error;
}

} // namespace models
} // namespace cgr_test

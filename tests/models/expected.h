// What transformers gives for a model: tests/data/models/*.txt, written by reference.py, which documents the format.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace cgr_test {
namespace models {

struct Error {
  double largest = 0.0, mean = 0.0;
};

// A request's numbers of tokens: its prompt, those given one by one after it, and those of an encoder.
struct Lengths {
  int32_t prompt = 0, given = 0, source = 0;
};

using Place = std::pair<int32_t, int32_t>; // request, position
using Rows = std::map<Place, std::vector<float>>;

class Expected {
public:
  // Reads tests/data/models/`kind`.txt. `cache`: the kind of cache of 8 bits that the model has; empty: none.
  explicit Expected(const std::string &kind, const std::string &cache = "");

  float Number(const std::string &name) const;
  int32_t Count(const std::string &name) const { return static_cast<int32_t>(Number(name)); }
  // A request's tokens; `what`: "" or ".source".
  std::vector<int32_t> Tokens(size_t request, const std::string &what, int32_t count) const;
  // Compares whole rows with the columns of the file; a missing or extra row, or a value that is not finite, fails the test.
  Error ErrorOf(const Rows &rows) const;

  const std::string kind, cache;
  std::vector<Lengths> requests;
  Error bf16; // transformers' own
  Error fp32; // by chance, with caches of 8 bits

private:
  void ReadLine(const std::string &line);

  std::map<std::string, float> config_;
  std::vector<size_t> columns_;
  std::string section_; // whose lines are being read
  Rows rows_;
};

} // namespace models
} // namespace cgr_test

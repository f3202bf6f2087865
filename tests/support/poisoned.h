// Host memory for metadata that is built there: aligned, full of poison, a little longer than asked for.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace cgr_test {

template <size_t kAlignment> class Poisoned {
public:
  explicit Poisoned(size_t bytes = 0) : bytes_(bytes), rows_(bytes / kAlignment + 1) {
    for (Row &row : rows_)
      std::fill_n(row.words, kRowWords, kPoison);
  }
  int32_t *data() { return rows_[0].words; }
  size_t bytes() const { return bytes_; } // a multiple of 4
  std::vector<int32_t> Get() const { return std::vector<int32_t>(rows_[0].words, rows_[0].words + bytes_ / 4); }

  bool IsUntouched() const { return IsPoison(0); }
  bool EndIsUntouched() const { return IsPoison(bytes_ / 4); }

private:
  static constexpr int32_t kPoison = int32_t(0xa5a5a5a5u);
  static constexpr size_t kRowWords = kAlignment / 4;
  struct alignas(kAlignment) Row {
    int32_t words[kRowWords];
  };
  bool IsPoison(size_t from) const {
    const int32_t *words = rows_[0].words;
    return std::all_of(words + from, words + rows_.size() * kRowWords, [](int32_t word) { return word == kPoison; });
  }

  size_t bytes_;
  std::vector<Row> rows_;
};

} // namespace cgr_test

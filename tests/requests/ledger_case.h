// Rows with a ledger, used as a runtime does.
#pragma once

#include <vector>

#include "requests/guesses.h"
#include "requests/ledger.h"
#include "requests/standing.h"
#include "tests/requests/rig.h"

namespace cgr_test {
namespace ledger {

enum { kRows = 5, kTokens = 64, kLength = 96, kGuesses = 3, kDepth = 4 };

inline const std::vector<GroupSpec> &Groups() {
  static const std::vector<GroupSpec> groups = [] {
    GroupSpec full{ 16, 26 }, window{ 32, 18 }, encoder{ 16, 18 };
    window.layers = { { 20, 0 } };
    encoder.length_set = 1;
    return std::vector<GroupSpec>{ full, window, encoder };
  }();
  return groups;
}

struct Case {
  Rows rows{ kRows, kLength, Groups(), kRows, kTokens, true, kGuesses, kDepth };
  Pool pool{ rows, kRows, kTokens, kDepth };
  cgr__checked_batch checked;
  uint64_t launched = 0, completed = 0;

  cgr_status SetPages(int32_t row, int32_t group, int32_t first, const std::vector<int32_t> &pages) {
    const auto count = static_cast<int32_t>(pages.size());
    cgr_status status = cgr__ledger_check_pages(rows, row, group, first, pages.data(), count, completed);
    return status == CGR_OK ? rows.SetPages(row, first, pages, group) : status;
  }
  // A row with the same numbers of pages in both groups of the sequences.
  int32_t OpenWith(const std::vector<int32_t> &pages, const std::vector<int32_t> &windows) {
    const int32_t row = rows.Open();
    EXPECT_EQ(SetPages(row, 0, 0, pages), CGR_OK) << cgr_last_message();
    EXPECT_EQ(SetPages(row, 1, 0, windows), CGR_OK) << cgr_last_message();
    return row;
  }
  cgr_status Check(const Batch &batch, int32_t set = 0) {
    EXPECT_EQ(pool.Validate(rows, batch.Get(), &checked, set), CGR_OK) << cgr_last_message();
    return cgr__ledger_check_step(rows, &checked, launched + 1);
  }
  cgr_status Step(const Batch &batch, int32_t set = 0) {
    const cgr_status status = Check(batch, set);
    if (status == CGR_OK) {
      pool.Prepare(&checked);
      pool.Launch(rows, &checked, ++launched);
    }
    return status;
  }
  void SetLength(int32_t row, int32_t length) {
    EXPECT_EQ(cgr__rows_set_length(rows, row, length), CGR_OK) << cgr_last_message();
  }
};

} // namespace ledger
} // namespace cgr_test

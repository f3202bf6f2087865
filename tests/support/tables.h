// Compares the tables of rows and pages on the device with the model.
#pragma once

#include "tests/support/refused.h"

namespace cgr_test {

// Every change must have been sent.
inline void ExpectTables(Engine &engine) {
  std::vector<int64_t> table = engine.Buffer(CGR_BUFFER_PAGE_TABLE), computed = engine.Buffer(CGR_BUFFER_ROW_COMPUTED);
  size_t width = size_t(engine.View(CGR_BUFFER_PAGE_TABLE).shape[1]);
  engine.CheckRows();
  for (const auto &[row, r] : engine.requests) {
    ASSERT_EQ(computed[size_t(row)], r->num_tokens) << "row " << row;
    for (size_t p = 0; p < r->pages.size(); p++)
      ASSERT_EQ(table[size_t(row) * width + p], int32_t(p) < r->first_page ? 0 : r->pages[p]) << "row " << row << " page " << p;
  }
  for (size_t p = 0; p < width; p++)
    ASSERT_EQ(table[size_t(engine.o.max_rows) * width + p], 0) << "the row of padding";
  ASSERT_EQ(computed[size_t(engine.o.max_rows)], 0);
}

} // namespace cgr_test

// The steps of a test's engine through the standing batch.
#include "tests/support/engine.h"

namespace cgr_test {

std::vector<int32_t> Engine::StandingRows() {
  const int32_t *rows = nullptr;
  int32_t count = -1;
  CGR_EXPECT_OK(cgr_standing_rows(rt, nullptr, &rows, &count));
  return count > 0 ? std::vector<int32_t>(rows, rows + count) : std::vector<int32_t>();
}

cgr_status Engine::PrepareStandingAsIs(const std::vector<Item> &items, const cgr_key *forced) {
  items_ = items;
  cgr_batch batch = CGR_BATCH_INIT;
  batch.num_requests = CGR_BATCH_STANDING;
  batch.forced_key = forced;
  batch.variant = variant;
  batch.plan_flags = plan_flags;
  step = CGR_STEP_INIT;
  return cgr_step_prepare(rt, &batch, &step);
}

// Puts or sets the rows of the items in turn, then takes out the others, and swaps what is left into place. In between the batch
// may be larger than a step can be.
cgr_status Engine::PrepareStanding(const std::vector<Item> &items, const cgr_key *forced) {
  auto find = [](const std::vector<int32_t> &rows, int32_t row) { return std::find(rows.begin(), rows.end(), row); };
  std::vector<int32_t> rows = StandingRows(), wanted;
  for (const Item &item : items)
    wanted.push_back(item.row);
  for (const Item &item : items) {
    const bool member = find(rows, item.row) != rows.end();
    const bool goes_on = item.tokens.size() == 1 && item.tokens[0] == CGR_TOKEN_LAST && item.row % 2 == 0;
    cgr_status status = (member ? cgr_standing_update : cgr_standing_add)(rt, nullptr, item.row, int32_t(item.tokens.size()),
                                                                          goes_on ? nullptr : item.tokens.data(),
                                                                          item.partial ? uint32_t(CGR_REQUEST_PARTIAL) : 0u);
    if (status != CGR_OK)
      return status;
  }
  for (int32_t row : rows)
    if (find(wanted, row) == wanted.end())
      CGR_EXPECT_OK(cgr_standing_remove(rt, nullptr, row));
  for (size_t i = 0; i < items.size(); i++) {
    rows = StandingRows();
    if (rows[i] != items[i].row)
      CGR_EXPECT_OK(cgr_standing_swap(rt, nullptr, rows[i], items[i].row));
  }
  EXPECT_EQ(StandingRows(), wanted);
  return PrepareStandingAsIs(items, forced);
}

void Engine::StepStanding(const std::vector<Item> &items, const cgr_key *forced) {
  CGR_ASSERT_OK(PrepareStanding(items, forced));
  CGR_ASSERT_OK(Launch());
  CheckAll();
}

} // namespace cgr_test

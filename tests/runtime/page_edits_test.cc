// Calls that edit the pages of many rows: the next step carries all of it, and what is refused changes nothing.
#include "tests/support/tables.h"

namespace cgr_test {
namespace {

class PageEditCalls : public ThreeRequests {
protected:
  cgr_status Set(const std::vector<int32_t> &rows, const std::vector<int32_t> &firsts, const std::vector<int32_t> &counts,
                 const std::vector<int32_t> &pages, int32_t group = 0) {
    return cgr_requests_set_pages(engine_->rt, group, int32_t(rows.size()), rows.data(), firsts.data(),
                                  counts.empty() ? nullptr : counts.data(), pages.data());
  }
  cgr_status Drop(const std::vector<int32_t> &rows, const std::vector<int32_t> &firsts, const std::vector<int32_t> &counts,
                  int32_t group = 0) {
    return cgr_requests_drop_pages(engine_->rt, group, int32_t(rows.size()), rows.data(), firsts.data(),
                                   counts.empty() ? nullptr : counts.data());
  }
  std::vector<int32_t> Free(size_t count) const { // from the end of the pool
    std::vector<int32_t> pages;
    for (int32_t page = engine_->o.num_pages - 1; pages.size() < count; page--)
      if (std::none_of(engine_->requests.begin(), engine_->requests.end(),
                       [&](const auto &r) { return std::count(r.second->pages.begin(), r.second->pages.end(), page) > 0; }))
        pages.push_back(page);
    return pages;
  }
  void ExpectEnd(int32_t row, int32_t end) {
    int32_t first = -1, got = -1;
    CGR_EXPECT_OK(cgr_request_get_pages(engine_->rt, row, 0, &first, &got));
    EXPECT_EQ(got, end) << "row " << row;
  }
};

TEST_P(PageEditCalls, AreCarriedByTheNextStep) {
  const int32_t a = engine_->Open(), b = engine_->Open(), c = engine_->Open();
  const std::vector<int32_t> p = Free(6);
  CGR_ASSERT_OK(Set({ c, a, b }, { 0, 0, 0 }, { 3, 2, 1 }, p));
  engine_->Adopt(c, { p[0], p[1], p[2] });
  engine_->Adopt(a, { p[3], p[4] });
  engine_->Adopt(b, { p[5] });
  engine_->Step(engine_->Chunks({ { a, 18 }, { b, 5 }, { c, 40 } }));
  ExpectTables(*engine_);
  CGR_ASSERT_OK(Drop({ a, c }, { 1, 1 }, { 1, 2 }));
  ExpectItemsRefused(*engine_, CGR_ERROR_PAGES_MISSING, { "row " + std::to_string(c) }, engine_->Decode({ c }));
  ExpectEnd(a, 1);
  ExpectEnd(c, 1);
  CGR_ASSERT_OK(Set({ a, c }, { 1, 1 }, { 1, 2 }, { p[4], p[1], p[2] }));
  for (int n = 0; n < 3; n++)
    engine_->Step(engine_->Decode({ a, b, c }));
  ExpectTables(*engine_);
  for (int32_t row : { a, b, c })
    engine_->Close(row);
}

TEST_P(PageEditCalls, AreRefusedWhole) {
  const int32_t row = rows_[1], other = rows_[0], end = int32_t(engine_->requests[row]->pages.size());
  const int32_t other_end = int32_t(engine_->requests[other]->pages.size());
  const std::vector<int32_t> p = Free(2);
  EachRefused({
      { kArgument, "cgr_requests_set_pages: group is 1", [&] { return Set({ row }, { end }, {}, p, 1); } },
      { kArgument, "cgr_requests_drop_pages: group is -1", [&] { return Drop({ row }, { 0 }, {}, -1); } },
      { kArgument, "cgr_requests_set_pages: num_rows is -2",
        [&] { return cgr_requests_set_pages(engine_->rt, 0, -2, &row, &end, nullptr, p.data()); } },
      { kArgument, "rows[1] is -3",
        [&] {
          return Set({ row, -3 }, { end, 0 }, {}, p);
        } },
      { kArgument, "rows[0] and rows[1] are both " + std::to_string(row),
        [&] {
          return Set({ row, row }, { end, end + 1 }, {}, p);
        } },
      { CGR_ERROR_PAGE_OUT_OF_RANGE, "pages[1] (of rows[1]) is 0",
        [&] {
          return Set({ row, other }, { end, other_end }, {}, { p[0], 0 });
        } },
      { kArgument, "cgr_requests_drop_pages: firsts[1] " + std::to_string(other_end),
        [&] {
          return Drop({ row, other }, { end - 1, other_end }, {});
        } },
  });
  ExpectEnd(row, end);
  ExpectEnd(other, other_end);
}

TEST_P(PageEditCalls, TakeNoPageFromThePreparedStep) {
  const int32_t row = rows_[1], other = rows_[0], token = 3, end = int32_t(engine_->requests[row]->pages.size());
  const std::vector<int32_t> p = Free(2), own = engine_->requests[other]->pages;
  const std::string says = "rows[1] is row " + std::to_string(row) + ", which is in the prepared step";
  for (bool standing : { false, true }) {
    cgr_step step = CGR_STEP_INIT;
    cgr_batch batch = standing ? StandingBatch() : BatchOf(1, &row, &token);
    if (standing)
      CGR_ASSERT_OK(cgr_standing_add(engine_->rt, nullptr, row, 1, &token, 0));
    CGR_ASSERT_OK(cgr_step_prepare(engine_->rt, &batch, &step));
    EachRefused({
        { CGR_ERROR_STATE, "cgr_requests_set_pages: " + says,
          [&] {
            return Set({ other, row }, { 0, 0 }, {}, p);
          } },
        { CGR_ERROR_STATE, "cgr_requests_drop_pages: " + says,
          [&] {
            return Drop({ other, row }, { 0, 0 }, { 0, 0 });
          } },
    });
    CGR_EXPECT_OK(Set({ other, row }, { 0, end }, {}, p)); // it may get more, and another may lose its pages
    CGR_EXPECT_OK(Set({ other }, { 0 }, {}, own));
    CGR_EXPECT_OK(cgr_step_cancel(engine_->rt, &step));
    CGR_EXPECT_OK(Drop({ row }, { end }, {}));
    if (standing)
      CGR_ASSERT_OK(cgr_standing_remove(engine_->rt, nullptr, row));
  }
}

CGR_INSTANTIATE_OVER_FEW_DEVICES(PageEditCalls);

} // namespace
} // namespace cgr_test

// What the request calls refuse: rows, pages and lengths. A refused call changes nothing.
#include <climits>

#include "tests/support/refused.h"
#include "tests/support/seed.h"

namespace cgr_test {
namespace {

class RequestCalls : public ThreeRequests {};

TEST_P(RequestCalls, RowsThatAreNotOpenAreRefused) {
  cgr_runtime *rt = engine_->rt;
  cgr_request_info info = CGR_REQUEST_INFO_INIT;
  int32_t closed = engine_->Open(), page = 2, first = 0, end = 0;
  engine_->Close(closed);
  for (int32_t bad : { closed, -1, engine_->o.max_rows, INT_MAX, INT_MIN }) {
    const cgr_status status = bad == closed ? CGR_ERROR_ROW_CLOSED : kArgument;
    const std::string row = ": row ... " + std::to_string(bad);
    EachRefused({
        { status, "cgr_request_close" + row, [&] { return cgr_request_close(rt, bad); } },
        { status, "cgr_request_set_length" + row, [&] { return cgr_request_set_length(rt, bad, 0); } },
        { status, "cgr_request_set_pages" + row, [&] { return cgr_request_set_pages(rt, bad, 0, 0, &page, 1); } },
        { status, "cgr_request_drop_pages" + row, [&] { return cgr_request_drop_pages(rt, bad, 0, 0, 1); } },
        { status, "cgr_request_get_pages" + row, [&] { return cgr_request_get_pages(rt, bad, 0, &first, &end); } },
    });
    if (bad != closed)
      Refused(kArgument, { "row is " + std::to_string(bad) }, [&] { return cgr_request_get_info(rt, bad, &info); });
  }
}

// A closed row reports only the last step that used it.
TEST_P(RequestCalls, AClosedRowTellsItsLastStep) {
  int32_t row = engine_->Start(9, 3);
  uint64_t last = engine_->launched;
  engine_->Close(row);
  cgr_request_info info = engine_->Info(row);
  EXPECT_EQ(info.open, 0);
  EXPECT_EQ(info.num_tokens, 0);
  EXPECT_EQ(info.has_token, 0);
  EXPECT_EQ(info.tag, 0u);
  EXPECT_EQ(info.last.seq, last);
}

TEST_P(RequestCalls, OneMoreIsRefusedWhenAllRowsAreOpen) {
  std::vector<int32_t> more;
  while (int32_t(engine_->requests.size()) < engine_->o.max_rows)
    more.push_back(engine_->Open());
  int32_t row = -7;
  Refused(CGR_ERROR_TOO_MANY_REQUESTS, { "16", "max_rows" }, [&] { return cgr_request_open(engine_->rt, 1, &row); });
  EXPECT_EQ(row, -7);
  for (int32_t open : more)
    engine_->Close(open);
  engine_->Close(engine_->Open());
}

TEST_P(RequestCalls, PagesOutsideThePoolOrTwiceAreRefused) {
  cgr_runtime *rt = engine_->rt;
  int32_t row = rows_[1]; // two pages
  const std::vector<int32_t> has = engine_->requests[row]->pages;
  ASSERT_EQ(has.size(), 2u);
  const auto set = [=](int32_t first, const std::vector<int32_t> &pages) {
    return [=] { return cgr_request_set_pages(rt, row, 0, first, pages.data(), int32_t(pages.size())); };
  };
  const int32_t other = has[0] == 7 || has[1] == 7 ? 11 : 7;
  std::vector<BadCall> rows = {
    { kArgument, "pages[1] is " + std::to_string(other) + " ... already", set(2, { other, other }) },
    { kArgument, "pages[1] is " + std::to_string(has[0]) + " ... already", set(1, { other, has[0] }) },
  };
  for (int32_t bad : { 0, 1, -1, engine_->o.num_pages, INT_MAX, INT_MIN })
    rows.push_back({ CGR_ERROR_PAGE_OUT_OF_RANGE, "pages[1] is " + std::to_string(bad), set(1, { 7, bad, 9 }) });
  EachRefused(rows);
  // A page may move within the range that is replaced.
  CGR_EXPECT_OK(set(0, { has[1], has[0] })());
  CGR_EXPECT_OK(set(0, has)());
}

// Pages are set and dropped at random and compared with a plain list: only a page that would be there twice is refused.
TEST_P(RequestCalls, PagesAreRefusedJustWhenTheyAreThereTwice) {
  SeededRandom random;
  int32_t row = engine_->Open();
  std::vector<int32_t> has;
  for (int n = 0; n < 2000; n++) {
    int32_t first = random.Pick32(0, int32_t(has.size())), count = std::min(random.Pick32(0, 3), 10 - first);
    if (random.OneIn(4) && !has.empty()) {
      int32_t keep = random.Pick32(0, int32_t(has.size()) - 1);
      CGR_ASSERT_OK(cgr_request_drop_pages(engine_->rt, row, 0, keep, int32_t(has.size()) - keep));
      has.resize(size_t(keep));
      continue;
    }
    std::vector<int32_t> pages, would = has;
    for (int32_t i = 0; i < count; i++)
      pages.push_back(random.Pick32(2, 21));
    would.resize(std::max(has.size(), size_t(first + count)));
    std::copy(pages.begin(), pages.end(), would.begin() + first);
    std::vector<int32_t> sorted = would;
    std::sort(sorted.begin(), sorted.end());
    bool good = std::adjacent_find(sorted.begin(), sorted.end()) == sorted.end();
    CGR_ASSERT(good ? CGR_OK : CGR_ERROR_INVALID_ARGUMENT,
               cgr_request_set_pages(engine_->rt, row, 0, first, pages.data(), count));
    has = good ? would : has;
  }
  CGR_EXPECT_OK(cgr_request_close(engine_->rt, row));
  engine_->requests.erase(row);
}

TEST_P(RequestCalls, PagesThatDoNotAdjoinOrAreTooManyAreRefused) {
  cgr_runtime *rt = engine_->rt;
  int32_t row = rows_[1]; // two pages
  std::vector<int32_t> good;
  for (int32_t page = 50; page < 90; page++)
    good.push_back(page);
  const std::vector<int32_t> one = { good[0] }; // nothing is read after it
  const auto set = [&](int32_t group, int32_t first, int32_t count) {
    return [&, group, first, count] { return cgr_request_set_pages(rt, row, group, first, good.data(), count); };
  };
  EachRefused({
      { kArgument, "group is 1", set(1, 0, 1) },
      { kArgument, "group is -1", set(-1, 0, 1) },
      { kArgument, "first is 3 ... a gap at pages 2 .. 2 ... pages 0 .. 1 of group 0", set(0, 3, 1) },
      { kArgument, "first is -1", set(0, -1, 1) },
      { kArgument, "count is -1", set(0, 0, -1) },
      { CGR_ERROR_SEQUENCE_TOO_LONG, "11 ... 10", set(0, 2, 9) },
      { CGR_ERROR_SEQUENCE_TOO_LONG, "10", set(0, 2, INT_MAX) },
      { CGR_ERROR_SEQUENCE_TOO_LONG, "10", [&] { return cgr_request_set_pages(rt, row, 0, 0, one.data(), INT_MAX); } },
  });
  CGR_EXPECT_OK(cgr_request_set_pages(rt, row, 0, 2, nullptr, 0));
}

TEST_P(RequestCalls, DroppingPagesThatTheRowLacksIsRefused) {
  int32_t row = engine_->Open();
  const auto drop = [&](int32_t group, int32_t first, int32_t count) {
    return [=] { return cgr_request_drop_pages(engine_->rt, row, group, first, count); };
  };
  Refused(kArgument, { "pages 0 .. 0" }, drop(0, 0, 1)); // none yet
  CGR_EXPECT_OK(drop(0, 0, 0)());
  engine_->Reserve(row, 80); // five
  EachRefused({
      { kArgument, "group is 1", drop(1, 0, 1) },
      { kArgument, "count is -1", drop(0, 0, -1) },
      { kArgument, "pages 1 .. 3 ... 0 .. 4", drop(0, 1, 3) }, // from the middle
      { kArgument, "pages 0 .. 5 ... 0 .. 4", drop(0, 0, 6) },
      { kArgument, "pages -1 .. 0", drop(0, -1, 2) },
      { kArgument, "pages 4 .. 2147483650", drop(0, 4, INT_MAX) },
  });
  engine_->DropPages(row, 0, 2);
  Refused(kArgument, { "pages 1 .. 2", "2 .. 4" }, drop(0, 1, 2));
  engine_->Close(row);
}

TEST_P(RequestCalls, LengthsWithoutPagesAreRefused) {
  const auto set = [&](int32_t length) { // 17 tokens, two pages
    return [=] { return cgr_request_set_length(engine_->rt, rows_[1], length); };
  };
  EachRefused({
      { kArgument, "num_tokens is -1", set(-1) },
      { CGR_ERROR_PAGES_MISSING, "num_tokens is 33 ... 32", set(33) },
      { CGR_ERROR_SEQUENCE_TOO_LONG, "num_tokens is 161 ... 160", set(161) },
      { CGR_ERROR_SEQUENCE_TOO_LONG, "num_tokens is 2147483647", set(INT_MAX) },
  });
}

CGR_INSTANTIATE_OVER_FEW_DEVICES(RequestCalls);

} // namespace
} // namespace cgr_test

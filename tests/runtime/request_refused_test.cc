// What the request calls refuse: rows, pages, lengths, and buffers and graphs that do not exist. A refused call changes nothing.
#include <climits>

#include "cgr/names.h"
#include "tests/support/refused.h"
#include "tests/support/seed.h"

namespace cgr_test {
namespace {

class RequestCalls : public ThreeRequests {};

TEST_P(RequestCalls, RowsThatAreNotOpenAreRefused) {
  cgr_runtime *rt = engine_->rt;
  int32_t closed = engine_->Open(), page = 2, first = 0, end = 0;
  engine_->Close(closed);
  for (int32_t bad : { closed, -1, engine_->o.max_rows, INT_MAX, INT_MIN }) {
    SCOPED_TRACE(bad);
    cgr_status status = bad == closed ? CGR_ERROR_ROW_CLOSED : CGR_ERROR_INVALID_ARGUMENT;
    std::string number = std::to_string(bad);
    Refused(status, { "cgr_request_close: row", number }, [&] { return cgr_request_close(rt, bad); });
    Refused(status, { "cgr_request_set_length: row", number }, [&] { return cgr_request_set_length(rt, bad, 0); });
    Refused(status, { "cgr_request_set_pages: row", number }, [&] { return cgr_request_set_pages(rt, bad, 0, 0, &page, 1); });
    Refused(status, { "cgr_request_drop_pages: row", number }, [&] { return cgr_request_drop_pages(rt, bad, 0, 0, 1); });
    Refused(status, { "cgr_request_get_pages: row", number }, [&] { return cgr_request_get_pages(rt, bad, 0, &first, &end); });
  }
  cgr_request_info info = CGR_REQUEST_INFO_INIT;
  for (int32_t bad : { -1, engine_->o.max_rows })
    Refused(CGR_ERROR_INVALID_ARGUMENT, { "row is " + std::to_string(bad) },
            [&] { return cgr_request_get_info(rt, bad, &info); });
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
  for (int32_t bad : { 0, 1, -1, engine_->o.num_pages, INT_MAX, INT_MIN }) {
    std::vector<int32_t> pages = { 7, bad, 9 };
    Refused(CGR_ERROR_PAGE_OUT_OF_RANGE, { "pages[1] is " + std::to_string(bad) },
            [&] { return cgr_request_set_pages(rt, row, 0, 1, pages.data(), 3); });
  }
  int32_t other = has[0] == 7 || has[1] == 7 ? 11 : 7;
  std::vector<int32_t> twice = { other, other }, again = { other, has[0] }, moved = { has[1], has[0] };
  Refused(CGR_ERROR_INVALID_ARGUMENT, { "pages[1] is " + std::to_string(other), "already" },
          [&] { return cgr_request_set_pages(rt, row, 0, 2, twice.data(), 2); });
  Refused(CGR_ERROR_INVALID_ARGUMENT, { "pages[1] is " + std::to_string(has[0]), "already" },
          [&] { return cgr_request_set_pages(rt, row, 0, 1, again.data(), 2); });
  // A page may move within the range that is replaced.
  CGR_EXPECT_OK(cgr_request_set_pages(rt, row, 0, 0, moved.data(), 2));
  CGR_EXPECT_OK(cgr_request_set_pages(rt, row, 0, 0, has.data(), 2));
}

// Pages are set and dropped at random and compared with a plain list: only a page that would be there twice is refused.
TEST_P(RequestCalls, PagesAreRefusedJustWhenTheyAreThereTwice) {
  const uint64_t seed = Seed();
  SCOPED_TRACE(Repeat(seed));
  Random random(seed);
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
  auto set = [&](int32_t group, int32_t first, int32_t count) {
    return cgr_request_set_pages(rt, row, group, first, good.data(), count);
  };
  Refused(CGR_ERROR_INVALID_ARGUMENT, { "group is 1" }, [&] { return set(1, 0, 1); });
  Refused(CGR_ERROR_INVALID_ARGUMENT, { "group is -1" }, [&] { return set(-1, 0, 1); });
  Refused(CGR_ERROR_INVALID_ARGUMENT, { "pages 3 .. 3", "0 .. 1" }, [&] { return set(0, 3, 1); });
  Refused(CGR_ERROR_INVALID_ARGUMENT, { "first is -1" }, [&] { return set(0, -1, 1); });
  Refused(CGR_ERROR_INVALID_ARGUMENT, { "count is -1" }, [&] { return set(0, 0, -1); });
  Refused(CGR_ERROR_SEQUENCE_TOO_LONG, { "11", "10" }, [&] { return set(0, 2, 9); });
  Refused(CGR_ERROR_SEQUENCE_TOO_LONG, { "10" }, [&] { return set(0, 2, INT_MAX); });
  const std::vector<int32_t> one = { good[0] }; // nothing is read after it
  Refused(CGR_ERROR_SEQUENCE_TOO_LONG, { "10" }, [&] { return cgr_request_set_pages(rt, row, 0, 0, one.data(), INT_MAX); });
  CGR_EXPECT_OK(cgr_request_set_pages(rt, row, 0, 2, nullptr, 0));
}

TEST_P(RequestCalls, DroppingPagesThatTheRowLacksIsRefused) {
  cgr_runtime *rt = engine_->rt;
  int32_t row = engine_->Open();
  auto drop = [&](int32_t group, int32_t first, int32_t count) { return cgr_request_drop_pages(rt, row, group, first, count); };
  Refused(CGR_ERROR_INVALID_ARGUMENT, { "pages 0 .. 0" }, [&] { return drop(0, 0, 1); }); // none yet
  CGR_EXPECT_OK(drop(0, 0, 0));
  engine_->Reserve(row, 80); // five
  Refused(CGR_ERROR_INVALID_ARGUMENT, { "group is 1" }, [&] { return drop(1, 0, 1); });
  Refused(CGR_ERROR_INVALID_ARGUMENT, { "count is -1" }, [&] { return drop(0, 0, -1); });
  Refused(CGR_ERROR_INVALID_ARGUMENT, { "pages 1 .. 3", "0 .. 4" }, [&] { return drop(0, 1, 3); }); // from the middle
  Refused(CGR_ERROR_INVALID_ARGUMENT, { "pages 0 .. 5", "0 .. 4" }, [&] { return drop(0, 0, 6); });
  Refused(CGR_ERROR_INVALID_ARGUMENT, { "pages -1 .. 0" }, [&] { return drop(0, -1, 2); });
  Refused(CGR_ERROR_INVALID_ARGUMENT, { "pages 4 .. 2147483650" }, [&] { return drop(0, 4, INT_MAX); });
  engine_->DropPages(row, 0, 2);
  Refused(CGR_ERROR_INVALID_ARGUMENT, { "pages 1 .. 2", "2 .. 4" }, [&] { return drop(0, 1, 2); });
  engine_->Close(row);
}

TEST_P(RequestCalls, LengthsWithoutPagesAreRefused) {
  cgr_runtime *rt = engine_->rt;
  int32_t row = rows_[1]; // 17 tokens, two pages
  auto set = [&](int32_t length) { return cgr_request_set_length(rt, row, length); };
  Refused(CGR_ERROR_INVALID_ARGUMENT, { "num_tokens is -1" }, [&] { return set(-1); });
  Refused(CGR_ERROR_PAGES_MISSING, { "num_tokens is 33", "32" }, [&] { return set(33); });
  Refused(CGR_ERROR_SEQUENCE_TOO_LONG, { "num_tokens is 161", "160" }, [&] { return set(161); });
  Refused(CGR_ERROR_SEQUENCE_TOO_LONG, { "num_tokens is 2147483647" }, [&] { return set(INT_MAX); });
}

TEST_P(RequestCalls, UnknownBuffersAndGraphsAreRefused) {
  cgr_runtime *rt = engine_->rt;
  cgr_buffer_view view = CGR_BUFFER_VIEW_INIT;
  for (int32_t buffer : { -1, int32_t(CGR_BUFFER_COUNT_), 1000 })
    Refused(CGR_ERROR_INVALID_ENUM, { "buffer is " + std::to_string(buffer) },
            [&] { return cgr_buffer_get(rt, nullptr, cgr_buffer(buffer), 0, &view); });
  for (int32_t index : { -1, 1, 4 })
    for (cgr_buffer buffer : { CGR_BUFFER_PAGE_TABLE, CGR_BUFFER_SEQ_LENS, CGR_BUFFER_COUNTS })
      Refused(CGR_ERROR_INVALID_ARGUMENT, { "index of " + std::string(cgr_buffer_name(buffer)) + " is " + std::to_string(index) },
              [&] { return cgr_buffer_get(rt, nullptr, buffer, index, &view); });
  for (int32_t index : { -1, 0, 64 })
    Refused(CGR_ERROR_INVALID_ARGUMENT, { "index of declared is " + std::to_string(index), "num_buffers is 0" },
            [&] { return cgr_buffer_get(rt, nullptr, CGR_BUFFER_DECLARED, index, &view); });
  for (int32_t bad : { -1, 1 }) {
    std::string number = std::to_string(bad);
    const cgr_where lane = { bad, 0 }, program = { 0, bad };
    uint64_t seq = 77;
    Refused(CGR_ERROR_INVALID_ARGUMENT, { "lane is " + number },
            [&] { return cgr_buffer_get(rt, &lane, CGR_BUFFER_COUNTS, 0, &view); });
    Refused(CGR_ERROR_INVALID_ARGUMENT, { "program is " + number },
            [&] { return cgr_buffer_get(rt, &program, CGR_BUFFER_COUNTS, 0, &view); });
    Refused(CGR_ERROR_NEWER_STRUCT, { "cgr_step_wait", "mark.reserved" }, [&] {
      return cgr_step_wait(rt, cgr_mark{ 0, bad, engine_->launched }, -1, nullptr);
    });
    Refused(CGR_ERROR_INVALID_ARGUMENT, { "lane is " + number }, [&] {
      return cgr_step_wait(rt, cgr_mark{ bad, 0, engine_->launched }, -1, nullptr);
    });
    Refused(CGR_ERROR_INVALID_ARGUMENT, { "lane is " + number },
            [&] { return cgr_runtime_flush(rt, &lane, nullptr, engine_->stream); });
    Refused(CGR_ERROR_INVALID_ARGUMENT, { "program is " + number },
            [&] { return cgr_runtime_flush(rt, &program, nullptr, engine_->stream); });
    Refused(CGR_ERROR_INVALID_ARGUMENT, { "lane is " + number }, [&] { return cgr_runtime_completed(rt, &lane, &seq); });
    Refused(CGR_ERROR_INVALID_ARGUMENT, { "program is " + number }, [&] { return cgr_runtime_completed(rt, &program, &seq); });
    EXPECT_EQ(seq, 77u);
  }
  cgr_graph_stats stats = CGR_GRAPH_STATS_INIT;
  for (int32_t bad : { -1, 4 })
    Refused(CGR_ERROR_INVALID_ARGUMENT, { "index is " + std::to_string(bad) },
            [&] { return cgr_runtime_graph_stats(rt, bad, &stats); });
}

CGR_INSTANTIATE_OVER_FEW_DEVICES(RequestCalls);

} // namespace
} // namespace cgr_test

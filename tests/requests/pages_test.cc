// Pages of rows: set, replaced, taken away, and every refusal.
#include <string>
#include <vector>

#include "tests/requests/rig.h"

namespace {

using namespace cgr_test;
using List = std::vector<int32_t>;

const char *const kSet = "cgr_request_set_pages";
const char *const kDrop = "cgr_request_drop_pages";

// One row, pages of 16 tokens, 10 pages at most.
struct OneRow : Rows {
  int32_t row;
  explicit OneRow(const List &pages = {}, int32_t first = 0) : Rows(3, 160, { { 16, 1000, 4, 9 } }), row(Open()) {
    if (!pages.empty()) {
      EXPECT_EQ(SetPages(row, first, pages), CGR_OK) << cgr_last_message();
    }
  }
  void ExpectPages(int32_t first, const List &pages) const {
    EXPECT_EQ(Pages(row), pages);
    EXPECT_EQ(rows.group[0].row[row].first, first);
    EXPECT_EQ(rows.group[0].row[row].end, first + static_cast<int32_t>(pages.size()));
  }
};

TEST(SetPages, AppendsPrependsAndReplaces) {
  OneRow r;
  EXPECT_EQ(r.SetPages(r.row, 2, { 20, 30 }), CGR_OK);
  r.ExpectPages(2, { 20, 30 });
  EXPECT_EQ(r.SetPages(r.row, 4, { 40 }), CGR_OK);
  r.ExpectPages(2, { 20, 30, 40 });
  EXPECT_EQ(r.SetPages(r.row, 1, { 10 }), CGR_OK);
  r.ExpectPages(1, { 10, 20, 30, 40 });
  EXPECT_EQ(r.SetPages(r.row, 2, { 21, 31 }), CGR_OK);
  r.ExpectPages(1, { 10, 21, 31, 40 });
  EXPECT_EQ(r.SetPages(r.row, 3, { 32, 41, 50 }), CGR_OK);
  r.ExpectPages(1, { 10, 21, 32, 41, 50 });
  EXPECT_EQ(r.SetPages(r.row, 0, { 1, 11 }), CGR_OK);
  r.ExpectPages(0, { 1, 11, 21, 32, 41, 50 });
  EXPECT_EQ(r.SetPages(r.row, 0, { 100, 101, 102, 103, 104, 105, 106, 107, 108, 109 }), CGR_OK);
  r.ExpectPages(0, { 100, 101, 102, 103, 104, 105, 106, 107, 108, 109 });
}

TEST(SetPages, OfRowsAndGroupsAreApart) {
  Rows rows(3, 160, { {}, { 32, 1000 } });
  int32_t a = rows.OpenWithPages(3, 10), b = rows.OpenWithPages(2, 10);
  EXPECT_EQ(rows.SetPages(a, 3, { 500 }, 0), CGR_OK);
  EXPECT_EQ(rows.SetPages(b, 0, { 600 }, 1), CGR_OK);
  EXPECT_EQ(rows.Pages(a, 0), (List{ 10, 11, 12, 500 }));
  EXPECT_EQ(rows.Pages(a, 1), (List{ 10, 11, 12 }));
  EXPECT_EQ(rows.Pages(b, 0), (List{ 10, 11 }));
  EXPECT_EQ(rows.Pages(b, 1), (List{ 600, 11 }));
}

// Whether a call would take a page away. This is asked before the call itself is checked, so the call may be a bad one.
TEST(SetPages, ReplacesWhereAPageBecomesAnother) {
  OneRow r({ 20, 30, 40 }, 2); // 2 .. 4
  auto replaces = [&](int32_t first, const List &pages) {
    return cgr__rows_replaces_pages(r, r.row, 0, first, pages.data(), static_cast<int32_t>(pages.size()));
  };
  EXPECT_FALSE(replaces(5, { 50, 60 }));
  EXPECT_FALSE(replaces(0, { 8, 10 }));
  EXPECT_FALSE(replaces(0, { 8, 10, 20, 30, 40, 50 })) << "the same pages, and more";
  EXPECT_FALSE(replaces(3, {}));
  for (int32_t first : { 2, 3, 4 })
    EXPECT_TRUE(replaces(first, { 21 })) << first;
  EXPECT_TRUE(replaces(0, { 8, 10, 21 }));
  EXPECT_TRUE(replaces(4, { 41, 50 }));
  EXPECT_TRUE(replaces(2, { 20, 30, 41 }));
  EXPECT_FALSE(cgr__rows_replaces_pages(r, r.row, 0, 2, nullptr, 3));
  EXPECT_FALSE(cgr__rows_replaces_pages(r, r.row, 0, 3, &r.row, -1));
  EXPECT_FALSE(cgr__rows_replaces_pages(r, r.row, 0, INT32_MAX, &r.row, INT32_MAX));
  Rows engines(2, 160, { { 16, 1000, 0, 1, true } });
  int32_t row = engines.Open();
  EXPECT_FALSE(cgr__rows_replaces_pages(engines, row, 0, 0, &row, 1)) << "the engine's own table";
}

TEST(SetPages, NoneIsNothing) {
  OneRow r({ 20, 30 }, 2);
  r.Collect();
  EXPECT_EQ(cgr__rows_set_pages(r, r.row, 0, 2, nullptr, 0), CGR_OK);
  EXPECT_EQ(cgr__rows_set_pages(r, r.row, 0, 4, nullptr, 0), CGR_OK);
  r.ExpectPages(2, { 20, 30 });
  EXPECT_EQ(cgr__changes_pending(r), 0);
}

TEST(SetPages, HolesAreRefused) {
  OneRow r({ 20, 30 }, 3); // 3 .. 4
  for (int32_t first : { 6, 7, 9, 10, INT32_MAX })
    ExpectMessage(r.SetPages(r.row, first, { 50 }), CGR_ERROR_INVALID_ARGUMENT,
                  { kSet, "first is " + std::to_string(first) + " and count is 1",
                    "a gap at pages 5 .. " + std::to_string(first - 1), "row 0 has pages 3 .. 4 of group 0",
                    "expected first at most 5", "set the pages of the gap" });
  for (int32_t first : { 0, 1 })
    ExpectMessage(r.SetPages(r.row, first, { 50 }), CGR_ERROR_INVALID_ARGUMENT,
                  { kSet, "first is " + std::to_string(first) + " and count is 1",
                    "a gap at pages " + std::to_string(first + 1) + " .. 2", "row 0 has pages 3 .. 4 of group 0",
                    "expected first + count at least 3", "set the pages of the gap" });
  r.ExpectPages(3, { 20, 30 });
  EXPECT_EQ(r.SetPages(r.row, 2, { 50 }), CGR_OK);
  EXPECT_EQ(r.SetPages(r.row, 5, { 60 }), CGR_OK);
  r.ExpectPages(2, { 50, 20, 30, 60 });
}

TEST(SetPages, AnEmptyRowMayBeginAnywhere) {
  for (int32_t first = 0; first < 10; first++) {
    OneRow r;
    EXPECT_EQ(r.SetPages(r.row, first, { 50 }), CGR_OK) << cgr_last_message();
    r.ExpectPages(first, { 50 });
  }
}

TEST(SetPages, ANegativeFirstIsRefused) {
  OneRow empty, r({ 20, 30 });
  for (int32_t first : { -1, INT32_MIN }) {
    for (OneRow *rows : { &empty, &r })
      ExpectMessage(rows->SetPages(rows->row, first, { 50, 51 }), CGR_ERROR_INVALID_ARGUMENT,
                    { kSet, "first is " + std::to_string(first), "at least 0" });
  }
  empty.ExpectPages(0, {});
  r.ExpectPages(0, { 20, 30 });
}

TEST(SetPages, ANegativeCountIsRefused) {
  OneRow r({ 20 });
  const int32_t pages[] = { 50 };
  for (int32_t count : { -1, INT32_MIN })
    ExpectMessage(cgr__rows_set_pages(r, r.row, 0, 0, pages, count), CGR_ERROR_INVALID_ARGUMENT,
                  { kSet, "count is " + std::to_string(count), "at least 0" });
  r.ExpectPages(0, { 20 });
}

TEST(SetPages, NullIsRefused) {
  OneRow r({ 20 });
  ExpectMessage(cgr__rows_set_pages(r, r.row, 0, 1, nullptr, 3), CGR_ERROR_NULL_POINTER, { kSet, "pages is NULL", "3" });
  r.ExpectPages(0, { 20 });
}

TEST(SetPages, NoMoreThanMaxSeqLenNeeds) {
  OneRow r({ 20, 21, 22, 23, 24, 25, 26, 27, 28 });
  ExpectMessage(r.SetPages(r.row, 9, { 30, 31 }), CGR_ERROR_SEQUENCE_TOO_LONG, { kSet, "11", "10", "max_seq_len" });
  EXPECT_EQ(r.SetPages(r.row, 9, { 30 }), CGR_OK);
  ExpectMessage(r.SetPages(r.row, 10, { 31 }), CGR_ERROR_SEQUENCE_TOO_LONG, { kSet, "11", "10" });
  OneRow empty;
  ExpectMessage(empty.SetPages(empty.row, 10, { 31 }), CGR_ERROR_SEQUENCE_TOO_LONG, { kSet, "11", "10" });
  ExpectMessage(empty.SetPages(empty.row, INT32_MAX, { 31 }), CGR_ERROR_SEQUENCE_TOO_LONG, { kSet, "2147483648", "10" });
  const int32_t page = 50; // so many pages that may not be read them
  ExpectMessage(cgr__rows_set_pages(empty, empty.row, 0, 0, &page, INT32_MAX), CGR_ERROR_SEQUENCE_TOO_LONG,
                { kSet, "2147483647", "10" });
}

// A last page that max_seq_len fills in part is a page all the same.
TEST(SetPages, PagesPerRowAreRoundedUp) {
  for (int32_t max_seq_len : { 1, 15, 16, 17, 31, 32, 33 }) {
    Rows rows(1, max_seq_len, { {} });
    int32_t row = rows.Open(), most = (max_seq_len + 15) / 16;
    List pages;
    for (int32_t i = 0; i < most; i++)
      pages.push_back(10 + i);
    EXPECT_EQ(rows.SetPages(row, 0, pages), CGR_OK);
    EXPECT_EQ(rows.SetPages(row, most, { 99 }), CGR_ERROR_SEQUENCE_TOO_LONG);
    EXPECT_EQ(rows.rows.row[row].capacity, max_seq_len);
  }
}

TEST(SetPages, PagesOutsideThePoolOrReservedAreRefused) {
  OneRow r({ 20, 21 });
  for (int32_t bad : { -1, INT32_MIN, 1000, 1001, INT32_MAX, 4, 9 }) {
    ExpectMessage(r.SetPages(r.row, 2, { 30, 31, bad, 32 }), CGR_ERROR_PAGE_OUT_OF_RANGE,
                  { kSet, "pages[2] is " + std::to_string(bad), "0 .. 999", "4", "9" });
    r.ExpectPages(0, { 20, 21 });
  }
  EXPECT_EQ(r.SetPages(r.row, 2, { 0, 999, 3, 5, 8, 10 }), CGR_OK) << cgr_last_message();
}

TEST(SetPages, OfTheWidestPool) {
  Rows rows(1, 64, { { 16, INT32_MAX, 0, 1 } });
  int32_t row = rows.Open();
  EXPECT_EQ(rows.SetPages(row, 0, { INT32_MAX - 1, 2 }), CGR_OK) << cgr_last_message();
  EXPECT_EQ(rows.SetPages(row, 2, { INT32_MAX }), CGR_ERROR_PAGE_OUT_OF_RANGE);
}

TEST(SetPages, TheEnginesTableHasNone) {
  GroupSpec engine;
  engine.engine_table = true;
  Rows rows(1, 64, { {}, engine });
  int32_t row = rows.Open();
  ExpectMessage(rows.SetPages(row, 0, { 5 }, 1), CGR_ERROR_STATE, { kSet, "page_table" });
  ExpectMessage(rows.DropPages(row, 0, 1, 1), CGR_ERROR_STATE, { kDrop, "page_table" });
  EXPECT_EQ(rows.rows.group[1].row[row].end, 0);
}

// -------------------------------------------------------------------------------------------------------------------- drop

TEST(DropPages, AtTheFrontAndAtTheEnd) {
  OneRow r({ 20, 21, 22, 23, 24 });
  EXPECT_EQ(r.DropPages(r.row, 4, 1), CGR_OK);
  r.ExpectPages(0, { 20, 21, 22, 23 });
  EXPECT_EQ(r.DropPages(r.row, 0, 2), CGR_OK);
  r.ExpectPages(2, { 22, 23 });
  EXPECT_EQ(r.DropPages(r.row, 3, 1), CGR_OK);
  r.ExpectPages(2, { 22 });
  EXPECT_EQ(r.DropPages(r.row, 2, 1), CGR_OK);
  r.ExpectPages(0, {});
  EXPECT_EQ(r.SetPages(r.row, 5, { 22 }), CGR_OK);
  r.ExpectPages(5, { 22 });
}

TEST(DropPages, InTheMiddleIsRefused) {
  OneRow r({ 20, 21, 22, 23, 24 }, 1); // 1 .. 5
  for (auto [first, count] : std::vector<std::pair<int32_t, int32_t>>{ { 2, 1 }, { 2, 3 }, { 4, 1 }, { 3, 2 } })
    ExpectMessage(r.DropPages(r.row, first, count), CGR_ERROR_INVALID_ARGUMENT,
                  { kDrop, "pages " + std::to_string(first) + " .. " + std::to_string(first + count - 1), "1 .. 5" });
  r.ExpectPages(1, { 20, 21, 22, 23, 24 });
}

TEST(DropPages, ThatTheRowDoesNotHaveAreRefused) {
  OneRow r({ 20, 21, 22 }, 2); // 2 .. 4
  for (auto [first, count] : std::vector<std::pair<int32_t, int32_t>>{ { 0, 1 },
                                                                       { 1, 1 },
                                                                       { 1, 2 },
                                                                       { 1, 4 },
                                                                       { 2, 4 },
                                                                       { 4, 2 },
                                                                       { 5, 1 },
                                                                       { -1, 3 },
                                                                       { -1, 6 },
                                                                       { INT32_MIN, 1 },
                                                                       { INT32_MAX, 1 },
                                                                       { INT32_MAX, INT32_MAX },
                                                                       { 2, INT32_MAX } })
    ExpectMessage(r.DropPages(r.row, first, count), CGR_ERROR_INVALID_ARGUMENT, { kDrop, std::to_string(first), "2 .. 4" });
  r.ExpectPages(2, { 20, 21, 22 });
}

TEST(DropPages, OfARowWithoutAnyIsRefused) {
  OneRow r;
  for (int32_t first : { 0, 1, -1 })
    ExpectMessage(r.DropPages(r.row, first, 1), CGR_ERROR_INVALID_ARGUMENT, { kDrop, std::to_string(first), "none" });
}

TEST(DropPages, ANegativeCountIsRefusedAndNoneIsNothing) {
  OneRow r({ 20, 21 });
  r.Collect();
  for (int32_t count : { -1, INT32_MIN })
    ExpectMessage(r.DropPages(r.row, 0, count), CGR_ERROR_INVALID_ARGUMENT,
                  { kDrop, "count is " + std::to_string(count), "at least 0" });
  EXPECT_EQ(r.DropPages(r.row, 0, 0), CGR_OK);
  EXPECT_EQ(r.DropPages(r.row, 2, 0), CGR_OK);
  r.ExpectPages(0, { 20, 21 });
  EXPECT_EQ(cgr__changes_pending(r), 0);
}

// ---------------------------------------------------------------------------------------------------------------- capacity

TEST(Capacity, FollowsTheEnd) {
  OneRow r({ 20, 21, 22 });
  EXPECT_EQ(r.rows.row[r.row].capacity, 48);
  EXPECT_EQ(r.DropPages(r.row, 2, 1), CGR_OK);
  EXPECT_EQ(r.rows.row[r.row].capacity, 32);
  EXPECT_EQ(cgr__rows_set_length(r, r.row, 33), CGR_ERROR_PAGES_MISSING);
  EXPECT_EQ(r.SetPages(r.row, 2, { 22, 23 }), CGR_OK);
  EXPECT_EQ(r.rows.row[r.row].capacity, 64);
}

TEST(Capacity, ARowWithoutItsFirstPageHoldsNothing) {
  OneRow r({ 20, 21, 22 });
  Pool pool(r, 1, 100, 2);
  ASSERT_EQ(pool.Step(r, Batch::Prefill({ r.row }, { 20 }), 1), CGR_OK);
  ASSERT_EQ(r.DropPages(r.row, 0, 1), CGR_OK);
  ExpectMessage(cgr__rows_set_length(r, r.row, 1), CGR_ERROR_PAGES_MISSING,
                { "num_tokens is 1", "pages 1 .. 2 of group 0", "from page 0 on" });
  ExpectMessage(pool.Step(r, Batch::Decode({ r.row }), 2), CGR_ERROR_PAGES_MISSING,
                { "row " + std::to_string(r.row), "21 tokens", "pages 1 .. 2 of group 0", "from page 0 on" });
  ASSERT_EQ(r.SetPages(r.row, 0, { 30 }), CGR_OK);
  EXPECT_EQ(pool.Step(r, Batch::Decode({ r.row }), 2), CGR_OK) << cgr_last_message();
  EXPECT_EQ(r.Computed(r.row), 21);
}

TEST(Capacity, PagesBelowTheLengthCanGoAndThenTheRowCannotStep) {
  OneRow r({ 20, 21, 22 });
  Pool pool(r, 1, 100, 2);
  ASSERT_EQ(pool.Step(r, Batch::Prefill({ r.row }, { 40 }), 1), CGR_OK);
  ASSERT_EQ(r.DropPages(r.row, 1, 2), CGR_OK);
  ExpectMessage(pool.Step(r, Batch::Decode({ r.row }), 2), CGR_ERROR_PAGES_MISSING, { "41 tokens", "at most 16" });
  ASSERT_EQ(cgr__rows_set_length(r, r.row, 15), CGR_OK);
  EXPECT_EQ(pool.Step(r, Batch::Decode({ r.row }).WithIds(), 2), CGR_OK) << cgr_last_message();
}

} // namespace

// A row has no page twice: every repeat is refused, and nothing else is. The oracle is a set; rows are long and pools small
// enough that pages meet in whatever the rows use to find repeats quickly.
#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "tests/requests/rig.h"

namespace {

using namespace cgr_test;
using List = std::vector<int32_t>;

void ExpectRepeat(cgr_status got, int32_t index, int32_t page, int32_t row) {
  ExpectMessage(got, CGR_ERROR_INVALID_ARGUMENT,
                { "cgr_request_set_pages", "pages[" + std::to_string(index) + "] is " + std::to_string(page),
                  "row " + std::to_string(row), "once" });
}

TEST(PageRepeats, WithinOneCall) {
  Rows rows(2, 1000, { {} });
  rows.Open();
  int32_t row = rows.Open();
  ExpectRepeat(rows.SetPages(row, 0, { 5, 6, 5 }), 2, 5, row);
  ExpectRepeat(rows.SetPages(row, 0, { 7, 7 }), 1, 7, row);
  EXPECT_EQ(rows.Pages(row), List());
  EXPECT_EQ(rows.SetPages(row, 0, { 5, 6, 7 }), CGR_OK);
}

TEST(PageRepeats, AcrossCalls) {
  Rows rows(1, 1000, { {} });
  int32_t row = rows.OpenWithPages(3, 5);
  ExpectRepeat(rows.SetPages(row, 3, { 8, 6 }), 1, 6, row);
  EXPECT_EQ(rows.Pages(row), (List{ 5, 6, 7 })) << "none is set";
  EXPECT_EQ(rows.SetPages(row, 3, { 8, 9 }), CGR_OK);
}

TEST(PageRepeats, InAReplacedRange) {
  Rows rows(1, 1000, { {} });
  int32_t row = rows.OpenWithPages(4, 5);
  EXPECT_EQ(rows.SetPages(row, 1, { 6, 7 }), CGR_OK) << "the same again";
  EXPECT_EQ(rows.SetPages(row, 1, { 7, 6 }), CGR_OK) << "in another order";
  ExpectRepeat(rows.SetPages(row, 1, { 6, 8 }), 1, 8, row);
  ExpectRepeat(rows.SetPages(row, 1, { 5 }), 0, 5, row);
  EXPECT_EQ(rows.SetPages(row, 0, { 6, 5 }), CGR_ERROR_INVALID_ARGUMENT) << "6 is after the range";
  EXPECT_EQ(rows.SetPages(row, 0, { 6, 5, 7 }), CGR_OK) << cgr_last_message();
  EXPECT_EQ(rows.Pages(row), (List{ 6, 5, 7, 8 }));
  EXPECT_EQ(rows.SetPages(row, 3, { 9 }), CGR_OK);
  EXPECT_EQ(rows.SetPages(row, 4, { 8 }), CGR_OK) << "8 was replaced";
}

TEST(PageRepeats, NotAfterThePageWasDropped) {
  Rows rows(1, 1000, { {} });
  int32_t row = rows.OpenWithPages(4, 5);
  EXPECT_EQ(rows.DropPages(row, 3, 1), CGR_OK);
  EXPECT_EQ(rows.SetPages(row, 3, { 8 }), CGR_OK);
  EXPECT_EQ(rows.DropPages(row, 0, 2), CGR_OK);
  EXPECT_EQ(rows.SetPages(row, 4, { 5, 6 }), CGR_OK);
  ExpectRepeat(rows.SetPages(row, 6, { 7 }), 0, 7, row);
  EXPECT_EQ(rows.DropPages(row, 2, 4), CGR_OK);
  EXPECT_EQ(rows.SetPages(row, 0, { 8, 7, 6, 5 }), CGR_OK);
  ExpectRepeat(rows.SetPages(row, 4, { 5 }), 0, 5, row);
}

TEST(PageRepeats, NotAcrossRowsGroupsAndLives) {
  Rows rows(2, 1000, { {}, {} });
  int32_t a = rows.OpenWithPages(3, 5), b = rows.OpenWithPages(3, 5); // a shared prefix
  EXPECT_EQ(rows.SetPages(a, 3, { 20 }, 0), CGR_OK);
  EXPECT_EQ(rows.SetPages(a, 3, { 20 }, 1), CGR_OK);
  EXPECT_EQ(rows.SetPages(b, 3, { 20 }, 0), CGR_OK);
  ASSERT_EQ(cgr__rows_close(rows, a), CGR_OK);
  EXPECT_EQ(rows.OpenWithPages(4, 5), a);
  ExpectRepeat(rows.SetPages(a, 4, { 6 }, 1), 0, 6, a);
}

// The pages of a refused call do not count afterwards.
TEST(PageRepeats, ARefusedCallLeavesNoTrace) {
  Rows rows(1, 1000, { {} });
  int32_t row = rows.OpenWithPages(2, 5);
  ExpectRepeat(rows.SetPages(row, 2, { 30, 31, 5 }), 2, 5, row);
  EXPECT_EQ(rows.SetPages(row, 2, { 31, 30 }), CGR_OK) << cgr_last_message();
}

// The filter that finds repeats quickly stays thin, so that it seldom has to search: at most one bit for each page, among many
// times as many bits, and none for pages that are gone.
TEST(PageRepeats, AreFoundByAThinFilter) {
  Rows rows(2, 16 * 900, { {} });
  auto bits = [&](int32_t of) {
    const cgr__page_group &g = rows.rows.group[0];
    int32_t set = 0;
    for (int32_t i = 0; i < g.filter_words; i++)
      set += __builtin_popcountll(g.page_filter[static_cast<int64_t>(of) * g.filter_words + i]);
    return set;
  };
  int32_t other = rows.OpenWithPages(7, 10), row = rows.Open();
  int32_t others = bits(other);
  for (int32_t count : { 3, 700, 900 }) {
    List pages(static_cast<size_t>(count));
    std::iota(pages.begin(), pages.end(), 2);
    ASSERT_EQ(rows.SetPages(row, 0, pages), CGR_OK) << cgr_last_message();
    EXPECT_GT(bits(row), 0);
    EXPECT_LE(bits(row), count);
    EXPECT_LE(8 * rows.rows.group[0].pages_per_row, 64 * rows.rows.group[0].filter_words);
    ASSERT_EQ(rows.DropPages(row, 0, count), CGR_OK);
    EXPECT_EQ(bits(row), 0) << "all were dropped";
    ASSERT_EQ(rows.SetPages(row, 0, pages), CGR_OK);
    ASSERT_EQ(cgr__rows_close(rows, row), CGR_OK);
    EXPECT_EQ(bits(row), 0) << "closed";
    ASSERT_EQ(rows.Open(), row);
    EXPECT_EQ(bits(other), others) << "another row's";
  }
}

// ------------------------------------------------------------------------------------------------------------------ random

struct Oracle {
  std::map<int32_t, int32_t> pages; // by index

  bool Repeats(int32_t first, const List &given) const {
    std::set<int32_t> page_filter;
    for (const auto &[index, page] : pages)
      if (index < first || index >= first + static_cast<int32_t>(given.size()))
        page_filter.insert(page);
    for (int32_t page : given)
      if (!page_filter.insert(page).second)
        return true;
    return false;
  }
  int32_t First() const { return pages.empty() ? 0 : pages.begin()->first; }
  int32_t End() const { return pages.empty() ? 0 : pages.rbegin()->first + 1; }
};

struct Case {
  Rows rows;
  Random &random;
  int32_t most, num_pages;
  int32_t row;
  Oracle oracle;
  int64_t accepted = 0, refused = 0;

  Case(Random &source, int32_t pages_per_row, int32_t pool)
      : rows(1, pages_per_row * 16, { { 16, pool, 0, 1 } }), random(source), most(pages_per_row), num_pages(pool),
        row(rows.Open()) {}

  void Set() {
    bool none = oracle.pages.empty();
    int32_t first = none ? random.Pick32(0, most - 1) : random.Pick32(std::max(oracle.First() - 3, 0), oracle.End());
    int32_t least = none || first >= oracle.First() ? 1 : oracle.First() - first;
    if (least > most - first)
      return;
    int32_t count = random.Pick32(least, std::min(most - first, least + random.Pick32(0, 40)));
    List given;
    for (int32_t i = 0; i < count; i++)
      given.push_back(random.Pick32(2, num_pages - 1));
    if (!random.OneIn(3)) // else repeats by chance
      MakeFresh(first, &given);
    bool repeats = oracle.Repeats(first, given);
    cgr_status status = rows.SetPages(row, first, given);
    ASSERT_EQ(status, repeats ? CGR_ERROR_INVALID_ARGUMENT : CGR_OK) << cgr_last_message();
    (repeats ? refused : accepted)++;
    for (int32_t i = 0; i < count && !repeats; i++)
      oracle.pages[first + i] = given[static_cast<size_t>(i)];
  }
  // Replaces what repeats; now and then leaves one repeat in.
  void MakeFresh(int32_t first, List *given) {
    std::set<int32_t> page_filter;
    for (const auto &[index, page] : oracle.pages)
      if (index < first || index >= first + static_cast<int32_t>(given->size()))
        page_filter.insert(page);
    bool leave = random.OneIn(3);
    for (int32_t &page : *given) {
      for (int tries = 0; tries < 50 && page_filter.count(page) && !(leave && random.OneIn(200)); tries++)
        page = random.Pick32(2, num_pages - 1);
      page_filter.insert(page);
    }
  }
  void Drop() {
    if (oracle.pages.empty())
      return;
    int32_t first = oracle.First(), end = oracle.End();
    int32_t count = random.OneIn(6) ? end - first : random.Pick32(1, std::min(end - first, 20));
    int32_t from = random.OneIn(2) ? first : end - count;
    ASSERT_EQ(rows.DropPages(row, from, count), CGR_OK) << cgr_last_message();
    for (int32_t i = 0; i < count; i++)
      oracle.pages.erase(from + i);
  }
  void Reopen() {
    ASSERT_EQ(cgr__rows_close(rows, row), CGR_OK);
    row = rows.Open();
    oracle.pages.clear();
  }
  void Check() {
    List expected;
    for (const auto &[index, page] : oracle.pages)
      expected.push_back(page);
    ASSERT_EQ(rows.Pages(row), expected);
  }
};

TEST(PageRepeats, RandomCallsAgreeWithASet) {
  SeededRandom random;
  int64_t accepted = 0, refused = 0;
  for (auto [most, pool] : std::vector<std::pair<int32_t, int32_t>>{
           { 1, 4 }, { 4, 8 }, { 16, 40 }, { 64, 100 }, { 64, 100000 }, { 300, 500 }, { 1000, 1200 }, { 1000, INT32_MAX } }) {
    SCOPED_TRACE("pages per row " + std::to_string(most) + ", pool " + std::to_string(pool));
    Case c(random, most, pool);
    for (int step = 0; step < 4000; step++) {
      int64_t choice = random.Pick(0, 99);
      choice < 70 ? c.Set() : choice < 97 ? c.Drop() : c.Reopen();
      if (step % 10 == 0)
        c.Check();
      ASSERT_FALSE(HasFatalFailure());
    }
    accepted += c.accepted;
    refused += c.refused;
  }
  EXPECT_GT(accepted, 3000);
  EXPECT_GT(refused, 500);
}

} // namespace

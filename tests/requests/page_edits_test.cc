// Calls that edit the pages of many rows: the same in effect as single calls, and all of it or nothing. What is wrong is named by
// its place in the arrays.
#include <map>
#include <string>
#include <vector>

#include "requests/ledger.h"
#include "requests/page_edits.h"
#include "requests/standing.h"
#include "tests/requests/rig.h"

namespace {

using namespace cgr_test;
using List = std::vector<int32_t>;

const char *const kSet = "cgr_requests_set_pages";
const char *const kDrop = "cgr_requests_drop_pages";

// The arrays of a call.
struct Call {
  bool drops = false;
  int32_t group = 0;
  List rows, firsts, counts, pages;
  bool has_counts = true;

  cgr__page_edits Get() const {
    const auto num_rows = static_cast<int32_t>(rows.size());
    cgr__page_edits edits = {
      drops ? kDrop : kSet, drops, group, num_rows, rows.data(), firsts.data(), nullptr, pages.data(), 0
    };
    edits.counts = has_counts ? counts.data() : nullptr;
    return edits;
  }
  void Add(int32_t row, int32_t first, const List &given) {
    rows.push_back(row);
    firsts.push_back(first);
    counts.push_back(static_cast<int32_t>(given.size()));
    pages.insert(pages.end(), given.begin(), given.end());
  }
};

cgr_status Make(Rows &rows, cgr__page_edits edits) {
  const cgr_status status = cgr__page_edits_check(rows, &edits);
  if (status == CGR_OK)
    cgr__page_edits_apply(rows, &edits);
  return status;
}
cgr_status Make(Rows &rows, const Call &call) { return Make(rows, call.Get()); }

// ------------------------------------------------------------------------------------------------------------------- refusals

// Four open rows with pages 0 .. 2 of group 0, numbered from 100 + 10 * row on, of at most 10. Group 1 is of another length set;
// group 2 has the engine's table.
struct FourRows : Rows {
  FourRows() : Rows(6, 160, { { 16, 1000, 4, 9 }, { 16, 1000, 4, 9, false, {}, 1 }, { 16, 1000, 4, 9, true } }) {
    for (int32_t row = 0; row < 4; row++) {
      EXPECT_EQ(Open(), row);
      EXPECT_EQ(SetPages(row, 0, { 100 + 10 * row, 101 + 10 * row, 102 + 10 * row }), CGR_OK);
    }
  }
  // Refused with the words, and nothing is different after it: the good call then works.
  template <class Change> void ExpectRefused(Call bad, Change change, cgr_status status, const Words &words) {
    change(bad);
    Words all = { std::string(bad.drops ? kDrop : kSet) + ": ", "expected" };
    all.insert(all.end(), words.begin(), words.end());
    const auto pending = cgr__changes_pending(&rows);
    ExpectMessage(Make(*this, bad), status, all);
    EXPECT_EQ(cgr__changes_pending(&rows), pending);
    for (int32_t row = 0; row < 4; row++) {
      EXPECT_EQ(Pages(row), (List{ 100 + 10 * row, 101 + 10 * row, 102 + 10 * row }));
      EXPECT_EQ(rows.group[0].row[row].edited, CGR__EDITED_NOT);
    }
  }
};

// Rows 2, 0 and 3 get one page each, and row 1 two.
Call Good() {
  Call call;
  call.Add(2, 3, { 501 });
  call.Add(0, 3, { 502 });
  call.Add(1, 3, { 503, 504 });
  call.Add(3, 3, { 505 });
  return call;
}

TEST(PageEdits, GiveEachRowItsPages) {
  FourRows r;
  r.Collect();
  ASSERT_EQ(Make(r, Good()), CGR_OK) << cgr_last_message();
  EXPECT_EQ(r.Pages(0), (List{ 100, 101, 102, 502 }));
  EXPECT_EQ(r.Pages(1), (List{ 110, 111, 112, 503, 504 }));
  EXPECT_EQ(r.Pages(2), (List{ 120, 121, 122, 501 }));
  EXPECT_EQ(r.Pages(3), (List{ 130, 131, 132, 505 }));
  EXPECT_EQ(cgr__changes_pending(r), 5);
  Call one = Good();
  one.has_counts = false;
  one.firsts = { 4, 4, 5, 4 };
  one.pages = { 601, 602, 603, 604 };
  ASSERT_EQ(Make(r, one), CGR_OK) << cgr_last_message();
  EXPECT_EQ(r.Pages(1), (List{ 110, 111, 112, 503, 504, 603 })) << "counts NULL: one page each";
  EXPECT_EQ(r.Pages(3), (List{ 130, 131, 132, 505, 604 }));
  Call drop;
  drop.drops = true;
  drop.rows = { 1, 0, 3 }, drop.firsts = { 0, 2, 0 }, drop.counts = { 2, 3, 0 };
  ASSERT_EQ(Make(r, drop), CGR_OK) << cgr_last_message();
  EXPECT_EQ(r.Pages(1), (List{ 112, 503, 504, 603 }));
  EXPECT_EQ(r.Pages(0), (List{ 100, 101 }));
  EXPECT_EQ(r.Pages(3), (List{ 130, 131, 132, 505, 604 })) << "a count of 0";
  EXPECT_EQ(Make(r, Call{}), CGR_OK) << "no rows: no arrays are read";
}

TEST(PageEdits, RefuseArrays) {
  FourRows r;
  const Call good = Good();
  const auto refused = [&](cgr_status status, const Words &words, auto change) {
    cgr__page_edits edits = good.Get();
    change(&edits);
    ExpectMessage(Make(r, edits), status, words);
  };
  refused(CGR_ERROR_INVALID_ARGUMENT, { kSet, "group is 3", "0 .. 2" }, [](cgr__page_edits *e) { e->group = 3; });
  refused(CGR_ERROR_STATE, { kSet, "group 2", "page_table" }, [](cgr__page_edits *e) { e->group = 2, e->num_rows = 0; });
  refused(CGR_ERROR_INVALID_ARGUMENT, { kSet, "num_rows is -1", "expected 0 .. " }, [](cgr__page_edits *e) { e->num_rows = -1; });
  refused(CGR_ERROR_NULL_POINTER, { kSet, "rows is NULL", "4 rows" }, [](cgr__page_edits *e) { e->rows = nullptr; });
  refused(CGR_ERROR_NULL_POINTER, { kSet, "firsts is NULL", "4 first pages" }, [](cgr__page_edits *e) { e->firsts = nullptr; });
  refused(CGR_ERROR_NULL_POINTER, { kSet, "pages is NULL", "5 page numbers (the sum of counts)" },
          [](cgr__page_edits *e) { e->pages = nullptr; });
  refused(CGR_ERROR_NULL_POINTER, { kSet, "pages is NULL", "4 page numbers (num_rows)" },
          [](cgr__page_edits *e) { e->pages = e->counts = nullptr; });
  const List none(4);
  cgr__page_edits edits = good.Get();
  edits.pages = nullptr, edits.counts = none.data();
  EXPECT_EQ(Make(r, edits), CGR_OK) << "no pages are needed";
  for (int32_t row = 0; row < 4; row++)
    EXPECT_EQ(r.Pages(row).size(), 3u);
}

// At each place of the arrays; what comes before it is not done.
TEST(PageEdits, NameTheEntryThatIsWrong) {
  FourRows r;
  for (size_t i = 0; i < 4; i++) {
    const std::string at = "[" + std::to_string(i) + "]", page = "pages[" + std::to_string(i < 3 ? i : i + 1) + "] (of rows" + at;
    const Call good = Good();
    const int32_t row = good.rows[i], place = static_cast<int32_t>(i < 3 ? i : i + 1);
    const std::string of_row = "row " + std::to_string(row);
    const auto refused = [&](cgr_status status, const Words &words, auto change) {
      r.ExpectRefused(good, change, status, words);
    };
    for (int32_t bad : { -1, 6, INT32_MIN, INT32_MAX })
      refused(CGR_ERROR_INVALID_ARGUMENT, { "rows" + at + " is " + std::to_string(bad), "0 .. 5" },
              [&](Call &c) { c.rows[i] = bad; });
    refused(CGR_ERROR_ROW_CLOSED, { "rows" + at + " is row 5", "closed" }, [&](Call &c) { c.rows[i] = 5; });
    refused(CGR_ERROR_INVALID_ARGUMENT, { "firsts" + at + " is -1" }, [&](Call &c) { c.firsts[i] = -1; });
    refused(CGR_ERROR_INVALID_ARGUMENT, { "counts" + at + " is -1" }, [&](Call &c) { c.counts[i] = -1; });
    refused(CGR_ERROR_INVALID_ARGUMENT,
            { "firsts" + at + " is 5 and counts" + at + " is ", "gap at pages 3 .. 4", of_row, "firsts" + at + " at most 3" },
            [&](Call &c) { c.firsts[i] = 5; });
    refused(CGR_ERROR_SEQUENCE_TOO_LONG, { "firsts" + at + " + counts" + at + " is 2147483650", "at most 10" },
            [&](Call &c) { c.counts[i] = INT32_MAX; });
    for (int32_t bad : { -1, 1000, 4, 9, INT32_MAX })
      refused(CGR_ERROR_PAGE_OUT_OF_RANGE, { page + ") is " + std::to_string(bad) },
              [&](Call &c) { c.pages[static_cast<size_t>(place)] = bad; });
    refused(CGR_ERROR_INVALID_ARGUMENT, { page + ") is " + std::to_string(101 + 10 * row), of_row, "once" },
            [&](Call &c) { c.pages[static_cast<size_t>(place)] = 101 + 10 * row; });
    for (size_t j = 0; j < i; j++)
      refused(CGR_ERROR_INVALID_ARGUMENT,
              { "rows[" + std::to_string(j) + "] and rows" + at + " are both " + std::to_string(good.rows[j]), "each row once" },
              [&](Call &c) { c.rows[i] = good.rows[j]; });
  }
  r.ExpectRefused(Good(), [](Call &c) { c.has_counts = false, c.firsts[1] = 7; }, CGR_ERROR_INVALID_ARGUMENT,
                  { "firsts[1] is 7 and the count is 1, which leaves a gap" });
  r.ExpectRefused(Good(), [](Call &c) { c.pages[2] = 504; }, CGR_ERROR_INVALID_ARGUMENT,
                  { "pages[3] (of rows[2]) is 504", "once" });
  EXPECT_EQ(Make(r, Good()), CGR_OK) << cgr_last_message();
}

TEST(PageEdits, NameTheEntryThatCannotBeDropped) {
  FourRows r;
  Call good;
  good.drops = true;
  good.rows = { 3, 1 }, good.firsts = { 2, 0 }, good.counts = { 1, 1 };
  for (size_t i = 0; i < 2; i++) {
    const std::string at = "[" + std::to_string(i) + "]";
    const auto refused = [&](cgr_status status, const Words &words, auto change) {
      r.ExpectRefused(good, change, status, words);
    };
    refused(CGR_ERROR_INVALID_ARGUMENT, { "counts" + at + " is -1" }, [&](Call &c) { c.counts[i] = -1; });
    refused(CGR_ERROR_INVALID_ARGUMENT, { "firsts" + at + " 1 and counts" + at + " 1", "0 .. 2 of row" },
            [&](Call &c) { c.firsts[i] = 1; });
    refused(CGR_ERROR_INVALID_ARGUMENT, { "firsts" + at + " 3 and the count 1", "0 .. 2 of row" },
            [&](Call &c) { c.firsts[i] = 3, c.has_counts = false; });
    refused(CGR_ERROR_ROW_CLOSED, { "rows" + at + " is row 4" }, [&](Call &c) { c.rows[i] = 4; });
    refused(CGR_ERROR_INVALID_ARGUMENT, { "no pages in group 1" }, [&](Call &c) { c.group = 1, c.counts[1 - i] = 0; });
  }
  EXPECT_EQ(r.SetPages(1, 0, { 700 }, 1), CGR_OK);
  EXPECT_EQ(cgr__rows_set_other_length(r, 1, 1, 5), CGR_OK) << cgr_last_message();
  r.ExpectRefused(good, [](Call &c) { c.group = 1, c.counts[0] = 0; }, CGR_ERROR_STATE, { "row 1 has 5 tokens in length set 1" });
}

// -------------------------------------------------------------------------------------------------------------------- ledger

// A page goes from row to row within a call, as it would from call to call.
TEST(PageEdits, HandPagesOnInTheirOrder) {
  Rows rows(3, 96, { { 16, 30 } }, 3, 64, true);
  Pool pool(rows, 3, 64, 4);
  const int32_t a = rows.OpenWithPages(2, 2), b = rows.OpenWithPages(1, 10), c = rows.OpenWithPages(1, 12);
  ASSERT_EQ(pool.Step(rows, Batch::Prefill({ a }, { 20 }), 1), CGR_OK);
  for (uint64_t seq = 2; seq < 5; seq++) // the last ones have not been added to the row
    ASSERT_EQ(pool.Step(rows, Batch::Decode({ a }), seq), CGR_OK);
  const auto make = [&](const std::vector<std::pair<int32_t, int32_t>> &entries, uint64_t completed) {
    Call call; // row and page: at the end of its pages, of `a` in place of its second
    for (const auto &[row, page] : entries)
      call.Add(row, 1, { page });
    cgr__page_edits edits = call.Get();
    EXPECT_EQ(cgr__page_edits_check(rows, &edits), CGR_OK) << cgr_last_message();
    const cgr_status status = cgr__ledger_check_edits(rows, &edits, completed);
    status == CGR_OK ? cgr__page_edits_apply(rows, &edits) : cgr__page_edits_cancel(rows, &edits);
    return status;
  };
  const Words early = { kSet, "pages[1] (of rows[1]) is 3 of group 0", "(row 0) until step 4", "(3 has)", "expected row 1" };
  ExpectMessage(make({ { a, 4 }, { b, 3 } }, 3), CGR_ERROR_STATE, early);
  EXPECT_EQ(rows.Pages(a), (List{ 2, 3 })) << "nothing is set";
  EXPECT_EQ(rows.Pages(b), List{ 10 });
  ASSERT_EQ(rows.DropPages(a, 1, 1), CGR_OK);
  ExpectMessage(make({ { c, 5 }, { b, 3 } }, 3), CGR_ERROR_STATE, early);
  ExpectMessage(make({ { b, 3 }, { a, 3 } }, 3), CGR_ERROR_STATE, { "pages[0] (of rows[0]) is 3" });
  EXPECT_EQ(make({ { a, 3 }, { b, 3 } }, 3), CGR_OK) << "its own, then a shared one: " << cgr_last_message();
  EXPECT_EQ(make({ { a, 4 }, { c, 3 } }, 3), CGR_OK) << "b has it: " << cgr_last_message();
}

// --------------------------------------------------------------------------------------------------------------------- random

enum { kRows = 7, kTokens = 64, kLength = 200 };

// Rows to which the same is done as to others, in one call or in many.
struct Twin {
  Rows rows;
  Pool pool{ rows, kRows, kTokens, 4 };
  uint64_t launched = 0;

  Twin(const std::vector<GroupSpec> &groups, bool ledger) : rows(kRows, kLength, groups, kRows, kTokens, ledger) {}
  static std::vector<char> Bytes(const Memory &memory, size_t bytes) {
    const char *at = static_cast<const char *>(memory.get());
    return std::vector<char>(at, at + bytes);
  }
  void SyncAll() {
    for (int32_t row = 0; row < kRows; row++)
      cgr__members_sync(rows, row);
  }
  cgr_status Step(const Batch &batch) { return pool.Step(rows, batch, ++launched); }
  cgr_status StepOfStanding() {
    cgr__checked_batch checked;
    const cgr_status status = cgr__standing_validate(rows, &rows.batches, 0, &checked);
    launched++;
    if (status == CGR_OK) {
      cgr__batch_layouts_launch(&pool.pool, launched, cgr__members_snapshot(&rows.batches));
      cgr__members_commit(rows, &rows.batches, launched, launched);
    }
    return status;
  }
  // One after the other, as a runtime does it; all of it or nothing.
  cgr_status MakeSingly(const Call &call, uint64_t completed) {
    const cgr__rows kept = rows.rows;
    const cgr__lane_batches kept_batches = rows.batches;
    const std::vector<char> memory = Bytes(rows.memory, rows.bytes);
    const std::vector<char> memory_of_batches = Bytes(rows.memory_of_batches, rows.bytes_of_batches);
    size_t place = 0;
    cgr_status status = CGR_OK;
    for (size_t i = 0; i < call.rows.size() && status == CGR_OK; i++) {
      const int32_t row = call.rows[i], first = call.firsts[i], count = call.has_counts ? call.counts[i] : 1;
      const int32_t *pages = call.pages.data() + place;
      status = cgr__rows_check(rows, "cgr_request_set_pages", row);
      if (status == CGR_OK && call.drops)
        status = cgr__rows_drop_pages(rows, row, call.group, first, count);
      else if (status == CGR_OK && rows.rows.has_ledger)
        status = cgr__ledger_check_pages(rows, row, call.group, first, pages, count, completed);
      if (status == CGR_OK && !call.drops)
        status = cgr__rows_set_pages(rows, row, call.group, first, pages, count);
      place += call.drops || status != CGR_OK ? 0 : static_cast<size_t>(count);
    }
    if (status == CGR_OK)
      return CGR_OK;
    rows.rows = kept;
    rows.batches = kept_batches;
    std::copy(memory.begin(), memory.end(), static_cast<char *>(rows.memory.get()));
    std::copy(memory_of_batches.begin(), memory_of_batches.end(), static_cast<char *>(rows.memory_of_batches.get()));
    return status;
  }
  cgr_status MakeAtOnce(const Call &call, uint64_t completed) {
    cgr__page_edits edits = call.Get();
    cgr_status status = cgr__page_edits_check(rows, &edits);
    if (status != CGR_OK)
      return status;
    const bool checks = rows.rows.has_ledger && !call.drops;
    status = checks ? cgr__ledger_check_edits(rows, &edits, completed) : CGR_OK;
    status == CGR_OK ? cgr__page_edits_apply(rows, &edits) : cgr__page_edits_cancel(rows, &edits);
    return status;
  }
};

struct Twins {
  Twin one, many;
  Random &random;
  uint64_t completed = 0;
  int64_t edits = 0, refused = 0;

  Twins(const std::vector<GroupSpec> &groups, bool ledger, Random &from)
      : one(groups, ledger), many(groups, ledger), random(from) {}
  bool HasLedger() const { return one.rows.rows.has_ledger; }
  template <class Do> cgr_status Both(Do action) {
    const cgr_status status = action(one);
    EXPECT_EQ(action(many), status) << cgr_last_message();
    return status;
  }
  // All that rows know, but for bits of pages that were refused.
  void Compare() {
    one.SyncAll(), many.SyncAll();
    const cgr__rows &a = one.rows.rows, &b = many.rows.rows;
    for (int32_t g = 0; g < a.limits->num_groups; g++) {
      const cgr__page_group &group = b.group[g];
      for (int32_t row = 0; row < kRows; row++)
        for (int32_t page : many.rows.Pages(row, g))
          ASSERT_TRUE(cgr__rows_may_have(&group, row, page));
      std::copy_n(group.page_filter, kRows * group.filter_words, a.group[g].page_filter);
    }
    ASSERT_EQ(std::memcmp(one.rows.memory.get(), many.rows.memory.get(), one.rows.bytes), 0);
    ASSERT_EQ(a.dirty_words, b.dirty_words);
    ASSERT_EQ(List(a.dirty, a.dirty + a.num_dirty), List(b.dirty, b.dirty + b.num_dirty));
    ASSERT_EQ(cgr__changes_pending(&a), cgr__changes_pending(&b));
  }

  int32_t PickPage(int32_t row, int32_t g, const List &also) {
    const List has = one.rows.Pages(row, g);
    for (int tries = 0; tries < 30; tries++) {
      const int32_t page = random.Pick32(2, static_cast<int32_t>(one.rows.rows.group[g].num_pages) - 1);
      if (std::count(has.begin(), has.end(), page) + std::count(also.begin(), also.end(), page) == 0)
        return page;
    }
    return 2;
  }
  void AddSet(Call *call, int32_t row) {
    const cgr__page_group &group = one.rows.rows.group[call->group];
    const cgr__row_pages &has = group.row[row];
    const bool appends = random.OneIn(2) || !call->has_counts;
    const int32_t first = has.first == has.end ? random.Pick32(0, 2) : appends ? has.end : random.Pick32(has.first, has.end);
    const int32_t count = appends ? 1 : random.Pick32(0, 3);
    List pages, moved = one.rows.Pages(row, call->group); // now and then pages change places
    for (int32_t i = 0; i < count; i++) {
      const auto old = static_cast<size_t>(first - has.first + count - 1 - i);
      const bool moves = has.first < has.end && first + count <= has.end && random.OneIn(2);
      pages.push_back(moves ? moved[old] : PickPage(row, call->group, pages));
    }
    call->Add(row, first, pages);
  }
  void AddDrop(Call *call, int32_t row) {
    const cgr__row_pages &has = one.rows.rows.group[call->group].row[row];
    const int32_t count = call->has_counts ? std::min(random.Pick32(0, 2), has.end - has.first) : 1;
    call->rows.push_back(row);
    call->firsts.push_back(random.OneIn(2) ? has.first : has.end - count);
    call->counts.push_back(count);
  }
  Call MakeCall() {
    Call call;
    call.drops = random.OneIn(5);
    call.group = random.Pick32(0, one.rows.rows.limits->num_groups - 1);
    call.has_counts = !random.OneIn(3);
    List rows(kRows);
    std::iota(rows.begin(), rows.end(), 0);
    for (int32_t left = random.Pick32(0, kRows); left > 0; left--) {
      const auto at = static_cast<size_t>(random.Pick32(0, static_cast<int32_t>(rows.size()) - 1));
      const int32_t row = rows[at];
      rows.erase(rows.begin() + static_cast<ptrdiff_t>(at));
      if (one.rows.rows.row[row].open)
        call.drops ? AddDrop(&call, row) : AddSet(&call, row);
    }
    return call;
  }
  // Somewhere, something; it may do no harm.
  void Spoil(Call *call) {
    const auto at = static_cast<size_t>(random.Pick32(0, static_cast<int32_t>(call->rows.size()) - 1));
    const List bad = { -1, 0, 1, kRows, 13, 14, INT32_MAX, INT32_MIN };
    const int32_t value = bad[static_cast<size_t>(random.Pick32(0, static_cast<int32_t>(bad.size()) - 1))];
    switch (random.Pick32(0, 3)) {
    case 0: {
      const bool is_twice = value >= 0 && value < kRows;
      call->rows[at] = is_twice ? -1 : value;
      return;
    }
    case 1:
      call->firsts[at] = value;
      return;
    case 2:
      if (!call->drops)
        call->counts[at] = std::min(call->counts[at], std::max(value, -1)); // no more than there are pages
      return;
    default:
      if (!call->pages.empty())
        call->pages[static_cast<size_t>(random.Pick32(0, static_cast<int32_t>(call->pages.size()) - 1))] = value;
    }
  }
  void Edit() {
    Call call = MakeCall();
    if (!call.rows.empty() && random.OneIn(6))
      Spoil(&call);
    const cgr_status status = one.MakeSingly(call, completed), got = many.MakeAtOnce(call, completed);
    edits += static_cast<int64_t>(call.rows.size());
    refused += status != CGR_OK;
    if (HasLedger()) // which looks at single calls before their pages are checked
      ASSERT_EQ(got == CGR_OK, status == CGR_OK) << cgr_last_message();
    else
      ASSERT_EQ(got, status) << cgr_last_message();
    if (status != CGR_OK || random.OneIn(3))
      Compare();
  }
  void Other() {
    const int32_t row = random.Pick32(0, kRows - 1), tokens = random.Pick32(0, 60), token = 5;
    const bool is_open = one.rows.rows.row[row].open, is_member = one.rows.rows.row[row].place >= 0;
    const auto standing = [&](Twin &t) {
      return is_member ? cgr__standing_remove(t.rows, &t.rows.batches, row)
                       : cgr__standing_add(t.rows, &t.rows.batches, row, 1, &token, 0);
    };
    switch (random.Pick32(0, 6)) {
    case 0:
      if (!is_open)
        Both([](Twin &t) { return t.rows.Open() >= 0 ? CGR_OK : CGR_ERROR_STATE; });
      else if (!is_member && random.OneIn(4))
        Both([&](Twin &t) { return cgr__rows_close(t.rows, row); });
      return;
    case 1:
      if (is_open)
        Both([&](Twin &t) { return cgr__rows_set_length(t.rows, row, tokens); });
      return;
    case 2:
      if (is_open)
        Both(standing);
      return;
    case 3:
      Both([](Twin &t) { return static_cast<cgr_status>(t.rows.Collect(5).empty()); });
      return;
    case 4:
      Both([](Twin &t) { return t.StepOfStanding(); });
      break;
    default: // twice the same is followed
      const Batch batch = is_open ? Batch::Decode({ row }) : Batch::Prefill({ row }, { 3 });
      for (int n = random.Pick32(1, 3); n > 0; n--)
        Both([&](Twin &t) { return t.Step(batch); });
    }
    if (random.OneIn(2))
      completed = one.launched;
  }
};

TEST(PageEdits, AreAsGoodAsSingleCalls) {
  std::map<bool, int64_t> edits, refused;
  GroupSpec full{ 16, 60 }, window{ 16, 40 }, other{ 16, 30 };
  window.layers = { { 20, 0 } };
  other.length_set = 1;
  ForSeeds(120, [&](Random &random) {
    for (bool ledger : { false, true })
      for (const auto &groups : { std::vector<GroupSpec>{ full }, std::vector<GroupSpec>{ full, window, other } }) {
        Twins twins(groups, ledger, random);
        for (int n = 0; n < 600 && !::testing::Test::HasFatalFailure(); n++)
          random.OneIn(3) ? twins.Other() : twins.Edit();
        edits[ledger] += twins.edits;
        refused[ledger] += twins.refused;
      }
  });
  for (bool ledger : { false, true }) {
    EXPECT_GT(edits[ledger], 100000);
    EXPECT_GT(refused[ledger], 2000);
  }
}

} // namespace

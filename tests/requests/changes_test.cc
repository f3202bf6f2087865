// The log of changes: what a step carries, in which portions, and that nothing is lost when a step does not run.
#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <vector>

#include "tests/requests/rig.h"

namespace {

using namespace cgr_test;
using List = std::vector<int32_t>;
using Word = std::tuple<int32_t, int32_t, int32_t>; // kind with group, row, index

const std::vector<GroupSpec> kTwoGroups = { { 16, 1000, 3, 4 }, { 32, 500, 7, 8 } };

// The words of `changes` and their values; no word twice.
std::map<Word, int32_t> Words(const std::vector<cgr__change> &changes) {
  std::map<Word, int32_t> words;
  for (const cgr__change &c : changes)
    EXPECT_TRUE(words.emplace(Word(c.kind, c.row, c.index), c.value).second) << "kind " << c.kind << " index " << c.index;
  return words;
}
Word Page(int32_t row, int32_t index, int32_t group = 0) { return { CGR__CHANGE_PAGE | group << 8, row, index }; }
Word Length(int32_t row) { return { CGR__CHANGE_COMPUTED, row, 0 }; }

TEST(Changes, AnOpenRowSendsItsLength) {
  Rows rows(4, 320, kTwoGroups);
  EXPECT_EQ(cgr__changes_pending(rows), 0);
  int32_t row = rows.Open();
  EXPECT_EQ(cgr__changes_pending(rows), 1);
  EXPECT_EQ(Words(rows.Collect()), (std::map<Word, int32_t>{ { Length(row), 0 } }));
  EXPECT_EQ(cgr__changes_pending(rows), 0);
}

TEST(Changes, PagesAreSentWithTheirGroupAndIndex) {
  Rows rows(4, 320, kTwoGroups);
  rows.Open();
  int32_t row = rows.Open();
  rows.Collect();
  ASSERT_EQ(rows.SetPages(row, 0, { 20, 21, 22 }, 0), CGR_OK);
  ASSERT_EQ(rows.SetPages(row, 0, { 30 }, 1), CGR_OK);
  EXPECT_EQ(cgr__changes_pending(rows), 4);
  EXPECT_EQ(
      Words(rows.Collect()),
      (std::map<Word, int32_t>{ { Page(row, 0), 20 }, { Page(row, 1), 21 }, { Page(row, 2), 22 }, { Page(row, 0, 1), 30 } }));
  ASSERT_EQ(rows.SetPages(row, 3, { 23 }, 0), CGR_OK);
  EXPECT_EQ(Words(rows.Collect()), (std::map<Word, int32_t>{ { Page(row, 3), 23 } })) << "the new one alone";
}

TEST(Changes, AWordThatChangesTwiceIsSentOnceWithItsLastValue) {
  Rows rows(2, 320, kTwoGroups);
  int32_t row = rows.OpenWithPages(2, 20);
  ASSERT_EQ(cgr__rows_set_length(rows, row, 5), CGR_OK);
  ASSERT_EQ(cgr__rows_set_length(rows, row, 9), CGR_OK);
  ASSERT_EQ(rows.SetPages(row, 1, { 40 }, 0), CGR_OK);
  std::map<Word, int32_t> words = Words(rows.Collect());
  EXPECT_EQ(words[Length(row)], 9);
  EXPECT_EQ(words[Page(row, 1)], 40);
  EXPECT_EQ(words.size(), 5u);
}

TEST(Changes, ADroppedPageSendsTheReadTrashPage) {
  Rows rows(2, 320, kTwoGroups);
  int32_t row = rows.OpenWithPages(4, 20);
  rows.Collect();
  ASSERT_EQ(rows.DropPages(row, 0, 1, 0), CGR_OK);
  ASSERT_EQ(rows.DropPages(row, 2, 2, 1), CGR_OK);
  EXPECT_EQ(Words(rows.Collect()),
            (std::map<Word, int32_t>{ { Page(row, 0, 0), 3 }, { Page(row, 2, 1), 7 }, { Page(row, 3, 1), 7 } }));
}

// Between two stretches of changes are words that no row has set: they may travel, as the read-trash page.
TEST(Changes, WhatARowDoesNotHaveIsNeverSentAsAPage) {
  Rows rows(1, 320, kTwoGroups);
  int32_t row = rows.OpenWithPages(10, 20); // an earlier life
  rows.Collect();
  ASSERT_EQ(cgr__rows_close(rows, row), CGR_OK);
  ASSERT_EQ(rows.Open(), row);
  ASSERT_EQ(rows.SetPages(row, 8, { 50 }, 0), CGR_OK);
  ASSERT_EQ(rows.DropPages(row, 8, 1, 0), CGR_OK);
  ASSERT_EQ(rows.SetPages(row, 0, { 60 }, 0), CGR_OK);
  std::map<Word, int32_t> words = Words(rows.Collect());
  EXPECT_EQ(words[Page(row, 0)], 60);
  EXPECT_EQ(words[Page(row, 8)], 3);
  for (const auto &[word, value] : words) {
    if (word != Page(row, 0) && word != Length(row)) {
      EXPECT_EQ(value, 3) << "index " << std::get<2>(word);
    }
  }
}

// A row with windows gives a page back when it gets another: what is between does not travel.
TEST(Changes, OfFrontAndEndAreApart) {
  Rows rows(1, 320, kTwoGroups);
  int32_t row = rows.OpenWithPages(10, 20);
  rows.Collect();
  for (int32_t n = 0; n < 3; n++) {
    ASSERT_EQ(rows.SetPages(row, 10 + n, { 100 + n }, 0), CGR_OK);
    ASSERT_EQ(rows.DropPages(row, n, 1, 0), CGR_OK);
  }
  EXPECT_EQ(cgr__changes_pending(rows), 6);
  std::vector<cgr__change> changes = rows.Collect(4); // a slot ends between them
  EXPECT_EQ(Words(changes), (std::map<Word, int32_t>{ { Page(row, 0), 3 },
                                                      { Page(row, 1), 3 },
                                                      { Page(row, 2), 3 },
                                                      { Page(row, 10), 100 },
                                                      { Page(row, 11), 101 },
                                                      { Page(row, 12), 102 } }));
  EXPECT_EQ(cgr__changes_pending(rows), 0);
  rows.Restore(changes);
  EXPECT_EQ(cgr__changes_pending(rows), 6) << "the step was not launched";
  ASSERT_EQ(rows.SetPages(row, 1, { 60, 61 }, 0), CGR_OK); // the front is there again, and sent once
  std::map<Word, int32_t> words = Words(rows.Collect());
  EXPECT_EQ(words[Page(row, 0)], 3);
  EXPECT_EQ(words[Page(row, 1)], 60);
  EXPECT_EQ(words[Page(row, 2)], 61);
  EXPECT_EQ(words[Page(row, 12)], 102);
}

TEST(Changes, AClosedRowSendsNothing) {
  Rows rows(2, 320, kTwoGroups);
  int32_t a = rows.OpenWithPages(3, 20), b = rows.OpenWithPages(1, 30);
  ASSERT_EQ(cgr__rows_close(rows, a), CGR_OK);
  EXPECT_EQ(cgr__changes_pending(rows), 3);
  for (const auto &[word, value] : Words(rows.Collect()))
    EXPECT_EQ(std::get<1>(word), b);
  ASSERT_EQ(cgr__rows_close(rows, b), CGR_OK);
  EXPECT_EQ(rows.Collect().size(), 0u);
}

TEST(Changes, DroppedOnesAreForgottenInEveryGroup) {
  Rows rows(2, 320, kTwoGroups);
  int32_t a = rows.OpenWithPages(3, 20), b = rows.OpenWithPages(1, 30);
  cgr__changes_drop(rows, a);
  EXPECT_EQ(cgr__changes_pending(rows), 3);
  for (const auto &[word, value] : Words(rows.Collect()))
    EXPECT_EQ(std::get<1>(word), b);
  ASSERT_EQ(cgr__rows_set_length(rows, a, 2), CGR_OK);
  EXPECT_EQ(Words(rows.Collect()), (std::map<Word, int32_t>{ { Length(a), 2 } })) << "it is heard again";
}

TEST(Changes, AnEnginesTableSendsLengthsAlone) {
  GroupSpec engine;
  engine.engine_table = true;
  Rows rows(2, 320, { engine });
  int32_t row = rows.Open();
  ASSERT_EQ(cgr__rows_set_length(rows, row, 77), CGR_OK);
  EXPECT_EQ(Words(rows.Collect()), (std::map<Word, int32_t>{ { Length(row), 77 } }));
  cgr__changes_mark_all(rows);
  EXPECT_EQ(Words(rows.Collect()), (std::map<Word, int32_t>{ { Length(row), 77 } }));
}

// ---------------------------------------------------------------------------------------------------------------- portions

TEST(ChangesCollect, FillsEverySlotAndLosesNothing) {
  for (int32_t capacity = 1; capacity <= 40; capacity++) {
    Rows rows(3, 320, kTwoGroups);
    for (int32_t i = 0; i < 3; i++)
      rows.OpenWithPages(4 + i, 20);
    int64_t pending = cgr__changes_pending(rows);
    ASSERT_EQ(pending, 3 + 2 * (4 + 5 + 6));
    std::set<Word> seen;
    std::vector<cgr__change> slot(static_cast<size_t>(capacity));
    while (pending > 0) {
      int32_t count = cgr__changes_collect(rows, slot.data(), capacity);
      ASSERT_EQ(count, std::min<int64_t>(pending, capacity));
      pending -= count;
      ASSERT_EQ(cgr__changes_pending(rows), pending);
      for (int32_t i = 0; i < count; i++)
        ASSERT_TRUE(seen.insert(Word(slot[i].kind, slot[i].row, slot[i].index)).second);
    }
    EXPECT_EQ(seen.size(), 33u);
    EXPECT_EQ(cgr__changes_collect(rows, slot.data(), capacity), 0);
  }
}

TEST(ChangesCollect, NoRoomTakesNothing) {
  Rows rows(2, 320, kTwoGroups);
  rows.OpenWithPages(2, 20);
  cgr__change none;
  EXPECT_EQ(cgr__changes_collect(rows, &none, 0), 0);
  EXPECT_EQ(cgr__changes_pending(rows), 5);
}

// ----------------------------------------------------------------------------------------------------------------- restore

TEST(ChangesRestore, GivesEveryWordBack) {
  for (int32_t capacity : { 1, 2, 5, 100 }) {
    Rows rows(3, 320, kTwoGroups);
    int32_t row = rows.OpenWithPages(4, 20);
    rows.OpenWithPages(2, 20);
    std::vector<cgr__change> taken = rows.Collect(capacity);
    ASSERT_EQ(cgr__rows_set_length(rows, row, 7), CGR_OK); // in the meantime
    ASSERT_EQ(rows.SetPages(row, 3, { 90 }, 1), CGR_OK);
    rows.Restore(taken);
    std::map<Word, int32_t> expected = Words(taken);
    expected[Length(row)] = 7;
    expected[Page(row, 3, 1)] = 90;
    EXPECT_EQ(Words(rows.Collect(capacity)), expected);
  }
}

TEST(ChangesRestore, APartGivesThatPartBack) {
  Rows rows(1, 320, kTwoGroups);
  int32_t row = rows.OpenWithPages(6, 20);
  std::vector<cgr__change> taken = rows.Collect();
  std::vector<cgr__change> lost;
  for (const cgr__change &c : taken)
    if (c.kind == CGR__CHANGE_PAGE && (c.index == 1 || c.index == 4))
      lost.push_back(c);
  ASSERT_EQ(lost.size(), 2u);
  rows.Restore(lost);
  std::map<Word, int32_t> words = Words(rows.Collect());
  EXPECT_EQ(words[Page(row, 1)], 21);
  EXPECT_EQ(words[Page(row, 4)], 24);
  for (const auto &[word, value] : words)
    EXPECT_EQ(value, 20 + std::get<2>(word)) << "what travels besides has its right value";
}

TEST(ChangesRestore, OfARowThatWasClosedIsNothing) {
  Rows rows(2, 320, kTwoGroups);
  int32_t row = rows.OpenWithPages(4, 20);
  std::vector<cgr__change> taken = rows.Collect();
  ASSERT_EQ(cgr__rows_close(rows, row), CGR_OK);
  rows.Restore(taken);
  EXPECT_EQ(cgr__changes_pending(rows), 0);
}

TEST(ChangesRestore, OfARowThatLivesAgainSendsWhatItIsNow) {
  Rows rows(1, 320, kTwoGroups);
  int32_t row = rows.OpenWithPages(4, 20);
  std::vector<cgr__change> taken = rows.Collect();
  ASSERT_EQ(cgr__rows_close(rows, row), CGR_OK);
  ASSERT_EQ(rows.OpenWithPages(2, 60), row);
  rows.Restore(taken);
  std::map<Word, int32_t> words = Words(rows.Collect());
  for (int32_t g = 0; g < 2; g++) {
    EXPECT_EQ(words[Page(row, 0, g)], 60);
    EXPECT_EQ(words[Page(row, 1, g)], 61);
    for (int32_t i : { 2, 3 })
      EXPECT_EQ(words[Page(row, i, g)], kTwoGroups[static_cast<size_t>(g)].read_trash) << "page " << i << " of its earlier life";
  }
  EXPECT_EQ(words[Length(row)], 0);
}

// -------------------------------------------------------------------------------------------------------------------- loss

TEST(ChangesMarkAll, SendsEverythingOfEveryOpenRow) {
  Rows rows(4, 320, kTwoGroups);
  Pool pool(rows, 4, 100, 2);
  int32_t a = rows.OpenWithPages(3, 20), b = rows.OpenWithPages(2, 30), c = rows.OpenWithPages(1, 40);
  ASSERT_EQ(pool.Step(rows, Batch::Prefill({ a, b }, { 7, 9 }), 1), CGR_OK);
  ASSERT_EQ(pool.Step(rows, Batch::Decode({ a, b }), 2), CGR_OK); // twice: a batch that repeats
  ASSERT_EQ(pool.Step(rows, Batch::Decode({ a, b }), 3), CGR_OK);
  rows.Collect();
  ASSERT_EQ(cgr__rows_close(rows, c), CGR_OK);
  cgr__changes_mark_all(rows);
  std::map<Word, int32_t> expected = { { Length(a), 9 }, { Length(b), 11 } };
  for (int32_t g = 0; g < 2; g++) {
    for (int32_t i = 0; i < 3; i++)
      expected[Page(a, i, g)] = 20 + i;
    for (int32_t i = 0; i < 2; i++)
      expected[Page(b, i, g)] = 30 + i;
  }
  EXPECT_EQ(Words(rows.Collect()), expected);
}

// The step that was lost may have been the one that took pages away.
TEST(ChangesMarkAll, SendsTheReadTrashPageWherePagesWereTakenAway) {
  Rows rows(1, 320, kTwoGroups);
  int32_t row = rows.OpenWithPages(6, 20);
  rows.Collect();
  ASSERT_EQ(rows.DropPages(row, 0, 2, 0), CGR_OK); // front
  ASSERT_EQ(rows.DropPages(row, 4, 2, 1), CGR_OK); // end
  rows.Collect();                                  // in a step that the device lost
  cgr__changes_mark_all(rows);
  std::map<Word, int32_t> words = Words(rows.Collect());
  for (int32_t i = 0; i < 6; i++) {
    EXPECT_EQ(words[Page(row, i, 0)], i < 2 ? 3 : 20 + i) << i;
    EXPECT_EQ(words[Page(row, i, 1)], i < 4 ? 20 + i : 7) << i;
  }
  ASSERT_EQ(rows.DropPages(row, 2, 4, 0), CGR_OK); // and all of them
  rows.Collect();
  cgr__changes_mark_all(rows);
  words = Words(rows.Collect());
  for (int32_t i = 0; i < 6; i++)
    EXPECT_EQ(words[Page(row, i, 0)], 3) << i;
}

// A length is what the device must have when the step that carries it begins: it counts all launched steps, not the prepared.
TEST(ChangesLength, CountsTheLaunchedStepsOfARepeatedBatch) {
  Rows rows(1, 320, kTwoGroups);
  Pool pool(rows, 1, 100, 4);
  int32_t row = rows.OpenWithPages(5, 20);
  ASSERT_EQ(pool.Step(rows, Batch::Prefill({ row }, { 10 }), 1), CGR_OK);
  uint64_t seq = 1;
  for (int32_t steps = 1; steps <= 5; steps++) {
    for (int32_t i = 0; i < steps; i++)
      ASSERT_EQ(pool.Step(rows, Batch::Decode({ row }), ++seq), CGR_OK);
    cgr__changes_mark_length(rows, row);
    cgr__checked_batch prepared;
    ASSERT_EQ(pool.Validate(rows, Batch::Decode({ row }), &prepared), CGR_OK);
    EXPECT_EQ(Words(rows.Collect())[Length(row)], 10 + static_cast<int32_t>(seq) - 1);
  }
}

} // namespace

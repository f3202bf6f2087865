// Rows: opened, closed, and given a length.
#include <set>
#include <string>
#include <vector>

#include "tests/requests/rig.h"

namespace {

using namespace cgr_test;

TEST(RowsOpen, GivesEveryRowOnceAndThenRefuses) {
  for (int32_t max_rows : { 1, 2, 7, 100 }) {
    Rows rows(max_rows, 64, { {} });
    std::set<int32_t> given;
    for (int32_t i = 0; i < max_rows; i++) {
      int32_t row = rows.Open();
      EXPECT_GE(row, 0);
      EXPECT_LT(row, max_rows);
      EXPECT_TRUE(given.insert(row).second);
    }
    int32_t row = -7;
    ExpectMessage(cgr__rows_open(rows, 1, &row), CGR_ERROR_TOO_MANY_REQUESTS,
                  { "cgr_request_open", std::to_string(max_rows), "max_rows" });
    EXPECT_EQ(row, -7);
    int32_t closed = max_rows / 2;
    EXPECT_EQ(cgr__rows_close(rows, closed), CGR_OK);
    EXPECT_EQ(rows.Open(), closed) << "the only one that is closed";
  }
}

TEST(RowsOpen, ARowBeginsEmptyWhateverItWas) {
  Rows rows(1, 64, { {} });
  Pool pool(rows, 1, 64, 2);
  uint64_t last_seq = 0;
  for (uint64_t tag : { uint64_t{ 5 }, UINT64_MAX, uint64_t{ 0 } }) {
    int32_t row = rows.Open(tag);
    EXPECT_TRUE(rows.rows.row[row].open);
    EXPECT_EQ(rows.rows.row[row].tag, tag);
    EXPECT_EQ(rows.Computed(row), 0);
    EXPECT_FALSE(rows.rows.row[row].has_token);
    EXPECT_EQ(rows.rows.row[row].last_seq, last_seq) << "its last owner's pages may be in use until then";
    EXPECT_EQ(rows.rows.row[row].capacity, 0);
    EXPECT_EQ(rows.Pages(row), std::vector<int32_t>());
    ASSERT_EQ(rows.SetPages(row, 0, { 5, 6 }), CGR_OK);
    ASSERT_EQ(pool.Step(rows, Batch::Prefill({ row }, { 3 }), 9), CGR_OK) << cgr_last_message();
    ASSERT_EQ(cgr__rows_close(rows, row), CGR_OK);
    last_seq = 9;
    EXPECT_EQ(rows.rows.row[row].last_seq, last_seq) << "asked for when the row's pages go to others";
  }
}

TEST(RowsCheck, RowsOutOfRangeAndClosedOnesAreRefused) {
  Rows rows(8, 64, { {} });
  int32_t row = rows.Open();
  EXPECT_EQ(cgr__rows_check(rows, "cgr_f", row), CGR_OK);
  for (int32_t bad : { -1, 8, INT32_MIN, INT32_MAX })
    ExpectMessage(cgr__rows_check(rows, "cgr_f", bad), CGR_ERROR_INVALID_ARGUMENT,
                  { "cgr_f", "row is " + std::to_string(bad), "0 .. 7" });
  for (int32_t closed = 0; closed < 8; closed++)
    if (closed != row)
      ExpectMessage(cgr__rows_check(rows, "cgr_f", closed), CGR_ERROR_ROW_CLOSED, { "cgr_f", "row " + std::to_string(closed) });
  EXPECT_EQ(cgr__rows_close(rows, row), CGR_OK);
  EXPECT_EQ(cgr__rows_check(rows, "cgr_f", row), CGR_ERROR_ROW_CLOSED);
}

TEST(RowsCheck, GroupsOutOfRangeAreRefused) {
  for (int32_t groups : { 1, 2, 4 }) {
    Rows rows(2, 64, std::vector<GroupSpec>(static_cast<size_t>(groups)));
    for (int32_t g = 0; g < groups; g++)
      EXPECT_EQ(cgr__rows_check_group(rows, "cgr_f", g), CGR_OK);
    for (int32_t bad : { -1, groups, INT32_MIN, INT32_MAX })
      ExpectMessage(cgr__rows_check_group(rows, "cgr_f", bad), CGR_ERROR_INVALID_ARGUMENT,
                    { "cgr_f", "group is " + std::to_string(bad), "0 .. " + std::to_string(groups - 1) });
  }
}

// ------------------------------------------------------------------------------------------------------------------ length

TEST(RowsSetLength, ReachesUpToTheRowsPages) {
  Rows rows(1, 1000, { {} });
  int32_t row = rows.OpenWithPages(3, 10);
  for (int32_t length : { 48, 0, 1, 47, 16 }) {
    EXPECT_EQ(cgr__rows_set_length(rows, row, length), CGR_OK) << cgr_last_message();
    EXPECT_EQ(rows.Computed(row), length);
  }
  for (int32_t length : { 49, 64, 1000 })
    ExpectMessage(cgr__rows_set_length(rows, row, length), CGR_ERROR_PAGES_MISSING,
                  { "cgr_request_set_length", "num_tokens is " + std::to_string(length), "48" });
  EXPECT_EQ(rows.Computed(row), 16);
}

TEST(RowsSetLength, NegativeAndTooLongAreRefused) {
  Rows rows(1, 100, { {} });
  int32_t row = rows.OpenWithPages(7, 10); // 112 tokens of pages, 100 of max_seq_len
  EXPECT_EQ(cgr__rows_set_length(rows, row, 100), CGR_OK);
  for (int32_t length : { 101, 112, INT32_MAX })
    ExpectMessage(cgr__rows_set_length(rows, row, length), CGR_ERROR_SEQUENCE_TOO_LONG,
                  { "cgr_request_set_length", "num_tokens is " + std::to_string(length), "100", "max_seq_len" });
  for (int32_t length : { -1, INT32_MIN })
    ExpectMessage(cgr__rows_set_length(rows, row, length), CGR_ERROR_INVALID_ARGUMENT,
                  { "cgr_request_set_length", "num_tokens is " + std::to_string(length), "at least 0" });
  EXPECT_EQ(rows.Computed(row), 100);
}

TEST(RowsSetLength, TheGroupWithTheFewestTokensDecides) {
  Rows rows(1, 1000, { { 16, 1000 }, { 64, 1000 }, { 32, 1000 } });
  int32_t row = rows.Open();
  EXPECT_EQ(rows.SetPages(row, 0, { 2, 3, 4 }, 0), CGR_OK); // 48
  EXPECT_EQ(cgr__rows_set_length(rows, row, 1), CGR_ERROR_PAGES_MISSING);
  EXPECT_EQ(rows.SetPages(row, 0, { 2 }, 1), CGR_OK); // 64
  EXPECT_EQ(cgr__rows_set_length(rows, row, 1), CGR_ERROR_PAGES_MISSING);
  EXPECT_EQ(rows.SetPages(row, 0, { 2 }, 2), CGR_OK); // 32
  EXPECT_EQ(cgr__rows_set_length(rows, row, 32), CGR_OK);
  EXPECT_EQ(cgr__rows_set_length(rows, row, 33), CGR_ERROR_PAGES_MISSING);
  EXPECT_EQ(rows.SetPages(row, 1, { 3 }, 2), CGR_OK); // 64
  EXPECT_EQ(cgr__rows_set_length(rows, row, 48), CGR_OK);
  EXPECT_EQ(cgr__rows_set_length(rows, row, 49), CGR_ERROR_PAGES_MISSING);
}

TEST(RowsSetLength, AnEnginesTableIsNotCounted) {
  GroupSpec engine;
  engine.engine_table = true;
  Rows alone(1, 77, { engine }), two(1, 77, { engine, {} });
  int32_t row = alone.Open();
  EXPECT_EQ(cgr__rows_set_length(alone, row, 77), CGR_OK);
  row = two.Open();
  EXPECT_EQ(cgr__rows_set_length(two, row, 1), CGR_ERROR_PAGES_MISSING);
  EXPECT_EQ(two.SetPages(row, 0, { 2, 3 }, 1), CGR_OK);
  EXPECT_EQ(cgr__rows_set_length(two, row, 32), CGR_OK);
  EXPECT_EQ(cgr__rows_set_length(two, row, 33), CGR_ERROR_PAGES_MISSING);
}

TEST(RowsSetLength, TheRowHasNoLastTokenAfterwards) {
  Rows rows(1, 1000, { {} });
  Pool pool(rows, 1, 100, 2);
  int32_t row = rows.OpenWithPages(3, 10);
  ASSERT_EQ(pool.Step(rows, Batch::Prefill({ row }, { 5 }), 1), CGR_OK);
  EXPECT_TRUE(rows.rows.row[row].has_token);
  EXPECT_EQ(cgr__rows_set_length(rows, row, 99), CGR_ERROR_PAGES_MISSING);
  EXPECT_TRUE(rows.rows.row[row].has_token) << "a refused call changes nothing";
  ASSERT_EQ(cgr__rows_set_length(rows, row, 5), CGR_OK);
  EXPECT_FALSE(rows.rows.row[row].has_token);
  EXPECT_EQ(pool.Step(rows, Batch::Decode({ row }), 2), CGR_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(pool.Step(rows, Batch::Decode({ row }).WithIds(), 2), CGR_OK);
  EXPECT_EQ(pool.Step(rows, Batch::Decode({ row }), 3), CGR_OK);
}

} // namespace

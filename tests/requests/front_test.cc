// Pages that windows have passed may go: a step is good exactly while the row has the pages of all tokens that it sees.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "requests/standing.h"
#include "tests/requests/rig.h"

namespace {

using namespace cgr_test;
using List = std::vector<int32_t>;

const int32_t kPage = 16, kPages = 12;

// A row with `computed` tokens in 12 pages, in a standing batch too when asked.
struct OneRow {
  Rows rows;
  Pool pool{ rows, 1, 300, 3 };
  int32_t row;
  uint64_t launched = 0;

  bool standing;

  OneRow(const Layers &layers, int32_t computed, bool in_standing = false)
      : rows(1, kPage * kPages, { { kPage, 1000, 0, 1, false, layers } }, 1, 300), row(rows.OpenWithPages(kPages, 2)),
        standing(in_standing) {
    EXPECT_EQ(cgr__rows_set_length(rows, row, computed), CGR_OK) << cgr_last_message();
    const int32_t token = 5;
    if (standing) {
      EXPECT_EQ(cgr__standing_add(rows, &rows.batches, row, 1, &token, 0), CGR_OK) << cgr_last_message();
    }
  }
  // One token more; `ids`: the batch gives it, if it is not the standing one.
  cgr_status Step(bool ids) {
    if (standing)
      return StepStanding();
    Batch batch = Batch::Decode({ row });
    cgr_status status = pool.Step(rows, ids ? batch.WithIds() : batch, launched + 1);
    launched += status == CGR_OK;
    return status;
  }
  cgr_status StepStanding() {
    cgr__checked_batch checked;
    cgr_status status = cgr__standing_validate(rows, &rows.batches, 0, &checked);
    if (status != CGR_OK)
      return status;
    cgr__batch_layouts_launch(&pool.pool, ++launched, cgr__members_snapshot(&rows.batches));
    cgr__members_commit(rows, &rows.batches, launched, launched);
    return CGR_OK;
  }
};

const std::vector<Layers> kKinds = { { { 1, 0 } },
                                     { { 15, 0 } },
                                     { { 16, 0 } },
                                     { { 17, 0 } },
                                     { { 50, 0 } },
                                     { { 0, 16 } },
                                     { { 0, 40 } },
                                     { { 0, 64 } },
                                     { { 0, 1 } },
                                     { { 20, 0 }, { 33, 0 } },
                                     { { 9, 0 }, { 0, 48 } },
                                     { { 0, 32 }, { 0, 48 } } };

std::string Name(const Layers &layers) {
  std::string text = "layers";
  for (const auto &[window, chunk] : layers)
    text += " " + std::to_string(window) + "/" + std::to_string(chunk);
  return text;
}

// At every length and for every number of pages given back: a batch given whole, and the standing batch.
TEST(Front, IsNeededFromTheFirstTokenSeenOn) {
  for (const Layers &layers : kKinds)
    for (int32_t computed = 0; computed < kPage * kPages; computed += computed % 16 == 2 ? 11 : 1)
      for (int32_t given = 1; given < kPages && given * kPage <= computed + kPage; given++)
        for (bool standing : { false, true }) {
          SCOPED_TRACE(Name(layers) + ", " + std::to_string(given) + " pages of " + std::to_string(computed) + " tokens");
          const int32_t needed = FirstSeen(layers, computed) / kPage;
          OneRow r(layers, computed, standing);
          ASSERT_EQ(r.rows.DropPages(r.row, 0, given), CGR_OK);
          cgr_status status = r.Step(true);
          if (given <= needed) {
            ASSERT_EQ(status, CGR_OK) << cgr_last_message();
            continue;
          }
          ExpectMessage(status, CGR_ERROR_PAGES_MISSING,
                        { "row 0 would hold " + std::to_string(computed + 1), "of group 0",
                          "pages " + std::to_string(given) + " .. 11", "from page " + std::to_string(needed) + " on" });
        }
}

// A chunk sees what its first token sees, and has its own pages.
TEST(Front, OfAStepOfManyTokens) {
  OneRow r({ { 40, 0 } }, 100); // sees from token 61 on
  ASSERT_EQ(r.rows.DropPages(r.row, 0, 3), CGR_OK);
  ASSERT_EQ(r.pool.Step(r.rows, Batch::Prefill({ r.row }, { 92 }), 1), CGR_OK) << cgr_last_message();
  EXPECT_EQ(r.rows.Computed(r.row), 192);
}

// Repeated steps while pages are given back, each as soon as it may be: this causes no new look at the batch.
TEST(Front, GivenBackInTimeLeavesARepeatedBatchAlone) {
  for (bool standing : { false, true }) {
    OneRow r({ { 20, 0 } }, 0, standing);
    int32_t given = 0, looks = 0;
    for (int32_t computed = 0; computed < kPage * kPages; computed++) {
      const Batch batch = Batch::Decode({ r.row });
      const cgr_batch plain = batch.Get();
      cgr__checked_batch checked;
      for (; (given + 1) * kPage <= FirstSeen({ { 20, 0 } }, computed); given++)
        ASSERT_EQ(r.rows.DropPages(r.row, given, 1), CGR_OK);
      looks += !standing && !cgr__follow_repeats(&r.rows.batches, &plain, &checked);
      ASSERT_EQ(r.Step(computed == 0), CGR_OK) << computed << ": " << cgr_last_message();
    }
    EXPECT_EQ(given, 10);
    EXPECT_LE(looks, 2) << "the first steps, no more";
  }
}

// One page too many is given back in the middle of a batch that repeats, however the row's steps are counted.
TEST(Front, GivenBackTooEarlyIsSeenAtOnce) {
  for (int32_t steps = 0; steps < 60; steps++)
    for (bool standing : { false, true }) {
      SCOPED_TRACE(std::to_string(steps) + (standing ? " standing" : " whole"));
      OneRow r({ { 20, 0 } }, 60, standing);
      for (int32_t n = 0; n < steps; n++)
        ASSERT_EQ(r.Step(n == 0), CGR_OK) << cgr_last_message();
      const int32_t needed = FirstSeen({ { 20, 0 } }, 60 + steps) / kPage;
      ASSERT_EQ(r.rows.DropPages(r.row, 0, needed + 1), CGR_OK);
      ExpectMessage(r.Step(steps == 0), CGR_ERROR_PAGES_MISSING, { "row 0", "from page " + std::to_string(needed) + " on" });
      ASSERT_EQ(r.rows.SetPages(r.row, needed, { 900 }), CGR_OK);
      EXPECT_EQ(r.Step(steps == 0), CGR_OK) << cgr_last_message();
    }
}

// A request without new tokens sees none: its row may have given all of its pages back.
TEST(Front, IsNothingToNoTokens) {
  OneRow r({ { 0, 64 } }, 64);
  ASSERT_EQ(r.rows.DropPages(r.row, 0, kPages), CGR_OK);
  EXPECT_EQ(r.pool.Step(r.rows, Batch::Prefill({ r.row }, { 0 }), ++r.launched), CGR_OK) << cgr_last_message();
  ExpectMessage(r.pool.Step(r.rows, Batch::Prefill({ r.row }, { 1 }), r.launched + 1), CGR_ERROR_PAGES_MISSING, { "row 0" });
}

// Back to a length at which the windows reached further.
TEST(Front, IsNeededAgainAtAShorterLength) {
  OneRow r({ { 20, 0 } }, 100);
  ASSERT_EQ(r.rows.DropPages(r.row, 0, 5), CGR_OK); // from token 80 on
  for (int32_t length : { 1, 50, 98 })
    ExpectMessage(cgr__rows_set_length(r.rows, r.row, length), CGR_ERROR_PAGES_MISSING,
                  { "num_tokens is " + std::to_string(length), "row 0", "pages 5 .. 11 of group 0",
                    "from page " + std::to_string(std::max(length - 19, 0) / kPage) + " on" });
  EXPECT_EQ(r.rows.Computed(r.row), 100);
  EXPECT_EQ(cgr__rows_set_length(r.rows, r.row, 99), CGR_OK) << cgr_last_message();
  EXPECT_EQ(r.Step(true), CGR_OK) << cgr_last_message();
  EXPECT_EQ(cgr__rows_set_length(r.rows, r.row, 0), CGR_OK) << "nothing is in the cache then";
  ExpectMessage(r.Step(true), CGR_ERROR_PAGES_MISSING, { "1 token and", "pages 5 .. 11", "from page 0 on" });
  ASSERT_EQ(r.rows.SetPages(r.row, 1, { 901, 902, 903, 904 }), CGR_OK);
  ASSERT_EQ(cgr__rows_set_length(r.rows, r.row, 35), CGR_OK) << cgr_last_message();
  EXPECT_EQ(r.Step(true), CGR_OK) << cgr_last_message();
}

// A prefix that was computed elsewhere: the row never has its first pages. What an earlier request had there goes.
TEST(Front, MayNeverHaveBeenThere) {
  Rows rows(1, kPage * kPages, { { kPage, 1000, 0, 1, false, { { 20, 0 } } } });
  int32_t row = rows.OpenWithPages(kPages, 2);
  rows.Collect();
  ASSERT_EQ(cgr__rows_close(rows, row), CGR_OK);
  ASSERT_EQ(rows.Open(), row);
  ASSERT_EQ(rows.SetPages(row, 4, { 50, 51, 52 }), CGR_OK);
  ExpectMessage(cgr__rows_set_length(rows, row, 82), CGR_ERROR_PAGES_MISSING, { "num_tokens is 82", "from page 3 on" });
  ASSERT_EQ(cgr__rows_set_length(rows, row, 83), CGR_OK) << cgr_last_message();
  Pool pool(rows, 1, 100, 2);
  EXPECT_EQ(pool.Step(rows, Batch::Prefill({ row }, { 3 }), 1), CGR_OK) << cgr_last_message();
  List table(kPages, -1);
  for (const cgr__change &c : rows.Collect())
    if (c.kind != CGR__CHANGE_COMPUTED)
      table[size_t(c.index)] = c.value;
  EXPECT_EQ(List(table.begin(), table.begin() + 7), (List{ 0, 0, 0, 0, 50, 51, 52 }));
}

// Each group by its own layers.
TEST(Front, OfGroups) {
  const GroupSpec window = { 16, 1000, 0, 1, false, { { 20, 0 } } }, chunk = { 32, 1000, 0, 1, false, { { 0, 64 } } };
  Rows rows(1, 192, { {}, window, chunk });
  int32_t row = rows.OpenWithPages(6, 2);
  ASSERT_EQ(rows.SetPages(row, 6, { 20, 21, 22, 23, 24, 25 }, 0), CGR_OK);
  ASSERT_EQ(rows.SetPages(row, 6, { 20, 21, 22, 23, 24, 25 }, 1), CGR_OK);
  ASSERT_EQ(cgr__rows_set_length(rows, row, 130), CGR_OK);
  Pool pool(rows, 1, 100, 2);
  auto refused = [&](int32_t group, int32_t page) {
    ExpectMessage(pool.Step(rows, Batch::Prefill({ row }, { 1 }), 1), CGR_ERROR_PAGES_MISSING,
                  { "of group " + std::to_string(group), "from page " + std::to_string(page) + " on" });
  };
  ASSERT_EQ(rows.DropPages(row, 0, 6, 1), CGR_OK); // 111 is the first token that the windows see
  ASSERT_EQ(rows.DropPages(row, 0, 4, 2), CGR_OK); // 128 of the chunk
  ASSERT_EQ(pool.Step(rows, Batch::Prefill({ row }, { 1 }), 1), CGR_OK) << cgr_last_message();
  ASSERT_EQ(rows.DropPages(row, 6, 2, 1), CGR_OK); // now from 112 on, which begins page 7
  refused(1, 7);
  ASSERT_EQ(rows.SetPages(row, 7, { 60 }, 1), CGR_OK);
  ASSERT_EQ(rows.DropPages(row, 4, 1, 2), CGR_OK);
  refused(2, 4);
  ASSERT_EQ(rows.SetPages(row, 4, { 60 }, 2), CGR_OK);
  ASSERT_EQ(rows.DropPages(row, 0, 1, 0), CGR_OK);
  refused(0, 0);
}

} // namespace

// Rows with windows and chunks while guesses have no result: what the next step sees begins at the lower bound of their length,
// and what it writes ends after the upper one. Every page that neither of them needs may be missing.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "requests/guesses.h"
#include "requests/standing.h"
#include "tests/requests/rig.h"

namespace {

using namespace cgr_test;

enum { kPage = 16, kPages = 8, kGuesses = 20, kTokens = 64, kDepth = 4 };

// A row with `computed` tokens and eight pages.
struct OneRow {
  Rows rows;
  Pool pool{ rows, 1, kTokens, kDepth };
  const bool standing;
  int32_t row;
  uint64_t launched = 0;
  cgr__checked_batch checked;

  OneRow(const Layers &layers, int32_t computed, bool in_standing)
      : rows(1, kPage * kPages, { { kPage, 1000, 0, 1, false, layers } }, 1, kTokens, false, kGuesses, kDepth),
        standing(in_standing), row(rows.OpenWithPages(kPages, 2)) {
    EXPECT_EQ(cgr__rows_set_length(rows, row, computed), CGR_OK) << cgr_last_message();
  }
  int32_t Bound(bool upper) {
    const int32_t computed = rows.Computed(row);
    return upper ? computed : cgr__row_least_computed(&rows.rows.row[row]);
  }
  // A step of so many tokens, the last of them guesses.
  cgr_status Validate(int32_t query_len, int32_t guesses) {
    const std::vector<int32_t> tokens(size_t(query_len), 5);
    if (!standing)
      return pool.Validate(rows, Batch::Prefill({ row }, { query_len }).WithFlags({ CGR_REQUEST_DRAFTS(guesses) }), &checked);
    auto *edit = rows.rows.row[row].place >= 0 ? cgr__standing_update : cgr__standing_add;
    EXPECT_EQ(edit(rows, &rows.batches, row, query_len, tokens.data(), CGR_REQUEST_DRAFTS(guesses)), CGR_OK)
        << cgr_last_message();
    return ValidateStanding();
  }
  cgr_status ValidateStanding() { return cgr__standing_validate(rows, &rows.batches, 0, &checked); }
  void Launch() {
    ++launched;
    if (standing) {
      cgr__batch_layouts_launch(&pool.pool, launched, cgr__members_snapshot(&rows.batches));
      cgr__members_commit(rows, &rows.batches, launched, launched);
    } else {
      pool.Prepare(&checked);
      pool.Launch(rows, &checked, launched);
    }
  }
  void Take(int32_t accepted) {
    const int32_t num_tokens = 1 + accepted;
    cgr__guesses_take(rows, launched, &num_tokens, 1);
  }
  // Whether a step of so many tokens must be good.
  bool MayStep(const Layers &layers, int32_t query_len) {
    const cgr__row_pages &has = rows.rows.group[0].row[row];
    return FirstSeen(layers, Bound(false)) / kPage >= has.first && Bound(true) + query_len <= has.end * kPage;
  }
};

const std::vector<Layers> kKinds = { { { 20, 0 } }, { { 1, 0 } }, { { 0, 32 } }, { { 0, 24 } }, { { 40, 0 }, { 0, 16 } },
                                     { { 33, 0 } } };

// A step of guesses, and some of the front pages given back: what the next one needs, before the result and after it.
TEST(GuessFront, IsSeenFromTheLowerBound) {
  int64_t before = 0, after = 0, differ = 0;
  for (const Layers &layers : kKinds)
    for (bool standing : { false, true })
      for (int32_t computed = 0; computed < 70; computed += 3)
        for (int32_t guesses : { 1, 7, 20 })
          for (int32_t drop = 0; drop < 5; drop++)
            for (int32_t accepted : { 0, guesses }) {
              OneRow r(layers, computed, standing);
              ASSERT_EQ(r.Validate(1 + guesses, guesses), CGR_OK) << cgr_last_message();
              r.Launch();
              ASSERT_EQ(r.Bound(false), computed + 1);
              ASSERT_EQ(r.Bound(true), computed + 1 + guesses);
              ASSERT_EQ(r.rows.DropPages(r.row, 0, drop), CGR_OK) << cgr_last_message();
              SCOPED_TRACE(testing::Message()
                           << "window " << layers[0].first << " chunk " << layers[0].second << " standing " << standing
                           << " computed " << computed << " guesses " << guesses << " drop " << drop);
              const bool may = r.MayStep(layers, 2);
              ASSERT_EQ(r.Validate(2, 1), may ? CGR_OK : CGR_ERROR_PAGES_MISSING) << cgr_last_message();
              before += may;
              r.Take(accepted);
              const bool may_then = r.MayStep(layers, 2);
              ASSERT_EQ(r.Validate(2, 1), may_then ? CGR_OK : CGR_ERROR_PAGES_MISSING) << cgr_last_message();
              after += may_then;
              differ += may != may_then;
            }
  EXPECT_GT(before, 1000);
  EXPECT_GT(after, before) << "an accepted guess moves the window on";
  EXPECT_EQ(differ, after - before) << "a page that was not needed is not needed later";
}

// Members that decode by themselves are looked at when the schedule says so: not before the result of an earlier step with
// guesses is there, if the lower bound still sees a page that is gone.
TEST(GuessFront, OfMembersThatDecodeOn) {
  int64_t refused = 0, steps = 0;
  for (const Layers &layers : kKinds)
    for (int32_t computed = 0; computed < 60; computed++)
      for (int32_t drop = 0; drop < 5; drop++)
        for (int32_t take_at = 0; take_at < 4; take_at++) {
          OneRow r(layers, computed, true);
          ASSERT_EQ(r.Validate(9, 8), CGR_OK) << cgr_last_message();
          r.Launch();
          const uint64_t guessing = r.launched;
          ASSERT_EQ(cgr__standing_update(r.rows, &r.rows.batches, r.row, 1, nullptr, 0), CGR_OK) << cgr_last_message();
          ASSERT_EQ(r.rows.DropPages(r.row, 0, drop), CGR_OK) << cgr_last_message();
          SCOPED_TRACE(testing::Message() << "window " << layers[0].first << " chunk " << layers[0].second << " computed "
                                          << computed << " drop " << drop << " taken at " << take_at);
          for (int32_t step = 0; step < 4; step++) {
            const int32_t num_tokens = 1 + computed % 9;
            if (step == take_at)
              cgr__guesses_take(r.rows, guessing, &num_tokens, 1);
            const bool may = r.MayStep(layers, 1);
            ASSERT_EQ(r.ValidateStanding(), may ? CGR_OK : CGR_ERROR_PAGES_MISSING) << step << ": " << cgr_last_message();
            refused += !may;
            if (!may && step < take_at) { // refused until the result is there
              cgr__guesses_take(r.rows, guessing, &num_tokens, 1);
              ASSERT_EQ(r.ValidateStanding(), r.MayStep(layers, 1) ? CGR_OK : CGR_ERROR_PAGES_MISSING) << cgr_last_message();
            }
            if (!may)
              break;
            r.Launch();
            steps++;
          }
        }
  EXPECT_GT(refused, 500);
  EXPECT_GT(steps, 2000);
}

// The refusal names the pages that the lower bound sees.
TEST(GuessFront, IsRefusedByName) {
  OneRow r({ { 20, 0 } }, 30, false);
  ASSERT_EQ(r.Validate(21, 20), CGR_OK) << cgr_last_message();
  r.Launch(); // 31 to 51
  ASSERT_EQ(r.rows.DropPages(r.row, 0, 2), CGR_OK);
  ExpectMessage(r.Validate(1, 0), CGR_ERROR_PAGES_MISSING,
                { "row 0 would hold 52 tokens", "pages 2 .. 7 of group 0, expected all from page 0 on" });
  r.Take(20); // the window begins at token 32
  EXPECT_EQ(r.Validate(1, 0), CGR_OK) << cgr_last_message();
}

// A length that is set above the lower bound is one set forward: another row may have what is between.
TEST(GuessFront, ALengthSetOverThemIsASharedPrefix) {
  for (int32_t length : { 30, 31, 32, 51 }) {
    OneRow r({ { 20, 0 } }, 30, false);
    ASSERT_EQ(r.Validate(21, 20), CGR_OK) << cgr_last_message();
    r.rows.rows.row[r.row].shared_prefix = false;
    r.Launch(); // 31 to 51
    ASSERT_EQ(cgr__rows_set_length(r.rows, r.row, length), CGR_OK) << cgr_last_message();
    EXPECT_EQ(r.rows.rows.row[r.row].shared_prefix, length > 31) << length;
    EXPECT_EQ(r.Bound(true), length);
    EXPECT_EQ(r.Bound(false), length);
  }
}

} // namespace

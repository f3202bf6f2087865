// Steps whose attention must not begin alongside the append: those of a row that was set forward, over tokens that another row
// may be appending in the same step, until a step of the row's own tokens has been launched.
#include "requests/standing.h"
#include "tests/requests/rig.h"

namespace {

using namespace cgr_test;

struct Case {
  Rows rows{ 6, 200, { { 16, 10000 } }, 4, 64 };
  Pool pool{ rows, 4, 64, 3 };
  cgr__checked_batch checked;
  uint64_t launched = 0;

  int32_t Open(int32_t number) { return rows.OpenWithPages(8, 10 + 100 * number, uint64_t(number)); }
  bool Validate(const Batch &batch) {
    EXPECT_EQ(pool.Validate(rows, batch, &checked), CGR_OK) << cgr_last_message();
    return checked.append_first;
  }
  // Whether the step that is launched is such a one.
  bool Step(const Batch &batch) {
    const bool first = Validate(batch);
    pool.Prepare(&checked);
    pool.Launch(rows, &checked, ++launched);
    return first;
  }
  bool ValidateStanding() {
    EXPECT_EQ(cgr__standing_validate(rows, &rows.batches, 0, &checked), CGR_OK) << cgr_last_message();
    return checked.append_first;
  }
  bool StepStanding() {
    const bool first = ValidateStanding();
    cgr__batch_layouts_launch(&pool.pool, ++launched, cgr__members_snapshot(&rows.batches));
    cgr__members_commit(rows, &rows.batches, launched, launched);
    return first;
  }
  void SetLength(int32_t row, int32_t length) { EXPECT_EQ(cgr__rows_set_length(rows, row, length), CGR_OK); }
};

TEST(AppendFirst, IsTheFirstStepOfARowThatWasSetForward) {
  Case c;
  const int32_t a = c.Open(0), b = c.Open(1);
  EXPECT_FALSE(c.Step(Batch::Prefill({ a, b }, { 32, 1 }))) << "all tokens are the rows' own";
  c.SetLength(b, 32);
  EXPECT_TRUE(c.Validate(Batch::Prefill({ b }, { 1 })));
  EXPECT_TRUE(c.Validate(Batch::Prefill({ b }, { 1 }))) << "the step before was cancelled";
  EXPECT_FALSE(c.Step(Batch::Prefill({ a }, { 1 }))) << "it is not in the step";
  EXPECT_FALSE(c.Step(Batch::Prefill({ a, b }, { 1, 0 }))) << "it attends to nothing";
  EXPECT_TRUE(c.Step(Batch::Prefill({ a, b }, { 1, 3 })));
  EXPECT_FALSE(c.Step(Batch::Prefill({ a, b }, { 1, 3 })));
  EXPECT_FALSE(c.Step(Batch::Decode({ a, b })));
}

TEST(AppendFirst, IsNoStepOfARowThatWasSetBack) {
  Case c;
  const int32_t a = c.Open(0);
  c.Step(Batch::Prefill({ a }, { 32 }));
  c.SetLength(a, 20);
  EXPECT_FALSE(c.Step(Batch::Prefill({ a }, { 5 }))) << "an earlier step appended what it sees";
  c.SetLength(a, 25);
  EXPECT_FALSE(c.Step(Batch::Prefill({ a }, { 1 }))) << "it had as many";
  c.SetLength(a, 0);
  c.SetLength(a, 26);
  EXPECT_TRUE(c.Validate(Batch::Prefill({ a }, { 1 }))) << "perhaps over other pages";
  c.SetLength(a, 10);
  EXPECT_TRUE(c.Step(Batch::Prefill({ a }, { 1 }))) << "they may still be new to it";
}

// The steps of a batch that repeats are counted, and its rows not looked at.
TEST(AppendFirst, IsForgottenByABatchThatRepeats) {
  Case c;
  const int32_t a = c.Open(0), b = c.Open(1);
  c.Step(Batch::Prefill({ a, b }, { 16, 16 }));
  const Batch batch = Batch::Decode({ a, b });
  Batch given = Batch::Decode({ a, b });
  given.WithIds();
  EXPECT_FALSE(c.Step(batch));
  c.SetLength(b, 40);
  EXPECT_TRUE(c.Step(given));
  EXPECT_FALSE(c.Step(batch));
  EXPECT_FALSE(c.Step(batch));
  cgr__follow_end(c.rows, &c.rows.batches); // all rows are looked at again
  EXPECT_FALSE(c.Step(batch));
}

TEST(AppendFirst, IsForgottenByARowThatIsOpenedAgain) {
  Case c;
  int32_t a = c.Open(0);
  c.SetLength(a, 40);
  EXPECT_EQ(cgr__rows_close(c.rows, a), CGR_OK);
  a = c.Open(1);
  EXPECT_FALSE(c.Step(Batch::Prefill({ a }, { 1 })));
}

TEST(AppendFirst, IsAStepOfTheStandingBatchToo) {
  Case c;
  const int32_t a = c.Open(0), b = c.Open(1), token = 7;
  c.Step(Batch::Prefill({ a, b }, { 16, 16 }));
  ASSERT_EQ(cgr__standing_add(c.rows, &c.rows.batches, a, 1, nullptr, 0), CGR_OK);
  ASSERT_EQ(cgr__standing_add(c.rows, &c.rows.batches, b, 1, nullptr, 0), CGR_OK);
  EXPECT_FALSE(c.StepStanding());
  c.SetLength(b, 40);
  ASSERT_EQ(cgr__standing_update(c.rows, &c.rows.batches, b, 0, nullptr, CGR_REQUEST_PARTIAL), CGR_OK);
  EXPECT_FALSE(c.StepStanding()) << "it stands still";
  ASSERT_EQ(cgr__standing_update(c.rows, &c.rows.batches, b, 1, &token, 0), CGR_OK);
  EXPECT_TRUE(c.ValidateStanding());
  EXPECT_TRUE(c.StepStanding()) << "the step before was cancelled";
  EXPECT_FALSE(c.StepStanding());
  c.SetLength(b, 50);
  EXPECT_TRUE(c.Step(Batch::Prefill({ b }, { 1 }))) << "a whole batch in between";
  EXPECT_FALSE(c.StepStanding());
}

TEST(AppendFirst, IsEveryStepOfAnotherLengthSet) {
  Case c;
  Batch none;
  cgr_batch batch = none.Get();
  EXPECT_EQ(cgr__batch_validate(c.rows, &c.rows.batches, &batch, 1, 4, 64, &c.checked), CGR_OK);
  EXPECT_TRUE(c.checked.append_first) << "the engine sets such lengths before every step";
}

} // namespace

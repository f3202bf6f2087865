// The ledger of pages while rows have guesses whose results are not there: by hand. ledger_test.cc has them at random.
#include "tests/requests/ledger_case.h"

namespace {

using namespace cgr_test;
using namespace cgr_test::ledger;

struct GuessCase : Case {
  // A token and three guesses.
  cgr_status Guess(int32_t row) { return Step(Batch::Prefill({ row }, { 4 }).WithFlags({ CGR_REQUEST_DRAFTS(3) })); }
  // The result of the step with this number is there.
  void Take(uint64_t seq, int32_t accepted) {
    const int32_t num_tokens = 1 + accepted;
    cgr__guesses_take(rows, seq, &num_tokens, 1);
  }
};

// Row 1 has the same pages as row 0, which has 11 to 14 tokens in it.
struct SharedCase : GuessCase {
  SharedCase() {
    a = OpenWith({ 2, 3 }, { 2 }), b = OpenWith({ 2, 4 }, { 2 });
    EXPECT_EQ(Step(Batch::Prefill({ a }, { 10 })), CGR_OK);
    EXPECT_EQ(Guess(a), CGR_OK) << cgr_last_message();
  }
  int32_t a, b;
};

// Another row that is set forward over them does not have them, so their row may write over them.
TEST(LedgerOfGuesses, NoRowTakesThemOver) {
  SharedCase c;
  c.SetLength(c.b, 14);
  EXPECT_EQ(c.Check(Batch::Prefill({ c.a }, { 1 })), CGR_OK) << cgr_last_message();
  c.Take(2, 1);
  EXPECT_EQ(c.Check(Batch::Prefill({ c.a }, { 1 })), CGR_OK) << cgr_last_message();
  c.SetLength(c.a, 10);
  ExpectMessage(c.Check(Batch::Prefill({ c.a }, { 1 })), CGR_ERROR_INVALID_ARGUMENT,
                { "row 0 would write token 10", "row 1 has a token at that place" });
}

// With a result those that were accepted are sure.
TEST(LedgerOfGuesses, WhatIsAcceptedIsTakenOver) {
  SharedCase c;
  c.Take(2, 1);
  c.SetLength(c.b, 14);
  c.SetLength(c.a, 12);
  EXPECT_EQ(c.Check(Batch::Prefill({ c.a }, { 1 })), CGR_OK) << cgr_last_message();
  c.SetLength(c.a, 11);
  ExpectMessage(c.Check(Batch::Prefill({ c.a }, { 1 })), CGR_ERROR_INVALID_ARGUMENT, { "row 0 would write token 11" });
}

TEST(LedgerOfGuesses, NoOtherRowWritesOverThem) {
  for (int32_t accepted : { 0, 3 }) {
    SharedCase c;
    c.SetLength(c.b, 11);
    const Batch one = Batch::Prefill({ c.b }, { 1 });
    ExpectMessage(c.Check(one), CGR_ERROR_INVALID_ARGUMENT,
                  { "row 1 would write token 11 in step 3 into page 2 of group 0", "row 0 has a guess at that place",
                    "expected a page of its own" });
    c.Take(2, accepted);
    if (accepted == 0)
      EXPECT_EQ(c.Check(one), CGR_OK) << cgr_last_message() << ": a free place";
    else
      ExpectMessage(c.Check(one), CGR_ERROR_INVALID_ARGUMENT, { "row 0 has a token at that place" });
  }
}

// Its row writes from the first that may be rejected to the last that may be written.
TEST(LedgerOfGuesses, TheirRowWritesBetweenTheBounds) {
  GuessCase c;
  const int32_t a = c.OpenWith({ 2, 3 }, { 2 }), b = c.OpenWith({ 2, 4 }, { 3 }), d = c.OpenWith({ 5, 3 }, { 4 });
  EXPECT_EQ(c.Step(Batch::Prefill({ a }, { 12 })), CGR_OK);
  EXPECT_EQ(c.Guess(a), CGR_OK) << cgr_last_message(); // 13 to 16
  c.SetLength(b, 13);
  c.SetLength(d, 16);
  ExpectMessage(c.Check(Batch::Prefill({ a, b }, { 1, 1 })), CGR_ERROR_INVALID_ARGUMENT, { "page 2 of group 0", "rows 0 and 1" });
  ExpectMessage(c.Check(Batch::Prefill({ a, d }, { 1, 1 })), CGR_ERROR_INVALID_ARGUMENT, { "page 3 of group 0", "rows 0 and 2" });
  c.Take(2, 0);
  EXPECT_EQ(c.Check(Batch::Prefill({ a, d }, { 1, 1 })), CGR_OK) << cgr_last_message() << ": token 13 is in page 2";
}

// A result changes the length of a row, but it is no step of the row: what its page has is as open as before.
TEST(LedgerOfGuesses, AResultIsNoStep) {
  GuessCase c;
  const int32_t a = c.OpenWith({ 2, 3 }, { 2 }), b = c.OpenWith({ 4, 5 }, { 3 });
  EXPECT_EQ(c.Step(Batch::Prefill({ a, b }, { 20, 16 })), CGR_OK);
  EXPECT_EQ(c.Guess(a), CGR_OK) << cgr_last_message(); // 21 to 24
  EXPECT_EQ(c.SetPages(a, 0, 1, { 5 }), CGR_OK) << "where row 1 writes its next tokens";
  EXPECT_EQ(c.Check(Batch::Prefill({ b }, { 4 })), CGR_OK) << cgr_last_message();
  c.Take(2, 0);
  EXPECT_EQ(c.Check(Batch::Prefill({ b }, { 4 })), CGR_OK) << cgr_last_message();
  EXPECT_EQ(c.Step(Batch::Prefill({ b }, { 8 })), CGR_OK) << cgr_last_message();
  EXPECT_EQ(cgr__rows_close(c.rows, b), CGR_OK);
  const int32_t d = c.OpenWith({ 6, 5 }, { 4 });
  c.SetLength(d, 16);
  EXPECT_EQ(c.Check(Batch::Prefill({ d }, { 4 })), CGR_OK) << cgr_last_message();
}

// A page that is put where guesses may be has none of them, also once they are accepted.
TEST(LedgerOfGuesses, APageMayBePutBelowThem) {
  GuessCase c;
  const int32_t a = c.OpenWith({ 2, 3 }, { 2 }), b = c.OpenWith({ 4, 5 }, { 3 });
  EXPECT_EQ(c.Step(Batch::Prefill({ a, b }, { 14, 16 })), CGR_OK);
  EXPECT_EQ(c.Guess(a), CGR_OK) << cgr_last_message(); // 15 to 18
  EXPECT_EQ(c.SetPages(a, 0, 1, { 5 }), CGR_OK);
  c.Take(2, 3);
  EXPECT_EQ(c.Step(Batch::Prefill({ b }, { 2 })), CGR_OK) << cgr_last_message() << ": row 1 fills it";
  EXPECT_EQ(c.Step(Batch::Prefill({ a }, { 1 })), CGR_OK) << cgr_last_message();
}

// And a step is one, whatever length the results leave.
TEST(LedgerOfGuesses, AStepIsOneThoughTheLengthIsTheSame) {
  GuessCase c;
  const int32_t a = c.OpenWith({ 2, 3 }, { 2 }), b = c.OpenWith({ 4, 5 }, { 3 });
  EXPECT_EQ(c.Step(Batch::Prefill({ a, b }, { 20, 16 })), CGR_OK);
  EXPECT_EQ(c.Guess(a), CGR_OK) << cgr_last_message();
  EXPECT_EQ(c.SetPages(a, 0, 1, { 5 }), CGR_OK);
  EXPECT_EQ(c.Guess(a), CGR_OK) << cgr_last_message(); // up to 28
  c.Take(2, 0);
  c.Take(3, 2); // 24, as when the page was put there
  EXPECT_EQ(c.rows.Computed(a), 24);
  ExpectMessage(c.Check(Batch::Prefill({ b }, { 1 })), CGR_ERROR_INVALID_ARGUMENT,
                { "row 1 would write token 16", "page 5 of group 0", "row 0 has a token at that place" });
}

// The same of a loss, after which guesses are rejected without a result.
TEST(LedgerOfGuesses, ALossIsNoStep) {
  GuessCase c;
  const int32_t a = c.OpenWith({ 2, 3 }, { 2 }), b = c.OpenWith({ 4, 5 }, { 3 });
  EXPECT_EQ(c.Step(Batch::Prefill({ a, b }, { 20, 16 })), CGR_OK);
  EXPECT_EQ(c.Guess(a), CGR_OK) << cgr_last_message();
  EXPECT_EQ(c.SetPages(a, 0, 1, { 5 }), CGR_OK);
  cgr__guesses_reject(c.rows);
  EXPECT_EQ(c.rows.Computed(a), 21);
  EXPECT_EQ(c.Check(Batch::Prefill({ b }, { 4 })), CGR_OK) << cgr_last_message();
}

} // namespace

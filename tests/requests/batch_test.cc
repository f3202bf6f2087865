// Batches: what is accepted, what is refused and why, and what a step does to its rows.
#include <string>
#include <vector>

#include "tests/requests/rig.h"

namespace {

using namespace cgr_test;
using List = std::vector<int32_t>;

// Four open rows with 100 tokens of pages each, of which `kBegun` are in the cache and have a last token.
struct Case {
  enum { kBegun = 10 };
  Rows rows{ 6, 100, { {} }, 4, 60 };
  Pool pool{ rows, 4, 60, 3 };
  List open;
  cgr__checked_batch checked;

  Case() {
    for (int32_t i = 0; i < 4; i++)
      open.push_back(rows.OpenWithPages(7, 10 + 10 * i, 100 + static_cast<uint64_t>(i)));
    EXPECT_EQ(pool.Step(rows, Batch::Prefill(open, { kBegun, kBegun, kBegun, kBegun }), 1), CGR_OK) << cgr_last_message();
  }
  cgr_status Validate(const Batch &batch) { return pool.Validate(rows, batch, &checked); }
  cgr_status Validate(const cgr_batch &batch) { return pool.Validate(rows, batch, &checked); }

  // Refused, and the next good batch is as good as it would have been.
  void ExpectRefused(const Batch &batch, cgr_status status, const Words &words) { ExpectRefused(batch.Get(), status, words); }
  void ExpectRefused(const cgr_batch &batch, cgr_status status, const Words &words) {
    ExpectMessage(Validate(batch), status, words);
    for (int32_t row : open)
      EXPECT_EQ(rows.Computed(row), kBegun);
    EXPECT_EQ(Validate(Batch::Decode(open)), CGR_OK) << cgr_last_message();
  }
};

TEST(Batch, TellsItsCounts) {
  Case c;
  auto expect = [&](const Batch &batch, int32_t requests, int32_t tokens, int32_t query_len) {
    ASSERT_EQ(c.Validate(batch), CGR_OK);
    EXPECT_EQ(c.checked.num_requests, requests);
    EXPECT_EQ(c.checked.num_tokens, tokens);
    EXPECT_EQ(c.checked.query_len, query_len);
  };
  expect(Batch::Decode(c.open), 4, 4, 1);
  expect(Batch::Prefill(c.open, { 3, 3, 3, 3 }), 4, 12, 3);
  expect(Batch::Prefill(c.open, { 3, 1, 0, 3 }), 4, 7, 0);
  expect(Batch::Prefill(c.open, { 0, 0, 0, 0 }), 4, 0, 0);
  expect(Batch(), 0, 0, 0);
}

TEST(Batch, KeepsItsBatchLayout) {
  Case c;
  Batch batch = Batch::Prefill({ c.open[2], c.open[0] }, { 4, 0 }).WithFlags({ CGR_REQUEST_PARTIAL, 0 });
  ASSERT_EQ(c.Validate(batch), CGR_OK);
  const cgr__batch_layout *kept = c.checked.batch_layout;
  EXPECT_EQ(kept->num_requests, 2);
  EXPECT_EQ(kept->num_tokens, 4);
  EXPECT_EQ(kept->num_partial, 1);
  EXPECT_EQ(List(kept->rows, kept->rows + 2), batch.rows);
  EXPECT_EQ(List(kept->query_lens, kept->query_lens + 2), batch.query_lens);
  EXPECT_EQ(kept->flags[0], static_cast<uint32_t>(CGR_REQUEST_PARTIAL));
  EXPECT_EQ(kept->flags[1], 0u);
  EXPECT_EQ(kept->tags[0], 102u);
  EXPECT_EQ(kept->tags[1], 100u);
}

TEST(Batch, AStepAdvancesItsRowsAndNoOthers) {
  Case c;
  Batch batch = Batch::Prefill({ c.open[0], c.open[1], c.open[2] }, { 4, 0, 2 }).WithFlags({ CGR_REQUEST_PARTIAL, 0, 0 });
  ASSERT_EQ(c.pool.Step(c.rows, batch, 2), CGR_OK);
  EXPECT_EQ(c.rows.Computed(c.open[0]), 14);
  EXPECT_EQ(c.rows.Computed(c.open[1]), 10);
  EXPECT_EQ(c.rows.Computed(c.open[2]), 12);
  EXPECT_EQ(c.rows.Computed(c.open[3]), 10);
  EXPECT_FALSE(c.rows.rows.row[c.open[0]].has_token) << "a partial chunk leaves none to go on with";
  EXPECT_TRUE(c.rows.rows.row[c.open[1]].has_token) << "without tokens nothing changes";
  EXPECT_TRUE(c.rows.rows.row[c.open[2]].has_token);
  for (size_t i = 0; i < 4; i++)
    EXPECT_EQ(c.rows.rows.row[c.open[i]].last_seq, i < 3 ? 2u : 1u); // Computed has brought the rows up to date
}

TEST(Batch, AStepGivenUpMarksTheUseOfItsRowsAlone) {
  Case c;
  ASSERT_EQ(c.Validate(Batch::Decode({ c.open[1] })), CGR_OK);
  c.pool.Prepare(&c.checked);
  c.pool.Cancel(&c.checked);
  cgr__batch_abandon(c.rows, &c.checked, 2);
  EXPECT_EQ(c.rows.Computed(c.open[1]), 10);
  EXPECT_TRUE(c.rows.rows.row[c.open[1]].has_token);
  EXPECT_EQ(c.rows.rows.row[c.open[1]].last_seq, 2u);
  EXPECT_EQ(c.rows.rows.row[c.open[0]].last_seq, 1u);
  EXPECT_EQ(c.pool.Step(c.rows, Batch::Decode({ c.open[1] }), 3), CGR_OK);
  EXPECT_EQ(c.rows.Computed(c.open[1]), 11);
}

TEST(Batch, AStepThatRanInSpiteOfItsFailureTakesTheLastTokens) {
  Case c;
  ASSERT_EQ(c.Validate(Batch::Decode({ c.open[0], c.open[1] })), CGR_OK);
  cgr__batch_abandon(c.rows, &c.checked, 2);
  c.rows.Collect();
  cgr__rows_forget_tokens(c.rows, c.checked.batch_layout);
  EXPECT_EQ(cgr__changes_pending(c.rows), 2) << "the device has counted the step: lengths are sent again";
  ExpectMessage(c.Validate(Batch::Decode({ c.open[0] })), CGR_ERROR_INVALID_ARGUMENT, { "CGR_TOKEN_LAST" });
  ExpectMessage(c.Validate(Batch::Decode({ c.open[1] })), CGR_ERROR_INVALID_ARGUMENT, { "CGR_TOKEN_LAST" });
  EXPECT_EQ(c.Validate(Batch::Decode({ c.open[2] })), CGR_OK);
  EXPECT_EQ(c.Validate(Batch::Decode({ c.open[0] }).WithIds()), CGR_OK);
}

// The same after steps of a batch that repeats.
TEST(Batch, ForgottenTokensAreForgottenInARepeatedBatch) {
  Case c;
  Batch batch = Batch::Decode({ c.open[0], c.open[1] });
  for (uint64_t seq = 2; seq < 6; seq++)
    ASSERT_EQ(c.pool.Step(c.rows, batch, seq), CGR_OK);
  ASSERT_EQ(c.Validate(batch), CGR_OK);
  cgr__batch_abandon(c.rows, &c.checked, 6);
  cgr__rows_forget_tokens(c.rows, c.checked.batch_layout);
  EXPECT_EQ(c.rows.Computed(c.open[0]), 14);
  EXPECT_EQ(c.Validate(batch), CGR_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(c.pool.Step(c.rows, Batch(batch).WithIds(), 7), CGR_OK);
  EXPECT_EQ(c.pool.Step(c.rows, batch, 8), CGR_OK);
  EXPECT_EQ(c.rows.Computed(c.open[0]), 16);
}

// ---------------------------------------------------------------------------------------------------------------- refusals

TEST(BatchRefusals, NumbersOfRequests) {
  Case c;
  cgr_batch batch = Batch::Decode(c.open).Get();
  for (int32_t n : { -2, INT32_MIN }) {
    batch.num_requests = n;
    c.ExpectRefused(batch, CGR_ERROR_INVALID_ARGUMENT, { "num_requests is " + std::to_string(n), "at least 0" });
  }
  for (int32_t n : { 5, INT32_MAX }) {
    batch.num_requests = n; // refused before anything is read
    c.ExpectRefused(batch, CGR_ERROR_TOO_MANY_REQUESTS, { "num_requests is " + std::to_string(n), "at most 4", "max_requests" });
  }
}

TEST(BatchRefusals, RowsThatAreNull) {
  Case c;
  cgr_batch batch = Batch::Decode(c.open).Get();
  batch.rows = nullptr;
  c.ExpectRefused(batch, CGR_ERROR_NULL_POINTER, { "rows is NULL", "4" });
  batch.num_requests = 0;
  EXPECT_EQ(c.Validate(batch), CGR_OK);
}

TEST(BatchRefusals, RowsOutOfRange) {
  Case c;
  for (int32_t bad : { -1, 6, INT32_MIN, INT32_MAX })
    c.ExpectRefused(Batch::Decode({ c.open[0], bad }), CGR_ERROR_INVALID_ARGUMENT,
                    { "rows[1] is " + std::to_string(bad), "0 .. 5" });
}

TEST(BatchRefusals, ClosedRows) {
  Case c;
  int32_t closed = 15 - c.open[0] - c.open[1] - c.open[2] - c.open[3]; // one of the two others of 0 .. 5
  for (int32_t row = 0; row < 6; row++)
    if (!c.rows.rows.row[row].open)
      closed = row;
  c.ExpectRefused(Batch::Decode({ c.open[0], c.open[1], closed }), CGR_ERROR_ROW_CLOSED,
                  { "rows[2] is " + std::to_string(closed), "closed" });
}

TEST(BatchRefusals, ARowTwice) {
  Case c;
  for (List rows : { List{ c.open[1], c.open[1] }, List{ c.open[1], c.open[0], c.open[2], c.open[1] } })
    c.ExpectRefused(Batch::Decode(rows), CGR_ERROR_ROW_REPEATED,
                    { "rows[" + std::to_string(rows.size() - 1) + "] is " + std::to_string(c.open[1]), "once" });
}

TEST(BatchRefusals, NegativeQueryLengths) {
  Case c;
  for (int32_t bad : { -1, INT32_MIN }) {
    Batch batch = Batch::Prefill({ c.open[0], c.open[1] }, { 1, 1 });
    batch.query_lens[1] = bad;
    c.ExpectRefused(batch, CGR_ERROR_INVALID_ARGUMENT, { "query_lens[1] is " + std::to_string(bad), "at least 0" });
  }
}

TEST(BatchRefusals, SequencesThatPassMaxSeqLen) {
  Rows rows(2, 100, { {} }, 2, 1000);
  Pool pool(rows, 2, 1000, 2);
  int32_t row = rows.OpenWithPages(7, 10); // 112 tokens of pages
  cgr__checked_batch checked;
  EXPECT_EQ(pool.Validate(rows, Batch::Prefill({ row }, { 100 }), &checked), CGR_OK);
  ExpectMessage(pool.Validate(rows, Batch::Prefill({ row }, { 101 }), &checked), CGR_ERROR_SEQUENCE_TOO_LONG,
                { "row " + std::to_string(row), "101", "100", "max_seq_len" });
  ASSERT_EQ(pool.Step(rows, Batch::Prefill({ row }, { 99 }), 1), CGR_OK);
  ASSERT_EQ(pool.Step(rows, Batch::Decode({ row }), 2), CGR_OK);
  ExpectMessage(pool.Step(rows, Batch::Decode({ row }), 3), CGR_ERROR_SEQUENCE_TOO_LONG, { "101", "100" });
  Batch huge = Batch::Prefill({ row }, { 1 });
  huge.query_lens[0] = INT32_MAX; // its tokens are not read
  ExpectMessage(pool.Step(rows, huge, 3), CGR_ERROR_SEQUENCE_TOO_LONG, { "2147483747", "100" });
}

TEST(BatchRefusals, PagesThatAreMissing) {
  Rows rows(2, 1000, { {}, { 64, 1000 } }, 2, 1000);
  Pool pool(rows, 2, 1000, 2);
  int32_t row = rows.Open();
  ASSERT_EQ(rows.SetPages(row, 0, { 10, 11, 12, 13, 14 }, 0), CGR_OK); // 80 tokens
  ASSERT_EQ(rows.SetPages(row, 0, { 10 }, 1), CGR_OK);                 // 64 tokens
  cgr__checked_batch checked;
  ExpectMessage(pool.Validate(rows, Batch::Prefill({ row }, { 65 }), &checked), CGR_ERROR_PAGES_MISSING,
                { "row " + std::to_string(row), "65", "at most 64" });
  ASSERT_EQ(pool.Step(rows, Batch::Prefill({ row }, { 64 }), 1), CGR_OK);
  ExpectMessage(pool.Step(rows, Batch::Decode({ row }), 2), CGR_ERROR_PAGES_MISSING, { "65", "at most 64" });
  ASSERT_EQ(rows.SetPages(row, 1, { 11 }, 1), CGR_OK);
  ASSERT_EQ(pool.Step(rows, Batch::Prefill({ row }, { 16 }), 2), CGR_OK);
  ExpectMessage(pool.Step(rows, Batch::Decode({ row }), 3), CGR_ERROR_PAGES_MISSING, { "81", "at most 80" });
}

TEST(BatchRefusals, MoreTokensThanTheLimit) {
  Case c;
  ASSERT_EQ(c.Validate(Batch::Prefill(c.open, { 20, 20, 19, 1 })), CGR_OK) << cgr_last_message();
  c.ExpectRefused(Batch::Prefill(c.open, { 20, 20, 20, 1 }), CGR_ERROR_TOO_MANY_TOKENS, { "61", "at most 60", "max_tokens" });
  c.ExpectRefused(Batch::Prefill(c.open, { 61, 0, 0, 0 }), CGR_ERROR_TOO_MANY_TOKENS, { "61", "at most 60" });
  Batch batch = Batch::Prefill(c.open, { 20, 20, 20, 20 });
  batch.tokens.resize(60); // what is past the limit is not read
  batch.tokens.shrink_to_fit();
  c.ExpectRefused(batch, CGR_ERROR_TOO_MANY_TOKENS, { "80", "at most 60" });
}

TEST(BatchRefusals, Drafts) {
  Case c;
  for (int32_t draft : { -2, -3, INT32_MIN })
    for (size_t at : { 0u, 2u, 4u }) {
      Batch batch = Batch::Prefill({ c.open[0], c.open[1] }, { 2, 3 });
      batch.tokens[at] = draft;
      c.ExpectRefused(batch, CGR_ERROR_INVALID_ARGUMENT,
                      { "tokens[" + std::to_string(at) + "] is " + std::to_string(draft), "draft" });
    }
}

TEST(BatchRefusals, LastTokensThatAreNotThere) {
  Case c;
  int32_t fresh = c.rows.OpenWithPages(2, 500);
  const Words words = { "row " + std::to_string(fresh), "CGR_TOKEN_LAST" };
  c.ExpectRefused(Batch::Decode({ c.open[0], fresh }), CGR_ERROR_INVALID_ARGUMENT, words);
  Batch batch = Batch::Decode({ c.open[0], fresh }).WithIds();
  batch.tokens[1] = CGR_TOKEN_LAST;
  c.ExpectRefused(batch, CGR_ERROR_INVALID_ARGUMENT, words);
  batch.tokens = { CGR_TOKEN_LAST, 5 };
  EXPECT_EQ(c.Validate(batch), CGR_OK);
  batch = Batch::Prefill({ fresh }, { 0 });
  EXPECT_EQ(c.Validate(batch), CGR_OK) << "without tokens none is needed";
  batch.has_tokens = false;
  EXPECT_EQ(c.Validate(batch), CGR_OK);
}

TEST(BatchRefusals, LastTokensAfterAPartialChunk) {
  Case c;
  ASSERT_EQ(c.pool.Step(c.rows, Batch::Prefill({ c.open[0] }, { 4 }).WithFlags({ CGR_REQUEST_PARTIAL }), 2), CGR_OK);
  ExpectMessage(c.Validate(Batch::Decode({ c.open[0] })), CGR_ERROR_INVALID_ARGUMENT,
                { "row " + std::to_string(c.open[0]), "CGR_TOKEN_LAST" });
  ASSERT_EQ(c.pool.Step(c.rows, Batch::Prefill({ c.open[0] }, { 4 }), 3), CGR_OK) << "the last chunk";
  EXPECT_EQ(c.Validate(Batch::Decode({ c.open[0] })), CGR_OK);
}

TEST(BatchRefusals, LastTokensThatAreNotTheFirstOfTheirRequest) {
  Case c;
  for (size_t at : { 1u, 3u, 4u }) {
    Batch batch = Batch::Prefill({ c.open[0], c.open[1] }, { 2, 3 });
    batch.tokens[0] = CGR_TOKEN_LAST;
    batch.tokens[2] = CGR_TOKEN_LAST;
    EXPECT_EQ(c.Validate(batch), CGR_OK) << cgr_last_message();
    batch.tokens[at] = CGR_TOKEN_LAST;
    c.ExpectRefused(batch, CGR_ERROR_INVALID_ARGUMENT, { "tokens[" + std::to_string(at) + "]", "CGR_TOKEN_LAST", "first token" });
  }
}

// Wherever the token is: tokens are looked at eight at a time, and these are twice eight plus one.
TEST(BatchRefusals, NegativeTokensAnywhereInAChunk) {
  Case c;
  int32_t fresh = c.rows.OpenWithPages(2, 500);
  for (int32_t row : { c.open[0], fresh })
    for (size_t at = 0; at < 17; at++) {
      SCOPED_TRACE("row " + std::to_string(row) + ", token " + std::to_string(at));
      const std::string where = "tokens[" + std::to_string(at) + "] is ";
      Batch batch = Batch::Prefill({ row }, { 17 });
      batch.tokens[at] = -2;
      c.ExpectRefused(batch, CGR_ERROR_INVALID_ARGUMENT, { where + "-2", "draft" });
      batch.tokens[at] = CGR_TOKEN_LAST;
      if (at > 0)
        c.ExpectRefused(batch, CGR_ERROR_INVALID_ARGUMENT, { where + "CGR_TOKEN_LAST", "first token" });
      else if (row == fresh)
        c.ExpectRefused(batch, CGR_ERROR_INVALID_ARGUMENT, { "row " + std::to_string(fresh), "expected a token" });
      else
        EXPECT_EQ(c.Validate(batch), CGR_OK) << cgr_last_message();
    }
}

TEST(BatchRefusals, NoTokensForMoreThanOne) {
  Case c;
  Batch batch = Batch::Prefill({ c.open[0], c.open[1] }, { 1, 2 });
  batch.has_tokens = false;
  c.ExpectRefused(batch, CGR_ERROR_NULL_POINTER, { "tokens is NULL", "2 tokens", "row " + std::to_string(c.open[1]) });
}

TEST(BatchRefusals, UnknownFlags) {
  Case c;
  for (uint32_t bad : { 2u, 3u, 0x80000000u, 0xffffffffu })
    c.ExpectRefused(Batch::Decode({ c.open[0], c.open[1] }).WithFlags({ CGR_REQUEST_PARTIAL, bad }), CGR_ERROR_INVALID_ENUM,
                    { "flags[1]", "CGR_REQUEST_" });
}

// A batch that repeats the last is looked at less closely, except for what may be new in it.
TEST(BatchRefusals, InABatchThatRepeats) {
  Case c;
  Batch decode = Batch::Decode({ c.open[0], c.open[1] });
  for (uint64_t seq = 2; seq < 5; seq++)
    ASSERT_EQ(c.pool.Step(c.rows, decode, seq), CGR_OK);
  Batch batch = Batch(decode).WithIds();
  EXPECT_EQ(c.Validate(batch), CGR_OK);
  batch.tokens[1] = -2;
  ExpectMessage(c.Validate(batch), CGR_ERROR_INVALID_ARGUMENT, { "tokens[1] is -2" });
  batch.tokens[1] = CGR_TOKEN_LAST;
  EXPECT_EQ(c.Validate(batch), CGR_OK);
  ExpectMessage(c.Validate(Batch(decode).WithFlags({ 0, 8 })), CGR_ERROR_INVALID_ENUM, { "flags[1]" });
  ASSERT_EQ(c.Validate(Batch(decode).WithFlags({ 0, CGR_REQUEST_PARTIAL })), CGR_OK);
  EXPECT_EQ(c.rows.batches.members.num_dirty, 1) << "its flags differ";
  Batch prefill = Batch::Prefill({ c.open[0], c.open[1] }, { 3, 3 });
  ASSERT_EQ(c.pool.Step(c.rows, prefill, 5), CGR_OK);
  ASSERT_EQ(c.Validate(prefill), CGR_OK);
  EXPECT_EQ(c.rows.batches.members.num_dirty, 0);
  prefill.tokens[4] = CGR_TOKEN_LAST;
  ExpectMessage(c.Validate(prefill), CGR_ERROR_INVALID_ARGUMENT, { "tokens[4]", "first token" });
  prefill.has_tokens = false;
  ExpectMessage(c.Validate(prefill), CGR_ERROR_NULL_POINTER, { "tokens is NULL" });
}

// --------------------------------------------------------------------------------------------------------------- repetition

// Step after step until the pages end, and again after each new page.
TEST(BatchRepeats, UntilThePagesEnd) {
  Rows rows(3, 160, { {}, { 32, 1000 } }, 3, 100);
  Pool pool(rows, 3, 100, 2);
  List open = { rows.OpenWithPages(2, 10), rows.OpenWithPages(2, 20), rows.OpenWithPages(2, 30) };
  ASSERT_EQ(pool.Step(rows, Batch::Prefill(open, { 5, 1, 9 }), 1), CGR_OK);
  int32_t length = 9;
  uint64_t seq = 1;
  for (int32_t page = 2; page <= 10; page++) {
    for (; length < 16 * page; length++)
      ASSERT_EQ(pool.Step(rows, Batch::Decode(open), ++seq), CGR_OK) << "length " << length << ": " << cgr_last_message();
    EXPECT_EQ(pool.Step(rows, Batch::Decode(open), seq + 1), page < 10 ? CGR_ERROR_PAGES_MISSING : CGR_ERROR_SEQUENCE_TOO_LONG);
    EXPECT_EQ(rows.Computed(open[2]), 16 * page);
    for (int32_t row : open) {
      ASSERT_EQ(page < 10 ? rows.SetPages(row, page, { 100 + page }, 0) : CGR_OK, CGR_OK) << cgr_last_message();
      ASSERT_EQ(page < 5 ? rows.SetPages(row, page, { 200 + page }, 1) : CGR_OK, CGR_OK) << cgr_last_message();
    }
  }
}

// The device is told of what differs from the last, and of nothing else.
TEST(BatchRepeats, IsKnownByRowsAndQueryLengths) {
  Case c;
  const cgr__members &members = c.rows.batches.members;
  ASSERT_EQ(c.pool.Step(c.rows, Batch::Decode({ c.open[0], c.open[1] }), 2), CGR_OK);
  auto same = [&](const Batch &batch) {
    EXPECT_EQ(c.Validate(batch), CGR_OK) << cgr_last_message();
    return c.checked.follows && members.num_dirty == 0 && !members.all_dirty;
  };
  EXPECT_TRUE(same(Batch::Decode({ c.open[0], c.open[1] })));
  EXPECT_TRUE(same(Batch::Decode({ c.open[0], c.open[1] }).WithIds()));
  EXPECT_TRUE(same(Batch::Decode({ c.open[0], c.open[1] }).WithFlags({ 0, 0 })));
  EXPECT_TRUE(same(Batch::Prefill({ c.open[0], c.open[1] }, { 1, 1 })));
  EXPECT_FALSE(same(Batch::Decode({ c.open[1], c.open[0] })));
  EXPECT_FALSE(same(Batch::Decode({ c.open[0] })));
  EXPECT_FALSE(same(Batch::Decode({ c.open[0], c.open[2] })));
  EXPECT_FALSE(same(Batch::Decode({ c.open[0], c.open[1], c.open[2] })));
  EXPECT_FALSE(same(Batch::Prefill({ c.open[0], c.open[1] }, { 1, 2 })));
  EXPECT_FALSE(same(Batch::Prefill({ c.open[0], c.open[1] }, { 2, 2 })));
  EXPECT_FALSE(same(Batch()));
}

} // namespace

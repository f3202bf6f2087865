// Every batch that is refused has its own status and a message that names the argument, its value and what was expected; nothing
// has changed, and the next good step is right.
#include <climits>

#include "tests/support/refused.h"

namespace cgr_test {
namespace {

class BatchIsRefused : public ThreeRequests {};

TEST_P(BatchIsRefused, ForItsNumberOfRequests) {
  cgr_batch batch = GoodBatch();
  batch.num_requests = engine_->o.max_requests + 1;
  BatchRefused(CGR_ERROR_TOO_MANY_REQUESTS, { "num_requests is 9", "8" }, batch);
  batch.num_requests = INT_MAX;
  BatchRefused(CGR_ERROR_TOO_MANY_REQUESTS, { "num_requests is 2147483647", "8" }, batch);
  for (int32_t bad : { -2, INT_MIN }) { // -1 is CGR_BATCH_STANDING
    batch.num_requests = bad;
    BatchRefused(CGR_ERROR_INVALID_ARGUMENT, { "num_requests is " + std::to_string(bad) }, batch);
  }
}

TEST_P(BatchIsRefused, ForItsNumberOfTokens) {
  cgr_batch batch = GoodBatch();
  for (int32_t row : rows_)
    engine_->Reserve(row, 96);
  std::vector<int32_t> lens = { 1, 64, 0 }, tokens(200, 3);
  batch.query_lens = lens.data();
  batch.tokens = tokens.data();
  BatchRefused(CGR_ERROR_TOO_MANY_TOKENS, { "65", "64" }, batch);
  lens = { INT_MAX, INT_MAX, 2 }; // the sum is 0 in 32 bits
  BatchRefused(CGR_ERROR_SEQUENCE_TOO_LONG, { "row 0", "2147483652", "160" }, batch);
  lens = { 1, -1, 1 };
  BatchRefused(CGR_ERROR_INVALID_ARGUMENT, { "query_lens[1] is -1" }, batch);
  lens = { 1, 1, INT_MIN };
  BatchRefused(CGR_ERROR_INVALID_ARGUMENT, { "query_lens[2] is -2147483648" }, batch);
}

TEST_P(BatchIsRefused, ForARowThatIsNotOpenOrNamedTwice) {
  cgr_batch batch = GoodBatch();
  int32_t closed = engine_->Open();
  engine_->Close(closed);
  std::vector<int32_t> rows;
  for (int32_t bad : { closed, -1, engine_->o.max_rows, INT_MAX, INT_MIN }) {
    SCOPED_TRACE(bad);
    rows = { rows_[0], bad, rows_[2] };
    batch.rows = rows.data();
    BatchRefused(bad == closed ? CGR_ERROR_ROW_CLOSED : CGR_ERROR_INVALID_ARGUMENT, { "rows[1] is " + std::to_string(bad) },
                 batch);
  }
  rows = { rows_[0], rows_[1], rows_[0] };
  batch.rows = rows.data();
  BatchRefused(CGR_ERROR_ROW_REPEATED, { "rows[2] is " + std::to_string(rows_[0]) }, batch);
  std::vector<int32_t> lens = { 0, 1, 0 }; // twice, though empty
  batch.query_lens = lens.data();
  BatchRefused(CGR_ERROR_ROW_REPEATED, { "rows[2]" }, batch);
}

TEST_P(BatchIsRefused, ForItsTokens) {
  cgr_batch batch = GoodBatch();
  std::vector<int32_t> lens = { 1, 2, 1 }, tokens = { 4, 5, CGR_TOKEN_LAST, 6 };
  for (int32_t row : rows_)
    engine_->Reserve(row, 40);
  batch.query_lens = lens.data();
  batch.tokens = tokens.data();
  BatchRefused(CGR_ERROR_INVALID_ARGUMENT, { "tokens[2] is CGR_TOKEN_LAST", "first" }, batch);
  batch.tokens = nullptr;
  BatchRefused(CGR_ERROR_NULL_POINTER, { "tokens is NULL", "2 tokens" }, batch);
  uint32_t flags[] = { 0, 0x80, 0 };
  batch = GoodBatch();
  batch.flags = flags;
  BatchRefused(CGR_ERROR_INVALID_ENUM, { "flags[1] is 0x80" }, batch);
}

// CGR_TOKEN_LAST is refused where no token is on the device: in a new row, after a partial chunk, after a change of length.
TEST_P(BatchIsRefused, ForALastTokenThatIsNotThere) {
  Engine &engine = *engine_;
  int32_t fresh = engine.Open();
  std::string row = "row " + std::to_string(fresh);
  auto refused = [&] {
    EXPECT_EQ(engine.Info(fresh).has_token, 0);
    ItemsRefused(CGR_ERROR_INVALID_ARGUMENT, { row, "CGR_TOKEN_LAST" }, { { fresh, { CGR_TOKEN_LAST } } });
    ItemsRefused(CGR_ERROR_INVALID_ARGUMENT, { row, "CGR_TOKEN_LAST" }, { { fresh, { CGR_TOKEN_LAST, 4 } } });
  };
  engine.Reserve(fresh, 60);
  refused();
  engine.Step({ Engine::Chunk(fresh, 4, 1, true) });
  refused();
  engine.Step({ Engine::Chunk(fresh, 4, 1) });
  EXPECT_EQ(engine.Info(fresh).has_token, 1);
  engine.Step({ { fresh, { CGR_TOKEN_LAST } }, { rows_[0], {} } });
  engine.SetLength(fresh, engine.requests[fresh]->num_tokens); // to where it is
  refused();
  engine.Step({ { fresh, { 7 } } });
  engine.Step({ { fresh, {}, true } }); // no tokens: it keeps the one that it has
  EXPECT_EQ(engine.Info(fresh).has_token, 1);
  engine.SetLength(fresh, 3);
  refused();
  engine.Close(fresh);
}

TEST_P(BatchIsRefused, ForASequenceThatIsTooLongOrHasNoPages) {
  Engine &engine = *engine_;
  int32_t row = engine.Open();
  engine.Reserve(row, engine.o.max_seq_len);
  for (int32_t n = 0; n < 2; n++)
    engine.Step({ Engine::Chunk(row, 64, 1, true) });
  engine.Step({ Engine::Chunk(row, 31, 1) }); // 159 of 160
  Words words = { "row " + std::to_string(row), "161", "160" };
  ItemsRefused(CGR_ERROR_SEQUENCE_TOO_LONG, words, { { rows_[0], { 3 } }, { row, { 1, 2 } } });
  engine.Step({ { row, { 1 } } });
  ItemsRefused(CGR_ERROR_SEQUENCE_TOO_LONG, words, { { row, { 1 } } });
  ItemsRefused(CGR_ERROR_SEQUENCE_TOO_LONG, words, { { row, { CGR_TOKEN_LAST } } });
  engine.Step({ { row, {} } }); // no new token: fits
  engine.Close(row);

  int32_t bare = engine.Open();
  std::string name = "row " + std::to_string(bare);
  ItemsRefused(CGR_ERROR_PAGES_MISSING, { name, "1 token,", "0" }, { { rows_[0], { 3 } }, { bare, { 1 } } });
  engine.Reserve(bare, 16);
  ItemsRefused(CGR_ERROR_PAGES_MISSING, { name, "17 tokens", "16" }, { Engine::Chunk(bare, 17, 1) });
  engine.Step({ Engine::Chunk(bare, 16, 1) });
  ItemsRefused(CGR_ERROR_PAGES_MISSING, { name, "17 tokens", "16" }, { { bare, { CGR_TOKEN_LAST } } });
  engine.Step(engine.Decode({ bare }));
  engine.Close(bare);
}

// A batch that repeats the last one is checked less closely: reaching the end of its pages or max_seq_len must still be seen.
TEST_P(BatchIsRefused, WhenItRepeatsTheLastOnePastItsPages) {
  Engine &engine = *engine_;
  int32_t row = engine.Start(10, 7);
  engine.Reserve(row, 32);
  for (int32_t length = 10; length < 32; length++)
    engine.Step({ { row, { CGR_TOKEN_LAST } } });
  ItemsRefused(CGR_ERROR_PAGES_MISSING, { "33 tokens", "32" }, { { row, { CGR_TOKEN_LAST } } });
  ItemsRefused(CGR_ERROR_PAGES_MISSING, { "33 tokens", "32" }, { { row, { 5 } } });
  engine.Step({ { row, {} } });
  engine.Reserve(row, 160);
  for (int32_t length = 32; length < 160; length++)
    engine.Step({ { row, { CGR_TOKEN_LAST } } });
  ItemsRefused(CGR_ERROR_SEQUENCE_TOO_LONG, { "161", "160" }, { { row, { CGR_TOKEN_LAST } } });
  engine.Close(row);
}

TEST_P(BatchIsRefused, ForAForcedKeyThatDoesNotFit) {
  Engine &engine = *engine_;
  std::vector<Item> items = engine.Decode(rows_);
  struct Bad {
    std::function<void(cgr_key *)> change; // of the good key
    cgr_key key;
    cgr_status status;
    Words words;
  };
  const cgr_key full = FullKey(4);
  const std::vector<Bad> bads = {
    { [](cgr_key *k) { k->kind = 7; }, full, CGR_ERROR_INVALID_ENUM, { "forced_key.kind is 7" } },
    { [](cgr_key *k) { k->kind = -1; }, full, CGR_ERROR_INVALID_ENUM, { "forced_key.kind is -1" } },
    { nullptr, FullKey(2), CGR_ERROR_INVALID_ARGUMENT, { "forced_key.num_requests is 2", "3" } },
    { nullptr, FullKey(3), CGR_ERROR_STATE, { "forced_key" } }, // not a bucket
    { nullptr, KeyOf(CGR_KIND_FULL, 4, 5), CGR_ERROR_STATE, { "forced_key" } },
    { [](cgr_key *k) { k->query_len = 2; }, full, CGR_ERROR_STATE, { "forced_key", "query length 2" } },
    { [](cgr_key *k) { k->query_len = 0; }, full, CGR_ERROR_STATE, { "forced_key", "query length 0" } },
    { [](cgr_key *k) { k->query_len = -1; }, full, CGR_ERROR_INVALID_ARGUMENT, { "forced_key.query_len is -1" } },
    { [](cgr_key *k) { k->variant = 9; }, full, CGR_ERROR_INVALID_ARGUMENT, { "forced_key.variant is 9", "the batch's, 0" } },
    { [](cgr_key *k) { k->program = 1; }, full, CGR_ERROR_INVALID_ARGUMENT, { "forced_key.program is 1" } },
    { [](cgr_key *k) { k->lane = 1; }, full, CGR_ERROR_INVALID_ARGUMENT, { "forced_key.lane is 1" } },
    { [](cgr_key *k) { k->max_steps = 2; }, full, CGR_ERROR_INVALID_ARGUMENT, { "forced_key.max_steps is 2" } },
    { [](cgr_key *k) { k->reserved[3] = 1; }, full, CGR_ERROR_NEWER_STRUCT, { "forced_key.reserved[3] is 1, expected 0" } },
    { [](cgr_key *k) { k->query_len = 0; }, KeyOf(CGR_KIND_PIECEWISE, 4, 4), CGR_ERROR_STATE, { "piecewise" } },
    { [](cgr_key *k) { k->query_len = 1; }, KeyOf(CGR_KIND_PIECEWISE, 4, 4), CGR_ERROR_STATE, { "piecewise" } },
    { nullptr, EagerKey(2, 2), CGR_ERROR_INVALID_ARGUMENT, { "forced_key.num_requests is 2", "3" } },
    { nullptr, EagerKey(8, 2), CGR_ERROR_INVALID_ARGUMENT, { "forced_key.num_tokens is 2", "3" } },
    { nullptr, EagerKey(8, 65), CGR_ERROR_INVALID_ARGUMENT, { "forced_key.num_tokens is 65", "64" } },
    { nullptr, EagerKey(9, 8), CGR_ERROR_INVALID_ARGUMENT, { "forced_key.num_requests is 9", "8" } },
    { nullptr, EagerKey(-8, -8), CGR_ERROR_INVALID_ARGUMENT, { "forced_key.num_requests is -8" } },
    { nullptr, EagerKey(0, 8), CGR_ERROR_INVALID_ARGUMENT, { "forced_key.num_requests is 0" } },
  };
  for (const Bad &bad : bads) {
    cgr_key key = bad.key;
    if (bad.change)
      bad.change(&key);
    SCOPED_TRACE(std::to_string(&bad - &bads[0]));
    ItemsRefused(bad.status, bad.words, items, &key);
  }
  ItemsRefused(CGR_ERROR_INVALID_ARGUMENT, { "forced_key.query_len", "longest, 2" },
               { { rows_[0], { CGR_TOKEN_LAST } }, { rows_[1], { 5, 6 } } }, &full);
  ItemsRefused(CGR_ERROR_STATE, { "forced_key" }, {}, [] { // a dummy step takes any graph, but there must be one
    static const cgr_key key = FullKey(3);
    return &key;
  }());
}

TEST_P(BatchIsRefused, NotForAForcedKeyThatFits) {
  Engine &engine = *engine_;
  for (const cgr_key &key : { FullKey(4), FullKey(8), EagerKey(3, 3), EagerKey(8, 8), EagerKey(5, 64) }) {
    engine.Step(engine.Decode(rows_), &key);
    EXPECT_EQ(engine.step.reason, CGR_REASON_FORCED);
    EXPECT_EQ(std::memcmp(&engine.step.key, &key, sizeof key), 0);
  }
  const cgr_key full = FullKey(2);
  engine.Step({}, &full);
  EXPECT_EQ(engine.step.key.kind, CGR_KIND_FULL);
}

CGR_INSTANTIATE_OVER_FEW_DEVICES(BatchIsRefused);

} // namespace
} // namespace cgr_test

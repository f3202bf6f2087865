// Every batch that is refused has its own status and a message that names the argument, its value and what was expected; nothing
// has changed, and the next good step is right.
#include <climits>

#include "tests/support/refused.h"

namespace cgr_test {
namespace {

class BatchIsRefused : public ThreeRequests {};

TEST_P(BatchIsRefused, ForItsStructAndWhatIsReserved) {
  EachBatchRefused({
      { kStruct, "batch: size is 0 ... a multiple of 8, 8 to 4096 ... _INIT", [](cgr_batch &b) { b.size = 0; } },
      { kStruct, "batch: size is 20 ... a multiple of 8", [](cgr_batch &b) { b.size = 20; } },
      { kArgument, "batch: lane is 1 ... 0", [](cgr_batch &b) { b.lane = 1; } },
      { kArgument, "batch ... lane is -1", [](cgr_batch &b) { b.lane = -1; } },
      { kArgument, "batch ... program is 2", [](cgr_batch &b) { b.program = 2; } },
      { kUnsupported, "batch ... common_prefix is 16", [](cgr_batch &b) { b.common_prefix = 16; } },
      { kUnsupported, "batch ... max_steps is 4", [](cgr_batch &b) { b.max_steps = 4; } },
      { kArgument, "variant is 5 ... cgr_config.variants", [](cgr_batch &b) { b.variant = 5; } },
      { kEnum, "batch: plan_flags is 0x1, expected 0 or CGR_PLAN_FAST (0x2)",
        [](cgr_batch &b) { b.plan_flags = CGR_PLAN_CAPTURE; } },
      { kEnum, "batch: plan_flags is 0x6, expected", [](cgr_batch &b) { b.plan_flags = CGR_PLAN_FAST | CGR_PLAN_BOUNDS; } },
      { kEnum, "batch: plan_flags is 0x80000000, expected", [](cgr_batch &b) { b.plan_flags = 1u << 31; } },
      { CGR_ERROR_NEWER_STRUCT, "batch: reserved is 1, expected 0", [](cgr_batch &b) { b.reserved = 1; } },
  });
}

TEST_P(BatchIsRefused, ForItsNumberOfRequests) {
  static const cgr_staged staged = { 3, 0, nullptr };
  EachBatchRefused({
      { CGR_ERROR_TOO_MANY_REQUESTS, "num_requests is 9 ... 8 (max_requests)", [](cgr_batch &b) { b.num_requests = 9; } },
      { CGR_ERROR_TOO_MANY_REQUESTS, "num_requests is 2147483647 ... 8", [](cgr_batch &b) { b.num_requests = INT_MAX; } },
      { kArgument, "num_requests is -2", [](cgr_batch &b) { b.num_requests = -2; } }, // -1 is CGR_BATCH_STANDING
      { kArgument, "num_requests is -7 ... at least 0", [](cgr_batch &b) { b.num_requests = -7; } },
      { kArgument, "num_requests is -2147483648", [](cgr_batch &b) { b.num_requests = INT_MIN; } },
      { kArgument, "rows is 0x ... NULL with CGR_BATCH_STANDING", [](cgr_batch &b) { b.num_requests = CGR_BATCH_STANDING; } },
      { kNull, "batch: rows is NULL ... 3 row numbers", [](cgr_batch &b) { b.rows = nullptr; } },
      { kArgument, "staged[0].buffer is 3 ... a declared buffer", [](cgr_batch &b) { b.staged = &staged, b.num_staged = 1; } },
  });
}

TEST_P(BatchIsRefused, ForItsNumberOfTokens) {
  for (int32_t row : rows_)
    engine_->Reserve(row, 96);
  static const std::vector<int32_t> tokens(200, 3);
  const auto lens = [](const std::vector<int32_t> &list) {
    return [list](cgr_batch &b) { b.query_lens = list.data(), b.tokens = tokens.data(); };
  };
  EachBatchRefused({
      { CGR_ERROR_TOO_MANY_TOKENS, "65 ... 64 ... CGR_REQUEST_PARTIAL", lens({ 1, 64, 0 }) },
      { CGR_ERROR_SEQUENCE_TOO_LONG, "row 0 ... 2147483652 ... 160", lens({ INT_MAX, INT_MAX, 2 }), "the sum is 0 in 32 bits" },
      { kArgument, "query_lens[0] is -1 ... at least 0", lens({ -1, 1, 1 }) },
      { kArgument, "query_lens[1] is -1", lens({ 1, -1, 1 }) },
      { kArgument, "query_lens[2] is -2147483648", lens({ 1, 1, INT_MIN }) },
  });
}

TEST_P(BatchIsRefused, ForARowThatIsNotOpenOrNamedTwice) {
  const int32_t closed = engine_->Open(), first = rows_[0], last = rows_[2];
  engine_->Close(closed);
  const std::vector<int32_t> empty = { 0, 1, 0 };
  const auto rows = [](const std::vector<int32_t> &list, const int32_t *lens = nullptr) {
    return [=](cgr_batch &b) { b.rows = list.data(), b.query_lens = lens, b.num_requests = int32_t(list.size()); };
  };
  const std::string second = "rows[1] is ", third = "rows[2] is " + std::to_string(first);
  EachBatchRefused({
      { CGR_ERROR_ROW_CLOSED, second + std::to_string(closed), rows({ first, closed, last }) },
      { kArgument, second + "-1", rows({ first, -1, last }) },
      { kArgument, second + "16", rows({ first, 16, last }) },
      { kArgument, second + "2147483647", rows({ first, INT_MAX, last }) },
      { kArgument, second + "-2147483648", rows({ first, INT_MIN, last }) },
      { kArgument, "rows[0] is 99 ... 0 .. ", rows({ 99 }) },
      { CGR_ERROR_ROW_REPEATED, third, rows({ first, rows_[1], first }) },
      { CGR_ERROR_ROW_REPEATED, third, rows({ first, rows_[1], first }, empty.data()), "twice, though empty" },
      { CGR_ERROR_ROW_REPEATED, "rows[1] is 0, as rows[0] is ... tag ... each row once", rows({ 0, 0 }) },
      { CGR_ERROR_ROW_REPEATED, third + ", as rows[0] is", rows({ first, rows_[1], first, first }) },
  });
}

TEST_P(BatchIsRefused, ForItsTokensAndFlags) {
  for (int32_t row : rows_)
    engine_->Reserve(row, 40);
  static const std::vector<int32_t> lens = { 1, 2, 1 };
  const auto tokens = [](const std::vector<int32_t> &list) { return [list](cgr_batch &b) { b.tokens = list.data(); }; };
  const auto flags = [](const std::vector<uint32_t> &list) { return [list](cgr_batch &b) { b.flags = list.data(); }; };
  const std::vector<int32_t> last = { 4, 5, CGR_TOKEN_LAST, 6 };
  std::vector<Mistake<cgr_batch>> rows = {
    { kArgument, "tokens[2] is CGR_TOKEN_LAST ... first",
      [&](cgr_batch &b) { b.query_lens = lens.data(), b.tokens = last.data(); } },
    { kNull, "tokens is NULL ... 2 tokens", [](cgr_batch &b) { b.query_lens = lens.data(); } },
    { kEnum, "flags[0] is 0x40 ... CGR_REQUEST_*", flags({ 64, 0, 0 }) },
    { kEnum, "flags[1] is 0x80", flags({ 0, 0x80, 0 }) },
    { kEnum, "flags[1] is 0x8 ... CGR_REQUEST_* ... partial", flags({ 0, 8, 0 }) },
    { kArgument, "tokens[0] is -5 ... a token id", tokens({ -5, 1, 1 }) },
  };
  for (size_t i = 0; i < 3; i++)
    for (int32_t draft : { -2, -3, INT32_MIN }) {
      std::vector<int32_t> list = { 4, 5, 6 };
      list[i] = draft;
      const std::string says = "tokens[" + std::to_string(i) + "] is " + std::to_string(draft) + " ... draft";
      rows.push_back({ kArgument, says, tokens(list) });
    }
  EachBatchRefused(rows);
}

// Also in a batch that repeats the last one, which is not looked at as closely.
TEST_P(BatchIsRefused, ForADraftTokenInARepeatedOne) {
  for (int n = 0; n < 3; n++)
    engine_->Step(engine_->Decode(rows_));
  std::vector<Item> items = engine_->Decode(rows_);
  items[1].tokens = { -2 };
  ItemsRefused(CGR_ERROR_INVALID_ARGUMENT, { "tokens[1] is -2" }, items);
}

// CGR_TOKEN_LAST is refused where no token is on the device: in a new row, after a partial chunk, after a change of length.
TEST_P(BatchIsRefused, ForALastTokenThatIsNotThere) {
  int32_t fresh = engine_->Open();
  std::string row = "row " + std::to_string(fresh);
  auto refused = [&] {
    EXPECT_EQ(engine_->Info(fresh).has_token, 0);
    const Words words = { row, "tokens[0] is CGR_TOKEN_LAST",
                          "for " + row + " with " + std::to_string(engine_->Info(fresh).num_tokens), "cgr_request_set_length",
                          "CGR_REQUEST_PARTIAL" };
    ItemsRefused(CGR_ERROR_INVALID_ARGUMENT, words, { { fresh, { CGR_TOKEN_LAST } } });
    ItemsRefused(CGR_ERROR_INVALID_ARGUMENT, { row, "CGR_TOKEN_LAST" }, { { fresh, { CGR_TOKEN_LAST, 4 } } });
  };
  engine_->Reserve(fresh, 60);
  refused();
  engine_->Step({ Engine::Chunk(fresh, 4, 1, true) });
  refused();
  engine_->Step({ Engine::Chunk(fresh, 4, 1) });
  EXPECT_EQ(engine_->Info(fresh).has_token, 1);
  engine_->Step({ { fresh, { CGR_TOKEN_LAST } }, { rows_[0], {} } });
  engine_->SetLength(fresh, engine_->requests[fresh]->num_tokens); // to where it is
  refused();
  engine_->Step({ { fresh, { 7 } } });
  engine_->Step({ { fresh, {}, true } }); // no tokens: it keeps the one that it has
  EXPECT_EQ(engine_->Info(fresh).has_token, 1);
  engine_->SetLength(fresh, 3);
  refused();
  engine_->Close(fresh);
}

TEST_P(BatchIsRefused, ForASequenceThatIsTooLongOrHasNoPages) {
  int32_t row = engine_->Open();
  engine_->Reserve(row, engine_->o.max_seq_len);
  for (int32_t n = 0; n < 2; n++)
    engine_->Step({ Engine::Chunk(row, 64, 1, true) });
  engine_->Step({ Engine::Chunk(row, 31, 1) }); // 159 of 160
  Words words = { "row " + std::to_string(row), "161", "160", "in the cache already", "close the request",
                  "cgr_request_set_length" };
  ItemsRefused(CGR_ERROR_SEQUENCE_TOO_LONG, words, { { rows_[0], { 3 } }, { row, { 1, 2 } } });
  engine_->Step({ { row, { 1 } } });
  ItemsRefused(CGR_ERROR_SEQUENCE_TOO_LONG, words, { { row, { 1 } } });
  ItemsRefused(CGR_ERROR_SEQUENCE_TOO_LONG, words, { { row, { CGR_TOKEN_LAST } } });
  engine_->Step({ { row, {} } }); // no new token: fits
  engine_->Close(row);

  int32_t bare = engine_->Open();
  std::string name = "row " + std::to_string(bare);
  ItemsRefused(CGR_ERROR_PAGES_MISSING, { name, "1 token,", "0" }, { { rows_[0], { 3 } }, { bare, { 1 } } });
  engine_->Reserve(bare, 16);
  ItemsRefused(CGR_ERROR_PAGES_MISSING, { name, "17 tokens", "16" }, { Engine::Chunk(bare, 17, 1) });
  engine_->Step({ Engine::Chunk(bare, 16, 1) });
  ItemsRefused(CGR_ERROR_PAGES_MISSING, { name, "17 tokens", "16" }, { { bare, { CGR_TOKEN_LAST } } });
  engine_->Step(engine_->Decode({ bare }));
  engine_->Close(bare);
}

// A batch that repeats the last one is checked less closely: reaching the end of its pages or max_seq_len must still be seen.
TEST_P(BatchIsRefused, WhenItRepeatsTheLastOnePastItsPages) {
  int32_t row = engine_->Start(10, 7);
  engine_->Reserve(row, 32);
  for (int32_t length = 10; length < 32; length++)
    engine_->Step({ { row, { CGR_TOKEN_LAST } } });
  ItemsRefused(CGR_ERROR_PAGES_MISSING, { "33 tokens", "32" }, { { row, { CGR_TOKEN_LAST } } });
  ItemsRefused(CGR_ERROR_PAGES_MISSING, { "33 tokens", "32" }, { { row, { 5 } } });
  engine_->Step({ { row, {} } });
  engine_->Reserve(row, 160);
  for (int32_t length = 32; length < 160; length++)
    engine_->Step({ { row, { CGR_TOKEN_LAST } } });
  ItemsRefused(CGR_ERROR_SEQUENCE_TOO_LONG, { "161", "160" }, { { row, { CGR_TOKEN_LAST } } });
  engine_->Close(row);
}

TEST_P(BatchIsRefused, ForAForcedKeyThatDoesNotFit) {
  const cgr_key full = FullKey(4);
  const cgr_status none = CGR_ERROR_STATE; // there is no such graph
  const std::string kinds = ", expected ... cgr_graph_kind ... 0 none ... 1 piecewise ... 2 full";
  std::vector<Mistake<cgr_key>> rows = {
    { kEnum, "kind is 7" + kinds, [](cgr_key &k) { k.kind = 7; } },
    { kEnum, "kind is 3" + kinds, [](cgr_key &k) { k.kind = 3; } },
    { kEnum, "kind is -1" + kinds, [](cgr_key &k) { k.kind = -1; } },
    { none, "query length 2", [](cgr_key &k) { k.query_len = 2; } },
    { none, "query length 0", [](cgr_key &k) { k.query_len = 0; } },
    { kArgument, "query_len is -1", [](cgr_key &k) { k.query_len = -1; } },
    { kArgument, "variant is 9 ... the batch's, 0", [](cgr_key &k) { k.variant = 9; } },
    { kArgument, "program is 1", [](cgr_key &k) { k.program = 1; } },
    { kArgument, "lane is 1", [](cgr_key &k) { k.lane = 1; } },
    { kArgument, "max_steps is 2", [](cgr_key &k) { k.max_steps = 2; } },
    { kNewer, "reserved[3] is 1, expected 0", [](cgr_key &k) { k.reserved[3] = 1; } },
    { none, "piecewise", [](cgr_key &k) { k = KeyOf(CGR_KIND_PIECEWISE, 4, 4), k.query_len = 0; } },
    { none, "piecewise", [](cgr_key &k) { k = KeyOf(CGR_KIND_PIECEWISE, 4, 4), k.query_len = 1; } },
    { kArgument, "num_requests is 2 ... 3", [](cgr_key &k) { k = FullKey(2); } },
    { none, "", [](cgr_key &k) { k = FullKey(3); }, "not a bucket" },
    { none, "", [](cgr_key &k) { k = KeyOf(CGR_KIND_FULL, 4, 5); } },
    { kArgument, "num_requests is 2 ... 3", [](cgr_key &k) { k = EagerKey(2, 2); } },
    { kArgument, "num_tokens is 2 ... 3", [](cgr_key &k) { k = EagerKey(8, 2); } },
    { kArgument, "num_tokens is 65 ... 64", [](cgr_key &k) { k = EagerKey(8, 65); } },
    { kArgument, "num_requests is 9 ... 8", [](cgr_key &k) { k = EagerKey(9, 8); } },
    { kArgument, "num_requests is -8", [](cgr_key &k) { k = EagerKey(-8, -8); } },
    { kArgument, "num_requests is 0", [](cgr_key &k) { k = EagerKey(0, 8); } },
  };
  EachMistake(
      rows, [&] { return full; },
      [&](const cgr_key &key, const Mistake<cgr_key> &row) {
        cgr_batch batch = GoodBatch();
        batch.forced_key = &key;
        BatchRefused(row.status, PartsOf((row.status == none ? "forced_key ... " : "forced_key.") + row.says), batch);
      });
  ItemsRefused(kArgument, { "forced_key.query_len", "longest, 2" }, { { rows_[0], { CGR_TOKEN_LAST } }, { rows_[1], { 5, 6 } } },
               &full);
  const cgr_key other = FullKey(3); // a dummy step takes any graph, but there must be one
  ItemsRefused(CGR_ERROR_STATE, { "forced_key" }, {}, &other);
}

TEST_P(BatchIsRefused, NotForAForcedKeyThatFits) {
  for (const cgr_key &key : { FullKey(4), FullKey(8), EagerKey(3, 3), EagerKey(8, 8), EagerKey(5, 64) }) {
    StepFor(*engine_, engine_->Decode(rows_), CGR_REASON_FORCED, &key);
    EXPECT_EQ(std::memcmp(&engine_->step.key, &key, sizeof key), 0);
  }
  const cgr_key full = FullKey(2);
  StepAs(*engine_, {}, CGR_KIND_FULL, &full);
}

CGR_INSTANTIATE_OVER_FEW_DEVICES(BatchIsRefused);

} // namespace
} // namespace cgr_test

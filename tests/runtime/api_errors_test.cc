// Every refusal of the calls around a step: its own status, a message that names the argument, what it got and what was
// expected; nothing has changed, and the next good step is right. What creation refuses: config_errors_test.cc.
#include <climits>

#include "tests/support/refused.h"

namespace cgr_test {
namespace {

class ApiErrors : public ::testing::TestWithParam<DeviceParam> {
protected:
  void SetUp() override {
    CGR_SKIP_WITHOUT_DEVICE(GetParam());
    Make(ToyOptionsFor(GetParam()));
  }
  void Make(const ToyOptions &options) {
    toy_.reset();
    toy_ = std::make_unique<Toy>(options);
    CGR_ASSERT_OK(toy_->Capture());
    rows_ = { toy_->Start(5, 1), toy_->Start(17, 2), toy_->Start(31, 3) };
  }
  void TearDown() override {
    if (toy_ == nullptr)
      return;
    for (int n = 0; n < 3 && !HasFatalFailure(); n++)
      toy_->Step(toy_->Decode(rows_)); // the next good steps are right
  }
  template <class Call> void Refused(cgr_status status, const Words &words, Call call, uint64_t refused = 0) {
    ExpectRefused(*toy_, status, words, call, refused);
  }
  // The same for a prepare.
  void PrepareRefused(cgr_status status, const Words &words, const cgr_batch &batch) {
    Refused(
        status, words,
        [&] {
          cgr_step step = CGR_STEP_INIT;
          return cgr_step_prepare(toy_->rt, &batch, &step);
        },
        1);
    cgr_key key;
    Refused(status, words, [&] { return cgr_step_choose(toy_->rt, &batch, &key); });
  }
  void ItemsRefused(cgr_status status, const Words &words, const std::vector<ToyItem> &items, const cgr_key *forced = nullptr) {
    Refused(
        status, words, [&] { return toy_->Prepare(items, forced); }, 1);
  }
  // A batch over `rows_`, good as it stands.
  cgr_batch Good() {
    toy_->Decode(rows_);
    cgr_batch batch = CGR_BATCH_INIT;
    batch.num_requests = static_cast<int32_t>(rows_.size());
    batch.rows = rows_.data();
    return batch;
  }
  std::unique_ptr<Toy> toy_;
  std::vector<int32_t> rows_;
};

TEST_P(ApiErrors, NullPointers) {
  cgr_batch batch = Good();
  cgr_step step = CGR_STEP_INIT;
  cgr_runtime *rt = toy_->rt;
  cgr_key key;
  Refused(CGR_ERROR_NULL_POINTER, { "cgr_step_prepare", "runtime" }, [&] { return cgr_step_prepare(nullptr, &batch, &step); });
  Refused(
      CGR_ERROR_NULL_POINTER, { "batch", "NULL" }, [&] { return cgr_step_prepare(rt, nullptr, &step); }, 1);
  Refused(
      CGR_ERROR_NULL_POINTER, { "cgr_step_prepare", "step" }, [&] { return cgr_step_prepare(rt, &batch, nullptr); }, 1);
  Refused(CGR_ERROR_NULL_POINTER, { "cgr_step_choose", "runtime" }, [&] { return cgr_step_choose(nullptr, &batch, &key); });
  Refused(CGR_ERROR_NULL_POINTER, { "batch", "NULL" }, [&] { return cgr_step_choose(rt, nullptr, &key); });
  Refused(CGR_ERROR_NULL_POINTER, { "cgr_step_choose", "key" }, [&] { return cgr_step_choose(rt, &batch, nullptr); });
  Refused(CGR_ERROR_NULL_POINTER, { "runtime" }, [&] { return cgr_step_launch(nullptr, &step, toy_->stream); });
  Refused(CGR_ERROR_NULL_POINTER, { "step" }, [&] { return cgr_step_launch(rt, nullptr, toy_->stream); });
  Refused(CGR_ERROR_NULL_POINTER, { "runtime" }, [&] { return cgr_step_cancel(nullptr, &step); });
  Refused(CGR_ERROR_NULL_POINTER, { "step" }, [&] { return cgr_step_cancel(rt, nullptr); });
  Refused(CGR_ERROR_NULL_POINTER, { "runtime" }, [&] { return cgr_step_wait(nullptr, 1, nullptr); });
  Refused(CGR_ERROR_NULL_POINTER, { "runtime" }, [&] { return cgr_step_poll(nullptr, 1, nullptr); });
  Refused(CGR_ERROR_NULL_POINTER, { "runtime" }, [&] { return cgr_runtime_flush(nullptr, toy_->stream); });
  Refused(CGR_ERROR_NULL_POINTER, { "runtime" }, [&] { return cgr_runtime_capture(nullptr, ToyRecord, &toy_->engine); });
  Refused(CGR_ERROR_NULL_POINTER, { "record" }, [&] { return cgr_runtime_capture(rt, nullptr, &toy_->engine); });
  Refused(CGR_ERROR_NULL_POINTER, { "runtime" }, [&] { return cgr_runtime_warmup(nullptr, ToyRecord, &toy_->engine); });
  Refused(CGR_ERROR_NULL_POINTER, { "record" }, [&] { return cgr_runtime_warmup(rt, nullptr, &toy_->engine); });
  int32_t row = 0, page = 2;
  Refused(CGR_ERROR_NULL_POINTER, { "runtime" }, [&] { return cgr_request_open(nullptr, &row); });
  Refused(CGR_ERROR_NULL_POINTER, { "row" }, [&] { return cgr_request_open(rt, nullptr); });
  Refused(CGR_ERROR_NULL_POINTER, { "runtime" }, [&] { return cgr_request_close(nullptr, 0); });
  Refused(CGR_ERROR_NULL_POINTER, { "runtime" }, [&] { return cgr_request_set_pages(nullptr, 0, 0, 0, &page, 1); });
  Refused(CGR_ERROR_NULL_POINTER, { "pages" }, [&] { return cgr_request_set_pages(rt, rows_[0], 0, 0, nullptr, 1); });
  Refused(CGR_ERROR_NULL_POINTER, { "runtime" }, [&] { return cgr_request_rewind(nullptr, 0, 0); });
  Refused(CGR_ERROR_NULL_POINTER, { "info" }, [&] { return cgr_request_get_info(rt, 0, nullptr); });
  Refused(CGR_ERROR_NULL_POINTER, { "stats" }, [&] { return cgr_runtime_stats(rt, nullptr); });
  Refused(CGR_ERROR_NULL_POINTER, { "stats" }, [&] { return cgr_runtime_graph_stats(rt, 0, nullptr); });
  Refused(CGR_ERROR_NULL_POINTER, { "view" }, [&] { return cgr_buffer_get(rt, CGR_BUFFER_COUNTS, 0, nullptr); });
  cgr_buffer_view view = CGR_BUFFER_VIEW_INIT;
  Refused(CGR_ERROR_NULL_POINTER, { "runtime" }, [&] { return cgr_buffer_get(nullptr, CGR_BUFFER_COUNTS, 0, &view); });
  Refused(CGR_ERROR_NULL_POINTER, { "name" }, [&] { return cgr_buffer_get_declared(rt, nullptr, &view); });
  int32_t region = 0;
  Refused(CGR_ERROR_NULL_POINTER, { "base" }, [&] { return cgr_region_register(rt, nullptr, 16, &region); });
  Refused(CGR_ERROR_NULL_POINTER, { "region" }, [&] { return cgr_region_register(rt, toy_->engine.q[0], 16, nullptr); });
  Refused(CGR_ERROR_NULL_POINTER, { "recorder" }, [&] { return cgr_record_get_info(nullptr, nullptr); });
  Refused(CGR_ERROR_NULL_POINTER, { "recorder" }, [&] { return cgr_record_attention(nullptr, nullptr); });
  Refused(CGR_ERROR_NULL_POINTER, { "recorder" }, [&] { return cgr_record_call(nullptr, ToyRecord, nullptr); });
  batch.rows = nullptr;
  PrepareRefused(CGR_ERROR_NULL_POINTER, { "rows" }, batch);
}

TEST_P(ApiErrors, NullIsHarmlessWhereNothingIsReturned) {
  EXPECT_EQ(cgr_runtime_completed(nullptr), 0u);
  EXPECT_EQ(cgr_runtime_num_keys(nullptr), 0);
  EXPECT_EQ(cgr_runtime_device(nullptr), nullptr);
  const char *reason = nullptr;
  cgr_runtime_graph_mode(nullptr, &reason);
  cgr_runtime_graph_mode(toy_->rt, nullptr);
  CGR_EXPECT_OK(cgr_runtime_destroy(nullptr));
  CGR_EXPECT_OK(cgr_device_close(nullptr));
  CGR_EXPECT_OK(cgr_memory_free(toy_->dev, nullptr));
  CGR_EXPECT_OK(cgr_memory_free_pinned(toy_->dev, nullptr));
}

TEST_P(ApiErrors, StructSizes) {
  cgr_batch batch = Good();
  for (uint32_t size : { 0u, 3u, 4u, 7u }) {
    SCOPED_TRACE(size);
    batch.size = size;
    PrepareRefused(CGR_ERROR_INVALID_STRUCT, { "batch", "size", std::to_string(size) }, batch);
    batch.size = static_cast<uint32_t>(sizeof batch);
    cgr_step step = CGR_STEP_INIT;
    step.size = size;
    Refused(
        CGR_ERROR_INVALID_STRUCT, { "step", "size" }, [&] { return cgr_step_prepare(toy_->rt, &batch, &step); }, 1);
    cgr_stats stats = CGR_STATS_INIT;
    stats.size = size;
    Refused(CGR_ERROR_INVALID_STRUCT, { "stats", "size" }, [&] { return cgr_runtime_stats(toy_->rt, &stats); });
    cgr_graph_stats graph = CGR_GRAPH_STATS_INIT;
    graph.size = size;
    Refused(CGR_ERROR_INVALID_STRUCT, { "stats", "size" }, [&] { return cgr_runtime_graph_stats(toy_->rt, 0, &graph); });
    cgr_request_info info = CGR_REQUEST_INFO_INIT;
    info.size = size;
    Refused(CGR_ERROR_INVALID_STRUCT, { "info", "size" }, [&] { return cgr_request_get_info(toy_->rt, 0, &info); });
    cgr_buffer_view view = CGR_BUFFER_VIEW_INIT;
    view.size = size;
    Refused(CGR_ERROR_INVALID_STRUCT, { "view", "size" }, [&] { return cgr_buffer_get(toy_->rt, CGR_BUFFER_COUNTS, 0, &view); });
    cgr_step_result result = CGR_STEP_RESULT_INIT;
    result.size = size;
    Refused(CGR_ERROR_INVALID_STRUCT, { "result", "size" }, [&] { return cgr_step_wait(toy_->rt, toy_->launched, &result); });
    Refused(CGR_ERROR_INVALID_STRUCT, { "result", "size" }, [&] { return cgr_step_poll(toy_->rt, toy_->launched, &result); });
    if (size >= 4)
      continue; // an old struct of device_info may be that short
    cgr_device_info device = CGR_DEVICE_INFO_INIT;
    device.size = size;
    Refused(CGR_ERROR_INVALID_STRUCT, { "info", "size" }, [&] { return cgr_device_get_info(toy_->dev, &device); });
  }
}

TEST_P(ApiErrors, UnknownEnumerators) {
  cgr_buffer_view view = CGR_BUFFER_VIEW_INIT;
  for (int32_t buffer : { -1, static_cast<int32_t>(CGR_BUFFER_COUNT_), 1000 })
    Refused(CGR_ERROR_INVALID_ENUM, { "buffer", std::to_string(buffer) },
            [&] { return cgr_buffer_get(toy_->rt, static_cast<cgr_buffer>(buffer), 0, &view); });
  for (int32_t index : { -1, 1, 4 })
    Refused(CGR_ERROR_INVALID_ARGUMENT, { "index", std::to_string(index) },
            [&] { return cgr_buffer_get(toy_->rt, CGR_BUFFER_PAGE_TABLE, index, &view); });
  Refused(CGR_ERROR_INVALID_ARGUMENT, { "nobody" }, [&] { return cgr_buffer_get_declared(toy_->rt, "nobody", &view); });
  cgr_key key = { 7, 0, 0, 4, 4, 1, 0 };
  Good();
  ItemsRefused(CGR_ERROR_INVALID_ENUM, { "forced_key", "kind", "7" }, toy_->Decode(rows_), &key);
  Good();
  cgr_batch batch = Good();
  uint32_t flags[] = { 0, 0x80, 0 };
  batch.flags = flags;
  PrepareRefused(CGR_ERROR_INVALID_ENUM, { "flags[1]", "0x80" }, batch);
}

TEST_P(ApiErrors, NumbersOfRequestsAndTokens) {
  cgr_batch batch = Good();
  batch.num_requests = toy_->o.max_requests + 1;
  PrepareRefused(CGR_ERROR_TOO_MANY_REQUESTS, { "num_requests", "9", "8" }, batch);
  batch.num_requests = INT_MAX;
  PrepareRefused(CGR_ERROR_TOO_MANY_REQUESTS, { "num_requests", "2147483647", "8" }, batch);
  for (int32_t bad : { -1, INT_MIN }) {
    batch.num_requests = bad;
    PrepareRefused(CGR_ERROR_INVALID_ARGUMENT, { "num_requests", std::to_string(bad) }, batch);
  }
  batch = Good();
  for (int32_t row : rows_)
    toy_->Reserve(row, 96);
  std::vector<int32_t> lens = { 1, 64, 0 }, tokens(200, 3);
  batch.query_lens = lens.data();
  batch.tokens = tokens.data();
  PrepareRefused(CGR_ERROR_TOO_MANY_TOKENS, { "65", "64" }, batch);
  lens = { INT_MAX, INT_MAX, 2 }; // the sum is 0 in 32 bits
  PrepareRefused(CGR_ERROR_SEQUENCE_TOO_LONG, { "row 0", "2147483652", "160" }, batch);
  lens = { 1, -1, 1 };
  PrepareRefused(CGR_ERROR_INVALID_ARGUMENT, { "query_lens[1]", "-1" }, batch);
  lens = { 1, 1, INT_MIN };
  PrepareRefused(CGR_ERROR_INVALID_ARGUMENT, { "query_lens[2]" }, batch);
}

TEST_P(ApiErrors, Rows) {
  cgr_batch batch = Good();
  int32_t closed = toy_->Open();
  toy_->Close(closed);
  std::vector<int32_t> rows;
  batch.rows = nullptr;
  for (int32_t bad : { closed, -1, toy_->o.max_rows, INT_MAX, INT_MIN }) {
    SCOPED_TRACE(bad);
    rows = { rows_[0], bad, rows_[2] };
    batch.rows = rows.data();
    cgr_status status = bad == closed ? CGR_ERROR_ROW_CLOSED : CGR_ERROR_INVALID_ARGUMENT;
    PrepareRefused(status, { "rows[1]", std::to_string(bad) }, batch);
    int32_t page = 2;
    Refused(status, { "row", std::to_string(bad) }, [&] { return cgr_request_close(toy_->rt, bad); });
    Refused(status, { "row", std::to_string(bad) }, [&] { return cgr_request_rewind(toy_->rt, bad, 0); });
    Refused(status, { "row", std::to_string(bad) }, [&] { return cgr_request_set_pages(toy_->rt, bad, 0, 0, &page, 1); });
  }
  cgr_request_info info = CGR_REQUEST_INFO_INIT;
  for (int32_t bad : { -1, toy_->o.max_rows })
    Refused(CGR_ERROR_INVALID_ARGUMENT, { "row", std::to_string(bad) },
            [&] { return cgr_request_get_info(toy_->rt, bad, &info); });
  rows = { rows_[0], rows_[1], rows_[0] };
  batch.rows = rows.data();
  PrepareRefused(CGR_ERROR_ROW_REPEATED, { "rows[2]", std::to_string(rows_[0]) }, batch);
  std::vector<int32_t> lens = { 0, 1, 0 }; // twice, though empty
  batch.query_lens = lens.data();
  PrepareRefused(CGR_ERROR_ROW_REPEATED, { "rows[2]" }, batch);
}

TEST_P(ApiErrors, RowsRunOut) {
  std::vector<int32_t> more;
  while (static_cast<int32_t>(toy_->requests.size()) < toy_->o.max_rows)
    more.push_back(toy_->Open());
  int32_t row = -7;
  Refused(CGR_ERROR_TOO_MANY_REQUESTS, { "max_rows", "16" }, [&] { return cgr_request_open(toy_->rt, &row); });
  for (int32_t open : more)
    toy_->Close(open);
  toy_->Close(toy_->Open());
}

TEST_P(ApiErrors, Tokens) {
  cgr_batch batch = Good();
  std::vector<int32_t> lens = { 1, 2, 1 }, tokens = { 4, 5, -2, 6 };
  for (int32_t row : rows_)
    toy_->Reserve(row, 40);
  batch.query_lens = lens.data();
  batch.tokens = tokens.data();
  PrepareRefused(CGR_ERROR_INVALID_ARGUMENT, { "tokens[2]", "-2" }, batch);
  tokens[2] = CGR_TOKEN_LAST; // not the first one of its request
  PrepareRefused(CGR_ERROR_INVALID_ARGUMENT, { "tokens[2]" }, batch);
  batch.tokens = nullptr;
  PrepareRefused(CGR_ERROR_NULL_POINTER, { "tokens", "2" }, batch);
  int32_t fresh = toy_->Open(); // has no last token
  toy_->Reserve(fresh, 1);
  ItemsRefused(CGR_ERROR_INVALID_ARGUMENT, { "row " + std::to_string(fresh), "CGR_TOKEN_LAST" },
               { { fresh, { CGR_TOKEN_LAST }, false } });
  toy_->Close(fresh);
}

TEST_P(ApiErrors, SequencesAndPages) {
  int32_t row = toy_->Open();
  toy_->Reserve(row, toy_->o.max_seq_len);
  for (int32_t n = 0; n < 2; n++)
    toy_->Step({ { row, Toy::Prompt(64, 1), true } });
  toy_->Step({ { row, Toy::Prompt(31, 1), false } }); // 159 of 160
  ItemsRefused(CGR_ERROR_SEQUENCE_TOO_LONG, { std::to_string(row), "161", "160" },
               { { rows_[0], { 3 }, false }, { row, { 1, 2 }, false } });
  toy_->Step({ { row, { 1 }, false } });
  ItemsRefused(CGR_ERROR_SEQUENCE_TOO_LONG, { std::to_string(row), "161", "160" }, { { row, { 1 }, false } });
  ItemsRefused(CGR_ERROR_SEQUENCE_TOO_LONG, { std::to_string(row) }, { { row, { CGR_TOKEN_LAST }, false } });
  toy_->Step({ { row, {}, false } }); // no new token: fits
  toy_->Close(row);

  int32_t bare = toy_->Open();
  ItemsRefused(CGR_ERROR_PAGES_MISSING, { std::to_string(bare), "1", "0" },
               { { rows_[0], { 3 }, false }, { bare, { 1 }, false } });
  toy_->Reserve(bare, 16);
  ItemsRefused(CGR_ERROR_PAGES_MISSING, { std::to_string(bare), "17", "16" }, { { bare, Toy::Prompt(17, 1), false } });
  toy_->Step({ { bare, Toy::Prompt(16, 1), false } });
  ItemsRefused(CGR_ERROR_PAGES_MISSING, { std::to_string(bare), "17", "16" }, { { bare, { CGR_TOKEN_LAST }, false } });
  toy_->Step(toy_->Decode({ bare }));
  toy_->Close(bare);
}

TEST_P(ApiErrors, SetPages) {
  cgr_runtime *rt = toy_->rt;
  int32_t row = rows_[1]; // two pages
  ASSERT_EQ(toy_->Info(row).num_pages, 2);
  for (int32_t bad : { 0, 1, -1, toy_->o.num_pages, INT_MAX, INT_MIN }) {
    std::vector<int32_t> pages = { 7, bad, 9 };
    Refused(CGR_ERROR_PAGE_OUT_OF_RANGE, { "pages[1]", std::to_string(bad) },
            [&] { return cgr_request_set_pages(rt, row, 0, 1, pages.data(), 3); });
  }
  std::vector<int32_t> good(40, 7);
  Refused(CGR_ERROR_INVALID_ARGUMENT, { "group", "1" }, [&] { return cgr_request_set_pages(rt, row, 1, 0, good.data(), 1); });
  Refused(CGR_ERROR_INVALID_ARGUMENT, { "group", "-1" }, [&] { return cgr_request_set_pages(rt, row, -1, 0, good.data(), 1); });
  Refused(CGR_ERROR_INVALID_ARGUMENT, { "first", "3", "2" },
          [&] { return cgr_request_set_pages(rt, row, 0, 3, good.data(), 1); });
  Refused(CGR_ERROR_INVALID_ARGUMENT, { "first", "-1" }, [&] { return cgr_request_set_pages(rt, row, 0, -1, good.data(), 1); });
  Refused(CGR_ERROR_INVALID_ARGUMENT, { "count", "-1" }, [&] { return cgr_request_set_pages(rt, row, 0, 0, good.data(), -1); });
  Refused(CGR_ERROR_SEQUENCE_TOO_LONG, { "10" }, [&] { return cgr_request_set_pages(rt, row, 0, 2, good.data(), 9); });
  Refused(CGR_ERROR_SEQUENCE_TOO_LONG, { "10" }, [&] { return cgr_request_set_pages(rt, row, 0, 2, good.data(), INT_MAX); });
  CGR_EXPECT_OK(cgr_request_set_pages(rt, row, 0, 2, nullptr, 0));
}

TEST_P(ApiErrors, Rewind) {
  cgr_runtime *rt = toy_->rt;
  int32_t row = rows_[1]; // 17 tokens, two pages
  Refused(CGR_ERROR_INVALID_ARGUMENT, { "num_tokens", "-1" }, [&] { return cgr_request_rewind(rt, row, -1); });
  Refused(CGR_ERROR_PAGES_MISSING, { "num_tokens", "33", "32" }, [&] { return cgr_request_rewind(rt, row, 33); });
  Refused(CGR_ERROR_SEQUENCE_TOO_LONG, { "num_tokens", "161", "160" }, [&] { return cgr_request_rewind(rt, row, 161); });
  Refused(CGR_ERROR_SEQUENCE_TOO_LONG, { "num_tokens" }, [&] { return cgr_request_rewind(rt, row, INT_MAX); });
}

TEST_P(ApiErrors, OneStepIsPreparedAtATime) {
  Toy &toy = *toy_;
  CGR_ASSERT_OK(toy.Prepare(toy.Decode(rows_)));
  cgr_step first = toy.step, other = CGR_STEP_INIT;
  cgr_batch empty = CGR_BATCH_INIT;
  Refused(
      CGR_ERROR_STATE, { "prepared" }, [&] { return cgr_step_prepare(toy.rt, &empty, &other); }, 1);
  Refused(CGR_ERROR_STATE, { "prepared" }, [&] { return cgr_runtime_capture(toy.rt, ToyRecord, &toy.engine); });
  Refused(CGR_ERROR_STATE, { "prepared" }, [&] { return cgr_runtime_warmup(toy.rt, ToyRecord, &toy.engine); });
  Refused(CGR_ERROR_STATE, { "row", std::to_string(rows_[1]) }, [&] { return cgr_request_close(toy.rt, rows_[1]); });
  Refused(CGR_ERROR_STATE, { "row", std::to_string(rows_[1]) }, [&] { return cgr_request_rewind(toy.rt, rows_[1], 3); });
  cgr_step never = CGR_STEP_INIT;
  Refused(CGR_ERROR_STATE, { "step" }, [&] { return cgr_step_launch(toy.rt, &never, toy.stream); });
  Refused(CGR_ERROR_STATE, { "step" }, [&] { return cgr_step_cancel(toy.rt, &never); });
  CGR_ASSERT_OK(toy.Launch());
  Refused(CGR_ERROR_STATE, { "step" }, [&] { return cgr_step_launch(toy.rt, &first, toy.stream); });
  Refused(CGR_ERROR_STATE, { "step" }, [&] { return cgr_step_launch(toy.rt, &toy.step, toy.stream); });
  Refused(CGR_ERROR_STATE, { "step" }, [&] { return cgr_step_cancel(toy.rt, &first); });
  toy.CheckAll();
  CGR_ASSERT_OK(toy.Prepare(toy.Decode(rows_)));
  first = toy.step;
  CGR_ASSERT_OK(cgr_step_cancel(toy.rt, &toy.step));
  Refused(CGR_ERROR_STATE, { "step" }, [&] { return cgr_step_launch(toy.rt, &first, toy.stream); });
  Refused(CGR_ERROR_STATE, { "step" }, [&] { return cgr_step_cancel(toy.rt, &first); });
  CGR_ASSERT_OK(toy.Prepare(toy.Decode(rows_)));
  Refused(CGR_ERROR_STATE, { "step" }, [&] { return cgr_step_launch(toy.rt, &first, toy.stream); }); // an older one
  CGR_ASSERT_OK(toy.Launch());
  toy.CheckAll();
}

TEST_P(ApiErrors, ResultsOfStepsThatAreNotThere) {
  Toy &toy = *toy_;
  cgr_step_result result = CGR_STEP_RESULT_INIT;
  for (uint64_t seq : { uint64_t{ 0 }, toy.launched + 1, toy.launched + 1000, UINT64_MAX }) {
    SCOPED_TRACE(seq);
    Refused(CGR_ERROR_INVALID_ARGUMENT, { "seq", std::to_string(seq) }, [&] { return cgr_step_wait(toy.rt, seq, &result); });
    Refused(CGR_ERROR_INVALID_ARGUMENT, { "seq", std::to_string(seq) }, [&] { return cgr_step_poll(toy.rt, seq, &result); });
  }
  uint64_t old = toy.launched;
  for (int n = 0; n < 4; n++)
    toy.Step(toy.Decode(rows_));
  Refused(CGR_ERROR_EXPIRED, { "seq", std::to_string(old) }, [&] { return cgr_step_wait(toy.rt, old, &result); });
  Refused(CGR_ERROR_EXPIRED, { "seq", std::to_string(old) }, [&] { return cgr_step_poll(toy.rt, old, &result); });
}

TEST_P(ApiErrors, ForcedKeys) {
  Toy &toy = *toy_;
  std::vector<ToyItem> items = toy.Decode(rows_);
  struct Bad {
    cgr_key key;
    cgr_status status;
    Words words;
  };
  for (const Bad &bad : std::vector<Bad>{
           { { CGR_KIND_FULL, 0, 0, 2, 2, 1, 0 }, CGR_ERROR_INVALID_ARGUMENT, { "forced_key", "2", "3" } }, // too small
           { { CGR_KIND_FULL, 0, 0, 3, 3, 1, 0 }, CGR_ERROR_STATE, { "forced_key" } },                      // not a bucket
           { { CGR_KIND_FULL, 0, 0, 4, 4, 2, 0 }, CGR_ERROR_INVALID_ARGUMENT, { "forced_key" } },           // another length
           { { CGR_KIND_FULL, 0, 0, 4, 4, 1, 9 }, CGR_ERROR_INVALID_ARGUMENT, { "forced_key" } },           // another variant
           { { CGR_KIND_FULL, 1, 0, 4, 4, 1, 0 }, CGR_ERROR_INVALID_ARGUMENT, { "forced_key" } },
           { { CGR_KIND_FULL, 0, 1, 4, 4, 1, 0 }, CGR_ERROR_INVALID_ARGUMENT, { "forced_key" } },
           { { CGR_KIND_PIECEWISE, 0, 0, 4, 4, 0, 0 }, CGR_ERROR_STATE, { "forced_key", "kind 1" } },
           { { CGR_KIND_NONE, 0, 0, 2, 2, 0, 0 }, CGR_ERROR_INVALID_ARGUMENT, { "forced_key" } },
           { { CGR_KIND_NONE, 0, 0, 2, 8, 0, 0 }, CGR_ERROR_INVALID_ARGUMENT, { "forced_key", "2 tokens" } },
           { { CGR_KIND_NONE, 0, 0, 65, 8, 0, 0 }, CGR_ERROR_INVALID_ARGUMENT, { "forced_key", "65", "64" } },
           { { CGR_KIND_NONE, 0, 0, 8, 9, 0, 0 }, CGR_ERROR_INVALID_ARGUMENT, { "forced_key", "9", "8" } },
           { { CGR_KIND_NONE, 0, 0, -8, -8, 0, 0 }, CGR_ERROR_INVALID_ARGUMENT, { "forced_key" } } }) {
    SCOPED_TRACE(std::to_string(bad.key.kind) + " " + std::to_string(bad.key.num_tokens) + " " +
                 std::to_string(bad.key.num_requests));
    ItemsRefused(bad.status, bad.words, items, &bad.key);
  }
  cgr_key full = { CGR_KIND_FULL, 0, 0, 4, 4, 1, 0 };
  ItemsRefused(CGR_ERROR_INVALID_ARGUMENT, { "forced_key" }, // not uniform
               { { rows_[0], { CGR_TOKEN_LAST }, false }, { rows_[1], {}, false } }, &full);
  for (const cgr_key &key : std::vector<cgr_key>{ { CGR_KIND_FULL, 0, 0, 4, 4, 1, 0 },
                                                  { CGR_KIND_FULL, 0, 0, 8, 8, 1, 0 },
                                                  { CGR_KIND_NONE, 0, 0, 3, 3, 0, 0 },
                                                  { CGR_KIND_NONE, 0, 0, 8, 8, 0, 0 },
                                                  { CGR_KIND_NONE, 0, 0, 64, 5, 0, 0 } }) {
    toy.Step(toy.Decode(rows_), &key);
    EXPECT_EQ(toy.step.reason, CGR_REASON_FORCED);
    EXPECT_EQ(toy.step.key.kind, key.kind);
    EXPECT_EQ(toy.step.key.num_tokens, key.num_tokens);
    EXPECT_EQ(toy.step.key.num_requests, key.num_requests);
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, ApiErrors,
                         ::testing::Values(HostParam(CGR_HOST_ASYNC), HostParam(CGR_HOST_LATEST), CudaParam()), DeviceLabel);

} // namespace
} // namespace cgr_test

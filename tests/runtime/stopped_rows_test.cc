// One row that ends: what the host does meanwhile, what it counts afterwards, and what backends get.
#include "cgr/stops.h"
#include "tests/support/guess_engine.h"
#include "tests/support/tiny_engine.h"

namespace cgr_test {
namespace {

using namespace guesses;

class OneRow {
public:
  explicit OneRow(cgr_host_schedule schedule, int32_t num_pages = 2) : OneRow(HostParam(schedule), num_pages) {}
  OneRow(const DeviceParam &device, int32_t num_pages) : engine(device, kMost, 34, false, CGR_MODE_FULL, 2) { Open(num_pages); }
  ~OneRow() { CGR_EXPECT_OK(cgr_request_close(engine.rt, row)); }
  void Open(int32_t num_pages) {
    CGR_EXPECT_OK(cgr_request_open(engine.rt, 77, &row));
    for (int32_t p = 0; p < num_pages; p++) {
      const int32_t page = 2 + p;
      CGR_EXPECT_OK(cgr_request_set_pages(engine.rt, row, 0, p, &page, 1));
    }
  }
  void EndAt(int32_t max_length) {
    cgr_stops stops = CGR_STOPS_INIT;
    stops.max_length = max_length;
    CGR_EXPECT_OK(cgr_request_set_stops(engine.rt, row, &stops));
  }
  cgr_mark Launch(const cgr_batch &batch) {
    cgr_step step = CGR_STEP_INIT;
    CGR_EXPECT_OK(cgr_step_prepare(engine.rt, &batch, &step));
    CGR_EXPECT_OK(cgr_step_launch(engine.rt, &step, engine.stream));
    return step.mark;
  }
  cgr_mark Launch(const List &tokens) {
    const int32_t len = int32_t(tokens.size());
    return Launch(BatchOf(1, &row, tokens.data(), &len));
  }
  // Of the result: how many tokens, and the end.
  std::pair<int32_t, int32_t> Wait(cgr_mark mark) {
    CGR_EXPECT_OK(cgr_step_wait(engine.rt, mark, -1, &result));
    return { result.num_tokens[0], result.ended[0] };
  }
  cgr_request_info Info() { return engine.Info(row); }
  // Once all of its steps have completed.
  void ExpectExact(int32_t length, cgr_end end) {
    EXPECT_EQ(Info().num_tokens, length);
    EXPECT_EQ(Info().min_tokens, length);
    EXPECT_EQ(Info().ended, end);
    EXPECT_EQ(engine.Length(row), end == CGR_END_NONE ? length : INT32_MIN + length);
  }

  GuessEngine engine;
  int32_t row = -1;
  cgr_step_result result = CGR_STEP_RESULT_INIT;
};

using Told = std::pair<int32_t, int32_t>;

const List kPrompt = { 1, 2, 3, 4 };

// A length that is set while a step is under way that ends the row is that of a row which goes on.
TEST(StoppedRow, WhoseLengthIsSetGoesOn) {
  OneRow r(CGR_SCHEDULE_LATEST);
  r.EndAt(5);
  const cgr_mark mark = r.Launch(kPrompt);
  ASSERT_LT(Completed(r.engine.rt), mark.seq);
  CGR_ASSERT_OK(cgr_request_set_length(r.engine.rt, r.row, 4));
  EXPECT_EQ(r.Wait(mark), Told(1, CGR_END_LENGTH));
  EXPECT_EQ(r.Info().ended, CGR_END_NONE);
  EXPECT_EQ(r.Wait(r.Launch(List{ 5 })), Told(1, CGR_END_LENGTH)) << "it has work again, and ends again";
  r.ExpectExact(5, CGR_END_LENGTH);
}

TEST(StoppedRow, IsNotTheRowsNextRequest) {
  OneRow r(CGR_SCHEDULE_LATEST);
  r.EndAt(5);
  const int32_t before = r.row;
  const cgr_mark mark = r.Launch(kPrompt);
  CGR_ASSERT_OK(cgr_request_close(r.engine.rt, r.row));
  r.Open(2);
  ASSERT_EQ(r.row, before);
  EXPECT_EQ(r.Wait(mark), Told(1, CGR_END_LENGTH));
  EXPECT_EQ(r.Info().ended, CGR_END_NONE);
  EXPECT_EQ(r.Info().num_tokens, 0);
  EXPECT_EQ(r.Wait(r.Launch(kPrompt)), Told(1, CGR_END_NONE)) << "it has no stops";
  r.ExpectExact(4, CGR_END_NONE);
  r.EndAt(6);
  EXPECT_EQ(r.Wait(r.Launch(List{ CGR_TOKEN_LAST })), Told(1, CGR_END_LENGTH));
  CGR_ASSERT_OK(cgr_request_close(r.engine.rt, r.row)); /* the next one has not ended either, although this was known to have */
  r.Open(2);
  ASSERT_EQ(r.row, before);
  EXPECT_EQ(r.Info().ended, CGR_END_NONE);
  EXPECT_EQ(r.Wait(r.Launch(kPrompt)), Told(1, CGR_END_NONE));
  r.ExpectExact(4, CGR_END_NONE);
}

// Stops that are set before the host sees the end do not bring it back: that would be a row of unknown length. Later ones do.
TEST(StoppedRow, IsBroughtBackOnceItIsKnown) {
  const List want = Continued(kPrompt, 3);
  OneRow r(CGR_SCHEDULE_LATEST);
  r.EndAt(5);
  const cgr_mark first = r.Launch(kPrompt), second = r.Launch(List{ CGR_TOKEN_LAST });
  EXPECT_EQ(r.Info().num_tokens, 5) << "a bound";
  r.EndAt(0);
  EXPECT_EQ(r.Wait(first), Told(1, CGR_END_LENGTH));
  const cgr_mark third = r.Launch(List{ CGR_TOKEN_LAST });
  r.EndAt(7);
  EXPECT_EQ(r.Wait(second), Told(0, CGR_END_BEFORE));
  EXPECT_EQ(r.Wait(third), Told(0, CGR_END_BEFORE));
  EXPECT_EQ(r.Info().ended, CGR_END_NONE);
  EXPECT_EQ(r.Wait(r.Launch(List{ CGR_TOKEN_LAST })), Told(1, CGR_END_NONE));
  EXPECT_EQ(r.result.tokens[0], want[1]);
  EXPECT_EQ(r.Wait(r.Launch(List{ CGR_TOKEN_LAST })), Told(1, CGR_END_LENGTH));
  EXPECT_EQ(r.result.tokens[0], want[2]);
  r.ExpectExact(6, CGR_END_LENGTH);
}

// Neither the length nor missing pages of a row that has ended make a batch bad, given whole or standing.
TEST(StoppedRow, NeedsNoPages) {
  for (bool standing : { false, true }) {
    OneRow r(CGR_SCHEDULE_EARLIEST, 1);
    List prompt(14, 3);
    r.EndAt(16);
    EXPECT_EQ(r.Wait(r.Launch(prompt)), Told(1, CGR_END_NONE));
    if (standing)
      CGR_ASSERT_OK(cgr_standing_add(r.engine.rt, nullptr, r.row, 1, nullptr, 0));
    for (int32_t s = 0; s < 10; s++) {
      const cgr_mark mark = standing ? r.Launch(StandingBatch()) : r.Launch(List{ CGR_TOKEN_LAST });
      EXPECT_EQ(r.Wait(mark), s == 0 ? Told(1, CGR_END_LENGTH) : Told(0, CGR_END_BEFORE)) << "step " << s;
    }
    r.ExpectExact(15, CGR_END_LENGTH);
    if (standing)
      CGR_ASSERT_OK(cgr_standing_remove(r.engine.rt, nullptr, r.row));
    EXPECT_EQ(r.Wait(r.Launch(prompt)), Told(0, CGR_END_BEFORE)) << "28 tokens with one page";
    CGR_ASSERT_OK(cgr_request_drop_pages(r.engine.rt, r.row, 0, 0, 1));
    EXPECT_EQ(r.Wait(r.Launch(List{ 1 })), Told(0, CGR_END_BEFORE));
  }
}

// Where another row lacks pages, a row that has ended is no reason to say that the batch can never be.
TEST(StoppedRow, IsNotTooLong) {
  OneRow r(CGR_SCHEDULE_EARLIEST, kSeqLen / kPage);
  for (int32_t left = 150; left > 0; left -= 50)
    r.Wait(r.Launch(List(50, 3)));
  r.EndAt(152);
  EXPECT_EQ(r.Wait(r.Launch(List{ CGR_TOKEN_LAST })), Told(1, CGR_END_LENGTH));
  int32_t other = -1;
  CGR_ASSERT_OK(cgr_request_open(r.engine.rt, 78, &other));
  const int32_t rows[2] = { other, r.row }, lens[2] = { 1, 14 };
  const List tokens(15, 1);
  const cgr_batch batch = BatchOf(2, rows, tokens.data(), lens);
  cgr_step step = CGR_STEP_INIT;
  ExpectMessage(cgr_step_prepare(r.engine.rt, &batch, &step), CGR_ERROR_PAGES_MISSING, { "row " + std::to_string(other) });
  CGR_ASSERT_OK(cgr_request_close(r.engine.rt, other));
}

// It writes no page, so another row may write one that both have, behind its tokens.
TEST(StoppedRow, WritesNoPage) {
  DeviceParam param = HostParam(CGR_SCHEDULE_EARLIEST);
  param.config.layer = cgr_validation_layer();
  OneRow r(param, 1);
  r.EndAt(5);
  EXPECT_EQ(r.Wait(r.Launch(kPrompt)), Told(1, CGR_END_LENGTH));
  int32_t other = -1;
  const int32_t page = 2, tokens[2] = { CGR_TOKEN_LAST, 9 };
  CGR_ASSERT_OK(cgr_request_open(r.engine.rt, 78, &other));
  CGR_ASSERT_OK(cgr_request_set_pages(r.engine.rt, other, 0, 0, &page, 1));
  CGR_ASSERT_OK(cgr_request_set_length(r.engine.rt, other, 4));
  const int32_t rows[2] = { r.row, other };
  r.Wait(r.Launch(BatchOf(2, rows, tokens)));
  EXPECT_EQ(r.result.num_tokens[1], 1);
  EXPECT_EQ(r.result.tokens[r.result.token_stride], Continued({ 1, 2, 3, 4, 9 }, 1)[0]);
  CGR_ASSERT_OK(cgr_request_close(r.engine.rt, other));
}

// A chunk of a prompt that it is given is as empty as any other work, and does not take the token that it ended with.
TEST(StoppedRow, KeepsItsToken) {
  const List want = Continued(kPrompt, 2);
  for (bool standing : { false, true }) {
    OneRow r(CGR_SCHEDULE_EARLIEST);
    const int32_t chunk[2] = { 8, 9 }, len = 2, one = 1;
    const uint32_t partial = CGR_REQUEST_PARTIAL;
    r.EndAt(5);
    EXPECT_EQ(r.Wait(r.Launch(kPrompt)), Told(1, CGR_END_LENGTH));
    cgr_batch batch = BatchOf(1, &r.row, chunk, &len);
    batch.flags = &partial;
    if (standing)
      CGR_ASSERT_OK(cgr_standing_add(r.engine.rt, nullptr, r.row, 2, chunk, partial));
    EXPECT_EQ(r.Wait(r.Launch(standing ? StandingBatch() : batch)), Told(0, CGR_END_BEFORE));
    r.EndAt(0);
    if (standing)
      CGR_ASSERT_OK(cgr_standing_update(r.engine.rt, nullptr, r.row, 1, nullptr, 0));
    EXPECT_EQ(r.Wait(r.Launch(standing ? StandingBatch() : BatchOf(1, &r.row, nullptr, &one))), Told(1, CGR_END_NONE));
    EXPECT_EQ(r.result.tokens[0], want[1]);
    if (standing)
      CGR_ASSERT_OK(cgr_standing_remove(r.engine.rt, nullptr, r.row));
  }
}

// A step that was prepared before the end was known, and is launched after it.
TEST(StoppedRow, OfThePreparedStep) {
  OneRow r(CGR_SCHEDULE_LATEST);
  r.EndAt(5);
  const cgr_mark mark = r.Launch(kPrompt);
  const List tokens = { CGR_TOKEN_LAST, 1, 2 };
  const int32_t len = 3;
  const uint32_t flags = CGR_REQUEST_DRAFTS(2);
  cgr_batch batch = BatchOf(1, &r.row, tokens.data(), &len);
  cgr_step step = CGR_STEP_INIT;
  batch.flags = &flags;
  CGR_ASSERT_OK(cgr_step_prepare(r.engine.rt, &batch, &step));
  EXPECT_EQ(r.Wait(mark), Told(1, CGR_END_LENGTH));
  CGR_ASSERT_OK(cgr_step_launch(r.engine.rt, &step, r.engine.stream));
  EXPECT_EQ(r.Info().num_tokens, 4);
  EXPECT_EQ(r.Info().min_tokens, 4);
  EXPECT_EQ(r.Wait(step.mark), Told(0, CGR_END_BEFORE));
  r.ExpectExact(4, CGR_END_LENGTH);
  EXPECT_EQ(StatsOf(r.engine.rt).drafts, 0u) << "nothing was verified";
}

// A row of 2 tokens that ends with the third one, in a runtime whose backend plans on the host: as long as a step is under way
// that may have ended it, its length is a bound; once it has, it is that of the new tokens alone.
struct Seen {
  uint32_t flags;
  int32_t seq_len;
};

class StopPlans : public ::testing::TestWithParam<bool> {
protected:
  void SetUp() override {
    backend_.name = "that plans", backend_.context = &seen_, backend_.plan_bytes = 64;
    backend_.flags = GetParam() ? unsigned(CGR_BACKEND_PLANS_BOUNDS) : 0u;
    backend_.support = [](void *, const cgr_device_info *, const cgr_group *) { return CGR_SUPPORT_ALWAYS; };
    backend_.record = [](void *, cgr_recorder *, const cgr_attention *) { return CGR_OK; };
    backend_.plan_host = [](void *context, void *, const cgr_plan_step *step) {
      if (!(step->flags & CGR_PLAN_CAPTURE))
        static_cast<std::vector<Seen> *>(context)->push_back({ step->flags, step->seq_lens[0] });
      return CGR_OK;
    };
    options_.layers = { { 1, 0 } };
    options_.adjust = [this](cgr_config *config) { config->max_stop_tokens = 1, config->backends = &backend_; };
  }
  HostDevice device_{ CGR_SCHEDULE_LATEST };
  std::vector<Seen> seen_;
  cgr_backend backend_ = CGR_BACKEND_INIT;
  TinyOptions options_;
};

TEST_P(StopPlans, AreToldOfBounds) {
  Captured<TinyEngine> engine(device_, options_);
  int32_t row = -1;
  const int32_t page = 5, token = 41;
  cgr_stops stops = CGR_STOPS_INIT;
  stops.max_length = 3;
  CGR_ASSERT_OK(cgr_request_open(engine.rt, 1, &row));
  CGR_ASSERT_OK(cgr_request_set_pages(engine.rt, row, 0, 0, &page, 1));
  CGR_ASSERT_OK(cgr_request_set_stops(engine.rt, row, &stops));
  cgr_mark mark = {};
  for (int s = 0; s < 4; s++) {
    cgr_step step = CGR_STEP_INIT;
    const cgr_batch batch = BatchOf(1, &row, &token);
    const bool busy = !GetParam() && (s == 1 || s == 2);
    if (busy)
      ExpectMessage(cgr_step_prepare(engine.rt, &batch, &step), CGR_ERROR_BUSY,
                    { "backend that plans: plan_host takes exact lengths",
                      "row 0 of " + std::to_string(s) + " tokens may have ended",
                      "expected step " + std::to_string(mark.seq) + " to be completed" });
    if (busy || (s == 3 && GetParam()))
      CGR_ASSERT_OK(cgr_step_wait(engine.rt, mark, -1, nullptr));
    CGR_ASSERT_OK(cgr_step_prepare(engine.rt, &batch, &step));
    CGR_ASSERT_OK(cgr_step_launch(engine.rt, &step, engine.stream));
    mark = step.mark;
  }
  CGR_ASSERT_OK(cgr_step_wait(engine.rt, mark, -1, nullptr));
  ASSERT_EQ(seen_.size(), 4u);
  const Seen bounds[] = { { 0, 1 }, { CGR_PLAN_BOUNDS, 2 }, { CGR_PLAN_BOUNDS, 3 }, { 0, 1 } };
  const Seen exact[] = { { 0, 1 }, { 0, 2 }, { 0, 1 }, { 0, 1 } }, *want = GetParam() ? bounds : exact;
  for (size_t i = 0; i < 4; i++) {
    EXPECT_EQ(seen_[i].flags, want[i].flags) << i;
    EXPECT_EQ(seen_[i].seq_len, want[i].seq_len) << i;
  }
  CGR_ASSERT_OK(cgr_request_close(engine.rt, row));
}

// One that is in no step whose result is to come has its length, in batches that are given whole and in the standing one.
TEST_P(StopPlans, AreExactForRowsOfNoStep) {
  if (!GetParam())
    GTEST_SKIP() << "of plans that take bounds";
  Captured<TinyEngine> engine(device_, options_);
  int32_t rows[2];
  const int32_t token = 41, pages[2] = { 5, 6 };
  cgr_stops stops = CGR_STOPS_INIT;
  stops.max_length = 9;
  for (int32_t i = 0; i < 2; i++) {
    CGR_ASSERT_OK(cgr_request_open(engine.rt, 1, &rows[i]));
    CGR_ASSERT_OK(cgr_request_set_pages(engine.rt, rows[i], 0, 0, &pages[i], 1));
    CGR_ASSERT_OK(cgr_request_set_stops(engine.rt, rows[i], &stops));
  }
  cgr_step step = CGR_STEP_INIT;
  for (int32_t row : { rows[0], rows[1], rows[1] }) {
    const cgr_batch batch = BatchOf(1, &row, &token);
    CGR_ASSERT_OK(cgr_step_prepare(engine.rt, &batch, &step));
    CGR_ASSERT_OK(cgr_step_launch(engine.rt, &step, engine.stream));
  }
  CGR_ASSERT_OK(cgr_step_wait(engine.rt, step.mark, -1, nullptr));
  CGR_ASSERT_OK(cgr_standing_add(engine.rt, nullptr, rows[0], 1, &token, 0));
  for (int s = 0; s < 2; s++) {
    const cgr_batch batch = StandingBatch();
    CGR_ASSERT_OK(cgr_step_prepare(engine.rt, &batch, &step));
    CGR_ASSERT_OK(cgr_step_launch(engine.rt, &step, engine.stream));
    CGR_ASSERT_OK(cgr_standing_update(engine.rt, nullptr, rows[0], 1, &token, 0));
  }
  CGR_ASSERT_OK(cgr_step_wait(engine.rt, step.mark, -1, nullptr));
  std::vector<uint32_t> flags;
  for (const Seen &seen : seen_)
    flags.push_back(seen.flags);
  EXPECT_EQ(flags, (std::vector<uint32_t>{ 0, 0, CGR_PLAN_BOUNDS, 0, CGR_PLAN_BOUNDS }));
  CGR_ASSERT_OK(cgr_standing_remove(engine.rt, nullptr, rows[0]));
  for (int32_t row : rows)
    CGR_ASSERT_OK(cgr_request_close(engine.rt, row));
}

INSTANTIATE_TEST_SUITE_P(Backends, StopPlans, ::testing::Bool());

// Without max_stop_tokens there is nothing: no memory, no part of results.
TEST(StopMemory, IsThereOnlyWithStops) {
  uint64_t device_bytes[2], pinned_bytes[2];
  for (int32_t most : { 0, 2 }) {
    cgr_group group = CGR_GROUP_INIT;
    group.page_size = kPage, group.num_pages = 34;
    cgr_config config = CGR_CONFIG_INIT;
    config.device = "host", config.groups = &group, config.num_groups = 1, config.max_requests = kRequests;
    config.max_rows = kRows, config.max_tokens = kTokens, config.max_seq_len = kSeqLen, config.max_stop_tokens = most;
    cgr_memory_sizes sizes = CGR_MEMORY_SIZES_INIT;
    CGR_ASSERT_OK(cgr_runtime_memory(&config, &sizes));
    device_bytes[most / 2] = sizes.device_bytes, pinned_bytes[most / 2] = sizes.pinned_bytes;
  }
  EXPECT_EQ(device_bytes[1] - device_bytes[0], 512u) << "13 rows of 5 words, in units of 256 bytes";
  EXPECT_EQ(pinned_bytes[1] - pinned_bytes[0], 4u * 2 * 64) << "two words for each of 8 requests, in 4 slots";
  GuessEngine engine(HostParam(CGR_SCHEDULE_EARLIEST), 0, 34);
  cgr_step step = CGR_STEP_INIT;
  const cgr_batch none = BatchOf(0, nullptr, nullptr);
  cgr_step_result result = CGR_STEP_RESULT_INIT;
  CGR_ASSERT_OK(cgr_step_prepare(engine.rt, &none, &step));
  CGR_ASSERT_OK(cgr_step_launch(engine.rt, &step, engine.stream));
  CGR_ASSERT_OK(cgr_step_wait(engine.rt, step.mark, -1, &result));
  EXPECT_EQ(result.ended, nullptr);
}

} // namespace
} // namespace cgr_test

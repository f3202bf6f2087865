// Random sequences of calls, good and bad, against a small model of rows, pages and lengths, of which graphs are usable, and of
// how many steps of each kind and reason must have run. The engine checks tokens, results, outputs and caches.
#include <cstdlib>

#include "cgr/names.h"
#include "tests/support/refused.h"

namespace cgr_test {
namespace {

struct Case {
  DeviceParam device;
  uint32_t seed;
};

void PrintTo(const Case &made, std::ostream *os) { *os << made.device.Label() << ", seed " << made.seed; }

std::vector<Case> Cases() {
  std::vector<Case> cases;
  for (uint32_t seed = 1; seed <= 8; seed++)
    cases.push_back({ HostParam(CGR_SCHEDULE_RANDOM, seed), seed });
  cases.push_back({ HostParam(CGR_SCHEDULE_LATEST), 101 });
  cases.push_back({ HostParam(CGR_SCHEDULE_ASYNC), 102 });
  cases.push_back({ HostParam(CGR_SCHEDULE_EARLIEST), 103 });
  cases.push_back({ CudaParam(), 104 });
  if (const char *seed = std::getenv("CGR_TEST_SEED")) { // one more, to find or to repeat
    uint32_t number = uint32_t(std::strtoul(seed, nullptr, 0));
    cases.push_back({ HostParam(CGR_SCHEDULE_RANDOM, number), number });
  }
  return cases;
}

class Model : public ::testing::TestWithParam<Case> {
protected:
  static constexpr uint64_t kDepth = 3, kChanges = 12;
  const std::vector<int32_t> buckets_ = { 1, 2, 5 };
  const std::vector<cgr_bucket> pairs_ = { { 4, 3 }, { 10, 4 }, { 10, 8 }, { 24, 8 } };

  void SetUp() override {
    CGR_SKIP_WITHOUT_DEVICE(GetParam().device);
    std::printf("seed %u\n", GetParam().seed);
    random_.seed(GetParam().seed);
    EngineOptions options = OptionsFor(GetParam().device);
    options.buckets = buckets_, options.mixed = pairs_;
    if (IsMixed())
      options.mode = CGR_MODE_FULL;
    options.max_seq_len = 90, options.num_pages = 90, options.max_rows = 10;
    options.adjust = [](cgr_config *config) { config->ring_depth = kDepth, config->max_changes = kChanges; };
    engine_ = std::make_unique<Engine>(options);
    RecordLayer &layer = engine_->state.layer[0];
    spare_ = engine_->Alloc(layer.in_bytes[kQ]);
    CGR_ASSERT_OK(cgr_region_register(engine_->rt, layer.in[kQ].data, 64, &region_));
    CGR_ASSERT_OK(engine_->Capture());
  }
  static bool IsMixed() { return GetParam().seed % 2 == 1; } // steps of other lengths have graphs too
  uint32_t Below(uint32_t n) { return uint32_t(random_()) % n; }
  bool Chance(uint32_t n) { return Below(n) == 0; }
  int32_t AnyRow() {
    std::vector<int32_t> rows = engine_->Rows();
    return rows.empty() ? -1 : rows[Below(uint32_t(rows.size()))];
  }

  // ---- what a batch must result in
  // The smallest graph for this many requests and tokens, computed by hand: (tokens, requests), with 0 tokens if there is none.
  cgr_bucket Smallest(int32_t requests, int32_t tokens, bool uniform) const {
    cgr_bucket best = { 0, 0 };
    for (int32_t bucket : buckets_)
      if (uniform && requests <= bucket && best.num_tokens == 0)
        best = { bucket, bucket };
    for (const cgr_bucket &pair : pairs_)
      if (IsMixed() && requests <= pair.num_requests && tokens <= pair.num_tokens &&
          (best.num_tokens == 0 || pair.num_tokens < best.num_tokens))
        best = pair;
    return best;
  }
  void ExpectChoice(const std::vector<Item> &items, const cgr_step &step) {
    int32_t n = int32_t(items.size()), tokens = 0;
    for (const Item &item : items)
      tokens += int32_t(item.tokens.size());
    bool uniform = std::all_of(items.begin(), items.end(), [](const Item &item) { return item.tokens.size() <= 1; });
    cgr_bucket bucket = Smallest(std::max(n, 1), tokens, uniform);
    bool full = bucket.num_tokens != 0 && !stale_, exact = bucket.num_requests == n && bucket.num_tokens == tokens;
    cgr_reason reason = full                       ? exact ? CGR_REASON_EXACT : CGR_REASON_PADDED
                        : bucket.num_tokens != 0   ? CGR_REASON_STALE
                        : IsMixed() && tokens > 24 ? CGR_REASON_ABOVE_TOKENS
                        : IsMixed() || uniform     ? CGR_REASON_ABOVE_REQUESTS
                                                   : CGR_REASON_NOT_UNIFORM;
    ASSERT_EQ(step.key.kind, full ? CGR_KIND_FULL : CGR_KIND_NONE);
    ASSERT_EQ(std::string(cgr_reason_name(cgr_reason(step.reason))), cgr_reason_name(reason));
    if (full) {
      ASSERT_EQ(step.key.num_requests, bucket.num_requests);
      ASSERT_EQ(step.key.num_tokens, bucket.num_tokens);
    }
  }

  // ---- operations
  std::vector<Item> RandomItems() {
    std::vector<int32_t> rows = engine_->Rows();
    std::shuffle(rows.begin(), rows.end(), random_);
    rows.resize(Below(uint32_t(std::min<size_t>(rows.size(), 8)) + 1));
    std::vector<Item> items;
    bool decode = !Chance(3);
    for (int32_t row : rows) {
      const Request &r = *engine_->requests[row];
      int32_t length = decode ? 1 : int32_t(Below(7));
      if (r.num_tokens + length > engine_->o.max_seq_len || engine_->FreePages() < 8)
        length = 0;
      engine_->Reserve(row, r.num_tokens + length);
      items.push_back(Engine::Chunk(row, length, int32_t(Below(50)), Chance(6)));
      if (length > 0 && r.has_token && !Chance(3))
        items.back().tokens[0] = CGR_TOKEN_LAST;
    }
    return items;
  }
  // Prepares a step, waiting or flushing as the status requires.
  void PrepareSomehow(const std::vector<Item> &items) {
    for (int tries = 0; tries < 100; tries++) {
      cgr_status status = engine_->Prepare(items);
      if (status == CGR_OK)
        return;
      if (status == CGR_ERROR_CHANGES_PENDING) {
        status = Flush();
        ASSERT_TRUE(status == CGR_OK || status == CGR_ERROR_BUSY) << cgr_last_message();
        engine_->changes = 0;
      } else {
        ASSERT_EQ(std::string(cgr_status_name(status)), "CGR_ERROR_BUSY") << cgr_last_message();
      }
      if (engine_->NumInFlight() > 0 && Chance(2))
        engine_->CheckOne();
      else
        engine_->WaitForAll();
      ASSERT_FALSE(HasFatalFailure());
    }
    FAIL() << "prepare finds no end";
  }
  void Step() {
    std::vector<Item> items = RandomItems();
    ASSERT_NO_FATAL_FAILURE(PrepareSomehow(items));
    ASSERT_NO_FATAL_FAILURE(ExpectChoice(items, engine_->step));
    if (Chance(6)) {
      CGR_ASSERT_OK(engine_->Cancel());
      cancelled_++;
      return;
    }
    // Results are kept for depth - 1 more steps; those that carry changes ahead of this one count too.
    while (engine_->NumInFlight() > 0 && (engine_->changes > kChanges || engine_->NumInFlight() >= kDepth))
      ASSERT_NO_FATAL_FAILURE(engine_->CheckOne());
    if (!items.empty() && engine_->step.key.kind == CGR_KIND_NONE && Chance(5)) {
      engine_->CheckAll(); // a step that is given up half-way still writes outputs
      engine_->state.fail_after = int32_t(Below(3));
      CGR_EXPECT(CGR_ERROR_CALLBACK, engine_->Launch());
      engine_->state.fail_after = -1;
      abandoned_++;
      return;
    }
    cgr_step step = engine_->step;
    cgr_stats before = engine_->Stats();
    CGR_ASSERT_OK(engine_->Launch());
    engine_->changes = 0;
    ASSERT_EQ(engine_->Stats().by_reason[step.key.kind][step.reason], before.by_reason[step.key.kind][step.reason] + 1);
    if (Chance(2))
      engine_->CheckAll();
  }
  cgr_status Flush() {
    engine_->CheckAll(); // internal steps overwrite results
    return engine_->Flush();
  }
  void Capture() {
    engine_->CheckAll();
    CGR_ASSERT_OK(engine_->Capture());
    stale_ = false;
  }
  void SetLength() {
    int32_t row = AnyRow();
    engine_->CheckAll();
    if (row >= 0)
      engine_->SetLength(row, int32_t(Below(uint32_t(engine_->requests[row]->num_tokens) + 1)));
  }
  // The pages past its tokens, and perhaps one more, with the tokens in it.
  void DropPages() {
    int32_t row = AnyRow();
    if (row < 0)
      return;
    const Request &r = *engine_->requests[row];
    engine_->CheckAll();
    int32_t keep = std::max(0, (r.num_tokens + 15) / 16 - (Chance(2) ? 1 : 0)), has = int32_t(r.pages.size());
    if (keep >= has)
      return;
    engine_->DropPages(row, keep, has - keep);
    if (keep * 16 >= r.num_tokens)
      return;
    CGR_EXPECT(r.num_tokens < engine_->o.max_seq_len ? CGR_ERROR_PAGES_MISSING : CGR_ERROR_SEQUENCE_TOO_LONG,
               engine_->Prepare({ { row, { 1 } } }));
    engine_->SetLength(row, keep * 16);
  }
  void BadCall() {
    int32_t row = AnyRow(), closed = -1, bad_page = Chance(2) ? engine_->o.num_pages : int32_t(Below(2));
    for (int32_t r = 0; r < engine_->o.max_rows; r++)
      if (engine_->requests.count(r) == 0)
        closed = r;
    uint32_t pick = Below(6);
    if ((pick == 0 && closed < 0) || (pick != 0 && row < 0))
      return;
    Snapshot before(*engine_);
    uint64_t refused = 0;
    cgr_step never = CGR_STEP_INIT;
    never.ticket = Below(1000);
    switch (pick) {
    case 0:
      CGR_EXPECT(CGR_ERROR_ROW_CLOSED, cgr_request_close(engine_->rt, closed));
      CGR_EXPECT(CGR_ERROR_ROW_CLOSED, engine_->Prepare({ { closed, { 1 } } }));
      refused = 1;
      break;
    case 1:
      CGR_EXPECT(CGR_ERROR_PAGE_OUT_OF_RANGE, cgr_request_set_pages(engine_->rt, row, 0, 0, &bad_page, 1));
      break;
    case 2:
      EXPECT_NE(engine_->Prepare({ { row, { 1 } }, { row, { 1 } } }), CGR_OK);
      refused = 1;
      break;
    case 3:
      CGR_EXPECT(CGR_ERROR_STATE, cgr_step_launch(engine_->rt, &never, engine_->stream));
      CGR_EXPECT(CGR_ERROR_STATE, cgr_step_cancel(engine_->rt, &never));
      break;
    case 4:
      CGR_EXPECT(CGR_ERROR_INVALID_ARGUMENT, cgr_step_wait(engine_->rt, cgr_mark{ 0, 0, engine_->launched + 1000 }, 0, nullptr));
      break;
    default:
      CGR_EXPECT(CGR_ERROR_SEQUENCE_TOO_LONG, cgr_request_set_length(engine_->rt, row, 91));
      CGR_EXPECT(CGR_ERROR_INVALID_ARGUMENT, cgr_request_drop_pages(engine_->rt, row, 0, 0, 9));
    }
    before.ExpectSame(Snapshot(*engine_), refused);
  }
  void MoveRegion() {
    RecordLayer &layer = engine_->state.layer[0];
    engine_->CheckAll();
    std::swap(layer.in[kQ].data, spare_);
    engine_->state.call[0].attention.q.data = layer.in[kQ].data;
    CGR_ASSERT_OK(cgr_region_move(engine_->rt, region_, layer.in[kQ].data, layer.in_bytes[kQ]));
    CGR_ASSERT_OK(cgr_fill(engine_->dev, spare_, 0xff, layer.in_bytes[kQ], engine_->stream));
    stale_ = true;
    if (Chance(2))
      Capture();
  }
  void Any() {
    uint32_t pick = Below(40);
    int32_t row = AnyRow();
    if (pick < 4 && int32_t(engine_->requests.size()) < engine_->o.max_rows) {
      engine_->Open();
    } else if (pick < 6 && row >= 0) {
      engine_->Close(row);
    } else if (pick < 8) {
      SetLength();
    } else if (pick < 10) {
      DropPages();
    } else if (pick < 13) {
      BadCall();
    } else if (pick == 13) {
      MoveRegion();
    } else if (pick == 14) {
      Capture();
    } else if (pick == 15) {
      cgr_status status = Flush();
      ASSERT_TRUE(status == CGR_OK || status == CGR_ERROR_BUSY) << cgr_last_message();
    } else {
      Step();
    }
  }

  std::mt19937 random_;
  std::unique_ptr<Engine> engine_;
  void *spare_ = nullptr;
  int32_t region_ = -1;
  bool stale_ = false;
  uint64_t cancelled_ = 0, abandoned_ = 0;
};

TEST_P(Model, RandomCallsAgreeWithIt) {
  for (int n = 0; n < 500 && !HasFailure(); n++) {
    SCOPED_TRACE("seed " + std::to_string(GetParam().seed) + ", operation " + std::to_string(n));
    ASSERT_NO_FATAL_FAILURE(Any());
    if (Chance(3))
      engine_->CheckRows();
  }
  engine_->CheckAll();
  cgr_stats stats = engine_->Stats(); // adds up
  EXPECT_EQ(stats.cancelled, cancelled_);
  EXPECT_EQ(stats.abandoned, abandoned_);
  EXPECT_GT(stats.by_reason[CGR_KIND_FULL][CGR_REASON_EXACT] + stats.by_reason[CGR_KIND_FULL][CGR_REASON_PADDED], 20u);
  EXPECT_GT(stats.by_reason[CGR_KIND_NONE][IsMixed() ? CGR_REASON_STALE : CGR_REASON_NOT_UNIFORM], IsMixed() ? 0u : 5u);
  EXPECT_EQ(stats.captures_failed, 0u);
}

std::string Label(const ::testing::TestParamInfo<Case> &made) {
  return made.param.device.Label() + "_seed_" + std::to_string(made.param.seed);
}
INSTANTIATE_TEST_SUITE_P(Seeds, Model, ::testing::ValuesIn(Cases()), Label);

} // namespace
} // namespace cgr_test

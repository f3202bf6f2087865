// Random sequences of calls, good and bad, against a small model: rows, pages and lengths, which graphs are usable, and how
// many steps of each kind and reason there must have been. The toy checks tokens and outputs.
#include <cstdlib>
#include <set>

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
    cases.push_back({ HostParam(CGR_HOST_RANDOM, seed), seed });
  cases.push_back({ HostParam(CGR_HOST_LATEST), 101 });
  cases.push_back({ HostParam(CGR_HOST_ASYNC), 102 });
  cases.push_back({ HostParam(CGR_HOST_EARLIEST), 103 });
  cases.push_back({ CudaParam(), 104 });
  if (const char *seed = std::getenv("CGR_SEED")) { // one more, to find or to repeat
    uint32_t number = static_cast<uint32_t>(std::strtoul(seed, nullptr, 0));
    cases.push_back({ HostParam(CGR_HOST_RANDOM, number), number });
  }
  return cases;
}

class Model : public ::testing::TestWithParam<Case> {
protected:
  static constexpr uint64_t kDepth = 3, kChanges = 12;
  const std::vector<int32_t> buckets_ = { 1, 2, 5 };

  void SetUp() override {
    CGR_SKIP_WITHOUT_DEVICE(GetParam().device);
    std::printf("seed %u\n", GetParam().seed);
    random_.seed(GetParam().seed);
    ToyOptions options = ToyOptionsFor(GetParam().device);
    options.buckets = buckets_;
    options.max_seq_len = 90;
    options.num_pages = 90;
    options.max_rows = 10;
    options.adjust = [](cgr_config *config) {
      config->ring_depth = kDepth;
      config->max_changes = kChanges;
    };
    toy_ = std::make_unique<Toy>(options);
    CGR_ASSERT_OK(cgr_region_register(toy_->rt, toy_->engine.q[0], 64, &region_));
    CGR_ASSERT_OK(toy_->Capture());
    graphs_ = true;
  }
  uint32_t Below(uint32_t n) { return static_cast<uint32_t>(random_()) % n; }
  bool Chance(uint32_t n) { return Below(n) == 0; }

  // ---- what must come of a batch
  int32_t Bucket(int32_t n) const {
    for (int32_t bucket : buckets_)
      if (n <= bucket)
        return bucket;
    return 0;
  }
  void ExpectChoice(const std::vector<ToyItem> &items, const cgr_step &step) {
    int32_t n = static_cast<int32_t>(items.size());
    int32_t kind = CGR_KIND_NONE, reason;
    bool uniform = std::all_of(items.begin(), items.end(), [](const ToyItem &item) { return item.tokens.size() == 1; });
    if (n == 0) {
      return; // the runtime may do as it likes
    } else if (!uniform) {
      reason = CGR_REASON_NOT_UNIFORM;
    } else if (Bucket(n) == 0) {
      reason = CGR_REASON_ABOVE_LADDER;
    } else {
      kind = CGR_KIND_FULL;
      reason = Bucket(n) == n ? CGR_REASON_EXACT : CGR_REASON_PADDED;
    }
    ASSERT_EQ(step.key.kind, kind);
    ASSERT_EQ(std::string(cgr_reason_name(static_cast<cgr_reason>(step.reason))),
              cgr_reason_name(static_cast<cgr_reason>(reason)));
    if (kind == CGR_KIND_FULL) {
      ASSERT_EQ(step.key.num_requests, Bucket(n));
    }
  }

  // ---- operations
  std::vector<ToyItem> RandomItems() {
    std::vector<int32_t> rows = toy_->Rows();
    std::shuffle(rows.begin(), rows.end(), random_);
    rows.resize(Below(static_cast<uint32_t>(std::min<size_t>(rows.size(), 8)) + 1));
    std::vector<ToyItem> items;
    bool decode = !Chance(3);
    for (int32_t row : rows) {
      ToyRequest &r = *toy_->requests[row];
      int32_t length = decode ? 1 : static_cast<int32_t>(Below(7));
      if (r.num_tokens + length > toy_->o.max_seq_len)
        length = 0;
      if (toy_->free_pages() < 8)
        length = 0;
      toy_->Reserve(row, r.num_tokens + length);
      ToyItem item = { row, Toy::Prompt(length, static_cast<int32_t>(Below(50))), Chance(6) };
      if (length > 0 && has_token_.count(row) != 0 && !Chance(3))
        item.tokens[0] = CGR_TOKEN_LAST;
      items.push_back(item);
    }
    return items;
  }
  void Step() {
    std::vector<ToyItem> items = RandomItems();
    cgr_status status = CGR_OK;
    for (int tries = 0; tries < 100; tries++) {
      status = toy_->Prepare(items);
      if (status != CGR_ERROR_BUSY)
        break;
      if (toy_->num_pending() > 0 && Chance(2)) {
        toy_->CheckOne();
      } else {
        status = Flush();
        ASSERT_TRUE(status == CGR_OK || status == CGR_ERROR_BUSY) << cgr_last_message();
      }
      if (HasFatalFailure())
        return;
    }
    if (!graphs_ && status == CGR_ERROR_STALE_GRAPH) {
      CGR_ASSERT_OK(Capture());
      status = toy_->Prepare(items);
      if (status == CGR_ERROR_BUSY)
        return; // the next operation finds out
    }
    CGR_ASSERT_OK(status);
    ExpectChoice(items, toy_->step);
    if (HasFatalFailure())
      return;
    if (Chance(6)) {
      CGR_ASSERT_OK(cgr_step_cancel(toy_->rt, &toy_->step));
      cancelled_++;
      return;
    }
    cgr_step step = toy_->step;
    cgr_stats before = toy_->Stats();
    // Results are kept for depth - 1 more steps; those that carry changes ahead of this one count too.
    while (toy_->num_pending() > 0 && (toy_->changes > kChanges || toy_->num_pending() >= kDepth))
      toy_->CheckOne();
    if (!items.empty() && step.key.kind == CGR_KIND_NONE && Chance(5)) {
      toy_->CheckAll(); // a step that is given up half-way writes outputs all the same
      toy_->engine.fail_after = static_cast<int32_t>(Below(3));
      CGR_EXPECT(CGR_ERROR_CALLBACK, toy_->Launch());
      toy_->engine.fail_after = -1;
      return;
    }
    CGR_ASSERT_OK(toy_->Launch());
    toy_->changes = 0;
    cgr_stats after = toy_->Stats();
    ASSERT_EQ(after.by_reason[step.key.kind][step.reason], before.by_reason[step.key.kind][step.reason] + 1);
    for (const ToyItem &item : items) { // the last token is that of the row's last step; a partial one gives none
      if (!item.tokens.empty())
        has_token_.erase(item.row);
      if (!item.tokens.empty() && !item.partial)
        has_token_.insert(item.row);
    }
    if (Chance(2))
      toy_->CheckAll();
  }
  cgr_status Flush() {
    toy_->CheckAll(); // internal steps overwrite results
    return cgr_runtime_flush(toy_->rt, toy_->stream);
  }
  cgr_status Capture() {
    toy_->CheckAll();
    graphs_ = true;
    return toy_->Capture();
  }
  void Close() {
    std::vector<int32_t> rows = toy_->Rows();
    if (rows.empty())
      return;
    int32_t row = rows[Below(static_cast<uint32_t>(rows.size()))];
    toy_->Close(row);
    has_token_.erase(row);
  }
  void Rewind() {
    std::vector<int32_t> rows = toy_->Rows();
    if (rows.empty())
      return;
    toy_->CheckAll();
    int32_t row = rows[Below(static_cast<uint32_t>(rows.size()))];
    toy_->Rewind(row, static_cast<int32_t>(Below(static_cast<uint32_t>(toy_->requests[row]->num_tokens) + 1)));
    has_token_.erase(row); // what was sampled last no longer follows
  }
  void BadCall() {
    Toy &toy = *toy_;
    std::vector<int32_t> rows = toy.Rows();
    int32_t row = rows.empty() ? 0 : rows[Below(static_cast<uint32_t>(rows.size()))];
    int32_t closed = -1;
    for (int32_t r = 0; r < toy.o.max_rows; r++)
      if (toy.requests.count(r) == 0)
        closed = r;
    int32_t bad_page = Chance(2) ? toy.o.num_pages : static_cast<int32_t>(Below(2));
    ToySnapshot before(toy);
    uint64_t refused = 0;
    switch (Below(6)) {
    case 0:
      if (closed < 0)
        return;
      CGR_EXPECT(CGR_ERROR_ROW_CLOSED, cgr_request_close(toy.rt, closed));
      CGR_EXPECT(CGR_ERROR_ROW_CLOSED, toy.Prepare({ { closed, { 1 }, false } }));
      refused = 1;
      break;
    case 1:
      if (rows.empty())
        return;
      CGR_EXPECT(CGR_ERROR_PAGE_OUT_OF_RANGE, cgr_request_set_pages(toy.rt, row, 0, 0, &bad_page, 1));
      break;
    case 2:
      if (rows.empty())
        return;
      EXPECT_NE(toy.Prepare({ { row, { 1 }, false }, { row, { 1 }, false } }), CGR_OK);
      refused = 1;
      break;
    case 3: {
      cgr_step never = CGR_STEP_INIT;
      never.ticket = Below(1000);
      CGR_EXPECT(CGR_ERROR_STATE, cgr_step_launch(toy.rt, &never, toy.stream));
      CGR_EXPECT(CGR_ERROR_STATE, cgr_step_cancel(toy.rt, &never));
      break;
    }
    case 4:
      CGR_EXPECT(CGR_ERROR_INVALID_ARGUMENT, cgr_step_poll(toy.rt, cgr_runtime_completed(toy.rt) + 1000, nullptr));
      break;
    default:
      if (rows.empty())
        return;
      CGR_EXPECT(CGR_ERROR_SEQUENCE_TOO_LONG, cgr_request_rewind(toy.rt, row, 91));
      CGR_EXPECT(CGR_ERROR_INVALID_ARGUMENT, cgr_request_rewind(toy.rt, row, -1));
    }
    before.ExpectSame(ToySnapshot(toy), refused);
  }
  void MoveRegion() {
    toy_->CheckAll();
    toy_->Sync();
    size_t elements = static_cast<size_t>(toy_->o.max_tokens * toy_->o.num_q_heads * toy_->o.head_dim);
    void *old = toy_->engine.q[0], *&next = spare_;
    if (next == nullptr)
      next = toy_->Alloc(elements * toy_->ElementBytes());
    toy_->engine.q[0] = next;
    next = old;
    CGR_ASSERT_OK(cgr_region_move(toy_->rt, region_, toy_->engine.q[0], elements * toy_->ElementBytes()));
    toy_->FillElements(old, elements, NAN);
    graphs_ = false;
    if (Chance(2))
      CGR_ASSERT_OK(Capture());
  }
  void CheckRows() {
    for (auto &[row, r] : toy_->requests) {
      cgr_request_info info = toy_->Info(row);
      ASSERT_EQ(info.open, 1);
      ASSERT_EQ(info.num_tokens, r->num_tokens);
      ASSERT_EQ(info.num_pages, static_cast<int32_t>(r->pages.size()));
      ASSERT_LE(info.last_seq, toy_->launched);
    }
  }

  std::mt19937 random_;
  std::unique_ptr<Toy> toy_;
  std::set<int32_t> has_token_;
  void *spare_ = nullptr;
  int32_t region_ = -1;
  bool graphs_ = false;
  uint64_t cancelled_ = 0;
};

TEST_P(Model, RandomCallsAgreeWithTheModel) {
  for (int n = 0; n < 500 && !HasFatalFailure() && !HasNonfatalFailure(); n++) {
    SCOPED_TRACE("seed " + std::to_string(GetParam().seed) + ", operation " + std::to_string(n));
    uint32_t pick = Below(40);
    if (pick < 4) {
      if (static_cast<int32_t>(toy_->requests.size()) < toy_->o.max_rows)
        toy_->Open();
    } else if (pick < 6) {
      Close();
    } else if (pick < 8) {
      Rewind();
    } else if (pick < 12) {
      BadCall();
    } else if (pick == 12 && Chance(3)) {
      MoveRegion();
    } else if (pick == 13) {
      CGR_ASSERT_OK(Capture());
    } else if (pick == 14) {
      cgr_status status = Flush();
      ASSERT_TRUE(status == CGR_OK || status == CGR_ERROR_BUSY) << cgr_last_message();
    } else {
      Step();
    }
    if (HasFatalFailure())
      return;
    CheckRows();
  }
  toy_->CheckAll();
  cgr_stats stats = toy_->Stats(); // adds up
  EXPECT_EQ(stats.cancelled, cancelled_);
  EXPECT_GT(stats.by_reason[CGR_KIND_FULL][CGR_REASON_EXACT] + stats.by_reason[CGR_KIND_FULL][CGR_REASON_PADDED], 20u);
  EXPECT_GT(stats.by_reason[CGR_KIND_NONE][CGR_REASON_NOT_UNIFORM], 5u);
  EXPECT_EQ(stats.captures_failed, 0u);
}

std::string Label(const ::testing::TestParamInfo<Case> &made) {
  std::string seed = "_seed_" + std::to_string(made.param.seed);
  return made.param.device.Label() + seed;
}
INSTANTIATE_TEST_SUITE_P(Seeds, Model, ::testing::ValuesIn(Cases()), Label);

} // namespace
} // namespace cgr_test

// A call of the device that fails, each in turn, while steps with guesses are under way, of each kind: their rows keep exact
// lengths, or bounds of them, and every request gets its tokens, up to its stop if it has one.
#include "cgr/stops.h"
#include "tests/support/guess_engine.h"

namespace cgr_test {
namespace {

using namespace guesses;

enum { kPrompt = 5, kWanted = 24, kTries = 200 };

struct Request {
  int32_t row = -1;
  List known; // the prompt and what was delivered
  bool sampled = false;
  int32_t num_pages = 0;
};

class Scenario {
public:
  Scenario(const DeviceParam &device, bool standing, bool stops, cgr_graph_mode mode)
      : engine_(device, kMost, 34, true, mode, stops), standing_(standing), stops_(stops) {
    for (int32_t i = 0; i < 3; i++) {
      Request &r = requests_[i];
      for (int32_t t = 0; t < kPrompt; t++)
        r.known.push_back(7 * i + t);
      want_[i] = Continued(r.known, kWanted + 1 + kMost);
      CGR_EXPECT_OK(cgr_request_open(engine_.rt, uint64_t(i), &r.row));
      if (stops)
        SetStops(i);
      if (standing)
        CGR_EXPECT_OK(cgr_standing_add(engine_.rt, nullptr, r.row, 0, nullptr, 0));
    }
  }

  // False: the runtime died.
  bool Run(const cgr__fault_plan &plan) {
    cgr__fault_set(engine_.dev, &plan);
    int tries = 0;
    for (; !Done() && tries < kTries && !dead_; tries++)
      Step();
    Collect(0);
    fired_ = cgr__fault_fired(engine_.dev);
    cgr__fault_set(engine_.dev, nullptr);
    EXPECT_TRUE(dead_ || Done()) << "it never ends";
    for (Request &r : requests_)
      ExpectExact(r);
    if (standing_)
      for (Request &r : requests_)
        CGR_EXPECT(dead_ ? CGR_ERROR_DEAD : CGR_OK, cgr_standing_remove(engine_.rt, nullptr, r.row));
    return !dead_;
  }
  uint64_t fired() const { return fired_; }
  // Whether steps of the kind ran.
  bool Ran(cgr_graph_kind kind) {
    uint64_t steps = 0;
    const cgr_stats stats = StatsOf(engine_.rt);
    for (uint64_t count : stats.by_reason[kind])
      steps += count;
    return steps > 10;
  }

private:
  // With stops the requests end one after the other, and stay in the batch.
  size_t Wanted(int32_t i) const { return size_t(kPrompt + kWanted - (stops_ ? 6 * i : 0)); }
  void SetStops(int32_t i) {
    cgr_stops stops = CGR_STOPS_INIT;
    stops.max_length = int32_t(Wanted(i));
    CGR_EXPECT_OK(cgr_request_set_stops(engine_.rt, requests_[i].row, &stops));
  }
  bool Done() const {
    for (int32_t i = 0; i < 3; i++)
      if (requests_[i].known.size() < Wanted(i))
        return false;
    return true;
  }
  void ExpectExact(const Request &r) {
    if (dead_)
      return;
    const cgr_request_info info = engine_.Info(r.row);
    EXPECT_EQ(info.num_tokens, info.min_tokens);
    EXPECT_EQ(info.num_tokens, int32_t(r.known.size()) - 1);
    EXPECT_EQ(info.ended, stops_ ? CGR_END_LENGTH : CGR_END_NONE);
    if (info.has_token) { // else its length is sent again with the next step
      EXPECT_EQ(info.num_tokens, engine_.Length(r.row) & INT32_MAX);
      EXPECT_EQ(engine_.Length(r.row) < 0, stops_);
    }
  }
  bool Good(cgr_status status) {
    if (status == CGR_ERROR_DEAD)
      dead_ = true;
    EXPECT_TRUE(status == CGR_OK || status == CGR_ERROR_DEVICE || status == CGR_ERROR_OUT_OF_MEMORY ||
                status == CGR_ERROR_CALLBACK || dead_) // the model's own call may fail
        << cgr_last_message();
    return status == CGR_OK;
  }

  // Pages as far as the step may write: most steps with guesses carry changes.
  void AddPages(Request *r, int32_t i, int32_t query_len) {
    if (dead_)
      return;
    for (; r->num_pages * kPage < engine_.Info(r->row).num_tokens + query_len; r->num_pages++) {
      const int32_t page = 2 + i * kSeqLen / kPage + r->num_pages;
      CGR_EXPECT_OK(cgr_request_set_pages(engine_.rt, r->row, 0, r->num_pages, &page, 1));
    }
  }
  // The prompt; then the last token, or its id where the device no longer has it, and guesses of the device or the host.
  List TokensOf(int32_t i, uint32_t *flags) {
    Request &r = requests_[i];
    *flags = 0;
    if (!r.sampled)
      return r.known;
    const bool has_token = engine_.Info(r.row).has_token != 0;
    const int32_t guesses = (count_ + i) % (kMost + 1);
    List tokens = { has_token ? CGR_TOKEN_LAST : r.known.back() };
    for (int32_t j = 0; j < guesses; j++) {
      const size_t at = r.known.size() - kPrompt + size_t(j);
      const bool known = at < want_[i].size() && (count_ + j) % 4 != 0;
      tokens.push_back(has_token && i != 1 ? CGR_TOKEN_DRAFT(j) : known ? want_[i][at] : 0);
    }
    *flags = CGR_REQUEST_DRAFTS(guesses);
    return tokens;
  }
  cgr_status Prepare(cgr_step *step) {
    List rows, lens, tokens;
    std::vector<uint32_t> flags;
    for (int32_t i = 0; i < 3; i++) {
      uint32_t flag = 0;
      const List of = TokensOf(i, &flag);
      AddPages(&requests_[i], i, int32_t(of.size()));
      rows.push_back(requests_[i].row), lens.push_back(int32_t(of.size())), flags.push_back(flag);
      tokens.insert(tokens.end(), of.begin(), of.end());
      if (standing_)
        CGR_EXPECT_OK(cgr_standing_update(engine_.rt, nullptr, rows.back(), lens.back(), of.data(), flag));
    }
    cgr_batch batch = standing_ ? StandingBatch() : BatchOf(3, rows.data(), tokens.data(), lens.data());
    if (!standing_)
      batch.flags = flags.data();
    return cgr_step_prepare(engine_.rt, &batch, step);
  }
  void Step() {
    cgr_step step = CGR_STEP_INIT;
    count_++;
    if (!Good(Prepare(&step))) {
      Collect(0);
      return;
    }
    if (!Good(cgr_step_launch(engine_.rt, &step, engine_.stream))) {
      if (step.state == CGR_STEP_PREPARED && !dead_)
        CGR_EXPECT_OK(cgr_step_cancel(engine_.rt, &step));
      Collect(0);
      return;
    }
    for (Request &r : requests_)
      r.sampled = true;
    marks_.push_back(step.mark);
    Collect(size_t(count_ % 3));
  }
  void Collect(size_t left) {
    for (int tries = 0; marks_.size() > left && tries < kTries && !dead_; tries++) {
      cgr_step_result result = CGR_STEP_RESULT_INIT;
      if (!Good(cgr_step_wait(engine_.rt, marks_.front(), -1, &result)))
        continue;
      marks_.erase(marks_.begin());
      for (int32_t i = 0; i < 3; i++)
        for (int32_t j = 0; j < result.num_tokens[i]; j++) {
          Request &r = requests_[i];
          const size_t at = r.known.size() - kPrompt;
          EXPECT_TRUE(at >= want_[i].size() || result.tokens[i * result.token_stride + j] == want_[i][at]) << "token " << at;
          r.known.push_back(result.tokens[i * result.token_stride + j]);
        }
    }
  }

  GuessEngine engine_;
  const bool standing_, stops_;
  Request requests_[3];
  List want_[3];
  std::vector<cgr_mark> marks_;
  int32_t count_ = 0;
  uint64_t fired_ = 0;
  bool dead_ = false;
};

struct Kind {
  int error, take_effect;
};

class GuessFaults : public ::testing::TestWithParam<DeviceParam> {};

void FaultAtEveryCall(const DeviceParam &device, bool standing, bool stops, cgr_graph_mode mode, const Kind &kind) {
  const cgr_graph_kind of_steps = mode == CGR_MODE_FULL   ? CGR_KIND_FULL
                                  : mode == CGR_MODE_NONE ? CGR_KIND_NONE
                                                          : CGR_KIND_PIECEWISE;
  uint64_t n = 1, deaths = 0;
  for (bool fired = true; fired; n++) {
    SCOPED_TRACE("a fault at call " + std::to_string(n));
    Scenario scenario(device, standing, stops, mode);
    const bool alive = scenario.Run({ CGR__FAULT_ANY_OP, n, CGR__FAULT_ONCE, kind.take_effect, kind.error, 700 });
    fired = scenario.fired() > 0;
    EXPECT_TRUE(alive || kind.error == CGR__DEVICE_DEAD);
    deaths += !alive;
    EXPECT_TRUE(fired || scenario.Ran(of_steps)) << cgr_graph_kind_name(of_steps);
    if (::testing::Test::HasFailure())
      return;
  }
  EXPECT_GT(n, 15u) << "few calls were tried";
  EXPECT_TRUE(deaths > 10 || kind.error != CGR__DEVICE_DEAD) << deaths << " were seen";
}

const cgr_graph_mode kModes[] = { CGR_MODE_FULL, CGR_MODE_PIECEWISE, CGR_MODE_NONE };

TEST_P(GuessFaults, OneCallFails) {
  CGR_SKIP_WITHOUT_DEVICE(GetParam());
  for (cgr_graph_mode mode : kModes)
    for (bool standing : { false, true })
      for (int take_effect : { 0, 1 })
        for (bool stops : { false, true })
          FaultAtEveryCall(GetParam(), standing, stops, mode, { CGR__DEVICE_FAILED, take_effect });
}
TEST_P(GuessFaults, TheDeviceDies) {
  CGR_SKIP_WITHOUT_DEVICE(GetParam());
  for (cgr_graph_mode mode : kModes)
    for (bool stops : { false, true })
      FaultAtEveryCall(GetParam(), true, stops, mode, { CGR__DEVICE_DEAD, 0 });
}

INSTANTIATE_TEST_SUITE_P(Devices, GuessFaults,
                         ::testing::Values(HostParam(CGR_SCHEDULE_EARLIEST), HostParam(CGR_SCHEDULE_LATEST)), DeviceLabel);

} // namespace
} // namespace cgr_test

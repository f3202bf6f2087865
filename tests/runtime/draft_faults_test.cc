// A call of the device that fails, each in turn, while a target and its draft take turns: lengths of both stay exact, or bounds,
// and every request gets its tokens.
#include "tests/support/draft_engine.h"

namespace cgr_test {
namespace {

using namespace drafts;

enum { kPrompt = 5, kWanted = 16, kTries = 200, kRowsOfIt = 2 };

struct Request {
  int32_t row = -1;
  List known; // the prompt and what was delivered
  bool sampled = false;
  int32_t delivered = 0; // by the target's last step
};

class Scenario {
public:
  explicit Scenario(const DeviceParam &device) : engine_(device, 100, true) {
    for (int32_t i = 0; i < kRowsOfIt; i++) {
      Request &r = requests_[i];
      for (int32_t t = 0; t < kPrompt; t++)
        r.known.push_back(7 * i + t);
      want_[i] = Continued(r.known, kWanted + 1 + kMost);
      CGR_EXPECT_OK(cgr_request_open(engine_.rt, uint64_t(i), &r.row));
      for (int32_t program : { 0, 1 })
        for (int32_t p = 0; p < 4; p++) {
          const int32_t page = 2 + 4 * i + p;
          CGR_EXPECT_OK(cgr_request_set_pages(engine_.rt, r.row, program, p, &page, 1));
        }
    }
  }
  // False: the runtime died.
  bool Run(const cgr__fault_plan &plan) {
    cgr__fault_set(engine_.dev, &plan);
    for (count_ = 0; !Done() && count_ < kTries && !dead_; count_++)
      Round();
    fired_ = cgr__fault_fired(engine_.dev);
    cgr__fault_set(engine_.dev, nullptr);
    EXPECT_TRUE(dead_ || Done()) << "it never ends";
    EXPECT_TRUE(dead_ || followed_ > 1);
    return !dead_;
  }
  uint64_t fired() const { return fired_; }

private:
  bool Done() const {
    for (const Request &r : requests_)
      if (r.known.size() < size_t(kPrompt + kWanted))
        return false;
    return true;
  }
  bool Good(cgr_status status) {
    dead_ |= status == CGR_ERROR_DEAD;
    EXPECT_TRUE(status == CGR_OK || status == CGR_ERROR_DEVICE || status == CGR_ERROR_OUT_OF_MEMORY || dead_)
        << cgr_last_message();
    return status == CGR_OK;
  }
  // Tokens that the row lacks in the draft of those that the target has, and the one that it has sampled.
  int32_t Lacks(const Request &r) { return engine_.Most(r.row, 0) + 1 - engine_.Most(r.row, 1); }

  // Where the draft has kept up, every other round leaves the target's result for later.
  void Round() {
    bool kept_up = true;
    for (const Request &r : requests_)
      kept_up &= r.sampled && engine_.Info(r.row).has_token != 0 && Lacks(r) == 0;
    const bool launched = Target();
    if (!launched || !kept_up || count_ % 2 == 0)
      Collect();
    if (!dead_)
      Draft(launched && kept_up);
    Collect();
    if (!kept_up && !dead_) { // it may follow now
      Draft(false);
      Collect();
    }
    for (const Request &r : requests_)
      if (!dead_)
        ExpectExact(r);
  }
  void ExpectExact(const Request &r) {
    const auto target = engine_.Bounds(r.row, 0), draft = engine_.Bounds(r.row, 1);
    EXPECT_EQ(target.first, target.second);
    EXPECT_EQ(draft.first, draft.second);
    EXPECT_EQ(target.first, r.sampled ? int32_t(r.known.size()) - 1 : 0);
    EXPECT_LE(draft.first, target.first + 1);
    if (engine_.rt->rows.num_dirty == 0) { // else lengths are sent again with the next step
      EXPECT_EQ(target.first, engine_.Length(r.row, 0));
      EXPECT_EQ(draft.first, engine_.Length(r.row, 1));
    }
  }
  bool Launch(int32_t program, const std::vector<List> &of, const std::vector<uint32_t> &flags) {
    List rows, lens, tokens;
    for (int32_t i = 0; i < kRowsOfIt; i++) {
      rows.push_back(requests_[i].row), lens.push_back(int32_t(of[size_t(i)].size()));
      tokens.insert(tokens.end(), of[size_t(i)].begin(), of[size_t(i)].end());
    }
    cgr_batch batch = BatchOf(kRowsOfIt, rows.data(), tokens.data(), lens.data());
    batch.flags = flags.data(), batch.program = program;
    cgr_step step = CGR_STEP_INIT;
    if (!Good(cgr_step_prepare(engine_.rt, &batch, &step)))
      return false;
    if (!Good(cgr_step_launch(engine_.rt, &step, engine_.stream))) {
      if (step.state == CGR_STEP_PREPARED && !dead_)
        CGR_EXPECT_OK(cgr_step_cancel(engine_.rt, &step));
      return false;
    }
    marks_.push_back({ step.mark, program });
    return true;
  }
  static List OfDevice() {
    List tokens = { CGR_TOKEN_LAST };
    for (int32_t j = 0; j < kMost; j++)
      tokens.push_back(CGR_TOKEN_DRAFT(j));
    return tokens;
  }
  // The prompt; then the last token and the draft's guesses, or the token's id where the device no longer has it.
  bool Target() {
    std::vector<List> of;
    std::vector<uint32_t> flags;
    for (const Request &r : requests_) {
      const bool has_token = r.sampled && engine_.Info(r.row).has_token != 0;
      of.push_back(!r.sampled ? r.known : has_token ? OfDevice() : List{ r.known.back() });
      flags.push_back(has_token ? CGR_REQUEST_DRAFTS(kMost) : 0);
    }
    if (!Launch(0, of, flags))
      return false;
    for (Request &r : requests_)
      r.sampled = true;
    return true;
  }
  // It follows, or it gets what it lacks from the host.
  void Draft(bool all_follow) {
    std::vector<List> of;
    std::vector<uint32_t> flags;
    for (const Request &r : requests_) {
      const int32_t lacks = Lacks(r), has = engine_.Most(r.row, 1);
      const bool follows = all_follow || (engine_.Info(r.row).has_token != 0 && lacks >= 1 && lacks <= r.delivered && r.sampled);
      const int32_t end = r.sampled ? std::max(int32_t(r.known.size()) - 1, has) : has;
      of.push_back(follows ? OfDevice() : List(r.known.begin() + has, r.known.begin() + end));
      flags.push_back(follows ? CGR_REQUEST_DRAFTS(kMost) : 0);
      followed_ += follows;
      if (!follows && has > int32_t(r.known.size()) - 1)
        of.back().clear();
    }
    Launch(1, of, flags);
  }
  void Collect() {
    for (int tries = 0; !marks_.empty() && tries < kTries && !dead_; tries++) {
      cgr_step_result result = CGR_STEP_RESULT_INIT;
      if (!Good(cgr_step_wait(engine_.rt, marks_.front().first, -1, &result)))
        continue;
      const int32_t program = marks_.front().second;
      marks_.erase(marks_.begin());
      for (int32_t i = 0; program == 0 && i < kRowsOfIt; i++) {
        Request &r = requests_[i];
        r.delivered = result.num_tokens[i];
        for (int32_t j = 0; j < result.num_tokens[i]; j++) {
          const size_t at = r.known.size() - kPrompt;
          EXPECT_TRUE(at >= want_[i].size() || result.tokens[i * result.token_stride + j] == want_[i][at]) << "token " << at;
          r.known.push_back(result.tokens[i * result.token_stride + j]);
        }
      }
    }
  }

  DraftEngine engine_;
  Request requests_[kRowsOfIt];
  List want_[kRowsOfIt];
  std::vector<std::pair<cgr_mark, int32_t>> marks_;
  int32_t count_ = 0, followed_ = 0;
  uint64_t fired_ = 0;
  bool dead_ = false;
};

class DraftFaults : public ::testing::TestWithParam<DeviceParam> {};

void FaultAtEveryCall(const DeviceParam &device, int error, int take_effect) {
  uint64_t n = 1, deaths = 0;
  for (bool fired = true; fired; n++) {
    SCOPED_TRACE("a fault at call " + std::to_string(n));
    Scenario scenario(device);
    const bool alive = scenario.Run({ CGR__FAULT_ANY_OP, n, CGR__FAULT_ONCE, take_effect, error, 700 });
    fired = scenario.fired() > 0;
    EXPECT_TRUE(alive || error == CGR__DEVICE_DEAD);
    deaths += !alive;
    if (::testing::Test::HasFailure())
      return;
  }
  EXPECT_GT(n, 15u) << "few calls were tried";
  EXPECT_TRUE(deaths > 10 || error != CGR__DEVICE_DEAD) << deaths << " were seen";
}

TEST_P(DraftFaults, OneCallFails) {
  CGR_SKIP_WITHOUT_DEVICE(GetParam());
  for (int take_effect : { 0, 1 })
    FaultAtEveryCall(GetParam(), CGR__DEVICE_FAILED, take_effect);
}
TEST_P(DraftFaults, TheDeviceDies) {
  CGR_SKIP_WITHOUT_DEVICE(GetParam());
  FaultAtEveryCall(GetParam(), CGR__DEVICE_DEAD, 0);
}

INSTANTIATE_TEST_SUITE_P(Devices, DraftFaults,
                         ::testing::Values(HostParam(CGR_SCHEDULE_EARLIEST), HostParam(CGR_SCHEDULE_LATEST)), DeviceLabel);

} // namespace
} // namespace cgr_test

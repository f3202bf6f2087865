// A draft next to its target: whatever it guesses, whenever it follows, every request gets the tokens that plain decoding gives;
// and what it guesses is what its model says of the row's own tokens.
#include <deque>
#include <memory>

#include "tests/support/draft_engine.h"
#include "tests/support/guess_steps.h"

namespace cgr_test {
namespace {

using namespace drafts;

struct Options {
  int32_t num_requests = 300;
  bool standing = false;   // the target's batch is the standing one
  int32_t one_loss_in = 0; // steps; 0: none
  cgr_graph_mode mode = CGR_MODE_FULL;
};

struct Request {
  List known, want; // the prompt and what was delivered; what is still to come
  int32_t row = -1;
  uint64_t tag = 0;
  int32_t given[2] = {}; // of `known`, in steps of each program so far
  int32_t launched = 0;  // steps of the target that have not been collected
  int32_t behind = 0;    // steps of the target that have sampled since the draft followed
  int32_t guesses = 0;   // of the last of them
  bool sampled = false;
  List pages[2];
};

struct Work {
  Request *request;
  List tokens;
  uint32_t flags = 0;
  bool of_device = false;
};

struct InFlight {
  cgr_mark mark;
  int32_t program;
  std::vector<uint64_t> tags;
  std::vector<bool> follows;
};

class Scheduler {
public:
  Scheduler(const DeviceParam &device, const Options &options)
      : options_(options), engine_(device, kNumPages, false, options.mode) {
    for (List &free : free_)
      for (int32_t p = 2; p < kNumPages; p++)
        free.push_back(p);
  }
  void Run() {
    while ((finished_ < options_.num_requests || !open_.empty()) && !::testing::Test::HasFailure())
      Round();
    Drain();
    const cgr_stats stats = StatsOf(engine_.rt);
    uint64_t full = 0;
    for (uint64_t steps : stats.by_reason[CGR_KIND_FULL])
      full += steps;
    EXPECT_TRUE(options_.mode != CGR_MODE_FULL || double(full) >= 0.995 * double(stats.steps)) << full << " of " << stats.steps;
  }
  int64_t accepted = 0, followed = 0, checked = 0, losses = 0, preempted = 0;

private:
  enum { kNumPages = 2 + kRows * kSeqLen / kPage };
  bool Chance(int32_t one_in) { return random_.OneIn(one_in); }

  void Round() {
    if (opened_ < options_.num_requests && int32_t(open_.size()) < kRows && Chance(2))
      Arrive();
    if (Chance(15))
      Drain();
    if (!open_.empty() && Chance(60))
      Preempt(open_[random_.Pick(0, open_.size() - 1)].get());
    Step(0);
    if (!Chance(8))
      Step(1);
    while (in_flight_.size() > size_t(random_.Pick(0, kDepth - 1)))
      CollectOne();
  }
  void Arrive() {
    Request request;
    request.known = RandomPrompt(&random_);
    request.want = Continued(request.known, random_.Pick32(1, 50));
    opened_++;
    Open(request);
  }
  void Open(Request request) {
    const List known = request.known, want = request.want;
    request = Request();
    request.known = known, request.want = want, request.tag = ++tags_;
    CGR_ASSERT_OK(cgr_request_open(engine_.rt, request.tag, &request.row));
    open_.push_back(std::make_unique<Request>(request));
  }
  void Close(Request *request) {
    standing_.Remove(engine_.rt, request->row);
    const uint64_t last = engine_.Info(request->row).last.seq;
    for (int32_t p = 0; p < 2; p++)
      for (int32_t page : request->pages[p])
        pending_.push_back({ last, p, page });
    CGR_ASSERT_OK(cgr_request_close(engine_.rt, request->row));
    open_.erase(std::find_if(open_.begin(), open_.end(), [&](auto &r) { return r.get() == request; }));
  }
  void Preempt(Request *request) {
    const Request again = *request;
    Drain();
    Request *still = Find(again.tag);
    if (still == nullptr)
      return;
    const Request known = *still;
    Close(still);
    preempted++;
    Open(known);
  }
  bool HasPages(Request *r, int32_t program, int32_t query_len) {
    uint64_t completed = 0;
    CGR_EXPECT_OK(cgr_runtime_completed(engine_.rt, nullptr, &completed));
    for (size_t i = 0; i < pending_.size();)
      if (pending_[i].seq <= completed) {
        free_[pending_[i].program].push_back(pending_[i].page);
        pending_.erase(pending_.begin() + int64_t(i));
      } else {
        i++;
      }
    List &pages = r->pages[program], &free = free_[program];
    while (int32_t(pages.size()) * kPage < engine_.Most(r->row, program) + query_len) {
      if (free.empty())
        return false;
      CGR_EXPECT_OK(cgr_request_set_pages(engine_.rt, r->row, program, int32_t(pages.size()), &free.back(), 1));
      pages.push_back(free.back());
      free.pop_back();
    }
    return true;
  }

  // ---- steps
  Work TargetWork(Request *r, int32_t room) {
    Work work = { r, {}, 0, false };
    if (!r->sampled) {
      const int32_t left = int32_t(r->known.size()) - r->given[0], chunk = std::min({ left, room, random_.Pick32(1, 14) });
      work.tokens.assign(r->known.begin() + r->given[0], r->known.begin() + r->given[0] + chunk);
      work.flags = chunk < left ? CGR_REQUEST_PARTIAL : 0;
      return work;
    }
    if ((r->behind > 1 || r->given[1] != r->given[0]) && !Chance(3))
      return work; // so that the draft can get the tokens that it has missed
    const int32_t guesses = r->behind > 0 || Chance(6) ? 0 : steady_ ? kMost : random_.Pick32(0, kMost);
    work.of_device = true;
    work.tokens = { CGR_TOKEN_LAST };
    for (int32_t j = 0; j < guesses; j++)
      work.tokens.push_back(CGR_TOKEN_DRAFT(j));
    work.flags = CGR_REQUEST_DRAFTS(guesses);
    return work;
  }
  // The prompt, or what it has missed, in chunks; then it follows. No tokens: it cannot yet.
  Work DraftWork(Request *r, int32_t room) {
    Work work = { r, {}, 0, false };
    const bool is_known = r->launched == 0; // all of `known` but the last token is in the target
    const int32_t known = int32_t(r->known.size()) - (r->sampled && is_known ? 1 : 0);
    if (r->behind == 1 && (r->given[1] == r->given[0])) {
      work.of_device = true;
      const int32_t guesses = steady_ ? kMost : random_.Pick32(std::max(1, r->guesses), kMost);
      work.tokens = { CGR_TOKEN_LAST };
      for (int32_t j = 0; j < guesses; j++)
        work.tokens.push_back(CGR_TOKEN_DRAFT(j));
      work.flags = CGR_REQUEST_DRAFTS(guesses);
      return work;
    }
    const bool lags = r->behind > 1 || (r->behind == 1 && r->given[1] != r->given[0]);
    if ((lags && !is_known) || r->behind == 0)
      if (r->sampled || r->given[1] >= known)
        return work;
    const auto length = engine_.Bounds(r->row, 1);
    if (length.first != length.second)
      return work;
    r->given[1] = length.first;
    const int32_t left = known - r->given[1], chunk = std::min({ left, room, random_.Pick32(1, 20) });
    if (chunk <= 0)
      return work;
    work.tokens.assign(r->known.begin() + r->given[1], r->known.begin() + r->given[1] + chunk);
    work.flags = Chance(2) ? CGR_REQUEST_PARTIAL : 0;
    return work;
  }
  std::vector<Work> Compose(int32_t program) {
    std::vector<Work> works;
    int32_t room = kTokens;
    for (auto &r : open_) {
      if (works.size() == kRequests || room <= kMost || (!steady_ && Chance(6)))
        continue;
      Work work = program == 0 ? TargetWork(r.get(), room) : DraftWork(r.get(), room);
      if (work.tokens.empty() || !HasPages(r.get(), program, int32_t(work.tokens.size())))
        continue;
      room -= int32_t(work.tokens.size());
      works.push_back(work);
    }
    return works;
  }
  cgr_status Prepare(int32_t program, const std::vector<Work> &works, cgr_step *step) {
    const WorkBatch own(works);
    cgr_batch batch = own.Batch(!own.of_device || Chance(4));
    batch.program = program;
    if (options_.standing && program == 0) {
      standing_.Edit(engine_.rt, works);
      batch = StandingBatch();
    }
    return cgr_step_prepare_wait(engine_.rt, &batch, step, -1, engine_.stream);
  }
  void Step(int32_t program) {
    cgr_step step = CGR_STEP_INIT;
    steady_ = Chance(40) ? !steady_ : steady_;
    while (in_flight_.size() >= kDepth)
      CollectOne();
    const std::vector<Work> works = Compose(program);
    CGR_ASSERT_OK(Prepare(program, works, &step));
    EXPECT_EQ(step.program, program);
    EXPECT_EQ(step.key.program, program);
    if (Chance(20)) {
      CGR_ASSERT_OK(cgr_step_cancel(engine_.rt, &step));
      return;
    }
    if (options_.one_loss_in > 0 && Chance(options_.one_loss_in)) {
      engine_.DamagePrepared();
      losses++;
    }
    CGR_ASSERT_OK(cgr_step_launch(engine_.rt, &step, engine_.stream));
    InFlight flight = { step.mark, program, {}, {} };
    for (const Work &work : works) {
      Follow(program, work);
      flight.tags.push_back(work.request->tag), flight.follows.push_back(work.flags >= CGR_REQUEST_DRAFTS(1));
    }
    in_flight_.push_back(flight);
  }
  // What a launched step has done to a request.
  void Follow(int32_t program, const Work &work) {
    Request *r = work.request;
    const int32_t guesses = int32_t(work.flags / CGR_REQUEST_DRAFTS(1));
    if (program == 1) {
      if (guesses > 0) {
        r->behind = 0;
        followed++;
        return;
      }
      r->given[1] += int32_t(work.tokens.size());
      if (r->sampled && r->launched == 0 && r->given[1] == int32_t(r->known.size()) - 1)
        r->behind = 1, r->given[0] = r->given[1], r->guesses = 0; // it lacks the last token alone
      return;
    }
    if (!r->sampled)
      r->given[0] += int32_t(work.tokens.size());
    r->launched++;
    if (work.flags & CGR_REQUEST_PARTIAL)
      return;
    r->sampled = true, r->guesses = guesses, r->behind++;
  }

  // ---- results
  Request *Find(uint64_t tag) { return FindTag(open_, tag); }
  void CollectOne() {
    const InFlight flight = in_flight_.front();
    in_flight_.pop_front();
    cgr_step_result result = CGR_STEP_RESULT_INIT;
    const cgr_status status = cgr_step_wait(engine_.rt, flight.mark, -1, &result);
    ASSERT_TRUE(status == CGR_OK || (losses > 0 && status == CGR_ERROR_STEP)) << cgr_last_message();
    for (uint64_t tag : flight.tags)
      if (Request *r = flight.program == 0 ? Find(tag) : nullptr)
        r->launched--;
    if (status != CGR_OK) {
      lost_.insert(lost_.end(), flight.tags.begin(), flight.tags.end());
      Drain();
      return;
    }
    ASSERT_EQ(result.num_requests, int32_t(flight.tags.size()));
    EXPECT_TRUE(result.program == flight.program || result.num_requests == 0);
    for (int32_t i = 0; i < result.num_requests; i++)
      if (Request *r = std::count(lost_.begin(), lost_.end(), result.tags[i]) ? nullptr : Find(result.tags[i]))
        flight.program == 0 ? Deliver(r, result.tokens + i * result.token_stride, result.num_tokens[i])
                            : Check(r, flight.follows[size_t(i)], result.tokens[i * result.token_stride], result.num_tokens[i]);
  }
  void Deliver(Request *r, const int32_t *tokens, int32_t count) {
    accepted += std::max(count - 1, 0);
    for (int32_t j = 0; j < count && !r->want.empty(); j++) {
      ASSERT_EQ(tokens[j], r->want[0]) << "token " << r->known.size() << " of the request with tag " << r->tag;
      r->known.push_back(tokens[j]);
      r->want.erase(r->want.begin());
    }
    if (r->want.empty()) {
      finished_++;
      Close(r);
    }
  }
  // All that the target had sampled by then is known.
  void Check(Request *r, bool follows, int32_t guess, int32_t count) {
    if (!follows)
      return;
    checked++;
    ASSERT_EQ(count, 1);
    ASSERT_EQ(guess, GuessesAfter(r->known, 1)[0]) << "of the request with tag " << r->tag << " after " << r->known.size();
    r->given[0] = r->given[1] = std::max(r->given[1], int32_t(r->known.size()));
  }
  void Drain() {
    while (!in_flight_.empty() && !::testing::Test::HasFatalFailure())
      CollectOne();
    for (auto &r : open_) // after losses, too
      for (int32_t program : { 0, 1 })
        ASSERT_EQ(engine_.Bounds(r->row, program).first, engine_.Bounds(r->row, program).second) << "row " << r->row;
    for (uint64_t tag : lost_)
      if (Request *r = Find(tag)) {
        CGR_ASSERT_OK(cgr_request_set_length(engine_.rt, r->row, 0));
        r->given[0] = r->given[1] = r->behind = 0, r->sampled = false;
      }
    lost_.clear();
    for (auto &r : open_) {
      const auto target = engine_.Bounds(r->row, 0), draft = engine_.Bounds(r->row, 1);
      ASSERT_EQ(target.first, target.second) << "row " << r->row;
      ASSERT_EQ(draft.first, draft.second) << "row " << r->row;
      ASSERT_EQ(target.first, r->sampled ? int32_t(r->known.size()) - 1 : r->given[0]) << "row " << r->row;
      ASSERT_EQ(draft.first, r->given[1]) << "row " << r->row;
      const uint64_t last = engine_.Info(r->row).last.seq;
      if (last > 0 && target.first > 0) { // else its length has not been sent yet
        ASSERT_EQ(target.first, engine_.Length(r->row, 0)) << "row " << r->row;
      }
      if (last > 0 && draft.first > 0) {
        ASSERT_EQ(draft.first, engine_.Length(r->row, 1)) << "row " << r->row;
      }
    }
  }

  struct Freed {
    uint64_t seq;
    int32_t program, page;
  };
  const Options options_;
  DraftEngine engine_;
  SeededRandom random_;
  std::vector<std::unique_ptr<Request>> open_;
  std::deque<InFlight> in_flight_;
  std::vector<uint64_t> lost_; // tags
  EditedStanding standing_;
  List free_[2];
  std::vector<Freed> pending_;
  uint64_t tags_ = 0;
  int32_t opened_ = 0, finished_ = 0;
  bool steady_ = false; // the same work for all, of both programs
};

class Drafts : public OverDevices {};

void ExpectMuchOf(const Scheduler &s) {
  EXPECT_GT(s.accepted, 500);
  EXPECT_GT(s.followed, 1000);
  EXPECT_GT(s.checked, 500);
  EXPECT_GT(s.preempted, 5);
}

TEST_P(Drafts, GiveWhatPlainDecodingGives) {
  Scheduler scheduler(GetParam(), Options{});
  scheduler.Run();
  ExpectMuchOf(scheduler);
}

TEST_P(Drafts, NextToAStandingBatch) {
  Options options;
  options.standing = true;
  Scheduler scheduler(GetParam(), options);
  scheduler.Run();
  ExpectMuchOf(scheduler);
}

TEST_P(Drafts, InEagerStepsAndPieces) {
  for (cgr_graph_mode mode : { CGR_MODE_NONE, CGR_MODE_PIECEWISE, CGR_MODE_FULL_DECODE_ONLY }) {
    Options options;
    options.mode = mode;
    options.num_requests = 60;
    Scheduler scheduler(GetParam(), options);
    scheduler.Run();
  }
}

TEST_P(Drafts, OutliveLosses) {
  for (bool standing : { false, true }) {
    Options options;
    options.standing = standing;
    options.num_requests = 120;
    options.one_loss_in = 25;
    Scheduler scheduler(GetParam(), options);
    scheduler.Run();
    EXPECT_GT(scheduler.losses, 5);
  }
}

// It follows who has which page, of both programs.
TEST(DraftsUnderTheValidationLayer, BreakNoRule) {
  DeviceParam param = HostParam(CGR_SCHEDULE_EARLIEST);
  param.config.layer = cgr_validation_layer();
  param.config.on_violation = [](void *, const char *message) { ADD_FAILURE() << message; };
  Options options;
  options.num_requests = 100;
  Scheduler scheduler(param, options);
  scheduler.Run();
}

CGR_INSTANTIATE_OVER_HOST_DEVICES(Drafts);

} // namespace
} // namespace cgr_test

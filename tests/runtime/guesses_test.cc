// Whatever is guessed, accepted, cut off, preempted or lost, every request gets the tokens that plain decoding gives.
#include <deque>
#include <map>
#include <memory>

#include "tests/support/guess_steps.h"

namespace cgr_test {
namespace {

using namespace guesses;

// ---------------------------------------------------------------------------------------------------------------- scheduler

struct Options {
  int32_t guesses = kMost; // num_draft_tokens
  int32_t num_requests = 500;
  int32_t num_pages = 34;  // a third of what all rows could use
  bool standing = false;   // the batch is the standing one, edited
  int32_t one_loss_in = 0; // steps; 0: none
  cgr_graph_mode mode = CGR_MODE_FULL;
};

struct Request {
  List known, want; // the prompt and what was delivered; what is still to come
  int32_t row = -1;
  uint64_t tag = 0;
  int32_t given = 0;    // of `known`, in steps so far; the rest follows in chunks
  int32_t launched = 0; // steps that have not been collected
  bool sampled = false; // the last chunk was given: the device has the next token
};

struct Work {
  Request *request;
  List tokens;
  uint32_t flags = 0;
  bool of_device = false;      // the last token and the device's guesses: no tokens need be given
  bool after_sampling = false; // what the request was when this was composed
  int32_t given = 0;
};

class Scheduler {
public:
  Scheduler(const DeviceParam &device, const Options &options)
      : options_(options), engine_(device, options.guesses, options.num_pages, false, options.mode) {
    for (int32_t p = 2; p < options.num_pages; p++)
      free_.push_back(p);
  }

  void Run() {
    while ((finished_ < options_.num_requests || !open_.empty()) && !::testing::Test::HasFailure())
      Round();
    Drain();
    if (options_.mode == CGR_MODE_FULL)
      ExpectReplays();
    const cgr_stats stats = StatsOf(rt());
    EXPECT_EQ(stats.drafts, uint64_t(guessed_)) << "those of refused steps do not count";
    EXPECT_GE(stats.drafts_accepted, uint64_t(accepted_));
    EXPECT_LE(stats.drafts_accepted, stats.drafts);
  }
  int64_t guessed() const { return guessed_; }
  int64_t accepted() const { return accepted_; }
  int64_t preempted() const { return preempted_; }
  int64_t losses() const { return losses_; }
  int64_t mixed() const { return mixed_; }

private:
  cgr_runtime *rt() { return engine_.rt; }
  bool Chance(int32_t one_in) { return random_.OneIn(one_in); }

  void Round() {
    if (opened_ < options_.num_requests && int32_t(open_.size()) < kRows && Chance(3))
      Arrive();
    if (Chance(12))
      Drain();
    Step(Compose());
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
    request.tag = ++tags_, request.given = request.launched = 0, request.sampled = false;
    CGR_ASSERT_OK(cgr_request_open(rt(), request.tag, &request.row));
    open_.push_back(std::make_unique<Request>(request));
  }
  // The row's pages are free when its last step has completed.
  void Close(Request *request) {
    standing_.Remove(rt(), request->row);
    GiveBack(request->row, 0);
    CGR_ASSERT_OK(cgr_request_close(rt(), request->row));
    open_.erase(std::find_if(open_.begin(), open_.end(), [&](auto &r) { return r.get() == request; }));
  }
  void Preempt(Request *request) {
    Request again = *request;
    Close(request);
    preempted_++;
    waiting_.push_back(again);
  }

  // ---- pages
  int32_t NumPages(int32_t row) {
    int32_t first = 0, end = 0;
    CGR_EXPECT_OK(cgr_request_get_pages(rt(), row, 0, &first, &end));
    return end;
  }
  // All but the first `left`.
  void GiveBack(int32_t row, int32_t left) {
    const int32_t has = NumPages(row);
    const uint64_t last = engine_.Info(row).last.seq;
    for (int32_t p = left; p < has; p++)
      pending_.push_back({ last, pages_[row][size_t(p)] });
    if (has > left) {
      CGR_ASSERT_OK(cgr_request_drop_pages(rt(), row, 0, left, has - left));
    }
    pages_[row].resize(size_t(std::min(left, has)));
  }
  void TakeFreed() {
    uint64_t completed = 0;
    CGR_EXPECT_OK(cgr_runtime_completed(rt(), nullptr, &completed));
    for (size_t i = 0; i < pending_.size();)
      if (pending_[i].first <= completed) {
        free_.push_back(pending_[i].second);
        pending_.erase(pending_.begin() + int64_t(i));
      } else {
        i++;
      }
  }
  bool HasPages(int32_t row, int32_t query_len) {
    const int32_t needed = (engine_.Info(row).num_tokens + query_len + kPage - 1) / kPage;
    TakeFreed();
    while (NumPages(row) < needed) {
      if (free_.empty())
        return false;
      pages_[row].push_back(free_.back());
      CGR_EXPECT_OK(cgr_request_set_pages(rt(), row, 0, NumPages(row), &free_.back(), 1));
      free_.pop_back();
    }
    return true;
  }
  // Exhausted: results first, for they give back what rejected guesses would have needed; then a row that is not in the step.
  bool MakeRoom(const std::vector<Work> &works, Request *request, int32_t query_len) {
    if (HasPages(request->row, query_len))
      return true;
    if (works.empty()) {
      Drain();
      for (auto &r : open_)
        GiveBack(r->row, (engine_.Info(r->row).num_tokens + kPage - 1) / kPage);
    }
    if (!IsOpen(request))
      return false;
    if (HasPages(request->row, query_len))
      return true;
    for (size_t i = open_.size(); i > 0; i--) {
      Request *victim = open_[i - 1].get();
      if (victim != request && std::none_of(works.begin(), works.end(), [&](const Work &w) { return w.request == victim; })) {
        Preempt(victim);
        break;
      }
    }
    return HasPages(request->row, query_len);
  }

  bool IsOpen(const Request *request) const {
    return std::any_of(open_.begin(), open_.end(), [&](auto &r) { return r.get() == request; });
  }

  // ---- steps
  // Guesses of what comes after `known` and `skipped` more tokens; a third of them is wrong.
  List Lookup(const Request &r, int32_t count, int32_t skipped) {
    List guesses;
    for (int32_t j = skipped; j < skipped + count; j++)
      guesses.push_back(j < int32_t(r.want.size()) && !Chance(3) ? r.want[size_t(j)] : random_.Pick32(0, kVocab - 1));
    return guesses;
  }
  void AddGuesses(Work *work, const List &guesses) {
    work->tokens.insert(work->tokens.end(), guesses.begin(), guesses.end());
    work->flags = CGR_REQUEST_DRAFTS(int32_t(guesses.size()));
  }
  Work WorkOf(Request *r, int32_t room) {
    Work work = { r, {}, 0, false, r->sampled, r->given };
    if (!r->sampled) { // a chunk of what is known, the last one with guesses
      const int32_t left = int32_t(r->known.size()) - r->given, chunk = std::min({ left, room, random_.Pick32(1, 14) });
      work.tokens.assign(r->known.begin() + r->given, r->known.begin() + r->given + chunk);
      if (chunk < left)
        work.flags = CGR_REQUEST_PARTIAL;
      else if (chunk < room)
        AddGuesses(&work, Lookup(*r, std::min(room - chunk, random_.Pick32(0, options_.guesses)), 0));
      return work;
    }
    const int32_t guesses = std::min(room - 1, Chance(3) ? 0 : random_.Pick32(0, options_.guesses));
    work.tokens = { CGR_TOKEN_LAST };
    work.of_device = guesses > 0 && Chance(2);
    if (work.of_device) {
      for (int32_t j = 0; j < guesses; j++)
        work.tokens.push_back(CGR_TOKEN_DRAFT(j));
      work.flags = CGR_REQUEST_DRAFTS(guesses);
      return work;
    }
    if (r->launched == 0 && Chance(2)) /* the host knows it */
      work.tokens[0] = r->known.back();
    AddGuesses(&work, Lookup(*r, guesses, r->launched));
    return work;
  }
  std::vector<Work> Compose() {
    std::vector<Work> works;
    int32_t room = kTokens;
    while (!waiting_.empty() && int32_t(open_.size()) < kRows && Chance(4)) {
      const Request again = waiting_.front();
      waiting_.pop_front();
      Open(again);
    }
    for (size_t i = 0; i < open_.size() && works.size() < kRequests && room > kMost; i++) {
      Request *r = open_[i].get();
      if (Chance(5))
        continue;
      Work work = WorkOf(r, room);
      if (!MakeRoom(works, r, int32_t(work.tokens.size())))
        continue;
      i = size_t(std::find_if(open_.begin(), open_.end(), [&](auto &o) { return o.get() == r; }) - open_.begin());
      if (r->sampled != work.after_sampling || (!r->sampled && r->given != work.given))
        continue; // results have come meanwhile
      if (r->sampled && work.tokens[0] >= 0 && work.tokens[0] != r->known.back())
        continue;
      room -= int32_t(work.tokens.size());
      works.push_back(work);
    }
    return works;
  }
  cgr_status Prepare(const std::vector<Work> &works, cgr_step *step) {
    if (options_.standing)
      standing_.Edit(rt(), works);
    const WorkBatch own(works);
    const bool with_tokens = !own.of_device || !Chance(2);
    const cgr_batch batch = options_.standing ? StandingBatch() : own.Batch(with_tokens);
    return cgr_step_prepare_wait(rt(), &batch, step, -1, engine_.stream);
  }
  void Step(const std::vector<Work> &works) {
    cgr_step step = CGR_STEP_INIT;
    while (in_flight_.size() >= kDepth)
      CollectOne();
    CGR_ASSERT_OK(Prepare(works, &step));
    if (Chance(15)) {
      CGR_ASSERT_OK(cgr_step_cancel(rt(), &step));
      return;
    }
    if (options_.one_loss_in > 0 && Chance(options_.one_loss_in)) {
      engine_.DamagePrepared();
      losses_++;
    }
    CGR_ASSERT_OK(cgr_step_launch(rt(), &step, engine_.stream));
    std::vector<uint64_t> tags;
    int64_t guesses = 0;
    bool with = false, without = false;
    for (const Work &work : works) {
      Request *r = work.request;
      if (!r->sampled)
        r->given += int32_t(work.tokens.size()) - int32_t(work.flags / CGR_REQUEST_DRAFTS(1));
      r->sampled |= !(work.flags & CGR_REQUEST_PARTIAL);
      r->launched++;
      tags.push_back(r->tag);
      guesses += work.flags / CGR_REQUEST_DRAFTS(1);
      (work.flags >= CGR_REQUEST_DRAFTS(1) ? with : without) = true;
    }
    mixed_ += with && without;
    in_flight_.push_back({ step.mark, tags, guesses });
  }

  // ---- results
  Request *Find(uint64_t tag) { return FindTag(open_, tag); }
  void CollectOne() {
    const auto [mark, tags, guesses] = in_flight_.front();
    in_flight_.pop_front();
    cgr_step_result result = CGR_STEP_RESULT_INIT;
    const cgr_status status = cgr_step_wait(rt(), mark, -1, &result);
    ASSERT_TRUE(status == CGR_OK || (losses_ > 0 && status == CGR_ERROR_STEP)) << cgr_last_message();
    for (uint64_t tag : tags)
      if (Request *r = Find(tag))
        r->launched--;
    if (status != CGR_OK) {
      lost_.insert(lost_.end(), tags.begin(), tags.end());
      if (in_flight_.empty())
        BeginAgain();
      else
        Drain();
      return;
    }
    guessed_ += guesses;
    for (int32_t i = 0; i < result.num_requests; i++)
      Deliver(Find(result.tags[i]), result.tokens + i * result.token_stride, result.num_tokens[i]);
  }
  void Deliver(Request *r, const int32_t *tokens, int32_t count) {
    if (r == nullptr || std::find(lost_.begin(), lost_.end(), r->tag) != lost_.end())
      return;
    accepted_ += std::max(count - 1, 0);
    for (int32_t j = 0; j < count && !r->want.empty(); j++) {
      ASSERT_EQ(tokens[j], r->want[0]) << "token " << r->known.size() << " of the request with tag " << r->tag;
      r->known.push_back(tokens[j]);
      r->want.erase(r->want.begin());
    }
    if (r->sampled)
      r->given = int32_t(r->known.size());
    if (r->want.empty()) {
      finished_++;
      Close(r);
    }
  }
  // Rows of steps that were refused: what they have in the cache is no longer known.
  void BeginAgain() {
    for (uint64_t tag : lost_)
      if (Request *r = Find(tag)) {
        CGR_ASSERT_OK(cgr_request_set_length(rt(), r->row, 0));
        r->given = 0, r->sampled = false;
      }
    lost_.clear();
  }
  void Drain() {
    while (!in_flight_.empty() && !::testing::Test::HasFatalFailure())
      CollectOne();
    if (!lost_.empty())
      BeginAgain();
    for (auto &r : open_) {
      const cgr_request_info info = engine_.Info(r->row);
      ASSERT_EQ(info.num_tokens, info.min_tokens) << "row " << r->row;
      ASSERT_EQ(info.num_tokens, r->sampled ? int32_t(r->known.size()) - 1 : r->given) << "row " << r->row;
      if (info.last.seq > 0 && info.num_tokens > 0) { // else its length has not been sent yet
        ASSERT_EQ(info.num_tokens, engine_.Length(r->row)) << "row " << r->row;
      }
    }
  }
  void ExpectReplays() {
    const cgr_stats stats = StatsOf(rt());
    uint64_t full = 0, steps = stats.steps; // without those of the runtime: warm-up, changes sent ahead
    for (const auto &of_kind : stats.by_reason)
      steps -= of_kind[CGR_REASON_INTERNAL];
    for (uint64_t count : stats.by_reason[CGR_KIND_FULL])
      full += count;
    full -= stats.by_reason[CGR_KIND_FULL][CGR_REASON_INTERNAL];
    EXPECT_GE(double(full), 0.995 * double(steps)) << full << " of " << steps;
  }

  const Options options_;
  GuessEngine engine_;
  SeededRandom random_;
  std::vector<std::unique_ptr<Request>> open_;
  std::deque<Request> waiting_;
  std::deque<std::tuple<cgr_mark, std::vector<uint64_t>, int64_t>> in_flight_; // tags, guesses of all requests
  std::vector<uint64_t> lost_;                                                 // tags
  EditedStanding standing_;
  std::map<int32_t, List> pages_;
  List free_;
  std::vector<std::pair<uint64_t, int32_t>> pending_;
  uint64_t tags_ = 0;
  int32_t opened_ = 0, finished_ = 0;
  int64_t guessed_ = 0, accepted_ = 0, preempted_ = 0, losses_ = 0, mixed_ = 0;
};

class Guesses : public OverDevices {};

void ExpectMuchOf(const Scheduler &s, bool preempts) {
  EXPECT_GT(s.guessed(), 2000);
  EXPECT_GT(s.accepted(), 500);
  EXPECT_LT(s.accepted(), s.guessed() * 3 / 4);
  EXPECT_GT(s.mixed(), 500) << "steps with and without guesses";
  EXPECT_TRUE(!preempts || s.preempted() > 10) << s.preempted();
}

TEST_P(Guesses, GiveWhatPlainDecodingGives) {
  Scheduler guessing(GetParam(), Options{});
  guessing.Run();
  ExpectMuchOf(guessing, true);
}

TEST_P(Guesses, PlainDecodingGivesThat) {
  Options options;
  options.guesses = 0;
  options.num_requests = 100;
  Scheduler plain(GetParam(), options);
  plain.Run();
  EXPECT_EQ(plain.guessed(), 0);
}

TEST_P(Guesses, OfTheStandingBatch) {
  Options options;
  options.standing = true;
  Scheduler guessing(GetParam(), options);
  guessing.Run();
  ExpectMuchOf(guessing, true);
}

TEST_P(Guesses, OfEagerStepsAndPieces) {
  for (cgr_graph_mode mode : { CGR_MODE_NONE, CGR_MODE_PIECEWISE, CGR_MODE_FULL_DECODE_ONLY }) {
    Options options;
    options.mode = mode;
    options.num_requests = 60;
    Scheduler guessing(GetParam(), options);
    guessing.Run();
  }
}

// It follows who has which page, and which tokens of it a step may write.
TEST(GuessesUnderTheValidationLayer, BreakNoRule) {
  for (bool standing : { false, true }) {
    DeviceParam param = HostParam(CGR_SCHEDULE_EARLIEST);
    param.config.layer = cgr_validation_layer();
    param.config.on_violation = [](void *, const char *message) { ADD_FAILURE() << message; };
    Options options;
    options.standing = standing;
    options.num_requests = 150;
    Scheduler guessing(param, options);
    guessing.Run();
  }
}

// Steps that the device refuses, with others under way that it refuses for that.
TEST_P(Guesses, OutliveLosses) {
  for (bool standing : { false, true }) {
    Options options;
    options.standing = standing;
    options.num_requests = 150;
    options.one_loss_in = 25;
    Scheduler guessing(GetParam(), options);
    guessing.Run();
    EXPECT_GT(guessing.losses(), 5);
  }
}

// What a sampler may not write is reported, the row goes on, and after its length was set back all is right again.
TEST_P(Guesses, RubbishOfTheSamplerIsRefused) {
  for (int32_t rubbish : { 1, 2, 3, 4 }) {
    GuessEngine engine(GetParam(), kMost, 34);
    const List prompt = { 5, 6, 7, 8 }, pages = { 2, 3, 4 };
    const List want = Continued(prompt, 8);
    int32_t row = -1;
    CGR_ASSERT_OK(cgr_request_open(engine.rt, 77, &row));
    CGR_ASSERT_OK(cgr_request_set_pages(engine.rt, row, 0, 0, pages.data(), 3));
    auto run = [&](List tokens, uint32_t flags, cgr_step_result *result) {
      const int32_t len = int32_t(tokens.size());
      cgr_batch batch = BatchOf(1, &row, tokens.data(), &len);
      cgr_step step = CGR_STEP_INIT;
      batch.flags = &flags;
      CGR_EXPECT_OK(cgr_step_prepare(engine.rt, &batch, &step));
      CGR_EXPECT_OK(cgr_step_launch(engine.rt, &step, engine.stream));
      return cgr_step_wait(engine.rt, step.mark, -1, result);
    };
    cgr_step_result result = CGR_STEP_RESULT_INIT;
    const bool of_guesses = rubbish == 4; // left by one step, taken by the next
    *engine.rubbish() = of_guesses ? rubbish : 0;
    CGR_ASSERT_OK(run(prompt, 0, &result));
    *engine.rubbish() = of_guesses ? 0 : rubbish;
    const List guesses = { CGR_TOKEN_LAST, of_guesses ? CGR_TOKEN_DRAFT(0) : want[1], want[2] };
    CGR_EXPECT(CGR_ERROR_STEP, run(guesses, CGR_REQUEST_DRAFTS(2), &result));
    *engine.rubbish() = 0;
    EXPECT_EQ(result.guard.error, rubbish >= 3 ? CGR_GUARD_TOKEN : CGR_GUARD_ACCEPTED);
    EXPECT_EQ(result.guard.row, row);
    EXPECT_EQ(result.guard.value, rubbish == 1 ? 1000 : rubbish == 2 ? -1 : kVocab);
    EXPECT_EQ(result.num_tokens[0], rubbish == 3 ? 3 : of_guesses && want[1] == 0 ? 2 : 1);
    EXPECT_EQ(engine.Info(row).num_tokens, engine.Length(row)) << "host and device still agree";
    CGR_ASSERT_OK(cgr_request_set_length(engine.rt, row, 4));
    CGR_ASSERT_OK(run({ want[0], want[1], 0 }, CGR_REQUEST_DRAFTS(2), &result));
    EXPECT_EQ(result.num_tokens[0], want[2] == 0 ? 3 : 2);
    EXPECT_EQ(List(result.tokens, result.tokens + 2), List(want.begin() + 1, want.begin() + 3));
    EXPECT_EQ(engine.Info(row).num_tokens, engine.Length(row));
    CGR_ASSERT_OK(cgr_request_close(engine.rt, row));
  }
}

CGR_INSTANTIATE_OVER_FEW_DEVICES(Guesses);

} // namespace
} // namespace cgr_test

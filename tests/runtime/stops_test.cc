// Requests end on the device, in steps of which several are under way: each gets the tokens that an engine which stops on the
// host gives it, to the last one, and whatever was launched for it meanwhile does nothing.
#include <deque>
#include <map>
#include <memory>

#include "cgr/stops.h"
#include "tests/support/guess_steps.h"

namespace cgr_test {
namespace {

using namespace guesses;

enum { kStops = 3, kPagesOfRow = kSeqLen / kPage };

struct Options {
  int32_t guesses = kMost; // num_draft_tokens
  int32_t num_requests = 200;
  bool standing = false;   // the batch is the standing one, edited
  int32_t one_loss_in = 0; // steps; 0: none
  cgr_graph_mode mode = CGR_MODE_FULL;
};

struct Stops {
  List tokens;
  int32_t max_length = 0, min_length = 0;
};

// What the host of an engine says of a request that has these tokens, the last of which was sampled.
cgr_end EndOf(const Stops &stops, const List &known) {
  const int32_t length = int32_t(known.size());
  if (length >= stops.min_length && std::count(stops.tokens.begin(), stops.tokens.end(), known.back()) > 0)
    return CGR_END_STOP_TOKEN;
  return stops.max_length > 0 && length >= stops.max_length ? CGR_END_LENGTH : CGR_END_NONE;
}

struct Request {
  List known; // the prompt and what was delivered
  Stops stops;
  int32_t row = -1, given = 0; // of `known`, in chunks
  uint64_t tag = 0;
  bool sampled = false; // the last chunk was given: the device has the next token
  cgr_end end = CGR_END_NONE;
  int32_t times_back = 0;
};

struct InFlight {
  cgr_mark mark;
  std::vector<uint64_t> tags;
};

class Scheduler {
public:
  Scheduler(const DeviceParam &device, const Options &options)
      : options_(options), engine_(device, options.guesses, 2 + kRows * kPagesOfRow, false, options.mode, kStops) {}

  void Run() {
    while ((opened_ < options_.num_requests || !open_.empty()) && !::testing::Test::HasFailure())
      Round();
    Drain();
    EXPECT_GT(ends_[CGR_END_STOP_TOKEN], options_.num_requests / 10);
    EXPECT_GT(ends_[CGR_END_LENGTH], options_.num_requests / 10);
    EXPECT_GT(empty_, options_.num_requests / 2) << "steps of requests that had ended before";
    EXPECT_GT(back_, 3);
    const cgr_stats stats = StatsOf(rt());
    EXPECT_TRUE(losses_ > 0 || stats.drafts == uint64_t(verified_)) << stats.drafts << ", expected " << verified_;
  }
  int64_t losses() const { return losses_; }

private:
  cgr_runtime *rt() { return engine_.rt; }
  bool Chance(int32_t one_in) { return random_.OneIn(one_in); }

  void Round() {
    if (opened_ < options_.num_requests && int32_t(open_.size()) < kRows && Chance(2))
      Arrive();
    if (Chance(20))
      Drain();
    Step();
    while (in_flight_.size() > size_t(random_.Pick(0, kDepth - 1)))
      CollectOne();
  }

  // ---- requests
  Stops DrawStops(int32_t length) {
    Stops stops;
    for (int32_t n = random_.Pick32(0, kStops); n > 0; n--)
      stops.tokens.push_back(random_.Pick32(0, kVocab - 1));
    stops.max_length = length + random_.Pick32(1, 25); // so that every request ends
    stops.min_length = Chance(2) ? length + random_.Pick32(0, stops.max_length - length) : 0;
    return stops;
  }
  void SetStops(const Request &r) {
    cgr_stops stops = CGR_STOPS_INIT;
    stops.num_tokens = int32_t(r.stops.tokens.size()), stops.tokens = r.stops.tokens.data();
    stops.max_length = r.stops.max_length, stops.min_length = r.stops.min_length;
    CGR_ASSERT_OK(cgr_request_set_stops(rt(), r.row, &stops));
  }
  void Arrive() {
    Request r;
    r.known = RandomPrompt(&random_);
    r.stops = DrawStops(int32_t(r.known.size())), r.tag = uint64_t(++opened_);
    Drain(); // the row's pages are those of its last owner
    CGR_ASSERT_OK(cgr_request_open(rt(), r.tag, &r.row));
    List pages;
    for (int32_t p = 0; p < kPagesOfRow; p++)
      pages.push_back(2 + r.row * kPagesOfRow + p);
    CGR_ASSERT_OK(cgr_request_set_pages(rt(), r.row, 0, 0, pages.data(), kPagesOfRow));
    SetStops(r);
    open_.push_back(std::make_unique<Request>(r));
  }
  Request *Find(uint64_t tag) { return FindTag(open_, tag); }
  // Of a request that has ended, with or without steps of it under way.
  void Leave(Request *r) {
    standing_.Remove(rt(), r->row);
    CGR_ASSERT_OK(cgr_request_close(rt(), r->row));
    open_.erase(std::find_if(open_.begin(), open_.end(), [&](auto &o) { return o.get() == r; }));
  }
  void BringBack(Request *r) {
    r->stops = DrawStops(int32_t(r->known.size())), r->end = CGR_END_NONE;
    ignored_[r->tag] = in_flight_.empty() ? 0 : in_flight_.back().mark.seq;
    SetStops(*r);
    r->times_back++, back_++;
  }

  // ---- steps
  struct Work {
    Request *request;
    List tokens;
    uint32_t flags = 0;
    bool of_device = false;
  };
  Work WorkOf(Request *r, int32_t room) {
    Work work = { r, { CGR_TOKEN_LAST } };
    if (!r->sampled) {
      const int32_t left = int32_t(r->known.size()) - r->given, chunk = std::min({ left, room, random_.Pick32(1, 14) });
      work.tokens.assign(r->known.begin() + r->given, r->known.begin() + r->given + chunk);
      work.flags = chunk < left ? CGR_REQUEST_PARTIAL : 0;
      return work;
    }
    const int32_t guesses = std::min(room - 1, Chance(3) ? 0 : random_.Pick32(0, options_.guesses));
    for (int32_t j = 0; j < guesses; j++)
      work.tokens.push_back(Chance(3) ? random_.Pick32(0, kVocab - 1) : CGR_TOKEN_DRAFT(j));
    work.of_device = std::all_of(work.tokens.begin(), work.tokens.end(), [](int32_t token) { return token < 0; });
    work.flags = CGR_REQUEST_DRAFTS(guesses);
    return work;
  }
  // Rows that have ended stay in the batch for as long as the engine likes.
  std::vector<Work> Compose() {
    std::vector<Work> works;
    int32_t room = kTokens;
    for (auto &r : open_) {
      if (room == 0 || works.size() == kRequests || Chance(5))
        continue;
      Work work = WorkOf(r.get(), std::min(room, 14));
      const cgr_request_info info = engine_.Info(r->row);
      if (info.ended == CGR_END_NONE && info.num_tokens + int32_t(work.tokens.size()) > kSeqLen)
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
    const cgr_batch batch = options_.standing ? StandingBatch() : own.Batch(!own.of_device);
    return cgr_step_prepare_wait(rt(), &batch, step, -1, engine_.stream);
  }
  void Step() {
    cgr_step step = CGR_STEP_INIT;
    while (in_flight_.size() >= kDepth)
      CollectOne();
    const std::vector<Work> works = Compose();
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
    in_flight_.push_back({ step.mark, {} });
    for (const Work &work : works) {
      if (!work.request->sampled)
        work.request->given += int32_t(work.tokens.size());
      work.request->sampled |= !(work.flags & CGR_REQUEST_PARTIAL);
      in_flight_.back().tags.push_back(work.request->tag);
      guessed_[{ step.mark.seq, work.request->tag }] = int32_t(work.flags / CGR_REQUEST_DRAFTS(1));
    }
  }

  // ---- results
  void CollectOne() {
    const InFlight step = in_flight_.front();
    in_flight_.pop_front();
    cgr_step_result result = CGR_STEP_RESULT_INIT;
    const cgr_status status = cgr_step_wait(rt(), step.mark, -1, &result);
    ASSERT_TRUE(status == CGR_OK || (losses_ > 0 && status == CGR_ERROR_STEP)) << cgr_last_message();
    if (status != CGR_OK) {
      lost_.insert(lost_.end(), step.tags.begin(), step.tags.end());
      if (in_flight_.empty())
        BeginAgain();
      else
        Drain();
      return;
    }
    for (int32_t i = 0; i < result.num_requests; i++) {
      Request *r = Find(result.tags[i]);
      verified_ += result.ended[i] == CGR_END_BEFORE ? 0 : guessed_[{ step.mark.seq, result.tags[i] }];
      if (r != nullptr)
        Deliver(r, step.mark.seq, result.tokens + i * result.token_stride, result.num_tokens[i], cgr_end(result.ended[i]));
    }
  }
  void Deliver(Request *r, uint64_t seq, const int32_t *tokens, int32_t count, cgr_end end) {
    if (std::find(lost_.begin(), lost_.end(), r->tag) != lost_.end())
      return;
    if (r->end != CGR_END_NONE || (r->times_back > 0 && seq <= ignored_[r->tag])) {
      empty_++;
      ASSERT_EQ(count, 0) << "step " << seq << " after the end";
      ASSERT_EQ(end, CGR_END_BEFORE) << "step " << seq;
      if (Chance(3))
        r->times_back < 2 && r->end != CGR_END_NONE &&Chance(2) ? BringBack(r) : LeaveIfEnded(r);
      return;
    }
    for (int32_t j = 0; j < count; j++) {
      ASSERT_EQ(r->end, CGR_END_NONE) << "token " << j << " after the end, in step " << seq;
      ASSERT_EQ(tokens[j], Continued(r->known, 1)[0]) << "token " << r->known.size() << " of request " << r->tag;
      r->known.push_back(tokens[j]);
      r->end = EndOf(r->stops, r->known);
    }
    ASSERT_EQ(end, r->end) << "of request " << r->tag << " in step " << seq;
    ends_[end]++;
    if (r->sampled)
      r->given = int32_t(r->known.size());
    if (Chance(8))
      LeaveIfEnded(r);
  }
  void LeaveIfEnded(Request *r) {
    if (r->end != CGR_END_NONE)
      Leave(r);
  }
  // Rows of steps that were refused: what they have in the cache is no longer known, unless they have ended before.
  void BeginAgain() {
    for (uint64_t tag : lost_)
      if (Request *r = Find(tag); r != nullptr && r->end == CGR_END_NONE) {
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
    for (size_t i = 0; i < open_.size();) {
      Request *r = open_[i].get();
      ExpectSettled(*r);
      if (r->end != CGR_END_NONE && Chance(2))
        Leave(r);
      else
        i++;
    }
  }
  void ExpectSettled(const Request &r) {
    const cgr_request_info info = engine_.Info(r.row);
    ASSERT_EQ(info.num_tokens, info.min_tokens) << "row " << r.row;
    ASSERT_EQ(info.num_tokens, r.sampled ? int32_t(r.known.size()) - 1 : r.given) << "row " << r.row;
    ASSERT_EQ(info.ended, r.end) << "row " << r.row;
    if (info.last.seq == 0 || info.num_tokens == 0 || ignored_.count(r.tag)) // its length may not have been sent yet
      return;
    ASSERT_EQ(uint32_t(engine_.Length(r.row)) & INT32_MAX, uint32_t(info.num_tokens)) << "row " << r.row;
    ASSERT_EQ(engine_.Length(r.row) < 0, r.end != CGR_END_NONE) << "row " << r.row;
  }

  const Options options_;
  GuessEngine engine_;
  SeededRandom random_;
  std::vector<std::unique_ptr<Request>> open_;
  std::deque<InFlight> in_flight_;
  std::vector<uint64_t> lost_;           // tags
  std::map<uint64_t, uint64_t> ignored_; // by tag: steps up to this one are of before it was brought back
  EditedStanding standing_;
  std::map<std::pair<uint64_t, uint64_t>, int32_t> guessed_; // by step and tag
  std::map<cgr_end, int32_t> ends_;
  int32_t opened_ = 0;
  int64_t empty_ = 0, back_ = 0, losses_ = 0, verified_ = 0;
};

class StopsOnTheDevice : public OverDevices {};

TEST_P(StopsOnTheDevice, GiveWhatAHostThatStopsGives) {
  for (int32_t guesses : { 0, int32_t(kMost) }) {
    Options options;
    options.guesses = guesses;
    Scheduler(GetParam(), options).Run();
  }
}

TEST_P(StopsOnTheDevice, OfTheStandingBatch) {
  for (int32_t guesses : { 0, int32_t(kMost) }) {
    Options options;
    options.standing = true, options.guesses = guesses;
    Scheduler(GetParam(), options).Run();
  }
}

TEST_P(StopsOnTheDevice, OfEagerStepsAndPieces) {
  for (cgr_graph_mode mode : { CGR_MODE_NONE, CGR_MODE_PIECEWISE, CGR_MODE_FULL_DECODE_ONLY }) {
    Options options;
    options.mode = mode, options.num_requests = 60;
    Scheduler(GetParam(), options).Run();
  }
}

// What a loss makes the host send again says which rows have ended.
TEST_P(StopsOnTheDevice, OutliveLosses) {
  for (bool standing : { false, true })
    for (int32_t guesses : { 0, int32_t(kMost) }) {
      Options options;
      options.standing = standing, options.guesses = guesses, options.one_loss_in = 15;
      Scheduler scheduler(GetParam(), options);
      scheduler.Run();
      EXPECT_GT(scheduler.losses(), 5);
    }
}

TEST(StopsUnderTheValidationLayer, BreakNoRule) {
  for (bool standing : { false, true }) {
    DeviceParam param = HostParam(CGR_SCHEDULE_EARLIEST);
    param.config.layer = cgr_validation_layer();
    param.config.on_violation = [](void *, const char *message) { ADD_FAILURE() << message; };
    Options options;
    options.standing = standing;
    Scheduler(param, options).Run();
  }
}

CGR_INSTANTIATE_OVER_FEW_DEVICES(StopsOnTheDevice);

} // namespace
} // namespace cgr_test

// Steps that verify guesses, simulated: a runtime on the host device, whose sampler accepts at random, next to a plain model of
// its rows. The sampler finds in the step's buffers what the model expects, the host's bounds hold the model's lengths at all
// times, and after every drain the host's exact view, the device's and the model's are the same; with results that come late,
// losses, dropped changes, rubbish of the sampler's, lengths that are set and requests that come and go. 20,000 steps;
// CGR_GUESS_STEPS in the environment sets another number.
#include <cstdlib>
#include <set>

#include "runtime/runtime.h"
#include "tests/support/devices.h"
#include "tests/support/expect.h"
#include "tests/support/guess_sampler.h"
#include "tests/support/record_buffers.h"
#include "tests/support/seed.h"

namespace cgr_test {
namespace {

using namespace guess_sampler;

enum {
  kRequests = 6,
  kRows = 9,
  kTokens = 40,
  kSeqLen = 128,
  kPage = 16,
  kPagesOfRow = kSeqLen / kPage,
  kVocab = 50,
  kStepsOfARuntime = 1000
};

struct Row {
  uint64_t tag = 0;
  int32_t length = 0;   // of the device, once the launched steps have run
  bool sent = false;    // the device has it, or will once these have
  bool tainted = false; // a step of it was refused: the engine sets its length back
  int32_t num_pages = 0;
};

struct Counts {
  int64_t steps = 0, guesses = 0, accepted = 0, rejected_late = 0, drains = 0, refused = 0, dropped = 0, rubbish = 0, set = 0,
          cancelled = 0, skipped = 0;
};

struct Options {
  uint64_t seed;
  int32_t depth, guesses;
  cgr_host_schedule schedule;
  cgr_graph_mode mode;
};

class Simulation {
public:
  Simulation(const Options &options, Counts *counts) : options_(options), random_(options.seed), counts_(counts) {
    const DeviceParam param = HostParam(options.schedule, options.seed);
    CGR_EXPECT_OK(cgr_device_open("host", &param.config, &dev_));
    CGR_EXPECT_OK(cgr_stream_create(dev_, &stream_));
    cgr_group group = CGR_GROUP_INIT;
    group.page_size = kPage, group.num_pages = 2 + kRows * kPagesOfRow;
    cgr_config config = CGR_CONFIG_INIT;
    config.device_handle = dev_, config.groups = &group, config.num_groups = 1;
    config.max_requests = kRequests, config.max_rows = kRows, config.max_tokens = kTokens, config.max_seq_len = kSeqLen;
    config.ring_depth = options.depth, config.graph_mode = options.mode, config.vocab_size = kVocab;
    config.num_draft_tokens = options.guesses;
    CGR_EXPECT_OK(cgr_runtime_create(&config, &rt_));
    const cgr_capture capture = CaptureOf(Record, this);
    CGR_EXPECT_OK(cgr_runtime_capture(rt_, &capture));
    last_.assign(kRows, 0), drafts_.assign(kRows, List(size_t(options.guesses), 0));
  }
  ~Simulation() {
    CGR_EXPECT_OK(cgr_runtime_destroy(rt_));
    CGR_EXPECT_OK(cgr_stream_destroy(dev_, stream_));
    CGR_EXPECT_OK(cgr_device_close(dev_));
  }
  Simulation(const Simulation &) = delete;
  Simulation &operator=(const Simulation &) = delete;

  void Run(int64_t steps) {
    for (const int64_t end = counts_->steps + steps; counts_->steps < end && !Failed();)
      Round();
    if (!Failed())
      Drain();
    const cgr_stats stats = StatsOf(rt_);
    EXPECT_EQ(int64_t(stats.drafts), verified_);
    EXPECT_EQ(int64_t(stats.drafts_accepted), accepted_);
  }

private:
  static cgr_status Record(cgr_recorder *recorder, void *engine) {
    Simulation &self = *static_cast<Simulation *>(engine);
    const cgr_record_info info = InfoOf(recorder);
    cgr_status status = CGR_OK;
    auto buffer = [&](cgr_buffer which) { return RecordBuffer(recorder, which, &status); };
    const SamplerArgs args = { &self.device_,
                               buffer(CGR_BUFFER_COUNTS),
                               buffer(CGR_BUFFER_REQUEST_ROWS),
                               buffer(CGR_BUFFER_QUERY_START_LOC),
                               buffer(CGR_BUFFER_SEQ_LENS),
                               buffer(CGR_BUFFER_INPUT_IDS),
                               buffer(CGR_BUFFER_POSITIONS),
                               buffer(CGR_BUFFER_NUM_DRAFTS),
                               buffer(CGR_BUFFER_NEXT_TOKENS),
                               buffer(CGR_BUFFER_NUM_ACCEPTED),
                               buffer(CGR_BUFFER_DRAFT_TOKENS),
                               1 + self.options_.guesses,
                               info.num_requests };
    return status == CGR_OK ? cgr_launch_host(self.dev_, Sample, &args, sizeof args, info.stream) : status;
  }

  bool Failed() {
    const std::lock_guard<std::mutex> lock(device_.mutex);
    EXPECT_EQ(device_.failure, "") << "step " << device_.samples;
    return ::testing::Test::HasFailure();
  }
  bool Chance(int32_t one_in) { return random_.OneIn(one_in); }
  cgr_request_info Info(int32_t row) {
    cgr_request_info info = CGR_REQUEST_INFO_INIT;
    CGR_EXPECT_OK(cgr_request_get_info(rt_, row, &info));
    return info;
  }
  int32_t AnyRow() { return std::next(rows_.begin(), random_.Pick(0, int64_t(rows_.size()) - 1))->first; }

  void Round() {
    if (rows_.size() < 3 || (rows_.size() < kRows && Chance(6)))
      Open();
    if (Chance(20))
      Close(AnyRow());
    if (!rows_.empty() && Chance(15))
      SetLength(AnyRow());
    if (Chance(12))
      Drain();
    if (!rows_.empty())
      Step();
    while (in_flight_.size() > size_t(random_.Pick(0, options_.depth)))
      CollectOne();
    ExpectBounds();
  }

  // ---- rows
  void Open() {
    Row row;
    int32_t index = -1;
    row.tag = ++tags_;
    CGR_ASSERT_OK(cgr_request_open(rt_, row.tag, &index));
    rows_[index] = row;
  }
  void Close(int32_t row) {
    if (members_.erase(row) > 0)
      CGR_EXPECT_OK(cgr_standing_remove(rt_, nullptr, row));
    CGR_EXPECT_OK(cgr_request_close(rt_, row));
    rows_.erase(row);
  }
  void SetLength(int32_t row) {
    Row &r = rows_.at(row);
    r.length = random_.Pick32(0, Info(row).min_tokens);
    CGR_EXPECT_OK(cgr_request_set_length(rt_, row, r.length));
    r.sent = r.tainted = false;
    counts_->set++;
  }
  // Tokens that the row has, as the next prepare will know it: once all steps have completed, it takes their results.
  int32_t Most(int32_t row) {
    const Row &r = rows_.at(row);
    const bool exact = !r.tainted && (in_flight_.empty() || Completed(rt_) == in_flight_.back().mark.seq);
    return exact ? r.length : Info(row).num_tokens;
  }
  void AddPages(int32_t row, int32_t query_len) {
    Row &r = rows_.at(row);
    for (const int32_t most = Most(row); r.num_pages * kPage < most + query_len; r.num_pages++) {
      const int32_t page = 2 + row * kPagesOfRow + r.num_pages;
      CGR_EXPECT_OK(cgr_request_set_pages(rt_, row, 0, r.num_pages, &page, 1));
    }
  }
  void DropPages(int32_t row) {
    Row &r = rows_.at(row);
    const int32_t left = (r.length + kPage - 1) / kPage;
    if (r.num_pages > left)
      CGR_EXPECT_OK(cgr_request_drop_pages(rt_, row, 0, left, r.num_pages - left));
    r.num_pages = std::min(r.num_pages, left);
  }

  // ---- a step
  int32_t AnyToken() { return random_.Pick32(0, kVocab - 1); }
  // What it is given; false: the row is full.
  bool Fill(Work *work, int32_t room) {
    const cgr_request_info info = Info(work->row);
    const int32_t length = std::min({ random_.Pick32(1, 1 + 2 * options_.guesses), room, kSeqLen - Most(work->row) });
    if (length <= 0)
      return false;
    work->tag = rows_.at(work->row).tag;
    work->partial = Chance(8);
    work->guesses = work->partial ? 0 : random_.Pick32(0, std::min(length - 1, options_.guesses));
    for (int32_t j = 0; j < length; j++)
      work->tokens.push_back(AnyToken());
    if (!info.has_token || Chance(3))
      return true;
    work->tokens[0] = CGR_TOKEN_LAST;
    work->goes_on = work->guesses > 0 && length == 1 + work->guesses && Chance(2);
    for (int32_t j = length - work->guesses; j < length; j++)
      if (work->goes_on || Chance(2))
        work->tokens[size_t(j)] = CGR_TOKEN_DRAFT(work->goes_on ? j - 1 : random_.Pick32(0, options_.guesses - 1));
    return true;
  }
  // What the sampler will write; now and then rubbish.
  void Choose(Work *work) {
    const int32_t k = options_.guesses;
    work->writes_accepted = random_.Pick32(0, work->guesses);
    for (int32_t j = 0; j <= k; j++)
      work->next.push_back(AnyToken());
    for (int32_t j = 0; j < k; j++)
      work->drafts.push_back(AnyToken());
    if (!Chance(40))
      return;
    const int32_t bad[] = { -1, kVocab, INT32_MAX, INT32_MIN };
    const int32_t what = random_.Pick32(0, 2), value = bad[random_.Pick(0, 3)];
    (what == 0 ? work->writes_accepted : what == 1 ? work->next[0] : work->drafts[0]) = value;
    counts_->rubbish++;
  }
  static bool IsToken(int32_t token) { return token >= 0 && token < kVocab; }
  // What the device makes of it, if the step runs; whether a guard speaks.
  bool Foresee(Work *work) {
    const Row &r = rows_.at(work->row);
    bool bad = false;
    work->position = r.length;
    for (int32_t token : work->tokens) {
      const bool is_draft = token < CGR_TOKEN_LAST;
      const int32_t id = token == CGR_TOKEN_LAST ? last_[size_t(work->row)]
                         : is_draft              ? drafts_[size_t(work->row)][size_t(-2 - token)]
                                                 : token;
      bad |= is_draft && !IsToken(id);
      work->ids.push_back(is_draft && !IsToken(id) ? 0 : id);
    }
    const bool counts = work->guesses > 0, in_range = work->writes_accepted >= 0 && work->writes_accepted <= work->guesses;
    bad |= counts && !in_range;
    work->accepted = counts && in_range ? work->writes_accepted : 0;
    const bool samples = work->length() > 0 && !work->partial;
    work->num_tokens = samples ? 1 + work->accepted : 0;
    for (int32_t j = 0; j < work->num_tokens; j++)
      bad |= !IsToken(work->next[size_t(j)]);
    return bad;
  }
  void Apply(const Work &work) {
    rows_.at(work.row).length += work.length() - work.guesses + work.accepted;
    if (work.num_tokens == 0)
      return;
    const int32_t last = work.next[size_t(work.accepted)];
    last_[size_t(work.row)] = IsToken(last) ? last : 0;
    drafts_[size_t(work.row)] = work.drafts;
    verified_ += work.guesses, accepted_ += work.accepted;
    counts_->guesses += work.guesses, counts_->accepted += work.accepted;
  }
  std::vector<Work> Compose() {
    List order;
    for (const auto &[row, r] : rows_)
      order.push_back(row);
    std::shuffle(order.begin(), order.end(), std::mt19937(uint32_t(random_.Bits())));
    std::vector<Work> works;
    int32_t room = kTokens;
    for (int32_t row : order) {
      Work work;
      work.row = row;
      if (works.size() == kRequests || room == 0 || Chance(4))
        continue;
      if (!Fill(&work, room)) {
        if (in_flight_.empty())
          Close(row);
        continue;
      }
      room -= work.length();
      AddPages(row, work.length());
      works.push_back(work);
    }
    return works;
  }
  cgr_status PrepareWhole(const std::vector<Work> &works, cgr_step *step) {
    List rows, lens, tokens;
    std::vector<uint32_t> flags;
    bool go_on = true;
    for (const Work &work : works) {
      rows.push_back(work.row), lens.push_back(work.length()), flags.push_back(work.flags());
      tokens.insert(tokens.end(), work.tokens.begin(), work.tokens.end());
      go_on &= work.goes_on;
    }
    cgr_batch batch = BatchOf(int32_t(rows.size()), rows.data(), go_on ? nullptr : tokens.data(), lens.data());
    batch.flags = flags.data();
    return cgr_step_prepare(rt_, &batch, step);
  }
  // Members that are not in the step stand still, or leave.
  cgr_status PrepareStanding(std::vector<Work> *works, cgr_step *step) {
    std::set<int32_t> in;
    for (const Work &work : *works)
      in.insert(work.row);
    for (auto it = members_.begin(); it != members_.end();) {
      const int32_t row = it->first;
      const bool stays = in.count(row) > 0 || (works->size() < kRequests && Chance(2));
      if (!stays)
        CGR_EXPECT_OK(cgr_standing_remove(rt_, nullptr, row));
      it = stays ? std::next(it) : members_.erase(it);
      if (!stays || in.count(row) > 0)
        continue;
      CGR_EXPECT_OK(cgr_standing_update(rt_, nullptr, row, 0, nullptr, 0));
      members_[row] = { -1, 0 };
      Work still;
      still.row = row, still.tag = rows_.at(row).tag;
      works->push_back(still);
    }
    for (const Work &work : *works) {
      const std::pair<int32_t, uint32_t> as = { work.length(), work.flags() };
      const bool member = members_.count(work.row) > 0;
      if (work.length() > 0 && !(member && work.goes_on && members_[work.row] == as)) { // else it goes on by itself
        CGR_EXPECT_OK((member ? cgr_standing_update : cgr_standing_add)(rt_, nullptr, work.row, as.first,
                                                                        work.goes_on ? nullptr : work.tokens.data(), as.second));
        members_[work.row] = work.goes_on ? as : std::pair<int32_t, uint32_t>{ -1, 0 };
      }
    }
    const cgr_batch batch = StandingBatch();
    return cgr_step_prepare(rt_, &batch, step);
  }
  // Prepare has seen a loss: all lengths are sent again, which are exact by then.
  void Resync() {
    generation_ = rt_->lane.generation;
    for (auto &[row, r] : rows_) {
      const cgr_request_info info = Info(row);
      ASSERT_EQ(info.num_tokens, info.min_tokens) << "row " << row << " is sent with a bound";
      ASSERT_TRUE(r.tainted || info.num_tokens == r.length)
          << "row " << row << ": " << info.num_tokens << ", expected " << r.length;
      r.length = info.num_tokens;
      r.sent = false;
    }
  }
  void Step() {
    cgr_step step = CGR_STEP_INIT;
    const bool full = in_flight_.size() >= size_t(options_.depth), skips = full && MaySkip();
    while (in_flight_.size() >= size_t(options_.depth) && !skips)
      CollectOne();
    std::vector<Work> works = Compose();
    if (works.empty() || Failed())
      return;
    const bool standing = Chance(2);
    cgr_status status = CGR_ERROR_BUSY;
    while (status == CGR_ERROR_BUSY)
      status = standing ? PrepareStanding(&works, &step) : PrepareWhole(works, &step);
    CGR_ASSERT_OK(status);
    if (skips) {
      in_flight_.pop_front();
      skipped_ = true;
      counts_->skipped++;
    }
    if (rt_->lane.generation != generation_)
      Resync();
    if (Chance(15)) {
      counts_->cancelled++;
      CGR_ASSERT_OK(cgr_step_cancel(rt_, &step));
      return;
    }
    Launch(works, &step);
  }
  // Whether the oldest result is left alone, whose place in the ring the next step takes as soon as it can.
  bool MaySkip() {
    return options_.schedule == CGR_SCHEDULE_ASYNC && !Chance(5) &&
           std::none_of(in_flight_.begin(), in_flight_.end(), [](const Launched &step) { return step.fails; });
  }
  void Launch(std::vector<Work> works, cgr_step *step) {
    Launched launched;
    launched.refused = generation_ != losses_;
    const bool spoils = Chance(60), drops = !spoils && Chance(20) && DropChange();
    if (spoils)
      cgr__ring_slot(&rt_->lane.ring, rt_->lane.prepared.seq)->num_tokens = -1;
    const bool loses = !launched.refused && (spoils || drops);
    launched.loses = loses && std::any_of(works.begin(), works.end(), [](const Work &work) { return work.guesses > 0; });
    launched.generation = generation_;
    losses_ += loses;
    launched.refused |= spoils;
    launched.fails = launched.refused || drops;
    for (Work &work : works) {
      Choose(&work);
      launched.fails |= Foresee(&work) && !launched.refused;
      launched.works[work.row] = work;
    }
    {
      const std::lock_guard<std::mutex> lock(device_.mutex);
      device_.expected.push_back(launched);
    }
    CGR_ASSERT_OK(cgr_step_launch(rt_, step, stream_));
    launched.mark = step->mark;
    in_flight_.push_back(launched);
    counts_->steps++, counts_->refused += launched.refused, counts_->dropped += drops;
    for (auto &[row, r] : rows_)
      r.sent |= !launched.refused;
    for (const auto &[row, work] : launched.works)
      if (launched.refused)
        rows_.at(row).tainted = true;
      else
        Apply(work);
    ExpectBounds();
  }
  // A page that travels with the prepared step gets lost.
  bool DropChange() {
    cgr__ring_slot_header *slot = cgr__ring_slot(&rt_->lane.ring, rt_->lane.prepared.seq);
    cgr__change *changes = cgr__ring_changes(&rt_->lane.ring, slot);
    for (int32_t c = 0; c < slot->num_changes; c++)
      if (changes[c].kind == CGR__CHANGE_PAGE) {
        changes[c].kind = 77;
        return true;
      }
    return false;
  }

  // ---- results
  void CollectOne() {
    const Launched step = in_flight_.front();
    in_flight_.pop_front();
    cgr_step_result result = CGR_STEP_RESULT_INIT;
    const cgr_status status = cgr_step_wait(rt_, step.mark, -1, &result);
    CGR_ASSERT(step.fails ? CGR_ERROR_STEP : CGR_OK, status);
    ASSERT_EQ(result.num_requests, step.refused ? 0 : int32_t(step.works.size()));
    for (int32_t i = 0; i < result.num_requests; i++) {
      const Work &work = step.works.at(result.rows[i]);
      ASSERT_EQ(result.tags[i], work.tag);
      ASSERT_EQ(result.num_tokens[i], work.num_tokens) << "row " << work.row;
      for (int32_t j = 0; j < work.num_tokens; j++)
        ASSERT_EQ(result.tokens[i * result.token_stride + j], work.next[size_t(j)]) << "row " << work.row;
      counts_->rejected_late += !in_flight_.empty() && work.accepted < work.guesses;
    }
    if (step.loses && rt_->lane.generation == step.generation && options_.schedule != CGR_SCHEDULE_ASYNC)
      ExpectExact(); // steps after it are refused
    if (step.refused) {
      while (!in_flight_.empty() && !Failed())
        CollectOne();
      Recover();
    }
  }
  // The engine sets the lengths of the rows of refused steps back.
  void Recover() {
    for (auto &[row, r] : rows_)
      if (r.tainted)
        SetLength(row);
  }
  void ExpectExact() {
    for (const auto &[row, r] : rows_)
      ASSERT_EQ(Info(row).num_tokens, Info(row).min_tokens) << "row " << row;
  }
  void ExpectBounds() {
    for (const auto &[row, r] : rows_) {
      const cgr_request_info info = Info(row);
      ASSERT_TRUE(r.tainted || (info.min_tokens <= r.length && r.length <= info.num_tokens))
          << "row " << row << ": " << info.min_tokens << " to " << info.num_tokens << ", expected " << r.length;
    }
    if (in_flight_.empty() && !skipped_)
      ExpectExact();
  }
  void Drain() {
    while (!in_flight_.empty() && !Failed())
      CollectOne();
    Recover();
    if (skipped_)
      CGR_ASSERT_OK(cgr_stream_synchronize(dev_, stream_));
    skipped_ = false;
    counts_->drains++;
    const auto *computed = static_cast<const int32_t *>(BufferOf(rt_, CGR_BUFFER_ROW_COMPUTED).data);
    const auto *last = static_cast<const int32_t *>(BufferOf(rt_, CGR_BUFFER_ROW_LAST_TOKENS).data);
    const auto *drafts = static_cast<const int32_t *>(BufferOf(rt_, CGR_BUFFER_ROW_DRAFT_TOKENS).data);
    for (const auto &[row, r] : rows_) {
      const cgr_request_info info = Info(row);
      ASSERT_EQ(info.min_tokens, r.length) << "row " << row;
      ASSERT_EQ(info.num_tokens, r.length) << "row " << row;
      ASSERT_TRUE(!r.sent || computed[row] == r.length) << "row " << row << ": " << computed[row] << ", expected " << r.length;
      const int32_t k = options_.guesses;
      ASSERT_EQ(last[row * (1 + k)], last_[size_t(row)]) << "row " << row;
      ASSERT_EQ(List(drafts + row * k, drafts + row * k + k), drafts_[size_t(row)]) << "row " << row;
      DropPages(row);
    }
  }

  const Options options_;
  Random random_;
  Counts *const counts_;
  cgr_device *dev_ = nullptr;
  cudaStream_t stream_ = nullptr;
  cgr_runtime *rt_ = nullptr;
  Device device_;
  std::map<int32_t, Row> rows_;
  List last_;                // [row] that the device has sampled last
  std::vector<List> drafts_; // [row]
  std::deque<Launched> in_flight_;
  std::map<int32_t, std::pair<int32_t, uint32_t>> members_; // and what they do by themselves
  bool skipped_ = false;                                    // a step that has not been waited for, since the last drain
  uint64_t tags_ = 0, generation_ = 0, losses_ = 0;
  int64_t verified_ = 0, accepted_ = 0;
};

int64_t NumSteps() {
  const char *given = std::getenv("CGR_GUESS_STEPS");
  return given != nullptr ? std::strtoll(given, nullptr, 0) : 20000;
}

TEST(GuessSimulation, HostDeviceAndModelAgree) {
  const cgr_host_schedule schedules[] = { CGR_SCHEDULE_RANDOM, CGR_SCHEDULE_LATEST, CGR_SCHEDULE_EARLIEST, CGR_SCHEDULE_ASYNC };
  const cgr_graph_mode modes[] = { CGR_MODE_FULL, CGR_MODE_FULL, CGR_MODE_PIECEWISE, CGR_MODE_FULL_DECODE_ONLY, CGR_MODE_NONE };
  const int64_t num_steps = NumSteps();
  SeededRandom random;
  Counts c;
  for (uint64_t n = 0; c.steps < num_steps && !HasFailure(); n++) {
    const Options options = { random.Bits(), random.Pick32(2, n % 4 == 3 ? 4 : 7), random.Pick32(1, 5), schedules[n % 4],
                              modes[n % 5] };
    SCOPED_TRACE(testing::Message() << "runtime " << n << ", depth " << options.depth << ", guesses " << options.guesses);
    Simulation(options, &c).Run(kStepsOfARuntime);
  }
  const std::pair<const char *, int64_t> counts[] = {
    { "guesses", c.guesses }, { "accepted", c.accepted }, { "requests rejected late", c.rejected_late },
    { "drains", c.drains },   { "refused", c.refused },   { "dropped changes", c.dropped },
    { "rubbish", c.rubbish }, { "lengths set", c.set },   { "cancelled", c.cancelled },
    { "skipped", c.skipped },
  };
  for (const auto &[name, count] : counts) {
    printf("%-24s %9lld\n", name, static_cast<long long>(count));
    EXPECT_TRUE(count > 20 || num_steps < 20000 || HasFailure()) << name;
  }
}

} // namespace
} // namespace cgr_test

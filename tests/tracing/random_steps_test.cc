// 100,000 random steps of every kind, with a trace of the device's calls: statistics and flight recorder agree with the trace, at
// any moment and whatever the recorder's depth.
#include <algorithm>
#include <deque>
#include <map>
#include <numeric>
#include <random>

#include "cgr/names.h"
#include "tests/tracing/plain_engine.h"

namespace cgr_test {
namespace {

// What the test knows about one record, from the lengths that it made up and from the trace.
struct Known {
  int32_t outcome, kind, reason, num_requests, num_tokens;
  cgr_key key;
  uint64_t seq, bytes, repeats;
};

struct Sums {
  uint64_t steps = 0, real_tokens = 0, padded_tokens = 0, real_requests = 0, padded_requests = 0, bytes = 0, timed = 0;
  uint64_t reasons[CGR_REASON_COUNT_] = {};
};

class RandomSteps {
public:
  // `many`: enough changes that some steps have others ahead of them; and not every step is timed.
  RandomSteps(int32_t depth, uint64_t seed, bool many = false)
      : engine_([depth, many](cgr_config *config) {
          config->flight_depth = depth;
          config->max_changes = many ? 2 : 0;
          config->ring_depth = 16;
          config->time_every = many ? 4 : 1;
        }),
        random_(seed), depth_(uint64_t(depth)), many_(many) {
    CGR_EXPECT_OK(engine_.Warmup());
    for (const cgr_flight_record &r : engine_.Flight()) {
      AddInternal(r.seq, r.bytes_staged);
      EXPECT_EQ(r.seq, ++seq_);
      header_ = r.bytes_staged; // these steps stage nothing else
    }
    EXPECT_EQ(seq_, 7u) << "one for each key";
    CGR_EXPECT_OK(engine_.Capture());
    CGR_EXPECT_OK(cgr_runtime_flush(engine_.rt, nullptr, nullptr, engine_.stream)); // the rows' first pages
    for (const cgr_flight_record &r : engine_.Flight())
      if (r.seq > seq_)
        AddInternal(++seq_, r.bytes_staged);
    for (int32_t i = 0; i < cgr_test::NumKeys(engine_.rt); i++)
      graphs_.push_back(cgr_test::GraphStatsOf(engine_.rt, i));
    cgr__trace_reset(engine_.dev);
  }

  void Run(int32_t steps) {
    for (int32_t i = 0; i < steps && !::testing::Test::HasFailure(); i++) {
      OneStep();
      if (Pick(1000) == 0)
        Compare();
    }
    Compare();
    for (int32_t outcome = CGR_FLIGHT_LAUNCHED; outcome <= CGR_FLIGHT_INTERNAL; outcome++)
      EXPECT_GT(outcomes_[outcome], uint64_t(steps) / 100) << cgr_flight_outcome_name(cgr_flight_outcome(outcome));
    for (const uint64_t kind : kinds_)
      EXPECT_GT(kind, uint64_t(steps) / 50);
    EXPECT_EQ(ahead_ > uint64_t(steps) / 100, many_);
  }

private:
  uint64_t Pick(uint64_t below) { return random_() % below; }
  uint64_t Calls(enum cgr__shim_op op) { return cgr__trace_count(engine_.dev, op); }

  // Calls of the device since the last look.
  struct Delta {
    uint64_t execs, launches;
  };
  Delta Look() {
    const Delta now = { Calls(CGR__OP_EXEC_LAUNCH), Calls(CGR__OP_LAUNCH) };
    const Delta delta = { now.execs - seen_.execs, now.launches - seen_.launches };
    seen_ = now;
    return delta;
  }
  void Add(const Known &known) {
    if (known.outcome == CGR_FLIGHT_REFUSED && !all_.empty() && all_.back().outcome == CGR_FLIGHT_REFUSED) {
      all_.back().repeats++;
      outcomes_[known.outcome]++;
      return;
    }
    all_.push_back(known);
    if (all_.size() > depth_)
      all_.pop_front();
    written_++;
    outcomes_[known.outcome]++;
    if (known.outcome != CGR_FLIGHT_LAUNCHED && known.outcome != CGR_FLIGHT_INTERNAL)
      return;
    int32_t index = -1;
    for (size_t i = 0; i < graphs_.size() && known.kind != CGR_KIND_NONE; i++)
      if (memcmp(&graphs_[i].key, &known.key, sizeof known.key) == 0)
        index = int32_t(i);
    Sums &sums = sums_[index];
    sums.steps++;
    sums.reasons[known.reason]++;
    sums.bytes += known.bytes;
    by_reason_[known.kind][known.reason]++;
    if (known.outcome == CGR_FLIGHT_INTERNAL)
      return;
    kinds_[known.kind]++;
    sums.timed++;
    if (known.num_requests == 0)
      return;
    sums.real_tokens += uint64_t(known.num_tokens);
    sums.padded_tokens += uint64_t(known.key.num_tokens);
    sums.real_requests += uint64_t(known.num_requests);
    sums.padded_requests += uint64_t(known.key.num_requests);
  }
  void AddInternal(uint64_t seq, uint64_t bytes) {
    Add({ CGR_FLIGHT_INTERNAL, CGR_KIND_NONE, CGR_REASON_INTERNAL, 0, 0, CGR_KEY_INIT, seq, bytes, 0 });
  }
  static cgr_key KeyOf(int32_t kind, int32_t requests, int32_t tokens, int32_t query_len) {
    cgr_key key = CGR_KEY_INIT;
    key.kind = kind;
    key.num_requests = requests;
    key.num_tokens = tokens;
    key.query_len = query_len;
    return key;
  }
  // The step of lens_: single tokens in the smallest uniform graph, others in the smallest mixed one, large ones eagerly.
  Known Of(int32_t outcome, uint64_t seq) {
    const int32_t n = int32_t(lens_.size()), tokens = std::accumulate(lens_.begin(), lens_.end(), 0);
    const bool uniform = tokens == n;
    cgr_key key = KeyOf(CGR_KIND_NONE, std::max(n, 1), std::max(tokens, 1), 0);
    int32_t reason = enabled_ ? CGR_REASON_ABOVE_TOKENS : CGR_REASON_DISABLED;
    for (int32_t size : { 8, 4, 2, 1 })
      if (enabled_ && uniform && n <= size)
        key = KeyOf(CGR_KIND_FULL, size, size, 1);
    for (int32_t size : { 24, 16, 8 })
      if (enabled_ && !uniform && tokens <= size)
        key = KeyOf(CGR_KIND_PIECEWISE, 8, size, 0);
    if (key.kind != CGR_KIND_NONE)
      reason = key.num_requests == n && key.num_tokens == tokens ? CGR_REASON_EXACT : CGR_REASON_PADDED;
    EXPECT_GE(engine_.step.bytes_staged, header_ + 4 * uint64_t(tokens)) << "the tokens at least";
    return { outcome, key.kind, reason, n, tokens, key, seq, engine_.step.bytes_staged, 0 };
  }
  int32_t Pieces(const cgr_key &key) {
    for (const cgr_graph_stats &graph : graphs_)
      if (memcmp(&graph.key, &key, sizeof key) == 0)
        return graph.num_pieces;
    return 0;
  }

  std::vector<int32_t> RandomBatch() {
    const size_t count = Pick(9);
    const bool mixed = Pick(2) == 0;
    std::vector<int32_t> lens(count, 1);
    int32_t left = PlainEngine::kMaxTokens - int32_t(count);
    for (size_t i = 0; i < count && mixed; i++) {
      const int32_t more = int32_t(Pick(uint64_t(std::min(left, 16)) + 1));
      lens[i] += more;
      left -= more;
    }
    return lens;
  }

  void OneStep() {
    const uint64_t what = Pick(20);
    if (what == 0)
      Refuse();
    else if (what == 1 && !many_)
      Flush();
    else
      Prepare(what);
  }
  void Refuse() {
    const int32_t closed = PlainEngine::kRows + 5;
    cgr_batch batch = CGR_BATCH_INIT;
    cgr_step step = CGR_STEP_INIT;
    batch.num_requests = 1;
    batch.rows = &closed;
    EXPECT_NE(cgr_step_prepare(engine_.rt, &batch, &step), CGR_OK);
    const Delta d = Look();
    EXPECT_EQ(d.execs + d.launches, 0u);
    Add({ CGR_FLIGHT_REFUSED, CGR_KIND_NONE, -1, 0, 0, CGR_KEY_INIT, 0, 0, 0 });
  }
  // Takes a page of a row that no step uses, and gives it back.
  void ChangePage(int32_t i) {
    const int32_t page = 2 + 3 * i + 2;
    CGR_EXPECT_OK(cgr_request_drop_pages(engine_.rt, engine_.row[i], 0, 2, 1));
    CGR_EXPECT_OK(cgr_request_set_pages(engine_.rt, engine_.row[i], 0, 2, &page, 1));
  }
  // Changes a page and sends it ahead: with a length that a failed step may have left to send.
  void Flush() {
    CGR_EXPECT_OK(cgr_runtime_flush(engine_.rt, nullptr, nullptr, engine_.stream));
    for (const Delta d = Look(); seq_ < cgr_test::Completed(engine_.rt);) {
      EXPECT_EQ(d.launches, 2u);
      AddInternal(++seq_, engine_.Flight(1)[0].bytes_staged);
    }
    ChangePage(PlainEngine::kRows - 1);
    uint64_t seq = 0;
    CGR_EXPECT_OK(cgr_test::Flush(engine_.rt, engine_.stream, &seq));
    const Delta d = Look();
    EXPECT_EQ(d.execs, 0u);
    EXPECT_EQ(d.launches % 2, 0u);
    EXPECT_EQ(d.launches, 2u) << "a prologue and an epilogue";
    EXPECT_EQ(seq, ++seq_);
    AddInternal(seq, header_ + 16); // one word of the table
  }
  void Prepare(uint64_t what) {
    if (what == 2) {
      CGR_EXPECT_OK(cgr_runtime_enable_graphs(engine_.rt, enabled_ ? 0 : 1));
      enabled_ = !enabled_;
    }
    for (int32_t i = 0; many_ && i < int32_t(Pick(4)); i++)
      ChangePage(PlainEngine::kRows - 1 - i);
    lens_ = RandomBatch();
    CGR_ASSERT_OK(engine_.Prepare(lens_));
    Delta d = Look();
    EXPECT_EQ(d.execs + d.launches, 0u) << "prepare calls no device";
    if (what == 3) {
      CGR_EXPECT_OK(cgr_step_cancel(engine_.rt, &engine_.step));
      d = Look();
      EXPECT_EQ(d.execs + d.launches, 0u);
      Add(Of(CGR_FLIGHT_CANCELLED, 0));
    } else if (what == 4) {
      Fail();
    } else {
      Launch();
    }
  }
  void Launch() {
    CGR_ASSERT_OK(engine_.Launch());
    const Delta d = Look();
    const int32_t kind = d.execs == 0 ? CGR_KIND_NONE : d.execs == 1 ? CGR_KIND_FULL : CGR_KIND_PIECEWISE;
    AddAhead(d.launches - (d.execs == 0 ? 2 : 0)); // an eager step has a prologue and an epilogue of its own
    const Known known = Of(CGR_FLIGHT_LAUNCHED, ++seq_);
    EXPECT_EQ(known.kind, kind);
    EXPECT_EQ(d.execs, uint64_t(Pieces(known.key)));
    EXPECT_EQ(engine_.step.mark.seq, seq_);
    Add(known);
  }
  // Steps with changes, of two launches each. What they carry is counted in the step after them.
  void AddAhead(uint64_t launches) {
    ASSERT_EQ(launches % 2, 0u);
    ASSERT_LE(launches, many_ ? 20u : 0u);
    for (uint64_t i = 0; i < launches / 2; i++)
      AddInternal(++seq_, 0);
    ahead_ += launches / 2;
  }
  // One of the engine's calls fails, or the device's launch of a graph does, with or without effect.
  void Fail() {
    const int32_t kind = engine_.step.key.kind;
    const int take_effect = int(Pick(2));
    if (kind == CGR_KIND_FULL)
      engine_.Fault(CGR__OP_EXEC_LAUNCH, CGR__DEVICE_FAILED, take_effect);
    engine_.fails = true;
    CGR_EXPECT(kind == CGR_KIND_FULL ? CGR_ERROR_DEVICE : CGR_ERROR_CALLBACK, engine_.Launch());
    engine_.fails = false;
    cgr__fault_set(engine_.fault, nullptr);
    EXPECT_EQ(engine_.step.state, CGR_STEP_ABANDONED);
    const Delta d = Look();
    const uint64_t ends = kind == CGR_KIND_NONE ? 2 : kind == CGR_KIND_PIECEWISE ? 1 : take_effect ? 0 : 2;
    EXPECT_EQ(d.execs, kind == CGR_KIND_NONE ? 0u : 1u);
    AddAhead(d.launches - ends);
    EXPECT_EQ(engine_.step.mark.seq, ++seq_);
    AddInternal(seq_, 0);
    Add(Of(CGR_FLIGHT_ABANDONED, seq_));
  }

  void Compare() {
    CompareFlight();
    const cgr_stats stats = engine_.Stats();
    Sums all;
    uint64_t timed = 0;
    for (int32_t i = -1; i < int32_t(graphs_.size()); i++) {
      const Sums &sums = sums_[i];
      const cgr_key_stats k = engine_.KeyStats(i);
      ASSERT_EQ(k.steps, sums.steps) << i;
      for (int32_t reason = 0; reason < CGR_REASON_COUNT_; reason++)
        ASSERT_EQ(k.reasons[reason], sums.reasons[reason]) << i;
      ASSERT_EQ(k.real_tokens, sums.real_tokens) << i;
      ASSERT_EQ(k.padded_tokens, sums.padded_tokens);
      ASSERT_EQ(k.real_requests, sums.real_requests);
      ASSERT_EQ(k.padded_requests, sums.padded_requests);
      ASSERT_EQ(k.bytes_staged, sums.bytes);
      if (!many_) {
        ASSERT_EQ(k.prepare.count, sums.timed);
      }
      ASSERT_EQ(k.launch.count, k.prepare.count);
      timed += k.launch.count;
      all.steps += sums.steps;
      all.real_tokens += sums.real_tokens;
      all.padded_tokens += sums.padded_tokens;
      all.bytes += sums.bytes;
    }
    if (written_ < depth_) { // all that was ever launched is there
      const std::vector<cgr_flight_record> records = engine_.Flight();
      ASSERT_EQ(timed, uint64_t(std::count_if(records.begin(), records.end(), [](const cgr_flight_record &r) {
                  return r.outcome == CGR_FLIGHT_LAUNCHED && r.launch_ns > 0;
                })));
    }
    ASSERT_EQ(stats.steps, all.steps);
    ASSERT_EQ(stats.steps, seq_);
    ASSERT_EQ(stats.real_tokens, all.real_tokens);
    ASSERT_EQ(stats.padded_tokens, all.padded_tokens);
    ASSERT_EQ(stats.bytes_staged, all.bytes);
    ASSERT_EQ(stats.cancelled, outcomes_[CGR_FLIGHT_CANCELLED]);
    ASSERT_EQ(stats.abandoned, outcomes_[CGR_FLIGHT_ABANDONED]);
    ASSERT_EQ(stats.refused, outcomes_[CGR_FLIGHT_REFUSED]);
    for (int kind = 0; kind < 3; kind++)
      for (int reason = 0; reason < CGR_REASON_COUNT_; reason++)
        ASSERT_EQ(stats.by_reason[kind][reason], by_reason_[kind][reason]) << kind << " " << reason;
  }
  void CompareFlight() {
    const std::vector<cgr_flight_record> got = engine_.Flight();
    ASSERT_EQ(got.size(), std::min(written_, depth_));
    ASSERT_EQ(got.size(), all_.size());
    uint64_t before = 0;
    for (size_t i = 0; i < got.size(); i++) {
      const cgr_flight_record &r = got[i];
      const Known &k = all_[i];
      ASSERT_EQ(r.size, sizeof r);
      ASSERT_EQ(r.outcome, k.outcome) << i;
      ASSERT_EQ(r.seq, k.seq);
      ASSERT_EQ(r.repeats, k.repeats);
      ASSERT_EQ(r.completed, k.seq > 0);
      /* An abandoned step began before the one that used up its number; any step began before those ahead of it. */
      if (k.outcome != CGR_FLIGHT_ABANDONED && k.outcome != CGR_FLIGHT_INTERNAL) {
        ASSERT_GE(r.at_ns, before);
        before = r.at_ns;
      }
      ASSERT_EQ(r.status == CGR_OK, k.outcome != CGR_FLIGHT_ABANDONED && k.outcome != CGR_FLIGHT_REFUSED);
      ASSERT_EQ(r.num_requests, k.num_requests);
      ASSERT_EQ(r.num_tokens, k.num_tokens);
      ASSERT_EQ(r.bytes_staged, k.bytes);
      ASSERT_EQ(r.key.kind, k.kind);
      ASSERT_EQ(memcmp(&r.key, &k.key, sizeof k.key), 0);
      ASSERT_EQ(r.key_index >= 0, k.kind != CGR_KIND_NONE);
      ASSERT_EQ(r.reason, k.reason);
      if (k.outcome == CGR_FLIGHT_REFUSED || many_)
        continue;
      ASSERT_EQ(r.launch_ns > 0, k.outcome == CGR_FLIGHT_LAUNCHED || k.outcome == CGR_FLIGHT_ABANDONED);
      ASSERT_EQ(r.prepare_ns > 0, k.outcome != CGR_FLIGHT_INTERNAL);
    }
  }

  PlainEngine engine_;
  std::mt19937_64 random_;
  uint64_t depth_, written_ = 0, seq_ = 0;
  uint64_t header_ = 0, ahead_ = 0;
  std::vector<int32_t> lens_;
  bool enabled_ = true, many_;
  Delta seen_ = { 0, 0 };
  std::vector<cgr_graph_stats> graphs_;
  std::deque<Known> all_;
  std::map<int32_t, Sums> sums_;
  uint64_t outcomes_[6] = {}, kinds_[3] = {}, by_reason_[3][16] = {};
};

TEST(RandomSteps, StatisticsAndRecorderAgreeWithTheTrace) { RandomSteps(1024, 11).Run(100000); }

TEST(RandomSteps, AlsoWhereTheRingIsOverwrittenAllTheTime) { RandomSteps(256, 12).Run(10000); }

TEST(RandomSteps, AndWhereItNeverIs) { RandomSteps(1 << 14, 13).Run(10000); }

TEST(RandomSteps, AndWhereStepsHaveOthersAheadOfThem) { RandomSteps(1 << 15, 14, true).Run(10000); }

} // namespace
} // namespace cgr_test

// A long life: random steps while graphs are captured, fail, age, are given up and come back. Memory stays flat, the counters add
// up, and every token is right. 1,000,000 steps, unless the environment variable CGR_LONG_STEPS sets another number.
#include <malloc.h>

#include <algorithm>
#include <cstdlib>
#include <deque>

#include "cgr/inspect.h"
#include "cgr/names.h"
#include "cgr/tracing.h"
#include "tests/support/devices.h"
#include "tests/support/expect.h"
#include "tests/support/seed.h"
#include "tests/support/record_buffers.h"

namespace cgr_test {
namespace {

enum { kMaxRequests = 6, kMaxRows = 9, kMaxTokens = 20, kPage = 16, kMaxPages = 4, kNumKeys = 9 };

struct SampleArgs {
  const int32_t *input_ids, *logits_indices;
  int32_t *next_tokens;
  int32_t num_requests;
};

// The next token follows from the last one given.
int32_t After(int32_t token) { return (token * 31 + 7) % 9973; }
void Sample(const void *raw) {
  const SampleArgs &a = *static_cast<const SampleArgs *>(raw);
  for (int32_t i = 0; i < a.num_requests; i++)
    a.next_tokens[i] = After(a.input_ids[a.logits_indices[i]]);
}

class LongRun : public ::testing::Test {
protected:
  struct Row {
    int32_t row, length, last; // last: -1 when no step has sampled a token
  };
  struct InFlight {
    uint64_t seq;
    std::vector<int32_t> want; // tokens; -1: none
  };

  void SetUp() override {
    const DeviceParam device = HostParam(CGR_SCHEDULE_EARLIEST);
    CGR_ASSERT_OK(cgr_device_open("host", &device.config, &dev_));
    CGR_ASSERT_OK(cgr_stream_create(dev_, &stream_));
    static const int32_t buckets[] = { 1, 2, 4, 6 };
    static const cgr_bucket mixed[] = { { 2, 2 }, { 4, 4 }, { 8, 6 }, { 12, 6 }, { 20, 6 } };
    cgr_group group = CGR_GROUP_INIT;
    group.page_size = kPage, group.num_pages = 2 + kMaxRows * kMaxPages;
    cgr_config config = CGR_CONFIG_INIT;
    config.device_handle = dev_, config.groups = &group, config.num_groups = 1;
    config.max_requests = kMaxRequests, config.max_rows = kMaxRows, config.max_tokens = kMaxTokens;
    config.max_seq_len = kPage * kMaxPages, config.graph_mode = CGR_MODE_FULL_AND_PIECEWISE;
    config.decode_buckets = buckets, config.num_decode_buckets = 4, config.mixed_buckets = mixed;
    config.num_mixed_buckets = 5;
    CGR_ASSERT_OK(cgr_runtime_create(&config, &rt_));
    ASSERT_EQ(cgr_test::NumKeys(rt_), int32_t(kNumKeys));
    for (int32_t i = 0; i < 2; i++)
      CGR_ASSERT_OK(cgr_region_register(rt_, &memory_[i], sizeof memory_[i], &regions_[i]));
    CGR_ASSERT_OK(Capture({}, 0, 0.0));
  }
  void TearDown() override {
    CGR_EXPECT_OK(cgr_runtime_destroy(rt_));
    CGR_EXPECT_OK(cgr_stream_destroy(dev_, stream_));
    CGR_EXPECT_OK(cgr_device_close(dev_));
  }

  static cgr_status Record(cgr_recorder *recorder, void *engine) {
    LongRun &self = *static_cast<LongRun *>(engine);
    cgr_record_info info = CGR_RECORD_INFO_INIT;
    cgr_status status = cgr_record_get_info(recorder, &info);
    if (self.fail_one_in_ > 0 && self.random_.OneIn(self.fail_one_in_))
      return CGR_ERROR_BUSY;
    if (status == CGR_OK && self.random_.OneIn(2))
      status = cgr_record_use(recorder, self.regions_[info.num_tokens % 2]);
    auto buffer = [&](cgr_buffer which) { return RecordBuffer(recorder, which, &status); };
    const SampleArgs args = { buffer(CGR_BUFFER_INPUT_IDS), buffer(CGR_BUFFER_LOGITS_INDICES), buffer(CGR_BUFFER_NEXT_TOKENS),
                              info.num_requests };
    if (status == CGR_OK) // a break, with or without something after it
      status = cgr_record_call(
          recorder,
          [](cgr_recorder *r, const void *a) {
            const cgr_record_info now = InfoOf(r);
            LongRun *run = *static_cast<LongRun *const *>(a);
            return run->fail_call_ && !now.capturing ? CGR_ERROR_BUSY : CGR_OK;
          },
          &engine, sizeof engine);
    return status == CGR_OK ? cgr_launch_host(self.dev_, Sample, &args, sizeof args, info.stream) : status;
  }
  cgr_status Capture(const std::vector<cgr_key> &keys, uint32_t flags, double max_ms) {
    cgr_capture capture = CaptureOf(Record, this);
    capture.keys = keys.empty() ? nullptr : keys.data();
    capture.num_keys = int32_t(keys.size()), capture.flags = flags, capture.max_ms = max_ms;
    return cgr_runtime_capture(rt_, &capture);
  }
  cgr_graph_stats GraphStats(int32_t i) {
    const cgr_graph_stats stats = GraphStatsOf(rt_, i);
    return stats;
  }

  // ---- what happens between steps
  void Capture() {
    fail_one_in_ = random_.OneIn(3) ? 3 : 0;
    std::vector<cgr_key> keys;
    if (random_.OneIn(3))
      for (int32_t n = random_.Pick32(1, 3); n > 0; n--)
        keys.push_back(GraphStats(random_.Pick32(0, kNumKeys - 1)).key);
    cgr_status status = Capture(keys, random_.OneIn(2) ? uint32_t(CGR_CAPTURE_MISSED) : 0, random_.OneIn(4) ? 1e-6 : 0.0);
    EXPECT_TRUE(status == CGR_OK || (fail_one_in_ > 0 && status == CGR_ERROR_CALLBACK)) << cgr_last_message();
    fail_one_in_ = 0;
  }
  void Move() {
    const size_t i = size_t(random_.Pick(0, 1));
    CGR_EXPECT_OK(cgr_region_move(rt_, regions_[i], &memory_[i], sizeof memory_[i]));
  }
  void OpenOrClose() {
    if (rows_.size() < kMaxRows && (rows_.empty() || random_.OneIn(2))) {
      Row r = { -1, 0, -1 };
      CGR_EXPECT_OK(cgr_request_open(rt_, 1, &r.row));
      int32_t pages[kMaxPages];
      for (int32_t p = 0; p < kMaxPages; p++)
        pages[p] = 2 + r.row * kMaxPages + p;
      CGR_EXPECT_OK(cgr_request_set_pages(rt_, r.row, 0, 0, pages, kMaxPages));
      rows_.push_back(r);
    } else {
      const size_t at = size_t(random_.Pick(0, int64_t(rows_.size()) - 1));
      CGR_EXPECT_OK(cgr_request_close(rt_, rows_[at].row));
      rows_.erase(rows_.begin() + int64_t(at));
    }
  }
  void Event() {
    switch (random_.Pick32(0, 9)) {
    case 0:
      return Capture();
    case 1:
      return Move();
    case 2:
      CGR_EXPECT_OK(cgr_runtime_release_graphs(rt_, random_.OneIn(2) ? 0 : 1, nullptr));
      return;
    case 3:
      CGR_EXPECT_OK(cgr_runtime_enable_graphs(rt_, random_.OneIn(4) ? 0 : 1));
      return;
    default:
      return OpenOrClose();
    }
  }

  // ---- steps
  // Returns rows by index.
  std::vector<size_t> Choose(std::vector<int32_t> *lens, std::vector<int32_t> *tokens) {
    std::vector<size_t> chosen;
    const bool decodes = random_.OneIn(2);
    for (size_t i = 0; i < rows_.size() && chosen.size() < kMaxRequests; i++) {
      Row &r = rows_[i];
      if (random_.OneIn(4))
        continue;
      int32_t room = std::min(kPage * kMaxPages - r.length, int32_t(kMaxTokens - tokens->size()));
      if (room == 0 && r.length > 0) {
        CGR_EXPECT_OK(cgr_request_set_length(rt_, r.row, 0));
        r.length = 0, r.last = -1;
        continue;
      }
      const int32_t len = decodes ? std::min(room, 1) : random_.Pick32(0, std::min(room, 5));
      chosen.push_back(i);
      lens->push_back(len);
      for (int32_t k = 0; k < len; k++)
        tokens->push_back(k == 0 && r.last >= 0 && random_.OneIn(2) ? CGR_TOKEN_LAST : random_.Pick32(0, 9972));
    }
    return chosen;
  }
  void Step() {
    std::vector<int32_t> lens, tokens, rows;
    const std::vector<size_t> chosen = Choose(&lens, &tokens);
    for (size_t i : chosen)
      rows.push_back(rows_[i].row);
    cgr_batch batch = BatchOf(int32_t(rows.size()), rows.data(), tokens.data(), lens.data());
    cgr_step step = CGR_STEP_INIT;
    cgr_status status = cgr_step_prepare(rt_, &batch, &step);
    while (status == CGR_ERROR_BUSY || status == CGR_ERROR_CHANGES_PENDING) {
      Collect(0);
      if (status == CGR_ERROR_CHANGES_PENDING)
        cgr_runtime_flush(rt_, nullptr, nullptr, stream_);
      status = cgr_step_prepare(rt_, &batch, &step);
    }
    CGR_ASSERT_OK(status);
    if (random_.OneIn(50)) {
      CGR_ASSERT_OK(cgr_step_cancel(rt_, &step));
      cancelled_++;
      return;
    }
    fail_call_ = random_.OneIn(60);
    const bool calls = step.key.kind != CGR_KIND_FULL && fail_call_;
    status = cgr_step_launch(rt_, &step, stream_);
    fail_call_ = false;
    if (calls && !chosen.empty()) {
      ASSERT_EQ(status, CGR_ERROR_CALLBACK) << cgr_last_message();
      ASSERT_EQ(step.state, CGR_STEP_ABANDONED);
      abandoned_++;
      return;
    }
    abandoned_ += calls && status != CGR_OK; // an eager step without requests calls `record` too
    ASSERT_TRUE(calls || status == CGR_OK) << cgr_last_message();
    if (status == CGR_OK)
      Advance(chosen, lens, tokens, step.mark.seq);
    steps_++;
    if (in_flight_.size() > size_t(random_.Pick(0, 2)))
      Collect(in_flight_.size() - 1);
  }
  void Advance(const std::vector<size_t> &chosen, const std::vector<int32_t> &lens, const std::vector<int32_t> &tokens,
               uint64_t seq) {
    InFlight f = { seq, {} };
    size_t at = 0;
    for (size_t i = 0; i < chosen.size(); i++) {
      Row &r = rows_[chosen[i]];
      const int32_t len = lens[i];
      int32_t next = -1;
      if (len > 0) {
        const int32_t token = tokens[at + size_t(len) - 1];
        next = After(token == CGR_TOKEN_LAST ? r.last : token);
        r.last = next;
        r.length += len;
      }
      at += size_t(len);
      f.want.push_back(next);
    }
    in_flight_.push_back(std::move(f));
  }
  // Collects results until `left` are in flight.
  void Collect(size_t left) {
    while (in_flight_.size() > left) {
      const InFlight f = in_flight_.front();
      in_flight_.pop_front();
      cgr_step_result result = CGR_STEP_RESULT_INIT;
      const cgr_status status = cgr_step_wait(rt_, cgr_mark{ 0, 0, f.seq }, -1, &result);
      if (status == CGR_ERROR_EXPIRED) // flushes and steps that were given up take numbers too
        continue;
      CGR_ASSERT_OK(status);
      ASSERT_EQ(result.num_requests, int32_t(f.want.size()));
      for (size_t i = 0; i < f.want.size(); i++) {
        ASSERT_EQ(result.num_tokens[i], f.want[i] >= 0);
        ASSERT_TRUE(f.want[i] < 0 || result.tokens[i] == f.want[i]) << result.tokens[i] << ", expected " << f.want[i];
      }
    }
  }
  void CheckCounters() {
    const cgr_stats stats = StatsOf(rt_);
    uint64_t sum = 0;
    int32_t usable = 0;
    for (const auto &kind : stats.by_reason)
      for (uint64_t count : kind)
        sum += count;
    for (int32_t i = 0; i < kNumKeys; i++)
      usable += GraphStats(i).state == CGR_GRAPH_READY;
    EXPECT_EQ(sum, stats.steps);
    EXPECT_EQ(stats.num_graphs, usable);
    EXPECT_EQ(stats.cancelled, cancelled_);
    EXPECT_EQ(stats.abandoned, abandoned_);
    EXPECT_EQ(stats.guard_errors, 0u);
    EXPECT_GE(stats.steps, steps_);
  }
  // Bytes of the heap with every graph captured.
  size_t Heap() {
    Collect(0);
    CGR_EXPECT_OK(Capture({}, 0, 0.0));
    return mallinfo2().uordblks;
  }

  cgr_device *dev_ = nullptr;
  cudaStream_t stream_ = nullptr;
  cgr_runtime *rt_ = nullptr;
  int32_t memory_[2][16] = {};
  int32_t regions_[2] = {};
  SeededRandom random_;
  int32_t fail_one_in_ = 0; // of captures
  bool fail_call_ = false;
  std::vector<Row> rows_;
  std::deque<InFlight> in_flight_;
  uint64_t steps_ = 0, cancelled_ = 0, abandoned_ = 0;
};

TEST_F(LongRun, StaysFlatAndCountsRight) {
  const char *given = std::getenv("CGR_LONG_STEPS");
  const uint64_t steps = given != nullptr ? std::strtoull(given, nullptr, 0) : 1000000;
  size_t heap = 0;
  for (uint64_t n = 0; n < steps && !HasFailure(); n++) {
    if (random_.OneIn(12))
      Event();
    ASSERT_NO_FATAL_FAILURE(Step());
    if (n % 5000 == 0)
      CheckCounters();
    if (n == steps / 10)
      heap = Heap();
  }
  const size_t end = Heap();
  CheckCounters();
  EXPECT_LE(end, heap + 64 * 1024) << "bytes of the heap";
  const cgr_stats stats = StatsOf(rt_);
  for (cgr_reason reason : { CGR_REASON_EXACT, CGR_REASON_PADDED })
    EXPECT_GT(stats.by_reason[CGR_KIND_FULL][reason] + stats.by_reason[CGR_KIND_PIECEWISE][reason], steps / 50);
  for (cgr_reason reason :
       { CGR_REASON_NOT_CAPTURED, CGR_REASON_CAPTURE_FAILED, CGR_REASON_STALE, CGR_REASON_DISABLED, CGR_REASON_BUDGET })
    EXPECT_GT(stats.by_reason[CGR_KIND_NONE][reason], steps / 2000) << cgr_reason_name(reason);
  EXPECT_GT(stats.captures_failed, steps / 2000);
  EXPECT_GT(stats.real_tokens, 2 * steps);
  EXPECT_GT(stats.abandoned, steps / 1000);
  for (const Row &r : rows_)
    CGR_EXPECT_OK(cgr_request_close(rt_, r.row));
}

} // namespace
} // namespace cgr_test

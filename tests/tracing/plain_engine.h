// An engine without layers, on the host device under the trace and fault shims: rows of up to three pages, and a `record` whose
// one call breaks PIECEWISE graphs and fails when the test says so. Uniform steps are FULL graphs, mixed ones PIECEWISE, larger
// ones eager.
#pragma once

#include <algorithm>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "cgr/cgr.h"
#include "cgr/inspect.h"
#include "cgr/tracing.h"
#include "devices/shims/fault.h"
#include "devices/shims/trace.h"
#include "tests/support/devices.h"
#include "tests/support/expect.h"

namespace cgr_test {

// What cgr_config.dump was given.
struct Told {
  std::vector<std::string> texts;
  static void Take(void *context, const char *json, size_t length) {
    EXPECT_EQ(std::strlen(json), length);
    static_cast<Told *>(context)->texts.push_back(json);
  }
  std::function<void(cgr_config *)> Asks(int32_t depth = 0) {
    return [this, depth](cgr_config *config) {
      config->dump = Take;
      config->dump_context = this;
      config->flight_depth = depth;
    };
  }
};

class PlainEngine {
public:
  enum { kRows = 12, kPagesOfRow = 3, kPages = 2 + kRows * kPagesOfRow, kMaxTokens = 40, kMixedTokens = 24, kMaxSeqLen = 48 };

  explicit PlainEngine(const std::function<void(cgr_config *)> &adjust = nullptr,
                       cgr_host_schedule schedule = CGR_SCHEDULE_EARLIEST) {
    EXPECT_EQ(cgr__fault_open(OpenDevice(HostParam(schedule)), &fault), CGR__DEVICE_OK);
    EXPECT_EQ(cgr__trace_open(fault, &dev), CGR__DEVICE_OK);
    CGR_EXPECT_OK(cgr_stream_create(dev, &stream));
    static const int32_t buckets[] = { 1, 2, 4, 8 };
    static const cgr_bucket mixed[] = { { 8, 8 }, { 16, 8 }, { kMixedTokens, 8 } };
    cgr_group group = CGR_GROUP_INIT;
    group.num_pages = kPages;
    cgr_config config = CGR_CONFIG_INIT;
    config.device_handle = dev;
    config.groups = &group;
    config.num_groups = 1;
    config.max_requests = 8;
    config.max_rows = kRows;
    config.max_tokens = kMaxTokens;
    config.max_seq_len = kMaxSeqLen;
    config.graph_mode = CGR_MODE_FULL_AND_PIECEWISE;
    config.attention_support = CGR_SUPPORT_UNIFORM_BATCH;
    config.decode_buckets = buckets;
    config.num_decode_buckets = 4;
    config.mixed_buckets = mixed;
    config.num_mixed_buckets = 3;
    config.time_every = 1;
    if (adjust)
      adjust(&config);
    CGR_EXPECT_OK(cgr_runtime_create(&config, &rt));
    for (int32_t i = 0; i < kRows; i++) {
      const int32_t pages[] = { 2 + 3 * i, 3 + 3 * i, 4 + 3 * i };
      CGR_EXPECT_OK(cgr_request_open(rt, uint64_t(i), &row[i]));
      CGR_EXPECT_OK(cgr_request_set_pages(rt, row[i], 0, 0, pages, kPagesOfRow));
    }
  }
  ~PlainEngine() {
    cgr__fault_set(fault, nullptr);
    CGR_EXPECT_OK(cgr_runtime_destroy(rt));
    CGR_EXPECT_OK(cgr_stream_destroy(dev, stream));
    CGR_EXPECT_OK(cgr_device_close(dev));
  }
  PlainEngine(const PlainEngine &) = delete;
  PlainEngine &operator=(const PlainEngine &) = delete;

  cgr_capture CaptureStruct() { return CaptureOf(Record, this); }
  cgr_status Capture() {
    const cgr_capture capture = CaptureStruct();
    return cgr_runtime_capture(rt, &capture);
  }
  cgr_status Warmup() {
    const cgr_capture capture = CaptureStruct();
    return cgr_runtime_warmup(rt, &capture);
  }

  // The first `lens.size()` rows get that many new tokens each.
  cgr_status Prepare(const std::vector<int32_t> &lens, const cgr_key *forced = nullptr) {
    cgr_batch batch = CGR_BATCH_INIT;
    int32_t total = 0;
    for (size_t i = 0; i < lens.size(); i++) {
      if (length[i] + lens[i] > kMaxSeqLen) {
        CGR_EXPECT_OK(cgr_request_set_length(rt, row[i], 0));
        length[i] = 0;
      }
      total += lens[i];
    }
    tokens.assign(size_t(total) + 1, 7);
    batch.num_requests = int32_t(lens.size());
    batch.rows = row;
    batch.query_lens = lens.data();
    batch.tokens = tokens.data();
    batch.forced_key = forced;
    step = CGR_STEP_INIT;
    prepared = lens;
    return cgr_step_prepare(rt, &batch, &step);
  }
  cgr_status Launch() {
    const cgr_status status = cgr_step_launch(rt, &step, stream);
    for (size_t i = 0; status == CGR_OK && i < prepared.size(); i++)
      length[i] += prepared[i];
    return status;
  }
  void Step(const std::vector<int32_t> &lens, const cgr_key *forced = nullptr) {
    CGR_ASSERT_OK(Prepare(lens, forced));
    CGR_ASSERT_OK(Launch());
    CGR_ASSERT_OK(cgr_step_wait(rt, step.mark, -1, nullptr));
  }
  // The next call of the operation fails.
  void Fault(int op, int error, int take_effect = 0, int mode = CGR__FAULT_ONCE) {
    const cgr__fault_plan plan = { op, 1, mode, take_effect, error, 777 };
    cgr__fault_set(fault, &plan);
  }

  cgr_stats Stats() { return StatsOf(rt); }
  cgr_key_stats KeyStats(int32_t index) {
    cgr_key_stats stats = CGR_KEY_STATS_INIT;
    CGR_EXPECT_OK(cgr_runtime_key_stats(rt, index, &stats));
    return stats;
  }
  std::vector<cgr_flight_record> Flight(int32_t most = 1 << 20) {
    int32_t count = 0;
    CGR_EXPECT_OK(cgr_runtime_flight(rt, nullptr, 0, &count));
    const cgr_flight_record empty = CGR_FLIGHT_RECORD_INIT;
    std::vector<cgr_flight_record> records(size_t(std::min(count, most)), empty);
    CGR_EXPECT_OK(cgr_runtime_flight(rt, records.data(), int32_t(records.size()), &count));
    return records;
  }
  // The text of a call that writes one; asks for its length first.
  std::string Text(const std::function<cgr_status(char *, size_t, size_t *)> &call) {
    size_t whole = 0, again = 0;
    CGR_EXPECT_OK(call(nullptr, 0, &whole));
    std::string text(whole + 64, '\x7f'); // numbers may have more digits the second time
    CGR_EXPECT_OK(call(&text[0], text.size(), &again));
    EXPECT_LT(again, text.size());
    EXPECT_EQ(text[again], '\0');
    text.resize(again);
    EXPECT_EQ(text.find('\0'), std::string::npos);
    return text;
  }
  std::string Dump() {
    return Text([this](char *out, size_t capacity, size_t *bytes) { return cgr_runtime_dump(rt, out, capacity, bytes); });
  }

  cgr_device *fault = nullptr, *dev = nullptr; // the trace is outside
  cudaStream_t stream = nullptr;
  cgr_runtime *rt = nullptr;
  cgr_step step = CGR_STEP_INIT;
  int32_t row[kRows] = {}, length[kRows] = {};
  std::vector<int32_t> tokens, prepared;
  bool fails = false;
  std::function<void()> inside; // called inside `record`, and in its call

private:
  static cgr_status Called(cgr_recorder *, const void *args) {
    PlainEngine *self = *static_cast<PlainEngine *const *>(args);
    if (self->inside)
      self->inside();
    return (*static_cast<PlainEngine *const *>(args))->fails ? CGR_ERROR_STATE : CGR_OK;
  }
  static cgr_status Record(cgr_recorder *recorder, void *engine) {
    if (const PlainEngine *self = static_cast<PlainEngine *>(engine); self->inside)
      self->inside();
    return cgr_record_call(recorder, Called, &engine, sizeof engine);
  }
};

} // namespace cgr_test

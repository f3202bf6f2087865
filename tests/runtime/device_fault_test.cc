// A fault at every device call, one after the other, while a runtime is created, captures, runs 40 steps, flushes and is torn
// down: each failure has a documented status, nothing leaks or stays in a capture, and afterwards either the tokens are those of
// a run without faults, or the runtime is dead and reports its first cause from then on.
#include <cstring>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "cgr/cgr.h"
#include "cgr/tracing.h"
#include "devices/shims/fault.h"
#include "tests/support/devices.h"
#include "tests/support/getters.h"
#include "tests/support/seed.h"

namespace {

using cgr_test::DeviceParam;

enum { kPageSize = 16, kNumPages = 24, kMaxRequests = 4, kHeadDim = 8, kHeads = 2, kMaxTokens = 32, kSteps = 40, kRaw = 999 };

// --------------------------------------------------------------------------------------------------- an engine of one layer

struct QkvArgs {
  const int32_t *input_ids, *positions;
  float *q, *k, *v;
  int32_t num_tokens;
};

float Value(int32_t token, int32_t position, int32_t element) {
  uint32_t x = static_cast<uint32_t>(token * 31 + position * 17 + element * 7 + 3) * 2654435761u;
  return static_cast<float>(static_cast<int32_t>(x >> 24) - 128) / 64.0f;
}

void Qkv(const void *raw) {
  const QkvArgs &a = *static_cast<const QkvArgs *>(raw);
  for (int32_t t = 0; t < a.num_tokens; t++) {
    for (int32_t e = 0; e < kHeads * kHeadDim; e++)
      a.q[t * kHeads * kHeadDim + e] = Value(a.input_ids[t], a.positions[t], e);
    for (int32_t e = 0; e < kHeadDim; e++) {
      a.k[t * kHeadDim + e] = Value(a.input_ids[t], a.positions[t], 100 + e);
      a.v[t * kHeadDim + e] = Value(a.input_ids[t], a.positions[t], 200 + e);
    }
  }
}

struct SampleArgs {
  const float *out;
  const int32_t *logits_indices;
  int32_t *next_tokens;
  int32_t num_requests;
};

void Sample(const void *raw) {
  const SampleArgs &a = *static_cast<const SampleArgs *>(raw);
  for (int32_t i = 0; i < a.num_requests; i++) {
    uint32_t hash = 2166136261u;
    for (int32_t e = 0; e < kHeads * kHeadDim; e++) {
      uint32_t bits;
      std::memcpy(&bits, &a.out[a.logits_indices[i] * kHeads * kHeadDim + e], sizeof bits);
      hash = (hash ^ bits) * 16777619u;
    }
    a.next_tokens[i] = static_cast<int32_t>(hash % 1000);
  }
}

struct Memory {
  cgr_device *dev;
  bool fail; // `record` gives up at its end
  float *q, *k, *v, *out;
  const int32_t *input_ids, *positions, *logits_indices;
  int32_t *next_tokens;
};

cgr_status Record(cgr_recorder *recorder, void *context) {
  const Memory &m = *static_cast<const Memory *>(context);
  cgr_record_info info = CGR_RECORD_INFO_INIT;
  cgr_status status = cgr_record_get_info(recorder, &info);
  QkvArgs qkv = { m.input_ids, m.positions, m.q, m.k, m.v, info.num_tokens };
  if (status == CGR_OK)
    status = cgr_launch_host(m.dev, Qkv, &qkv, sizeof qkv, info.stream);
  cgr_attention a = CGR_ATTENTION_INIT;
  cgr_view_make(m.q, CGR_DTYPE_FP32, kHeads, kHeadDim, &a.q);
  cgr_view_make(m.k, CGR_DTYPE_FP32, 1, kHeadDim, &a.k);
  cgr_view_make(m.v, CGR_DTYPE_FP32, 1, kHeadDim, &a.v);
  cgr_view_make(m.out, CGR_DTYPE_FP32, kHeads, kHeadDim, &a.out);
  if (status == CGR_OK)
    status = cgr_record_attention(recorder, &a);
  SampleArgs sample = { m.out, m.logits_indices, m.next_tokens, info.num_requests };
  if (status == CGR_OK)
    status = cgr_launch_host(m.dev, Sample, &sample, sizeof sample, info.stream);
  return m.fail ? CGR_ERROR_CALLBACK : status;
}

// ------------------------------------------------------------------------------------------------------------ the scenario

// What happened in one run.
struct Outcome {
  std::map<int32_t, std::vector<int32_t>> tokens; // by request
  std::set<std::string> statuses;                 // of calls that failed
  int planners = 0;                               // failures of its launch
  bool dead = false;
  std::string cause;   // of the death
  std::string trouble; // what must not happen
};

struct Request {
  int32_t number, row;
  std::vector<int32_t> sequence; // prompt and sampled tokens
  int32_t computed = 0;          // of the sequence, in the cache
};

const cgr_bucket kMixed = { 16, kMaxRequests };

struct Options {
  int32_t num_parts = 3;
  bool close_after_failure =
      false; // the request that came last leaves after a step that failed, so that the next step is another
  bool fail_captures = false;
  int32_t max_bucket = 0;
  int32_t num_mixed = 0; // 1: kMixed alone
  cgr_graph_mode mode = CGR_MODE_DEFAULT;
  int32_t timing = 0;
};

class Scenario {
public:
  Scenario(const DeviceParam &param, const cgr__fault_plan *plan, const Options &options = Options()) : options_(options) {
    Open(param, plan);
  }

  Outcome Run() {
    if (MakeMemory() && Create() && Capture())
      Steps();
    TearDown();
    return outcome_;
  }
  uint64_t fired() const { return fired_; }

private:
  void Trouble(const std::string &what) {
    if (outcome_.trouble.empty())
      outcome_.trouble = what;
  }

  static void OnViolation(void *context, const char *message) {
    static_cast<Scenario *>(context)->Trouble(std::string("violation: ") + message);
  }

  void Open(const DeviceParam &param, const cgr__fault_plan *plan) {
    cgr_device_config config = param.config;
    config.layer = cgr_validation_layer(), config.on_violation = OnViolation, config.violation_context = this;
    cgr_device *inner = nullptr;
    EXPECT_EQ(cgr_device_open("host", &config, &inner), CGR_OK) << cgr_last_message();
    EXPECT_EQ(cgr__fault_open(inner, &dev_), CGR__DEVICE_OK);
    if (plan != nullptr)
      cgr__fault_set(dev_, plan);
    persistent_ = plan != nullptr && plan->mode == CGR__FAULT_FROM_NTH_ON;
    deadly_ = plan != nullptr && plan->error == CGR__DEVICE_DEAD;
  }

  // Makes a call until it works; a fault that stays is taken away after three failures. False: the runtime is dead.
  template <class Call> bool Try(const char *name, Call call) {
    static const std::set<cgr_status> documented = { CGR_ERROR_OUT_OF_MEMORY, CGR_ERROR_DEVICE, CGR_ERROR_DEAD, CGR_ERROR_CAPTURE,
                                                     CGR_ERROR_CALLBACK };
    for (int tries = 0; tries < 8; tries++) {
      cgr_status status = call();
      if (status == CGR_OK)
        return true;
      outcome_.statuses.insert(cgr_status_name(status));
      const bool is_planner = std::strstr(cgr_last_message(), "step: enqueuing the planner") != nullptr;
      outcome_.planners += is_planner;
      if (is_planner && status == CGR_ERROR_CALLBACK) // it is not an engine function
        Trouble(std::string(name) + " gave CGR_ERROR_CALLBACK for the library's own planner");
      if (!documented.count(status))
        Trouble(std::string(name) + " gave " + cgr_status_name(status) + ": " + cgr_last_message());
      if (deadly_ && (status != CGR_ERROR_DEAD || cgr_last_device_code() != kRaw)) // the first call that hits it reports it
        Trouble(std::string(name) + " gave " + cgr_status_name(status) + " on a lost device: " + cgr_last_message());
      if (CheckDead())
        return false;
      if (status == CGR_ERROR_DEAD || (persistent_ && tries == 2))
        Heal();
    }
    Trouble(std::string(name) + " never works: " + cgr_last_message());
    return false;
  }

  void Heal() {
    fired_ += cgr__fault_fired(dev_);
    cgr__fault_set(dev_, nullptr);
    deadly_ = false;
  }

  // A dead runtime answers every call with the first cause.
  bool CheckDead() {
    cgr_request_info info = CGR_REQUEST_INFO_INIT;
    if (rt_ == nullptr || cgr_request_get_info(rt_, 0, &info) != CGR_ERROR_DEAD)
      return false;
    std::string first = cgr_last_message();
    Heal();
    int32_t row;
    if (cgr_request_open(rt_, 0, &row) != CGR_ERROR_DEAD || cgr_runtime_flush(rt_, nullptr, nullptr, stream_) != CGR_ERROR_DEAD)
      Trouble("a dead runtime lives again");
    if (std::string(cgr_last_message()).find(first.substr(first.find(": "))) == std::string::npos)
      Trouble("the cause changed from " + first + " to " + cgr_last_message());
    outcome_.dead = true, outcome_.cause = first;
    return true;
  }

  void *Alloc(size_t bytes) {
    void *memory = nullptr;
    if (Try("cgr_memory_alloc", [&] { return cgr_memory_alloc(dev_, bytes, &memory); }))
      memory_.push_back(memory);
    return memory;
  }

  bool MakeMemory() {
    m_.dev = dev_;
    bool ok = Try("cgr_stream_create", [&] { return cgr_stream_create(dev_, &stream_); });
    m_.q = static_cast<float *>(Alloc(kMaxTokens * kHeads * kHeadDim * 4));
    m_.k = static_cast<float *>(Alloc(kMaxTokens * kHeadDim * 4));
    m_.v = static_cast<float *>(Alloc(kMaxTokens * kHeadDim * 4));
    m_.out = static_cast<float *>(Alloc(kMaxTokens * kHeads * kHeadDim * 4));
    cache_ = Alloc(kCacheBytes);
    return ok && Try("cgr_fill", [&] { return cgr_fill(dev_, cache_, 0, kCacheBytes, stream_); });
  }

  bool Create() {
    cgr_group group = CGR_GROUP_INIT;
    group.num_pages = kNumPages;
    cgr_layer layer = CGR_LAYER_INIT;
    layer.num_q_heads = kHeads, layer.num_kv_heads = 1, layer.head_dim = kHeadDim;
    cgr_kv_view_make_pair(CGR_LAYOUT_NHD, cache_, CGR_DTYPE_FP32, kPageSize, 1, kHeadDim, &layer.k, &layer.v);
    cgr_config config = CGR_CONFIG_INIT;
    config.device_handle = dev_, config.groups = &group, config.num_groups = 1, config.layers = &layer;
    config.num_layers = 1, config.max_requests = kMaxRequests, config.max_rows = 6;
    config.max_tokens = kMaxTokens, config.max_seq_len = 96;
    config.max_changes = 4; // so that steps run ahead of others
    config.num_parts = options_.num_parts, config.graph_mode = options_.mode, config.timing = options_.timing;
    config.max_decode_bucket = options_.max_bucket, config.mixed_buckets = &kMixed;
    config.num_mixed_buckets = options_.num_mixed, config.wait_timeout_ms = 5000;
    if (!Try("cgr_runtime_create", [&] { return cgr_runtime_create(&config, &rt_); }))
      return false;
    m_.input_ids = static_cast<const int32_t *>(cgr_test::BufferOf(rt_, CGR_BUFFER_INPUT_IDS).data);
    m_.positions = static_cast<const int32_t *>(cgr_test::BufferOf(rt_, CGR_BUFFER_POSITIONS).data);
    m_.logits_indices = static_cast<const int32_t *>(cgr_test::BufferOf(rt_, CGR_BUFFER_LOGITS_INDICES).data);
    m_.next_tokens = static_cast<int32_t *>(cgr_test::BufferOf(rt_, CGR_BUFFER_NEXT_TOKENS).data);
    return true;
  }

  bool Capture() {
    cgr_capture capture = cgr_test::CaptureOf(Record, &m_);
    m_.fail = options_.fail_captures;
    bool ok = Try("cgr_runtime_capture", [&] { return cgr_runtime_capture(rt_, &capture); });
    m_.fail = false;
    cgr_stats stats = CGR_STATS_INIT;
    if (ok && cgr_runtime_stats(rt_, &stats) == CGR_OK && stats.num_graphs != cgr_test::NumKeys(rt_))
      Trouble("a capture that succeeded left graphs out");
    return ok;
  }

  // Requests come and go: each has a prompt of 1 to 20 tokens, given in chunks of at most 12, and then decodes.
  void Steps() {
    for (int32_t s = 0; s < kSteps; s++) {
      if (s % 7 == 0 && requests_.size() < kMaxRequests && !OpenRequest())
        return;
      if (s % 11 == 10 && !CloseRequest(requests_.size() / 2))
        return;
      if (!Step())
        return;
      if (s == 25 && !Flush())
        return;
    }
  }

  bool OpenRequest() {
    Request r{ opened_++, -1, {}, 0 };
    for (int32_t t = 0; t < 1 + r.number * 5 % 20; t++)
      r.sequence.push_back(t * 13 % 50 + r.number);
    if (cgr_request_open(rt_, static_cast<uint64_t>(r.number), &r.row) != CGR_OK)
      return !CheckDead() && (Trouble("open failed"), false);
    std::vector<int32_t> pages;
    for (int32_t p = 0; p < 4; p++)
      pages.push_back(2 + (r.row * 4 + p) % (kNumPages - 2));
    if (cgr_request_set_pages(rt_, r.row, 0, 0, pages.data(), 4) != CGR_OK)
      Trouble(std::string("set_pages: ") + cgr_last_message());
    requests_.push_back(r);
    return true;
  }

  bool CloseRequest(size_t i) {
    if (cgr_request_close(rt_, requests_[i].row) != CGR_OK)
      Trouble(std::string("close: ") + cgr_last_message());
    requests_.erase(requests_.begin() + static_cast<long>(i));
    return true;
  }

  // The batch of the requests as they are; tokens are given where the device does not have them.
  void Compose() {
    rows_.clear(), lens_.clear(), tokens_.clear(), flags_.clear();
    for (const Request &r : requests_) {
      int32_t left = static_cast<int32_t>(r.sequence.size()) - r.computed;
      int32_t len = left < 12 ? left : 12;
      cgr_request_info info = CGR_REQUEST_INFO_INIT;
      EXPECT_EQ(cgr_request_get_info(rt_, r.row, &info), CGR_OK);
      if (info.num_tokens != r.computed)
        Trouble("row " + std::to_string(r.row) + " has " + std::to_string(info.num_tokens) + " tokens, expected " +
                std::to_string(r.computed));
      rows_.push_back(r.row);
      lens_.push_back(len);
      flags_.push_back(len < left ? static_cast<uint32_t>(CGR_REQUEST_PARTIAL) : 0u);
      for (int32_t j = 0; j < len; j++)
        tokens_.push_back(len == 1 && info.has_token ? CGR_TOKEN_LAST : r.sequence[static_cast<size_t>(r.computed + j)]);
    }
  }

  bool Step() {
    cgr_step step = CGR_STEP_INIT;
    auto run = [&] {
      Compose();
      cgr_batch batch = cgr_test::BatchOf(static_cast<int32_t>(rows_.size()), rows_.data(), tokens_.data(), lens_.data());
      batch.flags = flags_.data();
      cgr_status status = cgr_step_prepare(rt_, &batch, &step);
      if (status != CGR_OK)
        return status;
      status = cgr_step_launch(rt_, &step, stream_);
      if (status == CGR_OK)
        return status;
      std::string message = cgr_last_message();
      if (step.state == CGR_STEP_PREPARED)
        cgr_step_cancel(rt_, &step);
      else if (step.state != CGR_STEP_ABANDONED)
        Trouble("a failed launch left state " + std::to_string(step.state));
      if (message.empty())
        Trouble("a failed launch left no message");
      if (options_.close_after_failure)
        CloseRequest(requests_.size() - 1);
      return status;
    };
    if (!Try("step", run))
      return false;
    cgr_step_result result = CGR_STEP_RESULT_INIT;
    if (!Try("cgr_step_wait", [&] { return cgr_step_wait(rt_, step.mark, -1, &result); }))
      return false;
    Take(result);
    return true;
  }

  void Take(const cgr_step_result &result) {
    if (result.num_requests != static_cast<int32_t>(requests_.size()))
      return Trouble("a result has " + std::to_string(result.num_requests) + " requests");
    for (size_t i = 0; i < requests_.size(); i++) {
      Request &r = requests_[i];
      r.computed += lens_[i];
      int32_t sampled = r.computed == static_cast<int32_t>(r.sequence.size()) ? 1 : 0;
      if (result.rows[i] != r.row || result.tags[i] != static_cast<uint64_t>(r.number) || result.num_tokens[i] != sampled)
        Trouble("a result is not that of its batch");
      if (sampled == 0)
        continue;
      r.sequence.push_back(result.tokens[i]);
      outcome_.tokens[r.number].push_back(result.tokens[i]);
    }
  }

  bool Flush() {
    if (!OpenRequest())
      return !outcome_.dead;
    return Try("cgr_runtime_flush", [&] {
      uint64_t seq = 0;
      cgr_status status = cgr_test::Flush(rt_, stream_, &seq);
      return status == CGR_ERROR_BUSY ? cgr_step_wait(rt_, cgr_mark{ 0, 0, seq }, -1, nullptr) : status;
    });
  }

  // Destroying works whatever has failed before or fails now.
  void TearDown() {
    cgr_status status = cgr_runtime_destroy(rt_);
    Heal();
    if (status == CGR_ERROR_DEVICE || status == CGR_ERROR_OUT_OF_MEMORY) // the wait failed: nothing was destroyed
      status = cgr_runtime_destroy(rt_);
    if (status != CGR_OK)
      Trouble(std::string("destroy: ") + cgr_last_message());
    if (stream_ != nullptr && cgr_stream_destroy(dev_, stream_) != CGR_OK)
      Trouble(std::string("the stream cannot be destroyed: ") + cgr_last_message());
    for (void *memory : memory_)
      if (cgr_memory_free(dev_, memory) != CGR_OK)
        Trouble(std::string("memory cannot be freed: ") + cgr_last_message());
    if (cgr_device_close(dev_) != CGR_OK)
      Trouble(std::string("the device does not close: ") + cgr_last_message());
  }

  static constexpr size_t kCacheBytes = static_cast<size_t>(kNumPages) * 2 * kPageSize * kHeadDim * 4;
  cgr_device *dev_ = nullptr;
  cudaStream_t stream_ = nullptr;
  cgr_runtime *rt_ = nullptr;
  void *cache_ = nullptr;
  Memory m_ = {};
  std::vector<void *> memory_;
  std::vector<Request> requests_;
  std::vector<int32_t> rows_, lens_, tokens_;
  std::vector<uint32_t> flags_;
  int32_t opened_ = 0;
  Options options_;
  bool persistent_ = false, deadly_ = false;
  uint64_t fired_ = 0;
  Outcome outcome_;
};

class DeviceFaults : public ::testing::TestWithParam<DeviceParam> {};

struct Kind {
  int error, mode, take_effect;
  int32_t timing = 0;
};

// A fault of one kind at every call, one after the other. Every kind meets each device and both modes, but not all of them
// together: with the seed, and from one kind or device to the next, the mode alternates.
void FaultAtEveryCall(const DeviceParam &param, int32_t number, const Kind &kind) {
  static const uint64_t seed = cgr_test::Seed(); // one for all cases of a run, or they would not alternate
  SCOPED_TRACE(cgr_test::Repeat(seed));
  Options options;
  options.mode = (seed + uint64_t(number + param.config.host_schedule)) % 2 == 0 ? CGR_MODE_FULL : CGR_MODE_PIECEWISE;
  options.timing = kind.timing;
  options.num_mixed = 1; // a graph more would make the same calls again
  Outcome golden = Scenario(param, nullptr, options).Run();
  ASSERT_EQ(golden.trouble, "");
  ASSERT_GE(golden.tokens.size(), 5u);
  uint64_t faults = 0, deaths = 0;
  int planners = 0;
  for (uint64_t n = 1;; n++) {
    cgr__fault_plan plan = { CGR__FAULT_ANY_OP, n, kind.mode, kind.take_effect, kind.error, kRaw };
    Scenario scenario(param, &plan, options);
    Outcome outcome = scenario.Run();
    if (scenario.fired() == 0)
      break;
    faults++;
    deaths += outcome.dead;
    planners += outcome.planners;
    ASSERT_EQ(outcome.trouble, "") << "a fault at call " << n;
    bool may_die = kind.error == CGR__DEVICE_DEAD || kind.mode == CGR__FAULT_FROM_NTH_ON;
    ASSERT_TRUE(may_die || !outcome.dead) << "one failure at call " << n << " was the end";
    bool alive = !outcome.dead && kind.error != CGR__DEVICE_DEAD;
    ASSERT_TRUE(!alive || outcome.tokens == golden.tokens) << "other tokens after a fault at call " << n;
  }
  EXPECT_GT(faults, 250u) << "few calls were tried";
  EXPECT_GT(planners, 0) << "the planner's launch never failed";
  ::testing::Test::RecordProperty("faults", static_cast<int>(faults));
  ::testing::Test::RecordProperty("deaths", static_cast<int>(deaths));
}

TEST_P(DeviceFaults, OneCallFailsWithoutEffect) { FaultAtEveryCall(GetParam(), 0, { CGR__DEVICE_FAILED, CGR__FAULT_ONCE, 0 }); }
TEST_P(DeviceFaults, OneCallFailsAfterTakingEffect) {
  FaultAtEveryCall(GetParam(), 1, { CGR__DEVICE_FAILED, CGR__FAULT_ONCE, 1 });
}
TEST_P(DeviceFaults, MemoryRunsOutOnce) { FaultAtEveryCall(GetParam(), 2, { CGR__DEVICE_NO_MEMORY, CGR__FAULT_ONCE, 0 }); }
TEST_P(DeviceFaults, AllCallsFailFromOneOn) {
  FaultAtEveryCall(GetParam(), 3, { CGR__DEVICE_FAILED, CGR__FAULT_FROM_NTH_ON, 0 });
}
TEST_P(DeviceFaults, AllCallsFailFromOneOnAfterTakingEffect) {
  FaultAtEveryCall(GetParam(), 4, { CGR__DEVICE_FAILED, CGR__FAULT_FROM_NTH_ON, 1 });
}
TEST_P(DeviceFaults, OneCallOfATimedRuntimeFails) {
  FaultAtEveryCall(GetParam(), 5, { CGR__DEVICE_FAILED, CGR__FAULT_ONCE, 0, 2 });
}
TEST_P(DeviceFaults, TheDeviceDies) { FaultAtEveryCall(GetParam(), 6, { CGR__DEVICE_DEAD, CGR__FAULT_ONCE, 0 }); }
TEST_P(DeviceFaults, TheDeviceDiesAfterACallTookEffect) {
  FaultAtEveryCall(GetParam(), 7, { CGR__DEVICE_DEAD, CGR__FAULT_ONCE, 1 });
}

INSTANTIATE_TEST_SUITE_P(Devices, DeviceFaults,
                         ::testing::Values(cgr_test::HostParam(CGR_SCHEDULE_ASYNC), cgr_test::HostParam(CGR_SCHEDULE_EARLIEST),
                                           cgr_test::HostParam(CGR_SCHEDULE_LATEST), cgr_test::HostParam(CGR_SCHEDULE_RANDOM, 1)),
                         cgr_test::DeviceLabel);

// With one part, a request's bits do not depend on the others, so tokens can be compared although a request has left.
TEST(DeviceFault, APlannerLeftBehindDoesNotRunIntoAGraph) {
  Options options;
  options.num_parts = 1, options.close_after_failure = true;
  DeviceParam plain = cgr_test::HostParam(CGR_SCHEDULE_EARLIEST);
  Outcome golden = Scenario(plain, nullptr, options).Run();
  int compared = 0;
  for (uint64_t seed = 1; seed <= 60; seed++)
    for (uint64_t n = 2; n <= 30; n += 2) { // each eager step records two events: the fork's and the join's
      cgr__fault_plan plan = { CGR__OP_EVENT_RECORD, n, CGR__FAULT_ONCE, 0, CGR__DEVICE_FAILED, kRaw };
      Outcome outcome = Scenario(cgr_test::HostParam(CGR_SCHEDULE_RANDOM, seed), &plan, options).Run();
      ASSERT_EQ(outcome.trouble, "") << "seed " << seed << ", event " << n;
      for (const auto &[request, tokens] : outcome.tokens)
        for (size_t i = 0; i < tokens.size() && i < golden.tokens[request].size(); i++, compared++)
          ASSERT_EQ(tokens[i], golden.tokens[request][i]) << "seed " << seed << ", event " << n << ", request " << request;
    }
  EXPECT_GT(compared, 10000);
}

TEST(DeviceFault, ADeathAtTheEndOfACaptureThatFailedIsNotMissed) {
  Options options;
  options.fail_captures = true;
  options.max_bucket = 1; // no other capture finds out
  cgr__fault_plan plan = { CGR__OP_CAPTURE_END, 1, CGR__FAULT_ONCE, 0, CGR__DEVICE_DEAD, kRaw };
  Outcome outcome = Scenario(cgr_test::HostParam(CGR_SCHEDULE_EARLIEST), &plan, options).Run();
  EXPECT_EQ(outcome.trouble, "");
  EXPECT_TRUE(outcome.dead);
  EXPECT_EQ(outcome.statuses, std::set<std::string>{ "CGR_ERROR_DEAD" });
}

// The engine's own call is the first to hit the fault, inside `record`: in a capture or in an eager step.
TEST(DeviceFault, ADeathInsideRecordIsTheFirstCause) {
  Options options;
  options.max_bucket = 1;
  for (uint64_t n = 1; n <= 8; n++) { // two calls of the engine in each capture and eager step
    SCOPED_TRACE(n);
    cgr__fault_plan plan = { CGR__OP_HOST_CALL, n, CGR__FAULT_ONCE, 0, CGR__DEVICE_DEAD, kRaw };
    Outcome outcome = Scenario(cgr_test::HostParam(CGR_SCHEDULE_EARLIEST), &plan, options).Run();
    EXPECT_EQ(outcome.trouble, "");
    EXPECT_TRUE(outcome.dead);
    EXPECT_EQ(outcome.statuses, std::set<std::string>{ "CGR_ERROR_DEAD" });
    EXPECT_NE(outcome.cause.find("cgr_launch_host"), std::string::npos) << outcome.cause;
  }
}

} // namespace

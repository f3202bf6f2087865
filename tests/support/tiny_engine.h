// The smallest possible engine: one layer, unless it is asked for others, three requests, host functions, on a host device of the
// caller, which it does not close. Its model: the next token is the last one plus 1.
#pragma once

#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "cgr/cgr.h"
#include "cgr/inspect.h"
#include "cgr/names.h"
#include "cgr/tracing.h"
#include "devices/shims/fault.h"
#include "tests/support/devices.h"
#include "tests/support/expect.h"
#include "tests/support/record_buffers.h"

namespace cgr_test {

// An open host device, under the fault shim if it is asked for.
class HostDevice {
public:
  explicit HostDevice(cgr_host_schedule schedule = CGR_SCHEDULE_EARLIEST, bool faults = false) {
    const DeviceParam host = HostParam(schedule);
    CGR_EXPECT_OK(cgr_device_open("host", &host.config, &dev_));
    if (faults) {
      EXPECT_EQ(cgr__fault_open(dev_, &dev_), CGR__DEVICE_OK);
    }
  }
  ~HostDevice() { CGR_EXPECT_OK(cgr_device_close(dev_)); }
  HostDevice(const HostDevice &) = delete;
  HostDevice &operator=(const HostDevice &) = delete;
  operator cgr_device *() const { return dev_; }

private:
  cgr_device *dev_ = nullptr;
};

using Place = std::pair<int32_t, int32_t>; // phase, layer

// What a step's timestamps say.
inline std::vector<cgr_span> SpansOf(cgr_runtime *rt, uint64_t seq) {
  int32_t count = 0, again = 0;
  CGR_EXPECT_OK(cgr_runtime_timing(rt, cgr_mark{ 0, 0, seq }, nullptr, 0, &count));
  std::vector<cgr_span> spans(size_t(count) + 1, cgr_span CGR_SPAN_INIT);
  spans.back().phase = 77;
  CGR_EXPECT_OK(cgr_runtime_timing(rt, cgr_mark{ 0, 0, seq }, spans.data(), count, &again));
  EXPECT_EQ(count, again);
  EXPECT_EQ(spans.back().phase, 77) << "nothing is written past the last";
  spans.pop_back();
  return spans;
}

inline std::map<Place, cgr_span> ByPlace(const std::vector<cgr_span> &spans) {
  std::map<Place, cgr_span> by;
  for (const cgr_span &span : spans)
    EXPECT_TRUE(by.emplace(Place(span.phase, span.layer), span).second) << cgr_phase_name(cgr_phase(span.phase));
  return by;
}

struct TinyLayer {
  int32_t backend = 0;   // 1: the engine's own, which enqueues a fill for each of its functions
  int32_t kv_source = 0; // as in cgr_layer
};

struct TinyCall {
  int32_t layer;
  uint32_t flags;
};

struct TinyOptions {
  cgr_graph_mode mode = CGR_MODE_FULL;
  int32_t nvtx = 0, timing = 0;
  std::vector<TinyLayer> layers = { {} };
  std::vector<TinyCall> calls; // empty: each layer once
  uint32_t backend_flags = 0;
  bool backend_plans = false;
  std::function<void(cgr_config *)> adjust;
  std::function<cgr_status(cgr_recorder *)> also; // called last in `record`
};

class TinyEngine {
public:
  enum { kRequests = 3, kTokens = 8, kPages = 7, kDim = 16, kMemory = kPages * 16 * kDim * 4 };

  TinyEngine(cgr_device *device, cgr_graph_mode mode, int32_t nvtx = 0, int32_t timing = 0)
      : TinyEngine(device, TinyOptions{ mode, nvtx, timing, { {} }, {}, 0, false, nullptr, nullptr }) {}
  TinyEngine(cgr_device *device, TinyOptions options) : dev(device), options_(std::move(options)) {
    CGR_EXPECT_OK(cgr_stream_create(dev, &stream));
    for (int32_t l = 0; options_.calls.empty() && l < int32_t(options_.layers.size()); l++)
      calls_.push_back({ l, 0 });
    calls_.insert(calls_.end(), options_.calls.begin(), options_.calls.end());
    std::vector<cgr_layer> layers;
    for (const TinyLayer &of : options_.layers) {
      cgr_layer layer = CGR_LAYER_INIT;
      layer.num_q_heads = layer.num_kv_heads = 1;
      layer.head_dim = kDim;
      layer.backend = of.backend;
      layer.kv_source = of.kv_source;
      for (cgr_kv_view *view : { &layer.k, &layer.v })
        CGR_EXPECT_OK(cgr_kv_view_make(CGR_LAYOUT_NHD, Alloc(), CGR_DTYPE_FP32, 16, 1, kDim, view));
      layers.push_back(layer);
    }
    for (void *&view : views_)
      view = Alloc();
    static const int32_t buckets[] = { 1, 3 };
    static const cgr_bucket mixed[] = { { 8, 3 } };
    const cgr_backend backend = Backend();
    cgr_group group = CGR_GROUP_INIT;
    group.num_pages = kPages;
    cgr_config config = CGR_CONFIG_INIT;
    config.device_handle = dev;
    config.groups = &group;
    config.num_groups = 1;
    config.layers = layers.data();
    config.num_layers = int32_t(layers.size());
    config.backends = &backend;
    config.num_backends = 1;
    config.max_requests = kRequests;
    config.max_tokens = kTokens;
    config.max_seq_len = 32;
    config.graph_mode = options_.mode;
    config.decode_buckets = buckets;
    config.num_decode_buckets = 2;
    config.mixed_buckets = mixed;
    config.num_mixed_buckets = 1;
    config.nvtx = options_.nvtx;
    config.timing = options_.timing;
    if (options_.adjust)
      options_.adjust(&config);
    CGR_EXPECT_OK(cgr_runtime_create(&config, &rt));
  }
  ~TinyEngine() {
    CGR_EXPECT_OK(cgr_runtime_destroy(rt));
    CGR_EXPECT_OK(cgr_stream_destroy(dev, stream));
    for (void *m : memory)
      CGR_EXPECT_OK(cgr_memory_free(dev, m));
  }
  TinyEngine(const TinyEngine &) = delete;
  TinyEngine &operator=(const TinyEngine &) = delete;

  cgr_capture CaptureStruct() { return CaptureOf(Record, this); }
  cgr_status Capture() {
    const cgr_capture capture = CaptureStruct();
    return cgr_runtime_capture(rt, &capture);
  }
  // All memory, in a region each.
  std::vector<int32_t> RegisterAll() {
    std::vector<int32_t> regions;
    for (void *m : memory)
      regions.push_back(NewRegion(rt, m, kMemory));
    return regions;
  }
  // Over all pages; no row is open.
  cgr_status SelfTest(int32_t *count) {
    std::vector<int32_t> pages;
    for (int32_t p = 2; p < kPages; p++)
      pages.push_back(p);
    cgr_self_test test = CGR_SELF_TEST_INIT;
    test.num_pages = int32_t(pages.size());
    test.pages = pages.data();
    test.max_token = 256;
    return cgr_runtime_self_test(rt, &test, nullptr, 0, count);
  }
  // A request opens, has one step, which must be right and of kind *kind, and closes.
  void StepOnce(int32_t *kind) {
    int32_t row = -1;
    const int32_t page = 5, token = 41;
    const cgr_batch batch = BatchOf(1, &row, &token);
    cgr_step step = CGR_STEP_INIT;
    cgr_step_result result = CGR_STEP_RESULT_INIT;
    CGR_ASSERT_OK(cgr_request_open(rt, 1, &row));
    CGR_ASSERT_OK(cgr_request_set_pages(rt, row, 0, 0, &page, 1));
    CGR_ASSERT_OK(cgr_step_prepare(rt, &batch, &step));
    *kind = step.key.kind;
    CGR_ASSERT_OK(cgr_step_launch(rt, &step, stream));
    CGR_ASSERT_OK(cgr_step_wait(rt, step.mark, -1, &result));
    ASSERT_EQ(result.tokens[0], token + 1);
    CGR_ASSERT_OK(cgr_request_close(rt, row));
  }
  int32_t Step() {
    int32_t kind = -1;
    StepOnce(&kind);
    return kind;
  }
  // Of the step, or the last one.
  std::map<Place, cgr_span> Spans(uint64_t seq = 0) { return ByPlace(SpansOf(rt, seq > 0 ? seq : Completed(rt))); }
  // Every step has one kind and one reason.
  void ExpectCountersAddUp() {
    const cgr_stats stats = StatsOf(rt);
    ASSERT_EQ(CountedSteps(stats), stats.steps);
  }

  cgr_device *dev;
  cudaStream_t stream = nullptr;
  cgr_runtime *rt = nullptr;
  std::vector<void *> memory; // K and V of each layer, then q, k, v, out

private:
  struct SampleArgs {
    const int32_t *input_ids, *logits_indices;
    int32_t *next_tokens;
    int32_t num_requests, reserved;
  };
  static void Sample(const void *raw) {
    const SampleArgs &a = *static_cast<const SampleArgs *>(raw);
    for (int32_t i = 0; i < a.num_requests; i++)
      a.next_tokens[i] = a.input_ids[a.logits_indices[i]] + 1;
  }
  void *Alloc() {
    memory.push_back(nullptr);
    CGR_EXPECT_OK(cgr_memory_alloc(dev, kMemory, &memory.back()));
    CGR_EXPECT_OK(cgr_fill(dev, memory.back(), 0, kMemory, stream));
    return memory.back();
  }
  static cgr_status Fill(void *engine, cgr_recorder *recorder) {
    const TinyEngine &self = *static_cast<TinyEngine *>(engine);
    return cgr_fill(self.dev, self.memory.back(), 0, 64, InfoOf(recorder).stream);
  }
  cgr_backend Backend() {
    cgr_backend backend = CGR_BACKEND_INIT;
    backend.name = "of the test";
    backend.context = this;
    backend.flags = options_.backend_flags;
    backend.support = [](void *, const cgr_device_info *, const cgr_group *) { return CGR_SUPPORT_ALWAYS; };
    backend.record = [](void *engine, cgr_recorder *recorder, const cgr_attention *) { return Fill(engine, recorder); };
    if (options_.backend_plans)
      backend.plan = [](void *engine, void *, cgr_recorder *recorder, uint32_t, int32_t) { return Fill(engine, recorder); };
    return backend;
  }
  static cgr_status Record(cgr_recorder *recorder, void *engine) {
    TinyEngine &self = *static_cast<TinyEngine *>(engine);
    cgr_record_info info = CGR_RECORD_INFO_INIT;
    cgr_status status = cgr_record_get_info(recorder, &info);
    auto buffer = [&](cgr_buffer which) { return RecordBuffer(recorder, which, &status); };
    const SampleArgs args = { buffer(CGR_BUFFER_INPUT_IDS), buffer(CGR_BUFFER_LOGITS_INDICES), buffer(CGR_BUFFER_NEXT_TOKENS),
                              info.num_requests, 0 };
    for (const TinyCall &call : self.calls_) {
      cgr_attention a = CGR_ATTENTION_INIT;
      a.layer = call.layer;
      a.flags = call.flags;
      cgr_view *const views[] = { &a.q, &a.k, &a.v, &a.out };
      for (size_t i = 0; i < 4 && status == CGR_OK; i++)
        status = cgr_view_make(self.views_[i], CGR_DTYPE_FP32, 1, kDim, views[i]);
      if (status == CGR_OK)
        status = cgr_record_attention(recorder, &a);
    }
    if (status == CGR_OK)
      status = cgr_launch_host(self.dev, Sample, &args, sizeof args, info.stream);
    return status == CGR_OK && self.options_.also ? self.options_.also(recorder) : status;
  }

  TinyOptions options_;
  std::vector<TinyCall> calls_;
  void *views_[4] = {}; // q, k, v, out
};

} // namespace cgr_test

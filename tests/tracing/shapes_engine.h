// An engine with the layers and backends that a test wants, on the caller's host device. The results of its attention do not
// matter, only which calls make it and what runs before it.
#ifndef CGR_TESTS_TRACING_SHAPES_ENGINE_H
#define CGR_TESTS_TRACING_SHAPES_ENGINE_H

#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "cgr/cgr.h"
#include "cgr/names.h"
#include "cgr/tracing.h"
#include "tests/support/expect.h"
#include "tests/tracing/engine_parts.h"

namespace cgr_test {

using Place = std::pair<int32_t, int32_t>; // phase, layer

// A backend that plans, if it is asked to, and enqueues one copy for each of its functions.
struct PlainBackend {
  cgr_device *dev = nullptr;
  void *memory = nullptr;
  static cgr_status Fill(void *context, cgr_recorder *recorder) {
    PlainBackend *self = static_cast<PlainBackend *>(context);
    cgr_record_info info = CGR_RECORD_INFO_INIT;
    const cgr_status status = cgr_record_get_info(recorder, &info);
    return status == CGR_OK ? cgr_fill(self->dev, self->memory, 0, 64, info.stream) : status;
  }
  cgr_backend Make(uint32_t flags, bool plans) {
    cgr_backend backend = CGR_BACKEND_INIT;
    backend.name = "of the test";
    backend.context = this;
    backend.flags = flags;
    backend.support = [](void *, const cgr_device_info *, const cgr_group *) { return CGR_SUPPORT_ALWAYS; };
    backend.record = [](void *context, cgr_recorder *recorder, const cgr_attention *) { return Fill(context, recorder); };
    if (plans)
      backend.plan = [](void *context, void *, cgr_recorder *recorder, uint32_t, int32_t) { return Fill(context, recorder); };
    return backend;
  }
};

struct AttentionCall {
  int32_t layer;
  uint32_t flags;
};

struct Shapes {
  struct Layer {
    int32_t backend = 0;   // 1: that of the test
    int32_t kv_source = 0; // as in cgr_layer
  };
  std::vector<Layer> layers = { {} };
  std::vector<AttentionCall> calls; // empty: each layer once
  uint32_t backend_flags = 0;
  bool backend_plans = false;
  cgr_graph_mode mode = CGR_MODE_FULL;
  std::function<void(cgr_config *)> adjust;
};

class ShapesEngine {
public:
  enum { kDim = 64, kPages = 12, kMemory = kPages * 16 * kDim * 4 };

  ShapesEngine(cgr_device *device, Shapes of) : dev(device), shapes(std::move(of)) {
    CGR_EXPECT_OK(cgr_stream_create(dev, &stream));
    if (shapes.calls.empty())
      for (int32_t l = 0; l < int32_t(shapes.layers.size()); l++)
        shapes.calls.push_back({ l, 0 });
    std::vector<cgr_layer> layers;
    for (const Shapes::Layer &of_layer : shapes.layers) {
      cgr_layer layer = CGR_LAYER_INIT;
      layer.num_q_heads = layer.num_kv_heads = 1;
      layer.head_dim = kDim;
      layer.backend = of_layer.backend;
      layer.kv_source = of_layer.kv_source;
      void *k = Alloc(), *v = Alloc();
      CGR_EXPECT_OK(cgr_kv_view_make(CGR_LAYOUT_NHD, k, CGR_DTYPE_FP32, 16, 1, kDim, &layer.k));
      CGR_EXPECT_OK(cgr_kv_view_make(CGR_LAYOUT_NHD, v, CGR_DTYPE_FP32, 16, 1, kDim, &layer.v));
      layers.push_back(layer);
    }
    for (void *&view : views)
      view = Alloc();
    target = { dev, Alloc() };
    const cgr_backend backend = target.Make(shapes.backend_flags, shapes.backend_plans);
    static const int32_t buckets[] = { 1 };
    static const cgr_bucket mixed[] = { { 8, 1 } };
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
    config.max_requests = 1;
    config.max_tokens = 8;
    config.max_seq_len = 32;
    config.graph_mode = shapes.mode;
    config.decode_buckets = buckets;
    config.num_decode_buckets = 1;
    config.mixed_buckets = mixed;
    config.num_mixed_buckets = 1;
    config.timing = 2;
    if (shapes.adjust)
      shapes.adjust(&config);
    CGR_EXPECT_OK(cgr_runtime_create(&config, &rt));
    const int32_t page = 5;
    CGR_EXPECT_OK(cgr_request_open(rt, 1, &row));
    CGR_EXPECT_OK(cgr_request_set_pages(rt, row, 0, 0, &page, 1));
  }
  ~ShapesEngine() {
    CGR_EXPECT_OK(cgr_runtime_destroy(rt));
    CGR_EXPECT_OK(cgr_stream_destroy(dev, stream));
    for (void *m : memory)
      CGR_EXPECT_OK(cgr_memory_free(dev, m));
  }
  ShapesEngine(const ShapesEngine &) = delete;
  ShapesEngine &operator=(const ShapesEngine &) = delete;

  cgr_capture CaptureStruct() { return CaptureOf(Record, this); }
  cgr_status Capture() {
    const cgr_capture capture = CaptureStruct();
    return cgr_runtime_capture(rt, &capture);
  }
  // One more token of the one request; waits for the step and returns its kind.
  int32_t Step() {
    cgr_batch batch = CGR_BATCH_INIT;
    cgr_step step = CGR_STEP_INIT;
    const int32_t token = 1;
    batch.num_requests = 1;
    batch.rows = &row;
    batch.tokens = &token;
    CGR_EXPECT_OK(cgr_step_prepare(rt, &batch, &step));
    CGR_EXPECT_OK(cgr_step_launch(rt, &step, stream));
    CGR_EXPECT_OK(cgr_step_wait(rt, step.mark, -1, nullptr));
    seq = step.mark.seq;
    return step.key.kind;
  }
  // Of the last step.
  std::map<Place, cgr_span> Spans() {
    int32_t count = 0;
    CGR_EXPECT_OK(cgr_runtime_timing(rt, cgr_mark{ 0, 0, seq }, nullptr, 0, &count));
    std::vector<cgr_span> spans(size_t(count), cgr_span CGR_SPAN_INIT);
    CGR_EXPECT_OK(cgr_runtime_timing(rt, cgr_mark{ 0, 0, seq }, spans.data(), count, &count));
    std::map<Place, cgr_span> by;
    for (const cgr_span &span : spans)
      EXPECT_TRUE(by.emplace(Place(span.phase, span.layer), span).second) << cgr_phase_name(cgr_phase(span.phase));
    return by;
  }

  cgr_device *dev;
  Shapes shapes;
  PlainBackend target;
  cudaStream_t stream = nullptr;
  cgr_runtime *rt = nullptr;
  std::vector<void *> memory;
  void *views[4] = {}; // q, k, v, out
  int32_t row = -1;
  uint64_t seq = 0;

private:
  void *Alloc() {
    void *m = nullptr;
    CGR_EXPECT_OK(cgr_memory_alloc(dev, kMemory, &m));
    CGR_EXPECT_OK(cgr_fill(dev, m, 0, kMemory, stream));
    memory.push_back(m);
    return m;
  }
  static cgr_status Record(cgr_recorder *recorder, void *engine) {
    ShapesEngine &self = *static_cast<ShapesEngine *>(engine);
    cgr_status status = CGR_OK;
    for (const AttentionCall &call : self.shapes.calls) {
      cgr_attention a = CGR_ATTENTION_INIT;
      cgr_view *const of[] = { &a.q, &a.k, &a.v, &a.out };
      for (size_t i = 0; i < 4 && status == CGR_OK; i++)
        status = cgr_view_make(self.views[i], CGR_DTYPE_FP32, 1, kDim, of[i]);
      a.layer = call.layer;
      a.flags = call.flags;
      if (status == CGR_OK)
        status = cgr_record_attention(recorder, &a);
    }
    return status;
  }
};

} // namespace cgr_test

#endif // CGR_TESTS_TRACING_SHAPES_ENGINE_H

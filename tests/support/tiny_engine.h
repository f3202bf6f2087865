// The smallest possible engine: one layer, three requests, host functions, on a host device of the caller, which it does not
// close. Its model: the next token is the last one plus 1.
#ifndef CGR_TESTS_SUPPORT_TINY_ENGINE_H
#define CGR_TESTS_SUPPORT_TINY_ENGINE_H

#include <vector>

#include "cgr/cgr.h"
#include "cgr/inspect.h"
#include "cgr/tracing.h"
#include "tests/support/expect.h"
#include "tests/support/record_buffers.h"

namespace cgr_test {

class TinyEngine {
public:
  enum { kRequests = 3, kTokens = 8, kPages = 7, kDim = 16, kMemory = kPages * 16 * kDim * 4 };

  TinyEngine(cgr_device *device, cgr_graph_mode mode, int32_t nvtx = 0, int32_t timing = 0) : dev(device) {
    CGR_EXPECT_OK(cgr_stream_create(dev, &stream));
    for (void *&m : memory) {
      CGR_EXPECT_OK(cgr_memory_alloc(dev, kMemory, &m));
      CGR_EXPECT_OK(cgr_fill(dev, m, 0, kMemory, stream));
    }
    static const int32_t buckets[] = { 1, 3 };
    static const cgr_bucket mixed[] = { { 8, 3 } };
    cgr_group group = CGR_GROUP_INIT;
    group.num_pages = kPages;
    cgr_layer layer = CGR_LAYER_INIT;
    layer.num_q_heads = layer.num_kv_heads = 1;
    layer.head_dim = kDim;
    CGR_EXPECT_OK(cgr_kv_view_make(CGR_LAYOUT_NHD, memory[0], CGR_DTYPE_FP32, 16, 1, kDim, &layer.k));
    CGR_EXPECT_OK(cgr_kv_view_make(CGR_LAYOUT_NHD, memory[1], CGR_DTYPE_FP32, 16, 1, kDim, &layer.v));
    cgr_config config = CGR_CONFIG_INIT;
    config.device_handle = dev;
    config.groups = &group;
    config.num_groups = 1;
    config.layers = &layer;
    config.num_layers = 1;
    config.max_requests = kRequests;
    config.max_tokens = kTokens;
    config.max_seq_len = 32;
    config.graph_mode = mode;
    config.decode_buckets = buckets;
    config.num_decode_buckets = 2;
    config.mixed_buckets = mixed;
    config.num_mixed_buckets = 1;
    config.nvtx = nvtx;
    config.timing = timing;
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

  cgr_capture CaptureStruct() {
    cgr_capture capture = CGR_CAPTURE_INIT;
    capture.record = Record;
    capture.engine = this;
    return capture;
  }
  // All memory, in a region each.
  std::vector<int32_t> RegisterAll() {
    std::vector<int32_t> regions;
    for (void *m : memory) {
      regions.push_back(-1);
      CGR_EXPECT_OK(cgr_region_register(rt, m, kMemory, &regions.back()));
    }
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
    cgr_batch batch = CGR_BATCH_INIT;
    cgr_step step = CGR_STEP_INIT;
    cgr_step_result result = CGR_STEP_RESULT_INIT;
    CGR_ASSERT_OK(cgr_request_open(rt, 1, &row));
    CGR_ASSERT_OK(cgr_request_set_pages(rt, row, 0, 0, &page, 1));
    batch.num_requests = 1;
    batch.rows = &row;
    batch.tokens = &token;
    CGR_ASSERT_OK(cgr_step_prepare(rt, &batch, &step));
    *kind = step.key.kind;
    CGR_ASSERT_OK(cgr_step_launch(rt, &step, stream));
    CGR_ASSERT_OK(cgr_step_wait(rt, step.mark, -1, &result));
    ASSERT_EQ(result.tokens[0], token + 1);
    CGR_ASSERT_OK(cgr_request_close(rt, row));
  }
  // Every step has one kind and one reason.
  void ExpectCountersAddUp() {
    cgr_stats stats = CGR_STATS_INIT;
    CGR_ASSERT_OK(cgr_runtime_stats(rt, &stats));
    uint64_t sum = 0;
    for (const auto &kind : stats.by_reason)
      for (uint64_t reason : kind)
        sum += reason;
    ASSERT_EQ(sum, stats.steps);
  }

  cgr_device *dev;
  cudaStream_t stream = nullptr;
  cgr_runtime *rt = nullptr;
  void *memory[6] = {}; // K, V, q, k, v, out

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
  static cgr_status Record(cgr_recorder *recorder, void *engine) {
    TinyEngine &self = *static_cast<TinyEngine *>(engine);
    cgr_record_info info = CGR_RECORD_INFO_INIT;
    cgr_status status = cgr_record_get_info(recorder, &info);
    auto buffer = [&](cgr_buffer which) { return RecordBuffer(recorder, which, &status); };
    const SampleArgs args = { buffer(CGR_BUFFER_INPUT_IDS), buffer(CGR_BUFFER_LOGITS_INDICES), buffer(CGR_BUFFER_NEXT_TOKENS),
                              info.num_requests, 0 };
    cgr_attention a = CGR_ATTENTION_INIT;
    cgr_view *const views[] = { &a.q, &a.k, &a.v, &a.out };
    for (size_t i = 0; i < 4 && status == CGR_OK; i++)
      status = cgr_view_make(self.memory[2 + i], CGR_DTYPE_FP32, 1, kDim, views[i]);
    if (status == CGR_OK)
      status = cgr_record_attention(recorder, &a);
    return status == CGR_OK ? cgr_launch_host(self.dev, Sample, &args, sizeof args, info.stream) : status;
  }
};

} // namespace cgr_test

#endif // CGR_TESTS_SUPPORT_TINY_ENGINE_H

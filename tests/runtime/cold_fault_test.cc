// A call of the device fails, each in turn, inside an estimate, a capture, a self-test, an audit or a release: a status, nothing
// half done, and the same works afterwards.
#include "devices/shims/fault.h"

#include "tests/support/devices.h"
#include "tests/support/expect.h"

namespace cgr_test {
namespace {

enum { kRequests = 3, kTokens = 8, kPages = 12, kDim = 64 };

struct SampleArgs {
  const int32_t *input_ids, *logits_indices;
  int32_t *next_tokens;
  int32_t num_requests;
};
void Sample(const void *raw) {
  const SampleArgs &a = *static_cast<const SampleArgs *>(raw);
  for (int32_t i = 0; i < a.num_requests; i++)
    a.next_tokens[i] = a.input_ids[a.logits_indices[i]] + 1;
}

class ColdFaults : public ::testing::TestWithParam<cgr_graph_mode> {
protected:
  void SetUp() override {
    const DeviceParam device = HostParam(CGR_SCHEDULE_EARLIEST);
    cgr_device *inner = nullptr;
    CGR_ASSERT_OK(cgr_device_open("host", &device.config, &inner));
    ASSERT_EQ(cgr__fault_open(inner, &dev_), CGR__DEVICE_OK);
    CGR_ASSERT_OK(cgr_stream_create(dev_, &stream_));
    for (void *&memory : memory_) {
      CGR_ASSERT_OK(cgr_memory_alloc(dev_, kPages * 16 * kDim * 4, &memory));
      CGR_ASSERT_OK(cgr_fill(dev_, memory, 0, kPages * 16 * kDim * 4, stream_));
    }
    static const int32_t buckets[] = { 1, 3 };
    static const cgr_bucket mixed[] = { { 8, 3 } };
    cgr_group group = CGR_GROUP_INIT;
    group.num_pages = kPages;
    cgr_layer layer = CGR_LAYER_INIT;
    layer.num_q_heads = layer.num_kv_heads = 1;
    layer.head_dim = kDim;
    CGR_ASSERT_OK(cgr_kv_view_make(CGR_LAYOUT_NHD, memory_[0], CGR_DTYPE_FP32, 16, 1, kDim, &layer.k));
    CGR_ASSERT_OK(cgr_kv_view_make(CGR_LAYOUT_NHD, memory_[1], CGR_DTYPE_FP32, 16, 1, kDim, &layer.v));
    cgr_config config = CGR_CONFIG_INIT;
    config.device_handle = dev_;
    config.groups = &group;
    config.num_groups = 1;
    config.layers = &layer;
    config.num_layers = 1;
    config.max_requests = kRequests;
    config.max_tokens = kTokens;
    config.max_seq_len = 32;
    config.graph_mode = GetParam();
    config.decode_buckets = buckets;
    config.num_decode_buckets = 2;
    config.mixed_buckets = mixed;
    config.num_mixed_buckets = 1;
    CGR_ASSERT_OK(cgr_runtime_create(&config, &rt_));
  }
  void TearDown() override {
    cgr__fault_set(dev_, nullptr);
    CGR_EXPECT_OK(cgr_runtime_destroy(rt_));
    CGR_EXPECT_OK(cgr_stream_destroy(dev_, stream_));
    for (void *memory : memory_)
      CGR_EXPECT_OK(cgr_memory_free(dev_, memory));
    CGR_EXPECT_OK(cgr_device_close(dev_));
  }
  static cgr_status Record(cgr_recorder *recorder, void *engine) {
    ColdFaults &self = *static_cast<ColdFaults *>(engine);
    cgr_record_info info = CGR_RECORD_INFO_INIT;
    cgr_status status = cgr_record_get_info(recorder, &info);
    auto buffer = [&](cgr_buffer which) {
      cgr_buffer_view view = CGR_BUFFER_VIEW_INIT;
      status = status == CGR_OK ? cgr_record_buffer(recorder, which, 0, &view) : status;
      return static_cast<int32_t *>(view.data);
    };
    const SampleArgs args = { buffer(CGR_BUFFER_INPUT_IDS), buffer(CGR_BUFFER_LOGITS_INDICES), buffer(CGR_BUFFER_NEXT_TOKENS),
                              info.num_requests };
    cgr_attention a = CGR_ATTENTION_INIT;
    cgr_view *const views[] = { &a.q, &a.k, &a.v, &a.out };
    for (size_t i = 0; i < 4 && status == CGR_OK; i++)
      status = cgr_view_make(self.memory_[2 + i], CGR_DTYPE_FP32, 1, kDim, views[i]);
    if (status == CGR_OK)
      status = cgr_record_attention(recorder, &a);
    return status == CGR_OK ? cgr_launch_host(self.dev_, Sample, &args, sizeof args, info.stream) : status;
  }
  cgr_capture CaptureStruct() {
    cgr_capture capture = CGR_CAPTURE_INIT;
    capture.record = Record;
    capture.engine = this;
    return capture;
  }
  cgr_status SelfTest(int32_t *count) {
    std::vector<int32_t> pages;
    for (int32_t p = 2; p < kPages; p++)
      pages.push_back(p);
    cgr_self_test test = CGR_SELF_TEST_INIT;
    test.num_pages = int32_t(pages.size());
    test.pages = pages.data();
    return cgr_runtime_self_test(rt_, &test, nullptr, 0, count);
  }
  // Everything is captured, right and of use.
  void ExpectWorking() {
    int32_t count = -1, row = -1;
    const int32_t page = 5, token = 41;
    const cgr_capture capture = CaptureStruct();
    CGR_ASSERT_OK(cgr_runtime_capture(rt_, &capture));
    CGR_ASSERT_OK(SelfTest(&count));
    ASSERT_EQ(count, 0);
    CGR_ASSERT_OK(cgr_request_open(rt_, 1, &row));
    CGR_ASSERT_OK(cgr_request_set_pages(rt_, row, 0, 0, &page, 1));
    cgr_batch batch = CGR_BATCH_INIT;
    cgr_step step = CGR_STEP_INIT;
    cgr_step_result result = CGR_STEP_RESULT_INIT;
    batch.num_requests = 1;
    batch.rows = &row;
    batch.tokens = &token;
    CGR_ASSERT_OK(cgr_step_prepare(rt_, &batch, &step));
    ASSERT_NE(step.key.kind, CGR_KIND_NONE);
    CGR_ASSERT_OK(cgr_step_launch(rt_, &step, stream_));
    CGR_ASSERT_OK(cgr_step_wait(rt_, 0, step.seq, -1, &result));
    ASSERT_EQ(result.tokens[0], token + 1);
    CGR_ASSERT_OK(cgr_request_close(rt_, row));
    cgr_stats stats = CGR_STATS_INIT;
    CGR_ASSERT_OK(cgr_runtime_stats(rt_, &stats));
    uint64_t sum = 0;
    for (const auto &kind : stats.by_reason)
      for (uint64_t reason : kind)
        sum += reason;
    ASSERT_EQ(sum, stats.steps);
  }
  // Runs `call` with a fault at its n-th call of the device, for each n.
  template <class Prepare, class Call> void AtEveryCall(uint64_t least, Prepare prepare, Call call) {
    for (int error : { CGR__DEVICE_FAILED, CGR__DEVICE_NO_MEMORY, CGR__DEVICE_INVALID })
      for (int effect : { 0, 1 }) {
        uint64_t nth = 0, fired = 1;
        while (fired > 0 && !HasFatalFailure()) {
          cgr__fault_plan plan = { CGR__FAULT_ANY_OP, ++nth, CGR__FAULT_ONCE, effect, error, 77 };
          SCOPED_TRACE("call " + std::to_string(nth) + ", error " + std::to_string(error) + ", effect " + std::to_string(effect));
          prepare();
          cgr__fault_set(dev_, &plan);
          const cgr_status status = call();
          fired = cgr__fault_fired(dev_);
          cgr__fault_set(dev_, nullptr);
          ASSERT_NE(status, CGR_ERROR_DEAD) << cgr_last_message();
          ASSERT_TRUE(status == CGR_OK || cgr_last_message()[0] != 0);
          ASSERT_TRUE(fired > 0 || status == CGR_OK) << cgr_last_message();
          failures_ += status != CGR_OK;
          ASSERT_NO_FATAL_FAILURE(ExpectWorking());
        }
        ASSERT_GE(nth, least);
      }
  }
  cgr_device *dev_ = nullptr;
  cudaStream_t stream_ = nullptr;
  cgr_runtime *rt_ = nullptr;
  void *memory_[6] = {};
  uint64_t failures_ = 0;
};

TEST_P(ColdFaults, OfAnEstimate) {
  AtEveryCall(
      20, [&] { CGR_EXPECT_OK(cgr_runtime_release_graphs(rt_, 0, nullptr)); },
      [&] {
        const cgr_capture capture = CaptureStruct();
        cgr_capture_estimate estimate = CGR_CAPTURE_ESTIMATE_INIT;
        return cgr_runtime_estimate_capture(rt_, &capture, &estimate);
      });
  EXPECT_GT(failures_, 60u);
}

TEST_P(ColdFaults, OfASelfTest) {
  ExpectWorking();
  AtEveryCall(
      100, [] {},
      [&] {
        int32_t count = 0;
        return SelfTest(&count);
      });
  EXPECT_GT(failures_, 300u);
}

TEST_P(ColdFaults, OfAnAudit) {
  int32_t region = -1;
  for (void *memory : memory_)
    CGR_EXPECT_OK(cgr_region_register(rt_, memory, kPages * 16 * kDim * 4, &region));
  ExpectWorking();
  AtEveryCall(
      40, [] {},
      [&] {
        int32_t count = 0;
        const cgr_status status = cgr_runtime_audit(rt_, nullptr, nullptr, 0, &count);
        EXPECT_EQ(count, 0);
        return status;
      });
  EXPECT_GT(failures_, 100u);
}

TEST_P(ColdFaults, OfARelease) {
  ExpectWorking();
  AtEveryCall(
      1, [] {}, [&] { return cgr_runtime_release_graphs(rt_, 0, nullptr); });
}

INSTANTIATE_TEST_SUITE_P(Modes, ColdFaults, ::testing::Values(CGR_MODE_FULL, CGR_MODE_PIECEWISE),
                         [](const auto &made) { return made.param == CGR_MODE_FULL ? "full" : "piecewise"; });

} // namespace
} // namespace cgr_test

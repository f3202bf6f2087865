// NULL for a required argument is refused by name and changes nothing; for an optional one it is harmless.
#include "tests/support/refused.h"

namespace cgr_test {
namespace {

class NullArguments : public ThreeRequests {
protected:
  template <class Call> void RefusedNull(const char *name, Call call, uint64_t refused = 0) {
    Refused(CGR_ERROR_NULL_POINTER, { name, "NULL" }, call, refused);
  }
};

TEST_P(NullArguments, CallsOfAStepRefuseThem) {
  cgr_batch batch = GoodBatch();
  cgr_step step = CGR_STEP_INIT;
  cgr_runtime *rt = engine_->rt;
  cudaStream_t stream = engine_->stream;
  cgr_key key;
  RefusedNull("cgr_step_prepare: runtime", [&] { return cgr_step_prepare(nullptr, &batch, &step); });
  RefusedNull(
      "batch", [&] { return cgr_step_prepare(rt, nullptr, &step); }, 1);
  RefusedNull(
      "cgr_step_prepare: step", [&] { return cgr_step_prepare(rt, &batch, nullptr); }, 1);
  RefusedNull("cgr_step_prepare_wait: runtime", [&] { return cgr_step_prepare_wait(nullptr, &batch, &step, -1, stream); });
  RefusedNull(
      "batch", [&] { return cgr_step_prepare_wait(rt, nullptr, &step, -1, stream); }, 1);
  RefusedNull(
      "step is NULL", [&] { return cgr_step_prepare_wait(rt, &batch, nullptr, -1, stream); }, 1);
  RefusedNull("cgr_step_choose: runtime", [&] { return cgr_step_choose(nullptr, &batch, &key); });
  RefusedNull("batch", [&] { return cgr_step_choose(rt, nullptr, &key); });
  RefusedNull("cgr_step_choose: key", [&] { return cgr_step_choose(rt, &batch, nullptr); });
  RefusedNull("cgr_step_launch: runtime", [&] { return cgr_step_launch(nullptr, &step, stream); });
  RefusedNull("cgr_step_launch: step", [&] { return cgr_step_launch(rt, nullptr, stream); });
  RefusedNull("cgr_step_cancel: runtime", [&] { return cgr_step_cancel(nullptr, &step); });
  RefusedNull("cgr_step_cancel: step", [&] { return cgr_step_cancel(rt, nullptr); });
  RefusedNull("cgr_step_wait: runtime", [&] { return cgr_step_wait(nullptr, cgr_mark{ 0, 0, 1 }, -1, nullptr); });
  RefusedNull("cgr_runtime_flush: runtime", [&] { return cgr_runtime_flush(nullptr, nullptr, nullptr, stream); });
  batch.rows = nullptr;
  BatchRefused(CGR_ERROR_NULL_POINTER, { "batch: rows" }, batch);
}

TEST_P(NullArguments, CallsOfRequestsRefuseThem) {
  cgr_runtime *rt = engine_->rt;
  int32_t row = 0, page = 2, first = 0, end = 0;
  cgr_request_info info = CGR_REQUEST_INFO_INIT;
  RefusedNull("cgr_request_open: runtime", [&] { return cgr_request_open(nullptr, 1, &row); });
  RefusedNull("cgr_request_open: row", [&] { return cgr_request_open(rt, 1, nullptr); });
  RefusedNull("cgr_request_close: runtime", [&] { return cgr_request_close(nullptr, 0); });
  RefusedNull("cgr_request_set_pages: runtime", [&] { return cgr_request_set_pages(nullptr, 0, 0, 0, &page, 1); });
  RefusedNull("pages", [&] { return cgr_request_set_pages(rt, rows_[0], 0, 0, nullptr, 1); });
  RefusedNull("cgr_request_drop_pages: runtime", [&] { return cgr_request_drop_pages(nullptr, 0, 0, 0, 1); });
  RefusedNull("cgr_request_set_length: runtime", [&] { return cgr_request_set_length(nullptr, 0, 0); });
  RefusedNull("cgr_request_set_other_length: runtime", [&] { return cgr_request_set_other_length(nullptr, 0, 1, 0); });
  RefusedNull("cgr_request_get_info: runtime", [&] { return cgr_request_get_info(nullptr, 0, &info); });
  RefusedNull("info", [&] { return cgr_request_get_info(rt, 0, nullptr); });
  RefusedNull("cgr_request_get_pages: runtime", [&] { return cgr_request_get_pages(nullptr, 0, 0, &first, &end); });
  RefusedNull("first", [&] { return cgr_request_get_pages(rt, 0, 0, nullptr, &end); });
  RefusedNull("end", [&] { return cgr_request_get_pages(rt, 0, 0, &first, nullptr); });
}

TEST_P(NullArguments, CallsOfTheStandingBatchRefuseThem) {
  cgr_runtime *rt = engine_->rt;
  const int32_t *rows = nullptr;
  int32_t count = 0;
  RefusedNull("cgr_standing_add: runtime", [&] { return cgr_standing_add(nullptr, nullptr, 0, 1, nullptr, 0); });
  RefusedNull("cgr_standing_update: runtime", [&] { return cgr_standing_update(nullptr, nullptr, 0, 1, nullptr, 0); });
  RefusedNull("cgr_standing_remove: runtime", [&] { return cgr_standing_remove(nullptr, nullptr, 0); });
  RefusedNull("cgr_standing_swap: runtime", [&] { return cgr_standing_swap(nullptr, nullptr, 0, 0); });
  RefusedNull("cgr_standing_rows: runtime", [&] { return cgr_standing_rows(nullptr, nullptr, &rows, &count); });
  RefusedNull("rows", [&] { return cgr_standing_rows(rt, nullptr, nullptr, &count); });
  RefusedNull("count", [&] { return cgr_standing_rows(rt, nullptr, &rows, nullptr); });
  RefusedNull("cgr_standing_add: tokens", [&] { return cgr_standing_add(rt, nullptr, rows_[0], 2, nullptr, 0); });
}

TEST_P(NullArguments, CallsOfARuntimeRefuseThem) {
  cgr_runtime *rt = engine_->rt;
  cgr_capture capture = engine_->CaptureStruct(), no_record = capture;
  no_record.record = nullptr;
  cgr_stats stats = CGR_STATS_INIT;
  cgr_buffer_view view = CGR_BUFFER_VIEW_INIT;
  int32_t region = 0;
  void *memory = engine_->state.layer[0].in[kQ].data;
  RefusedNull("cgr_runtime_capture: runtime", [&] { return cgr_runtime_capture(nullptr, &capture); });
  RefusedNull("capture", [&] { return cgr_runtime_capture(rt, nullptr); });
  RefusedNull("capture.record", [&] { return cgr_runtime_capture(rt, &no_record); });
  RefusedNull("cgr_runtime_warmup: runtime", [&] { return cgr_runtime_warmup(nullptr, &capture); });
  RefusedNull("capture", [&] { return cgr_runtime_warmup(rt, nullptr); });
  RefusedNull("capture.record", [&] { return cgr_runtime_warmup(rt, &no_record); });
  cgr_capture_estimate estimate = CGR_CAPTURE_ESTIMATE_INIT;
  RefusedNull("cgr_runtime_estimate_capture: runtime",
              [&] { return cgr_runtime_estimate_capture(nullptr, &capture, &estimate); });
  RefusedNull("estimate", [&] { return cgr_runtime_estimate_capture(rt, &capture, nullptr); });
  RefusedNull("capture", [&] { return cgr_runtime_estimate_capture(rt, nullptr, &estimate); });
  int32_t findings = 0;
  RefusedNull("cgr_runtime_audit: runtime", [&] { return cgr_runtime_audit(nullptr, nullptr, nullptr, 0, &findings); });
  RefusedNull("count", [&] { return cgr_runtime_audit(rt, nullptr, nullptr, 0, nullptr); });
  RefusedNull("cgr_runtime_release_graphs: runtime", [&] { return cgr_runtime_release_graphs(nullptr, 0, nullptr); });
  RefusedNull("cgr_runtime_enable_graphs: runtime", [&] { return cgr_runtime_enable_graphs(nullptr, 1); });
  RefusedNull("cgr_runtime_stats: runtime", [&] { return cgr_runtime_stats(nullptr, &stats); });
  RefusedNull("stats", [&] { return cgr_runtime_stats(rt, nullptr); });
  RefusedNull("stats", [&] { return cgr_runtime_graph_stats(rt, 0, nullptr); });
  cgr_key_stats key_stats = CGR_KEY_STATS_INIT;
  cgr_flight_record record = CGR_FLIGHT_RECORD_INIT;
  size_t length = 0;
  int32_t records = 0;
  char text[8];
  RefusedNull("cgr_runtime_key_stats: runtime", [&] { return cgr_runtime_key_stats(nullptr, 0, &key_stats); });
  RefusedNull("stats", [&] { return cgr_runtime_key_stats(rt, 0, nullptr); });
  RefusedNull("cgr_runtime_stats_text: runtime", [&] { return cgr_runtime_stats_text(nullptr, text, 8, &length); });
  RefusedNull("cgr_runtime_stats_text: length", [&] { return cgr_runtime_stats_text(rt, text, 8, nullptr); });
  RefusedNull("cgr_runtime_metrics: runtime", [&] { return cgr_runtime_metrics(nullptr, nullptr, 0, text, 8, &length); });
  RefusedNull("cgr_runtime_metrics: length", [&] { return cgr_runtime_metrics(rt, nullptr, 0, text, 8, nullptr); });
  RefusedNull("cgr_runtime_flight: runtime", [&] { return cgr_runtime_flight(nullptr, &record, 1, &records); });
  RefusedNull("cgr_runtime_flight: count", [&] { return cgr_runtime_flight(rt, &record, 1, nullptr); });
  RefusedNull("records", [&] { return cgr_runtime_flight(rt, nullptr, 1, &records); });
  RefusedNull("cgr_runtime_graph_labels: runtime", [&] { return cgr_runtime_graph_labels(nullptr, text, 8, &length); });
  RefusedNull("cgr_runtime_graph_labels: length", [&] { return cgr_runtime_graph_labels(rt, text, 8, nullptr); });
  RefusedNull("cgr_runtime_dump: runtime", [&] { return cgr_runtime_dump(nullptr, text, 8, &length); });
  RefusedNull("cgr_runtime_dump: length", [&] { return cgr_runtime_dump(rt, text, 8, nullptr); });
  cgr_span span = CGR_SPAN_INIT;
  RefusedNull("cgr_runtime_timing: runtime", [&] {
    return cgr_runtime_timing(nullptr, cgr_mark{ 0, 0, 1 }, &span, 1, &records);
  });
  RefusedNull("cgr_runtime_timing: count", [&] { return cgr_runtime_timing(rt, cgr_mark{ 0, 0, 1 }, &span, 1, nullptr); });
  RefusedNull("spans", [&] { return cgr_runtime_timing(rt, cgr_mark{ 0, 0, 1 }, nullptr, 1, &records); });
  RefusedNull("cgr_runtime_trace: runtime", [&] { return cgr_runtime_trace(nullptr, text, 8, &length); });
  RefusedNull("cgr_runtime_trace: length", [&] { return cgr_runtime_trace(rt, text, 8, nullptr); });
  RefusedNull("cgr_runtime_trace: out", [&] { return cgr_runtime_trace(rt, nullptr, 8, &length); });
  RefusedNull("cgr_runtime_trace_head: runtime", [&] { return cgr_runtime_trace_head(nullptr, text, 8, &length); });
  RefusedNull("cgr_runtime_trace_head: length", [&] { return cgr_runtime_trace_head(rt, text, 8, nullptr); });
  RefusedNull("cgr_runtime_trace_step: runtime", [&] {
    return cgr_runtime_trace_step(nullptr, cgr_mark{ 0, 0, 1 }, text, 8, &length);
  });
  RefusedNull("cgr_runtime_trace_step: length", [&] {
    return cgr_runtime_trace_step(rt, cgr_mark{ 0, 0, 1 }, text, 8, nullptr);
  });
  RefusedNull("cgr_buffer_get: runtime", [&] { return cgr_buffer_get(nullptr, nullptr, CGR_BUFFER_COUNTS, 0, &view); });
  RefusedNull("view", [&] { return cgr_buffer_get(rt, nullptr, CGR_BUFFER_COUNTS, 0, nullptr); });
  cgr_device *device = nullptr;
  cgr_graph_mode mode = CGR_MODE_DEFAULT;
  uint64_t seq = 0;
  RefusedNull("cgr_runtime_completed: runtime", [&] { return cgr_runtime_completed(nullptr, nullptr, &seq); });
  RefusedNull("cgr_runtime_completed: seq", [&] { return cgr_runtime_completed(rt, nullptr, nullptr); });
  RefusedNull("cgr_runtime_num_keys: runtime", [&] { return cgr_runtime_num_keys(nullptr, &records); });
  RefusedNull("cgr_runtime_num_keys: count", [&] { return cgr_runtime_num_keys(rt, nullptr); });
  RefusedNull("cgr_runtime_device: runtime", [&] { return cgr_runtime_device(nullptr, &device); });
  RefusedNull("cgr_runtime_device: device", [&] { return cgr_runtime_device(rt, nullptr); });
  RefusedNull("cgr_runtime_graph_mode: runtime", [&] { return cgr_runtime_graph_mode(nullptr, &mode, nullptr); });
  RefusedNull("cgr_runtime_graph_mode: mode", [&] { return cgr_runtime_graph_mode(rt, nullptr, nullptr); });
  RefusedNull("base", [&] { return cgr_region_register(rt, nullptr, 16, &region); });
  RefusedNull("region", [&] { return cgr_region_register(rt, memory, 16, nullptr); });
  RefusedNull("cgr_region_unregister: runtime", [&] { return cgr_region_unregister(nullptr, region); });
}

TEST_P(NullArguments, CallsOfARecorderRefuseThem) {
  cgr_record_info info = CGR_RECORD_INFO_INIT;
  cgr_buffer_view view = CGR_BUFFER_VIEW_INIT;
  cgr_attention attention = CGR_ATTENTION_INIT;
  auto function = [](cgr_recorder *, const void *) { return CGR_OK; };
  RefusedNull("recorder", [&] { return cgr_record_get_info(nullptr, &info); });
  RefusedNull("recorder", [&] { return cgr_record_attention(nullptr, &attention); });
  cgr_merge merge = CGR_MERGE_INIT;
  RefusedNull("recorder", [&] { return cgr_record_merge(nullptr, &merge); });
  RefusedNull("recorder", [&] { return cgr_record_call(nullptr, function, nullptr, 0); });
  RefusedNull("recorder", [&] { return cgr_record_buffer(nullptr, CGR_BUFFER_COUNTS, 0, &view); });
}

TEST_P(NullArguments, AreTakenWhereTheyMeanNothing) {
  EXPECT_EQ(ModeOf(engine_->rt), CGR_MODE_FULL_DECODE_ONLY);
  EXPECT_EQ(DeviceOf(engine_->rt), engine_->dev);
  CGR_EXPECT_OK(cgr_runtime_destroy(nullptr));
  CGR_EXPECT_OK(cgr_device_close(nullptr));
  CGR_EXPECT_OK(cgr_memory_free(engine_->dev, nullptr));
  CGR_EXPECT_OK(cgr_memory_free_pinned(engine_->dev, nullptr));
}

TEST_P(NullArguments, AHandleThatIsNoRuntimeIsRefused) {
  alignas(64) static unsigned char junk[4096] = { 1 };
  cgr_runtime *rt = reinterpret_cast<cgr_runtime *>(junk);
  cgr_step step = CGR_STEP_INIT;
  int32_t row = 0;
  Refused(CGR_ERROR_INVALID_ARGUMENT, { "cgr_request_open: runtime" }, [&] { return cgr_request_open(rt, 1, &row); });
  Refused(CGR_ERROR_INVALID_ARGUMENT, { "cgr_step_cancel: runtime" }, [&] { return cgr_step_cancel(rt, &step); });
  Refused(CGR_ERROR_INVALID_ARGUMENT, { "cgr_runtime_destroy: runtime" }, [&] { return cgr_runtime_destroy(rt); });
  uint64_t seq = 0;
  cgr_device *device = nullptr;
  Refused(CGR_ERROR_INVALID_ARGUMENT, { "cgr_runtime_completed: runtime" },
          [&] { return cgr_runtime_completed(rt, nullptr, &seq); });
  Refused(CGR_ERROR_INVALID_ARGUMENT, { "cgr_runtime_device: runtime" }, [&] { return cgr_runtime_device(rt, &device); });
}

CGR_INSTANTIATE_OVER_FEW_DEVICES(NullArguments);

} // namespace
} // namespace cgr_test

// NULL for a required argument is refused by name and changes nothing; for an optional one it is harmless.
#include "cgr/stops.h"
#include "tests/support/refused.h"

namespace cgr_test {
namespace {

class NullArguments : public ThreeRequests {};

TEST_P(NullArguments, CallsOfAStepRefuseThem) {
  cgr_batch batch = GoodBatch();
  cgr_step step = CGR_STEP_INIT;
  cgr_runtime *rt = engine_->rt;
  cudaStream_t stream = engine_->stream;
  cgr_key key;
  const cgr_mark mark = { 0, 0, 1 };
  EachRefused({
      { kNull, "cgr_step_prepare: runtime is NULL", [&] { return cgr_step_prepare(nullptr, &batch, &step); } },
      { kNull, "cgr_step_prepare_wait: runtime is NULL",
        [&] { return cgr_step_prepare_wait(nullptr, &batch, &step, -1, stream); } },
      { kNull, "cgr_step_choose: runtime is NULL", [&] { return cgr_step_choose(nullptr, &batch, &key); } },
      { kNull, "batch is NULL", [&] { return cgr_step_choose(rt, nullptr, &key); } },
      { kNull, "cgr_step_choose: key is NULL", [&] { return cgr_step_choose(rt, &batch, nullptr); } },
      { kNull, "cgr_step_launch: runtime is NULL", [&] { return cgr_step_launch(nullptr, &step, stream); } },
      { kNull, "cgr_step_launch: step is NULL", [&] { return cgr_step_launch(rt, nullptr, stream); } },
      { kNull, "cgr_step_cancel: runtime is NULL", [&] { return cgr_step_cancel(nullptr, &step); } },
      { kNull, "cgr_step_cancel: step is NULL", [&] { return cgr_step_cancel(rt, nullptr); } },
      { kNull, "cgr_step_wait: runtime is NULL", [&] { return cgr_step_wait(nullptr, mark, -1, nullptr); } },
      { kNull, "cgr_runtime_flush: runtime is NULL", [&] { return cgr_runtime_flush(nullptr, nullptr, nullptr, stream); } },
      // Prepares, which are counted.
      { kNull, "batch is NULL", [&] { return cgr_step_prepare(rt, nullptr, &step); }, 1 },
      { kNull, "cgr_step_prepare: step is NULL", [&] { return cgr_step_prepare(rt, &batch, nullptr); }, 1 },
      { kNull, "batch is NULL", [&] { return cgr_step_prepare_wait(rt, nullptr, &step, -1, stream); }, 1 },
      { kNull, "step is NULL", [&] { return cgr_step_prepare_wait(rt, &batch, nullptr, -1, stream); }, 1 },
  });
}

TEST_P(NullArguments, CallsOfRequestsRefuseThem) {
  cgr_runtime *rt = engine_->rt;
  int32_t row = 0, page = 2, first = 0, end = 0;
  cgr_request_info info = CGR_REQUEST_INFO_INIT;
  EachRefused({
      { kNull, "cgr_request_open: runtime is NULL", [&] { return cgr_request_open(nullptr, 1, &row); } },
      { kNull, "cgr_request_open: row is NULL", [&] { return cgr_request_open(rt, 1, nullptr); } },
      { kNull, "cgr_request_close: runtime is NULL", [&] { return cgr_request_close(nullptr, 0); } },
      { kNull, "cgr_request_set_pages: runtime is NULL", [&] { return cgr_request_set_pages(nullptr, 0, 0, 0, &page, 1); } },
      { kNull, "pages is NULL", [&] { return cgr_request_set_pages(rt, rows_[0], 0, 0, nullptr, 1); } },
      { kNull, "cgr_request_drop_pages: runtime is NULL", [&] { return cgr_request_drop_pages(nullptr, 0, 0, 0, 1); } },
      { kNull, "cgr_requests_set_pages: runtime is NULL",
        [&] { return cgr_requests_set_pages(nullptr, 0, 1, &row, &first, nullptr, &page); } },
      { kNull, "rows is NULL", [&] { return cgr_requests_set_pages(rt, 0, 1, nullptr, &first, nullptr, &page); } },
      { kNull, "cgr_requests_set_pages: pages is NULL",
        [&] { return cgr_requests_set_pages(rt, 0, 1, &rows_[0], &first, nullptr, nullptr); } },
      { kNull, "cgr_requests_drop_pages: runtime is NULL",
        [&] { return cgr_requests_drop_pages(nullptr, 0, 1, &row, &first, nullptr); } },
      { kNull, "firsts is NULL", [&] { return cgr_requests_drop_pages(rt, 0, 1, &row, nullptr, nullptr); } },
      { kNull, "cgr_request_set_length: runtime is NULL", [&] { return cgr_request_set_length(nullptr, 0, 0); } },
      { kNull, "cgr_request_set_stops: runtime is NULL", [&] { return cgr_request_set_stops(nullptr, 0, nullptr); } },
      { kNull, "cgr_request_set_other_length: runtime is NULL", [&] { return cgr_request_set_other_length(nullptr, 0, 1, 0); } },
      { kNull, "cgr_request_get_info: runtime is NULL", [&] { return cgr_request_get_info(nullptr, 0, &info); } },
      { kNull, "info is NULL", [&] { return cgr_request_get_info(rt, 0, nullptr); } },
      { kNull, "cgr_request_get_pages: runtime is NULL", [&] { return cgr_request_get_pages(nullptr, 0, 0, &first, &end); } },
      { kNull, "first is NULL", [&] { return cgr_request_get_pages(rt, 0, 0, nullptr, &end); } },
      { kNull, "end is NULL", [&] { return cgr_request_get_pages(rt, 0, 0, &first, nullptr); } },
  });
}

TEST_P(NullArguments, CallsOfTheStandingBatchRefuseThem) {
  cgr_runtime *rt = engine_->rt;
  const int32_t *rows = nullptr;
  int32_t count = 0;
  EachRefused({
      { kNull, "cgr_standing_add: runtime is NULL", [&] { return cgr_standing_add(nullptr, nullptr, 0, 1, nullptr, 0); } },
      { kNull, "cgr_standing_update: runtime is NULL", [&] { return cgr_standing_update(nullptr, nullptr, 0, 1, nullptr, 0); } },
      { kNull, "cgr_standing_remove: runtime is NULL", [&] { return cgr_standing_remove(nullptr, nullptr, 0); } },
      { kNull, "cgr_standing_swap: runtime is NULL", [&] { return cgr_standing_swap(nullptr, nullptr, 0, 0); } },
      { kNull, "cgr_standing_rows: runtime is NULL", [&] { return cgr_standing_rows(nullptr, nullptr, &rows, &count); } },
      { kNull, "rows is NULL", [&] { return cgr_standing_rows(rt, nullptr, nullptr, &count); } },
      { kNull, "count is NULL", [&] { return cgr_standing_rows(rt, nullptr, &rows, nullptr); } },
      { kNull, "cgr_standing_add: tokens is NULL", [&] { return cgr_standing_add(rt, nullptr, rows_[0], 2, nullptr, 0); } },
  });
}

TEST_P(NullArguments, CallsThatCaptureRefuseThem) {
  cgr_runtime *rt = engine_->rt;
  cgr_capture capture = engine_->CaptureStruct();
  cgr_capture_estimate estimate = CGR_CAPTURE_ESTIMATE_INIT;
  int32_t region = 0, count = 0;
  void *memory = engine_->state.layer[0].in[kQ].data;
  EachRefused({
      { kNull, "cgr_runtime_capture: runtime is NULL", [&] { return cgr_runtime_capture(nullptr, &capture); } },
      { kNull, "capture is NULL", [&] { return cgr_runtime_capture(rt, nullptr); } },
      { kNull, "cgr_runtime_warmup: runtime is NULL", [&] { return cgr_runtime_warmup(nullptr, &capture); } },
      { kNull, "capture is NULL", [&] { return cgr_runtime_warmup(rt, nullptr); } },
      { kNull, "cgr_runtime_estimate_capture: runtime is NULL",
        [&] { return cgr_runtime_estimate_capture(nullptr, &capture, &estimate); } },
      { kNull, "estimate is NULL", [&] { return cgr_runtime_estimate_capture(rt, &capture, nullptr); } },
      { kNull, "capture is NULL", [&] { return cgr_runtime_estimate_capture(rt, nullptr, &estimate); } },
      { kNull, "cgr_runtime_audit: runtime is NULL", [&] { return cgr_runtime_audit(nullptr, nullptr, nullptr, 0, &count); } },
      { kNull, "count is NULL", [&] { return cgr_runtime_audit(rt, nullptr, nullptr, 0, nullptr); } },
      { kNull, "cgr_runtime_release_graphs: runtime is NULL", [&] { return cgr_runtime_release_graphs(nullptr, 0, nullptr); } },
      { kNull, "cgr_runtime_enable_graphs: runtime is NULL", [&] { return cgr_runtime_enable_graphs(nullptr, 1); } },
      { kNull, "base is NULL", [&] { return cgr_region_register(rt, nullptr, 16, &region); } },
      { kNull, "region is NULL", [&] { return cgr_region_register(rt, memory, 16, nullptr); } },
      { kNull, "cgr_region_unregister: runtime is NULL", [&] { return cgr_region_unregister(nullptr, region); } },
  });
}

TEST_P(NullArguments, CallsThatReportRefuseThem) {
  cgr_runtime *rt = engine_->rt;
  cgr_stats stats = CGR_STATS_INIT;
  cgr_key_stats key_stats = CGR_KEY_STATS_INIT;
  cgr_key_advice advice = CGR_KEY_ADVICE_INIT;
  cgr_flight_record record = CGR_FLIGHT_RECORD_INIT;
  cgr_span span = CGR_SPAN_INIT;
  cgr_buffer_view view = CGR_BUFFER_VIEW_INIT;
  cgr_device *device = nullptr;
  cgr_graph_mode mode = CGR_MODE_DEFAULT;
  const cgr_mark mark = { 0, 0, 1 };
  uint64_t seq = 0;
  size_t length = 0;
  int32_t count = 0;
  char text[8];
  EachRefused({
      { kNull, "cgr_runtime_stats: runtime is NULL", [&] { return cgr_runtime_stats(nullptr, &stats); } },
      { kNull, "stats is NULL", [&] { return cgr_runtime_stats(rt, nullptr); } },
      { kNull, "stats is NULL", [&] { return cgr_runtime_graph_stats(rt, 0, nullptr); } },
      { kNull, "cgr_runtime_key_stats: runtime is NULL", [&] { return cgr_runtime_key_stats(nullptr, 0, &key_stats); } },
      { kNull, "stats is NULL", [&] { return cgr_runtime_key_stats(rt, 0, nullptr); } },
      { kNull, "cgr_runtime_advise_keys: runtime is NULL",
        [&] { return cgr_runtime_advise_keys(nullptr, 0.0, nullptr, 0, &advice); } },
      { kNull, "advice is NULL", [&] { return cgr_runtime_advise_keys(rt, 0.0, nullptr, 0, nullptr); } },
      { kNull, "keys is NULL, expected an address, as capacity is 1",
        [&] { return cgr_runtime_advise_keys(rt, 0.0, nullptr, 1, &advice); } },
      { kNull, "cgr_runtime_stats_text: runtime is NULL", [&] { return cgr_runtime_stats_text(nullptr, text, 8, &length); } },
      { kNull, "cgr_runtime_stats_text: length is NULL", [&] { return cgr_runtime_stats_text(rt, text, 8, nullptr); } },
      { kNull, "cgr_runtime_metrics: runtime is NULL",
        [&] { return cgr_runtime_metrics(nullptr, nullptr, 0, text, 8, &length); } },
      { kNull, "cgr_runtime_metrics: length is NULL", [&] { return cgr_runtime_metrics(rt, nullptr, 0, text, 8, nullptr); } },
      { kNull, "cgr_runtime_flight: runtime is NULL", [&] { return cgr_runtime_flight(nullptr, &record, 1, &count); } },
      { kNull, "cgr_runtime_flight: count is NULL", [&] { return cgr_runtime_flight(rt, &record, 1, nullptr); } },
      { kNull, "records is NULL", [&] { return cgr_runtime_flight(rt, nullptr, 1, &count); } },
      { kNull, "cgr_runtime_graph_labels: runtime is NULL", [&] { return cgr_runtime_graph_labels(nullptr, text, 8, &length); } },
      { kNull, "cgr_runtime_graph_labels: length is NULL", [&] { return cgr_runtime_graph_labels(rt, text, 8, nullptr); } },
      { kNull, "cgr_runtime_dump: runtime is NULL", [&] { return cgr_runtime_dump(nullptr, text, 8, &length); } },
      { kNull, "cgr_runtime_dump: length is NULL", [&] { return cgr_runtime_dump(rt, text, 8, nullptr); } },
      { kNull, "cgr_runtime_timing: runtime is NULL", [&] { return cgr_runtime_timing(nullptr, mark, &span, 1, &count); } },
      { kNull, "cgr_runtime_timing: count is NULL", [&] { return cgr_runtime_timing(rt, mark, &span, 1, nullptr); } },
      { kNull, "spans is NULL", [&] { return cgr_runtime_timing(rt, mark, nullptr, 1, &count); } },
      { kNull, "cgr_runtime_trace: runtime is NULL", [&] { return cgr_runtime_trace(nullptr, text, 8, &length); } },
      { kNull, "cgr_runtime_trace: length is NULL", [&] { return cgr_runtime_trace(rt, text, 8, nullptr); } },
      { kNull, "cgr_runtime_trace: out is NULL", [&] { return cgr_runtime_trace(rt, nullptr, 8, &length); } },
      { kNull, "cgr_runtime_trace_head: runtime is NULL", [&] { return cgr_runtime_trace_head(nullptr, text, 8, &length); } },
      { kNull, "cgr_runtime_trace_head: length is NULL", [&] { return cgr_runtime_trace_head(rt, text, 8, nullptr); } },
      { kNull, "cgr_runtime_trace_step: runtime is NULL",
        [&] { return cgr_runtime_trace_step(nullptr, mark, text, 8, &length); } },
      { kNull, "cgr_runtime_trace_step: length is NULL", [&] { return cgr_runtime_trace_step(rt, mark, text, 8, nullptr); } },
      { kNull, "cgr_buffer_get: runtime is NULL", [&] { return cgr_buffer_get(nullptr, nullptr, CGR_BUFFER_COUNTS, 0, &view); } },
      { kNull, "view is NULL", [&] { return cgr_buffer_get(rt, nullptr, CGR_BUFFER_COUNTS, 0, nullptr); } },
      { kNull, "cgr_runtime_completed: runtime is NULL", [&] { return cgr_runtime_completed(nullptr, nullptr, &seq); } },
      { kNull, "cgr_runtime_completed: seq is NULL", [&] { return cgr_runtime_completed(rt, nullptr, nullptr); } },
      { kNull, "cgr_runtime_num_keys: runtime is NULL", [&] { return cgr_runtime_num_keys(nullptr, &count); } },
      { kNull, "cgr_runtime_num_keys: count is NULL", [&] { return cgr_runtime_num_keys(rt, nullptr); } },
      { kNull, "cgr_runtime_device: runtime is NULL", [&] { return cgr_runtime_device(nullptr, &device); } },
      { kNull, "cgr_runtime_device: device is NULL", [&] { return cgr_runtime_device(rt, nullptr); } },
      { kNull, "cgr_runtime_graph_mode: runtime is NULL", [&] { return cgr_runtime_graph_mode(nullptr, &mode, nullptr); } },
      { kNull, "cgr_runtime_graph_mode: mode is NULL", [&] { return cgr_runtime_graph_mode(rt, nullptr, nullptr); } },
  });
}

TEST_P(NullArguments, CallsOfARecorderRefuseThem) {
  cgr_record_info info = CGR_RECORD_INFO_INIT;
  cgr_buffer_view view = CGR_BUFFER_VIEW_INIT;
  cgr_attention attention = CGR_ATTENTION_INIT;
  auto function = [](cgr_recorder *, const void *) { return CGR_OK; };
  cgr_merge merge = CGR_MERGE_INIT;
  cgr_measure measure = CGR_MEASURE_INIT;
  EachRefused({
      { kNull, "recorder is NULL", [&] { return cgr_record_get_info(nullptr, &info); } },
      { kNull, "recorder is NULL", [&] { return cgr_record_attention(nullptr, &attention); } },
      { kNull, "recorder is NULL", [&] { return cgr_record_merge(nullptr, &merge); } },
      { kNull, "recorder is NULL", [&] { return cgr_record_measure(nullptr, &measure); } },
      { kNull, "recorder is NULL", [&] { return cgr_record_call(nullptr, function, nullptr, 0); } },
      { kNull, "recorder is NULL", [&] { return cgr_record_buffer(nullptr, CGR_BUFFER_COUNTS, 0, &view); } },
  });
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
  uint64_t seq = 0;
  cgr_device *device = nullptr;
  EachRefused({
      { kArgument, "cgr_request_open: runtime", [&] { return cgr_request_open(rt, 1, &row); } },
      { kArgument, "cgr_step_cancel: runtime", [&] { return cgr_step_cancel(rt, &step); } },
      { kArgument, "cgr_runtime_destroy: runtime", [&] { return cgr_runtime_destroy(rt); } },
      { kArgument, "cgr_runtime_completed: runtime", [&] { return cgr_runtime_completed(rt, nullptr, &seq); } },
      { kArgument, "cgr_runtime_device: runtime", [&] { return cgr_runtime_device(rt, &device); } },
  });
}

CGR_INSTANTIATE_OVER_FEW_DEVICES(NullArguments);

} // namespace
} // namespace cgr_test

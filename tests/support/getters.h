// Getters of the interface as expressions: what they write, and a failed expectation where they fail. And batches and captures.
#pragma once

#include <gtest/gtest.h>

#include "cgr/cgr.h"
#include "cgr/inspect.h"
#include "cgr/tracing.h"

namespace cgr_test {

inline int32_t NumKeys(cgr_runtime *runtime) {
  int32_t count = -1;
  EXPECT_EQ(cgr_runtime_num_keys(runtime, &count), CGR_OK) << cgr_last_message();
  return count;
}

// Of a runtime that has died it is 0.
inline uint64_t Completed(cgr_runtime *runtime) {
  uint64_t seq = 0;
  const cgr_status status = cgr_runtime_completed(runtime, nullptr, &seq);
  EXPECT_TRUE(status == CGR_OK || status == CGR_ERROR_DEAD) << cgr_last_message();
  return seq;
}

inline cgr_device *DeviceOf(cgr_runtime *runtime) {
  cgr_device *device = nullptr;
  EXPECT_EQ(cgr_runtime_device(runtime, &device), CGR_OK) << cgr_last_message();
  return device;
}

inline cgr_graph_mode ModeOf(cgr_runtime *runtime, const char **reason = nullptr) {
  cgr_graph_mode mode = CGR_MODE_DEFAULT;
  EXPECT_EQ(cgr_runtime_graph_mode(runtime, &mode, reason), CGR_OK) << cgr_last_message();
  return mode;
}

inline cgr_stats StatsOf(cgr_runtime *runtime) {
  cgr_stats stats = CGR_STATS_INIT;
  EXPECT_EQ(cgr_runtime_stats(runtime, &stats), CGR_OK) << cgr_last_message();
  return stats;
}

// Every step has one kind and one reason.
inline uint64_t CountedSteps(const cgr_stats &stats) {
  uint64_t sum = 0;
  for (const auto &kind : stats.by_reason)
    for (uint64_t steps : kind)
      sum += steps;
  return sum;
}

inline cgr_graph_stats GraphStatsOf(cgr_runtime *runtime, int32_t index) {
  cgr_graph_stats stats = CGR_GRAPH_STATS_INIT;
  EXPECT_EQ(cgr_runtime_graph_stats(runtime, index, &stats), CGR_OK) << cgr_last_message();
  return stats;
}

inline cgr_buffer_view BufferOf(cgr_runtime *runtime, cgr_buffer buffer, int32_t index = 0) {
  cgr_buffer_view view = CGR_BUFFER_VIEW_INIT;
  EXPECT_EQ(cgr_buffer_get(runtime, nullptr, buffer, index, &view), CGR_OK) << cgr_last_message();
  return view;
}

inline cgr_record_info InfoOf(cgr_recorder *recorder) {
  cgr_record_info info = CGR_RECORD_INFO_INIT;
  EXPECT_EQ(cgr_record_get_info(recorder, &info), CGR_OK) << cgr_last_message();
  return info;
}

inline int32_t NewRegion(cgr_runtime *runtime, const void *base, size_t bytes) {
  int32_t region = -1;
  EXPECT_EQ(cgr_region_register(runtime, base, bytes, &region), CGR_OK) << cgr_last_message();
  return region;
}

inline cgr_batch BatchOf(int32_t num_requests, const int32_t *rows = nullptr, const int32_t *tokens = nullptr,
                         const int32_t *query_lens = nullptr) {
  cgr_batch batch = CGR_BATCH_INIT;
  batch.num_requests = num_requests;
  batch.rows = rows;
  batch.tokens = tokens;
  batch.query_lens = query_lens;
  return batch;
}
inline cgr_capture CaptureOf(cgr_record_function record, void *engine) {
  cgr_capture capture = CGR_CAPTURE_INIT;
  capture.record = record;
  capture.engine = engine;
  return capture;
}
inline cgr_batch StandingBatch() { return BatchOf(CGR_BATCH_STANDING); }

// `*seq`: the last step that has been launched.
inline cgr_status Flush(cgr_runtime *runtime, cudaStream_t stream, uint64_t *seq) {
  cgr_mark last = { 0, 0, *seq };
  const cgr_status status = cgr_runtime_flush(runtime, nullptr, &last, stream);
  *seq = last.seq;
  return status;
}

} // namespace cgr_test

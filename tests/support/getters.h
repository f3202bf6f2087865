// Getters of the interface as expressions: what they write, and a failed expectation where they fail.
#ifndef CGR_TESTS_SUPPORT_GETTERS_H
#define CGR_TESTS_SUPPORT_GETTERS_H

#include <gtest/gtest.h>

#include "cgr/cgr.h"
#include "cgr/inspect.h"

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

// `*seq`: the last step that has been launched.
inline cgr_status Flush(cgr_runtime *runtime, cudaStream_t stream, uint64_t *seq) {
  cgr_mark last = { 0, 0, *seq };
  const cgr_status status = cgr_runtime_flush(runtime, nullptr, &last, stream);
  *seq = last.seq;
  return status;
}

} // namespace cgr_test

#endif // CGR_TESTS_SUPPORT_GETTERS_H

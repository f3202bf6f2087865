// An engine's own kernels that work row by row, for CUDA and for the host: a row's result depends only on that row, with a fixed
// order of operations, so its bits are the same in any batch.
#pragma once

#include "cgr/device.h"

namespace cgr_test {

// Dense [rows][width], bf16 or fp32.
struct RowTensor {
  void *data;
  int32_t width, dtype;
};

// q, k and v of a layer, a row per token: from the token and its position and, except in the first layer, from the token's
// attention output in the layer before.
struct RowInputs {
  const int32_t *input_ids, *positions;
  RowTensor before; // data NULL: the first layer
  RowTensor to[3];
  int32_t layer, num_tokens;
};

// Next tokens: where a request's row has its largest element.
struct RowSampler {
  RowTensor from;
  const int32_t *logits_indices;
  int32_t *next_tokens;
  int32_t num_requests, reserved;
};

// For `record`. `on_cuda`: with kernels; else with host functions.
cgr_status EnqueueInputs(cgr_device *device, bool on_cuda, const RowInputs &args, cudaStream_t stream);
cgr_status EnqueueSampler(cgr_device *device, bool on_cuda, const RowSampler &args, cudaStream_t stream);

} // namespace cgr_test

// The launchers of row_kernels.cu: a cudaError_t.
extern "C" {
int test_make_rows(const cgr_test::RowInputs *args, cudaStream_t stream);
int test_sample_rows(const cgr_test::RowSampler *args, cudaStream_t stream);
}

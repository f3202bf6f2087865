// What a model computes besides attention, for CUDA and the host: an operation works row by row, in an order that depends only on
// the row, accumulates in fp32 and rounds once, when it stores.
#pragma once

#include "tests/support/row_kernels.h"

namespace cgr_test {
namespace models {

enum class Kind : int32_t {
  kEmbed,      // weight[ids] * scale + bias + second[positions + offset]
  kLinear,     // in . weight + bias + residual; weight [out][in], or [in][out] if `transposed`, of the dtype of in
  kLayerNorm,  // (in - mean) / sqrt(variance + eps) * weight + bias + residual
  kRmsNorm,    // in / sqrt(mean square + eps) * (scale + weight) + residual
  kRope,       // of `heads` heads, by angles [positions][head_dim / 2] of cosine and sine; in place
  kGeluTanh,   // gelu(in), * second
  kGeluErf,    // the same
  kSilu,       // in * sigmoid(in), * second
  kCap,        // scale * tanh(in / scale)
  kClampedGlu, // (up + 1) * gate * sigmoid(scale * gate), of pairs (gate, up) clamped to `limit`
  kSoftmax,    // of a row
  kMix         // residual + second[offset] * in
};

// Tensors without data are left out.
struct Operation {
  Kind kind;
  RowTensor out, in, second, weight, bias, residual;
  const int32_t *ids, *positions;
  const float *angles;
  int32_t rows, heads, offset, transposed;
  float scale, limit, eps, reserved;
};

// Inside `record`. `on_cuda`: with kernels; otherwise with host functions.
cgr_status Enqueue(cgr_device *device, bool on_cuda, const Operation &operation, cudaStream_t stream);

} // namespace models
} // namespace cgr_test

// The launcher of operations.cu: a cudaError_t.
extern "C" int test_model_operation(const cgr_test::models::Operation *operation, cudaStream_t stream);

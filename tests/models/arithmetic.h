// What operations.h computes for one row, from one source for both devices.
#pragma once

#include <cmath>

#include "tests/models/operations.h"
#include "tests/support/row_arithmetic.h"

namespace cgr_test {
namespace models {

CGR_ROW_FN float Or(const RowTensor &tensor, int32_t row, int32_t e, float otherwise) {
  return tensor.data == nullptr ? otherwise : LoadRow(tensor, row, e);
}

CGR_ROW_FN void EmbedRow(const Operation &a, int32_t t, int32_t first, int32_t step) {
  for (int32_t e = first; e < a.out.width; e += step) {
    float value = LoadRow(a.weight, a.ids[t], e) * a.scale + Or(a.bias, 0, e, 0.0f);
    if (a.second.data != nullptr)
      value += LoadRow(a.second, a.positions[t] + a.offset, e);
    StoreRow(a.out, t, e, value);
  }
}

CGR_ROW_FN float Float(float value) { return value; }
CGR_ROW_FN float Float(uint16_t half) {
  const uint32_t bits = uint32_t{ half } << 16;
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

// Four independent sums, so that a processor does not wait for each product.
template <class T> CGR_ROW_FN float DotOf(const T *x, const T *weight, int32_t count, int32_t stride) {
  float sums[4] = {};
  for (int32_t k = 0; k < count; k++)
    sums[k & 3] += Float(x[k]) * Float(weight[int64_t{ k } * stride]);
  return sums[0] + sums[1] + (sums[2] + sums[3]);
}

CGR_ROW_FN float Dot(const Operation &a, int32_t t, int32_t e) {
  const int64_t x = int64_t{ t } * a.in.width, w = a.transposed != 0 ? int64_t{ e } : int64_t{ e } * a.weight.width;
  const int32_t stride = a.transposed != 0 ? a.weight.width : 1;
  if (a.in.dtype == CGR_DTYPE_FP32)
    return DotOf(static_cast<const float *>(a.in.data) + x, static_cast<const float *>(a.weight.data) + w, a.in.width, stride);
  return DotOf(static_cast<const uint16_t *>(a.in.data) + x, static_cast<const uint16_t *>(a.weight.data) + w, a.in.width,
               stride);
}

CGR_ROW_FN void LinearRow(const Operation &a, int32_t t, int32_t first, int32_t step) {
  for (int32_t e = first; e < a.out.width; e += step)
    StoreRow(a.out, t, e, Dot(a, t, e) + Or(a.bias, 0, e, 0.0f) + Or(a.residual, t, e, 0.0f));
}

CGR_ROW_FN void NormRow(const Operation &a, int32_t t, int32_t first, int32_t step) {
  const float n = static_cast<float>(a.in.width);
  float mean = 0.0f, square = 0.0f;
  for (int32_t e = 0; e < a.in.width && a.kind == Kind::kLayerNorm; e++)
    mean += LoadRow(a.in, t, e) / n;
  for (int32_t e = 0; e < a.in.width; e++) {
    const float apart = LoadRow(a.in, t, e) - mean;
    square += apart * apart / n;
  }
  const float by = 1.0f / sqrtf(square + a.eps);
  for (int32_t e = first; e < a.out.width; e += step) {
    const float value = (LoadRow(a.in, t, e) - mean) * by * (a.scale + LoadRow(a.weight, 0, e));
    StoreRow(a.out, t, e, value + Or(a.bias, 0, e, 0.0f) + Or(a.residual, t, e, 0.0f));
  }
}

CGR_ROW_FN void RopeRow(const Operation &a, int32_t t, int32_t first, int32_t step) {
  const int32_t dim = a.out.width / a.heads, half = dim / 2;
  const float *angles = a.angles + static_cast<int64_t>(a.positions[t]) * dim;
  for (int32_t i = first; i < a.heads * half; i += step) {
    const int32_t pair = i % half, low = i / half * dim + pair, high = low + half;
    const float x = LoadRow(a.out, t, low), y = LoadRow(a.out, t, high), cosine = angles[2 * pair], sine = angles[2 * pair + 1];
    StoreRow(a.out, t, low, x * cosine - y * sine);
    StoreRow(a.out, t, high, y * cosine + x * sine);
  }
}

CGR_ROW_FN float Activated(const Operation &a, float x) {
  if (a.kind == Kind::kCap)
    return a.scale * tanhf(x / a.scale);
  if (a.kind == Kind::kSilu)
    return x / (1.0f + expf(-x));
  if (a.kind == Kind::kGeluErf)
    return 0.5f * x * (1.0f + erff(x * 0.70710678f));
  return 0.5f * x * (1.0f + tanhf(0.79788456f * (x + 0.044715f * x * x * x)));
}

CGR_ROW_FN void ActivateRow(const Operation &a, int32_t t, int32_t first, int32_t step) {
  for (int32_t e = first; e < a.out.width; e += step)
    StoreRow(a.out, t, e, Activated(a, LoadRow(a.in, t, e)) * Or(a.second, t, e, 1.0f));
}

CGR_ROW_FN void ClampedGluRow(const Operation &a, int32_t t, int32_t first, int32_t step) {
  for (int32_t e = first; e < a.out.width; e += step) {
    const float gate = fminf(LoadRow(a.in, t, 2 * e), a.limit);
    const float up = fmaxf(fminf(LoadRow(a.in, t, 2 * e + 1), a.limit), -a.limit);
    StoreRow(a.out, t, e, (up + 1.0f) * gate / (1.0f + expf(-a.scale * gate)));
  }
}

CGR_ROW_FN void SoftmaxRow(const Operation &a, int32_t t, int32_t first, int32_t step) {
  float largest = LoadRow(a.in, t, 0), sum = 0.0f;
  for (int32_t e = 1; e < a.in.width; e++)
    largest = fmaxf(largest, LoadRow(a.in, t, e));
  for (int32_t e = 0; e < a.in.width; e++)
    sum += expf(LoadRow(a.in, t, e) - largest);
  for (int32_t e = first; e < a.out.width; e += step)
    StoreRow(a.out, t, e, expf(LoadRow(a.in, t, e) - largest) / sum);
}

CGR_ROW_FN void MixRow(const Operation &a, int32_t t, int32_t first, int32_t step) {
  const float by = LoadRow(a.second, t, a.offset);
  for (int32_t e = first; e < a.out.width; e += step)
    StoreRow(a.out, t, e, LoadRow(a.residual, t, e) + by * LoadRow(a.in, t, e));
}

// Elements first, first + step, ... of row `t`.
CGR_ROW_FN void OperateOnRow(const Operation &a, int32_t t, int32_t first, int32_t step) {
  switch (a.kind) {
  case Kind::kEmbed:
    return EmbedRow(a, t, first, step);
  case Kind::kLinear:
    return LinearRow(a, t, first, step);
  case Kind::kLayerNorm:
  case Kind::kRmsNorm:
    return NormRow(a, t, first, step);
  case Kind::kRope:
    return RopeRow(a, t, first, step);
  case Kind::kGeluTanh:
  case Kind::kGeluErf:
  case Kind::kSilu:
  case Kind::kCap:
    return ActivateRow(a, t, first, step);
  case Kind::kClampedGlu:
    return ClampedGluRow(a, t, first, step);
  case Kind::kSoftmax:
    return SoftmaxRow(a, t, first, step);
  case Kind::kMix:
    return MixRow(a, t, first, step);
  }
}

} // namespace models
} // namespace cgr_test

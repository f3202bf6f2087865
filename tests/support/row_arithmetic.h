// The arithmetic of row_kernels.h for a row, one source for both devices.
#pragma once

#include <cstring>

#include "tests/support/row_kernels.h"

#ifdef __CUDACC__
#define CGR_ROW_FN __host__ __device__ inline
#else
#define CGR_ROW_FN inline
#endif

namespace cgr_test {

CGR_ROW_FN float LoadRow(const RowTensor &tensor, int32_t row, int32_t e) {
  const int64_t at = int64_t{ row } * tensor.width + e;
  if (tensor.dtype == CGR_DTYPE_FP32)
    return static_cast<const float *>(tensor.data)[at];
  const uint32_t bits = uint32_t{ static_cast<const uint16_t *>(tensor.data)[at] } << 16;
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

// Rounds to nearest, ties to even; `value` is finite.
CGR_ROW_FN void StoreRow(const RowTensor &tensor, int32_t row, int32_t e, float value) {
  const int64_t at = int64_t{ row } * tensor.width + e;
  if (tensor.dtype == CGR_DTYPE_FP32) {
    static_cast<float *>(tensor.data)[at] = value;
    return;
  }
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  static_cast<uint16_t *>(tensor.data)[at] = static_cast<uint16_t>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

CGR_ROW_FN float LargestOf(const RowTensor &tensor, int32_t row) {
  float largest = 0.0f;
  for (int32_t e = 0; e < tensor.width; e++) {
    const float value = LoadRow(tensor, row, e), size = value < 0.0f ? -value : value;
    largest = size > largest ? size : largest;
  }
  return largest;
}

// Of what names an element: multiples of 1/64 in -1 .. 1.
CGR_ROW_FN float Embedded(int32_t token, int32_t position, int32_t tensor, int32_t e) {
  uint32_t x = static_cast<uint32_t>(token) * 0x9e3779b1u ^ static_cast<uint32_t>(position) * 0x85ebca77u ^
               static_cast<uint32_t>(tensor * 65536 + e) * 0xc2b2ae3du;
  x ^= x >> 15;
  x *= 0x2c1b3c6du;
  x ^= x >> 12;
  x *= 0x297a2d39u;
  x ^= x >> 15;
  return static_cast<float>(static_cast<int32_t>(x % 129u) - 64) / 64.0f;
}

// Elements first, first + step, ... of row `t` of q, k and v. Scaled by the row's largest element, which is small over a long
// context; the embedding is added so that the rows of a sequence stay different. q is larger, so that some keys count more than
// others.
CGR_ROW_FN void MakeRow(const RowInputs &a, int32_t t, int32_t first, int32_t step) {
  const int32_t token = a.input_ids[t], position = a.positions[t], width = a.before.width;
  const bool is_first = a.before.data == nullptr;
  const float largest = is_first ? 0.0f : LargestOf(a.before, t);
  const float scale = largest > 0.0f ? 0.5f / largest : 0.0f, weight = static_cast<float>(position % 8) / 8.0f;
  for (int32_t which = 0; which < 3; which++)
    for (int32_t e = first; e < a.to[which].width; e += step) {
      float value = Embedded(token, position, a.layer * 3 + which, e);
      if (!is_first) {
        const int32_t one = (e + 31 * which + 7 * position) % width, other = (one + 1 + position % 5) % width;
        const float mixed = weight * LoadRow(a.before, t, one) + (1.0f - weight) * LoadRow(a.before, t, other);
        value = 0.5f * value + scale * mixed;
      }
      StoreRow(a.to[which], t, e, which == 0 ? 4.0f * value : value);
    }
}

CGR_ROW_FN int32_t SampleRow(const RowSampler &a, int32_t request) {
  const int32_t row = a.logits_indices[request];
  int32_t token = 0;
  float best = LoadRow(a.from, row, 0);
  for (int32_t e = 1; e < a.from.width; e++) {
    const float value = LoadRow(a.from, row, e);
    if (value > best)
      best = value, token = e;
  }
  return token;
}

} // namespace cgr_test

// The q, k and v of tests: functions of a token's Entry, with values that every dtype holds exactly.
#pragma once

#include <cstdint>

namespace cgr_test {

enum Tensor { kQ, kK, kV };
constexpr Tensor kTensors[] = { kQ, kK, kV };

enum { kVocabulary = 61, kNothing = INT32_MIN };

// What names a token's values: (token, position) where host functions compute them, (number of the upload, token of the step)
// where they are uploaded. a = kNothing: zeros, as the read-trash page holds.
struct Entry {
  int32_t a = kNothing, b = 0;
};

// Element (h, d) as a number of 0 .. 128, 64 for zeros: few enough that every dtype's encoding of them can be kept.
inline int32_t ValueIndex(int32_t layer, Tensor which, const Entry &entry, int32_t h, int32_t d) {
  if (entry.a == kNothing)
    return 64;
  uint64_t x = uint64_t(entry.a) * 0x9e3779b97f4a7c15u + uint64_t(entry.b) * 0xbf58476d1ce4e5b9u +
               uint64_t(((layer * 3 + which) * 128 + h) * 1024 + d) * 0x94d049bb133111ebu;
  x ^= x >> 31;
  x *= 0xbf58476d1ce4e5b9u;
  x ^= x >> 29;
  x *= 0x94d049bb133111ebu;
  x ^= x >> 32;
  return int32_t(x % 129);
}
// The values: multiples of 1/64, of 1/16 for q.
inline double ValueAt(Tensor which, int32_t index) { return (index - 64) / (which == kQ ? 16.0 : 64.0); }
inline double ValueOf(int32_t layer, Tensor which, const Entry &entry, int32_t h, int32_t d) {
  return ValueAt(which, ValueIndex(layer, which, entry, h, d));
}

// The sampler's weight of an output element of a call.
inline double WeightOf(int32_t token, int32_t call, int32_t e) { return ValueOf(call, kV, { -7, token }, 1, e); }

// Elements (h, 0 .. head_dim - 1), and the same in a dtype.
void PutHead(int32_t layer, Tensor which, const Entry &entry, int32_t h, int32_t head_dim, double *to);
void StoreHead(int32_t dtype, int32_t layer, Tensor which, const Entry &entry, int32_t h, int32_t head_dim, void *to);

} // namespace cgr_test

// Weights and tokens by a formula that reference.py shares: both sides make equal models from names and shapes alone.
#pragma once

#include <cstdint>
#include <string>

namespace cgr_test {
namespace models {

// splitmix64 of FNV-1a(name) + index.
class Formula {
public:
  explicit Formula(const std::string &name) {
    for (unsigned char c : name)
      seed_ = (seed_ ^ c) * 0x100000001b3u;
  }
  uint64_t Word(uint64_t index) const {
    uint64_t z = (seed_ + index + 1) * 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  // A multiple of 1/64 in -1 .. 1. A scale that is a power of two, and a centre of 0 or twice the scale, keep it representable in
  // bf16.
  float Value(uint64_t index, float centre, float scale) const {
    return centre + scale * (static_cast<float>(Word(index) % 129) / 64.0f - 1.0f);
  }

private:
  uint64_t seed_ = 0xcbf29ce484222325u;
};

struct Range {
  float centre, scale;
};

// The power of two that keeps a sum of `fan_in` products about as large as the factors.
inline float ScaleOf(int32_t fan_in) {
  float scale = 1.0f;
  while (scale * scale * static_cast<float>(fan_in) > 4.0f)
    scale /= 2;
  return scale;
}

constexpr Range kBias = { 0.0f, 0.25f }, kNorm = { 1.0f, 0.5f };

} // namespace models
} // namespace cgr_test

// Angles of rotary embeddings.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "tests/models/kit.h"

namespace cgr_test {
namespace models {

inline std::vector<float> PlainFrequencies(int32_t dim, float theta) {
  std::vector<float> frequencies;
  for (int32_t i = 0; i < dim; i += 2)
    frequencies.push_back(1.0f / std::pow(theta, float(i) / float(dim)));
  return frequencies;
}

struct Yarn {
  float factor, beta_fast, beta_slow;
  int32_t positions; // the model's before it was extended
};

// Slow frequencies are divided by the factor, fast ones stay, those between are mixed; the bounds are where a frequency makes
// beta turns within the old positions.
inline std::vector<float> YarnFrequencies(int32_t dim, float theta, const Yarn &yarn) {
  std::vector<float> frequencies = PlainFrequencies(dim, theta);
  const auto border = [&](float turns) {
    return float(dim) * std::log(float(yarn.positions) / (turns * 2.0f * float(M_PI))) / (2.0f * std::log(theta));
  };
  const float low = std::max(border(yarn.beta_fast), 0.0f), high = std::min(border(yarn.beta_slow), float(dim - 1));
  for (size_t i = 0; i < frequencies.size(); i++) {
    const float slow = std::min(std::max((float(i) - low) / (high - low), 0.0f), 1.0f);
    frequencies[i] = frequencies[i] / yarn.factor * slow + frequencies[i] * (1.0f - slow);
  }
  return frequencies;
}

// What YaRN multiplies cosines and sines by.
inline float YarnScale(const Yarn &yarn) { return 0.1f * std::log(yarn.factor) + 1.0f; }

// [kMaxSeqLen][dim / 2] of cosine and sine.
inline const float *Angles(Kit &kit, int32_t dim, const std::vector<float> &frequencies, float scale) {
  std::vector<float> angles;
  for (int32_t position = 0; position < kMaxSeqLen; position++)
    for (int32_t i = 0; i < dim / 2; i++) {
      const float angle = float(position) * frequencies[size_t(i)];
      angles.push_back(std::cos(angle) * scale);
      angles.push_back(std::sin(angle) * scale);
    }
  return kit.Floats(angles);
}

} // namespace models
} // namespace cgr_test

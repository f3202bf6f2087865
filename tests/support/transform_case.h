// An engine whose attention calls transform q, k and v, and the arrays for that.
#pragma once

#include <cmath>
#include <vector>

#include "kernels/reference/reference.h"
#include "tests/support/refused.h"
#include "tests/support/seed.h"

namespace cgr_test {

// Biases, norms and angles for layers of these heads, in an engine's memory.
struct TransformArrays {
  cgr_qkv_transform transform = CGR_QKV_TRANSFORM_INIT;

  TransformArrays() = default;
  TransformArrays(Engine &engine, const LayerOptions &l, int32_t rotary_dim) {
    const int32_t positions = engine.o.max_seq_len;
    Random random(5);
    transform.q_bias = Elements(engine, l.num_q_heads * l.head_dim, random);
    transform.k_bias = Elements(engine, l.num_kv_heads * l.head_dim, random);
    transform.v_bias = Elements(engine, l.num_kv_heads * l.head_dim_v(), random);
    transform.q_norm = Elements(engine, l.head_dim, random);
    transform.k_norm = Elements(engine, l.head_dim, random);
    std::vector<float> angles;
    for (int32_t p = 0; p < positions; p++)
      for (int32_t i = 0; i < rotary_dim; i++) {
        const float angle = float(p) * std::pow(1000.0f, -2.0f * float(i % (rotary_dim / 2)) / float(rotary_dim));
        angles.push_back(i < rotary_dim / 2 ? std::cos(angle) : std::sin(angle));
      }
    float *cos_sin = static_cast<float *>(engine.Alloc(angles.size() * sizeof(float)));
    engine.Write(cos_sin, angles.data(), angles.size() * sizeof(float));
    transform.cos_sin = cos_sin, transform.num_positions = positions, transform.rotary_dim = rotary_dim;
  }
  std::vector<const void *> Addresses() const {
    return { transform.q_bias, transform.k_bias, transform.v_bias, transform.q_norm, transform.k_norm, transform.cos_sin };
  }

private:
  static void *Elements(Engine &engine, int32_t count, Random &random) {
    const size_t size = cgr_dtype_size(cgr_dtype(engine.o.dtype));
    std::vector<unsigned char> bytes(size_t(count) * size);
    for (size_t i = 0; i < size_t(count); i++)
      cgr__reference_store(engine.o.dtype, &bytes[i * size], double(random.Pick32(-512, 512)) / 256.0);
    void *memory = engine.Alloc(bytes.size());
    engine.Write(memory, bytes.data(), bytes.size());
    return memory;
  }
};

} // namespace cgr_test

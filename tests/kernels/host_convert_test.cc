// Conversions of the host kernels against arithmetic in fp64.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>

#define restrict __restrict__ /* the header is C */
#include "base/convert.h"
#undef restrict
#include "kernels/reference/reference.h"

namespace {

bool Same(double a, double b) { return std::isnan(a) ? std::isnan(b) : a == b && std::signbit(a) == std::signbit(b); }

TEST(HostConvert, EveryHalfToFloatAndBack) {
  for (uint32_t bits = 0; bits < 0x10000; bits++) {
    uint16_t half = static_cast<uint16_t>(bits);
    float bf16 = cgr__bf16_to_float(half), fp16 = cgr__fp16_to_float(half);
    ASSERT_TRUE(Same(bf16, cgr__reference_load(CGR_DTYPE_BF16, &half))) << bits;
    ASSERT_TRUE(Same(fp16, cgr__reference_load(CGR_DTYPE_FP16, &half))) << bits;
    uint16_t bf16_back = cgr__float_to_bf16(bf16), fp16_back = cgr__float_to_fp16(fp16);
    ASSERT_TRUE(std::isnan(bf16) ? std::isnan(cgr__bf16_to_float(bf16_back)) : bf16_back == half) << bits;
    ASSERT_TRUE(std::isnan(fp16) ? std::isnan(cgr__fp16_to_float(fp16_back)) : fp16_back == half) << bits;
  }
}

void CheckRounding(uint32_t bits) {
  float x;
  std::memcpy(&x, &bits, sizeof x);
  uint16_t bf16 = cgr__float_to_bf16(x), fp16 = cgr__float_to_fp16(x);
  ASSERT_TRUE(Same(cgr__reference_load(CGR_DTYPE_BF16, &bf16), cgr__reference_round(CGR_DTYPE_BF16, x))) << bits;
  ASSERT_TRUE(Same(cgr__reference_load(CGR_DTYPE_FP16, &fp16), cgr__reference_round(CGR_DTYPE_FP16, x))) << bits;
  uint16_t stored;
  cgr__reference_store(CGR_DTYPE_FP16, &stored, x);
  ASSERT_TRUE(std::isnan(x) || stored == fp16) << bits;
  cgr__reference_store(CGR_DTYPE_BF16, &stored, x);
  ASSERT_TRUE(std::isnan(x) || stored == bf16) << bits;
}

TEST(HostConvert, RoundsToNearestEven) {
  std::mt19937 random(1);
  for (int i = 0; i < 300000; i++)
    ASSERT_NO_FATAL_FAILURE(CheckRounding(static_cast<uint32_t>(random())));
  // Ties and their neighbours, in every binade.
  for (uint32_t high = 0; high < 0x10000; high += 3)
    for (uint32_t low : { 0u, 1u, 0x0fffu, 0x1000u, 0x1001u, 0x3000u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu })
      ASSERT_NO_FATAL_FAILURE(CheckRounding(high << 16 | low));
  for (uint32_t bits = 0x477fe000; bits < 0x47801000; bits += 16)
    ASSERT_NO_FATAL_FAILURE(CheckRounding(bits)); // 65504
}

} // namespace

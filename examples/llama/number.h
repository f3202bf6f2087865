/* bf16 and fp16 as numbers. */
#ifndef LLAMA_NUMBER_H
#define LLAMA_NUMBER_H

#include <stdint.h>
#include <string.h>

static inline float llama_float_of_bits(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof(value));
  return value;
}

static inline float llama_from_bf16(uint16_t bits) { return llama_float_of_bits((uint32_t)bits << 16); }

/* To nearest even; a NaN stays one. */
static inline uint16_t llama_to_bf16(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof(bits));
  uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  uint32_t nan = (bits >> 16) | 0x40u;
  return (uint16_t)((bits & 0x7fffffffu) > 0x7f800000u ? nan : rounded);
}

static inline float llama_from_fp16(uint16_t half) {
  uint32_t sign = (uint32_t)(half & 0x8000u) << 16, rest = (uint32_t)(half & 0x7fffu) << 13;
  if (rest >= 0x7c00u << 13) /* Inf and NaN */
    return llama_float_of_bits(sign | rest | 0x7f800000u);
  /* The exponent's bias differs by 112; multiplying sets it right for subnormal numbers too. */
  float magnitude = llama_float_of_bits(rest) * 0x1p112f;
  return sign ? -magnitude : magnitude;
}

#endif

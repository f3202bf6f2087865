/* bf16 and fp16 on a processor: to fp32 exactly, from fp32 rounded to nearest even; NaN stays NaN and infinities stay. The row
 * functions take lengths that are a multiple of CGR__VECTOR_ELEMENTS, so that compilers turn their inner loops into vectors. */
#ifndef CGR_BASE_CONVERT_H
#define CGR_BASE_CONVERT_H

#include <stdint.h>
#include <string.h>

#include "cgr/base.h"

#define CGR__VECTOR_ELEMENTS 8

static inline uint32_t cgr__float_bits(float x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  return bits;
}

static inline float cgr__bits_float(uint32_t bits) {
  float x;
  memcpy(&x, &bits, sizeof x);
  return x;
}

static inline float cgr__bf16_to_float(uint16_t x) { return cgr__bits_float((uint32_t)x << 16); }

static inline uint16_t cgr__float_to_bf16(float x) {
  uint32_t bits = cgr__float_bits(x);
  uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  uint32_t quiet = (bits >> 16) | 0x40u; /* rounding could carry a NaN into another number */
  return (uint16_t)((bits & 0x7fffffffu) > 0x7f800000u ? quiet : rounded);
}

static inline float cgr__fp16_to_float(uint16_t x) {
  uint32_t magnitude = (uint32_t)(x & 0x7fffu) << 13;
  uint32_t finite = cgr__float_bits(cgr__bits_float(magnitude) * 0x1p112f); /* moves the exponent's bias; exact */
  uint32_t special = magnitude | 0x7f800000u;
  uint32_t sign = (uint32_t)(x & 0x8000u) << 16;
  return cgr__bits_float(sign | (magnitude >= 0x0f800000u ? special : finite));
}

static inline uint16_t cgr__float_to_fp16(float x) {
  uint32_t bits = cgr__float_bits(x);
  uint16_t sign = (uint16_t)((bits >> 16) & 0x8000u);
  bits &= 0x7fffffffu;
  if (bits > 0x7f800000u)
    return (uint16_t)(sign | 0x7e00u);
  if (bits >= 0x47800000u) /* 2^16: above every rounding to 65504 */
    return (uint16_t)(sign | 0x7c00u);
  if (bits < 0x38800000u) { /* below 2^-14: adding 0.5 leaves the subnormal's bits, rounded by the processor */
    uint32_t shifted = cgr__float_bits(cgr__bits_float(bits) + 0.5f);
    return (uint16_t)(sign | (shifted - 0x3f000000u));
  }
  uint32_t odd = (bits >> 13) & 1u;
  return (uint16_t)(sign | ((bits - 0x38000000u + 0xfffu + odd) >> 13));
}

/* Bytes of an element of the dtypes that attention knows, those of its caches included; 0 for any other. */
static inline int64_t cgr__element_size(int32_t dtype) {
  if (dtype == CGR_DTYPE_FP32)
    return 4;
  if (dtype == CGR_DTYPE_FP8_E4M3 || dtype == CGR_DTYPE_FP8_E5M2 || dtype == CGR_DTYPE_I8)
    return 1;
  return dtype == CGR_DTYPE_BF16 || dtype == CGR_DTYPE_FP16 ? 2 : 0;
}

/* n elements of `dtype` to fp32. */
static inline void cgr__row_to_float(float *restrict to, const void *restrict from, int32_t dtype, int32_t n) {
  const uint16_t *half = (const uint16_t *)from;
  if (dtype == CGR_DTYPE_FP32) {
    memcpy(to, from, (size_t)n * sizeof *to);
  } else if (dtype == CGR_DTYPE_BF16) {
    for (int32_t i = 0; i < n; i += CGR__VECTOR_ELEMENTS)
      for (int32_t e = 0; e < CGR__VECTOR_ELEMENTS; e++)
        to[i + e] = cgr__bf16_to_float(half[i + e]);
  } else {
    for (int32_t i = 0; i < n; i += CGR__VECTOR_ELEMENTS)
      for (int32_t e = 0; e < CGR__VECTOR_ELEMENTS; e++)
        to[i + e] = cgr__fp16_to_float(half[i + e]);
  }
}

/* n fp32 values to `dtype`. */
static inline void cgr__row_from_float(void *restrict to, const float *restrict from, int32_t dtype, int32_t n) {
  uint16_t *half = (uint16_t *)to;
  if (dtype == CGR_DTYPE_FP32) {
    memcpy(to, from, (size_t)n * sizeof *from);
  } else if (dtype == CGR_DTYPE_BF16) {
    for (int32_t i = 0; i < n; i += CGR__VECTOR_ELEMENTS)
      for (int32_t e = 0; e < CGR__VECTOR_ELEMENTS; e++)
        half[i + e] = cgr__float_to_bf16(from[i + e]);
  } else {
    for (int32_t i = 0; i < n; i++)
      half[i] = cgr__float_to_fp16(from[i]);
  }
}

/* n values rounded to `dtype` and back, in place; any n. */
static inline void cgr__round_row(float *row, int32_t dtype, int32_t n) {
  if (dtype == CGR_DTYPE_BF16) {
    for (int32_t i = 0; i < n; i++)
      row[i] = cgr__bf16_to_float(cgr__float_to_bf16(row[i]));
  } else if (dtype == CGR_DTYPE_FP16) {
    for (int32_t i = 0; i < n; i++)
      row[i] = cgr__fp16_to_float(cgr__float_to_fp16(row[i]));
  }
}

#endif

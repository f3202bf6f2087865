/* What an element of 8 bits is, for caches that the append quantises: the element's value divided by its factor in fp32, rounded
 * to nearest, ties to even, and saturated to the largest finite value. It divides rather than multiplying by the inverse, as
 * vLLM's reshape_and_cache does (csrc/quantization/w8a8/fp8/nvidia/quant_utils.cuh), so that finite values get the same bytes.
 * FP8 formats are those of Micikevicius et al. 2022 (arXiv:2209.05433): e4m3 without infinities, up to 448, and e5m2, up to
 * 57344. A NaN of either sign becomes 0x7f, as in the GPU's own conversion. Integers are symmetric, -127 to 127, and have
 * no NaN: it becomes 0. */
#ifndef CGR_KERNELS_QUANTISE_H
#define CGR_KERNELS_QUANTISE_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "base/host_device.h"
#include "cgr/attention.h"

#define CGR__I8_MAX 127.0f

CGR__HOST_DEVICE int cgr__is_fp8(int32_t dtype) { return dtype == CGR_DTYPE_FP8_E4M3 || dtype == CGR_DTYPE_FP8_E5M2; }

CGR__HOST_DEVICE int cgr__is_quantised(int32_t dtype) { return cgr__is_fp8(dtype) || dtype == CGR_DTYPE_I8; }

/* Whether all elements of a KV head have one factor, which no step writes. */
CGR__HOST_DEVICE int cgr__scale_is_of_heads(const cgr_kv_view *view) {
  return view->scale_stride_page == 0 && view->scale_stride_token == 0 && view->scale_stride_d == 0;
}

/* Whether the factors of K's tokens, each KV head's own, are arranged as attention copies them: those of four tokens of a page at
 * a time, 16 bytes. */
CGR__HOST_DEVICE int cgr__scale_is_of_tokens(const cgr_kv_view *k, int32_t num_kv_heads) {
  return (k->scale_stride_head != 0 || num_kv_heads == 1) && k->scale_stride_page != 0 && k->scale_stride_token == 1 &&
         k->scale_stride_d == 0 && k->scale_stride_page % 4 == 0 && k->scale_stride_head % 4 == 0 &&
         (uintptr_t)k->scale % 16 == 0;
}

/* Whether attention over codes takes the view's factors. It multiplies whole sums by them: those of K's tokens, of V's channels,
 * or of a KV head. Only i8 needs factors, and only in i8 does the append write any. */
CGR__HOST_DEVICE int cgr__scale_is_native(const cgr_kv_view *view, int is_v, int32_t num_kv_heads) {
  if (view->scale == NULL)
    return cgr__is_fp8(view->dtype);
  if (is_v)
    return view->scale_stride_page == 0 && view->scale_stride_token == 0;
  return cgr__scale_is_of_heads(view) || (view->dtype == CGR_DTYPE_I8 && cgr__scale_is_of_tokens(view, num_kv_heads));
}

/* Whether each token of the cache has factors of its own. Then the append finds and writes them (cgr_kv_view); otherwise the
 * engine gives them, and no step writes them. */
CGR__HOST_DEVICE int cgr__scales_are_written(const cgr_kv_view *view) {
  return view->scale != NULL && (view->scale_stride_page != 0 || view->scale_stride_token != 0);
}

/* The factors of a view in which each page, token and head has one of its own: as a cache of fp32, one element to a head. `base`
 * is NULL when they are arranged otherwise, or there are none. */
CGR__HOST_DEVICE cgr_kv_view cgr__factors_of_tokens(const cgr_kv_view *view, int32_t num_kv_heads) {
  cgr_kv_view factors;
  bool is_head = view->scale_stride_head != 0 || num_kv_heads == 1;
  bool is_token = view->scale_stride_page != 0 && view->scale_stride_token != 0 && view->scale_stride_d == 0;
  factors.base = is_head && is_token ? view->scale : NULL;
  factors.dtype = CGR_DTYPE_FP32;
  factors.reserved = 0;
  factors.stride_page = view->scale_stride_page;
  factors.stride_token = view->scale_stride_token;
  factors.stride_head = view->scale_stride_head;
  factors.scale = NULL;
  factors.scale_stride_page = factors.scale_stride_token = factors.scale_stride_head = factors.scale_stride_d = 0;
  return factors;
}

/* The larger of two magnitudes; a NaN does not count. */
CGR__HOST_DEVICE float cgr__larger_magnitude(float most, float x) {
  const float size = x < 0.0f ? -x : x;
  return size > most ? size : most;
}

/* v rounded to an integer, ties to even, for magnitudes below 2^22: the processor rounds when 1.5 * 2^23 is added. */
CGR__HOST_DEVICE float cgr__round_to_even(float v) { return (v + 12582912.0f) - 12582912.0f; }

/* The code of x in a format of 1 sign bit, then an exponent of this bias, then `mantissa` bits; `most` is the largest code. */
CGR__HOST_DEVICE uint8_t cgr__fp8_code(float x, int32_t mantissa, int32_t bias, uint32_t most) {
  uint32_t bits, code, scale_bits = (uint32_t)(127 + bias - 1 + mantissa) << 23;
  float magnitude, scale;
  memcpy(&bits, &x, sizeof bits);
  memcpy(&scale, &scale_bits, sizeof scale); /* 1 over the smallest subnormal */
  uint32_t sign = bits >> 24 & 0x80u, shift = (uint32_t)(23 - mantissa);
  bits &= 0x7fffffffu;
  if (bits > 0x7f800000u)
    return 0x7f;
  memcpy(&magnitude, &bits, sizeof magnitude);
  if (bits < (uint32_t)(128 - bias) << 23) /* subnormal: the code is a multiple of the smallest one */
    code = (uint32_t)cgr__round_to_even(magnitude * scale);
  else
    code = ((bits + ((1u << (shift - 1)) - 1) + (bits >> shift & 1u)) >> shift) - ((uint32_t)(127 - bias) << mantissa);
  return (uint8_t)(sign | (code < most ? code : most));
}

/* The value of a code, exactly: the inverse of cgr__fp8_code. With 3 bits of mantissa the format has no infinities, and NaN only
 * where all bits but the sign are set; with 2 it has both as IEEE formats do. */
CGR__HOST_DEVICE float cgr__fp8_value(uint8_t code, int32_t mantissa, int32_t bias) {
  const uint32_t magnitude = code & 0x7fu, shift = (uint32_t)(23 - mantissa), normal = 1u << mantissa;
  const uint32_t special = mantissa == 3 ? 0x7fu : 0x7cu; /* this and larger ones are no finite numbers */
  const uint32_t step_bits = (uint32_t)(128 - bias - mantissa) << 23;
  uint32_t bits = (magnitude << shift) + ((uint32_t)(127 - bias) << 23);
  float value, step; /* step: the smallest subnormal */
  memcpy(&step, &step_bits, sizeof step);
  value = (float)magnitude * step;
  if (magnitude >= normal)
    memcpy(&value, &bits, sizeof value);
  if (magnitude >= special) {
    bits = magnitude == 0x7cu ? 0x7f800000u : 0x7fc00000u;
    memcpy(&value, &bits, sizeof value);
  }
  return code & 0x80u ? -value : value;
}

/* The value of a code, without its factor: the inverse of cgr__quantise with the factor 1. */
CGR__HOST_DEVICE float cgr__code_value(uint8_t code, int32_t dtype) {
  if (dtype == CGR_DTYPE_I8)
    return (float)(int8_t)code;
  return dtype == CGR_DTYPE_FP8_E4M3 ? cgr__fp8_value(code, 3, 7) : cgr__fp8_value(code, 2, 15);
}

CGR__HOST_DEVICE uint8_t cgr__i8_code(float x) {
  float most = x > CGR__I8_MAX ? CGR__I8_MAX : x, v = most < -CGR__I8_MAX ? -CGR__I8_MAX : most;
  return v == v ? (uint8_t)(int8_t)cgr__round_to_even(v) : 0;
}

CGR__HOST_DEVICE uint8_t cgr__value_code(float x, int32_t dtype) {
  if (dtype == CGR_DTYPE_I8)
    return cgr__i8_code(x);
  return dtype == CGR_DTYPE_FP8_E4M3 ? cgr__fp8_code(x, 3, 7, 0x7eu) : cgr__fp8_code(x, 2, 15, 0x7bu);
}

/* The code of x / scale. In i8 an all-zero head has the factor 0 and codes 0; in fp8 0 / 0 is NaN. */
CGR__HOST_DEVICE uint8_t cgr__quantise(float x, float scale, int32_t dtype) { return cgr__value_code(x / scale, dtype); }

/* Where the factor of (page, token, head, d) is. */
CGR__HOST_DEVICE float *cgr__scale_at(const cgr_kv_view *view, int64_t page, int32_t token, int32_t head, int32_t d) {
  return view->scale + page * view->scale_stride_page + token * view->scale_stride_token + head * view->scale_stride_head +
         d * view->scale_stride_d;
}

#endif

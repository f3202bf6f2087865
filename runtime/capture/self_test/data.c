/* Data for the engine's staged buffers, drawn from the ranges that the caller gives. */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/convert.h"
#include "cgr/names.h"
#include "runtime/capture/self_test/self_test.h"

/* --------------------------------------------------------------------------------------------------------------- numbers */

/* What a dtype holds: every number from -most to most, or every whole number from least to most. */
typedef struct limits {
  bool whole;
  double least, most;
} limits;

static limits limits_of(int32_t dtype) {
  switch (dtype) {
  case CGR_DTYPE_I8:
    return (limits){ true, INT8_MIN, INT8_MAX };
  case CGR_DTYPE_U8:
    return (limits){ true, 0, UINT8_MAX };
  case CGR_DTYPE_I32:
    return (limits){ true, INT32_MIN, INT32_MAX };
  case CGR_DTYPE_I64: /* as far as a double is exact */
    return (limits){ true, -0x1p53, 0x1p53 };
  case CGR_DTYPE_FP16:
    return (limits){ false, -65504.0, 65504.0 };
  case CGR_DTYPE_BF16:
    return (limits){ false, -0x1.fep127, 0x1.fep127 };
  case CGR_DTYPE_FP8_E4M3:
    return (limits){ false, -448.0, 448.0 };
  case CGR_DTYPE_FP8_E5M2:
    return (limits){ false, -57344.0, 57344.0 };
  default:
    return (limits){ false, -(double)FLT_MAX, (double)FLT_MAX };
  }
}

/* The value of eight bits without their sign. Exponents are biased by 2^(bits - 1) - 1. */
static double value_of_fp8(int32_t magnitude, int mantissa_bits) {
  int32_t exponent = magnitude >> mantissa_bits, mantissa = magnitude & ((1 << mantissa_bits) - 1);
  int bias = (1 << (6 - mantissa_bits)) - 1;
  if (exponent > 0)
    mantissa += 1 << mantissa_bits;
  return ldexp(mantissa, (exponent > 0 ? exponent : 1) - bias - mantissa_bits);
}

/* The nearest finite one. */
static uint8_t to_fp8(double x, int32_t dtype) {
  int mantissa_bits = dtype == CGR_DTYPE_FP8_E4M3 ? 3 : 2;
  int32_t largest = dtype == CGR_DTYPE_FP8_E4M3 ? 0x7e : 0x7b, nearest = 0;
  for (int32_t m = 1; m <= largest; m++)
    if (fabs(value_of_fp8(m, mantissa_bits) - fabs(x)) < fabs(value_of_fp8(nearest, mantissa_bits) - fabs(x)))
      nearest = m;
  return (uint8_t)(nearest | (x < 0 ? 0x80 : 0));
}

static void store_element(void *to, double x, int32_t dtype) {
  switch (dtype) {
  case CGR_DTYPE_I8:
  case CGR_DTYPE_U8:
    *(uint8_t *)to = (uint8_t)(int32_t)x;
    return;
  case CGR_DTYPE_I32:
    *(int32_t *)to = (int32_t)x;
    return;
  case CGR_DTYPE_I64:
    *(int64_t *)to = (int64_t)x;
    return;
  case CGR_DTYPE_FP16:
    *(uint16_t *)to = cgr__float_to_fp16((float)x);
    return;
  case CGR_DTYPE_BF16:
    *(uint16_t *)to = cgr__float_to_bf16((float)x);
    return;
  case CGR_DTYPE_FP8_E4M3:
  case CGR_DTYPE_FP8_E5M2:
    *(uint8_t *)to = to_fp8(x, dtype);
    return;
  default:
    *(float *)to = (float)x;
  }
}

/* `count` elements for what `seed` names. */
static void draw_elements(const cgr_staged_range *range, int32_t dtype, uint64_t seed, int64_t count, unsigned char *to) {
  size_t size = cgr_dtype_size((cgr_dtype)dtype);
  bool whole = limits_of(dtype).whole;
  uint64_t numbers = whole ? (uint64_t)(range->high - range->low) + 1 : 0;
  for (int64_t e = 0; e < count; e++) {
    uint64_t bits = cgr__pages_mix(seed + (uint64_t)e);
    double part = (double)(bits >> 11) * 0x1p-53; /* 0 .. 1 */
    double x = whole ? range->low + (double)(bits % numbers) : range->low * (1.0 - part) + range->high * part;
    store_element(to + (size_t)e * size, x, dtype);
  }
}

/* ---------------------------------------------------------------------------------------------------------------- checks */

static cgr_status check_bound(const char *which, double bound, int32_t i, const cgr__declared *d) {
  limits l = limits_of(d->dtype);
  if (bound >= l.least && bound <= l.most && (!l.whole || bound == floor(bound)))
    return CGR_OK;
  return cgr__fail(CGR_ERROR_INVALID_ARGUMENT,
                   "cgr_runtime_self_test: staged[%d].%s is %.17g for buffer %s (%s), expected %s%.17g .. %.17g", i, which, bound,
                   d->name, cgr_dtype_name((cgr_dtype)d->dtype), l.whole ? "a whole number in " : "", l.least, l.most);
}

static cgr_status check_staged_range(const cgr_runtime *rt, const cgr_staged_range *range, int32_t i, uint64_t before) {
  if (range->buffer < 0 || range->buffer >= rt->setup.config.num_buffers)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT,
                     "cgr_runtime_self_test: staged[%d].buffer is %d, expected the index of a declared buffer (num_buffers is "
                     "%d)",
                     i, range->buffer, rt->setup.config.num_buffers);
  const cgr__declared *d = &rt->layout.declared[range->buffer];
  if (d->source != CGR_SOURCE_STAGED)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT,
                     "cgr_runtime_self_test: staged[%d].buffer is %d (%s), which is written by the device, expected one that was "
                     "declared with CGR_SOURCE_STAGED",
                     i, range->buffer, d->name);
  if (before >> range->buffer & 1)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT,
                     "cgr_runtime_self_test: staged[%d].buffer is %d (%s) again, expected each buffer once", i, range->buffer,
                     d->name);
  CGR__TRY(cgr__check_unused("cgr_runtime_self_test: staged.reserved", range->reserved));
  CGR__TRY(check_bound("low", range->low, i, d));
  CGR__TRY(check_bound("high", range->high, i, d));
  if (range->low > range->high)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT,
                     "cgr_runtime_self_test: staged[%d].low is %.17g for buffer %s, expected at most high (%.17g)", i, range->low,
                     d->name, range->high);
  return CGR_OK;
}

cgr_status cgr__test_check_data(const cgr_runtime *rt, const cgr_self_test *given) {
  uint64_t named = 0;
  if (given->num_staged < 0 || given->num_staged > CGR__MAX_DECLARED)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "cgr_runtime_self_test: num_staged is %d, expected 0 .. %d", given->num_staged,
                     CGR__MAX_DECLARED);
  if (given->num_staged > 0 && !given->staged)
    return cgr__fail(CGR_ERROR_NULL_POINTER, "cgr_runtime_self_test: staged is NULL, expected %d range%s", given->num_staged,
                     cgr__plural(given->num_staged));
  for (int32_t i = 0; i < given->num_staged; i++) {
    CGR__TRY(check_staged_range(rt, &given->staged[i], i, named));
    named |= (uint64_t)1 << given->staged[i].buffer;
  }
  return CGR_OK;
}

void cgr__test_tell_unvaried(const cgr__self_test *t) {
  const cgr_config *c = &t->rt->setup.config;
  uint64_t varied = 0;
  char text[400] =
      "cgr_runtime_self_test: staged buffers held their padding, for want of a range (cgr_self_test.staged), so what "
      "depends on them was not tested: ";
  size_t begin = strlen(text), length = begin;
  for (int32_t i = 0; i < t->given.num_staged; i++)
    varied |= (uint64_t)1 << t->given.staged[i].buffer;
  for (int32_t b = 0; b < c->num_buffers && length + 40 < sizeof text; b++)
    if (t->rt->layout.declared[b].source == CGR_SOURCE_STAGED && !(varied >> b & 1))
      length += (size_t)snprintf(text + length, sizeof text - length, "%s%s", length > begin ? ", " : "",
                                 t->rt->layout.declared[b].name);
  if (length > begin)
    cgr__log(t->rt, CGR_LOG_WARNING, text);
}

/* --------------------------------------------------------------------------------------------------------------- filling */

static size_t declared_bytes(const cgr__self_test *t, const cgr__declared *d) {
  const cgr_config *c = &t->rt->setup.config;
  int64_t count = d->dimension == CGR_DIMENSION_TOKENS     ? c->max_tokens
                  : d->dimension == CGR_DIMENSION_REQUESTS ? c->max_requests
                                                           : 1;
  return (size_t)(count * cgr__declared_bytes(d) + 7) / 8 * 8;
}

size_t cgr__test_data_bytes(const cgr__self_test *t) {
  size_t bytes = 0;
  for (int32_t i = 0; i < t->given.num_staged; i++)
    bytes += declared_bytes(t, &t->rt->layout.declared[t->given.staged[i].buffer]);
  return bytes;
}

/* Every request, or every buffer of it, has numbers of its own. */
static uint64_t seed_for(uint64_t seed, int32_t buffer) { return cgr__pages_mix(seed ^ (uint64_t)(buffer + 1) << 48); }

static void fill_range(const cgr__self_test *t, const cgr_staged_range *range, const cgr__declared *d, unsigned char *to) {
  const cgr__test_batch *b = &t->batch;
  for (int32_t i = 0; i < b->num_requests; i++) {
    int64_t items = d->dimension == CGR_DIMENSION_TOKENS ? b->lens[i] : 1;
    draw_elements(range, d->dtype, seed_for(b->seeds[i], range->buffer), items * d->width, to);
    to += items * cgr__declared_bytes(d);
  }
}

int32_t cgr__test_batch_data(cgr__self_test *t, cgr_staged staged[]) {
  unsigned char *at = t->data;
  int32_t count = 0;
  for (int32_t i = 0; i < t->given.num_staged; i++) {
    const cgr_staged_range *range = &t->given.staged[i];
    const cgr__declared *d = &t->rt->layout.declared[range->buffer];
    if (d->dimension == CGR_DIMENSION_ROWS)
      continue;
    fill_range(t, range, d, at);
    staged[count++] = (cgr_staged){ range->buffer, 0, at };
    at += declared_bytes(t, d);
  }
  return count;
}

cgr_status cgr__test_set_row_data(cgr__self_test *t, int32_t row, uint64_t seed) {
  for (int32_t i = 0; i < t->given.num_staged; i++) {
    const cgr_staged_range *range = &t->given.staged[i];
    const cgr__declared *d = &t->rt->layout.declared[range->buffer];
    if (d->dimension != CGR_DIMENSION_ROWS)
      continue;
    draw_elements(range, d->dtype, seed_for(seed, range->buffer), d->width, t->data);
    CGR__TRY(cgr_request_set_data(t->rt, row, range->buffer, t->data));
  }
  return CGR_OK;
}

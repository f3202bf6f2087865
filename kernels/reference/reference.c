#include "kernels/reference/reference.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* A dtype of 8 or 16 bits: a sign, an exponent, `mantissa` bits. */
typedef struct small_format {
  int bits, mantissa, exponent_mask, bias;
} small_format;

static small_format small_format_of(int32_t dtype) {
  switch (dtype) {
  case CGR_DTYPE_FP8_E4M3:
    return (small_format){ 8, 3, 0xf, 7 };
  case CGR_DTYPE_FP8_E5M2:
    return (small_format){ 8, 2, 0x1f, 15 };
  case CGR_DTYPE_FP16:
    return (small_format){ 16, 10, 0x1f, 15 };
  default:
    return (small_format){ 16, 7, 0xff, 127 };
  }
}

/* The largest finite value of a dtype that saturates; 0 for one that has infinities for what is larger. */
static double saturation_of(int32_t dtype) {
  return dtype == CGR_DTYPE_FP8_E4M3 ? 448.0 : dtype == CGR_DTYPE_FP8_E5M2 ? 57344.0 : 0.0;
}

/* Significant bits, and the exponents (as of frexp) of the smallest normal number and of the largest. */
static void format_of(int32_t dtype, int *digits, int *min_exponent, int *max_exponent) {
  const small_format f = small_format_of(dtype);
  *digits = dtype == CGR_DTYPE_FP32 ? 24 : f.mantissa + 1;
  *min_exponent = dtype == CGR_DTYPE_FP32 ? -125 : 2 - f.bias;
  *max_exponent = dtype == CGR_DTYPE_FP32 ? 128 : dtype == CGR_DTYPE_FP8_E4M3 ? 9 : f.bias + 1;
}

/* frexp and ldexp take most of a test's time when each element calls them; a double's exponent is in its bits.
 * |x| is in [2^(exponent - 1), 2^exponent); a subnormal double gets an exponent that is below all of a dtype's. */
static int exponent_of(double x) {
  uint64_t bits;
  memcpy(&bits, &x, sizeof bits);
  return (int)(bits >> 52 & 0x7ff) - 1022;
}

/* 2^exponent, -1022 to 1023. */
static double power_of_two(int exponent) {
  uint64_t bits = (uint64_t)(exponent + 1023) << 52;
  double power;
  memcpy(&power, &bits, sizeof power);
  return power;
}

double cgr__reference_round(int32_t dtype, double x) {
  int digits, min_exponent, max_exponent;
  const double largest = saturation_of(dtype);
  if (dtype == CGR_DTYPE_I8)
    return isnan(x) ? 0.0 : fabs(x) > 127.0 ? copysign(127.0, x) : nearbyint(x);
  if (largest > 0.0 && fabs(x) > largest)
    return copysign(largest, x);
  if (x == 0.0 || isnan(x) || isinf(x))
    return x;
  format_of(dtype, &digits, &min_exponent, &max_exponent);
  int exponent = exponent_of(x) < min_exponent ? min_exponent : exponent_of(x);
  if (exponent > max_exponent)
    return copysign(INFINITY, x);
  /* The last place of this number is the unit of the result, so the processor rounds the sum: to nearest, ties to even. */
  double aligned = power_of_two(exponent - digits + 52);
  double rounded = (fabs(x) + aligned) - aligned;
  return copysign(rounded >= power_of_two(max_exponent) ? INFINITY : rounded, x);
}

double cgr__reference_load(int32_t dtype, const void *element) {
  if (dtype == CGR_DTYPE_FP32) {
    float x;
    memcpy(&x, element, sizeof x);
    return x;
  }
  if (dtype == CGR_DTYPE_I8)
    return *(const int8_t *)element;
  const small_format f = small_format_of(dtype);
  uint16_t bits = 0;
  if (f.bits == 8)
    bits = *(const uint8_t *)element;
  else
    memcpy(&bits, element, sizeof bits);
  int mantissa = bits & ((1 << f.mantissa) - 1), exponent = (bits >> f.mantissa) & f.exponent_mask;
  double magnitude;
  if (dtype == CGR_DTYPE_FP8_E4M3 ? (bits & 0x7f) == 0x7f : exponent == f.exponent_mask)
    magnitude = mantissa ? NAN : INFINITY;
  else if (exponent == 0)
    magnitude = mantissa * power_of_two(1 - f.bias - f.mantissa);
  else
    magnitude = (mantissa + (1 << f.mantissa)) * power_of_two(exponent - f.bias - f.mantissa);
  return bits >> (f.bits - 1) ? -magnitude : magnitude;
}

static uint16_t encode_small(int32_t dtype, double x) {
  const small_format f = small_format_of(dtype);
  int sign = signbit(x) ? 1 << (f.bits - 1) : 0;
  if (isnan(x))
    return f.bits == 8 ? 0x7f : (uint16_t)(sign | f.exponent_mask << f.mantissa | 1 << (f.mantissa - 1));
  double magnitude = fabs(cgr__reference_round(dtype, x));
  if (isinf(magnitude))
    return (uint16_t)(sign | f.exponent_mask << f.mantissa);
  int exponent = exponent_of(magnitude);
  int field = exponent - 1 + f.bias; /* of a normal number */
  if (magnitude == 0.0 || field < 1)
    return (uint16_t)(sign | (int)(magnitude * power_of_two(f.bias - 1 + f.mantissa)));
  int mantissa = (int)(magnitude * power_of_two(f.mantissa - (exponent - 1))) - (1 << f.mantissa);
  return (uint16_t)(sign | field << f.mantissa | mantissa);
}

void cgr__reference_store(int32_t dtype, void *element, double x) {
  if (dtype == CGR_DTYPE_FP32) {
    float value = (float)x;
    memcpy(element, &value, sizeof value);
    return;
  }
  if (dtype == CGR_DTYPE_I8) {
    *(int8_t *)element = (int8_t)cgr__reference_round(dtype, x);
    return;
  }
  uint16_t bits = encode_small(dtype, x);
  if (small_format_of(dtype).bits == 8)
    *(uint8_t *)element = (uint8_t)bits;
  else
    memcpy(element, &bits, sizeof bits);
}

/* Where the line of new token j, query head h is, and what it sees. */
typedef struct reference_row {
  const double *q;
  int64_t at; /* index of (j, h) */
  int32_t kv_head, head;
  int64_t position;
  int64_t begin, end; /* tokens it sees */
} reference_row;

static reference_row row_of(const cgr__reference_shape *shape, const double *q, int32_t j, int32_t h) {
  reference_row row;
  row.at = (int64_t)j * shape->num_q_heads + h;
  row.q = q + row.at * shape->head_dim;
  row.head = h;
  row.kv_head = h / (shape->num_q_heads / shape->num_kv_heads);
  row.position = (int64_t)shape->seq_len - shape->query_len + j;
  row.begin = 0;
  row.end = shape->seq_len;
  if (shape->apart)
    return row;
  if (shape->causal)
    row.end = row.position + 1;
  else if (shape->window_right > 0 && row.position + 1 + shape->window_right < row.end)
    row.end = row.position + 1 + shape->window_right;
  if (shape->window_left > 0 && row.position + 1 > shape->window_left)
    row.begin = row.position + 1 - shape->window_left;
  while (shape->chunk > 0 && row.begin + shape->chunk <= row.position)
    row.begin += shape->chunk;
  return row;
}

/* Tokens of keys that are side by side in memory, and elements that loops take at once: a number that compilers know, so that
 * they use vectors. Each sum stays in its order. */
enum { SIDE = 8 };

/* One KV head in memory, in fp64 or in fp32: keys as [seq_len / SIDE][head_dim][SIDE], zeros after the last, values as
 * [seq_len][head_dim_v], and room for the scores and the sum of one row. */
typedef struct reference_head {
  void *keys, *values, *scores, *out;
} reference_head;

static int64_t padded_len(const cgr__reference_shape *shape) { return ((int64_t)shape->seq_len + SIDE - 1) / SIDE * SIDE; }

static int64_t key_at(const cgr__reference_shape *shape, int64_t token, int32_t d) {
  return (token / SIDE * shape->head_dim + d) * SIDE + token % SIDE;
}

static void *room_for(int64_t count, size_t size) { return calloc((size_t)count + 1, size); }

/* Without memory nothing that is compared with this passes. */
static void fill_with_nan(const cgr__reference_shape *shape, double *out, double *lse) {
  int64_t rows = (int64_t)shape->query_len * shape->num_q_heads;
  for (int64_t i = 0; i < rows * shape->head_dim_v; i++)
    out[i] = NAN;
  for (int64_t i = 0; i < rows && lse; i++)
    lse[i] = NAN;
}

static void put_value(void *to, int64_t at, double value, size_t size) {
  if (size == sizeof(double))
    ((double *)to)[at] = value;
  else
    ((float *)to)[at] = (float)value;
}

static void put_head(const cgr__reference_shape *shape, int32_t head, const double *k, const double *v, const reference_head *to,
                     size_t size) {
  for (int64_t t = 0; t < shape->seq_len; t++) {
    const int64_t at = t * shape->num_kv_heads + head;
    for (int32_t d = 0; d < shape->head_dim; d++)
      put_value(to->keys, key_at(shape, t, d), k[at * shape->head_dim + d], size);
    for (int32_t d = 0; d < shape->head_dim_v; d++)
      put_value(to->values, t * shape->head_dim_v + d, v[at * shape->head_dim_v + d], size);
  }
}

/* The products of a row with SIDE keys. */
static void dots_fp64(const double *restrict q, const double *restrict keys, int32_t n, double *restrict dots) {
  double sums[SIDE] = { 0.0 };
  for (int32_t d = 0; d < n; d++)
    for (int i = 0; i < SIDE; i++)
      sums[i] += q[d] * keys[d * SIDE + i];
  memcpy(dots, sums, sizeof sums);
}

static void dots_fp32(const double *restrict q, const float *restrict keys, int32_t n, float *restrict dots) {
  float sums[SIDE] = { 0.0f };
  for (int32_t d = 0; d < n; d++) {
    const float x = (float)q[d];
    for (int i = 0; i < SIDE; i++)
      sums[i] += x * keys[d * SIDE + i];
  }
  memcpy(dots, sums, sizeof sums);
}

/* out += p * values. */
static void add_fp64(double *restrict out, double p, const double *restrict values, int32_t n) {
  int32_t d = 0;
  for (; d + SIDE <= n; d += SIDE)
    for (int i = 0; i < SIDE; i++)
      out[d + i] += p * values[d + i];
  for (; d < n; d++)
    out[d] += p * values[d];
}

static void add_fp32(float *restrict out, float p, const float *restrict values, int32_t n) {
  int32_t d = 0;
  for (; d + SIDE <= n; d += SIDE)
    for (int i = 0; i < SIDE; i++)
      out[d + i] += p * values[d + i];
  for (; d < n; d++)
    out[d] += p * values[d];
}

static double score_fp64(const cgr__reference_shape *shape, const reference_row *row, int64_t t, double product) {
  double score = product * shape->scale;
  if (shape->softcap > 0.0)
    score = shape->softcap * tanh(score / shape->softcap);
  if (shape->alibi_slopes) {
    double distance = fabs((double)(row->position - t));
    score -= shape->alibi_slopes[row->head] * (shape->alibi_sqrt ? sqrt(distance) : distance);
  }
  return score;
}

static void attend_row_fp64(int32_t dtype, const cgr__reference_shape *shape, const reference_row *row, const reference_head *kv,
                            double *out, double *lse) {
  const double *keys = kv->keys, *values = kv->values;
  double *scores = kv->scores, max = -INFINITY, sum = 0.0;
  (void)dtype;
  for (int32_t d = 0; d < shape->head_dim_v; d++)
    out[d] = 0.0;
  *lse = -INFINITY;
  if (row->begin >= row->end)
    return;
  for (int64_t t = row->begin / SIDE * SIDE; t < row->end; t += SIDE)
    dots_fp64(row->q, keys + t * shape->head_dim, shape->head_dim, scores + t);
  for (int64_t t = row->begin; t < row->end; t++) {
    scores[t] = score_fp64(shape, row, t, scores[t]);
    max = fmax(max, scores[t]);
  }
  if (shape->sinks)
    max = fmax(max, shape->sinks[row->head]);
  for (int64_t t = row->begin; t < row->end; t++) {
    double p = exp(scores[t] - max);
    sum += p;
    add_fp64(out, p, values + t * shape->head_dim_v, shape->head_dim_v);
  }
  if (shape->sinks)
    sum += exp(shape->sinks[row->head] - max);
  for (int32_t d = 0; d < shape->head_dim_v; d++)
    out[d] /= sum;
  *lse = max + log(sum);
}

static float score_fp32(const cgr__reference_shape *shape, const reference_row *row, int64_t t, float product) {
  float score = product * (float)shape->scale;
  if (shape->softcap > 0.0)
    score = (float)shape->softcap * tanhf(score / (float)shape->softcap);
  if (shape->alibi_slopes) {
    float distance = fabsf((float)(row->position - t));
    score -= shape->alibi_slopes[row->head] * (shape->alibi_sqrt ? sqrtf(distance) : distance);
  }
  return score;
}

/* out is rounded to `dtype`, and so is P if the shape has no other dtype for it. */
static void attend_row_fp32(int32_t dtype, const cgr__reference_shape *shape, const reference_row *row, const reference_head *kv,
                            double *out, double *lse) {
  const float *keys = kv->keys, *values = kv->values;
  float *scores = kv->scores, *sums = kv->out, max = -INFINITY, sum = 0.0f;
  const int32_t weights_dtype = shape->weights_dtype != 0 ? shape->weights_dtype : dtype;
  for (int32_t d = 0; d < shape->head_dim_v; d++) {
    out[d] = 0.0;
    sums[d] = 0.0f;
  }
  *lse = -INFINITY;
  if (row->begin >= row->end)
    return;
  for (int64_t t = row->begin / SIDE * SIDE; t < row->end; t += SIDE)
    dots_fp32(row->q, keys + t * shape->head_dim, shape->head_dim, scores + t);
  for (int64_t t = row->begin; t < row->end; t++) {
    scores[t] = score_fp32(shape, row, t, scores[t]);
    max = fmaxf(max, scores[t]);
  }
  if (shape->sinks)
    max = fmaxf(max, shape->sinks[row->head]);
  for (int64_t t = row->begin; t < row->end; t++) {
    float p = expf(scores[t] - max);
    sum += p;
    p = (float)cgr__reference_round(weights_dtype, p);
    add_fp32(sums, p, values + t * shape->head_dim_v, shape->head_dim_v);
  }
  if (shape->sinks)
    sum += expf(shape->sinks[row->head] - max);
  for (int32_t d = 0; d < shape->head_dim_v; d++)
    out[d] = cgr__reference_round(dtype, sums[d] / sum);
  *lse = max + logf(sum);
}

typedef void attend_row(int32_t dtype, const cgr__reference_shape *shape, const reference_row *row, const reference_head *kv,
                        double *out, double *lse);

/* Head by head, in elements of `size` bytes. */
static void attend_heads(attend_row *attend, int32_t dtype, size_t size, const cgr__reference_shape *shape, const double *q,
                         const double *k, const double *v, double *out, double *lse) {
  const int32_t q_per_kv = shape->num_q_heads / shape->num_kv_heads;
  reference_head kv = { room_for(padded_len(shape) * shape->head_dim, size),
                        room_for(padded_len(shape) * shape->head_dim_v, size), room_for(padded_len(shape), size),
                        room_for(shape->head_dim_v, size) };
  const bool has_room = kv.keys && kv.values && kv.scores && kv.out;
  if (!has_room)
    fill_with_nan(shape, out, lse);
  for (int32_t head = 0; head < shape->num_kv_heads && has_room; head++) {
    put_head(shape, head, k, v, &kv, size);
    for (int32_t j = 0; j < shape->query_len; j++)
      for (int32_t h = head * q_per_kv; h < (head + 1) * q_per_kv; h++) {
        double ignored;
        reference_row row = row_of(shape, q, j, h);
        attend(dtype, shape, &row, &kv, out + row.at * shape->head_dim_v, lse ? &lse[row.at] : &ignored);
      }
  }
  free(kv.keys);
  free(kv.values);
  free(kv.scores);
  free(kv.out);
}

void cgr__reference_attention(const cgr__reference_shape *shape, const double *q, const double *k, const double *v, double *out,
                              double *lse) {
  attend_heads(attend_row_fp64, 0, sizeof(double), shape, q, k, v, out, lse);
}

void cgr__reference_attention_in(int32_t dtype, const cgr__reference_shape *shape, const double *q, const double *k,
                                 const double *v, double *out, double *lse) {
  attend_heads(attend_row_fp32, dtype, sizeof(float), shape, q, k, v, out, lse);
}

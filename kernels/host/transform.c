/* Biases, norms and rope, a head at a time. */
#include <math.h>
#include <string.h>

#include "base/convert.h"
#include "cgr/cgr.h"
#include "kernels/host/append_head.h"
#include "kernels/host/launchers.h"
#include "kernels/transform.h"

/* A head in fp32. */
typedef struct wide_head {
  float x[CGR__TRANSFORM_MAX_HEAD_DIM], other[CGR__TRANSFORM_MAX_HEAD_DIM]; /* other: a bias, or a norm's weights */
} wide_head;

static void add_bias(const cgr__transformed *t, int32_t head, wide_head *wide) {
  const int64_t at = (int64_t)head * t->head_dim * cgr__element_size(t->from.dtype);
  cgr__row_to_float(wide->other, (const unsigned char *)t->bias + at, t->from.dtype, t->head_dim);
  for (int32_t d = 0; d < t->head_dim; d++)
    wide->x[d] += wide->other[d];
}

static void normalise(const cgr__transform_args *args, const cgr__transformed *t, wide_head *wide) {
  float sums[CGR__TRANSFORM_UNIT] = { 0.0f }, sum = 0.0f;
  cgr__row_to_float(wide->other, t->norm, t->from.dtype, t->head_dim);
  for (int32_t d = 0; d < t->head_dim; d++)
    sums[d % CGR__TRANSFORM_UNIT] += wide->x[d] * wide->x[d];
  for (int32_t i = 0; i < CGR__TRANSFORM_UNIT; i++)
    sum += sums[i];
  const float inverse = 1.0f / sqrtf(sum / (float)t->head_dim + args->epsilon);
  for (int32_t d = 0; d < t->head_dim; d++)
    wide->x[d] = wide->x[d] * inverse * (wide->other[d] + args->norm_offset);
}

static void turn(const cgr__transform_args *args, const cgr__transformed *t, int32_t token, float *x) {
  const int32_t half = t->rotary_dim / 2, given = args->positions[token];
  const int32_t last = args->num_positions - 1, position = given < 0 ? 0 : given > last ? last : given;
  const float *cosines = args->cos_sin + (int64_t)position * t->rotary_dim, *sines = cosines + half;
  for (int32_t i = 0; i < half; i++) {
    float *first = args->interleaved ? &x[2 * i] : &x[i], *second = args->interleaved ? first + 1 : first + half;
    const float a = *first, b = *second;
    *first = a * cosines[i] - b * sines[i];
    *second = b * cosines[i] + a * sines[i];
  }
}

/* `rounded`: where the result goes, which may be `elements`. */
static void transform_head(const cgr__transform_args *args, const cgr__transformed *t, int32_t token, int32_t head,
                           const void *elements, void *rounded) {
  wide_head wide;
  cgr__row_to_float(wide.x, elements, t->from.dtype, t->head_dim);
  if (t->bias)
    add_bias(t, head, &wide);
  if (t->norm)
    normalise(args, t, &wide);
  if (t->rotary_dim > 0)
    turn(args, t, token, wide.x);
  cgr__row_from_float(rounded, wide.x, t->from.dtype, t->head_dim);
}

static void transform_token(const cgr__transform_args *args, const cgr__transformed *t, int32_t token) {
  _Alignas(16) unsigned char rounded[CGR__TRANSFORM_MAX_HEAD_DIM * sizeof(float)];
  const int64_t size = cgr__element_size(t->from.dtype);
  cgr__place at = { 0, 0 };
  if (t->to.base && !cgr__place_of(args->slot_mapping[token], args->page_size, args->num_pages, &at))
    return;
  for (int32_t h = 0; h < t->num_heads; h++) {
    unsigned char *elements = (unsigned char *)t->from.data + (token * t->from.stride_token + h * t->from.stride_head) * size;
    void *result = !t->to.base || !cgr__is_transformed(t) ? elements : rounded;
    if (cgr__is_transformed(t))
      transform_head(args, t, token, h, elements, result);
    if (t->to.base)
      cgr__host_append_head(&t->to, at, h, result, t->from.dtype, t->head_dim);
  }
}

void cgr__host_transform(const void *pointer) {
  const cgr__transform_args *args = (const cgr__transform_args *)pointer;
  const int32_t real = args->counts[CGR_COUNT_TOKENS];
  for (int32_t i = 0; i < CGR__NUM_TRANSFORMED; i++)
    for (int32_t t = 0; t < args->num_tokens && t < real; t++)
      transform_token(args, &args->tensor[i], t);
}

#include "kernels/variants.h"

#include <stdbool.h>
#include <stdio.h>

#include "base/limits.h"
#include "kernels/attention.h"
#include "planners/attention/plan_host.h"

#define DTYPE(name) (1u << CGR_DTYPE_##name)

static const cgr__variant variants[] = {
  { "host", CGR_DEVICE_KIND_HOST, 0, 0, DTYPE(FP32) | DTYPE(FP16) | DTYPE(BF16), 8, 256, 8, 0 },
  { "sm80", CGR_DEVICE_KIND_CUDA, 80, INT32_MAX, DTYPE(FP16) | DTYPE(BF16), 64, 128, 64, 0 },
};

#define NUM_VARIANTS (int32_t)(sizeof variants / sizeof variants[0])

/* --------------------------------------------------------------------------------------------------------------- reasons */

/* What is being asked: one layer, one variant. */
typedef struct question {
  const cgr__variant *variant;
  const cgr_layer *layer;
  int32_t index;
  cgr__findings *findings;
} question;

static const char *field(const question *q, const char *name, char *text, size_t size) {
  snprintf(text, size, "layers[%d].%s", q->index, name);
  return text;
}

#define REFUSE(q, name, ...)                                                                                                   \
  do {                                                                                                                         \
    char refused_field[48];                                                                                                    \
    cgr__findings_add((q)->findings, CGR_ERROR_UNSUPPORTED, field(q, name, refused_field, sizeof refused_field), __VA_ARGS__); \
  } while (0)

static bool lacks(const question *q, uint32_t feature) { return !(q->variant->features & feature); }

static bool differ(int32_t a, int32_t b) { return a != 0 && b != 0 && a != b; }

static void check_dtypes(const question *q) {
  const cgr_layer *l = q->layer;
  if (l->k.dtype != 0 && !(q->variant->dtypes & 1u << l->k.dtype))
    REFUSE(q, "k.dtype", "is %s, expected %s on this device", cgr_dtype_name((cgr_dtype)l->k.dtype),
           q->variant->dtypes & DTYPE(FP32) ? "fp32, fp16 or bf16" : "fp16 or bf16");
  if (differ(l->v.dtype, l->k.dtype))
    REFUSE(q, "v.dtype", "is %s, expected %s as in k", cgr_dtype_name((cgr_dtype)l->v.dtype),
           cgr_dtype_name((cgr_dtype)l->k.dtype));
  if (differ(l->dtype, l->k.dtype) && lacks(q, CGR__FEATURE_CACHE_DTYPE))
    REFUSE(q, "dtype", "is %s, expected %s as in the cache", cgr_dtype_name((cgr_dtype)l->dtype),
           cgr_dtype_name((cgr_dtype)l->k.dtype));
  if (differ(l->out_dtype, l->dtype) && lacks(q, CGR__FEATURE_OUT_DTYPE))
    REFUSE(q, "out_dtype", "is %s, expected %s as in dtype", cgr_dtype_name((cgr_dtype)l->out_dtype),
           cgr_dtype_name((cgr_dtype)l->dtype));
  if (l->k.scale && lacks(q, CGR__FEATURE_CACHE_SCALES))
    REFUSE(q, "k.scale", "is given, expected NULL in this version");
  if (l->v.scale && lacks(q, CGR__FEATURE_CACHE_SCALES))
    REFUSE(q, "v.scale", "is given, expected NULL in this version");
}

static void check_head_dims(const question *q) {
  const cgr__variant *v = q->variant;
  int32_t dim = q->layer->head_dim;
  if (dim != 0 && (dim < v->min_head_dim || dim > v->max_head_dim || dim % v->head_dim_step != 0))
    REFUSE(q, "head_dim", "is %d, expected %d to %d, a multiple of %d, on this device", dim, v->min_head_dim, v->max_head_dim,
           v->head_dim_step);
  if (differ(q->layer->head_dim_v, dim) && lacks(q, CGR__FEATURE_HEAD_DIM_V))
    REFUSE(q, "head_dim_v", "is %d, expected %d as in head_dim", q->layer->head_dim_v, dim);
}

static void check_features(const question *q) {
  const cgr_layer *l = q->layer;
  if (l->window_left != 0 && lacks(q, CGR__FEATURE_WINDOW))
    REFUSE(q, "window_left", "is %d, expected 0 in this version", l->window_left);
  if (l->window_right != 0 && lacks(q, CGR__FEATURE_WINDOW))
    REFUSE(q, "window_right", "is %d, expected 0 in this version", l->window_right);
  if (l->chunk != 0 && lacks(q, CGR__FEATURE_CHUNK))
    REFUSE(q, "chunk", "is %d, expected 0 in this version", l->chunk);
  if (l->softcap != 0.0f && lacks(q, CGR__FEATURE_SOFTCAP))
    REFUSE(q, "softcap", "is %g, expected 0 in this version", (double)l->softcap);
  if ((l->alibi_slopes || l->flags & CGR_LAYER_ALIBI_SQRT) && lacks(q, CGR__FEATURE_ALIBI))
    REFUSE(q, "alibi_slopes", "is given, expected NULL and no CGR_LAYER_ALIBI_SQRT in this version");
  if (l->sinks && lacks(q, CGR__FEATURE_SINKS))
    REFUSE(q, "sinks", "is given, expected NULL in this version");
  if (l->flags & CGR_LAYER_BIDIRECTIONAL && lacks(q, CGR__FEATURE_BIDIRECTIONAL))
    REFUSE(q, "flags", "has CGR_LAYER_BIDIRECTIONAL, expected none in this version");
  if (l->flags & CGR_LAYER_NO_CACHE && lacks(q, CGR__FEATURE_NO_CACHE))
    REFUSE(q, "flags", "has CGR_LAYER_NO_CACHE, expected none in this version");
}

/* The append counts its 16-byte pieces in 32 bits. */
static void check_append(const question *q, int32_t max_tokens) {
  int64_t pieces =
      (int64_t)q->layer->num_kv_heads * q->layer->head_dim * (int64_t)cgr_dtype_size((cgr_dtype)q->layer->k.dtype) / 16;
  if (pieces * max_tokens > INT32_MAX - 1024)
    REFUSE(q, "num_kv_heads",
           "is %d, which with head_dim %d and max_tokens %d is %lld pieces of 16 bytes, expected less than 2^31",
           q->layer->num_kv_heads, q->layer->head_dim, max_tokens, (long long)(pieces * max_tokens));
}

static void check_all(const question *q, int32_t max_tokens) {
  check_dtypes(q);
  check_head_dims(q);
  check_features(q);
  check_append(q, max_tokens);
}

/* ---------------------------------------------------------------------------------------------------------------- choice */

static bool runs_on(const cgr__variant *v, const cgr_device_info *device) {
  return v->device_kind == device->kind && v->min_capability <= device->kernel_capability &&
         device->kernel_capability <= v->max_capability;
}

const cgr__variant *cgr__variant_choose(const cgr_device_info *device, const cgr_layer *layer, int32_t index, int32_t max_tokens,
                                        cgr__findings *findings) {
  const cgr__variant *nearest = NULL;
  int32_t fewest = INT32_MAX;
  for (int32_t i = 0; i < NUM_VARIANTS; i++) {
    cgr__findings reasons;
    cgr__findings_init(&reasons, NULL, 0);
    question q = { &variants[i], layer, index, &reasons };
    if (!runs_on(&variants[i], device))
      continue;
    check_all(&q, max_tokens);
    if (reasons.count == 0)
      return &variants[i];
    if (reasons.count < fewest)
      nearest = &variants[i];
    fewest = reasons.count < fewest ? reasons.count : fewest;
  }
  if (!nearest) {
    cgr__findings_add(findings, CGR_ERROR_UNSUPPORTED, "device", "has compute capability %d, expected 80 or later",
                      device->kernel_capability);
    return NULL;
  }
  question q = { nearest, layer, index, findings };
  check_all(&q, max_tokens);
  return NULL;
}

/* ----------------------------------------------------------------------------------------------------------------- sizes */

/* Two CTAs per multiprocessor, rounded down to a power of two: with equal sequences parts then begin and end where tiles do. */
static int32_t default_parts(int32_t num_multiprocessors, int32_t head_blocks) {
  int32_t parts = 1;
  while (2 * parts * head_blocks <= 2 * num_multiprocessors)
    parts *= 2;
  return parts;
}

static int32_t larger(int32_t a, int32_t b) { return a > b ? a : b; }

cgr__attention_sizes cgr__attention_sizes_of(const cgr_device_info *device, const cgr_layer *layers, int32_t num_layers,
                                             int32_t num_parts) {
  cgr__attention_sizes sizes = { .num_parts = num_parts };
  int32_t head_blocks = 1, head_dim = 8, gqa_group = 1;
  for (int32_t i = 0; i < num_layers; i++) {
    if (layers[i].num_q_heads == 0)
      continue;
    head_blocks = larger(head_blocks, cgr__attention_head_blocks(layers[i].num_q_heads, layers[i].num_kv_heads));
    head_dim = larger(head_dim, layers[i].head_dim);
    gqa_group = larger(gqa_group, layers[i].num_q_heads / layers[i].num_kv_heads);
  }
  if (num_parts == 0)
    sizes.num_parts = device->kind == CGR_DEVICE_KIND_HOST ? 8 : default_parts(device->num_multiprocessors, head_blocks);
  sizes.tile_q = cgr__attention_tile_q(gqa_group);
  sizes.plan_words = (int64_t)(cgr__plan_bytes(sizes.num_parts) / 4);
  sizes.plan_counters = (int64_t)sizes.num_parts * head_blocks;
  sizes.partial_vectors = (int64_t)2 * sizes.num_parts * head_blocks * CGR__TILE_LINES;
  sizes.partial_dim = head_dim;
  return sizes;
}

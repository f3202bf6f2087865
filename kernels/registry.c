#include "kernels/registry.h"

#include <stdbool.h>
#include <stdio.h>

#include "base/limits.h"
#include "cgr/names.h"
#include "kernels/attention.h"
#include "kernels/cuda/attention/sm80/kind.h"
#include "kernels/host/kind.h"
#include "kernels/planner.h"
#include "kernels/quantise.h"

#define DTYPE(name) (1u << CGR_DTYPE_##name)
#define CODE_DTYPES (DTYPE(FP8_E4M3) | DTYPE(FP8_E5M2) | DTYPE(I8))
#define CODES_HEAD_DIM_STEP 16 /* head dims of 8-bit caches are multiples of this: whole vectors of 16 bytes */
#define ALL_FEATURES                                                                                           \
  (CGR__FEATURE_WINDOW | CGR__FEATURE_CHUNK | CGR__FEATURE_SOFTCAP | CGR__FEATURE_ALIBI | CGR__FEATURE_SINKS | \
   CGR__FEATURE_BIDIRECTIONAL | CGR__FEATURE_NO_CACHE | CGR__FEATURE_HEAD_DIM_V | CGR__FEATURE_CROSS | CGR__FEATURE_LSE)

#define WIDTH(dim, with_prefill, prefill_tile, prefill_kv) \
  { dim, CGR__MMA_SHARED(dim) + CGR__MMA_SHARED_STATIC, with_prefill, prefill_tile, prefill_kv }

static const cgr__kernel_kind kinds[] = {
  { "host", &cgr__kernel_attention, CGR_DEVICE_KIND_HOST, 0, 0, DTYPE(FP32) | DTYPE(FP16) | DTYPE(BF16), CODE_DTYPES,
    DTYPE(FP8_E4M3), 8, CGR__HOST_MAX_HEAD_DIM, 8, ALL_FEATURES,
    .plan = { .tile_lines = CGR__HOST_TILE_LINES,
              .decode_lines = 16,
              .tile_kv = CGR__HOST_TILE_KV,
              .cost_tile = 2000,
              .cost_kv = 2000,
              .snap = 2000,
              .max_ctas = 8,
              .max_splits = 16 } },
  { "mma", &cgr__kernel_attention, CGR_DEVICE_KIND_CUDA, 80, INT32_MAX, DTYPE(FP16) | DTYPE(BF16), CODE_DTYPES, DTYPE(FP8_E4M3),
    8, CGR__MMA_MAX_HEAD_DIM, 8, ALL_FEATURES,
    .plan = { .tile_lines = CGR__MMA_TILE_LINES,
              .decode_lines = CGR__MMA_FEW_LINES,
              .tile_kv = CGR__MMA_TILE_KV,
              .cost_tile = 2000,
              .cost_kv = 2000,
              .snap = 4000,
              .max_ctas = CGR__MMA_MAX_CTAS,
              .max_splits = 16,
              .max_padding = CGR__MMA_MOST_PADDING,
              .width = { WIDTH(64, 710, 3900, 1300), WIDTH(128, 920, 7000, 1800),
                         WIDTH(CGR__MMA_MAX_HEAD_DIM, 1470, 7600, 7800) } } },
};

#define NUM_KINDS (int32_t)(sizeof kinds / sizeof kinds[0])

/* --------------------------------------------------------------------------------------------------------------- reasons */

/* What is being asked: one layer, one kind. */
typedef struct question {
  const cgr_device_info *device;
  const cgr__kernel_kind *kind;
  const cgr_layer *layer;
  cgr__findings *findings;
} question;

#define REFUSE(q, name, ...) cgr__findings_add((q)->findings, CGR_ERROR_UNSUPPORTED, name, __VA_ARGS__)

static bool lacks_feature(const question *q, uint32_t feature) { return !(q->kind->features & feature); }

static bool values_differ(int32_t a, int32_t b) { return a != 0 && b != 0 && a != b; }

static const char *dtypes_text(const cgr__kernel_kind *kind) {
  return kind->dtypes & DTYPE(FP32) ? "fp32, fp16 or bf16" : "fp16 or bf16";
}

/* Whether the kind reads caches of this dtype as codes of 8 bits. */
static bool reads_codes(const question *q, int32_t dtype) { return q->kind->cache_dtypes & 1u << dtype; }

/* Whether K has a dtype that the kind reads. If not, nothing is compared with it: that would say to follow a dtype that is wrong.
 */
static bool knows_k(const question *q) {
  const int32_t dtype = q->layer->k.dtype;
  return dtype == 0 || reads_codes(q, dtype) || (q->kind->dtypes & 1u << dtype);
}

static void check_cache_dtype(const question *q) {
  const cgr_layer *l = q->layer;
  const char *name = cgr_dtype_name((cgr_dtype)l->k.dtype);
  if (reads_codes(q, l->k.dtype) && l->flags & CGR_LAYER_NO_CACHE)
    REFUSE(q, "k.dtype", "is %s with CGR_LAYER_NO_CACHE, expected %s: only caches have 8 bits", name, dtypes_text(q->kind));
  else if (!knows_k(q))
    REFUSE(q, "k.dtype", "is %s, expected %s%s on this device", name, dtypes_text(q->kind),
           q->kind->cache_dtypes ? ", or fp8_e4m3, fp8_e5m2 or i8 for a cache," : "");
  if (!knows_k(q))
    return;
  if (!reads_codes(q, l->k.dtype) && values_differ(l->v.dtype, l->k.dtype))
    REFUSE(q, "v.dtype", "is %s, expected %s as in k%s", cgr_dtype_name((cgr_dtype)l->v.dtype), name,
           reads_codes(q, l->v.dtype) ? ": K of 8 bits may have V of 16, not the reverse" : "");
  else if (reads_codes(q, l->k.dtype) && !reads_codes(q, l->v.dtype) && values_differ(l->v.dtype, l->dtype))
    REFUSE(q, "v.dtype", "is %s, expected fp8_e4m3, fp8_e5m2 or i8, or %s as in dtype", cgr_dtype_name((cgr_dtype)l->v.dtype),
           cgr_dtype_name((cgr_dtype)l->dtype));
}

/* Of q, k and v in the call: with a cache of 16 or 32 bits they have its dtype. */
static void check_call_dtypes(const question *q) {
  const cgr_layer *l = q->layer;
  const char *cache = cgr_dtype_name((cgr_dtype)l->k.dtype), *name = cgr_dtype_name((cgr_dtype)l->dtype);
  if (!reads_codes(q, l->k.dtype)) {
    if (knows_k(q) && values_differ(l->dtype, l->k.dtype) && lacks_feature(q, CGR__FEATURE_CACHE_DTYPE))
      REFUSE(q, "dtype", "is %s, expected %s as in the cache", name, cache);
  } else if (!(l->flags & CGR_LAYER_NO_CACHE) && l->dtype != 0 && !(q->kind->dtypes & 1u << l->dtype)) {
    REFUSE(q, "dtype", "is %s (0 takes the cache's), expected %s with a cache of %s", name, dtypes_text(q->kind), cache);
  }
  if (values_differ(l->q_dtype, l->dtype) && lacks_feature(q, CGR__FEATURE_Q_DTYPE))
    REFUSE(q, "q_dtype", "is %s, expected %s as in dtype, or a backend of the engine's", cgr_dtype_name((cgr_dtype)l->q_dtype),
           name);
  if (values_differ(l->out_dtype, l->dtype) && lacks_feature(q, CGR__FEATURE_OUT_DTYPE) &&
      !(q->kind->out_dtypes & 1u << l->out_dtype))
    REFUSE(q, "out_dtype", "is %s, expected %s as in dtype, or fp8_e4m3", cgr_dtype_name((cgr_dtype)l->out_dtype), name);
}

/* What attention takes (cgr__scale_is_native). */
static const char *expected_scale(bool is_v) {
  return is_v ? "0, 0, any, any: one for all, or for each head or channel" : "0, 0, any, 0: one for all, or for each head";
}

/* The first thing that keeps K's factors of tokens from being read (cgr__scale_is_of_tokens). */
static void refuse_token_scale(const question *q, const cgr_kv_view *view, const char *name) {
  static const char *const multiple = "a multiple of 4 above 0";
  const bool one_head = q->layer->num_kv_heads == 1;
  const struct {
    const char *stride, *expected;
    int64_t got;
    bool is_right;
  } strides[] = {
    { "page", multiple, view->scale_stride_page, view->scale_stride_page != 0 && view->scale_stride_page % 4 == 0 },
    { "token", "1", view->scale_stride_token, view->scale_stride_token == 1 },
    { "head", one_head ? "a multiple of 4" : multiple, view->scale_stride_head,
      (one_head || view->scale_stride_head != 0) && view->scale_stride_head % 4 == 0 },
    { "d", "0", view->scale_stride_d, view->scale_stride_d == 0 },
  };
  for (size_t i = 0; i < sizeof strides / sizeof strides[0]; i++)
    if (!strides[i].is_right) {
      REFUSE(q, name, "has scale_stride_%s %lld, expected %s in K of i8 with factors for each token", strides[i].stride,
             (long long)strides[i].got, strides[i].expected);
      return;
    }
  REFUSE(q, name, "is %p, expected a multiple of 16 bytes in K of i8 with factors for each token", (void *)view->scale);
}

static void check_scale(const question *q, const cgr_kv_view *view, const char *name) {
  const cgr_layer *l = q->layer;
  const bool is_v = view == &l->v;
  const int32_t dtype = view->dtype;
  const bool is_code = reads_codes(q, dtype), is_refused = is_v && is_code && !reads_codes(q, l->k.dtype); /* V's dtype is */
  if (!lacks_feature(q, CGR__FEATURE_CACHE_SCALES) || dtype == 0 || !knows_k(q) || is_refused)
    return;
  if (!is_code && view->scale)
    REFUSE(q, name, "is given, expected NULL with a cache of %s", cgr_dtype_name((cgr_dtype)dtype));
  if (!is_code || cgr__scale_is_native(view, is_v, l->num_kv_heads))
    return;
  if (!view->scale)
    REFUSE(q, name, "is NULL, expected factors with a cache of %s", cgr_dtype_name((cgr_dtype)dtype));
  else if (!is_v && view->dtype == CGR_DTYPE_I8 && cgr__scales_are_written(view))
    refuse_token_scale(q, view, name);
  else
    REFUSE(q, name, "is %p with strides %lld, %lld, %lld, %lld of page, token, head and d, expected %s", (void *)view->scale,
           (long long)view->scale_stride_page, (long long)view->scale_stride_token, (long long)view->scale_stride_head,
           (long long)view->scale_stride_d, expected_scale(is_v));
}

static void check_dtypes(const question *q) {
  check_cache_dtype(q);
  check_call_dtypes(q);
  check_scale(q, &q->layer->k, "k.scale");
  check_scale(q, &q->layer->v, "v.scale");
}

/* What head dims are multiples of, and the least. */
static int32_t head_dim_step(const question *q) {
  return reads_codes(q, q->layer->k.dtype) ? CODES_HEAD_DIM_STEP : q->kind->head_dim_step;
}
static int32_t least_head_dim(const question *q) {
  const int32_t step = head_dim_step(q);
  return q->kind->min_head_dim < step ? step : q->kind->min_head_dim;
}

static void check_head_dim(const question *q, const char *name, int32_t dim) {
  const cgr__kernel_kind *kind = q->kind;
  const bool codes = reads_codes(q, q->layer->k.dtype);
  const int32_t step = head_dim_step(q), least = least_head_dim(q);
  if (dim != 0 && (dim < least || dim > kind->max_head_dim || dim % step != 0))
    REFUSE(q, name, "is %d, expected %d to %d, a multiple of %d, on this device%s%s", dim, least, kind->max_head_dim, step,
           codes ? " with a cache of " : "", codes ? cgr_dtype_name((cgr_dtype)q->layer->k.dtype) : "");
}

/* The kernels keep tiles of K, V and queries in shared memory. */
static void check_shared_memory(const question *q) {
  int32_t needs = cgr__plan_shared_bytes(&q->kind->plan, q->layer), has = q->device->shared_memory;
  bool by_v = q->layer->head_dim_v > q->layer->head_dim;
  if (has > 0 && needs > has)
    REFUSE(q, by_v ? "head_dim_v" : "head_dim", "is %d, which takes %d bytes of shared memory, expected at most %d, the device's",
           by_v ? q->layer->head_dim_v : q->layer->head_dim, needs, has);
}

static void check_head_dims(const question *q) {
  const cgr_layer *l = q->layer;
  check_head_dim(q, "head_dim", l->head_dim);
  if (q->device->kind == CGR_DEVICE_KIND_CUDA)
    check_shared_memory(q);
  if (!values_differ(l->head_dim_v, l->head_dim))
    return;
  if (lacks_feature(q, CGR__FEATURE_HEAD_DIM_V))
    REFUSE(q, "head_dim_v", "is %d, expected %d as in head_dim", l->head_dim_v, l->head_dim);
  else
    check_head_dim(q, "head_dim_v", l->head_dim_v);
}

static void check_features(const question *q) {
  const cgr_layer *l = q->layer;
  if (l->window_left != 0 && lacks_feature(q, CGR__FEATURE_WINDOW))
    REFUSE(q, "window_left", "is %d, expected 0 in this version", l->window_left);
  if (l->window_right != 0 && lacks_feature(q, CGR__FEATURE_WINDOW))
    REFUSE(q, "window_right", "is %d, expected 0 in this version", l->window_right);
  if (l->chunk != 0 && lacks_feature(q, CGR__FEATURE_CHUNK))
    REFUSE(q, "chunk", "is %d, expected 0 in this version", l->chunk);
  if (l->softcap != 0.0f && lacks_feature(q, CGR__FEATURE_SOFTCAP))
    REFUSE(q, "softcap", "is %g, expected 0 in this version", (double)l->softcap);
  if ((l->alibi_slopes || l->flags & CGR_LAYER_ALIBI_SQRT) && lacks_feature(q, CGR__FEATURE_ALIBI))
    REFUSE(q, "alibi_slopes", "is given, expected NULL and no CGR_LAYER_ALIBI_SQRT in this version");
  if (l->sinks && lacks_feature(q, CGR__FEATURE_SINKS))
    REFUSE(q, "sinks", "is given, expected NULL in this version");
  if (l->flags & CGR_LAYER_BIDIRECTIONAL && lacks_feature(q, CGR__FEATURE_BIDIRECTIONAL))
    REFUSE(q, "flags", "has CGR_LAYER_BIDIRECTIONAL, expected none in this version");
  if (l->flags & CGR_LAYER_NO_CACHE && lacks_feature(q, CGR__FEATURE_NO_CACHE))
    REFUSE(q, "flags", "has CGR_LAYER_NO_CACHE, expected none in this version");
}

/* Keys of another sequence have no position relative to the query's, from which windows, chunks and slopes count. */
static void check_cross(const question *q) {
  const cgr_layer *l = q->layer;
  if (lacks_feature(q, CGR__FEATURE_CROSS))
    REFUSE(q, "length_set", "is %d, expected 0 in this version", l->length_set);
  if (!(l->flags & CGR_LAYER_BIDIRECTIONAL))
    REFUSE(q, "flags", "lacks CGR_LAYER_BIDIRECTIONAL, expected it with length_set %d: every query sees all of its keys",
           l->length_set);
  if (l->window_left != 0)
    REFUSE(q, "window_left", "is %d, expected 0 with length_set %d", l->window_left, l->length_set);
  if (l->window_right != 0)
    REFUSE(q, "window_right", "is %d, expected 0 with length_set %d", l->window_right, l->length_set);
  if (l->chunk != 0)
    REFUSE(q, "chunk", "is %d, expected 0 with length_set %d", l->chunk, l->length_set);
  if (l->alibi_slopes)
    REFUSE(q, "alibi_slopes", "is given, expected NULL with length_set %d", l->length_set);
}

/* Combinations that have no meaning. */
static void check_combinations(const question *q) {
  const cgr_layer *l = q->layer;
  if (l->length_set != 0 && !(l->flags & CGR_LAYER_NO_CACHE))
    check_cross(q);
  else if (l->window_right != 0 && !(l->flags & CGR_LAYER_BIDIRECTIONAL))
    REFUSE(q, "window_right", "is %d, expected 0 without CGR_LAYER_BIDIRECTIONAL", l->window_right);
  if (l->chunk != 0 && (l->window_left != 0 || l->window_right != 0))
    REFUSE(q, "chunk", "is %d with window_left %d and window_right %d, expected one or the other", l->chunk, l->window_left,
           l->window_right);
  if (l->chunk != 0 && l->flags & CGR_LAYER_BIDIRECTIONAL)
    REFUSE(q, "chunk", "is %d, expected 0 with CGR_LAYER_BIDIRECTIONAL", l->chunk);
  if (l->flags & CGR_LAYER_ALIBI_SQRT && !l->alibi_slopes)
    REFUSE(q, "alibi_slopes", "is NULL, expected slopes with CGR_LAYER_ALIBI_SQRT");
}

/* ---------------------------------------------------------------------------------------------------------------- append */

#define MAX_APPEND_VECTORS (INT32_MAX - 1024)
#define MAX_APPEND_HEADS (1 << 26) /* a warp for each, when the append quantises */

/* The append counts vectors of 16 bytes in 32 bits: those of all tokens, of the wider of K and V. */
static void check_append_vectors(const cgr_layer *l, int32_t max_tokens, cgr__findings *findings) {
  int32_t head_dim = l->head_dim > l->head_dim_v ? l->head_dim : l->head_dim_v;
  int64_t size = (int64_t)cgr_dtype_size((cgr_dtype)l->k.dtype);
  int64_t vectors = (int64_t)l->num_kv_heads * head_dim * size / 16 * max_tokens;
  if (vectors > MAX_APPEND_VECTORS)
    cgr__findings_add(findings, CGR_ERROR_UNSUPPORTED, "num_kv_heads",
                      "is %d, which with head_dim %d and max_tokens %d is %lld vectors of 16 bytes, expected at most %d",
                      l->num_kv_heads, head_dim, max_tokens, (long long)vectors, MAX_APPEND_VECTORS);
}

/* One of the cache's views, from elements of the layer's dtype. */
static void check_append_view(const cgr_layer *l, const cgr_kv_view *view, const char *name, cgr__findings *findings) {
  char field[32];
  const char *dtype = cgr_dtype_name((cgr_dtype)view->dtype);
  snprintf(field, sizeof field, "%s.dtype", name);
  if (!cgr__is_quantised(view->dtype) && view->dtype != l->dtype)
    cgr__findings_add(findings, CGR_ERROR_UNSUPPORTED, field,
                      "is %s and the layer's dtype %s, expected the same, or fp8_e4m3, fp8_e5m2 or i8", dtype,
                      cgr_dtype_name((cgr_dtype)l->dtype));
  snprintf(field, sizeof field, "%s.scale", name);
  if (!cgr__is_quantised(view->dtype) && view->scale)
    cgr__findings_add(findings, CGR_ERROR_UNSUPPORTED, field, "is given, expected NULL for a cache of %s", dtype);
  if (view->dtype == CGR_DTYPE_I8 && !view->scale)
    cgr__findings_add(findings, CGR_ERROR_UNSUPPORTED, field, "is NULL, expected factors for a cache of i8");
  if (!cgr__scales_are_written(view))
    return;
  if (view->dtype != CGR_DTYPE_I8 && cgr__is_quantised(view->dtype))
    cgr__findings_add(findings, CGR_ERROR_UNSUPPORTED, field,
                      "has page and token strides %lld, %lld, expected 0, 0 in a cache of %s: factors for all tokens",
                      (long long)view->scale_stride_page, (long long)view->scale_stride_token, dtype);
  else if (!cgr__factors_of_tokens(view, l->num_kv_heads).base)
    cgr__findings_add(findings, CGR_ERROR_UNSUPPORTED, field,
                      "has strides %lld, %lld, %lld, %lld, expected a factor for each page, token and head, or page and token 0",
                      (long long)view->scale_stride_page, (long long)view->scale_stride_token, (long long)view->scale_stride_head,
                      (long long)view->scale_stride_d);
}

static void check_append_heads(const cgr_layer *l, int32_t max_tokens, cgr__findings *findings) {
  if ((int64_t)l->num_kv_heads * max_tokens > MAX_APPEND_HEADS)
    cgr__findings_add(findings, CGR_ERROR_UNSUPPORTED, "num_kv_heads",
                      "is %d, which with max_tokens %d is %lld heads to quantise, expected at most %d", l->num_kv_heads,
                      max_tokens, (long long)l->num_kv_heads * max_tokens, MAX_APPEND_HEADS);
}

void cgr__append_check(const cgr_layer *l, int32_t max_tokens, cgr__findings *findings) {
  const bool known = l->dtype == CGR_DTYPE_FP32 || l->dtype == CGR_DTYPE_FP16 || l->dtype == CGR_DTYPE_BF16;
  const bool is_quantised = cgr__is_quantised(l->k.dtype) || cgr__is_quantised(l->v.dtype);
  const int32_t step = is_quantised ? 16 : 16 / (int32_t)cgr_dtype_size(known ? (cgr_dtype)l->dtype : CGR_DTYPE_FP32);
  if (!known)
    cgr__findings_add(findings, CGR_ERROR_UNSUPPORTED, "dtype",
                      "is %s (0 takes the cache's), expected that of k and v in the call: fp32, fp16 or bf16",
                      cgr_dtype_name((cgr_dtype)l->dtype));
  else if (l->head_dim != l->head_dim_v || l->head_dim % step != 0)
    cgr__findings_add(findings, CGR_ERROR_UNSUPPORTED, "head_dim",
                      "is %d with head_dim_v %d, expected equal ones, a multiple of %d", l->head_dim, l->head_dim_v, step);
  check_append_view(l, &l->k, "k", findings);
  check_append_view(l, &l->v, "v", findings);
  check_append_vectors(l, max_tokens, findings);
  if (is_quantised)
    check_append_heads(l, max_tokens, findings);
}

/* ---------------------------------------------------------------------------------------------------------------- choice */

/* The append serves the dtypes, factors and head dims of every kind. What is left to ask is whether its numbers fit: of heads, if
 * it quantises, and otherwise of vectors. */
static void check_all(const question *q, int32_t max_tokens) {
  check_dtypes(q);
  check_head_dims(q);
  check_features(q);
  check_combinations(q);
  if (reads_codes(q, q->layer->k.dtype))
    check_append_heads(q->layer, max_tokens, q->findings);
  else
    check_append_vectors(q->layer, max_tokens, q->findings);
}

static bool runs_on(const cgr__kernel_kind *kind, const cgr_device_info *device) {
  return kind->device_kind == device->kind && kind->min_capability <= device->kernel_capability &&
         device->kernel_capability <= kind->max_capability;
}

/* The one with the fewest reasons against it; NULL if none runs on the device. */
static const cgr__kernel_kind *find_nearest(const cgr_device_info *device, const cgr_layer *layer, int32_t max_tokens,
                                            int32_t *num_reasons) {
  const cgr__kernel_kind *nearest = NULL;
  int32_t fewest = INT32_MAX;
  for (int32_t i = 0; i < NUM_KINDS; i++) {
    cgr__findings reasons;
    cgr__findings_init(&reasons, NULL, 0);
    question q = { device, &kinds[i], layer, &reasons };
    if (!runs_on(&kinds[i], device))
      continue;
    check_all(&q, max_tokens);
    if (reasons.count < fewest)
      nearest = &kinds[i];
    fewest = reasons.count < fewest ? reasons.count : fewest;
  }
  *num_reasons = fewest;
  return nearest;
}

const cgr__kernel_kind *cgr__kernel_kind_choose(const cgr_device_info *device, const cgr_layer *layer, int32_t max_tokens,
                                                cgr__findings *findings) {
  int32_t num_reasons;
  const cgr__kernel_kind *nearest = find_nearest(device, layer, max_tokens, &num_reasons);
  if (nearest && num_reasons == 0)
    return nearest;
  if (!nearest) {
    cgr__findings_add(findings, CGR_ERROR_UNSUPPORTED, "backend",
                      "is 0, the library's own kernels, on compute capability %d, expected 80 or later",
                      device->kernel_capability);
    return NULL;
  }
  question q = { device, nearest, layer, findings };
  check_all(&q, max_tokens);
  return NULL;
}

/* -------------------------------------------------------------------------------------------------------------- describe */

#define ABILITIES (2u * CGR_ABILITY_SPARSE - 1)

/* Whether attention over codes takes a factor for each KV head. */
static bool has_head_scales(const cgr__kernel_kind *kind) {
  static float factor;
  const cgr_kv_view view = { .dtype = CGR_DTYPE_FP8_E4M3, .scale = &factor, .scale_stride_head = 1 };
  return kind->cache_dtypes != 0 && cgr__scale_is_native(&view, 0, 2) && cgr__scale_is_native(&view, 1, 2);
}

/* The widest head whose tiles the device's shared memory holds. */
static int32_t widest_head_dim(const question *q) {
  cgr_layer l = *q->layer;
  const int32_t step = head_dim_step(q), has = q->device->shared_memory;
  l.head_dim = l.head_dim_v = q->kind->max_head_dim;
  while (q->device->kind == CGR_DEVICE_KIND_CUDA && has > 0 && l.head_dim > step &&
         cgr__plan_shared_bytes(&q->kind->plan, &l) > has)
    l.head_dim = l.head_dim_v = l.head_dim - step;
  return l.head_dim;
}

bool cgr__kernel_kind_describe(const cgr_device_info *device, const cgr_layer *layer, cgr_backend_needs *needs) {
  int32_t num_reasons;
  const cgr__kernel_kind *kind = find_nearest(device, layer, 1, &num_reasons);
  const question q = { device, kind, layer, NULL };
  if (!kind)
    return false;
  needs->abilities = (kind->features & ABILITIES) | (has_head_scales(kind) ? CGR_ABILITY_HEAD_SCALES : 0);
  needs->dtypes = kind->dtypes;
  needs->cache_dtypes = kind->cache_dtypes;
  needs->out_dtypes = kind->out_dtypes;
  needs->page_multiple = CGR__PAGE_SIZE_UNIT;
  needs->max_page_size = CGR__MAX_PAGE_SIZE;
  needs->head_dim_multiple = head_dim_step(&q);
  needs->min_head_dim = least_head_dim(&q);
  needs->max_head_dim = widest_head_dim(&q);
  return true;
}

/* --------------------------------------------------------------------------------------------------------------- preload */

/* Whether a kind before `kinds[index]` that runs on the device has the same kernel. */
static bool is_preloaded(int32_t index, const cgr_device_info *info) {
  for (int32_t i = 0; i < index; i++)
    if (runs_on(&kinds[i], info) && kinds[i].attention == kinds[index].attention)
      return true;
  return false;
}

int cgr__kernel_kinds_preload(cgr_device *dev, const cgr_device_info *info) {
  int error = 0;
  for (int32_t i = 0; i < NUM_KINDS && !error; i++)
    if (runs_on(&kinds[i], info) && !is_preloaded(i, info))
      error = dev->ops->preload(dev, kinds[i].attention);
  return error;
}

/* ----------------------------------------------------------------------------------------------------------------- plans */

/* The planner keeps requests and parts in shared memory. */
static void check_planner(const cgr_device_info *device, const cgr__plan_options *options, const cgr__plans *plans,
                          cgr__findings *findings) {
  int32_t parts = 0, given = 0;
  for (int32_t i = 0; i < plans->num_classes; i++) {
    const cgr__plan_class *c = &plans->classes[i];
    given = c->num_parts > parts ? c->num_parts * c->stripes : given;
    parts = c->num_parts > parts ? c->num_parts : parts;
  }
  int64_t bytes = cgr__planner_shared_bytes(options->max_requests, parts);
  if (device->kind == CGR_DEVICE_KIND_CUDA && device->shared_memory > 0 && bytes > device->shared_memory)
    cgr__findings_add(
        findings, CGR_ERROR_UNSUPPORTED, "num_parts",
        "is %d, which with max_requests %d takes %lld bytes of shared memory to plan, expected at most %d, the device's", given,
        options->max_requests, (long long)bytes, device->shared_memory);
}

void cgr__kernel_kinds_plan(const cgr_device_info *device, const cgr_layer *layers, const cgr__kernel_kind *const *chosen,
                            int32_t num_layers, const cgr__plan_options *options, cgr__plans *plans, cgr__findings *findings) {
  const cgr__plan_traits *traits[CGR__MAX_LAYERS];
  for (int32_t i = 0; i < num_layers; i++)
    traits[i] = chosen[i] ? &chosen[i]->plan : NULL;
  cgr__plans_make(device, layers, traits, num_layers, options, plans, findings);
  check_planner(device, options, plans, findings);
}

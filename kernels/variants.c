#include "kernels/variants.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/limits.h"
#include "cgr/names.h"
#include "kernels/append.h"
#include "kernels/attention.h"
#include "kernels/planner.h"
#include "planners/attention/plan_host.h"

#define DTYPE(name) (1u << CGR_DTYPE_##name)
#define ALL_FEATURES                                                                                           \
  (CGR__FEATURE_WINDOW | CGR__FEATURE_CHUNK | CGR__FEATURE_SOFTCAP | CGR__FEATURE_ALIBI | CGR__FEATURE_SINKS | \
   CGR__FEATURE_BIDIRECTIONAL | CGR__FEATURE_NO_CACHE | CGR__FEATURE_HEAD_DIM_V | CGR__FEATURE_CROSS)

#define WIDTH(dim) \
  { dim, CGR__ATTENTION_SHARED(dim) + CGR__ATTENTION_SHARED_BESIDE }

static const cgr__variant variants[] = {
  { "host", CGR_DEVICE_KIND_HOST, 0, 0, DTYPE(FP32) | DTYPE(FP16) | DTYPE(BF16), 8, 256, 8, ALL_FEATURES, .tile_lines = 64,
    .line_lines = 16, .tile_kv = 64, .cost_tile = 2000, .cost_kv = 2000, .snap = 2000, .max_ctas = 8, .max_splits = 16 },
  { "sm80", CGR_DEVICE_KIND_CUDA, 80, INT32_MAX, DTYPE(FP16) | DTYPE(BF16), 8, 256, 8, ALL_FEATURES, .tile_lines = 64,
    .line_lines = 16, .tile_kv = 64, .cost_tile = 2000, .cost_kv = 2000, .snap = 4000, .max_ctas = 2, .max_splits = 16,
    .width = { WIDTH(64), WIDTH(128), WIDTH(256) } },
};

#define NUM_VARIANTS (int32_t)(sizeof variants / sizeof variants[0])

/* The place of the layer's width, CGR__MAX_WIDTHS when it has none. */
static int32_t width_of(const cgr__variant *v, const cgr_layer *l) {
  int32_t dim = l->head_dim > l->head_dim_v ? l->head_dim : l->head_dim_v, i = 0;
  while (i < CGR__MAX_WIDTHS && v->width[i].head_dim < dim)
    i++;
  return i;
}

/* --------------------------------------------------------------------------------------------------------------- reasons */

/* What is being asked: one layer, one variant. */
typedef struct question {
  const cgr_device_info *device;
  const cgr__variant *variant;
  const cgr_layer *layer;
  cgr__findings *findings;
} question;

#define REFUSE(q, name, ...) cgr__findings_add((q)->findings, CGR_ERROR_UNSUPPORTED, name, __VA_ARGS__)

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

static void check_head_dim(const question *q, const char *name, int32_t dim) {
  const cgr__variant *v = q->variant;
  if (dim != 0 && (dim < v->min_head_dim || dim > v->max_head_dim || dim % v->head_dim_step != 0))
    REFUSE(q, name, "is %d, expected %d to %d, a multiple of %d, on this device", dim, v->min_head_dim, v->max_head_dim,
           v->head_dim_step);
}

/* The kernels keep tiles of K, V and queries in shared memory. */
static void check_shared_memory(const question *q) {
  int32_t i = width_of(q->variant, q->layer), has = q->device->shared_memory;
  bool by_v = q->layer->head_dim_v > q->layer->head_dim;
  if (i < CGR__MAX_WIDTHS && has > 0 && q->variant->width[i].shared > has)
    REFUSE(q, by_v ? "head_dim_v" : "head_dim", "is %d, which takes %d bytes of shared memory, expected at most %d, the device's",
           by_v ? q->layer->head_dim_v : q->layer->head_dim, q->variant->width[i].shared, has);
}

static void check_head_dims(const question *q) {
  const cgr_layer *l = q->layer;
  check_head_dim(q, "head_dim", l->head_dim);
  if (q->device->kind == CGR_DEVICE_KIND_CUDA)
    check_shared_memory(q);
  if (!differ(l->head_dim_v, l->head_dim))
    return;
  if (lacks(q, CGR__FEATURE_HEAD_DIM_V))
    REFUSE(q, "head_dim_v", "is %d, expected %d as in head_dim", l->head_dim_v, l->head_dim);
  else
    check_head_dim(q, "head_dim_v", l->head_dim_v);
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

/* Keys of another sequence have no position relative to the query's, from which windows, chunks and slopes count. */
static void check_cross(const question *q) {
  const cgr_layer *l = q->layer;
  if (lacks(q, CGR__FEATURE_CROSS))
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
    REFUSE(q, "chunk", "is %d beside window_left %d and window_right %d, expected one or the other", l->chunk, l->window_left,
           l->window_right);
  if (l->chunk != 0 && l->flags & CGR_LAYER_BIDIRECTIONAL)
    REFUSE(q, "chunk", "is %d, expected 0 with CGR_LAYER_BIDIRECTIONAL", l->chunk);
  if (l->flags & CGR_LAYER_ALIBI_SQRT && !l->alibi_slopes)
    REFUSE(q, "alibi_slopes", "is NULL, expected slopes with CGR_LAYER_ALIBI_SQRT");
}

static void check_all(const question *q, int32_t max_tokens) {
  check_dtypes(q);
  check_head_dims(q);
  check_features(q);
  check_combinations(q);
  cgr__append_check(q->layer, max_tokens, "num_kv_heads", "", q->findings);
}

/* ---------------------------------------------------------------------------------------------------------------- choice */

static bool runs_on(const cgr__variant *v, const cgr_device_info *device) {
  return v->device_kind == device->kind && v->min_capability <= device->kernel_capability &&
         device->kernel_capability <= v->max_capability;
}

const cgr__variant *cgr__variant_choose(const cgr_device_info *device, const cgr_layer *layer, int32_t max_tokens,
                                        cgr__findings *findings) {
  const cgr__variant *nearest = NULL;
  int32_t fewest = INT32_MAX;
  for (int32_t i = 0; i < NUM_VARIANTS; i++) {
    cgr__findings reasons;
    cgr__findings_init(&reasons, NULL, 0);
    question q = { device, &variants[i], layer, &reasons };
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
    cgr__findings_add(findings, CGR_ERROR_UNSUPPORTED, "backend",
                      "is 0, the library's own kernels, on compute capability %d, expected 80 or later",
                      device->kernel_capability);
    return NULL;
  }
  question q = { device, nearest, layer, findings };
  check_all(&q, max_tokens);
  return NULL;
}

/* ----------------------------------------------------------------------------------------------------------------- plans */

static const char *field_name(int32_t index, const char *name, char *text, size_t size) {
  snprintf(text, size, "layers[%d].%s", index, name);
  return text;
}

static int32_t larger(int32_t a, int32_t b) { return a > b ? a : b; }
static int64_t larger64(int64_t a, int64_t b) { return a > b ? a : b; }
static int32_t smaller(int32_t a, int32_t b) { return a < b ? a : b; }

int32_t cgr__variant_block_heads(const cgr__variant *variant, const cgr_layer *layer) {
  return smaller(layer->num_q_heads / layer->num_kv_heads, variant->tile_lines);
}

int32_t cgr__variant_head_blocks(const cgr__variant *variant, const cgr_layer *layer) {
  int32_t group = layer->num_q_heads / layer->num_kv_heads, heads = cgr__variant_block_heads(variant, layer);
  return layer->num_kv_heads * ((group + heads - 1) / heads);
}

/* CTAs of a layer that a multiprocessor holds at once. */
static int32_t num_ctas(const cgr__variant *variant, const cgr_device_info *device, const cgr_layer *layer) {
  int32_t by_shared = device->shared_memory / variant->width[width_of(variant, layer)].shared;
  return larger(1, smaller(variant->max_ctas, by_shared));
}

int32_t cgr__variant_num_parts(const cgr__variant *variant, const cgr_device_info *device, const cgr_layer *layer) {
  if (device->kind == CGR_DEVICE_KIND_HOST)
    return variant->max_ctas;
  return larger(1, smaller(CGR__MAX_PARTS, num_ctas(variant, device, layer) * device->num_multiprocessors));
}

/* Dynamic shared memory with which a multiprocessor holds no more CTAs than the plan counts on, however few registers they take:
 * one that held more would get more of the work. One more CTA does not fit, because each takes static memory and 1 KB besides. */
static int32_t shared_bytes(const cgr__variant *variant, const cgr_device_info *device, const cgr_layer *layer) {
  if (device->kind == CGR_DEVICE_KIND_HOST)
    return 0;
  return device->shared_memory / (num_ctas(variant, device, layer) + 1);
}

/* Largest power of two of query tokens whose lines fit a tile. */
static int32_t tile_q(const cgr__variant *variant, int32_t block_heads) {
  int32_t tile = 1;
  while (2 * tile * block_heads <= variant->tile_lines)
    tile *= 2;
  return tile;
}

static int32_t sees_of(const cgr_layer *l) {
  if (l->flags & CGR_LAYER_NO_CACHE)
    return CGR__SEES_STEP;
  return l->length_set != 0 ? CGR__SEES_OTHER : CGR__SEES_CACHE;
}

#define MAX_LANES 8 /* so many neighbouring heads of a token are read at about the same time */

/* All lanes have as many head blocks, and at most one CTA in 64 stays idle. */
static int32_t num_lanes(int32_t head_blocks, int32_t ctas) {
  for (int32_t lanes = smaller(MAX_LANES, head_blocks); lanes > 1; lanes--)
    if (head_blocks % lanes == 0 && lanes <= ctas && ctas % lanes <= ctas / 64)
      return lanes;
  return 1;
}

static cgr__plan_class class_of(const cgr_device_info *device, const cgr__variant *v, const cgr_layer *l,
                                const cgr__plan_options *o) {
  int32_t heads = cgr__variant_block_heads(v, l);
  int32_t width = device->kind == CGR_DEVICE_KIND_HOST ? l->head_dim : v->width[width_of(v, l)].head_dim;
  int32_t scaled = (int32_t)((int64_t)v->cost_kv * width / 128);
  int32_t head_blocks = cgr__variant_head_blocks(v, l);
  int32_t ctas = o->num_parts != 0 ? o->num_parts : cgr__variant_num_parts(v, device, l), lanes = num_lanes(head_blocks, ctas);
  cgr__plan_class c = { .num_parts = ctas / lanes,
                        .head_blocks = head_blocks / lanes,
                        .lanes = lanes,
                        .line_query_len = larger(1, v->line_lines / heads),
                        .line_tile_kv = v->tile_kv,
                        .cost_tile = v->cost_tile,
                        .cost_kv = larger(1, scaled),
                        .snap = v->snap,
                        .queue_tile_q = tile_q(v, heads),
                        .queue_tile_kv = v->tile_kv,
                        .sees = sees_of(l),
                        .window_left = l->window_left,
                        .window_right = l->window_right,
                        .chunk = l->chunk,
                        .bidirectional = (l->flags & CGR_LAYER_BIDIRECTIONAL) != 0,
                        .max_splits = o->batch_invariant ? v->max_splits : 0,
                        .length_set = l->length_set,
                        .max_requests = o->max_requests };
  int64_t entries = cgr__plan_max_entries(&c, o->max_requests, o->max_tokens);
  c.max_entries = entries > INT32_MAX ? INT32_MAX : (int32_t)entries;
  return c;
}

/* The class of a layer among those there are, or a new one; -1 when there is no room for it. */
static int32_t find_class(cgr__plans *plans, const cgr__plan_class *c) {
  for (int32_t i = 0; i < plans->num_classes; i++)
    if (memcmp(&plans->classes[i], c, sizeof *c) == 0)
      return i;
  if (plans->num_classes == CGR__MAX_CLASSES)
    return -1;
  int32_t i = plans->num_classes++;
  plans->classes[i] = *c;
  plans->offset[i] = plans->plan_words;
  plans->plan_words += cgr__plan_bytes(c) / 4;
  return i;
}

/* The head of a queue goes on counting after its last tile, twice for each CTA, and must stay positive. */
#define MOST_TILES (INT32_MAX - 4 * CGR__MAX_PARTS)

static void add_layer(const cgr_device_info *device, const cgr__variant *v, const cgr_layer *l, int32_t index,
                      const cgr__plan_options *options, cgr__plans *plans, cgr__findings *findings) {
  cgr__plan_class c = class_of(device, v, l, options);
  char name[48];
  int64_t most_tiles = (int64_t)c.max_entries * c.head_blocks * c.lanes;
  if (most_tiles > MOST_TILES) {
    cgr__findings_add(findings, CGR_ERROR_UNSUPPORTED, field_name(index, "num_kv_heads", name, sizeof name),
                      "is %d, which with max_tokens %d makes %lld tiles, expected at most %d", l->num_kv_heads,
                      options->max_tokens, (long long)most_tiles, MOST_TILES);
    return;
  }
  int32_t i = find_class(plans, &c);
  if (i < 0) {
    cgr__findings_add(findings, CGR_ERROR_UNSUPPORTED, field_name(index, "num_q_heads", name, sizeof name),
                      "makes a plan class more than %d: expected fewer kinds of layers (heads, head dims, windows)",
                      CGR__MAX_CLASSES);
    return;
  }
  int32_t lines = c.line_query_len * cgr__variant_block_heads(v, l);
  plans->class_of[index] = (uint8_t)i;
  plans->line_lines[i] = larger(plans->line_lines[i], lines); /* layers of one class may have blocks of other sizes */
  plans->queue_lines[i] = larger(plans->queue_lines[i], v->tile_lines);
  plans->shared_bytes[i] = shared_bytes(v, device, l);
  int64_t line_slots = cgr__plan_all_line_slots(&c), queue_slots = (int64_t)c.lanes * cgr__plan_queue_slots(&c);
  plans->num_slots = larger64(plans->num_slots, line_slots + queue_slots);
  plans->partial_vectors = larger64(plans->partial_vectors, line_slots * lines + queue_slots * v->tile_lines);
  plans->partial_dim = larger64(plans->partial_dim, l->head_dim_v);
}

/* The planner keeps requests and parts in shared memory. */
static void check_planner(const cgr_device_info *device, const cgr__plan_options *options, const cgr__plans *plans,
                          cgr__findings *findings) {
  int32_t parts = 0, given = 0;
  for (int32_t i = 0; i < plans->num_classes; i++) {
    const cgr__plan_class *c = &plans->classes[i];
    given = c->num_parts > parts ? c->num_parts * c->lanes : given;
    parts = larger(parts, c->num_parts);
  }
  int64_t bytes = cgr__planner_shared_bytes(options->max_requests, parts);
  if (device->kind == CGR_DEVICE_KIND_CUDA && device->shared_memory > 0 && bytes > device->shared_memory)
    cgr__findings_add(
        findings, CGR_ERROR_UNSUPPORTED, "num_parts",
        "is %d, which with max_requests %d takes %lld bytes of shared memory to plan, expected at most %d, the device's", given,
        options->max_requests, (long long)bytes, device->shared_memory);
}

void cgr__plans_make(const cgr_device_info *device, const cgr_layer *layers, const cgr__variant *const *chosen,
                     int32_t num_layers, const cgr__plan_options *options, cgr__plans *plans, cgr__findings *findings) {
  memset(plans, 0, sizeof *plans);
  for (int32_t i = 0; i < num_layers; i++) {
    findings->layer = i;
    if (chosen[i])
      add_layer(device, chosen[i], &layers[i], i, options, plans, findings);
  }
  findings->layer = -1;
  check_planner(device, options, plans, findings);
  plans->num_counters = plans->num_slots + num_layers;
}

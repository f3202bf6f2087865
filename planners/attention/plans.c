/* The classes, sizes and capacity of plans. Cold: they are made when a runtime is created or a configuration is checked. */
#include "planners/attention/plans.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/limits.h"
#include "planners/attention/plan_host.h"

static const char *field_name(int32_t index, const char *name, char *text, size_t size) {
  snprintf(text, size, "layers[%d].%s", index, name);
  return text;
}

static int32_t larger(int32_t a, int32_t b) { return a > b ? a : b; }
static int64_t larger64(int64_t a, int64_t b) { return a > b ? a : b; }
static int32_t smaller(int32_t a, int32_t b) { return a < b ? a : b; }

/* The place of the layer's width, CGR__MAX_WIDTHS when it has none. */
static int32_t width_of(const cgr__plan_traits *t, const cgr_layer *l) {
  int32_t dim = l->head_dim > l->head_dim_v ? l->head_dim : l->head_dim_v, i = 0;
  while (i < CGR__MAX_WIDTHS && t->width[i].head_dim < dim)
    i++;
  return i;
}

int32_t cgr__plan_shared_bytes(const cgr__plan_traits *traits, const cgr_layer *layer) {
  int32_t i = width_of(traits, layer);
  return i < CGR__MAX_WIDTHS ? traits->width[i].shared : 0;
}

int32_t cgr__plan_head_blocks(const cgr__plan_traits *traits, const cgr_layer *layer) {
  int32_t q_per_kv = layer->num_q_heads / layer->num_kv_heads, heads = cgr__plan_block_heads(traits, layer);
  return layer->num_kv_heads * ((q_per_kv + heads - 1) / heads);
}

/* CTAs of a layer that a multiprocessor holds at once. */
static int32_t num_ctas(const cgr__plan_traits *traits, const cgr_device_info *device, const cgr_layer *layer) {
  int32_t by_shared = device->shared_memory / cgr__plan_shared_bytes(traits, layer);
  return larger(1, smaller(traits->max_ctas, by_shared));
}

int32_t cgr__plan_device_parts(const cgr__plan_traits *traits, const cgr_device_info *device, const cgr_layer *layer) {
  if (device->kind == CGR_DEVICE_KIND_HOST)
    return traits->max_ctas;
  return larger(1, smaller(CGR__MAX_PARTS, num_ctas(traits, device, layer) * device->num_multiprocessors));
}

/* Dynamic shared memory with which a multiprocessor holds no more CTAs than the plan counts on, however few registers they take:
 * one that held more would get more of the work. One more CTA does not fit, because each takes static memory and 1 KB besides. */
static int32_t padded_shared_bytes(const cgr__plan_traits *traits, const cgr_device_info *device, const cgr_layer *layer) {
  if (device->kind == CGR_DEVICE_KIND_HOST)
    return 0;
  return device->shared_memory / (num_ctas(traits, device, layer) + 1);
}

/* Largest power of two of query tokens whose lines fit a tile. */
static int32_t tile_q(const cgr__plan_traits *traits, int32_t block_heads) {
  int32_t tile = 1;
  while (2 * tile * block_heads <= traits->tile_lines)
    tile *= 2;
  return tile;
}

static int32_t sees_of(const cgr_layer *l) {
  if (l->flags & CGR_LAYER_NO_CACHE)
    return CGR__SEES_STEP;
  return l->length_set != 0 ? CGR__SEES_OTHER : CGR__SEES_CACHE;
}

#define MAX_STRIPES 8 /* so many neighbouring heads of a token are read at about the same time */

/* All stripes have as many head blocks, and at most one CTA in 64 stays idle. */
static int32_t num_stripes(int32_t head_blocks, int32_t ctas) {
  for (int32_t stripes = smaller(MAX_STRIPES, head_blocks); stripes > 1; stripes--)
    if (head_blocks % stripes == 0 && stripes <= ctas && ctas % stripes <= ctas / 64)
      return stripes;
  return 1;
}

static int32_t element_bytes(int32_t dtype) { return cgr_dtype_size((cgr_dtype)dtype) == 1 ? 1 : 2; }

/* Of an element of K and one of V on a GPU: 2, 3 or 4. */
static int32_t cache_bytes(const cgr_layer *l) { return element_bytes(l->k.dtype) + element_bytes(l->v.dtype); }

#define READ_EFFICIENCY 0.927 /* the share of the memory's rate that a plain read reaches: 0.927 on an H200, 0.92 on an H100 */

/* Sets how a class shares the GPU with a prefill queue. Where a multiprocessor holds two CTAs, at most one has a part of the
 * decode section. Two would each get less bandwidth than one next to a q tile, and the parts would end at different times. */
static void set_mixed(const cgr_device_info *device, const cgr__plan_traits *t, const cgr_layer *l, cgr__plan_class *c) {
  int32_t i = width_of(t, l), ctas = num_ctas(t, device, l), kv_ns = t->width[i].with_prefill * cache_bytes(l) / 4;
  double rate = READ_EFFICIENCY * (double)device->memory_bandwidth;
  double kv_bytes = (double)cache_bytes(l) * t->tile_kv * t->width[i].head_dim;
  double parts = kv_ns * 1e-9 * rate / kv_bytes / c->stripes + 0.5;
  c->prefill_cost_tile = (int32_t)((int64_t)t->width[i].prefill_tile * c->cost_kv / kv_ns);
  c->prefill_cost_kv = (int32_t)((int64_t)t->width[i].prefill_kv * c->cost_kv / kv_ns);
  c->memory_parts = larger(1, parts < c->num_parts ? (int32_t)parts : c->num_parts);
  c->mixed_parts = ctas > 1 ? larger(1, c->num_parts / ctas) : smaller(c->num_parts, c->memory_parts + 1);
}

/* Halves the parts where the memory's rate is not known, and on the host, whose CTAs run one after the other. */
static void guess_mixed(cgr__plan_class *c) {
  c->prefill_cost_tile = c->cost_tile;
  c->prefill_cost_kv = c->cost_kv;
  c->mixed_parts = (c->num_parts + 1) / 2;
}

static cgr__plan_class class_of(const cgr_device_info *device, const cgr__plan_traits *t, const cgr_layer *l,
                                const cgr__plan_options *o) {
  int32_t heads = cgr__plan_block_heads(t, l);
  bool on_host = device->kind == CGR_DEVICE_KIND_HOST; /* which computes, whatever the bytes */
  int32_t width = on_host ? l->head_dim : t->width[width_of(t, l)].head_dim;
  int32_t scaled = (int32_t)((int64_t)t->cost_kv * width * (on_host ? 4 : cache_bytes(l)) / 512);
  int32_t head_blocks = cgr__plan_head_blocks(t, l);
  int32_t ctas = o->num_parts != 0 ? o->num_parts : cgr__plan_device_parts(t, device, l),
          stripes = num_stripes(head_blocks, ctas);
  cgr__plan_class c = { .num_parts = ctas / stripes,
                        .head_blocks = head_blocks / stripes,
                        .stripes = stripes,
                        .decode_query_len = larger(1, t->decode_lines / heads),
                        .decode_tile_kv = t->tile_kv,
                        .cost_tile = t->cost_tile,
                        .cost_kv = larger(1, scaled),
                        .snap = t->snap,
                        .prefill_tile_q = tile_q(t, heads),
                        .prefill_tile_kv = t->tile_kv,
                        .sees = sees_of(l),
                        .window_left = l->window_left,
                        .window_right = l->window_right,
                        .chunk = l->chunk,
                        .bidirectional = (l->flags & CGR_LAYER_BIDIRECTIONAL) != 0,
                        .max_splits = o->batch_invariant ? t->max_splits : 0,
                        .length_set = l->length_set,
                        .max_requests = o->max_requests };
  if (device->kind == CGR_DEVICE_KIND_CUDA && device->memory_bandwidth > 0)
    set_mixed(device, t, l, &c);
  else
    guess_mixed(&c);
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

/* The head of a prefill queue goes on counting after its last tile, twice for each CTA, and must stay positive. */
#define MOST_TILES (INT32_MAX - 4 * CGR__MAX_PARTS)

static void add_layer(const cgr_device_info *device, const cgr__plan_traits *t, const cgr_layer *l, int32_t index,
                      const cgr__plan_options *options, cgr__plans *plans, cgr__findings *findings) {
  cgr__plan_class c = class_of(device, t, l, options);
  char name[48];
  int64_t most_tiles = (int64_t)c.max_entries * c.head_blocks * c.stripes;
  if (most_tiles > MOST_TILES) {
    cgr__findings_add(findings, CGR_ERROR_UNSUPPORTED, field_name(index, "num_kv_heads", name, sizeof name),
                      "is %d, which with max_tokens %d makes %lld tiles, expected at most %d", l->num_kv_heads,
                      options->max_tokens, (long long)most_tiles, MOST_TILES);
    return;
  }
  int32_t i = find_class(plans, &c);
  if (i < 0) {
    cgr__findings_add(
        findings, CGR_ERROR_UNSUPPORTED, field_name(index, "num_q_heads", name, sizeof name),
        "makes a plan class more than %d: expected fewer kinds of layers (heads, head dims, windows, bits of the cache)",
        CGR__MAX_CLASSES);
    return;
  }
  int32_t lines = c.decode_query_len * cgr__plan_block_heads(t, l);
  plans->class_of[index] = (uint8_t)i;
  plans->decode_lines[i] = larger(plans->decode_lines[i], lines); /* layers of one class may have blocks of other sizes */
  plans->prefill_lines[i] = larger(plans->prefill_lines[i], t->tile_lines);
  plans->shared_bytes[i] = padded_shared_bytes(t, device, l);
  int64_t decode_partials = cgr__plan_all_decode_partials(&c),
          prefill_partials = (int64_t)c.stripes * cgr__plan_prefill_partials(&c);
  plans->num_partials = larger64(plans->num_partials, decode_partials + prefill_partials);
  plans->partial_vectors = larger64(plans->partial_vectors, decode_partials * lines + prefill_partials * t->tile_lines);
  plans->partial_dim = larger64(plans->partial_dim, l->head_dim_v);
}

void cgr__plans_make(const cgr_device_info *device, const cgr_layer *layers, const cgr__plan_traits *const *traits,
                     int32_t num_layers, const cgr__plan_options *options, cgr__plans *plans, cgr__findings *findings) {
  memset(plans, 0, sizeof *plans);
  for (int32_t i = 0; i < num_layers; i++) {
    findings->layer = i;
    if (traits[i])
      add_layer(device, traits[i], &layers[i], i, options, plans, findings);
  }
  findings->layer = -1;
  plans->num_counters = plans->num_partials + num_layers;
}

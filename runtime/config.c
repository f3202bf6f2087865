/* Reads a configuration: older and shorter structs, defaults, and every check that needs no memory. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/runtime.h"

/* Up to max_seq_len a configuration has no defaults; everything behind has. */
#define CONFIG_MIN_SIZE (offsetof(cgr_config, max_seq_len) + sizeof(int32_t))

static cgr_status range(const char *name, int64_t value, int64_t low, int64_t high) {
  if (value < low || value > high)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "config: %s is %lld, expected %lld .. %lld", name, (long long)value,
                     (long long)low, (long long)high);
  return CGR_OK;
}

/* The same for a field of element i of an array; "" for the element itself. */
static cgr_status range_at(const char *array, int32_t i, const char *field, int64_t value, int64_t low, int64_t high) {
  if (value < low || value > high)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "config: %s[%d]%s is %lld, expected %lld .. %lld", array, i, field,
                     (long long)value, (long long)low, (long long)high);
  return CGR_OK;
}

static cgr_status required(const char *name, const void *pointer) {
  if (!pointer)
    return cgr__fail(CGR_ERROR_NULL_POINTER, "config: %s is NULL, expected an address", name);
  return CGR_OK;
}

static cgr_status enumerator(const char *name, int64_t value, int64_t high) {
  if (value < 0 || value > high)
    return cgr__fail(CGR_ERROR_INVALID_ENUM, "config: %s is %lld, expected 0 .. %lld", name, (long long)value, (long long)high);
  return CGR_OK;
}

cgr_status cgr__config_read(const cgr_config *config, cgr_config *copy) {
  CGR__REQUIRE(config, "config");
  if (config->size < CONFIG_MIN_SIZE)
    return cgr__fail(CGR_ERROR_INVALID_STRUCT, "config: size is %u, expected at least %zu: use CGR_CONFIG_INIT", config->size,
                     CONFIG_MIN_SIZE);
  if (config->magic != CGR_CONFIG_MAGIC)
    return cgr__fail(CGR_ERROR_INVALID_STRUCT, "config: magic is %#x, expected %#x: use CGR_CONFIG_INIT", config->magic,
                     CGR_CONFIG_MAGIC);
  if (config->version == 0 || config->version / 10000 != CGR_VERSION_MAJOR)
    return cgr__fail(CGR_ERROR_INVALID_STRUCT, "config: version is %u, expected major version %d", config->version,
                     CGR_VERSION_MAJOR);
  memset(copy, 0, sizeof *copy);
  memcpy(copy, config, config->size < sizeof *copy ? config->size : sizeof *copy);
  copy->size = (uint32_t)sizeof *copy;
  return CGR_OK;
}

/* Element i of an array of structs that grow: the first element's size is the stride, and all have that size. */
static cgr_status read_element(const char *name, const void *array, int32_t i, size_t min_size, void *out, size_t out_size) {
  uint32_t stride = *(const uint32_t *)array;
  if (stride < min_size || stride > 4096)
    return cgr__fail(CGR_ERROR_INVALID_STRUCT, "config: %s[0].size is %u, expected at least %zu: use its _INIT", name, stride,
                     min_size);
  memset(out, 0, out_size);
  memcpy(out, (const unsigned char *)array + (size_t)i * stride, stride < out_size ? stride : out_size);
  if (*(const uint32_t *)out != stride)
    return cgr__fail(CGR_ERROR_INVALID_STRUCT, "config: %s[%d].size is %u, expected %u as in %s[0]", name, i,
                     *(const uint32_t *)out, stride, name);
  return CGR_OK;
}

static cgr_status read_limits(cgr__setup *setup) {
  cgr_config *c = &setup->config;
  CGR__TRY(range("max_requests", c->max_requests, 1, 4096));
  if (c->max_rows == 0)
    c->max_rows = c->max_requests;
  CGR__TRY(range("max_rows", c->max_rows, c->max_requests, 1 << 20));
  CGR__TRY(range("max_tokens", c->max_tokens, c->max_requests, 1 << 24));
  CGR__TRY(range("max_seq_len", c->max_seq_len, 1, 1 << 30));
  CGR__TRY(enumerator("graph_mode", c->graph_mode, CGR_GRAPH_FULL_AND_PIECEWISE));
  CGR__TRY(enumerator("attention_support", c->attention_support, CGR_ATTENTION_ALWAYS));
  if (c->ring_depth == 0)
    c->ring_depth = 4;
  CGR__TRY(range("ring_depth", c->ring_depth, 2, 64));
  if (c->max_changes == 0)
    c->max_changes = 4096;
  CGR__TRY(range("max_changes", c->max_changes, 1, 1 << 20));
  CGR__TRY(range("num_parts", c->num_parts, 0, 4096));
  if (c->wait_timeout_ms == 0)
    c->wait_timeout_ms = 30000;
  return range("wait_timeout_ms", c->wait_timeout_ms, 1, INT32_MAX);
}

static cgr_status read_group(cgr__setup *setup, int32_t i) {
  cgr_group *g = &setup->groups[i];
  CGR__TRY(read_element("groups", setup->config.groups, i, offsetof(cgr_group, page_table), g, sizeof *g));
  if (g->page_size != 16 && g->page_size != 32 && g->page_size != 64)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "config: groups[%d].page_size is %d, expected 16, 32 or 64", i, g->page_size);
  CGR__TRY(range_at("groups", i, ".num_pages", g->num_pages, 3, INT32_MAX));
  if (g->read_trash_page == 0 && g->write_trash_page == 0)
    g->write_trash_page = 1;
  CGR__TRY(range_at("groups", i, ".read_trash_page", g->read_trash_page, 0, g->num_pages - 1));
  CGR__TRY(range_at("groups", i, ".write_trash_page", g->write_trash_page, 0, g->num_pages - 1));
  if (g->read_trash_page == g->write_trash_page)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "config: groups[%d] has read and write trash page %d, expected two pages", i,
                     g->read_trash_page);
  int32_t pages = (setup->config.max_seq_len + g->page_size - 1) / g->page_size;
  if (g->page_table && g->page_table_stride < pages)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT,
                     "config: groups[%d].page_table_stride is %lld, expected at least %d (max_seq_len)", i,
                     (long long)g->page_table_stride, pages);
  if ((int64_t)pages * setup->config.max_requests > INT32_MAX)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT,
                     "config: max_seq_len is %d, expected at most %lld pages for %d requests in one step",
                     setup->config.max_seq_len, (long long)(INT32_MAX / setup->config.max_requests), setup->config.max_requests);
  setup->limits.pages_per_row[i] = pages;
  return CGR_OK;
}

/* Times the largest number of pages it stays far inside 64 bits. */
#define MAX_STRIDE ((int64_t)1 << 31)

static cgr_status check_kv_view(const cgr_kv_view *view, int32_t layer, const char *which) {
  if (!view->base)
    return cgr__fail(CGR_ERROR_NULL_POINTER, "config: layers[%d].%s.base is NULL, expected an address", layer, which);
  size_t element = cgr_dtype_size((cgr_dtype)view->dtype);
  if (element == 0)
    return cgr__fail(CGR_ERROR_INVALID_ENUM, "config: layers[%d].%s.dtype is %d, expected a cgr_dtype", layer, which,
                     view->dtype);
  int64_t unit = (int64_t)(16 / element);
  int64_t strides = view->stride_page | view->stride_token | view->stride_head;
  if (((uintptr_t)view->base & 15) != 0 || (strides & (unit - 1)) != 0 || view->stride_page <= 0 || view->stride_token <= 0 ||
      view->stride_head <= 0 || view->stride_page > MAX_STRIDE || view->stride_token > MAX_STRIDE ||
      view->stride_head > MAX_STRIDE)
    return cgr__fail(
        CGR_ERROR_INVALID_ARGUMENT,
        "config: layers[%d].%s has base %p and strides %lld, %lld, %lld, expected positive multiples of 16 bytes up to 2^31 "
        "elements",
        layer, which, view->base, (long long)view->stride_page, (long long)view->stride_token, (long long)view->stride_head);
  return CGR_OK;
}

static cgr_status check_heads(const cgr_layer *l, int32_t i, int32_t device_kind) {
  if (l->num_kv_heads < 1 || l->num_q_heads < 1 || l->num_q_heads % l->num_kv_heads != 0 || l->num_q_heads > 1024)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT,
                     "config: layers[%d] has %d query and %d KV heads, expected a multiple, at most 1024", i, l->num_q_heads,
                     l->num_kv_heads);
  int known = l->head_dim == 64 || l->head_dim == 128;
  if (device_kind == CGR_DEVICE_HOST)
    known = l->head_dim >= 8 && l->head_dim <= 256 && l->head_dim % 8 == 0;
  if (!known)
    return cgr__fail(CGR_ERROR_UNSUPPORTED, "config: layers[%d].head_dim is %d, expected %s", i, l->head_dim,
                     device_kind == CGR_DEVICE_HOST ? "8 .. 256, a multiple of 8" : "64 or 128");
  return CGR_OK;
}

static cgr_status check_layer(const cgr__setup *setup, const cgr_layer *l, int32_t i, int32_t device_kind) {
  CGR__TRY(range_at("layers", i, ".group", l->group, 0, setup->config.num_groups - 1));
  CGR__TRY(check_heads(l, i, device_kind));
  CGR__TRY(check_kv_view(&l->k, i, "k"));
  CGR__TRY(check_kv_view(&l->v, i, "v"));
  int32_t dtype = l->k.dtype;
  int known = dtype == CGR_DTYPE_BF16 || dtype == CGR_DTYPE_FP16 || (device_kind == CGR_DEVICE_HOST && dtype == CGR_DTYPE_FP32);
  if (!known || l->v.dtype != dtype)
    return cgr__fail(CGR_ERROR_UNSUPPORTED, "config: layers[%d] has K dtype %d and V dtype %d, expected %s, both the same", i,
                     dtype, l->v.dtype, device_kind == CGR_DEVICE_HOST ? "fp32, fp16 or bf16" : "fp16 or bf16");
  if (l->window != 0)
    return cgr__fail(CGR_ERROR_UNSUPPORTED, "config: layers[%d].window is %d, expected 0 in this version", i, l->window);
  if (l->softcap != 0.0f)
    return cgr__fail(CGR_ERROR_UNSUPPORTED, "config: layers[%d].softcap is %g, expected 0 in this version", i,
                     (double)l->softcap);
  if (!(l->scale >= 0.0f) || isinf(l->scale))
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "config: layers[%d].scale is %g, expected 0 or more", i, (double)l->scale);
  return CGR_OK;
}

/* A layer that reads another's cache takes over its views. */
static cgr_status resolve_source(cgr__setup *setup, cgr_layer *l, int32_t i) {
  if (l->kv_source == 0)
    return CGR_OK;
  if (l->kv_source < 1 || l->kv_source > i)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "config: layers[%d].kv_source is %d, expected 0 or an earlier layer + 1", i,
                     l->kv_source);
  const cgr_layer *source = &setup->layers[l->kv_source - 1];
  if (l->num_kv_heads != source->num_kv_heads || l->head_dim != source->head_dim || l->group != source->group)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT,
                     "config: layers[%d] reads the cache of layer %d with %d KV heads of dim %d in group "
                     "%d, expected %d, %d and %d as there",
                     i, l->kv_source - 1, l->num_kv_heads, l->head_dim, l->group, source->num_kv_heads, source->head_dim,
                     source->group);
  l->k = source->k;
  l->v = source->v;
  return CGR_OK;
}

/* Two CTAs per multiprocessor, rounded down to a power of two: with equal sequences parts then begin and end where tiles do. */
static int32_t default_parts(int32_t num_multiprocessors, int32_t head_blocks) {
  int32_t parts = 1;
  while (2 * parts * head_blocks <= 2 * num_multiprocessors)
    parts *= 2;
  return parts;
}

static cgr_status read_layers(cgr__setup *setup, int32_t device_kind, int32_t num_multiprocessors) {
  cgr_config *c = &setup->config;
  CGR__TRY(range("num_layers", c->num_layers, 1, CGR__LAYERS_MAX));
  CGR__TRY(required("layers", c->layers));
  setup->layers = calloc((size_t)c->num_layers, sizeof *setup->layers);
  if (!setup->layers)
    return cgr__fail(CGR_ERROR_OUT_OF_MEMORY, "config: no memory for %d layers", c->num_layers);
  int32_t head_blocks = 1, head_dim = 8, group = 1;
  for (int32_t i = 0; i < c->num_layers; i++) {
    cgr_layer *l = &setup->layers[i];
    CGR__TRY(read_element("layers", c->layers, i, sizeof *l, l, sizeof *l));
    CGR__TRY(resolve_source(setup, l, i));
    CGR__TRY(check_layer(setup, l, i, device_kind));
    if (l->scale == 0.0f)
      l->scale = 1.0f / sqrtf((float)l->head_dim);
    int32_t blocks = cgr__attention_head_blocks(l->num_q_heads, l->num_kv_heads);
    head_blocks = blocks > head_blocks ? blocks : head_blocks;
    head_dim = l->head_dim > head_dim ? l->head_dim : head_dim;
    group = l->num_q_heads / l->num_kv_heads > group ? l->num_q_heads / l->num_kv_heads : group;
  }
  /* One plan serves all layers: the q tile fits the widest GQA group, and the parts fill the device about twice. */
  setup->tile_q = cgr__attention_tile_q(group);
  setup->num_parts = c->num_parts;
  if (setup->num_parts == 0)
    setup->num_parts = device_kind == CGR_DEVICE_HOST ? 8 : default_parts(num_multiprocessors, head_blocks);
  setup->limits.plan_words = (int64_t)(cgr_plan_size(setup->num_parts) / 4);
  setup->limits.plan_counters = (int64_t)setup->num_parts * head_blocks;
  setup->limits.partial_vectors = (int64_t)2 * setup->num_parts * head_blocks * CGR__TILE_ROWS;
  setup->limits.partial_dim = head_dim;
  return CGR_OK;
}

static cgr_status read_buckets(cgr__setup *setup) {
  cgr_config *c = &setup->config;
  if (c->num_buckets == 0) {
    int32_t max = c->max_bucket ? c->max_bucket : (c->max_requests < 512 ? c->max_requests : 512);
    CGR__TRY(range("max_bucket", max, 1, c->max_requests));
    setup->num_buckets = cgr__ladder_default(max, setup->buckets);
    return CGR_OK;
  }
  CGR__TRY(range("num_buckets", c->num_buckets, 0, CGR__BUCKETS_MAX));
  CGR__TRY(required("buckets", c->buckets));
  for (int32_t i = 0; i < c->num_buckets; i++) {
    CGR__TRY(range_at("buckets", i, "", c->buckets[i], i == 0 ? 1 : (int64_t)c->buckets[i - 1] + 1, c->max_requests));
    setup->buckets[i] = c->buckets[i];
  }
  setup->num_buckets = c->num_buckets;
  return CGR_OK;
}

static cgr_status read_declared(cgr__setup *setup, int32_t i) {
  cgr_config *c = &setup->config;
  cgr_buffer_decl decl;
  cgr__declared *out = &setup->declared[i];
  CGR__TRY(read_element("buffers", c->buffers, i, sizeof decl, &decl, sizeof decl));
  if (!decl.name)
    return cgr__fail(CGR_ERROR_NULL_POINTER, "config: buffers[%d].name is NULL, expected a name", i);
  if (decl.name[0] == 0 || strlen(decl.name) >= sizeof out->name)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "config: buffers[%d].name is \"%.40s\", expected 1 to 31 characters", i,
                     decl.name);
  for (int32_t j = 0; j < i; j++)
    if (strcmp(decl.name, setup->declared[j].name) == 0)
      return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "config: buffers[%d].name is \"%s\", which buffers[%d] has already", i,
                       decl.name, j);
  if (decl.dimension < CGR_DIM_TOKENS || decl.dimension > CGR_DIM_ROWS)
    return cgr__fail(CGR_ERROR_INVALID_ENUM, "config: buffers[%d].dimension is %d, expected a cgr_dimension", i, decl.dimension);
  if (cgr_dtype_size((cgr_dtype)decl.dtype) == 0)
    return cgr__fail(CGR_ERROR_INVALID_ENUM, "config: buffers[%d].dtype is %d, expected a cgr_dtype", i, decl.dtype);
  if (decl.source != CGR_SOURCE_DEVICE && decl.source != CGR_SOURCE_STAGED)
    return cgr__fail(CGR_ERROR_INVALID_ENUM, "config: buffers[%d].source is %d, expected a cgr_source", i, decl.source);
  if (decl.source == CGR_SOURCE_STAGED)
    return cgr__fail(CGR_ERROR_UNSUPPORTED,
                     "config: buffers[%d].source is CGR_SOURCE_STAGED, expected CGR_SOURCE_DEVICE in this "
                     "version",
                     i);
  CGR__TRY(range_at("buffers", i, ".width", decl.width, 1, (int64_t)1 << 40));
  if (decl.padding != 0 && decl.dtype != CGR_DTYPE_I8 && decl.dtype != CGR_DTYPE_I32 && decl.dtype != CGR_DTYPE_I64 &&
      decl.dtype != CGR_DTYPE_FP32)
    return cgr__fail(CGR_ERROR_UNSUPPORTED, "config: buffers[%d].padding is %lld, expected 0 for dtype %d in this version", i,
                     (long long)decl.padding, decl.dtype);
  memcpy(out->name, decl.name, strlen(decl.name) + 1);
  out->padding = decl.padding;
  out->dimension = decl.dimension;
  out->dtype = decl.dtype;
  out->width = decl.width;
  out->rows = decl.dimension == CGR_DIM_TOKENS     ? c->max_tokens
              : decl.dimension == CGR_DIM_REQUESTS ? c->max_requests
                                                   : c->max_rows;
  return CGR_OK;
}

cgr_status cgr__setup_make(const cgr_config *config, cgr_device *dev, cgr__setup *setup) {
  cgr_device_info info = CGR_DEVICE_INFO_INIT;
  CGR__TRY(cgr__config_read(config, &setup->config));
  int error = dev->ops->info(dev, &info);
  if (error)
    return cgr__device_fail(dev, error, "config: asking the device");
  cgr_config *c = &setup->config;
  cgr__limits *limits = &setup->limits;
  CGR__TRY(read_limits(setup));
  if (c->num_groups < 1)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "config: num_groups is %d, expected 1", c->num_groups);
  if (c->num_groups > 1)
    return cgr__fail(CGR_ERROR_UNSUPPORTED, "config: num_groups is %d, expected 1 in this version", c->num_groups);
  CGR__TRY(required("groups", c->groups));
  limits->max_requests = c->max_requests;
  limits->max_rows = c->max_rows;
  limits->max_tokens = c->max_tokens;
  limits->max_seq_len = c->max_seq_len;
  limits->num_groups = c->num_groups;
  limits->num_sets = 1;
  limits->ring_depth = c->ring_depth;
  limits->max_changes = c->max_changes;
  for (int32_t i = 0; i < c->num_groups; i++)
    CGR__TRY(read_group(setup, i));
  CGR__TRY(read_layers(setup, info.kind, info.num_multiprocessors));
  CGR__TRY(read_buckets(setup));
  CGR__TRY(range("num_buffers", c->num_buffers, 0, CGR__LAYOUT_DECLARED));
  if (c->num_buffers > 0)
    CGR__TRY(required("buffers", c->buffers));
  for (int32_t i = 0; i < c->num_buffers; i++)
    CGR__TRY(read_declared(setup, i));
  return CGR_OK;
}

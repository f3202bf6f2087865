/* Reads the layers of a configuration. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/sized.h"
#include "base/status.h"
#include "cgr/names.h"
#include "runtime/config/config.h"

static void refuse_layer(cgr__findings *f, cgr_status status, int32_t layer, const char *name, int64_t value,
                         const char *expected) {
  cgr__findings_add(f, status, cgr__field_of("layers", layer, name).name, "is %lld, expected %s", (long long)value, expected);
}

/* From here on, what is found bad is set to 0, which stands for a number that is not known: it is not reported again. */

/* What is reserved for later versions whatever the kernel. */
static void check_layer_reserved(cgr_layer *l, int32_t i, cgr__findings *f) {
  if (l->reserved != 0)
    refuse_layer(f, CGR_ERROR_NEWER_STRUCT, i, "reserved", l->reserved, "0");
}

static void check_layer_heads(cgr_layer *l, int32_t i, cgr__findings *f) {
  bool kv = l->num_kv_heads >= 1;
  if (!kv)
    refuse_layer(f, CGR_ERROR_INVALID_ARGUMENT, i, "num_kv_heads", l->num_kv_heads, "at least 1");
  bool q = cgr__in_range(f, cgr__field_of("layers", i, "num_q_heads").name, l->num_q_heads, 1, CGR__MAX_Q_HEADS);
  bool grouped = kv && q && l->num_q_heads % l->num_kv_heads == 0;
  if (kv && q && !grouped)
    cgr__findings_add(f, CGR_ERROR_INVALID_ARGUMENT, cgr__field_of("layers", i, "num_q_heads").name,
                      "is %d, expected a multiple of num_kv_heads, %d", l->num_q_heads, l->num_kv_heads);
  if (!cgr__in_range(f, cgr__field_of("layers", i, "head_dim").name, l->head_dim, 1, CGR__MAX_HEAD_DIM))
    l->head_dim = 0;
  if (!cgr__in_range(f, cgr__field_of("layers", i, "head_dim_v").name, l->head_dim_v, 0, CGR__MAX_HEAD_DIM))
    l->head_dim_v = 0;
  if (!kv || l->num_kv_heads > CGR__MAX_Q_HEADS)
    l->num_kv_heads = 0;
  if (!grouped)
    l->num_q_heads = 0;
}

/* Of a cache. */
static void check_cache_dtype(int32_t *dtype, int32_t i, const char *name, cgr__findings *f) {
  if (!cgr__is_one(f, cgr__field_of("layers", i, name).name, *dtype, &cgr__dtypes))
    *dtype = 0;
}

/* Of q, k and v in the call. */
static void check_call_dtype(int32_t *dtype, int32_t i, const char *name, cgr__findings *f) {
  if (!cgr__is_whole(f, cgr__field_of("layers", i, name).name, *dtype))
    *dtype = 0;
}

/* Of results: of 4 bits there is one kind, which has a scale for each block. */
static void check_out_dtype(cgr_layer *l, int32_t i, cgr__findings *f) {
  const int32_t dim = l->head_dim_v ? l->head_dim_v : l->head_dim;
  cgr__field field = cgr__field_of("layers", i, "out_dtype");
  if (l->out_dtype != CGR_DTYPE_FP4_E2M1) {
    check_call_dtype(&l->out_dtype, i, "out_dtype", f);
  } else if (dim % CGR__BLOCK_SCALE_ELEMENTS != 0) {
    cgr__findings_add(f, CGR_ERROR_INVALID_ARGUMENT, field.name,
                      "is fp4_e2m1 with a head_dim_v of %d, expected a multiple of %d: the elements of a block scale", dim,
                      CGR__BLOCK_SCALE_ELEMENTS);
    l->out_dtype = 0;
  }
}

/* Other libraries say -1 where there is no bound. */
static void check_window(int32_t *tokens, int32_t i, const char *name, cgr__findings *f) {
  if (*tokens >= 0)
    return;
  cgr__findings_add(f, CGR_ERROR_INVALID_ARGUMENT, cgr__field_of("layers", i, name).name, "is %d, expected 0 or more; 0: no %s",
                    *tokens, name);
  *tokens = 0;
}

static void check_float(float *value, int32_t i, const char *name, cgr__findings *f) {
  if (*value >= 0.0f && !isinf(*value))
    return;
  cgr__findings_add(f, CGR_ERROR_INVALID_ARGUMENT, cgr__field_of("layers", i, name).name,
                    "is %g, expected a finite number, 0 or more", (double)*value);
  *value = 0.0f;
}

static void check_array(const float **values, int32_t i, const char *name, cgr__findings *f) {
  uintptr_t last = (uintptr_t)INT64_MAX - CGR__MAX_Q_HEADS * sizeof **values;
  if ((uintptr_t)*values % sizeof **values == 0 && (uintptr_t)*values <= last)
    return;
  cgr__findings_add(f, CGR_ERROR_INVALID_ARGUMENT, cgr__field_of("layers", i, name).name,
                    "is %p, expected a multiple of %zu bytes, at most %#llx", (const void *)*values, sizeof **values,
                    (unsigned long long)last);
  *values = NULL;
}

/* How many elements an array of a number for each query head has, if the engine tells it. */
static void check_count(int32_t count, const float *values, int32_t num_q_heads, int32_t i, const char *name, cgr__findings *f) {
  if (count == 0 || (values && (num_q_heads == 0 || count == num_q_heads)))
    return;
  if (!values)
    cgr__findings_add(f, CGR_ERROR_INVALID_ARGUMENT, cgr__field_of("layers", i, name).name, "is %d, expected 0, as %s is NULL",
                      count, name + sizeof "num_" - 1);
  else
    cgr__findings_add(f, CGR_ERROR_INVALID_ARGUMENT, cgr__field_of("layers", i, name).name,
                      "is %d, expected num_q_heads, %d, or 0 to leave it open", count, num_q_heads);
}

static void check_layer_numbers(cgr_layer *l, int32_t i, cgr__findings *f) {
  (void)cgr__is_one(f, cgr__field_of("layers", i, "flags").name, l->flags, &cgr__layer_flags);
  check_float(&l->scale, i, "scale", f);
  check_float(&l->softcap, i, "softcap", f);
  check_window(&l->window_left, i, "window_left", f);
  check_window(&l->window_right, i, "window_right", f);
  check_window(&l->chunk, i, "chunk", f);
  check_array(&l->alibi_slopes, i, "alibi_slopes", f);
  check_array(&l->sinks, i, "sinks", f);
  check_count(l->num_sinks, l->sinks, l->num_q_heads, i, "num_sinks", f);
  check_count(l->num_alibi_slopes, l->alibi_slopes, l->num_q_heads, i, "num_alibi_slopes", f);
}

/* Where there is one group, no other can be meant. How many groups there are may not be known: that has a finding of its own.
 * None at all is good for layers without a cache. */
static void check_layer_group(const cgr_config *c, cgr_layer *l, int32_t i, cgr__findings *f) {
  int32_t last = c->num_groups < 1 ? INT32_MAX : c->num_groups - 1;
  if (c->num_groups == 0 && l->flags & CGR_LAYER_NO_CACHE)
    last = 0;
  if (!cgr__in_range(f, cgr__field_of("layers", i, "group").name, l->group, 0, last))
    l->group = c->num_groups > 1 ? -1 : 0;
}

/* That a layer with a cache is of its group's set. */
static void check_layer_length_set(const cgr__setup *setup, cgr_layer *l, int32_t i, cgr__findings *f) {
  cgr__field field = cgr__field_of("layers", i, "length_set");
  const cgr_group *g = cgr__group_of(setup, l->group);
  int32_t given = l->length_set;
  cgr__read_length_set(setup, field.name, &l->length_set, f);
  if (l->length_set != given)
    return;
  if (l->group >= 0 && g->size != 0 && !(l->flags & CGR_LAYER_NO_CACHE) && l->length_set != g->length_set)
    cgr__findings_add(f, CGR_ERROR_INVALID_ARGUMENT, field.name, "is %d, expected %d as in groups[%d], whose pages are its cache",
                      l->length_set, g->length_set, l->group);
}

/* A layer with a cache is in the steps of its group's program. A bad program becomes the first. */
static void check_layer_program(const cgr__setup *setup, cgr_layer *l, int32_t i, cgr__findings *f) {
  const cgr__field field = cgr__field_of("layers", i, "program");
  const cgr_group *g = cgr__group_of(setup, l->group);
  if (!cgr__in_range_why(f, field.name, l->program, 0, setup->config.num_programs - 1, "below num_programs")) {
    l->program = 0;
    return;
  }
  if (l->group >= 0 && g->size != 0 && !(l->flags & CGR_LAYER_NO_CACHE) && l->program != g->program)
    cgr__findings_add(f, CGR_ERROR_INVALID_ARGUMENT, field.name, "is %d, expected %d as in groups[%d], whose pages are its cache",
                      l->program, g->program, l->group);
  if (l->program > 0 && l->length_set > 0)
    cgr__findings_add(f, CGR_ERROR_UNSUPPORTED, field.name, "is %d in a layer of length set %d, expected 0 in this version",
                      l->program, l->length_set);
}

/* Of two numbers, neither of which need be known. */
static bool known_differ(int32_t a, int32_t b) { return a != 0 && b != 0 && a != b; }

static void check_source(const cgr_layer *source, const cgr_layer *l, int32_t i, cgr__findings *f) {
  bool grouped = l->group >= 0 && source->group >= 0;
  if (source->flags & CGR_LAYER_NO_CACHE) {
    cgr__findings_add(f, CGR_ERROR_INVALID_ARGUMENT, cgr__field_of("layers", i, "kv_source").name,
                      "is layer %d + 1, which has CGR_LAYER_NO_CACHE, expected one with a cache", l->kv_source - 1);
    return;
  }
  int32_t dim_v = l->head_dim_v ? l->head_dim_v : l->head_dim; /* the default is not set yet */
  if (known_differ(l->num_kv_heads, source->num_kv_heads) || known_differ(l->head_dim, source->head_dim) ||
      known_differ(dim_v, source->head_dim_v) || (grouped && l->group != source->group))
    cgr__findings_add(f, CGR_ERROR_INVALID_ARGUMENT, cgr__field_of("layers", i, "kv_source").name,
                      "is layer %d + 1, which has %d KV head%s of dim %d (of v %d) in group %d, expected %d, %d (%d) and %d as "
                      "here",
                      l->kv_source - 1, source->num_kv_heads, cgr__plural(source->num_kv_heads), source->head_dim,
                      source->head_dim_v, source->group, l->num_kv_heads, l->head_dim, dim_v, l->group);
}

/* A layer that reads another's cache takes over that layer's views. Its own are ignored, so without the other there are none. */
static void resolve_source(const cgr__setup *setup, cgr_layer *l, int32_t i, cgr__findings *f) {
  static const cgr_layer none;
  const cgr_layer *source = &none;
  if (l->kv_source >= 1 && l->kv_source <= i)
    source = &setup->layers[l->kv_source - 1];
  else
    refuse_layer(f, CGR_ERROR_INVALID_ARGUMENT, i, "kv_source", l->kv_source, "0, or an earlier layer + 1");
  if (source->size != 0)
    check_source(source, l, i, f);
  l->k = source->k;
  l->v = source->v;
}

static void check_view_reserved(const cgr_layer *l, int32_t i, cgr__findings *f) {
  cgr__findings_add_used(f, cgr__field_of("layers", i, "k.reserved").name, l->k.reserved);
  cgr__findings_add_used(f, cgr__field_of("layers", i, "v.reserved").name, l->v.reserved);
}

static void check_no_stride(cgr__findings *f, int32_t i, const char *view, const char *name, int64_t stride) {
  char field[32];
  snprintf(field, sizeof field, "%s.%s", view, name);
  if (stride != 0)
    cgr__findings_add(f, CGR_ERROR_INVALID_ARGUMENT, cgr__field_of("layers", i, field).name,
                      "is %lld, expected 0 with CGR_LAYER_NO_CACHE", (long long)stride);
}

/* In a layer without a cache a view is only its dtype, which is that of k or v in the attention call. */
static void check_no_view(const cgr_layer *l, cgr_kv_view *view, int32_t i, const char *name, cgr__findings *f) {
  if (view->base || view->scale)
    cgr__findings_add(f, CGR_ERROR_INVALID_ARGUMENT, cgr__field_of("layers", i, name).name,
                      "has %s %p, expected NULL with CGR_LAYER_NO_CACHE", view->base ? "base" : "scale",
                      view->base ? view->base : (void *)view->scale);
  if (known_differ(view->dtype, l->dtype))
    cgr__findings_add(f, CGR_ERROR_INVALID_ARGUMENT, cgr__field_of("layers", i, name).name,
                      "has dtype %s, expected %s as in dtype, or 0, with CGR_LAYER_NO_CACHE",
                      cgr_dtype_name((cgr_dtype)view->dtype), cgr_dtype_name((cgr_dtype)l->dtype));
  check_no_stride(f, i, name, "stride_page", view->stride_page);
  check_no_stride(f, i, name, "stride_token", view->stride_token);
  check_no_stride(f, i, name, "stride_head", view->stride_head);
  if (!view->scale)
    (void)cgr__check_no_scale_strides(view, i, name, f);
  *view = (cgr_kv_view){ .dtype = l->dtype };
}

static void check_no_cache(cgr_layer *l, int32_t i, cgr__findings *f) {
  check_call_dtype(&l->dtype, i, "dtype", f); /* there is no cache to take it from */
  check_view_reserved(l, i, f);
  check_no_view(l, &l->k, i, "k", f);
  check_no_view(l, &l->v, i, "v", f);
  if (l->kv_source != 0)
    refuse_layer(f, CGR_ERROR_INVALID_ARGUMENT, i, "kv_source", l->kv_source, "0 with CGR_LAYER_NO_CACHE");
  l->kv_source = 0;
}

static void check_dtypes(cgr__setup *setup, cgr_layer *l, int32_t i, cgr__findings *f) {
  if (l->flags & CGR_LAYER_NO_CACHE) {
    check_no_cache(l, i, f);
  } else if (l->kv_source != 0) {
    resolve_source(setup, l, i, f);
  } else {
    check_cache_dtype(&l->k.dtype, i, "k.dtype", f);
    check_cache_dtype(&l->v.dtype, i, "v.dtype", f);
  }
  if (l->dtype != 0)
    check_call_dtype(&l->dtype, i, "dtype", f);
  if (l->q_dtype != 0)
    check_call_dtype(&l->q_dtype, i, "q_dtype", f);
  if (l->out_dtype != 0)
    check_out_dtype(l, i, f);
}

/* A call has no elements of 4 bits, so its dtype cannot be that of such a cache. What else reads the cache tells so itself. */
static void check_default_dtype(const cgr__setup *setup, cgr_layer *l, int32_t i, cgr__findings *f) {
  if (l->dtype != 0 || !cgr__layer_appends_itself(setup, l) || l->k.dtype == 0 || cgr_dtype_bits((cgr_dtype)l->k.dtype) >= 8)
    return;
  cgr__findings_add(f, CGR_ERROR_UNSUPPORTED, cgr__field_of("layers", i, "dtype").name,
                    "is 0, that of the cache, %s, expected the dtype of k and v in the call",
                    cgr_dtype_name((cgr_dtype)l->k.dtype));
}

static void set_defaults(cgr_layer *l) {
  if (l->head_dim_v == 0)
    l->head_dim_v = l->head_dim;
  if (l->dtype == 0)
    l->dtype = l->k.dtype;
  if (l->q_dtype == 0)
    l->q_dtype = l->dtype;
  if (l->out_dtype == 0)
    l->out_dtype = l->dtype;
  if (l->scale == 0.0f && l->head_dim > 0)
    l->scale = 1.0f / sqrtf((float)l->head_dim);
}

static void check_layer_cache(const cgr__setup *setup, cgr_layer *l, int32_t i, cgr__findings *f) {
  check_view_reserved(l, i, f);
  cgr__check_kv_view(setup, l, i, &l->k, "k", f);
  cgr__check_kv_view(setup, l, i, &l->v, "v", f);
  if (!cgr__check_kv_scale(setup, l, i, &l->k, "k", f))
    l->k.scale = NULL;
  if (!cgr__check_kv_scale(setup, l, i, &l->v, "v", f))
    l->v.scale = NULL;
}

/* Whether the layer's backend is there to be asked. How many there are may not be known: that has a finding of its own. */
static bool is_backend(const cgr__setup *setup, int32_t backend, int32_t i, cgr__findings *f) {
  int32_t most = setup->config.num_backends;
  char engines[64] = "; there is no other";
  if (backend >= 0 && backend <= most)
    return true;
  if (backend > 0 && !setup->backends_known)
    return false;
  if (most == 1)
    snprintf(engines, sizeof engines, " or 1 (backends[0])");
  else if (most > 1)
    snprintf(engines, sizeof engines, " or 1 .. %d (backends[0] .. backends[%d])", most, most - 1);
  cgr__findings_add(f, CGR_ERROR_INVALID_ARGUMENT, cgr__field_of("layers", i, "backend").name,
                    "is %d, expected 0 (the library's own)%s", backend, engines);
  return false;
}

/* The library's own kernels refuse such views altogether. */
static void check_default_scale(const cgr__setup *setup, const cgr_layer *l, int32_t i, cgr__findings *f) {
  if (l->backend == 0 || l->flags & CGR_LAYER_NO_CACHE || !cgr__v_is_part_of_k(setup, l))
    return;
  cgr__findings_add(
      f, CGR_ERROR_INVALID_ARGUMENT, cgr__field_of("layers", i, "scale").name,
      "is 0, expected the model's, as v is a part of k (MLA): the default, 1 / sqrt(%d), is of the cache's head_dim",
      l->head_dim);
}

static void read_layer(cgr__setup *setup, int32_t i, cgr__findings *f) {
  cgr_layer *l = &setup->layers[i];
  const cgr_config *c = &setup->config;
  if (!cgr__read_element("layers", "CGR_LAYER_INIT", c->layers, i, l, sizeof *l, f))
    return;
  const bool has_scale = l->scale != 0.0f;
  check_layer_reserved(l, i, f);
  check_layer_numbers(l, i, f);
  check_layer_group(c, l, i, f);
  check_layer_length_set(setup, l, i, f);
  check_layer_program(setup, l, i, f);
  check_layer_heads(l, i, f);
  check_dtypes(setup, l, i, f);
  check_default_dtype(setup, l, i, f);
  set_defaults(l);
  if (is_backend(setup, l->backend, i, f))
    cgr__check_backend(setup, l, i, f);
  if (cgr__owns_cache(l))
    check_layer_cache(setup, l, i, f);
  if (!has_scale)
    check_default_scale(setup, l, i, f);
  cgr__check_kernel_pages(setup, l, i, f);
  cgr__check_needs(setup, l, i, f);
}

static bool make_layer_room(cgr__setup *setup, cgr__findings *f) {
  const cgr_config *c = &setup->config;
  if (!cgr__check_list(f, "num_layers", "layers", c->num_layers, CGR__MAX_LAYERS, c->layers))
    return false;
  if (c->num_layers == 0)
    return true;
  setup->layers = calloc((size_t)c->num_layers, sizeof *setup->layers);
  if (!setup->layers)
    cgr__findings_add(f, CGR_ERROR_OUT_OF_MEMORY, "layers", "need %zu bytes of host memory",
                      (size_t)c->num_layers * sizeof *setup->layers);
  return setup->layers;
}

void cgr__setup_layers(cgr__setup *setup, cgr__findings *f) {
  cgr_config *c = &setup->config;
  if (!make_layer_room(setup, f))
    c->num_layers = 0;
  for (int32_t i = 0; i < c->num_layers; i++) {
    f->layer = i;
    read_layer(setup, i, f);
  }
  f->layer = -1;
  cgr__check_planned(setup, f);
  if (cgr__check_layer_ends(setup, f)) /* what is too long reaches into what is next to it */
    cgr__check_overlaps(setup, f);
}

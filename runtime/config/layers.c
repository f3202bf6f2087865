/* Reads the layers of a configuration. */
#include <math.h>
#include <stdlib.h>

#include "base/sized.h"
#include "base/status.h"
#include "runtime/config/config.h"

static void refuse(cgr__findings *f, cgr_status status, int32_t layer, const char *name, int64_t value, const char *expected) {
  cgr__findings_add(f, status, cgr__field_of("layers", layer, name).name, "is %lld, expected %s", (long long)value, expected);
}

/* What is reserved for later versions whatever the kernel. */
static void check_reserved(const cgr_layer *l, int32_t i, cgr__findings *f) {
  if (l->program != 0)
    refuse(f, CGR_ERROR_UNSUPPORTED, i, "program", l->program, "0 in this version");
  if (l->backend != 0)
    refuse(f, CGR_ERROR_UNSUPPORTED, i, "backend", l->backend, "0 in this version");
  if (l->length_set != 0)
    refuse(f, CGR_ERROR_UNSUPPORTED, i, "length_set", l->length_set, "0 in this version");
}

static bool check_heads(const cgr_layer *l, int32_t i, cgr__findings *f) {
  bool kv = l->num_kv_heads >= 1, q = l->num_q_heads >= 1 && l->num_q_heads <= CGR__MAX_Q_HEADS;
  if (!kv)
    refuse(f, CGR_ERROR_INVALID_ARGUMENT, i, "num_kv_heads", l->num_kv_heads, "at least 1");
  if (!q)
    refuse(f, CGR_ERROR_INVALID_ARGUMENT, i, "num_q_heads", l->num_q_heads, "1 .. 1024");
  if (kv && q && l->num_q_heads % l->num_kv_heads != 0)
    cgr__findings_add(f, CGR_ERROR_INVALID_ARGUMENT, cgr__field_of("layers", i, "num_q_heads").name,
              "is %d, expected a multiple of num_kv_heads, %d", l->num_q_heads, l->num_kv_heads);
  if (l->head_dim < 1 || l->head_dim > 1 << 16)
    refuse(f, CGR_ERROR_INVALID_ARGUMENT, i, "head_dim", l->head_dim, "1 .. 65536");
  return kv && q && l->num_q_heads % l->num_kv_heads == 0 && l->head_dim >= 1 && l->head_dim <= 1 << 16;
}

static bool check_dtype(const cgr_layer *layer, int32_t i, const char *name, int32_t dtype, cgr__findings *f) {
  (void)layer;
  if (cgr_dtype_size((cgr_dtype)dtype) > 0)
    return true;
  refuse(f, CGR_ERROR_INVALID_ENUM, i, name, dtype, "a cgr_dtype");
  return false;
}

static void check_numbers(const cgr_layer *l, int32_t i, cgr__findings *f) {
  const uint32_t known = CGR_LAYER_BIDIRECTIONAL | CGR_LAYER_NO_CACHE | CGR_LAYER_ALIBI_SQRT;
  if (l->flags & ~known)
    cgr__findings_add(f, CGR_ERROR_INVALID_ENUM, cgr__field_of("layers", i, "flags").name, "is %#x, expected CGR_LAYER_* bits", l->flags);
  if (!(l->scale >= 0.0f) || isinf(l->scale))
    cgr__findings_add(f, CGR_ERROR_INVALID_ARGUMENT, cgr__field_of("layers", i, "scale").name,
              "is %g, expected a finite number, 0 or more", (double)l->scale);
  if (!(l->softcap >= 0.0f) || isinf(l->softcap))
    cgr__findings_add(f, CGR_ERROR_INVALID_ARGUMENT, cgr__field_of("layers", i, "softcap").name,
              "is %g, expected a finite number, 0 or more", (double)l->softcap);
  if (l->window_left < 0)
    refuse(f, CGR_ERROR_INVALID_ARGUMENT, i, "window_left", l->window_left, "0 or more");
  if (l->window_right < 0)
    refuse(f, CGR_ERROR_INVALID_ARGUMENT, i, "window_right", l->window_right, "0 or more");
  if (l->chunk < 0)
    refuse(f, CGR_ERROR_INVALID_ARGUMENT, i, "chunk", l->chunk, "0 or more");
}

/* Findings of the groups themselves are not repeated for each layer. */
static bool has_group(const cgr_config *c, const cgr_layer *l, int32_t i, cgr__findings *f) {
  if (c->num_groups < 1)
    return false;
  return cgr__in_range(f, cgr__field_of("layers", i, "group").name, l->group, 0, c->num_groups - 1) && l->group < CGR__MAX_GROUPS;
}

/* A layer that reads another's cache takes its views over. */
static bool resolve_source(const cgr__setup *setup, cgr_layer *l, int32_t i, cgr__findings *f) {
  if (l->kv_source == 0)
    return true;
  if (l->kv_source < 1 || l->kv_source > i) {
    refuse(f, CGR_ERROR_INVALID_ARGUMENT, i, "kv_source", l->kv_source, "0, or an earlier layer + 1");
    return false;
  }
  const cgr_layer *source = &setup->layers[l->kv_source - 1];
  if (source->size == 0)
    return false; /* which has findings of its own */
  if (l->num_kv_heads != source->num_kv_heads || l->head_dim != source->head_dim || l->group != source->group) {
    cgr__findings_add(f, CGR_ERROR_INVALID_ARGUMENT, cgr__field_of("layers", i, "kv_source").name,
              "is layer %d + 1, which has %d KV heads of dim %d in group %d, expected %d, %d and %d as here", l->kv_source - 1,
              source->num_kv_heads, source->head_dim, source->group, l->num_kv_heads, l->head_dim, l->group);
    return false;
  }
  l->k = source->k;
  l->v = source->v;
  return true;
}

static void set_defaults(cgr_layer *l) {
  if (l->head_dim_v == 0)
    l->head_dim_v = l->head_dim;
  if (l->dtype == 0)
    l->dtype = l->k.dtype;
  if (l->out_dtype == 0)
    l->out_dtype = l->dtype;
  if (l->scale == 0.0f && l->head_dim > 0)
    l->scale = 1.0f / sqrtf((float)l->head_dim);
}

/* Whether its cache is known. */
static bool read_layer(cgr__setup *setup, int32_t i, cgr__findings *f) {
  cgr_layer *l = &setup->layers[i];
  const cgr_config *c = &setup->config;
  cgr_status status = cgr__sized_read_at("layers", c->layers, i, l, sizeof *l);
  if (status != CGR_OK) {
    cgr__findings_add_failure(f, status, cgr__field_of("layers", i, "").name);
    return false;
  }
  check_reserved(l, i, f);
  check_numbers(l, i, f);
  bool grouped = has_group(c, l, i, f);
  bool shaped = check_heads(l, i, f);
  if (!shaped || !resolve_source(setup, l, i, f))
    return false;
  bool typed = check_dtype(l, i, "k.dtype", l->k.dtype, f) & check_dtype(l, i, "v.dtype", l->v.dtype, f);
  if (!typed)
    return false;
  set_defaults(l);
  if (!(check_dtype(l, i, "dtype", l->dtype, f) & check_dtype(l, i, "out_dtype", l->out_dtype, f)))
    return false;
  cgr__variant_choose(&setup->device, l, i, c->max_tokens, f);
  if (l->kv_source != 0)
    return true;
  cgr__findings_add_used(f, cgr__field_of("layers", i, "k.reserved").name, l->k.reserved);
  cgr__findings_add_used(f, cgr__field_of("layers", i, "v.reserved").name, l->v.reserved);
  return grouped && (cgr__check_kv_view(setup, l, i, &l->k, "k", f) & cgr__check_kv_view(setup, l, i, &l->v, "v", f));
}

void cgr__setup_layers(cgr__setup *setup, cgr__findings *f) {
  const cgr_config *c = &setup->config;
  if (!cgr__in_range(f, "num_layers", c->num_layers, 0, CGR__MAX_LAYERS) || c->num_layers == 0)
    return;
  if (!c->layers) {
    cgr__findings_add(f, CGR_ERROR_NULL_POINTER, "layers", "is NULL, expected %d layers", c->num_layers);
    return;
  }
  setup->layers = calloc((size_t)c->num_layers, sizeof *setup->layers);
  if (!setup->layers) {
    cgr__findings_add(f, CGR_ERROR_OUT_OF_MEMORY, "layers", "need %zu bytes of host memory",
              (size_t)c->num_layers * sizeof *setup->layers);
    return;
  }
  for (int32_t i = 0; i < c->num_layers; i++) {
    f->layer = i;
    if (!read_layer(setup, i, f))
      setup->layers[i].size = 0;
  }
  f->layer = -1;
  cgr__check_kv_overlaps(setup, f);
}

/* What backends describe of themselves: cgr_backend_ask, and layers that contradict it. The library's own kernels answer from
 * their registry, and refuse layers by it, so they are not asked again for a layer. */
#include "cgr/ask.h"

#include <stdio.h>
#include <string.h>

#include "base/sized.h"
#include "base/status.h"
#include "cgr/names.h"
#include "runtime/config/config.h"

enum { MOST_LISTED = 8 };

/* --------------------------------------------------------------------------------------------------------------- numbers */

/* The values that a number may have: those of a list, if it has any. */
typedef struct allowed {
  const int32_t *list; /* [MOST_LISTED] */
  int32_t multiple, least, most;
} allowed;

static allowed allowed_page_sizes(const cgr_backend_needs *n) {
  return (allowed){ n->page_sizes, n->page_multiple, 0, n->max_page_size };
}

static allowed allowed_head_dims(const cgr_backend_needs *n) {
  return (allowed){ n->head_dims, n->head_dim_multiple, n->min_head_dim, n->max_head_dim };
}

static bool is_allowed(const allowed *a, int32_t value) {
  if (a->list[0] == 0)
    return (a->multiple == 0 || value % a->multiple == 0) && value >= a->least && (a->most == 0 || value <= a->most);
  for (int i = 0; i < MOST_LISTED && a->list[i] != 0; i++)
    if (a->list[i] == value)
      return true;
  return false;
}

/* "32, 64" or "a multiple of 16, at least 16, at most 1024". */
typedef struct allowed_text {
  char text[96];
} allowed_text;

static void add_number(allowed_text *out, const char *before, int32_t number) {
  const size_t used = strlen(out->text);
  snprintf(out->text + used, sizeof out->text - used, "%s%s%d", used > 0 ? ", " : "", before, number);
}

static allowed_text text_of_allowed(const allowed *a) {
  allowed_text out = { "" };
  for (int i = 0; i < MOST_LISTED && a->list[i] != 0; i++)
    add_number(&out, "", a->list[i]);
  if (a->list[0] == 0 && a->multiple > 0)
    add_number(&out, "a multiple of ", a->multiple);
  if (a->list[0] == 0 && a->least > 0)
    add_number(&out, "at least ", a->least);
  if (a->list[0] == 0 && a->most > 0)
    add_number(&out, "at most ", a->most);
  return out;
}

/* ---------------------------------------------------------------------------------------------------------------- answers */

static cgr_status check_answer_number(const char *name, const char *field, int64_t value, int64_t most) {
  if (value >= 0 && value <= most)
    return CGR_OK;
  return cgr__fail(CGR_ERROR_CALLBACK, "backend %s: describe gives %s %lld, expected 0 .. %lld", name, field, (long long)value,
                   (long long)most);
}

/* Sets of dtypes that exist. */
static cgr_status check_answer_dtypes(const char *name, const char *field, uint32_t dtypes) {
  const uint32_t known = (2u << CGR_DTYPE_I4) - (1u << CGR_DTYPE_NONE) - 1u;
  if (!(dtypes & ~known))
    return CGR_OK;
  return cgr__fail(CGR_ERROR_CALLBACK, "backend %s: describe gives %s 0x%x, expected bits 1 << cgr_dtype, within 0x%x", name,
                   field, dtypes, known);
}

/* A list ends at its first 0. */
static cgr_status check_answer_list(const char *name, const char *field, const int32_t *list) {
  for (int i = 0; i < MOST_LISTED; i++) {
    CGR__TRY(check_answer_number(name, field, list[i], INT32_MAX));
    if (i > 0 && list[i] != 0 && list[i - 1] == 0)
      return cgr__fail(CGR_ERROR_CALLBACK, "backend %s: describe gives %s[%d] %d after a 0, expected zeros after the last", name,
                       field, i, list[i]);
  }
  return CGR_OK;
}

static cgr_status check_preferred(const char *name, const cgr_backend_needs *n) {
  const allowed pages = allowed_page_sizes(n);
  if (n->max_head_dim > 0 && n->min_head_dim > n->max_head_dim)
    return cgr__fail(CGR_ERROR_CALLBACK, "backend %s: describe gives min_head_dim %d, expected at most max_head_dim (%d)", name,
                     n->min_head_dim, n->max_head_dim);
  if (n->layout != 0 && n->preferred_layout != 0 && n->preferred_layout != n->layout)
    return cgr__fail(CGR_ERROR_CALLBACK, "backend %s: describe gives preferred_layout %d, expected 0 or layout (%d)", name,
                     n->preferred_layout, n->layout);
  if (n->preferred_page_size != 0 && !is_allowed(&pages, n->preferred_page_size))
    return cgr__fail(CGR_ERROR_CALLBACK, "backend %s: describe gives preferred_page_size %d, expected %s", name,
                     n->preferred_page_size, text_of_allowed(&pages).text);
  return CGR_OK;
}

/* Whether the numbers of the answer are in range, and fit together. */
static cgr_status check_answer(const char *name, const cgr_backend_needs *n) {
  const struct {
    const char *field;
    int64_t value, most;
  } numbers[] = {
    { "abilities", (int64_t)n->abilities, 2 * (int64_t)CGR_ABILITY_SPARSE - 1 },
    { "reserved", n->reserved, 0 },
    { "layout", n->layout, CGR_LAYOUT_HND },
    { "preferred_layout", n->preferred_layout, CGR_LAYOUT_HND },
    { "page_multiple", n->page_multiple, INT32_MAX },
    { "max_page_size", n->max_page_size, INT32_MAX },
    { "preferred_page_size", n->preferred_page_size, INT32_MAX },
    { "head_dim_multiple", n->head_dim_multiple, INT32_MAX },
    { "min_head_dim", n->min_head_dim, INT32_MAX },
    { "max_head_dim", n->max_head_dim, INT32_MAX },
  };
  for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
    CGR__TRY(check_answer_number(name, numbers[i].field, numbers[i].value, numbers[i].most));
  CGR__TRY(check_answer_dtypes(name, "dtypes", n->dtypes));
  CGR__TRY(check_answer_dtypes(name, "q_dtypes", n->q_dtypes));
  CGR__TRY(check_answer_dtypes(name, "cache_dtypes", n->cache_dtypes));
  CGR__TRY(check_answer_dtypes(name, "out_dtypes", n->out_dtypes));
  CGR__TRY(check_answer_list(name, "page_sizes", n->page_sizes));
  CGR__TRY(check_answer_list(name, "head_dims", n->head_dims));
  return check_preferred(name, n);
}

static cgr_status ask_engines_backend(const cgr_backend *b, const char *name, const cgr_device_info *device,
                                      const cgr_layer *layer, cgr_backend_needs *needs) {
  const uint64_t before = cgr__failures();
  char title[64];
  *needs = (cgr_backend_needs)CGR_BACKEND_NEEDS_INIT;
  cgr_status status = b->describe(b->context, device, layer, needs);
  snprintf(title, sizeof title, "backend %.31s: describe", name);
  if (status != CGR_OK)
    return cgr__fail_returned(CGR_ERROR_CALLBACK, title, status, before);
  needs->size = (uint32_t)sizeof *needs;
  return check_answer(name, needs);
}

static cgr_status ask_library(const cgr_device_info *device, const cgr_layer *layer, cgr_backend_needs *needs) {
  *needs = (cgr_backend_needs)CGR_BACKEND_NEEDS_INIT;
  if (cgr__kernel_kind_describe(device, layer, needs))
    return CGR_OK;
  return cgr__fail(CGR_ERROR_UNSUPPORTED,
                   "backend is NULL, the library's own kernels, on compute capability %d, expected 80 or later",
                   device->kernel_capability);
}

static cgr_status ask_backend(const cgr_backend *backend, const cgr_device_info *device, const cgr_layer *layer,
                              cgr_backend_needs *needs) {
  cgr_backend b;
  cgr_device_info d;
  cgr_layer l;
  cgr_backend_needs full;
  CGR__TRY(cgr__sized_check("cgr_backend_ask: needs", "CGR_BACKEND_NEEDS_INIT", needs));
  CGR__TRY(cgr__sized_read("cgr_backend_ask: device", "CGR_DEVICE_INFO_INIT", device, &d, sizeof d));
  CGR__TRY(cgr__sized_read("cgr_backend_ask: layer", "CGR_LAYER_INIT", layer, &l, sizeof l));
  if (backend) {
    CGR__TRY(cgr__sized_read("cgr_backend_ask: backend", "CGR_BACKEND_INIT", backend, &b, sizeof b));
    const char *name = b.name ? b.name : "without a name";
    if (!b.describe)
      return cgr__fail(CGR_ERROR_UNSUPPORTED, "backend %.31s has no describe, expected a function", name);
    CGR__TRY(ask_engines_backend(&b, name, &d, &l, &full));
  } else {
    CGR__TRY(ask_library(&d, &l, &full));
  }
  cgr__sized_write(needs, &full, sizeof full);
  return CGR_OK;
}

cgr_status cgr_backend_ask(const cgr_backend *backend, const cgr_device_info *device, const cgr_layer *layer,
                           cgr_backend_needs *needs) {
  cgr_status status = ask_backend(backend, device, layer, needs);
  return cgr__fail_in("cgr_backend_ask", status);
}

/* ----------------------------------------------------------------------------------------------------------------- layers */

/* A layer, and what its backend has described for it. */
typedef struct comparison {
  const cgr__setup *setup;
  const cgr_layer *layer;
  const cgr_backend_needs *needs;
  const char *backend;
  int32_t index;
  cgr__findings *findings;
} comparison;

static void refuse(const comparison *c, const char *field, const char *is, const char *expected) {
  cgr__findings_add(c->findings, CGR_ERROR_UNSUPPORTED, cgr__field_of("layers", c->index, field).name,
                    "%s, expected %s, as backend %s describes", is, expected, c->backend);
}

static void check_number(const comparison *c, const char *field, const char *what, int32_t value, const allowed *values) {
  char is[64];
  snprintf(is, sizeof is, "is %s%d", what, value);
  if (value > 0 && !is_allowed(values, value))
    refuse(c, field, is, text_of_allowed(values).text);
}

/* Of one token and one head the order means nothing. */
static void check_layout(const comparison *c, const cgr_kv_view *view, const char *field) {
  const int32_t layout = view->stride_head < view->stride_token ? CGR_LAYOUT_NHD : CGR_LAYOUT_HND;
  char is[64];
  if (c->needs->layout == 0 || layout == c->needs->layout || view->stride_page == 0 || c->layer->num_kv_heads < 2)
    return;
  snprintf(is, sizeof is, "is %s", cgr_kv_layout_name((cgr_kv_layout)layout));
  refuse(c, field, is, cgr_kv_layout_name((cgr_kv_layout)c->needs->layout));
}

/* "bf16, fp8_e4m3". */
static allowed_text text_of_dtypes(uint32_t dtypes) {
  allowed_text out = { "" };
  size_t used = 0;
  for (int32_t d = CGR_DTYPE_FP32; d <= CGR_DTYPE_I4 && used < sizeof out.text; d++)
    if (dtypes >> d & 1u)
      used +=
          (size_t)snprintf(out.text + used, sizeof out.text - used, "%s%s", used > 0 ? ", " : "", cgr_dtype_name((cgr_dtype)d));
  return out;
}

/* `dtypes` 0: any. What is not known is none of them, and not refused. */
static void check_dtype(const comparison *c, const char *field, int32_t dtype, uint32_t dtypes) {
  char is[64];
  snprintf(is, sizeof is, "is %s", cgr_dtype_name((cgr_dtype)dtype));
  if (dtype != 0 && dtypes != 0 && !(dtypes >> dtype & 1u))
    refuse(c, field, is, text_of_dtypes(dtypes).text);
}

static void check_dtypes(const comparison *c) {
  const cgr_layer *l = c->layer;
  const cgr_backend_needs *n = c->needs;
  const uint32_t own = l->dtype != 0 ? 1u << l->dtype : 0;
  check_dtype(c, "dtype", l->dtype, n->dtypes);
  check_dtype(c, "q_dtype", l->q_dtype, own ? own | n->q_dtypes : 0);
  check_dtype(c, "out_dtype", l->out_dtype, own ? own | n->out_dtypes : 0);
  if (l->flags & CGR_LAYER_NO_CACHE)
    return;
  check_dtype(c, "k.dtype", l->k.dtype, own ? own | n->cache_dtypes : 0);
  check_dtype(c, "v.dtype", l->v.dtype, own ? own | n->cache_dtypes : 0);
}

static void check_ability(const comparison *c, uint32_t ability, bool is_needed, const char *field) {
  char expected[64];
  snprintf(expected, sizeof expected, "none that needs the ability \"%s\"", cgr_ability_name((cgr_ability)ability));
  if (is_needed && !(c->needs->abilities & ability))
    refuse(c, field, "is given", expected);
}

static bool has_head_scale(const cgr_kv_view *view) { return view->scale && view->scale_stride_head != 0; }

static void check_abilities(const comparison *c) {
  const cgr_layer *l = c->layer;
  const bool no_cache = l->flags & CGR_LAYER_NO_CACHE, cross = l->length_set != 0 && !no_cache;
  const bool is_mla = !no_cache && cgr__v_is_part_of_k(c->setup, l), differ = l->head_dim_v != l->head_dim;
  check_ability(c, CGR_ABILITY_WINDOW, l->window_left != 0, "window_left");
  check_ability(c, CGR_ABILITY_WINDOW, l->window_right != 0, "window_right");
  check_ability(c, CGR_ABILITY_CHUNK, l->chunk != 0, "chunk");
  check_ability(c, CGR_ABILITY_SOFTCAP, l->softcap != 0.0f, "softcap");
  check_ability(c, CGR_ABILITY_ALIBI, l->alibi_slopes, "alibi_slopes");
  check_ability(c, CGR_ABILITY_SINKS, l->sinks, "sinks");
  check_ability(c, CGR_ABILITY_CROSS, cross, "length_set");
  check_ability(c, CGR_ABILITY_BIDIRECTIONAL, !cross && l->flags & CGR_LAYER_BIDIRECTIONAL, "flags");
  check_ability(c, CGR_ABILITY_NO_CACHE, no_cache, "flags");
  check_ability(c, CGR_ABILITY_MLA, is_mla, "v");
  check_ability(c, CGR_ABILITY_HEAD_DIM_V, !is_mla && differ && l->head_dim != 0 && l->head_dim_v != 0, "head_dim_v");
  check_ability(c, CGR_ABILITY_HEAD_SCALES, has_head_scale(&l->k), "k.scale");
  check_ability(c, CGR_ABILITY_HEAD_SCALES, has_head_scale(&l->v), "v.scale");
}

static void check_cache(const comparison *c) {
  const cgr_layer *l = c->layer;
  const allowed pages = allowed_page_sizes(c->needs);
  const cgr_group *group = cgr__group_of(c->setup, l->group);
  const bool differ = group->kernel_page_size != group->page_size;
  char what[48];
  snprintf(what, sizeof what, "%d, whose %s is ", l->group, differ ? "kernel_page_size" : "page_size");
  if (l->group >= 0 && group->size != 0)
    check_number(c, "group", what, group->kernel_page_size, &pages);
  check_layout(c, &l->k, "k");
  check_layout(c, &l->v, "v");
}

void cgr__check_needs(const cgr__setup *setup, const cgr_layer *l, int32_t i, cgr__findings *f) {
  const bool known = l->backend > 0 && l->backend <= setup->config.num_backends;
  const cgr_backend *b = known ? &setup->backends[l->backend] : NULL;
  cgr_backend_needs needs;
  if (!b || b->size == 0 || !b->describe || setup->device.kind == 0)
    return;
  const char *name = setup->backend_names[l->backend];
  const comparison c = { setup, l, &needs, name, i, f };
  cgr_status status = ask_engines_backend(b, name, &setup->device, l, &needs);
  if (status != CGR_OK) {
    cgr__findings_add_failure(f, status, cgr__field_of("layers", i, "backend").name);
    return;
  }
  const allowed dims = allowed_head_dims(&needs);
  check_number(&c, "head_dim", "", l->head_dim, &dims);
  check_dtypes(&c);
  check_abilities(&c);
  if (!(l->flags & CGR_LAYER_NO_CACHE))
    check_cache(&c);
}

/* The KV views of the layers and their scales, one by one: alignment, strides, and that no two elements share a byte. */
#include <stdio.h>

#include "base/status.h"
#include "cgr/names.h"
#include "kernels/quantise.h"
#include "runtime/config/config.h"
#include "runtime/config/strided_set.h"

#define MAX_SPAN ((int64_t)1 << 56) /* bytes */

/* -------------------------------------------------------------------------------------------------------------- one view */

/* Without a dtype: for elements of 8 bytes, whose strides are the freest. */
static bool is_stride(int64_t stride, const cgr_kv_view *view) {
  int64_t bits = view->dtype != 0 ? cgr__known_bits(view) : 64;
  return stride > 0 && stride <= CGR__MAX_STRIDE && stride % (128 / bits) == 0;
}

/* Whether a view of the group is somewhere between its base and 2^56 bytes further on; what follows then stays inside 64 bits. */
static bool spans_memory(const cgr_layer *layer, const cgr_group *group, const cgr_kv_view *view) {
  int64_t elements = (group->num_pages - 1) * view->stride_page + (group->page_size - 1) * view->stride_token +
                     (cgr__or_one(layer->num_kv_heads) - 1) * view->stride_head + cgr__known_dim(layer, view);
  return elements <= MAX_SPAN / cgr__known_bits(view) * 8 &&
         (uintptr_t)view->base <= (uintptr_t)(INT64_MAX - cgr__known_bytes(view, elements));
}

static bool check_strides(const cgr_kv_view *view, const char *field, cgr__findings *f) {
  if (is_stride(view->stride_page, view) && is_stride(view->stride_token, view) && is_stride(view->stride_head, view))
    return true;
  cgr__findings_add(f, CGR_ERROR_INVALID_ARGUMENT, field,
                    "has strides %lld, %lld, %lld, expected positive multiples of 16 bytes up to 2^31 elements",
                    (long long)view->stride_page, (long long)view->stride_token, (long long)view->stride_head);
  return false;
}

/* Whether each head begins and ends with a byte. */
static bool check_whole_bytes(const cgr_layer *layer, const cgr_kv_view *view, const char *field, cgr__findings *f) {
  const int32_t dim = cgr__known_dim(layer, view);
  if (view->dtype == 0 || cgr__known_bits(view) >= 8 || dim % 2 == 0 || layer->head_dim == 0)
    return true;
  cgr__findings_add(f, CGR_ERROR_INVALID_ARGUMENT, field,
                    "has heads of %d elements, expected an even number: two of %s are a byte", dim,
                    cgr_dtype_name((cgr_dtype)view->dtype));
  return false;
}

/* Whether the points have places of their own, within memory. */
static bool check_places(const cgr_layer *layer, const cgr_group *group, const cgr_kv_view *view, const char *field,
                         cgr__findings *f) {
  if (!spans_memory(layer, group, view)) {
    cgr__findings_add(f, CGR_ERROR_INVALID_ARGUMENT, field,
                      "has base %p and strides %lld, %lld, %lld, expected %lld pages within 2^56 bytes of memory", view->base,
                      (long long)view->stride_page, (long long)view->stride_token, (long long)view->stride_head,
                      (long long)group->num_pages);
    return false;
  }
  cgr__strided_set l;
  if (!cgr__layer_strided_set(layer, group, view == &layer->k ? CGR__LAYER_TENSOR_K : CGR__LAYER_TENSOR_V, &l) ||
      cgr__strided_set_nests(&l))
    return true;
  cgr__findings_add(
      f, CGR_ERROR_INVALID_ARGUMENT, field,
      "has strides %lld, %lld, %lld, which overlap, expected a page of groups[%d] (%d tokens of %d head%s of %d elements) "
      "to fit",
      (long long)view->stride_page, (long long)view->stride_token, (long long)view->stride_head, layer->group, group->page_size,
      cgr__or_one(layer->num_kv_heads), cgr__plural(cgr__or_one(layer->num_kv_heads)), cgr__known_dim(layer, view));
  return false;
}

void cgr__check_kv_view(const cgr__setup *setup, const cgr_layer *layer, int32_t index, cgr_kv_view *view, const char *name,
                        cgr__findings *f) {
  cgr__field field = cgr__field_of("layers", index, name);
  if (!view->base)
    cgr__findings_add(f, CGR_ERROR_NULL_POINTER, field.name, "has base NULL, expected an address");
  if ((uintptr_t)view->base % 16 != 0)
    cgr__findings_add(f, CGR_ERROR_INVALID_ARGUMENT, field.name, "has base %p, expected a multiple of 16", view->base);
  bool placed = check_strides(view, field.name, f) && check_whole_bytes(layer, view, field.name, f) &&
                check_places(layer, cgr__group_of(setup, layer->group), view, field.name, f);
  if (!placed || view->dtype == 0)
    view->stride_page = view->stride_token = view->stride_head = 0;
}

/* ------------------------------------------------------------------------------------------------------------- one scale */

enum { SCALE_DIMS = 4 };

/* The strides of a scale, by field. */
typedef struct scale_strides {
  int64_t value[SCALE_DIMS];
} scale_strides;

static scale_strides scale_strides_of(const cgr_kv_view *view) {
  return (scale_strides){ { view->scale_stride_page, view->scale_stride_token, view->scale_stride_head, view->scale_stride_d } };
}

static cgr__field stride_field(int32_t index, const char *name, int dim) {
  static const char *const dims[SCALE_DIMS] = { "page", "token", "head", "d" };
  char field[32];
  snprintf(field, sizeof field, "%s.scale_stride_%s", name, dims[dim]);
  return cgr__field_of("layers", index, field);
}

bool cgr__check_no_scale_strides(const cgr_kv_view *view, int32_t index, const char *name, cgr__findings *f) {
  const scale_strides strides = scale_strides_of(view);
  bool none = true;
  for (int d = 0; d < SCALE_DIMS; d++)
    if (strides.value[d] != 0) {
      cgr__findings_add(f, CGR_ERROR_INVALID_ARGUMENT, stride_field(index, name, d).name, "is %lld, expected 0, as scale is NULL",
                        (long long)strides.value[d]);
      none = false;
    }
  return none;
}

static bool check_scale_strides(const cgr_kv_view *view, int32_t index, const char *name, cgr__findings *f) {
  const scale_strides strides = scale_strides_of(view);
  bool good = true;
  for (int d = 0; d < SCALE_DIMS; d++)
    if (strides.value[d] < 0 || strides.value[d] > CGR__MAX_STRIDE) {
      cgr__findings_add(f, CGR_ERROR_INVALID_ARGUMENT, stride_field(index, name, d).name,
                        "is %lld, expected 0 (the same for all) .. 2^31 elements", (long long)strides.value[d]);
      good = false;
    }
  return good;
}

/* Whether each factor has a place of its own, within memory. */
static void check_scale_places(const cgr_layer *layer, const cgr_group *group, const cgr_kv_view *view, const char *field,
                               cgr__findings *f) {
  const scale_strides s = scale_strides_of(view);
  const long long page = (long long)s.value[0], token = (long long)s.value[1], head = (long long)s.value[2],
                  d = (long long)s.value[3];
  const int64_t size = sizeof *view->scale;
  const int64_t elements = (group->num_pages - 1) * s.value[0] + (group->page_size - 1) * s.value[1] +
                           (cgr__or_one(layer->num_kv_heads) - 1) * s.value[2] + (cgr__known_dim(layer, view) - 1) * s.value[3] +
                           1;
  cgr__strided_set l;
  if (elements > MAX_SPAN / size || (int64_t)(uintptr_t)view->scale > INT64_MAX - elements * size ||
      (int64_t)(uintptr_t)view->scale < 0)
    cgr__findings_add(f, CGR_ERROR_INVALID_ARGUMENT, field,
                      "is %p with strides %lld, %lld, %lld, %lld, expected the factors of %lld pages to be within 2^56 bytes of "
                      "memory",
                      (const void *)view->scale, page, token, head, d, (long long)group->num_pages);
  else if (cgr__layer_strided_set(layer, group, view == &layer->k ? CGR__LAYER_TENSOR_K_SCALE : CGR__LAYER_TENSOR_V_SCALE, &l) &&
           !cgr__strided_set_nests(&l))
    cgr__findings_add(f, CGR_ERROR_INVALID_ARGUMENT, field,
                      "has strides %lld, %lld, %lld, %lld, which overlap, expected room for %lld pages of %d tokens of %d head%s "
                      "of %d elements; 0 for what shares a factor",
                      page, token, head, d, (long long)group->num_pages, group->page_size, cgr__or_one(layer->num_kv_heads),
                      cgr__plural(cgr__or_one(layer->num_kv_heads)), cgr__known_dim(layer, view));
}

bool cgr__check_kv_scale(const cgr__setup *setup, const cgr_layer *layer, int32_t index, const cgr_kv_view *view,
                         const char *name, cgr__findings *f) {
  char scale[16];
  int32_t before = f->count;
  if (!view->scale)
    return cgr__check_no_scale_strides(view, index, name, f);
  if (layer->backend == 0 &&
      (!cgr__is_quantised(view->dtype) || !cgr__scale_is_native(view, view == &layer->v, layer->num_kv_heads)))
    return false; /* the library's own kernels have refused it altogether */
  snprintf(scale, sizeof scale, "%s.scale", name);
  cgr__field field = cgr__field_of("layers", index, scale);
  if ((uintptr_t)view->scale % sizeof *view->scale != 0)
    cgr__findings_add(f, CGR_ERROR_INVALID_ARGUMENT, field.name, "is %p, expected a multiple of %zu bytes",
                      (const void *)view->scale, sizeof *view->scale);
  if (check_scale_strides(view, index, name, f))
    check_scale_places(layer, cgr__group_of(setup, layer->group), view, field.name, f);
  return f->count == before;
}

/* -------------------------------------------------------------------------------------------------------- kernel pages */

/* Whether a page's tokens go on from one to the next at one stride, and from page to page, so that a part of a page is a page. */
static void check_runs_on(int64_t page, int64_t token, const cgr_group *group, cgr__field field, cgr__findings *f) {
  if (page != token * group->page_size)
    cgr__findings_add(f, CGR_ERROR_INVALID_ARGUMENT, field.name,
                      "is %lld, expected %lld, page_size (%d) times the stride of a token, as kernel_page_size is %d: pages of "
                      "the backend's follow each other",
                      (long long)page, (long long)token * group->page_size, group->page_size, group->kernel_page_size);
}

void cgr__check_kernel_pages(const cgr__setup *setup, const cgr_layer *layer, int32_t index, cgr__findings *f) {
  const cgr_group *group = cgr__group_of(setup, layer->group);
  const bool own = layer->backend > 0 && layer->backend <= setup->config.num_backends;
  if (group->kernel_page_size == group->page_size || (layer->flags & CGR_LAYER_NO_CACHE) || !own ||
      (setup->backends[layer->backend].flags & CGR_BACKEND_APPENDS))
    return;
  for (int i = 0; i < 2; i++) {
    const cgr_kv_view *view = i == 0 ? &layer->k : &layer->v;
    const char *const name = i == 0 ? "k" : "v", *const field = i == 0 ? "k.stride_page" : "v.stride_page";
    if (view->stride_page != 0) /* else it has a finding */
      check_runs_on(view->stride_page, view->stride_token, group, cgr__field_of("layers", index, field), f);
    if (view->scale)
      check_runs_on(view->scale_stride_page, view->scale_stride_token, group, stride_field(index, name, 0), f);
  }
}

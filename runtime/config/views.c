/* The KV views of the layers: alignment, and that no element is at two places of one view or in two views.
 *
 * A view is a lattice: pages, tokens and heads at their strides, each point a run of head_dim elements, or of head_dim_v. Cache
 * layouts nest: sorted by stride, each dimension steps over all that the smaller ones cover. */
#include <stdlib.h>

#include "base/status.h"
#include "runtime/config/config.h"

#define DIMS 3
#define MAX_SPAN ((int64_t)1 << 56) /* bytes */

/* A view in bytes, its dimensions sorted from the largest stride down. */
typedef struct lattice {
  int64_t base;
  int64_t stride[DIMS], count[DIMS];
  int64_t run;    /* of one point */
  int64_t extent; /* from the base to the end of the last point */
  int32_t layer, group;
  const char *name;
} lattice;

static void sort(lattice *l) {
  for (int i = 1; i < DIMS; i++)
    for (int j = i; j > 0 && l->stride[j] > l->stride[j - 1]; j--) {
      int64_t stride = l->stride[j], count = l->count[j];
      l->stride[j] = l->stride[j - 1];
      l->count[j] = l->count[j - 1];
      l->stride[j - 1] = stride;
      l->count[j - 1] = count;
    }
}

/* The least for a number that is not known. */
static int32_t or_one(int32_t number) { return number > 0 ? number : 1; }

/* Elements of one point; `view` is one of the layer's own. */
static int32_t dim_of(const cgr_layer *layer, const cgr_kv_view *view) {
  return or_one(view == &layer->v ? layer->head_dim_v : layer->head_dim);
}

static int64_t size_of(const cgr_kv_view *view) { return view->dtype != 0 ? (int64_t)cgr_dtype_size((cgr_dtype)view->dtype) : 1; }

/* Only the first point is known of a view without strides, as cgr__check_kv_view leaves a bad one. */
static lattice lattice_of(const cgr_layer *layer, const cgr_group *group, const cgr_kv_view *view, int32_t index,
                          const char *name) {
  int64_t size = size_of(view);
  bool known = view->stride_page != 0;
  lattice l = { .base = (int64_t)(uintptr_t)view->base, .run = dim_of(layer, view) * size, .layer = index, .name = name };
  l.group = layer->group;
  l.stride[0] = view->stride_page * size;
  l.stride[1] = view->stride_token * size;
  l.stride[2] = view->stride_head * size;
  l.count[0] = known ? group->num_pages : 1;
  l.count[1] = known ? group->page_size : 1;
  l.count[2] = known ? or_one(layer->num_kv_heads) : 1;
  l.extent = l.run;
  for (int d = 0; d < DIMS; d++) {
    l.extent += (l.count[d] - 1) * l.stride[d];
    l.stride[d] = l.count[d] > 1 ? l.stride[d] : l.run; /* of a single head, say: the stride means nothing */
  }
  sort(&l);
  return l;
}

int64_t cgr__kv_view_bytes(const cgr_layer *layer, const cgr_group *group, const cgr_kv_view *view) {
  return lattice_of(layer, group, view, 0, "").extent;
}

/* -------------------------------------------------------------------------------------------------------------- one view */

static bool nests(const lattice *l) {
  int64_t covered = l->run;
  for (int d = DIMS - 1; d >= 0; d--) {
    if (l->count[d] > 1 && l->stride[d] < covered)
      return false;
    covered += (l->count[d] - 1) * l->stride[d];
  }
  return true;
}

/* Without a dtype: for elements of 8 bytes, whose strides are the freest. */
static bool is_stride(int64_t stride, const cgr_kv_view *view) {
  int64_t size = view->dtype != 0 ? size_of(view) : 8;
  return stride > 0 && stride <= CGR__MAX_STRIDE && stride % (16 / size) == 0;
}

/* Whether a view of the group is somewhere between its base and 2^56 bytes further on; what follows then stays inside 64 bits. */
static bool spans_memory(const cgr_layer *layer, const cgr_group *group, const cgr_kv_view *view) {
  int64_t size = size_of(view);
  int64_t elements = (group->num_pages - 1) * view->stride_page + (group->page_size - 1) * view->stride_token +
                     (or_one(layer->num_kv_heads) - 1) * view->stride_head + dim_of(layer, view);
  return elements <= MAX_SPAN / size && (int64_t)(uintptr_t)view->base <= INT64_MAX - elements * size;
}

static bool check_strides(const cgr_kv_view *view, const char *field, cgr__findings *f) {
  if (is_stride(view->stride_page, view) && is_stride(view->stride_token, view) && is_stride(view->stride_head, view))
    return true;
  cgr__findings_add(f, CGR_ERROR_INVALID_ARGUMENT, field,
                    "has strides %lld, %lld, %lld, expected positive multiples of 16 bytes up to 2^31 elements",
                    (long long)view->stride_page, (long long)view->stride_token, (long long)view->stride_head);
  return false;
}

/* Whether the points have places of their own, within memory. */
static bool check_places(const cgr_layer *layer, const cgr_group *group, const cgr_kv_view *view, const char *field,
                         cgr__findings *f) {
  if (!spans_memory(layer, group, view)) {
    cgr__findings_add(f, CGR_ERROR_INVALID_ARGUMENT, field,
                      "has base %p and strides %lld, %lld, %lld, expected %lld pages to lie within 2^56 bytes of memory",
                      view->base, (long long)view->stride_page, (long long)view->stride_token, (long long)view->stride_head,
                      (long long)group->num_pages);
    return false;
  }
  lattice l = lattice_of(layer, group, view, 0, "");
  if (nests(&l))
    return true;
  cgr__findings_add(
      f, CGR_ERROR_INVALID_ARGUMENT, field,
      "has strides %lld, %lld, %lld, which overlap, expected a page of groups[%d] (%d tokens of %d head%s of %d elements) "
      "to fit",
      (long long)view->stride_page, (long long)view->stride_token, (long long)view->stride_head, layer->group, group->page_size,
      or_one(layer->num_kv_heads), cgr__plural(or_one(layer->num_kv_heads)), dim_of(layer, view));
  return false;
}

void cgr__check_kv_view(const cgr__setup *setup, const cgr_layer *layer, int32_t index, cgr_kv_view *view, const char *name,
                        cgr__findings *f) {
  cgr__field field = cgr__field_of("layers", index, name);
  if (!view->base)
    cgr__findings_add(f, CGR_ERROR_NULL_POINTER, field.name, "has base NULL, expected an address");
  if ((uintptr_t)view->base % 16 != 0)
    cgr__findings_add(f, CGR_ERROR_INVALID_ARGUMENT, field.name, "has base %p, expected a multiple of 16", view->base);
  bool placed =
      check_strides(view, field.name, f) && check_places(layer, cgr__group_of(setup, layer->group), view, field.name, f);
  if (!placed || view->dtype == 0)
    view->stride_page = view->stride_token = view->stride_head = 0;
}

/* ------------------------------------------------------------------------------------------------------------- two views */

static int64_t floor_div(int64_t a, int64_t b) { return a / b - (a % b < 0); }

/* Bytes that dimensions d and inner ones span. */
static int64_t extent_from(const lattice *l, int d) {
  int64_t extent = l->run;
  for (; d < DIMS; d++)
    extent += (l->count[d] - 1) * l->stride[d];
  return extent;
}

/* Whether points of `a` and `b` can differ by `distance` bytes in the dimensions from `d` on. Where the strides
 * differ, the views' ranges must not meet: within all memory, or within a page when pages have the same stride. low .. high: what
 * the dimensions after d and the runs add up to at least and at most. */
static bool can_differ_by(const lattice *a, const lattice *b, int d, int64_t distance) {
  if (d == DIMS || a->stride[d] != b->stride[d])
    return distance > -extent_from(b, d) && distance < extent_from(a, d);
  int64_t low = -(extent_from(b, d + 1) - 1), high = extent_from(a, d + 1) - 1;
  int64_t first = -floor_div(high - distance, a->stride[d]), last = floor_div(distance - low, a->stride[d]);
  first = first < -(b->count[d] - 1) ? -(b->count[d] - 1) : first;
  last = last > a->count[d] - 1 ? a->count[d] - 1 : last;
  for (int64_t q = first; q <= last; q++)
    if (can_differ_by(a, b, d + 1, distance - q * a->stride[d]))
      return true;
  return false;
}

static bool meet(const lattice *a, const lattice *b) {
  if (a->base >= b->base + b->extent || b->base >= a->base + a->extent)
    return false;
  return can_differ_by(a, b, 0, b->base - a->base);
}

static bool backend_appends(const cgr__setup *setup, const cgr_layer *l) {
  bool known = l->backend >= 1 && l->backend <= setup->config.num_backends;
  return known && (setup->backends[l->backend].flags & CGR_BACKEND_APPENDS);
}

/* Whether each run of `inner` lies within the run of the same page, token and head of `outer`. */
static bool is_part(const cgr_layer *l, const cgr_group *group, const cgr_kv_view *inner, const cgr_kv_view *outer) {
  int64_t size = size_of(inner), offset = (int64_t)(uintptr_t)inner->base - (int64_t)(uintptr_t)outer->base;
  bool alike = inner->dtype == outer->dtype && inner->stride_page == outer->stride_page &&
               (group->page_size == 1 || inner->stride_token == outer->stride_token) &&
               (l->num_kv_heads == 1 || inner->stride_head == outer->stride_head);
  return alike && offset >= 0 && offset + dim_of(l, inner) * size <= dim_of(l, outer) * size;
}

/* A backend that writes k and v itself may keep one inside of the other, as MLA does. A bad view has a finding of its own, and
 * nothing more is reported of it. */
static bool may_share(const cgr__setup *setup, const lattice *a, const lattice *b) {
  const cgr_layer *l = &setup->layers[b->layer];
  const cgr_group *group = cgr__group_of(setup, l->group);
  if (a->layer != b->layer || !backend_appends(setup, l))
    return false;
  if (l->k.stride_page == 0 || l->v.stride_page == 0)
    return true;
  return is_part(l, group, &l->v, &l->k) || is_part(l, group, &l->k, &l->v);
}

static void check_against(const cgr__setup *setup, const lattice *all, int32_t count, cgr__findings *f) {
  const lattice *last = &all[count - 1];
  for (int32_t i = 0; i < count - 1; i++) {
    if (all[i].group != last->group || may_share(setup, &all[i], last) || !meet(&all[i], last))
      continue;
    bool is_same = all[i].layer == last->layer;
    f->layer = last->layer;
    cgr__findings_add(f, CGR_ERROR_INVALID_ARGUMENT, cgr__field_of("layers", last->layer, last->name).name,
                      "overlaps layers[%d].%s, expected memory of its own (or %s)", all[i].layer, all[i].name,
                      is_same ? "with CGR_BACKEND_APPENDS one inside of the other, of the same strides and dtype, as in MLA"
                              : "kv_source, to share a cache");
    f->layer = -1;
    return;
  }
}

static bool is_placed(const lattice *l) { return l->base > 0 && l->base <= INT64_MAX - l->extent; }

/* Adds a view to those that are compared, unless it is nowhere or in no group. */
static int32_t add_view(const cgr__setup *setup, int32_t i, const cgr_kv_view *view, const char *name, lattice *all,
                        int32_t count) {
  const cgr_layer *layer = &setup->layers[i];
  lattice l = lattice_of(layer, cgr__group_of(setup, layer->group), view, i, name);
  if (layer->group < 0 || !is_placed(&l))
    return count;
  all[count] = l;
  return count + 1;
}

static void compare_views(const cgr__setup *setup, lattice *all, cgr__findings *f) {
  int32_t count = 0, before = 0;
  for (int32_t i = 0; i < setup->config.num_layers; i++) {
    const cgr_layer *layer = &setup->layers[i];
    if (layer->size == 0 || !cgr__owns_cache(layer))
      continue;
    for (int32_t view = 0; view < 2; view++) {
      before = count;
      count = add_view(setup, i, view == 0 ? &layer->k : &layer->v, view == 0 ? "k" : "v", all, count);
      if (count > before)
        check_against(setup, all, count, f);
    }
  }
}

void cgr__check_kv_overlaps(const cgr__setup *setup, cgr__findings *f) {
  size_t bytes = (size_t)setup->config.num_layers * 2 * sizeof(lattice);
  lattice *all = bytes > 0 ? malloc(bytes) : NULL;
  if (bytes > 0 && !all)
    cgr__findings_add(f, CGR_ERROR_OUT_OF_MEMORY, "layers", "need %zu bytes of host memory to be compared", bytes);
  if (all)
    compare_views(setup, all, f);
  free(all);
}

bool cgr__kv_view_meets(const cgr_layer *layer, const cgr_group *group, const cgr_kv_view *view, int64_t base, int64_t bytes) {
  lattice l = lattice_of(layer, group, view, 0, ""), memory = l;
  memory.base = base;
  memory.run = memory.extent = bytes;
  for (int d = 0; d < DIMS; d++)
    memory.count[d] = 1; /* with the view's strides, so that its gaps are free */
  return bytes > 0 && is_placed(&l) && meet(&l, &memory);
}

#include "runtime/config/strided_set.h"

#include "runtime/config/config.h"

enum { DIMS = CGR__STRIDED_SET_DIMS };

static void sort_dims(cgr__strided_set *l) {
  for (int i = 1; i < DIMS; i++)
    for (int j = i; j > 0 && l->stride[j] > l->stride[j - 1]; j--) {
      int64_t stride = l->stride[j], count = l->count[j];
      l->stride[j] = l->stride[j - 1];
      l->count[j] = l->count[j - 1];
      l->stride[j - 1] = stride;
      l->count[j - 1] = count;
    }
}

/* Fills in the extent and sorts the dimensions. The stride of a dimension of one point means nothing. */
static void complete_set(cgr__strided_set *l) {
  l->span = l->run;
  for (int d = 0; d < DIMS; d++) {
    l->span += (l->count[d] - 1) * l->stride[d];
    l->stride[d] = l->count[d] > 1 ? l->stride[d] : l->run;
  }
  sort_dims(l);
}

cgr__strided_set cgr__strided_set_of_run(const void *base, int64_t bytes) {
  cgr__strided_set l = { .base = (int64_t)(uintptr_t)base, .run = bytes, .count = { 1, 1, 1, 1 } };
  complete_set(&l);
  return l;
}

bool cgr__strided_set_nests(const cgr__strided_set *l) {
  int64_t covered = l->run;
  for (int d = DIMS - 1; d >= 0; d--) {
    if (l->count[d] > 1 && l->stride[d] < covered)
      return false;
    covered += (l->count[d] - 1) * l->stride[d];
  }
  return true;
}

bool cgr__strided_set_is_placed(const cgr__strided_set *l) { return l->base > 0 && l->base <= INT64_MAX - l->span; }

/* ------------------------------------------------------------------------------------------------------------------ two */

static int64_t floor_div(int64_t a, int64_t b) { return a / b - (a % b < 0); }

/* Bytes that dimensions d and inner ones span. */
static int64_t span_from(const cgr__strided_set *l, int d) {
  int64_t span = l->run;
  for (; d < DIMS; d++)
    span += (l->count[d] - 1) * l->stride[d];
  return span;
}

/* Whether points of `a` and `b` can differ by `distance` bytes in the dimensions from `d` on. From the first dimension with
 * different strides on, only the ranges are compared. low .. high: the least and the most that the dimensions after d and the
 * runs add up to. */
static bool can_differ_by(const cgr__strided_set *a, const cgr__strided_set *b, int d, int64_t distance) {
  if (d == DIMS || a->stride[d] != b->stride[d])
    return distance > -span_from(b, d) && distance < span_from(a, d);
  int64_t low = -(span_from(b, d + 1) - 1), high = span_from(a, d + 1) - 1;
  int64_t first = -floor_div(high - distance, a->stride[d]), last = floor_div(distance - low, a->stride[d]);
  first = first < -(b->count[d] - 1) ? -(b->count[d] - 1) : first;
  last = last > a->count[d] - 1 ? a->count[d] - 1 : last;
  for (int64_t q = first; q <= last; q++)
    if (can_differ_by(a, b, d + 1, distance - q * a->stride[d]))
      return true;
  return false;
}

static bool is_run(const cgr__strided_set *l) { return l->span == l->run; }

/* A run, with the strides of another strided set, so that it may fit into that one's gaps. */
static cgr__strided_set run_among(const cgr__strided_set *run, const cgr__strided_set *other) {
  cgr__strided_set l = *run;
  for (int d = 0; d < DIMS; d++)
    l.stride[d] = other->stride[d];
  return l;
}

bool cgr__strided_sets_meet(const cgr__strided_set *a, const cgr__strided_set *b) {
  if (a->base >= b->base + b->span || b->base >= a->base + a->span)
    return false;
  const cgr__strided_set x = is_run(a) ? run_among(a, b) : *a, y = is_run(b) ? run_among(b, &x) : *b;
  return can_differ_by(&x, &y, 0, y.base - x.base);
}

/* ---------------------------------------------------------------------------------------------------------------- tensors */

const char *cgr__layer_tensor_name(cgr__layer_tensor tensor) {
  static const char *const names[CGR__NUM_LAYER_TENSORS] = { "k", "v", "k.scale", "v.scale", "alibi_slopes", "sinks" };
  return names[tensor];
}

static cgr__strided_set view_set(const cgr_layer *layer, const cgr_group *group, const cgr_kv_view *view) {
  const bool known = view->stride_page != 0;
  cgr__strided_set l = { .base = (int64_t)(uintptr_t)view->base };
  l.run = cgr__known_bytes(view, cgr__known_dim(layer, view));
  l.stride[0] = cgr__known_bytes(view, view->stride_page);
  l.stride[1] = cgr__known_bytes(view, view->stride_token);
  l.stride[2] = cgr__known_bytes(view, view->stride_head);
  l.count[0] = known ? group->num_pages : 1;
  l.count[1] = known ? group->page_size : 1;
  l.count[2] = known ? cgr__or_one(layer->num_kv_heads) : 1;
  l.count[3] = 1;
  complete_set(&l);
  return l;
}

/* A dimension that is broadcast has one point. */
static cgr__strided_set scale_of(const cgr_layer *layer, const cgr_group *group, const cgr_kv_view *view) {
  const int64_t size = sizeof *view->scale;
  const int64_t strides[DIMS] = { view->scale_stride_page, view->scale_stride_token, view->scale_stride_head,
                                  view->scale_stride_d };
  const int64_t counts[DIMS] = { group->num_pages, group->page_size, cgr__or_one(layer->num_kv_heads),
                                 cgr__known_dim(layer, view) };
  cgr__strided_set l = { .base = (int64_t)(uintptr_t)view->scale, .run = size };
  for (int d = 0; d < DIMS; d++) {
    l.stride[d] = strides[d] * size;
    l.count[d] = strides[d] > 0 ? counts[d] : 1;
  }
  complete_set(&l);
  return l;
}

bool cgr__layer_strided_set(const cgr_layer *layer, const cgr_group *group, cgr__layer_tensor tensor, cgr__strided_set *strided) {
  const int64_t heads = cgr__or_one(layer->num_q_heads) * (int64_t)sizeof(float);
  const cgr_kv_view *view = tensor == CGR__LAYER_TENSOR_K || tensor == CGR__LAYER_TENSOR_K_SCALE ? &layer->k : &layer->v;
  if (tensor == CGR__LAYER_TENSOR_SLOPES || tensor == CGR__LAYER_TENSOR_SINKS) {
    const float *array = tensor == CGR__LAYER_TENSOR_SLOPES ? layer->alibi_slopes : layer->sinks;
    *strided = cgr__strided_set_of_run(array, heads);
    return array;
  }
  if (!cgr__owns_cache(layer))
    return false;
  bool is_scale = tensor == CGR__LAYER_TENSOR_K_SCALE || tensor == CGR__LAYER_TENSOR_V_SCALE;
  if (is_scale && !view->scale)
    return false; /* or it was refused, and its strides can be any */
  *strided = is_scale ? scale_of(layer, group, view) : view_set(layer, group, view);
  return true;
}

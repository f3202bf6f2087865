/* What layers are given, compared in pairs: caches, scales, slopes and sinks must not overlap, except where sharing is meant. */
#include <stdlib.h>

#include "base/status.h"
#include "runtime/config/config.h"
#include "runtime/config/strided_set.h"

/* A tensor of a layer that has an address. */
typedef struct item {
  cgr__strided_set strided;
  int32_t layer, group;
  cgr__layer_tensor tensor;
} item;

static bool is_cache(const item *i) { return i->tensor == CGR__LAYER_TENSOR_K || i->tensor == CGR__LAYER_TENSOR_V; }

static bool is_scale(const item *i) { return i->tensor == CGR__LAYER_TENSOR_K_SCALE || i->tensor == CGR__LAYER_TENSOR_V_SCALE; }

static const cgr_kv_view *item_view(const cgr__setup *setup, const item *i) {
  const cgr_layer *l = &setup->layers[i->layer];
  return i->tensor == CGR__LAYER_TENSOR_K || i->tensor == CGR__LAYER_TENSOR_K_SCALE ? &l->k : &l->v;
}

/* Whether each page has its own: then it belongs to the pages, which groups may share. Otherwise no step writes it. */
static bool is_paged(const cgr__setup *setup, const item *i) {
  const cgr_kv_view *view = item_view(setup, i);
  return is_cache(i) || (is_scale(i) && (view->scale_stride_page > 0 || view->scale_stride_token > 0));
}

/* ---------------------------------------------------------------------------------------------------------- what may share */

bool cgr__layer_appends_itself(const cgr__setup *setup, const cgr_layer *l) {
  bool known = l->backend >= 0 && l->backend <= setup->config.num_backends;
  return known && (setup->backends[l->backend].flags & CGR_BACKEND_APPENDS);
}

/* Whether each run of `inner` is within the run of the same page, token and head of `outer`. */
static bool is_inside(const cgr_layer *l, const cgr_group *group, const cgr_kv_view *inner, const cgr_kv_view *outer) {
  int64_t offset = (int64_t)(uintptr_t)inner->base - (int64_t)(uintptr_t)outer->base;
  bool alike = inner->dtype == outer->dtype && inner->stride_page == outer->stride_page &&
               (group->page_size == 1 || inner->stride_token == outer->stride_token) &&
               (l->num_kv_heads == 1 || inner->stride_head == outer->stride_head);
  return alike && offset >= 0 &&
         offset + cgr__known_bytes(inner, cgr__known_dim(l, inner)) <= cgr__known_bytes(outer, cgr__known_dim(l, outer));
}

bool cgr__v_is_part_of_k(const cgr__setup *setup, const cgr_layer *l) {
  const bool known = l->k.stride_page != 0 && l->v.stride_page != 0 && l->head_dim > 0;
  return known && l->head_dim_v < l->head_dim && is_inside(l, cgr__group_of(setup, l->group), &l->v, &l->k);
}

/* A backend that writes k and v itself may keep one inside of the other, as MLA does. A bad view has a finding of its own, and
 * nothing more is reported of it. */
static bool kv_may_share(const cgr__setup *setup, int32_t layer) {
  const cgr_layer *l = &setup->layers[layer];
  const cgr_group *group = cgr__group_of(setup, l->group);
  if (!cgr__layer_appends_itself(setup, l))
    return false;
  if (l->k.stride_page == 0 || l->v.stride_page == 0)
    return true;
  return is_inside(l, group, &l->v, &l->k) || is_inside(l, group, &l->k, &l->v);
}

static bool is_same_scale(const cgr_kv_view *a, const cgr_kv_view *b) {
  return a->scale == b->scale && a->scale_stride_page == b->scale_stride_page && a->scale_stride_token == b->scale_stride_token &&
         a->scale_stride_head == b->scale_stride_head && a->scale_stride_d == b->scale_stride_d;
}

/* Factors that no step writes may be the same for any two views; those of pages only where v is inside k, or vice versa. */
static bool scales_may_share(const cgr__setup *setup, const item *a, const item *b) {
  if (!is_same_scale(item_view(setup, a), item_view(setup, b)))
    return false;
  return !is_paged(setup, a) || (a->layer == b->layer && kv_may_share(setup, a->layer));
}

static bool may_share(const cgr__setup *setup, const item *a, const item *b) {
  bool paged = is_paged(setup, a), other = is_paged(setup, b);
  if (paged && other && a->group != b->group)
    return true;
  if (is_cache(a) && is_cache(b))
    return a->layer == b->layer && kv_may_share(setup, a->layer);
  if (is_scale(a) && is_scale(b))
    return scales_may_share(setup, a, b);
  return !paged && !other; /* both are only read */
}

/* ---------------------------------------------------------------------------------------------------------------- findings */

/* What the message suggests instead. */
static const char *overlap_remedy(const item *a, const item *b) {
  if (is_cache(a) && is_cache(b))
    return a->layer == b->layer
               ? " (or with CGR_BACKEND_APPENDS one inside of the other, of the same strides and dtype, as in MLA)"
               : " (or kv_source, to share a cache)";
  return is_scale(a) && is_scale(b) ? " (or the same factors, which no step writes)" : "";
}

static void check_against(const cgr__setup *setup, const item *all, int32_t count, cgr__findings *f) {
  const item *last = &all[count - 1];
  for (int32_t i = 0; i < count - 1; i++) {
    if (!cgr__strided_sets_meet(&all[i].strided, &last->strided) || may_share(setup, &all[i], last))
      continue;
    f->layer = last->layer;
    cgr__findings_add(f, CGR_ERROR_INVALID_ARGUMENT,
                      cgr__field_of("layers", last->layer, cgr__layer_tensor_name(last->tensor)).name,
                      "overlaps layers[%d].%s, taking %lld bytes with num_pages %lld, expected memory of its own%s", all[i].layer,
                      cgr__layer_tensor_name(all[i].tensor), (long long)last->strided.span,
                      (long long)cgr__group_of(setup, last->group)->num_pages, overlap_remedy(&all[i], last));
    f->layer = -1;
    return;
  }
}

static void compare_items(const cgr__setup *setup, item *all, cgr__findings *f) {
  int32_t count = 0;
  for (int32_t i = 0; i < setup->config.num_layers; i++) {
    const cgr_layer *l = &setup->layers[i];
    for (int tensor = 0; tensor < CGR__NUM_LAYER_TENSORS && l->size != 0 && l->group >= 0; tensor++) {
      item *next = &all[count];
      *next = (item){ .layer = i, .group = l->group, .tensor = (cgr__layer_tensor)tensor };
      if (!cgr__layer_strided_set(l, cgr__group_of(setup, l->group), next->tensor, &next->strided) ||
          !cgr__strided_set_is_placed(&next->strided))
        continue;
      check_against(setup, all, ++count, f);
    }
  }
}

void cgr__check_overlaps(const cgr__setup *setup, cgr__findings *f) {
  size_t bytes = (size_t)setup->config.num_layers * CGR__NUM_LAYER_TENSORS * sizeof(item);
  item *all = bytes > 0 ? malloc(bytes) : NULL;
  if (bytes > 0 && !all)
    cgr__findings_add(f, CGR_ERROR_OUT_OF_MEMORY, "layers", "need %zu bytes of host memory to be compared", bytes);
  if (all)
    compare_items(setup, all, f);
  free(all);
}

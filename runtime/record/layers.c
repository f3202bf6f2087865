/* Which layers take part in a step, and how. A layer that `record` forgets, or calls in a step that it has no part in, is named
 * by its index. */
#include "runtime/record/record.h"

/* A step has the tokens of one length set. A layer without a cache takes part in steps of its own set alone, and sees their
 * tokens. A layer with a cache appends the tokens of its own set, or with kv_source may attend to those appended so far. In steps
 * of the sequences (set 0), a layer of another set attends to its cache and appends nothing. */
cgr__layer_need cgr__layer_need_of(const cgr_runtime *rt, int32_t layer, int32_t set) {
  const cgr_layer *l = &rt->setup.layers[layer];
  if (l->flags & CGR_LAYER_NO_CACHE)
    return l->length_set == set ? CGR__LAYER_ATTENDS : CGR__LAYER_STAYS_OUT;
  if (l->length_set != set)
    return set == 0 ? CGR__LAYER_READS : CGR__LAYER_STAYS_OUT;
  if (set == 0)
    return CGR__LAYER_WORKS;
  return cgr__owns_cache(l) ? CGR__LAYER_FILLS : CGR__LAYER_MAY_READ;
}

/* A backend that appends by itself says with its own `record` how the cache is filled. */
static bool is_done(const cgr__step_recorder *rec, int32_t layer) {
  const cgr__setup *setup = &rec->runtime->setup;
  bool attended = cgr__layer_is_marked(rec->marks.attended, layer), appended = cgr__layer_is_marked(rec->marks.appended, layer);
  int32_t backend = setup->layers[layer].backend;
  switch (cgr__layer_need_of(rec->runtime, layer, rec->set)) {
  case CGR__LAYER_STAYS_OUT:
  case CGR__LAYER_MAY_READ:
    return true;
  case CGR__LAYER_FILLS:
    return appended || (attended && setup->backends[backend].flags & CGR_BACKEND_APPENDS);
  default:
    return attended || appended;
  }
}

cgr_status cgr__check_layers(const cgr__step_recorder *rec) {
  int32_t num_layers = rec->runtime->setup.config.num_layers;
  for (int32_t l = 0; l < num_layers; l++)
    if (!is_done(rec, l) && rec->set > 0)
      return cgr__fail(CGR_ERROR_CALLBACK,
                       "record: layer %d of %d was left out of a step of length set %d, expected cgr_record_attention to %s it",
                       l, num_layers, rec->set,
                       cgr__layer_need_of(rec->runtime, l, rec->set) == CGR__LAYER_FILLS ? "append to" : "attend");
    else if (!is_done(rec, l))
      return cgr__fail(CGR_ERROR_CALLBACK, "record: layer %d of %d was left out, expected cgr_record_attention for each", l,
                       num_layers);
  return CGR_OK;
}

int32_t cgr__count_layers(const cgr_runtime *rt, int32_t set) {
  int32_t count = 0;
  for (int32_t l = 0; l < rt->setup.config.num_layers; l++) {
    cgr__layer_need need = cgr__layer_need_of(rt, l, set);
    count += need != CGR__LAYER_STAYS_OUT && need != CGR__LAYER_MAY_READ;
  }
  return count;
}

/* Which layers a step comes to, and what it asks of them: those that `record` forgets, or comes to in a step that they have no
 * part in, are named by their index. */
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
  bool attended = rec->marks.attended[layer / 8] & 1u << layer % 8, appended = rec->marks.appended[layer / 8] & 1u << layer % 8;
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

/* ------------------------------------------------------------------------------------------------------------- the call's */

static cgr_status refuse_flags(const cgr_attention *a, const char *which, const char *expected) {
  return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "cgr_record_attention: flags has %s for layer %d, %s, expected %s",
                   a->flags & CGR_ATTENTION_APPEND_ONLY ? "APPEND_ONLY" : "NO_APPEND", a->layer, which, expected);
}

cgr_status cgr__check_layer_call(const cgr__step_recorder *rec, const cgr_attention *a) {
  const cgr_layer *l = &rec->runtime->setup.layers[a->layer];
  const uint32_t only = a->flags & CGR_ATTENTION_APPEND_ONLY;
  if (cgr__layer_need_of(rec->runtime, a->layer, rec->set) == CGR__LAYER_STAYS_OUT)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT,
                     "cgr_record_attention: layer %d of length set %d is called in a step of set %d (variant %u), expected it in "
                     "those of %s",
                     a->layer, l->length_set, rec->set, rec->base.key.variant,
                     l->flags & CGR_LAYER_NO_CACHE || l->length_set == 0 ? "its own set" : "its own set or of set 0");
  if (l->flags & CGR_LAYER_NO_CACHE && a->flags != 0)
    return refuse_flags(a, "which has CGR_LAYER_NO_CACHE", "none");
  if (only && l->kv_source != 0)
    return cgr__fail(
        CGR_ERROR_INVALID_ARGUMENT,
        "cgr_record_attention: flags has APPEND_ONLY for layer %d, which reads layer %d's cache, expected a layer with a "
        "cache of its own",
        a->layer, l->kv_source - 1);
  if (only && l->length_set != rec->set)
    return refuse_flags(a, "whose cache the steps of another length set fill", "none");
  return CGR_OK;
}

/* What the layers of a backend must have in common: a plan that is made for one window, say, would be wrong for another. */
#include <stddef.h>
#include <string.h>

#include "runtime/config/config.h"

/* Members of a layer that a plan may be made for. */
static const struct {
  uint32_t bit;
  const char *name;
  size_t offset;
  bool is_float;
  bool may_be_unknown; /* and is 0 then */
} planned[] = {
  { CGR_PLANNED_GROUP, "group", offsetof(cgr_layer, group), false, false },
  { CGR_PLANNED_HEADS, "num_q_heads", offsetof(cgr_layer, num_q_heads), false, true },
  { CGR_PLANNED_HEADS, "num_kv_heads", offsetof(cgr_layer, num_kv_heads), false, true },
  { CGR_PLANNED_HEAD_DIM, "head_dim", offsetof(cgr_layer, head_dim), false, true },
  { CGR_PLANNED_HEAD_DIM, "head_dim_v", offsetof(cgr_layer, head_dim_v), false, true },
  { CGR_PLANNED_DTYPE, "dtype", offsetof(cgr_layer, dtype), false, true },
  { CGR_PLANNED_DTYPE, "out_dtype", offsetof(cgr_layer, out_dtype), false, true },
  { CGR_PLANNED_DTYPE, "k.dtype", offsetof(cgr_layer, k.dtype), false, true },
  { CGR_PLANNED_DTYPE, "v.dtype", offsetof(cgr_layer, v.dtype), false, true },
  { CGR_PLANNED_WINDOW, "window_left", offsetof(cgr_layer, window_left), false, false },
  { CGR_PLANNED_WINDOW, "window_right", offsetof(cgr_layer, window_right), false, false },
  { CGR_PLANNED_WINDOW, "chunk", offsetof(cgr_layer, chunk), false, false },
  { CGR_PLANNED_WINDOW, "flags", offsetof(cgr_layer, flags), false, false },
  { CGR_PLANNED_SCALE, "scale", offsetof(cgr_layer, scale), true, true },
  { CGR_PLANNED_SOFTCAP, "softcap", offsetof(cgr_layer, softcap), true, false },
};

#define NUM_PLANNED (sizeof planned / sizeof planned[0])

static double value_of(const cgr_layer *l, size_t member) {
  const unsigned char *at = (const unsigned char *)l + planned[member].offset;
  float real;
  int32_t whole;
  memcpy(&real, at, sizeof real);
  memcpy(&whole, at, sizeof whole);
  return planned[member].is_float ? (double)real : (double)whole;
}

/* Layer i against the first of its backend, for whose plan it has to be like that one. */
static void compare(const cgr__setup *setup, int32_t i, int32_t first, cgr__findings *f) {
  const cgr_layer *l = &setup->layers[i];
  for (size_t m = 0; m < NUM_PLANNED; m++) {
    double here = value_of(l, m), there = value_of(&setup->layers[first], m);
    bool known = !planned[m].may_be_unknown || (here != 0 && there != 0);
    if ((setup->backends[l->backend].planned & planned[m].bit) && known && here != there)
      cgr__findings_add(f, CGR_ERROR_INVALID_ARGUMENT, cgr__field_of("layers", i, planned[m].name).name,
                        "is %g, expected %g as in layer %d: one plan of backend %s serves both", here, there, first,
                        setup->backend_names[l->backend]);
  }
}

void cgr__check_planned(const cgr__setup *setup, cgr__findings *f) {
  int32_t first[1 + CGR__MAX_BACKENDS];
  memset(first, -1, sizeof first);
  for (int32_t i = 0; i < setup->config.num_layers; i++) {
    const cgr_layer *l = &setup->layers[i];
    if (l->size == 0 || l->backend < 0 || l->backend > setup->config.num_backends)
      continue;
    f->layer = i;
    if (first[l->backend] < 0)
      first[l->backend] = i;
    else
      compare(setup, i, first[l->backend], f);
  }
  f->layer = -1;
}

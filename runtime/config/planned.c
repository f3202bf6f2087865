/* What the layers of a backend must have in common: a plan that is made for one window, say, would be wrong for another. */
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "cgr/names.h"
#include "runtime/config/config.h"

typedef enum member_kind { NUMBER, FLAGS, DTYPE, REAL } member_kind;

/* Members of a layer that a plan may be made for. */
static const struct {
  uint32_t bit;
  const char *name;
  size_t offset;
  member_kind kind;
  bool may_be_unknown; /* and is 0 then */
} planned[] = {
  { CGR_PLANNED_GROUP, "group", offsetof(cgr_layer, group), NUMBER, false },
  { CGR_PLANNED_HEADS, "num_q_heads", offsetof(cgr_layer, num_q_heads), NUMBER, true },
  { CGR_PLANNED_HEADS, "num_kv_heads", offsetof(cgr_layer, num_kv_heads), NUMBER, true },
  { CGR_PLANNED_HEAD_DIM, "head_dim", offsetof(cgr_layer, head_dim), NUMBER, true },
  { CGR_PLANNED_HEAD_DIM, "head_dim_v", offsetof(cgr_layer, head_dim_v), NUMBER, true },
  { CGR_PLANNED_DTYPE, "dtype", offsetof(cgr_layer, dtype), DTYPE, true },
  { CGR_PLANNED_DTYPE, "q_dtype", offsetof(cgr_layer, q_dtype), DTYPE, true },
  { CGR_PLANNED_DTYPE, "out_dtype", offsetof(cgr_layer, out_dtype), DTYPE, true },
  { CGR_PLANNED_DTYPE, "k.dtype", offsetof(cgr_layer, k.dtype), DTYPE, true },
  { CGR_PLANNED_DTYPE, "v.dtype", offsetof(cgr_layer, v.dtype), DTYPE, true },
  { CGR_PLANNED_WINDOW, "window_left", offsetof(cgr_layer, window_left), NUMBER, false },
  { CGR_PLANNED_WINDOW, "window_right", offsetof(cgr_layer, window_right), NUMBER, false },
  { CGR_PLANNED_WINDOW, "chunk", offsetof(cgr_layer, chunk), NUMBER, false },
  { CGR_PLANNED_WINDOW, "flags", offsetof(cgr_layer, flags), FLAGS, false },
  { CGR_PLANNED_SCALE, "scale", offsetof(cgr_layer, scale), REAL, true },
  { CGR_PLANNED_SOFTCAP, "softcap", offsetof(cgr_layer, softcap), REAL, false },
};

#define NUM_PLANNED (sizeof planned / sizeof planned[0])

/* A member's value. */
typedef struct value {
  int32_t number;
  float real;
} value;

static value value_of(const cgr_layer *l, size_t member) {
  const unsigned char *at = (const unsigned char *)l + planned[member].offset;
  value v = { 0, 0.0f };
  if (planned[member].kind == REAL)
    memcpy(&v.real, at, sizeof v.real);
  else
    memcpy(&v.number, at, sizeof v.number);
  return v;
}

static bool is_zero(value v) { return v.number == 0 && v.real == 0.0f; }

/* In the words of the header, as its reader would write it. */
typedef struct text {
  char text[32];
} text;

static text text_of(value v, member_kind kind) {
  text t;
  if (kind == REAL)
    snprintf(t.text, sizeof t.text, "%.9g", (double)v.real); /* enough to tell two floats apart */
  else if (kind == DTYPE)
    snprintf(t.text, sizeof t.text, "%s", cgr_dtype_name((cgr_dtype)v.number));
  else if (kind == FLAGS)
    snprintf(t.text, sizeof t.text, "%#x", (unsigned)v.number);
  else
    snprintf(t.text, sizeof t.text, "%d", v.number);
  return t;
}

/* Compares layer i with the first of its backend, which it must match for the backend's plan. */
static void compare_with_first(const cgr__setup *setup, int32_t i, int32_t first, cgr__findings *f) {
  const cgr_layer *l = &setup->layers[i];
  for (size_t m = 0; m < NUM_PLANNED; m++) {
    value here = value_of(l, m), there = value_of(&setup->layers[first], m);
    bool known = !planned[m].may_be_unknown || (!is_zero(here) && !is_zero(there));
    bool differs = here.number != there.number || here.real != there.real;
    if ((setup->backends[l->backend].planned & planned[m].bit) && known && differs)
      cgr__findings_add(
          f, CGR_ERROR_INVALID_ARGUMENT, cgr__field_of("layers", i, planned[m].name).name,
          "is %s, expected %s as in layer %d: one plan of backend %s serves both; give one of them a backend of its "
          "own",
          text_of(here, planned[m].kind).text, text_of(there, planned[m].kind).text, first, setup->backend_names[l->backend]);
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
      compare_with_first(setup, i, first[l->backend], f);
  }
  f->layer = -1;
}

/* Memory of the engine's that a live runtime uses: its regions, and what cgr_memory_free refuses. Cold. */
#include <stdarg.h>
#include <stdio.h>

#include "devices/holders.h"
#include "runtime/config/strided_set.h"
#include "runtime/runtime.h"

/* --------------------------------------------------------------------------------------------------------------- regions */

cgr_status cgr_region_register(cgr_runtime *runtime, const void *base, size_t bytes, int32_t *region) {
  CGR__ONE_THREAD(runtime, "cgr_region_register");
  CGR__TRY(cgr__runtime_check_outside(runtime, "cgr_region_register"));
  CGR__REQUIRE(region, "cgr_region_register");
  cgr__holders_lock();
  cgr_status status = cgr__regions_register(&runtime->regions, base, bytes, region);
  cgr__holders_unlock();
  return status;
}

cgr_status cgr_region_move(cgr_runtime *runtime, int32_t region, const void *base, size_t bytes) {
  CGR__ONE_THREAD(runtime, "cgr_region_move");
  CGR__TRY(cgr__runtime_check_outside(runtime, "cgr_region_move"));
  cgr__holders_lock();
  cgr_status status = cgr__regions_move(&runtime->regions, region, base, bytes);
  if (status == CGR_OK)
    cgr__graphs_region_moved(&runtime->graphs, region);
  cgr__holders_unlock();
  return status;
}

cgr_status cgr_region_unregister(cgr_runtime *runtime, int32_t region) {
  CGR__ONE_THREAD(runtime, "cgr_region_unregister");
  CGR__TRY(cgr__runtime_check_outside(runtime, "cgr_region_unregister"));
  cgr__holders_lock();
  cgr_status status = cgr__regions_unregister(&runtime->regions, region);
  if (status == CGR_OK)
    cgr__graphs_region_moved(&runtime->graphs, region);
  cgr__holders_unlock();
  return status;
}

/* ----------------------------------------------------------------------------------------------------------- what is used */

/* The bytes that cgr_memory_free is to free. */
typedef struct stretch {
  const void *base;
  size_t bytes;
} stretch;

static bool stretch_meets(const stretch *s, const void *base, size_t bytes) {
  uintptr_t a = (uintptr_t)s->base, b = (uintptr_t)base;
  return a < b ? b - a < s->bytes && bytes > 0 : a - b < bytes;
}

static bool describe_use(cgr__use *use, const char *until, const char *format, ...) CGR__FORMAT(3, 4);

static bool describe_use(cgr__use *use, const char *until, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(use->what, sizeof use->what, format, arguments);
  va_end(arguments);
  use->until = until;
  return true;
}

static bool tell_field(cgr__use *use, const char *array, int32_t i, const char *field) {
  return describe_use(use, "cgr_runtime_destroy", "holds %s of a live runtime", cgr__field_of(array, i, field).name);
}

static bool uses_supplied(const cgr_runtime *rt, const stretch *s, cgr__use *use) {
  if (stretch_meets(s, rt->arena, rt->layout.bytes))
    return describe_use(use, "cgr_runtime_destroy", "holds %s of a live runtime",
                        rt->owns_arena ? "the buffers" : "device_memory");
  if (stretch_meets(s, rt->pinned, rt->layout.pinned_bytes))
    return describe_use(use, "cgr_runtime_destroy", "holds %s of a live runtime",
                        rt->owns_pinned ? "the rings" : "pinned_memory");
  for (int32_t i = 0; i < rt->setup.config.num_groups; i++)
    if (stretch_meets(s, rt->setup.groups[i].page_table, cgr__page_table_bytes(&rt->setup, i)))
      return tell_field(use, "groups", i, "page_table");
  return false;
}

/* Gaps of a view are not the layer's. */
static bool uses_layer(const cgr_runtime *rt, int32_t i, const stretch *s, cgr__use *use) {
  const cgr_layer *l = &rt->setup.layers[i];
  const cgr__strided_set memory = cgr__strided_set_of_run(s->base, (int64_t)s->bytes);
  for (int tensor = 0; tensor < CGR__NUM_LAYER_TENSORS; tensor++) {
    cgr__strided_set strided;
    if (cgr__layer_strided_set(l, &rt->setup.groups[l->group], (cgr__layer_tensor)tensor, &strided) &&
        cgr__strided_sets_meet(&strided, &memory))
      return tell_field(use, "layers", i, cgr__layer_tensor_name((cgr__layer_tensor)tensor));
  }
  return false;
}

static bool uses_graphs(const cgr_runtime *rt, const stretch *s, cgr__use *use) {
  for (int32_t i = rt->regions.first_movable; i < rt->regions.count; i++) {
    const cgr__region *r = &rt->regions.region[i];
    int32_t count = stretch_meets(s, r->base, r->bytes) ? cgr__graphs_count_region(&rt->graphs, i) : 0;
    if (count > 0)
      return describe_use(use, "cgr_region_move, cgr_region_unregister or cgr_runtime_release_graphs",
                          "holds region %d, which %d graph%s of a live runtime hold%s", i, count, cgr__plural(count),
                          count == 1 ? "s" : "");
  }
  int32_t count = cgr__graphs_count_addresses(&rt->graphs, s->base, s->bytes);
  return count > 0 && describe_use(use, "cgr_runtime_release_graphs",
                                   "is held by %d graph%s of a live runtime that can be replayed", count, cgr__plural(count));
}

static bool runtime_uses(const void *context, const void *base, size_t bytes, cgr__use *use) {
  const cgr_runtime *rt = context;
  const stretch s = { base, bytes };
  if (__atomic_load_n(&rt->dead, __ATOMIC_ACQUIRE))
    return false; /* no step will ever run */
  if (uses_supplied(rt, &s, use))
    return true;
  for (int32_t i = 0; i < rt->setup.config.num_layers; i++)
    if (uses_layer(rt, i, &s, use))
      return true;
  return uses_graphs(rt, &s, use);
}

void cgr__memory_hold(cgr_runtime *rt) {
  rt->holder = (cgr__holder){ .uses = runtime_uses, .context = rt };
  cgr__holders_add(&rt->holder);
}

void cgr__memory_let_go(cgr_runtime *rt) { cgr__holders_remove(&rt->holder); }

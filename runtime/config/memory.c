/* Memory that the caller gives a runtime: it must be large enough and aligned, and hold nothing else. All that a configuration
 * names must end in the allocation that it begins in, as far as the device gave that allocation. */
#include <stdio.h>

#include "base/status.h"
#include "devices/allocations.h"
#include "runtime/config/config.h"
#include "runtime/config/strided_set.h"

static size_t min_of(size_t a, size_t b) { return a < b ? a : b; }

static void check_supplied(const char *name, const void *memory, size_t have, size_t need, cgr__findings *f) {
  char size[32];
  snprintf(size, sizeof size, "%s_size", name);
  if (!memory && have > 0)
    cgr__findings_add(f, CGR_ERROR_NULL_POINTER, name, "is NULL, expected an address, as %s is %zu", size, have);
  if (memory && have < need)
    cgr__findings_add(f, CGR_ERROR_INVALID_ARGUMENT, size, "is %zu, expected at least %zu (cgr_runtime_memory)", have, need);
  if ((uintptr_t)memory % 256 != 0)
    cgr__findings_add(f, CGR_ERROR_INVALID_ARGUMENT, name, "is %p, expected a multiple of 256", memory);
}

/* -------------------------------------------------------------------------------------------------------------- overlaps */

/* Memory that a field of the configuration takes. */
typedef struct claim {
  const char *field;
  int64_t base, bytes; /* bytes 0: it is not given */
} claim;

/* One that ends past all memory overlaps nothing. */
static claim claim_of(const char *field, const void *base, int64_t bytes) {
  int64_t address = (int64_t)(uintptr_t)base;
  bool placed = bytes > 0 && address > 0 && address <= INT64_MAX - bytes;
  return (claim){ field, placed ? address : 0, placed ? bytes : 0 };
}

static void refuse_overlap(const char *field, const char *other, cgr__findings *f) {
  cgr__findings_add(f, CGR_ERROR_INVALID_ARGUMENT, field, "overlaps %s, expected memory of its own", other);
}

static void check_apart(const claim *a, const claim *b, cgr__findings *f) {
  bool apart = a->base + a->bytes <= b->base || b->base + b->bytes <= a->base;
  if (a->bytes > 0 && b->bytes > 0 && !apart)
    refuse_overlap(a->field, b->field, f);
}

/* Whether one of the rows of an engine's page table is in it; of a table with a bad stride the first is known. */
static bool meets_table(const cgr__setup *setup, int32_t group, const claim *s) {
  const cgr_group *g = &setup->groups[group];
  const int64_t size = sizeof *g->page_table, stride = g->page_table_stride > 0 ? g->page_table_stride * size : 1;
  int64_t rows = g->page_table_stride > 0 ? (int64_t)setup->config.max_rows + 1 : 1;
  claim row = claim_of("", g->page_table, setup->limits.pages_per_row[group] * size);
  if (row.bytes == 0 || s->bytes == 0)
    return false;
  int64_t before = s->base - row.base - row.bytes;
  int64_t first = before < 0 ? 0 : before / stride + 1; /* the first one that ends after the beginning of s */
  return first < rows && first * stride < s->base + s->bytes - row.base;
}

/* The first tensor of a layer that something overlaps stands for all. */
typedef bool (*overlap)(const cgr__setup *setup, const cgr__strided_set *tensor, const void *context);

static void check_layers(const cgr__setup *setup, const char *field, overlap overlaps, const void *context, cgr__findings *f) {
  for (int32_t i = 0; i < setup->config.num_layers; i++) {
    const cgr_layer *l = &setup->layers[i];
    for (int tensor = 0; tensor < CGR__NUM_LAYER_TENSORS && l->size != 0; tensor++) {
      cgr__strided_set strided;
      if (!cgr__layer_strided_set(l, cgr__group_of(setup, l->group), (cgr__layer_tensor)tensor, &strided) ||
          !cgr__strided_set_is_placed(&strided) || !overlaps(setup, &strided, context))
        continue;
      refuse_overlap(field, cgr__field_of("layers", i, cgr__layer_tensor_name((cgr__layer_tensor)tensor)).name, f);
      return;
    }
  }
}

static bool claim_overlaps(const cgr__setup *setup, const cgr__strided_set *tensor, const void *context) {
  const claim *s = context;
  const cgr__strided_set memory = cgr__strided_set_of_run((const void *)(uintptr_t)s->base, s->bytes);
  (void)setup;
  return s->bytes > 0 && cgr__strided_sets_meet(tensor, &memory);
}

/* Here the gaps of a view count as used: no engine keeps a page table in them. */
static bool table_overlaps(const cgr__setup *setup, const cgr__strided_set *tensor, const void *context) {
  const int32_t *group = context;
  const claim all = { "", tensor->base, tensor->span };
  return meets_table(setup, *group, &all);
}

static void check_tables(const cgr__setup *setup, const claim *supplied, int32_t count, cgr__findings *f) {
  for (int32_t i = 0; i < setup->limits.num_groups; i++) {
    cgr__field field = cgr__field_of("groups", i, "page_table");
    f->group = i;
    check_layers(setup, field.name, table_overlaps, &i, f);
    f->group = -1;
    for (int32_t j = 0; j < count; j++)
      if (meets_table(setup, i, &supplied[j]))
        refuse_overlap(supplied[j].field, field.name, f);
  }
}

/* -------------------------------------------------------------------------------------------------------------------- ends */

static void check_end(const cgr__setup *setup, const char *field, int64_t base, int64_t bytes, const char *taken,
                      cgr__findings *f) {
  size_t left, whole;
  if (cgr__allocations_is_short(setup->allocations, (const void *)(uintptr_t)base, (uint64_t)bytes, &left, &whole))
    cgr__findings_add(f, CGR_ERROR_INVALID_ARGUMENT, field,
                      "takes %lld bytes from %p on%s, expected at most %zu, where its allocation of %zu bytes ends",
                      (long long)bytes, (const void *)(uintptr_t)base, taken, left, whole);
}

static void check_layer_ends(const cgr__setup *setup, int32_t layer, cgr__findings *f) {
  const cgr_layer *l = &setup->layers[layer];
  cgr__strided_set s;
  for (int tensor = 0; tensor < CGR__NUM_LAYER_TENSORS && l->size != 0 && l->group >= 0; tensor++) {
    const cgr_group *group = cgr__group_of(setup, l->group);
    char taken[48] = "";
    if (!cgr__layer_strided_set(l, group, (cgr__layer_tensor)tensor, &s) || !cgr__strided_set_is_placed(&s))
      continue;
    if (tensor < CGR__LAYER_TENSOR_SLOPES)
      snprintf(taken, sizeof taken, " with num_pages %lld", (long long)group->num_pages);
    cgr__field field = cgr__field_of("layers", layer, cgr__layer_tensor_name((cgr__layer_tensor)tensor));
    check_end(setup, field.name, s.base, s.span, taken, f);
  }
}

bool cgr__check_layer_ends(const cgr__setup *setup, cgr__findings *f) {
  const int32_t before = f->count;
  for (int32_t i = 0; i < setup->config.num_layers; i++) {
    f->layer = i;
    check_layer_ends(setup, i, f);
  }
  f->layer = -1;
  return f->count == before;
}

static void check_ends(const cgr__setup *setup, const claim *supplied, int32_t count, cgr__findings *f) {
  for (int32_t i = 0; i < count; i++)
    if (supplied[i].bytes > 0 && supplied[i].base % 256 == 0)
      check_end(setup, supplied[i].field, supplied[i].base, supplied[i].bytes, "", f);
  for (int32_t i = 0; i < setup->limits.num_groups; i++) {
    const cgr_group *g = &setup->groups[i];
    const int64_t size = sizeof *g->page_table, rows = setup->config.max_rows;
    f->group = i;
    if (g->page_table && g->page_table_stride > 0)
      check_end(setup, cgr__field_of("groups", i, "page_table").name, (int64_t)(uintptr_t)g->page_table,
                (rows * g->page_table_stride + setup->limits.pages_per_row[i]) * size, " for max_rows + 1 rows", f);
  }
  f->group = -1;
}

void cgr__check_memory(const cgr__setup *setup, const cgr__layout *layout, cgr__findings *f) {
  const cgr_config *c = &setup->config;
  const claim supplied[] = {
    claim_of("device_memory", c->device_memory, (int64_t)min_of(c->device_memory_size, layout->bytes)),
    claim_of("pinned_memory", c->pinned_memory, (int64_t)min_of(c->pinned_memory_size, layout->pinned_bytes)),
  };
  check_supplied("device_memory", c->device_memory, c->device_memory_size, layout->bytes, f);
  check_supplied("pinned_memory", c->pinned_memory, c->pinned_memory_size, layout->pinned_bytes, f);
  for (int32_t i = 0; i < 2; i++)
    check_layers(setup, supplied[i].field, claim_overlaps, &supplied[i], f);
  check_apart(&supplied[1], &supplied[0], f);
  check_tables(setup, supplied, 2, f);
  check_ends(setup, supplied, 2, f);
}

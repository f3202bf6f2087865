/* Reads the groups of a configuration. */
#include "base/sized.h"
#include "base/status.h"
#include "runtime/config/config.h"

#define LEAST_PAGES 3 /* the trash pages and one more */

const cgr_group *cgr__group_of(const cgr__setup *setup, int32_t i) {
  static const cgr_group least = { .page_size = CGR__PAGE_SIZE_UNIT,
                                   .num_pages = LEAST_PAGES,
                                   .kernel_page_size = CGR__PAGE_SIZE_UNIT };
  bool known = i >= 0 && i < setup->config.num_groups && i < CGR__MAX_GROUPS && setup->groups[i].size != 0;
  return known ? &setup->groups[i] : &least;
}

static void check_trash_pages(const cgr_group *g, int32_t i, cgr__findings *f) {
  cgr__in_range_why(f, cgr__field_of("groups", i, "read_trash_page").name, g->read_trash_page, 0, g->num_pages - 1,
                    "below num_pages");
  cgr__in_range_why(f, cgr__field_of("groups", i, "write_trash_page").name, g->write_trash_page, 0, g->num_pages - 1,
                    "below num_pages");
  if (g->read_trash_page == g->write_trash_page)
    cgr__findings_add(f, CGR_ERROR_INVALID_ARGUMENT, cgr__field_of("groups", i, "write_trash_page").name,
                      "is %d, expected another page than read_trash_page", g->write_trash_page);
}

/* A bad one becomes page_size. `most`: the group with its largest page size and number of pages. */
static void check_kernel_pages(cgr_group *g, const cgr_group *most, int32_t i, cgr__findings *f) {
  const int32_t size = g->kernel_page_size, each = size > 0 ? g->page_size / size : 1;
  const bool paged = most->page_size == g->page_size; /* else the page size has a finding */
  if (paged && (size < 1 || g->page_size % size != 0 || (size != g->page_size && (size & (size - 1)) != 0))) {
    cgr__findings_add(f, CGR_ERROR_INVALID_ARGUMENT, cgr__field_of("groups", i, "kernel_page_size").name,
                      "is %d, expected a power of two that divides page_size (%d), or 0 (page_size)", size, g->page_size);
    g->kernel_page_size = g->page_size;
  } else if (!paged) {
    g->kernel_page_size = g->page_size;
  } else if (g->num_pages > INT32_MAX / each) {
    cgr__findings_add(f, CGR_ERROR_INVALID_ARGUMENT, cgr__field_of("groups", i, "num_pages").name,
                      "is %lld, expected at most %d, with %d pages of kernel_page_size (%d) in each", (long long)g->num_pages,
                      INT32_MAX / each, each, size);
    g->num_pages = INT32_MAX / each;
  }
}

/* `pages`: of a row with the most tokens that it may have in the group's length set. */
static void check_group_pages(const cgr_config *c, int32_t set, int64_t pages, cgr__findings *f) {
  if (pages * c->max_requests > INT32_MAX)
    cgr__findings_add(f, CGR_ERROR_INVALID_ARGUMENT, cgr__max_len_field(set).name,
                      "is %d, expected at most %lld pages for %d request%s in one step", cgr__max_len(c, set),
                      (long long)(INT32_MAX / c->max_requests), c->max_requests, cgr__plural(c->max_requests));
}

/* The engine's own table. A bad stride becomes 0: then only the first row is known. */
static void check_table(cgr_group *g, int64_t pages, int32_t i, cgr__findings *f) {
  bool strided = g->page_table_stride >= pages && g->page_table_stride <= CGR__MAX_STRIDE;
  if (g->page_table && !strided)
    cgr__findings_add(f, CGR_ERROR_INVALID_ARGUMENT, cgr__field_of("groups", i, "page_table_stride").name,
                      "is %lld, expected at least %lld (%s / page_size) and at most 2^31", (long long)g->page_table_stride,
                      (long long)pages, cgr__max_len_field(g->length_set).name);
  const uintptr_t last = (uintptr_t)INT64_MAX - ((uintptr_t)1 << 56); /* with room for the largest table after it */
  if ((uintptr_t)g->page_table % sizeof(int32_t) != 0 || (uintptr_t)g->page_table > last)
    cgr__findings_add(f, CGR_ERROR_INVALID_ARGUMENT, cgr__field_of("groups", i, "page_table").name,
                      "is %p, expected a multiple of 4, at most %#llx", (const void *)g->page_table, (unsigned long long)last);
  if (!strided)
    g->page_table_stride = 0;
}

/* A bad page size or number of pages is replaced, so that it causes no further findings: in `most` by the largest value, for what
 * the pages must hold; in *g by the smallest, for what the caches must have room for. */
static void check_group_numbers(cgr__setup *setup, int32_t i, cgr__findings *f) {
  cgr_group *g = &setup->groups[i], most = *g;
  bool paged =
      g->page_size >= CGR__PAGE_SIZE_UNIT && g->page_size <= CGR__MAX_PAGE_SIZE && g->page_size % CGR__PAGE_SIZE_UNIT == 0;
  if (!paged) {
    cgr__findings_add(f, g->page_size < 1 ? CGR_ERROR_INVALID_ARGUMENT : CGR_ERROR_UNSUPPORTED,
                      cgr__field_of("groups", i, "page_size").name, "is %d, expected a multiple of %d, at most %d", g->page_size,
                      CGR__PAGE_SIZE_UNIT, CGR__MAX_PAGE_SIZE);
    most.page_size = CGR__MAX_PAGE_SIZE;
    g->page_size = CGR__PAGE_SIZE_UNIT;
  }
  if (!cgr__in_range_why(f, cgr__field_of("groups", i, "num_pages").name, g->num_pages, LEAST_PAGES, INT32_MAX,
                         "two pages are reserved: read_trash_page and write_trash_page")) {
    most.num_pages = INT32_MAX;
    g->num_pages = LEAST_PAGES;
  }
  check_kernel_pages(g, &most, i, f);
  cgr__read_length_set(setup, cgr__field_of("groups", i, "length_set").name, &g->length_set, f);
  int64_t pages = ((int64_t)cgr__max_len(&setup->config, g->length_set) + most.page_size - 1) / most.page_size;
  check_trash_pages(&most, i, f);
  check_group_pages(&setup->config, g->length_set, pages * (g->page_size / g->kernel_page_size), f);
  check_table(g, pages, i, f);
  setup->pool_tokens[i] = (most.num_pages - 2) * most.page_size;
  setup->limits.pages_per_row[i] = (int32_t)pages;
  setup->limits.trash_page[i] = g->read_trash_page;
  setup->limits.pages_each[i] = g->page_size / g->kernel_page_size;
}

/* Only the target has other lengths than its sequences. A bad program becomes the first. */
static void check_group_program(const cgr_config *c, cgr_group *g, int32_t i, cgr__findings *f) {
  const cgr__field field = cgr__field_of("groups", i, "program");
  cgr__findings_add_used(f, cgr__field_of("groups", i, "reserved").name, g->reserved);
  if (!cgr__in_range_why(f, field.name, g->program, 0, c->num_programs - 1, "below num_programs"))
    g->program = 0;
  if (g->program == 0 || g->length_set == 0)
    return;
  cgr__findings_add(f, CGR_ERROR_UNSUPPORTED, field.name, "is %d in a group of length set %d, expected 0 in this version",
                    g->program, g->length_set);
  g->program = 0;
}

static void read_group(cgr__setup *setup, int32_t i, cgr__findings *f) {
  cgr_group *g = &setup->groups[i];
  if (!cgr__read_element("groups", "CGR_GROUP_INIT", setup->config.groups, i, g, sizeof *g, f))
    return;
  if (g->page_size == 0)
    g->page_size = CGR__PAGE_SIZE_UNIT;
  if (g->kernel_page_size == 0)
    g->kernel_page_size = g->page_size;
  if (g->read_trash_page == 0 && g->write_trash_page == 0)
    g->write_trash_page = 1;
  check_group_numbers(setup, i, f);
  check_group_program(&setup->config, g, i, f);
}

/* Whether there is nothing that pages could hold. */
static bool needs_no_groups(const cgr_config *c) {
  cgr_layer layer;
  bool known = c->num_layers > 0 && c->num_layers <= CGR__MAX_LAYERS && c->layers;
  for (int32_t i = 0; known && i < c->num_layers; i++)
    known = cgr__sized_read_at("layers", "CGR_LAYER_INIT", c->layers, i, &layer, sizeof layer) == CGR_OK &&
            layer.flags & CGR_LAYER_NO_CACHE;
  return known;
}

void cgr__setup_groups(cgr__setup *setup, cgr__findings *f) {
  cgr_config *c = &setup->config;
  if (c->num_groups == 0 && needs_no_groups(c))
    return;
  bool counted = c->num_groups >= 1 && c->num_groups <= CGR__MAX_GROUPS; /* or the array may have any length */
  if (!counted)
    cgr__findings_add(f, CGR_ERROR_INVALID_ARGUMENT, "num_groups",
                      "is %d, expected 1 .. %d; 0 only if there are layers, and all of them have CGR_LAYER_NO_CACHE",
                      c->num_groups, CGR__MAX_GROUPS);
  if (!c->groups)
    cgr__findings_add(f, CGR_ERROR_NULL_POINTER, "groups", "is NULL, expected an array of groups (num_groups)");
  if (!counted || !c->groups)
    return;
  for (int32_t i = 0; i < c->num_groups; i++) {
    f->group = i;
    read_group(setup, i, f);
  }
  f->group = -1;
}

/* ----------------------------------------------------------------------------------------------------------- with the layers */

cgr__window_spans cgr__group_window_spans(const cgr__setup *setup, int32_t group) {
  cgr__window_spans window_spans = { 0 };
  for (int32_t i = 0; i < setup->config.num_layers; i++) {
    const cgr_layer *l = &setup->layers[i];
    bool bounded = l->length_set == 0; /* windows count from a query's place among its own keys */
    if (l->size != 0 && l->group == group && !(l->flags & CGR_LAYER_NO_CACHE))
      cgr__window_spans_add(&window_spans, bounded ? l->window_left : 0, bounded ? l->chunk : 0);
  }
  return window_spans;
}

void cgr__check_pools(const cgr__setup *setup, cgr__findings *f) {
  const cgr_config *c = &setup->config;
  for (int32_t i = 0; i < c->num_groups && i < CGR__MAX_GROUPS; i++) {
    const cgr__window_spans window_spans = cgr__group_window_spans(setup, i);
    const int32_t set = setup->groups[i].length_set, most = cgr__max_len(c, set);
    f->group = i;
    if (setup->groups[i].size != 0 && most > setup->pool_tokens[i] && cgr__window_spans_least(&window_spans, 1) == INT32_MAX)
      cgr__findings_add(f, CGR_ERROR_INVALID_ARGUMENT, cgr__max_len_field(set).name,
                        "is %d, expected at most %lld, what the pages of groups[%d] hold", most, (long long)setup->pool_tokens[i],
                        i);
  }
  f->group = -1;
}

/* Reads the groups of a configuration. */
#include "base/sized.h"
#include "base/status.h"
#include "runtime/config/config.h"

static void check_trash_pages(const cgr_group *g, int32_t i, cgr__findings *f) {
  cgr__in_range(f, cgr__field_of("groups", i, "read_trash_page").name, g->read_trash_page, 0, g->num_pages - 1);
  cgr__in_range(f, cgr__field_of("groups", i, "write_trash_page").name, g->write_trash_page, 0, g->num_pages - 1);
  if (g->read_trash_page == g->write_trash_page)
    cgr__findings_add(f, CGR_ERROR_INVALID_ARGUMENT, cgr__field_of("groups", i, "write_trash_page").name,
              "is %d, expected another page than read_trash_page", g->write_trash_page);
}

/* What the page table must hold. */
static void check_table(const cgr_config *c, const cgr_group *g, int32_t i, cgr__findings *f) {
  int64_t pages = ((int64_t)c->max_seq_len + g->page_size - 1) / g->page_size;
  int64_t held = (g->num_pages - 2) * g->page_size;
  if (c->max_seq_len > held)
    cgr__findings_add(f, CGR_ERROR_INVALID_ARGUMENT, "max_seq_len", "is %d, expected at most %lld, what the pages of groups[%d] hold",
              c->max_seq_len, (long long)held, i);
  if (pages * c->max_requests > INT32_MAX)
    cgr__findings_add(f, CGR_ERROR_INVALID_ARGUMENT, "max_seq_len", "is %d, expected at most %lld pages for %d requests in one step",
              c->max_seq_len, (long long)(INT32_MAX / c->max_requests), c->max_requests);
  if (g->page_table && (g->page_table_stride < pages || g->page_table_stride > CGR__MAX_STRIDE))
    cgr__findings_add(f, CGR_ERROR_INVALID_ARGUMENT, cgr__field_of("groups", i, "page_table_stride").name,
              "is %lld, expected at least %lld (max_seq_len / page_size) and at most 2^31", (long long)g->page_table_stride,
              (long long)pages);
  if ((uintptr_t)g->page_table % sizeof(int32_t) != 0)
    cgr__findings_add(f, CGR_ERROR_INVALID_ARGUMENT, cgr__field_of("groups", i, "page_table").name, "is %p, expected a multiple of 4",
              (const void *)g->page_table);
}

/* Whether its pages are known. */
static bool read_group(cgr__setup *setup, int32_t i, cgr__findings *f) {
  cgr_group *g = &setup->groups[i];
  cgr_status status = cgr__sized_read_at("groups", setup->config.groups, i, g, sizeof *g);
  if (status != CGR_OK) {
    cgr__findings_add_failure(f, status, cgr__field_of("groups", i, "").name);
    return false;
  }
  if (g->page_size == 0)
    g->page_size = 16;
  if (g->read_trash_page == 0 && g->write_trash_page == 0)
    g->write_trash_page = 1;
  bool paged = g->page_size == 16 || g->page_size == 32 || g->page_size == 64;
  if (!paged)
    cgr__findings_add(f, g->page_size < 1 ? CGR_ERROR_INVALID_ARGUMENT : CGR_ERROR_UNSUPPORTED,
              cgr__field_of("groups", i, "page_size").name, "is %d, expected 16, 32 or 64", g->page_size);
  if (!cgr__in_range(f, cgr__field_of("groups", i, "num_pages").name, g->num_pages, 3, INT32_MAX))
    return false;
  check_trash_pages(g, i, f);
  if (paged)
    check_table(&setup->config, g, i, f);
  return paged;
}

void cgr__setup_groups(cgr__setup *setup, cgr__findings *f) {
  cgr_config *c = &setup->config;
  if (c->num_groups < 1)
    cgr__findings_add(f, CGR_ERROR_INVALID_ARGUMENT, "num_groups", "is %d, expected 1", c->num_groups);
  if (c->num_groups > 1)
    cgr__findings_add(f, CGR_ERROR_UNSUPPORTED, "num_groups", "is %d, expected 1 in this version", c->num_groups);
  if (!c->groups)
    cgr__findings_add(f, CGR_ERROR_NULL_POINTER, "groups", "is NULL, expected an array of groups");
  if (c->num_groups < 1 || !c->groups)
    return;
  for (int32_t i = 0; i < c->num_groups && i < CGR__MAX_GROUPS; i++) {
    f->group = i;
    if (!read_group(setup, i, f))
      setup->groups[i].size = 0;
  }
  f->group = -1;
}

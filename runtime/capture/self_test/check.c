/* What the caller of a self-test gives. */
#include <stdio.h>
#include <stdlib.h>

#include "devices/allocations.h"
#include "runtime/capture/self_test/self_test.h"

/* That the rows of the largest step are within the allocation. */
static cgr_status check_watched_end(const cgr_runtime *rt, const cgr_watch *w, int32_t i) {
  const int64_t rows = w->dimension == CGR_DIMENSION_TOKENS ? rt->setup.config.max_tokens : rt->setup.config.max_requests;
  const int64_t bytes = (rows - 1) * w->stride_bytes + w->row_bytes;
  size_t left, whole;
  if (!cgr__allocations_is_short(rt->dev->allocations, w->data, (uint64_t)bytes, &left, &whole))
    return CGR_OK;
  return cgr__fail(CGR_ERROR_INVALID_ARGUMENT,
                   "cgr_runtime_self_test: watched[%d] takes %lld bytes in %lld rows, expected at most %zu, where its allocation "
                   "of %zu bytes ends",
                   i, (long long)bytes, (long long)rows, left, whole);
}

static cgr_status check_watched(const cgr_runtime *rt, const cgr_self_test *g) {
  if (g->num_watched < 0 || g->num_watched > CGR__MAX_WATCHED)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "cgr_runtime_self_test: num_watched is %d, expected 0 .. %d", g->num_watched,
                     CGR__MAX_WATCHED);
  if (g->num_watched > 0 && !g->watched)
    return cgr__fail(CGR_ERROR_NULL_POINTER, "cgr_runtime_self_test: watched is NULL, expected %d", g->num_watched);
  for (int32_t i = 0; i < g->num_watched; i++) {
    const cgr_watch *w = &g->watched[i];
    if (!w->name || !w->data)
      return cgr__fail(CGR_ERROR_NULL_POINTER, "cgr_runtime_self_test: watched[%d].%s is NULL, expected an address", i,
                       w->name ? "data" : "name");
    CGR__TRY(cgr__check_unused("cgr_runtime_self_test: watched.reserved", w->reserved));
    if (w->row_bytes < 1 || w->row_bytes > CGR__MAX_STRIDE)
      return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "cgr_runtime_self_test: watched[%d].row_bytes is %lld, expected 1 .. 2^31", i,
                       (long long)w->row_bytes);
    if (w->stride_bytes < w->row_bytes || w->stride_bytes > CGR__MAX_STRIDE)
      return cgr__fail(CGR_ERROR_INVALID_ARGUMENT,
                       "cgr_runtime_self_test: watched[%d].stride_bytes is %lld, expected row_bytes (%lld) .. 2^31", i,
                       (long long)w->stride_bytes, (long long)w->row_bytes);
    char what[40];
    snprintf(what, sizeof what, "watched[%d].dimension", i);
    CGR__TRY(cgr__check_choice("cgr_runtime_self_test", what, &cgr__dimensions_of_steps, w->dimension));
    CGR__TRY(check_watched_end(rt, w, i));
  }
  return CGR_OK;
}

/* Of one group: in the pool, no trash, none twice. */
static cgr_status check_scratch_pages(const cgr_runtime *rt, const cgr_self_test *g, int32_t group) {
  const cgr_group *of = &rt->setup.groups[group];
  const int32_t *pages = g->pages + (size_t)group * (size_t)g->num_pages;
  unsigned char *given = calloc(1, (size_t)of->num_pages);
  cgr_status status = CGR_OK;
  if (!given)
    return cgr__fail(CGR_ERROR_OUT_OF_MEMORY, "cgr_runtime_self_test: no memory for %lld pages", (long long)of->num_pages);
  for (int32_t i = 0; i < g->num_pages && status == CGR_OK; i++) {
    int32_t page = pages[i];
    if (page < 0 || page >= of->num_pages || page == of->read_trash_page || page == of->write_trash_page)
      status = cgr__fail(CGR_ERROR_PAGE_OUT_OF_RANGE,
                         "cgr_runtime_self_test: pages[%d][%d] is %d, expected one of group %d's %lld that is not reserved",
                         group, i, page, group, (long long)of->num_pages);
    else if (given[page]++)
      status =
          cgr__fail(CGR_ERROR_INVALID_ARGUMENT,
                    "cgr_runtime_self_test: pages[%d][%d] is %d, which is given twice, expected each page once", group, i, page);
  }
  free(given);
  return status;
}

static cgr_status check_state(const cgr_runtime *rt) {
  CGR__TRY(cgr__runtime_check_unprepared(rt, "cgr_runtime_self_test"));
  if (rt->rows.num_open > 0)
    return cgr__fail(CGR_ERROR_STATE, "cgr_runtime_self_test: %d row%s open, expected none", rt->rows.num_open,
                     rt->rows.num_open == 1 ? " is" : "s are");
  for (int32_t g = 0; g < rt->setup.config.num_groups; g++)
    if (rt->setup.groups[g].page_table)
      return cgr__fail(CGR_ERROR_UNSUPPORTED,
                       "cgr_runtime_self_test: group %d has a page table of the engine's, expected the library's", g);
  return CGR_OK;
}

cgr_status cgr__test_check(const cgr_runtime *rt, cgr_self_test *g) {
  CGR__TRY(cgr__check_unused("cgr_runtime_self_test: reserved", g->reserved));
  if (rt->setup.config.num_groups == 0) /* nothing has pages */
    g->num_pages = 0, g->pages = NULL;
  else if (g->num_pages < 4 || g->num_pages > 1 << 24)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "cgr_runtime_self_test: num_pages is %d, expected 4 .. 2^24", g->num_pages);
  if (!g->pages && rt->setup.config.num_groups > 0)
    return cgr__fail(CGR_ERROR_NULL_POINTER, "cgr_runtime_self_test: pages is NULL, expected %d for each group", g->num_pages);
  if (g->max_token < 1)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "cgr_runtime_self_test: max_token is %d, expected the size of the vocabulary",
                     g->max_token);
  CGR__TRY(check_watched(rt, g));
  CGR__TRY(cgr__check_unused("cgr_runtime_self_test: reserved_end", g->reserved_end));
  CGR__TRY(cgr__test_check_data(rt, g));
  CGR__TRY(check_state(rt));
  for (int32_t i = 0; i < rt->setup.config.num_groups; i++)
    CGR__TRY(check_scratch_pages(rt, g, i));
  return CGR_OK;
}

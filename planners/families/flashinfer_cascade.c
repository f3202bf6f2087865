/* The two levels of a batch whose requests share prefixes, and their plans. */
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/limits.h"
#include "base/range.h"
#include "base/sized.h"
#include "base/status.h"
#include "cgr/planners.h"
#include "planners/families/flashinfer_host.h"

/* ----------------------------------------------------------------------------------------------------------- validation */

static cgr_status check_arrays(const char *function, const cgr_flashinfer_cascade *c) {
  const struct {
    const char *name;
    const void *array;
    bool needed;
  } arrays[] = {
    { "qo_indptr", c->qo_indptr, true },
    { "kv_indptr", c->kv_indptr, true },
    { "kv_last_page_len", c->kv_last_page_len, true },
    { "group_start", c->group_start, true },
    { "prefix_pages", c->prefix_pages, true },
    { "shared_qo_indptr", c->shared_qo_indptr, true },
    { "shared_kv_indptr", c->shared_kv_indptr, true },
    { "shared_last_page_len", c->shared_last_page_len, true },
    { "unique_kv_indptr", c->unique_kv_indptr, true },
    { "unique_last_page_len", c->unique_last_page_len, true },
    { "shared_kv_indices", c->shared_kv_indices, c->kv_indices != NULL },
    { "unique_kv_indices", c->unique_kv_indices, c->kv_indices != NULL },
  };
  for (size_t i = 0; i < sizeof arrays / sizeof arrays[0]; i++)
    if (arrays[i].needed && !arrays[i].array)
      return cgr__fail(CGR_ERROR_NULL_POINTER, "%s: %s is NULL, expected an array", function, arrays[i].name);
  return CGR_OK;
}

/* A running sum from 0. `last`: where it has to end, or -1. */
static cgr_status check_sum(const char *function, const char *name, const int32_t *sum, int32_t count, int32_t last) {
  if (sum[0] != 0)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "%s: %s[0] is %d, expected 0", function, name, sum[0]);
  for (int32_t i = 0; i < count; i++)
    if (sum[i + 1] < sum[i])
      return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "%s: %s[%d] is %d, expected at least %d (%s[%d])", function, name, i + 1,
                       sum[i + 1], sum[i], name, i);
  if (last >= 0 && sum[count] != last)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "%s: %s[%d] is %d, expected %d (num_requests)", function, name, count,
                     sum[count], last);
  return CGR_OK;
}

cgr_status cgr__cascade_read(const char *function, const cgr_flashinfer_cascade *given, cgr_flashinfer_cascade *c) {
  char what[64];
  snprintf(what, sizeof what, "%s: cascade", function);
  CGR__TRY(cgr__sized_read(what, given, c, sizeof *c));
  CGR__TRY(cgr__check_range(function, "num_requests", c->num_requests, 1, CGR__MAX_REQUESTS));
  CGR__TRY(cgr__check_range(function, "num_groups", c->num_groups, 1, CGR__MAX_REQUESTS));
  CGR__TRY(cgr__check_range(function, "page_size", c->page_size, 1, 65536));
  snprintf(what, sizeof what, "%s: cascade: reserved", function);
  CGR__TRY(cgr__check_unused(what, c->reserved));
  return check_arrays(function, c);
}

static cgr_status check_sums(const char *function, const cgr_flashinfer_cascade *c) {
  CGR__TRY(check_sum(function, "qo_indptr", c->qo_indptr, c->num_requests, -1));
  CGR__TRY(check_sum(function, "kv_indptr", c->kv_indptr, c->num_requests, -1));
  return check_sum(function, "group_start", c->group_start, c->num_groups, c->num_requests);
}

/* ----------------------------------------------------------------------------------------------------------------- split */

/* One request of group g, whose prefix has `prefix` pages. */
static cgr_status check_request(const char *function, const cgr_flashinfer_cascade *c, int32_t g, int32_t i, int32_t prefix) {
  int32_t rows = c->qo_indptr[i + 1] - c->qo_indptr[i], pages = c->kv_indptr[i + 1] - c->kv_indptr[i];
  int32_t last = c->kv_last_page_len[i];
  if (pages > 0 && (last < 1 || last > c->page_size))
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "%s: kv_last_page_len[%d] is %d, expected 1 .. %d", function, i, last,
                     c->page_size);
  int64_t before = pages == 0 ? 0 : ((int64_t)pages - 1) * c->page_size + last - rows; /* tokens before the new ones */
  if ((pages > 0 || rows > 0) && (int64_t)prefix * c->page_size > before && prefix > 0)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT,
                     "%s: prefix_pages[%d] is %d, expected at most %lld: request %d has %lld tokens before its new ones",
                     function, g, prefix, (long long)(before > 0 ? before / c->page_size : 0), i,
                     (long long)(before > 0 ? before : 0));
  return CGR_OK;
}

static cgr_status check_pages(const char *function, const cgr_flashinfer_cascade *c, int32_t g, int32_t i, const int32_t *prefix,
                              int32_t count) {
  const int32_t *pages = c->kv_indices + c->kv_indptr[i];
  for (int32_t k = 0; k < count; k++)
    if (pages[k] != prefix[k])
      return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "%s: page %d of request %d is %d, expected %d, as in the rest of group %d",
                       function, k, i, pages[k], prefix[k], g);
  return CGR_OK;
}

static void put_pages(int32_t *to, const int32_t *from, int32_t count) {
  if (count > 0)
    memcpy(to, from, (size_t)count * sizeof *to);
}

/* The requests of group g: their own pages, and the pages of the first that has any as the group's. */
static cgr_status split_group(const char *function, const cgr_flashinfer_cascade *c, int32_t g) {
  int32_t shared = 0, *prefix = c->kv_indices ? c->shared_kv_indices + c->shared_kv_indptr[g] : NULL;
  for (int32_t i = c->group_start[g]; i < c->group_start[g + 1]; i++) {
    int32_t pages = c->kv_indptr[i + 1] - c->kv_indptr[i], count = pages == 0 ? 0 : c->prefix_pages[g];
    CGR__TRY(check_request(function, c, g, i, c->prefix_pages[g]));
    if (prefix && shared == 0)
      put_pages(prefix, c->kv_indices + c->kv_indptr[i], count);
    if (prefix)
      CGR__TRY(check_pages(function, c, g, i, prefix, count));
    shared = count > 0 ? count : shared;
    c->unique_kv_indptr[i + 1] = c->unique_kv_indptr[i] + pages - count;
    c->unique_last_page_len[i] = pages > count ? c->kv_last_page_len[i] : 1;
    if (prefix)
      put_pages(c->unique_kv_indices + c->unique_kv_indptr[i], c->kv_indices + c->kv_indptr[i] + count, pages - count);
  }
  c->shared_qo_indptr[g + 1] = c->qo_indptr[c->group_start[g + 1]];
  c->shared_kv_indptr[g + 1] = c->shared_kv_indptr[g] + shared;
  c->shared_last_page_len[g] = shared > 0 ? c->page_size : 1;
  return CGR_OK;
}

cgr_status cgr__cascade_split(const char *function, const cgr_flashinfer_cascade *c) {
  CGR__TRY(check_sums(function, c));
  c->shared_qo_indptr[0] = c->shared_kv_indptr[0] = c->unique_kv_indptr[0] = 0;
  for (int32_t g = 0; g < c->num_groups; g++) {
    if (c->prefix_pages[g] < 0)
      return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "%s: prefix_pages[%d] is %d, expected at least 0", function, g,
                       c->prefix_pages[g]);
    CGR__TRY(split_group(function, c, g));
  }
  return CGR_OK;
}

void cgr__cascade_clear(const cgr_flashinfer_cascade *c) {
  memset(c->shared_qo_indptr, 0, ((size_t)c->num_groups + 1) * sizeof(int32_t));
  memset(c->shared_kv_indptr, 0, ((size_t)c->num_groups + 1) * sizeof(int32_t));
  memset(c->unique_kv_indptr, 0, ((size_t)c->num_requests + 1) * sizeof(int32_t));
  for (int32_t g = 0; g < c->num_groups; g++)
    c->shared_last_page_len[g] = 1;
  for (int32_t i = 0; i < c->num_requests; i++)
    c->unique_last_page_len[i] = 1;
}

/* ----------------------------------------------------------------------------------------------------------------- calls */

cgr_status cgr_flashinfer_cascade_split(const cgr_flashinfer_cascade *cascade) {
  cgr_flashinfer_cascade c;
  CGR__TRY(cgr__cascade_read("cgr_flashinfer_cascade_split", cascade, &c));
  return cgr__cascade_split("cgr_flashinfer_cascade_split", &c);
}

cgr_status cgr_flashinfer_cascade_build(const cgr_flashinfer_cascade *cascade, const cgr_flashinfer_prefill_input *input,
                                        void *const int_workspaces[2], const size_t int_bytes[2], cgr_flashinfer_plan plans[2]) {
  const char *function = "cgr_flashinfer_cascade_build";
  cgr_flashinfer_cascade c;
  cgr_flashinfer_prefill_input level;
  CGR__TRY(cgr__cascade_read(function, cascade, &c));
  CGR__TRY(cgr__sized_read("cgr_flashinfer_cascade_build: input", input, &level, sizeof level));
  CGR__REQUIRE(int_workspaces, function);
  CGR__REQUIRE(int_bytes, function);
  CGR__REQUIRE(plans, function);
  CGR__TRY(cgr__cascade_split(function, &c));
  level.page_size = c.page_size;
  level.live_requests = NULL;
  level.num_requests = c.num_groups;
  level.qo_indptr = c.shared_qo_indptr;
  level.kv_indptr = c.shared_kv_indptr;
  CGR__TRY(cgr_flashinfer_prefill_build(&level, int_workspaces[0], int_bytes[0], &plans[0]));
  level.num_requests = c.num_requests;
  level.qo_indptr = c.qo_indptr;
  level.kv_indptr = c.unique_kv_indptr;
  return cgr_flashinfer_prefill_build(&level, int_workspaces[1], int_bytes[1], &plans[1]);
}

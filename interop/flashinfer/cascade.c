/* The two levels of a batch whose requests share prefixes, and their plans. */
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/range.h"
#include "base/sized.h"
#include "base/status.h"
#include "cgr/planners.h"
#include "interop/flashinfer/host.h"
#include "interop/limits.h"

/* ----------------------------------------------------------------------------------------------------------- validation */

static cgr_status check_cascade_arrays(const char *function, const cgr_flashinfer_cascade *c) {
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

cgr_status cgr__cascade_read(const char *function, const cgr_flashinfer_cascade *given, cgr_flashinfer_cascade *c) {
  char what[64];
  snprintf(what, sizeof what, "%s: cascade", function);
  CGR__TRY(cgr__sized_read(what, "CGR_FLASHINFER_CASCADE_INIT", given, c, sizeof *c));
  CGR__TRY(cgr__check_range(function, "num_requests", c->num_requests, 1, CGR__MAX_REQUESTS));
  CGR__TRY(cgr__check_range(function, "num_groups", c->num_groups, 1, CGR__MAX_REQUESTS));
  CGR__TRY(cgr__check_range(function, "page_size", c->page_size, 1, CGR__FORMATS_MAX_PAGE_SIZE));
  snprintf(what, sizeof what, "%s: cascade: reserved", function);
  CGR__TRY(cgr__check_unused(what, c->reserved));
  return check_cascade_arrays(function, c);
}

/* ----------------------------------------------------------------------------------------------------------------- split
 * The host device's kernel runs this too: nothing here sets the thread's message. */

static int32_t min_of(int32_t a, int32_t b) { return a < b ? a : b; }

int32_t cgr__cascade_live(const cgr_flashinfer_cascade *c) {
  int32_t live = c->live_requests ? *c->live_requests : c->num_requests;
  return live < 0 ? 0 : min_of(live, c->num_requests);
}

/* Reports the fault that makes the batch no cascade. */
static bool set_cascade_fault(cgr__cascade_fault *fault, cgr__cascade_fault what) {
  *fault = what;
  return false;
}

/* A running sum from 0. */
static bool sum_is_good(const char *name, const int32_t *sum, int32_t count, cgr__cascade_fault *fault) {
  if (sum[0] != 0)
    return set_cascade_fault(fault, (cgr__cascade_fault){ .kind = CGR__CASCADE_BEGIN, .array = name, .got = sum[0] });
  for (int32_t i = 0; i < count; i++)
    if (sum[i + 1] < sum[i])
      return set_cascade_fault(
          fault, (cgr__cascade_fault){
                     .kind = CGR__CASCADE_FALL, .array = name, .index = i + 1, .got = sum[i + 1], .expected = sum[i] });
  return true;
}

static bool sums_are_good(const cgr_flashinfer_cascade *c, int32_t live, cgr__cascade_fault *fault) {
  if (!sum_is_good("qo_indptr", c->qo_indptr, live, fault) || !sum_is_good("kv_indptr", c->kv_indptr, live, fault) ||
      !sum_is_good("group_start", c->group_start, c->num_groups, fault))
    return false;
  int32_t end = c->group_start[c->num_groups];
  if (end < live || end > c->num_requests)
    return set_cascade_fault(fault, (cgr__cascade_fault){ .kind = CGR__CASCADE_END, .got = end, .expected = live });
  return true;
}

/* One request of group g, whose prefix has `prefix` pages. */
static bool request_is_good(const cgr_flashinfer_cascade *c, int32_t g, int32_t i, int32_t prefix, cgr__cascade_fault *fault) {
  int32_t rows = c->qo_indptr[i + 1] - c->qo_indptr[i], pages = c->kv_indptr[i + 1] - c->kv_indptr[i];
  int32_t last = c->kv_last_page_len[i];
  if (pages > 0 && (last < 1 || last > c->page_size))
    return set_cascade_fault(fault, (cgr__cascade_fault){ .kind = CGR__CASCADE_LAST_PAGE, .index = i, .got = last });
  if (prefix == 0 || (pages == 0 && rows == 0))
    return true;
  int64_t before = pages == 0 ? 0 : ((int64_t)pages - 1) * c->page_size + last - rows; /* tokens before the new ones */
  if ((int64_t)prefix * c->page_size > before)
    return set_cascade_fault(
        fault,
        (cgr__cascade_fault){ .kind = CGR__CASCADE_LONG_PREFIX, .index = g, .got = prefix, .request = i, .expected = before });
  return true;
}

/* Whether request i of group g begins with these pages. */
static bool pages_agree(const cgr_flashinfer_cascade *c, int32_t g, int32_t i, const int32_t *prefix, int32_t count,
                        cgr__cascade_fault *fault) {
  const int32_t *pages = c->kv_indices + c->kv_indptr[i];
  for (int32_t k = 0; k < count; k++)
    if (pages[k] != prefix[k])
      return set_cascade_fault(
          fault, (cgr__cascade_fault){
                     .kind = CGR__CASCADE_PAGE, .index = k, .got = pages[k], .expected = prefix[k], .request = i, .group = g });
  return true;
}

static void put_pages(int32_t *to, const int32_t *from, int32_t count) {
  if (count > 0)
    memcpy(to, from, (size_t)count * sizeof *to);
}

/* Splits the live requests of group g into their own pages and the group's, which are those of the first that has any. */
static bool split_group(const cgr_flashinfer_cascade *c, int32_t live, int32_t g, cgr__cascade_fault *fault) {
  int32_t shared = 0, *prefix = c->kv_indices ? c->shared_kv_indices + c->shared_kv_indptr[g] : NULL;
  int32_t first = min_of(c->group_start[g], live), end = min_of(c->group_start[g + 1], live);
  for (int32_t i = first; i < end; i++) {
    int32_t pages = c->kv_indptr[i + 1] - c->kv_indptr[i], count = pages == 0 ? 0 : c->prefix_pages[g];
    if (!request_is_good(c, g, i, c->prefix_pages[g], fault))
      return false;
    if (prefix && shared == 0)
      put_pages(prefix, c->kv_indices + c->kv_indptr[i], count);
    if (prefix && !pages_agree(c, g, i, prefix, count, fault))
      return false;
    shared = count > 0 ? count : shared;
    c->unique_kv_indptr[i + 1] = c->unique_kv_indptr[i] + pages - count;
    c->unique_last_page_len[i] = pages > count ? c->kv_last_page_len[i] : 1;
    if (prefix)
      put_pages(c->unique_kv_indices + c->unique_kv_indptr[i], c->kv_indices + c->kv_indptr[i] + count, pages - count);
  }
  c->shared_qo_indptr[g + 1] = c->qo_indptr[end];
  c->shared_kv_indptr[g + 1] = c->shared_kv_indptr[g] + shared;
  c->shared_last_page_len[g] = shared > 0 ? c->page_size : 1;
  return true;
}

bool cgr__cascade_split(const cgr_flashinfer_cascade *c, cgr__cascade_fault *fault) {
  int32_t live = cgr__cascade_live(c);
  if (!sums_are_good(c, live, fault))
    return false;
  c->shared_qo_indptr[0] = c->shared_kv_indptr[0] = c->unique_kv_indptr[0] = 0;
  for (int32_t g = 0; g < c->num_groups; g++) {
    if (c->prefix_pages[g] < 0)
      return set_cascade_fault(fault, (cgr__cascade_fault){ .kind = CGR__CASCADE_PREFIX, .index = g, .got = c->prefix_pages[g] });
    if (!split_group(c, live, g, fault))
      return false;
  }
  for (int32_t i = live; i < c->num_requests; i++) {
    c->unique_kv_indptr[i + 1] = c->unique_kv_indptr[live];
    c->unique_last_page_len[i] = 1;
  }
  return true;
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

static cgr_status report_cascade_fault(const char *function, const cgr_flashinfer_cascade *c, const cgr__cascade_fault *f) {
  const cgr_status bad = CGR_ERROR_INVALID_ARGUMENT;
  int64_t expected = f->expected, before = expected > 0 ? expected : 0;
  switch (f->kind) {
  case CGR__CASCADE_BEGIN:
    return cgr__fail(bad, "%s: %s[0] is %d, expected 0", function, f->array, f->got);
  case CGR__CASCADE_FALL:
    return cgr__fail(bad, "%s: %s[%d] is %d, expected at least %lld (%s[%d])", function, f->array, f->index, f->got,
                     (long long)expected, f->array, f->index - 1);
  case CGR__CASCADE_END:
    if (expected == c->num_requests)
      return cgr__fail(bad, "%s: group_start[%d] is %d, expected %d (num_requests)", function, c->num_groups, f->got,
                       c->num_requests);
    return cgr__fail(bad, "%s: group_start[%d] is %d, expected %lld (live requests) .. %d (num_requests)", function,
                     c->num_groups, f->got, (long long)expected, c->num_requests);
  case CGR__CASCADE_PREFIX:
    return cgr__fail(bad, "%s: prefix_pages[%d] is %d, expected at least 0", function, f->index, f->got);
  case CGR__CASCADE_LAST_PAGE:
    return cgr__fail(bad, "%s: kv_last_page_len[%d] is %d, expected 1 .. %d", function, f->index, f->got, c->page_size);
  case CGR__CASCADE_LONG_PREFIX:
    return cgr__fail(bad, "%s: prefix_pages[%d] is %d, expected at most %lld: request %d has %lld tokens before its new ones",
                     function, f->index, f->got, (long long)(before / c->page_size), f->request, (long long)before);
  case CGR__CASCADE_PAGE:
    return cgr__fail(bad, "%s: page %d of request %d is %d, expected %lld, as in the rest of group %d", function, f->index,
                     f->request, f->got, (long long)expected, f->group);
  }
  return bad; /* there is no other kind */
}

static cgr_status split_cascade(const char *function, const cgr_flashinfer_cascade *c) {
  cgr__cascade_fault fault;
  return cgr__cascade_split(c, &fault) ? CGR_OK : report_cascade_fault(function, c, &fault);
}

cgr_status cgr_flashinfer_cascade_split(const cgr_flashinfer_cascade *cascade) {
  cgr_flashinfer_cascade c;
  CGR__TRY(cgr__cascade_read("cgr_flashinfer_cascade_split", cascade, &c));
  return split_cascade("cgr_flashinfer_cascade_split", &c);
}

/* The shared level has no mask, and does not know where its rows are in their sequences. A window would leave out different keys
 * for each row. */
static cgr_status check_window(const char *function, int32_t window) {
  if (window == 0)
    return CGR_OK;
  return cgr__fail(CGR_ERROR_UNSUPPORTED,
                   "%s: input: window is %d, expected 0: each row attends to all of its prefix in the shared level, so requests "
                   "whose windows may end in the prefix need a plan of one level",
                   function, window);
}

cgr_status cgr_flashinfer_cascade_build(const cgr_flashinfer_cascade *cascade, const cgr_flashinfer_prefill_input *input,
                                        void *const int_workspaces[2], const size_t int_bytes[2], cgr_flashinfer_plan plans[2]) {
  const char *function = "cgr_flashinfer_cascade_build";
  cgr_flashinfer_cascade c;
  cgr_flashinfer_prefill_input level;
  CGR__TRY(cgr__cascade_read(function, cascade, &c));
  CGR__TRY(
      cgr__sized_read("cgr_flashinfer_cascade_build: input", "CGR_FLASHINFER_PREFILL_INPUT_INIT", input, &level, sizeof level));
  CGR__TRY(check_window(function, level.window));
  CGR__REQUIRE(int_workspaces, function);
  CGR__REQUIRE(int_bytes, function);
  void *plan[2];
  for (int32_t i = 0; i < 2; i++) /* both, before anything is written */
    CGR__TRY(cgr__sized_check_at("cgr_flashinfer_cascade_build: plans", "CGR_FLASHINFER_PLAN_INIT", plans, i, &plan[i]));
  CGR__TRY(split_cascade(function, &c));
  const int32_t uniform_q_len = level.uniform_q_len; /* of the unique level: a group has the rows of several requests */
  level.uniform_q_len = 0;
  level.page_size = c.page_size;
  level.live_requests = NULL;
  level.num_requests = c.num_groups;
  level.qo_indptr = c.shared_qo_indptr;
  level.kv_indptr = c.shared_kv_indptr;
  CGR__TRY(cgr__flashinfer_build_prefill("cgr_flashinfer_cascade_build: shared level", &level, int_workspaces[0], int_bytes[0],
                                         plan[0]));
  level.num_requests = c.num_requests;
  level.uniform_q_len = uniform_q_len;
  level.live_requests = c.live_requests;
  level.qo_indptr = c.qo_indptr;
  level.kv_indptr = c.unique_kv_indptr;
  return cgr__flashinfer_build_prefill("cgr_flashinfer_cascade_build: unique level", &level, int_workspaces[1], int_bytes[1],
                                       plan[1]);
}

#include "runtime/self_test/self_test.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/ranges.h"

/* ------------------------------------------------------------------------------------------------------------- arguments */

static cgr_status check_watched(const cgr_self_test *g) {
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
    if (w->dimension != CGR_DIMENSION_TOKENS && w->dimension != CGR_DIMENSION_REQUESTS)
      return cgr__fail(CGR_ERROR_INVALID_ENUM,
                       "cgr_runtime_self_test: watched[%d].dimension is %d, expected CGR_DIMENSION_TOKENS or _REQUESTS", i,
                       w->dimension);
  }
  return CGR_OK;
}

/* Of one group: in the pool, no trash, none twice. */
static cgr_status check_pages(const cgr_runtime *rt, const cgr_self_test *g, int32_t group) {
  const cgr_group *of = &rt->setup.groups[group];
  const int32_t *pages = g->pages + (size_t)group * (size_t)g->num_pages;
  unsigned char *seen = calloc(1, (size_t)of->num_pages);
  cgr_status status = CGR_OK;
  if (!seen)
    return cgr__fail(CGR_ERROR_OUT_OF_MEMORY, "cgr_runtime_self_test: no memory for %lld pages", (long long)of->num_pages);
  for (int32_t i = 0; i < g->num_pages && status == CGR_OK; i++) {
    int32_t page = pages[i];
    if (page < 0 || page >= of->num_pages || page == of->read_trash_page || page == of->write_trash_page)
      status = cgr__fail(CGR_ERROR_PAGE_OUT_OF_RANGE,
                         "cgr_runtime_self_test: pages[%d][%d] is %d, expected one of group %d's %lld that is not reserved",
                         group, i, page, group, (long long)of->num_pages);
    else if (seen[page]++)
      status =
          cgr__fail(CGR_ERROR_INVALID_ARGUMENT,
                    "cgr_runtime_self_test: pages[%d][%d] is %d, which is given twice, expected each page once", group, i, page);
  }
  free(seen);
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

static cgr_status check(const cgr_runtime *rt, cgr_self_test *g) {
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
  CGR__TRY(check_watched(g));
  CGR__TRY(check_state(rt));
  for (int32_t i = 0; i < rt->setup.config.num_groups; i++)
    CGR__TRY(check_pages(rt, g, i));
  return CGR_OK;
}

/* ---------------------------------------------------------------------------------------------------------------- memory */

static cgr_status take_host_memory(cgr__self_test *t) {
  const cgr_config *c = &t->rt->setup.config;
  size_t r = (size_t)c->max_requests, groups = (size_t)c->num_groups, digests = cgr__test_digest_bytes(t);
  size_t sets = (size_t)c->num_length_sets;
  int32_t *words = malloc((2 * r + r * sets + 2 * r * groups + (size_t)c->max_tokens) * sizeof *words);
  cgr__test_case *tc = &t->test_case;
  tc->rows = words;
  t->tokens = malloc(2 * cgr__test_list_length(t) * sizeof *t->tokens + 1);
  bool all = words && t->tokens;
  for (int i = 0; i < 3; i++)
    all = (t->filled[i] = malloc(digests + 1)) && all;
  for (int i = 0; i < 4; i++)
    all = (t->runs[i].digests = malloc(digests + 1)) && all;
  if (!all)
    return cgr__fail(CGR_ERROR_OUT_OF_MEMORY, "cgr_runtime_self_test: no memory for the digests (%zu bytes each)", digests);
  tc->lens = words + r;
  tc->before = words + 2 * r;
  tc->first_page = tc->before + r * sets;
  tc->num_pages = tc->first_page + r * groups;
  tc->tokens = tc->num_pages + r * groups;
  for (size_t i = 0; i < r; i++)
    tc->rows[i] = -1;
  return CGR_OK;
}

/* The given pages in an order of the test's own. */
static cgr_status shuffle_pages(cgr__self_test *t) {
  int32_t n = t->given.num_pages, groups = t->rt->setup.config.num_groups;
  size_t bytes = (size_t)n * (size_t)groups * sizeof *t->pages;
  t->pages = malloc(bytes + 1);
  if (!t->pages)
    return cgr__fail(CGR_ERROR_OUT_OF_MEMORY, "cgr_runtime_self_test: no memory for %zu bytes of pages", bytes);
  if (bytes > 0)
    memcpy(t->pages, t->given.pages, bytes);
  for (int32_t g = 0; g < groups; g++)
    for (int32_t i = n - 1; i > 0; i--) {
      int32_t *pages = t->pages + (size_t)g * (size_t)n, other = (int32_t)cgr__test_random(t, (uint64_t)i + 1), page = pages[i];
      pages[i] = pages[other];
      pages[other] = page;
    }
  return CGR_OK;
}

/* The lists of pages, each with the read-trash page at its end, and room for the digests. */
static cgr_status take_device_memory(cgr__self_test *t) {
  cgr_runtime *rt = t->rt;
  const cgr__device_ops *ops = rt->dev->ops;
  size_t pages = (size_t)cgr__test_num_pages(t), groups = (size_t)rt->setup.config.num_groups;
  void *memory = NULL;
  int error = ops->mem_alloc(rt->dev, cgr__test_digest_offset(t) + cgr__test_digest_bytes(t) + 1, CGR__MEMORY_DEVICE, &memory);
  t->device = memory;
  for (size_t g = 0; g < groups && !error; g++) {
    int32_t *list = (int32_t *)memory + g * pages;
    error = ops->copy(rt->dev, list, t->pages + g * (pages - 1), (pages - 1) * sizeof *list, rt->own_stream);
    if (!error)
      error = ops->copy(rt->dev, list + pages - 1, &rt->setup.groups[g].read_trash_page, sizeof *list, rt->own_stream);
  }
  if (!error)
    error = ops->stream_sync(rt->dev, rt->own_stream);
  return cgr__runtime_device_error(rt, error, "cgr_runtime_self_test: memory for pages and digests");
}

static void release(cgr__self_test *t) {
  if (t->device)
    t->rt->dev->ops->mem_free(t->rt->dev, t->device, CGR__MEMORY_DEVICE);
  for (int i = 0; i < 3; i++)
    free(t->filled[i]);
  for (int i = 0; i < 4; i++) {
    free(t->runs[i].digests);
    free(t->runs[i].content);
  }
  free(t->pages);
  free(t->tokens);
  free(t->test_case.rows);
}

/* ---------------------------------------------------------------------------------------------------------------- graphs */

/* Reports what differs from run to run: what was varied is the cause if the first run, repeated, is the same. */
static cgr_status tell_differences(cgr__self_test *t) {
  CGR__TRY(cgr__test_run_case(t, 3, CGR_KIND_NONE, 0x00, 0));
  if (cgr__test_compare(t, &t->runs[0], &t->runs[3], "in an eager step", "in the same one again: `record` does not repeat") ==
          0 &&
      cgr__test_compare(t, &t->runs[1], &t->runs[2], "with one padding and stale memory", "with another") == 0)
    cgr__test_compare(t, &t->runs[1], &t->runs[0], "in the replay", "in the eager step");
  return CGR_OK;
}

/* The eager step first, then the replay twice: what differs between those two came from what is stale or padding. */
static cgr_status try_graph(cgr__self_test *t, const cgr_key *key) {
  if (!cgr__test_compose(t, key)) {
    cgr__findings_add(&t->findings, CGR_ERROR_PAGES_MISSING, cgr__key_name(key).text,
                      "was not tried: %d page%s not hold one request of it", t->given.num_pages,
                      t->given.num_pages == 1 ? " does" : "s do");
    return CGR_OK;
  }
  cgr_graph_kind kind = (cgr_graph_kind)key->kind;
  CGR__TRY(cgr__test_run_case(t, 0, CGR_KIND_NONE, 0x00, 0));
  CGR__TRY(cgr__test_run_case(t, 1, kind, 0xff, 0));
  CGR__TRY(cgr__test_run_case(t, 2, kind, 0x55, t->given.max_token - 1));
  if (cgr__test_differs(t, &t->runs[1], &t->runs[2]) || cgr__test_differs(t, &t->runs[1], &t->runs[0]))
    CGR__TRY(tell_differences(t));
  (void)(cgr__test_check_pages(t, 1) && cgr__test_check_pages(t, 2) && cgr__test_check_pages(t, 0));
  return CGR_OK;
}

/* A uniform length that no sequence reaches has a graph but no step. */
static bool can_be_used(const cgr_runtime *rt, const cgr_key *key) {
  return !rt->graphs.exact_lengths || key->query_len <= rt->setup.limits.max_lens[cgr__graphs_set_of(&rt->graphs, key->variant)];
}

static cgr_status try_graphs(cgr__self_test *t) {
  cgr__graphs *graphs = &t->rt->graphs;
  CGR__TRY(cgr__test_fill_pages(t));
  for (int32_t i = 0; i < graphs->count; i++) {
    if (cgr__graph_state_of(graphs, &graphs->entry[i]) != CGR_GRAPH_READY || !can_be_used(t->rt, &graphs->entry[i].key))
      continue;
    cgr_status status = try_graph(t, &graphs->entry[i].key);
    cgr__test_close_rows(t);
    if (status != CGR_OK)
      return cgr__key_fail(status, "cgr_runtime_self_test", &graphs->entry[i].key);
  }
  return CGR_OK;
}

/* The padded tokens are 0 again, whatever has happened. */
static cgr_status restore(cgr__self_test *t) {
  static const int32_t zero = 0;
  cgr_runtime *rt = t->rt;
  int error = rt->dev->ops->copy(rt->dev, &rt->lane.args.state->padding_token, &zero, sizeof zero, rt->own_stream);
  if (!error)
    error = rt->dev->ops->stream_sync(rt->dev, rt->own_stream);
  return cgr__runtime_device_error(rt, error, "cgr_runtime_self_test: restoring the padding");
}

static cgr_status run(cgr__self_test *t) {
  const cgr_config *c = &t->rt->setup.config;
  t->random = t->given.seed;
  for (int32_t i = 0; i < c->num_layers; i++)
    if (cgr__owns_cache(&t->rt->setup.layers[i]))
      t->caches[t->num_caches++] = i;
  cgr_status status = shuffle_pages(t);
  if (status == CGR_OK)
    status = take_host_memory(t);
  if (status == CGR_OK)
    status = take_device_memory(t);
  if (status == CGR_OK) {
    status = try_graphs(t);
    cgr_status restored = restore(t);
    status = status == CGR_OK ? restored : status;
  }
  return status;
}

static cgr_status wait_for_steps(cgr_runtime *rt) {
  if (rt->lane.launched > 0)
    CGR__TRY(cgr__wait_completed(rt, "cgr_runtime_self_test", rt->lane.launched, rt->setup.config.wait_timeout_ms));
  cgr__baked_refresh(rt);
  return cgr__runtime_check_graphs(rt, "cgr_runtime_self_test");
}

static cgr_status self_test(cgr_runtime *runtime, const cgr_self_test *test, cgr_finding *findings, int32_t capacity,
                            int32_t *count) {
  cgr__self_test *t = calloc(1, sizeof *t);
  if (!t)
    return cgr__fail(CGR_ERROR_OUT_OF_MEMORY, "cgr_runtime_self_test: no memory (%zu bytes)", sizeof *t);
  t->rt = runtime;
  cgr__findings_init(&t->findings, findings, capacity);
  cgr_status status = cgr__sized_read("cgr_runtime_self_test: test", test, &t->given, sizeof t->given);
  if (status == CGR_OK)
    status = check(runtime, &t->given);
  if (status == CGR_OK)
    status = wait_for_steps(runtime);
  if (status == CGR_OK)
    status = run(t);
  release(t);
  *count = t->findings.count;
  if (status == CGR_OK)
    status = cgr__findings_status(&t->findings, "cgr_runtime_self_test");
  free(t);
  return status;
}

cgr_status cgr_runtime_self_test(cgr_runtime *runtime, const cgr_self_test *test, cgr_finding *findings, int32_t capacity,
                                 int32_t *count) {
  CGR__ONE_THREAD(runtime, "cgr_runtime_self_test");
  CGR__TRY(cgr__findings_check("cgr_runtime_self_test", findings, capacity, count));
  CGR__TRY(cgr__runtime_check_outside(runtime, "cgr_runtime_self_test"));
  cgr__range_begin(runtime, CGR__RANGE_SELF_TEST);
  cgr_status status = self_test(runtime, test, findings, capacity, count);
  cgr__range_end(runtime);
  return status == CGR_OK ? CGR_OK : cgr__fail_in("cgr_runtime_self_test", status);
}

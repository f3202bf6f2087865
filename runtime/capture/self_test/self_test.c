#include "runtime/capture/capture.h"
#include "runtime/step/step.h"
#include "runtime/capture/self_test/self_test.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "runtime/report/ranges.h"

/* ---------------------------------------------------------------------------------------------------------------- memory */

static void lay_out_requests(const cgr__self_test *t, cgr__test_requests *of, cgr__block *b) {
  const cgr_config *c = &t->rt->setup.config;
  size_t r = (size_t)c->max_requests, groups = (size_t)c->num_groups;
  of->rows = cgr__block_take(b, r, sizeof *of->rows);
  of->lens = cgr__block_take(b, r, sizeof *of->lens);
  of->seeds = cgr__block_take(b, r, sizeof *of->seeds);
  of->before = cgr__block_take(b, r * (size_t)t->rt->setup.limits.num_sets, sizeof *of->before);
  of->first_page = cgr__block_take(b, r * groups, sizeof *of->first_page);
  of->num_pages = cgr__block_take(b, r * groups, sizeof *of->num_pages);
}

static size_t lay_out_test(cgr__self_test *t, unsigned char *base) {
  cgr__block b = { base, 0 };
  size_t r = (size_t)t->rt->setup.config.max_requests;
  lay_out_requests(t, &t->test_case.of, &b);
  lay_out_requests(t, &t->decoy, &b);
  t->test_case.first_lens = cgr__block_take(&b, r, sizeof *t->test_case.first_lens);
  t->test_case.next_lens = cgr__block_take(&b, r, sizeof *t->test_case.next_lens);
  t->batch.rows = cgr__block_take(&b, r, sizeof *t->batch.rows);
  t->batch.lens = cgr__block_take(&b, r, sizeof *t->batch.lens);
  t->batch.seeds = cgr__block_take(&b, r, sizeof *t->batch.seeds);
  t->batch.tokens = cgr__block_take(&b, (size_t)t->rt->setup.config.max_tokens, sizeof *t->batch.tokens);
  t->order = cgr__block_take(&b, 2 * r, sizeof *t->order);
  t->data = cgr__block_take(&b, cgr__test_data_bytes(t), 1);
  return b.used;
}

static cgr_status take_test_host_memory(cgr__self_test *t) {
  size_t bytes = lay_out_test(t, NULL), digests = cgr__test_digest_bytes(t);
  t->block = malloc(bytes);
  t->tokens = malloc(2 * cgr__test_list_length(t) * sizeof *t->tokens + 1);
  bool all = t->block && t->tokens;
  for (int i = 0; i < 3; i++)
    all = (t->filled[i] = malloc(digests + 1)) && all;
  for (int i = 0; i < 4; i++)
    all = (t->runs[i].digests = malloc(digests + 1)) && all;
  if (!all)
    return cgr__fail(CGR_ERROR_OUT_OF_MEMORY, "cgr_runtime_self_test: no memory for %zu bytes, and digests of %zu bytes each",
                     bytes, digests);
  lay_out_test(t, t->block);
  for (int32_t i = 0; i < t->rt->setup.config.max_requests; i++)
    t->test_case.of.rows[i] = t->decoy.rows[i] = -1;
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
static cgr_status take_test_device_memory(cgr__self_test *t) {
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

static void release_test(cgr__self_test *t) {
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
  free(t->block);
}

/* ---------------------------------------------------------------------------------------------------------------- graphs */

/* Reports what differs from run to run: what was varied is the cause if the first run, repeated, is the same. Each run begins
 * with what its decoy has left, its padding, and stale memory. */
static cgr_status tell_differences(cgr__self_test *t) {
  CGR__TRY(cgr__test_run_case(t, 3, CGR_KIND_NONE, 0x00, 0));
  if (cgr__test_compare(t, &t->runs[0], &t->runs[3], "in an eager step", "in the same one again: `record` does not repeat") ==
          0 &&
      cgr__test_compare(t, &t->runs[1], &t->runs[2], "after one decoy, padding and stale memory", "after another") == 0)
    cgr__test_compare(t, &t->runs[1], &t->runs[0], "in the replay", "in the eager step");
  return CGR_OK;
}

/* The eager step first, then the replay twice: what differs between those two came from stale memory, padding, or
 * the decoys, whose values a graph reads if it lacks something. */
static cgr_status try_graph(cgr__self_test *t, const cgr_key *key) {
  if (!cgr__test_compose(t, key)) {
    cgr__findings_add(&t->findings, CGR_ERROR_PAGES_MISSING, cgr__key_name(key).text,
                      "was not tried: %d page%s not hold one request of it", t->given.num_pages,
                      t->given.num_pages == 1 ? " does" : "s do");
    return CGR_OK;
  }
  cgr_graph_kind kind = (cgr_graph_kind)key->kind;
  CGR__TRY(cgr__test_shuffle_rows(t));
  CGR__TRY(cgr__test_run_case(t, 0, CGR_KIND_NONE, 0x00, 0));
  CGR__TRY(cgr__test_run_case(t, 1, kind, 0xff, 0));
  cgr__test_compare_calls(t, &t->runs[0].calls, &t->runs[1].calls);
  CGR__TRY(cgr__test_run_case(t, 2, kind, 0x55, t->given.max_token - 1));
  if (cgr__test_differs(t, &t->runs[1], &t->runs[2]) || cgr__test_differs(t, &t->runs[1], &t->runs[0]))
    CGR__TRY(tell_differences(t));
  (void)(cgr__test_check_pages(t, 1) && cgr__test_check_pages(t, 2) && cgr__test_check_pages(t, 0));
  return CGR_OK;
}

/* What a graph lacks for its last request or token shows only in a full case, and what it lacks for padding only in the other. */
static cgr_status try_cases(cgr__self_test *t, const cgr_key *key) {
  int32_t found = t->findings.count;
  t->is_full = false;
  CGR__TRY(try_graph(t, key));
  if (t->findings.count > found)
    return CGR_OK;
  cgr__test_close_rows(t, &t->test_case.of);
  t->is_full = true;
  return try_graph(t, key);
}

/* A uniform length that no sequence reaches has a graph but no step. */
static bool can_be_used(const cgr_runtime *rt, const cgr_key *key) {
  return !rt->graphs.exact_lengths || key->query_len <= rt->setup.limits.max_lens[cgr__graphs_set_of(&rt->graphs, key->variant)];
}

static cgr_status try_graphs(cgr__self_test *t) {
  cgr__graphs *graphs = &t->rt->graphs;
  CGR__TRY(cgr__test_fill_pages(t));
  for (int32_t i = 0; i < graphs->count; i++) {
    if (graphs->entry[i].key.program > 0 || cgr__graph_state_of(graphs, &graphs->entry[i]) != CGR_GRAPH_READY ||
        !can_be_used(t->rt, &graphs->entry[i].key))
      continue;
    cgr_status status = try_cases(t, &graphs->entry[i].key);
    cgr__test_close_rows(t, &t->test_case.of);
    cgr__test_close_rows(t, &t->decoy);
    if (status != CGR_OK)
      return cgr__key_fail(status, "cgr_runtime_self_test", &graphs->entry[i].key);
  }
  return CGR_OK;
}

/* The padded tokens are 0 again, whatever has happened. */
static cgr_status restore_runtime(cgr__self_test *t) {
  static const int32_t zero = 0;
  cgr_runtime *rt = t->rt;
  int error = rt->dev->ops->copy(rt->dev, &rt->lane.args.state->padding_token, &zero, sizeof zero, rt->own_stream);
  if (!error)
    error = rt->dev->ops->stream_sync(rt->dev, rt->own_stream);
  return cgr__runtime_device_error(rt, error, "cgr_runtime_self_test: restoring the padding");
}

static cgr_status run_test(cgr__self_test *t) {
  const cgr_config *c = &t->rt->setup.config;
  t->random = t->given.seed;
  for (int32_t i = 0; i < c->num_layers; i++)
    if (cgr__owns_cache(&t->rt->setup.layers[i]))
      t->caches[t->num_caches++] = i;
  cgr__test_tell_unvaried(t);
  cgr_status status = shuffle_pages(t);
  if (status == CGR_OK)
    status = take_test_host_memory(t);
  if (status == CGR_OK)
    status = take_test_device_memory(t);
  if (status == CGR_OK) {
    status = try_graphs(t);
    cgr__test_tell_lacks(t);
    cgr_status restored = restore_runtime(t);
    status = status == CGR_OK ? restored : status;
  }
  return status;
}

static cgr_status wait_for_test_steps(cgr_runtime *rt) {
  if (rt->lane.launched > 0)
    CGR__TRY(cgr__wait_completed(rt, "cgr_runtime_self_test", rt->lane.launched, rt->setup.config.wait_timeout_ms));
  cgr__captured_inputs_refresh(rt);
  return cgr__runtime_check_graphs(rt, "cgr_runtime_self_test");
}

static cgr_status self_test(cgr_runtime *runtime, const cgr_self_test *test, cgr_finding *findings, int32_t capacity,
                            int32_t *count) {
  cgr__self_test *t = calloc(1, sizeof *t);
  if (!t)
    return cgr__fail(CGR_ERROR_OUT_OF_MEMORY, "cgr_runtime_self_test: no memory (%zu bytes)", sizeof *t);
  t->rt = runtime;
  cgr__findings_init(&t->findings, findings, capacity);
  cgr_status status = cgr__sized_read("cgr_runtime_self_test: test", "CGR_SELF_TEST_INIT", test, &t->given, sizeof t->given);
  if (status == CGR_OK)
    status = cgr__test_check(runtime, &t->given);
  if (status == CGR_OK)
    status = wait_for_test_steps(runtime);
  if (status == CGR_OK)
    status = run_test(t);
  release_test(t);
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
  return cgr__fail_in("cgr_runtime_self_test", status);
}
